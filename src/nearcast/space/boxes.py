"""Boxes between two corners: around shapes, and around all that a region touches in a span of time.

An index proposes candidates by their boxes, and `shapes.overlap` decides about each. So a box may
be too large, which costs candidates; it must never be too small, which costs matches. How far its
sides are moved outward is the caller's `Margin`.
"""

from collections.abc import Sequence
from operator import le
from typing import NamedTuple, TypeAlias

from nearcast.space.motion import Moving, Path, Time, elapsed, grow_extent
from nearcast.space.shapes import Shape, half_extents


class BoxBounds(NamedTuple):
    """A box between two corners, closed at its border; a point has `low == high`.

    Both corners have one coordinate per dimension, `low` nowhere above `high`. A side may be
    unbounded: `-inf` in `low`, `+inf` in `high`, never the other way round, and never NaN.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]


Corners: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # a box, or one that has travelled


def union(boxes: Sequence[Corners]) -> BoxBounds:
    """The smallest box that contains all `boxes`."""
    if not boxes:
        raise ValueError("the union of no boxes is undefined")
    require_one_dimension(boxes)
    lows, highs = zip(*boxes, strict=True)
    return BoxBounds(
        tuple(map(min, zip(*lows, strict=True))), tuple(map(max, zip(*highs, strict=True)))
    )


def overlaps(a: Corners, b: Corners) -> bool:
    """Whether the boxes share a point; touching is overlapping."""
    if len(a[0]) == len(b[0]) == 2:  # in the plane it is written out
        (west, south), (east, north) = a[0], b[1]
        if west <= east and south <= north:
            (west, south), (east, north) = b[0], a[1]
            return west <= east and south <= north
        return False
    require_one_dimension((a, b))
    return all(map(le, a[0], b[1])) and all(map(le, b[0], a[1]))


def contains(a: Corners, b: Corners) -> bool:
    """Whether all of `b` lies in `a`, its border included."""
    require_one_dimension((a, b))
    return all(map(le, a[0], b[0])) and all(map(le, b[1], a[1]))


def require_one_dimension(boxes: Sequence[Corners]) -> None:
    expected = len(boxes[0][0])
    for low, _ in boxes:
        if len(low) != expected:
            raise ValueError(f"boxes of {expected} and {len(low)} dimensions cannot be mixed")


class Margin(NamedTuple):
    """How far a side is moved outward: a part of the numbers that it was computed from, and more
    where these are so small that the squares of distances underflow to nothing."""

    relative: float = 0.0
    absolute: float = 0.0


EXACT = Margin()


def box_around(shape: Shape, margin: Margin = EXACT) -> BoxBounds:
    """The box around a shape."""
    axes = zip((shape.x, shape.y, shape.z), half_extents(shape), strict=True)
    return _box([_side(centre, extent, 0.0, margin) for centre, extent in axes])


def swept_box(region: Moving | Path, begin: Time, end: Time, margin: Margin) -> BoxBounds:
    """The box around all that the region touches at any time from `begin` to `end`."""
    if isinstance(region, Moving):
        return _swept_leg(region, begin, end, margin)
    first = region.leg(begin)
    under_way = [leg for leg in region.legs if leg is first or begin < leg.since <= end]
    return union([_swept_leg(leg, begin, end, margin) for leg in under_way])


def _swept_leg(leg: Moving, begin: Time, end: Time, margin: Margin) -> BoxBounds:
    """Every step from the moment to a side is monotone, and so is rounding: both ends of a leg,
    which stands still before it begins and after it has arrived, bound all that is between."""
    s = leg.shape
    if not leg.moves:
        return box_around(s, margin)
    first, last = elapsed(begin, leg.since, leg.until), elapsed(end, leg.since, leg.until)
    sides = []
    for centre, extent, v, g in zip(
        (s.x, s.y, s.z), half_extents(s), leg.velocity, leg.axis_growth, strict=True
    ):
        way = (abs(centre) + (abs(v) + abs(g)) * last) * margin.relative
        low, high = _side(centre + v * first, grow_extent(extent, g, first), way, margin)
        then = _side(centre + v * last, grow_extent(extent, g, last), way, margin)
        sides.append((min(low, then[0]), max(high, then[1])))
    return _box(sides)


def _side(centre: float, extent: float, way: float, margin: Margin) -> tuple[float, float]:
    """`way`: what the margin adds for numbers of the motion."""
    slack = way + margin.absolute
    if margin.relative:
        slack = (abs(centre) + extent) * margin.relative + slack
    return centre - extent - slack, centre + extent + slack


def _box(sides: Sequence[tuple[float, float]]) -> BoxBounds:
    lows, highs = zip(*sides, strict=True)
    return BoxBounds(lows, highs)
