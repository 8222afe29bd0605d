"""Checks of settings and parameters: each refuses with one clear sentence."""

from collections.abc import Iterable


def between(name: str, value: float, low: float, high: float) -> None:
    # Written so that NaN is refused too.
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low:,.12g} and {high:,.12g}, not {value}")


def one_of(name: str, value: int | str, choices: Iterable[int | str]) -> None:
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(str, known))}, not {value!r}")
