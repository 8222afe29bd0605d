"""How much is tried by chance: some of it in `make test`, much more in `make soak`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

EFFORT = float(os.environ.get("NEARCAST_EFFORT", "0.3"))
FEWEST = 4


def examples(number: int, **more: Any) -> settings:
    """So many, times the effort of this run of the tests."""
    return settings(max_examples=max(min(number, FEWEST), round(number * EFFORT)), **more)


def seeds(first: Iterable[int], more: Iterable[int]) -> pytest.MarkDecorator:
    """A test for each of these seeds; those of `more` are left to `make soak`."""
    later = (pytest.param(seed, marks=pytest.mark.soak) for seed in more)
    return pytest.mark.parametrize("seed", [*first, *later])
