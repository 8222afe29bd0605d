"""Bounds of a function of time over an interval of time.

Interval arithmetic (Moore, 1966) over the trees of `expressions`: each part's bounds follow from
the bounds of its parts. Rounding is monotone, so corners bound all that is computed between them;
one more step outwards makes them bound what should have been computed as well. Bounds may be wider
than need be, never narrower. Where a part has no value there is nothing to bound: a root looks at
the numbers that have one, and a divisor that may be 0 bounds nothing.

The operations take and give plain numbers, so that other code can compile them.
"""

from collections.abc import Callable, Iterable
from math import cos, inf, nextafter, pi, sin, sqrt
from typing import NamedTuple

from nearcast.model.expressions import TIME, Arithmetic, Number, Variable
from nearcast.model.predicates import AXES, Predicate, Predicates, spatial

LARGEST_ANGLE = 1e6  # beyond it, turns are no longer counted: a wave may be anywhere
SLACK = 1e-9  # of an angle up to there, against rounded multiples of pi
UNSURE = 1e-15  # of a sine: the library's may be off by one in the last place, at either end


class ClosedInterval(NamedTuple):
    """A closed interval; an infinite end says that nothing bounds that side."""

    low: float
    high: float


UNBOUNDED = ClosedInterval(-inf, inf)


def enclosure(tree: Arithmetic, low: float, high: float) -> ClosedInterval | None:
    """Bounds of all values that the tree has while `t` goes from low to high; None: it has none."""
    if isinstance(tree, Number):
        return ClosedInterval(tree.value, tree.value)
    if isinstance(tree, Variable):
        return ClosedInterval(low, high) if tree.name == TIME else UNBOUNDED
    parts = []
    for argument in tree.arguments:
        part = enclosure(argument, low, high)
        if part is None:
            return None
        parts.append(part)
    return OPERATIONS[tree.function](*parts)


def _outward(low: float, high: float) -> ClosedInterval | None:
    """Rounded away from each other; nothing is left if all of it is beyond all numbers."""
    if low == inf or high == -inf:
        return None
    return ClosedInterval(nextafter(low, -inf), nextafter(high, inf))


def _sum(a: ClosedInterval, b: ClosedInterval) -> ClosedInterval | None:
    return _outward(a.low + b.low, a.high + b.high)


def _negation(a: ClosedInterval) -> ClosedInterval:
    return ClosedInterval(-a.high, -a.low)


def _difference(a: ClosedInterval, b: ClosedInterval) -> ClosedInterval | None:
    return _sum(a, _negation(b))


def _corner(number: float) -> float:
    """Nothing times an unbounded side, or one unbounded side over another: the rest bounds it."""
    return number if number == number else 0.0


def _product(a: ClosedInterval, b: ClosedInterval) -> ClosedInterval | None:
    corners = [_corner(x * y) for x in a for y in b]
    return _outward(min(corners), max(corners))


def _quotient(a: ClosedInterval, b: ClosedInterval) -> ClosedInterval | None:
    if b.low == b.high == 0.0:
        return None
    if b.low <= 0.0 <= b.high:
        return UNBOUNDED
    corners = [_corner(x / y) for x in a for y in b]
    return _outward(min(corners), max(corners))


def _least(*parts: ClosedInterval) -> ClosedInterval:
    return ClosedInterval(min(part.low for part in parts), min(part.high for part in parts))


def _greatest(*parts: ClosedInterval) -> ClosedInterval:
    return ClosedInterval(max(part.low for part in parts), max(part.high for part in parts))


def _magnitude(a: ClosedInterval) -> ClosedInterval:
    if a.low <= 0.0 <= a.high:
        return ClosedInterval(0.0, max(-a.low, a.high))
    return a if a.low > 0.0 else _negation(a)


def _root(a: ClosedInterval) -> ClosedInterval | None:
    if a.high < 0.0:
        return None
    return _outward(sqrt(max(a.low, 0.0)), sqrt(a.high))


def _contains_turn(low: float, high: float, angle: float) -> bool:
    """Is there a whole number of turns k with low <= angle + 2 pi k <= high, or nearly so?"""
    turns = (high + SLACK - angle) // (2 * pi)
    return angle + 2 * pi * turns >= low - SLACK


def _wave(
    function: Callable[[float], float], peak: float
) -> Callable[[ClosedInterval], ClosedInterval]:
    def bounds(a: ClosedInterval) -> ClosedInterval:
        if not (a.low >= -LARGEST_ANGLE and a.high <= LARGEST_ANGLE and a.high - a.low < 2 * pi):
            return ClosedInterval(-1.0, 1.0)
        ends = function(a.low), function(a.high)
        low = -1.0 if _contains_turn(*a, peak + pi) else max(min(ends) - UNSURE, -1.0)
        high = 1.0 if _contains_turn(*a, peak) else min(max(ends) + UNSURE, 1.0)
        return ClosedInterval(low, high)

    return bounds


OPERATIONS: dict[str, Callable[..., ClosedInterval | None]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "negate": _negation,
    "min": _least,
    "max": _greatest,
    "abs": _magnitude,
    "sin": _wave(sin, pi / 2),
    "cos": _wave(cos, 0.0),
    "sqrt": _root,
}


# Predicates over an interval of time.

Box = tuple[ClosedInterval, ClosedInterval, ClosedInterval]


def swept_box(predicates: Predicates, low: float, high: float) -> Box | None:
    """The box around all places where the spatial predicates hold at some t from low to high.

    None: they hold nowhere meanwhile.
    """
    x, y, z = (admitted_by_all(spatial(predicates), axis, low, high) for axis in AXES)
    return None if x is None or y is None or z is None else (x, y, z)


def admitted_by_all(
    items: Iterable[Predicate], attribute: str, low: float, high: float
) -> ClosedInterval | None:
    """Bounds of all numbers that the comparisons of an attribute or axis with numbers admit at some
    t from low to high; None: they admit none meanwhile."""
    least, most = UNBOUNDED
    for item in items:
        if item.attribute == attribute and isinstance(item.expression, Arithmetic):
            admitted = admitted_interval(item, low, high)
            if admitted is None:
                return None
            least, most = max(least, admitted.low), min(most, admitted.high)
    return ClosedInterval(least, most) if least <= most else None


def admitted_interval(predicate: Predicate, low: float, high: float) -> ClosedInterval | None:
    """Bounds of all numbers that a comparison with a number admits at some t from low to high."""
    assert isinstance(predicate.expression, Arithmetic)
    bound = enclosure(predicate.expression, low, high)
    if bound is None or predicate.operator == "==":
        return bound
    if predicate.operator == "!=":
        return UNBOUNDED
    if predicate.operator in ("<", "<="):
        return ClosedInterval(-inf, bound.high)
    return ClosedInterval(bound.low, inf)
