"""The checks that all workloads' parameters share: each refuses with one clear sentence."""

from collections.abc import Sequence
from typing import TypeVar

from nearcast.workloads.workload import NUMBERS

Choice = TypeVar("Choice", int, str)


def between(name: str, value: float, low: float, high: float) -> None:
    # Written so that NaN is refused too.
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:,} and {high:,}, not {value:,}")


def one_of(name: str, value: Choice, choices: Sequence[Choice]) -> None:
    if value not in choices:
        listed = ", ".join(map(str, choices[:-1])) + f" or {choices[-1]}"
        raise ValueError(f"{name} must be {listed}, not {value!r}")


def fits_identifiers(publications: float) -> None:
    """One stay numbers its subscription and its publications from a range of its own."""
    if publications + 2 > NUMBERS:
        raise ValueError(
            f"an entity may publish {NUMBERS - 2:,} times in one stay, not {publications:,.0f}:"
            " lower the rate or shorten the run"
        )
