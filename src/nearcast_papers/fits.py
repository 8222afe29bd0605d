"""Statistics of small samples, and their text, for the measures of all papers."""

from collections.abc import Iterable, Sequence
from math import inf, log, sqrt
from statistics import mean

TINY = 1e-300  # instead of 0 as a divisor


def ratio(value: float, base: float) -> float:
    """How many times as large as the base. In a single small run the base may be 0: infinitely."""
    return value / base if base else inf if value else 1.0


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent do not exceed."""
    place = -(-len(values) * percent // 100) - 1
    return sorted(values)[max(0, int(place))]


def line_fit(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Slope and R² of the straight line by least squares."""
    xs, ys = zip(*points, strict=True)
    x0, y0 = mean(xs), mean(ys)
    together = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    width = sum((x - x0) ** 2 for x in xs)
    height = sum((y - y0) ** 2 for y in ys)
    return together / max(width, TINY), together**2 / max(width * height, TINY)


def growth_exponent(points: Iterable[tuple[float, float]]) -> float:
    """p of the y = c xᵖ that fits best, by least squares of logarithms."""
    return line_fit((log(x), log(y)) for x, y in points)[0]


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Pearson's correlation."""
    x0, y0 = mean(xs), mean(ys)
    together = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    spread = sum((x - x0) ** 2 for x in xs) * sum((y - y0) ** 2 for y in ys)
    return together / sqrt(max(spread, TINY))


def ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of their ranks."""
    return [
        sum(other < value for other in values) + (1 + sum(other == value for other in values)) / 2
        for value in values
    ]


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The rank correlation."""
    return correlation(ranks(xs), ranks(ys))


def listed(values: Iterable[tuple[str, float]], spec: str = ".2f", factor: float = 1) -> str:
    """Named values as text, e.g. "cold 1.20, hot 3.40"."""
    return ", ".join(f"{name} {value * factor:{spec}}" for name, value in values)
