"""How much is tried by chance: some of it in `make test`, much more in `make soak`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

EFFORT = float(os.environ.get("NEARCAST_EFFORT", "0.2"))
FEWEST = 4


def examples(number: int, **more: Any) -> settings:
    """So many, times the effort of this run of the tests."""
    return settings(max_examples=max(min(number, FEWEST), round(number * EFFORT)), **more)


def seeds(first: Iterable[int], more: Iterable[int]) -> pytest.MarkDecorator:
    """A test for each of these seeds; those of `more` are left to `make soak`."""
    return choices("seed", first, more)


def choices(name: str, first: Iterable[Any], more: Iterable[Any]) -> pytest.MarkDecorator:
    """Likewise for any parameter."""
    several = ((value if isinstance(value, tuple) else (value,)) for value in more)
    later = (pytest.param(*values, marks=pytest.mark.soak) for values in several)
    return pytest.mark.parametrize(name, [*first, *later])


def crossed(names: str, one: Iterable[Any], other: Iterable[Any]) -> pytest.MarkDecorator:
    """A test for each pair of values of two parameters. `make test` tries every value of both, and
    `make soak` all pairs."""
    first, second = list(one), list(other)
    least = min(len(first), len(second))
    pairs = [(i, j, (a, b)) for i, a in enumerate(first) for j, b in enumerate(second)]
    chosen = [pair for i, j, pair in pairs if (i - j) % least == 0]
    return choices(names, chosen, [pair for i, j, pair in pairs if (i - j) % least])
