"""Interests and publications as boxes in the tree's dimensions ([DRtree] III).

The first dimensions are places (x, y, z), further ones are attributes: a filter's comparisons bound
the box there, and "if one attribute is undefined, then the corresponding rectangle is unbounded".
A box may be too large, which costs messages; it must never be too small, which costs deliveries. So
every side is moved outward by more than the arithmetic can have been wrong by; who really wants a
publication is decided by `model.publication.wants` alone, at the leaf.
"""

from collections.abc import Iterable, Sequence
from math import inf
from operator import eq, le
from typing import Protocol, TypeAlias

from nearcast.model import predicates
from nearcast.model.expressions import evaluator
from nearcast.model.publication import Publication
from nearcast.model.subscription import Formula, Region, Subscription
from nearcast.space.motion import Moving, Path, Time
from nearcast.space.rtree import BoxBounds
from nearcast.space.shapes import DISC, POINT, Shape

Box: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # as it travels
BoxSide: TypeAlias = tuple[float, float]
AXES = predicates.AXES
ROUNDING = 1e-15  # relative to the numbers that went in; a float is wrong by 1.2e-16
EVERYWHERE: BoxSide = (-inf, inf)


class HasBox(Protocol):
    """Whatever has a box."""

    @property
    def box(self) -> Box: ...


def touch(a: Box, b: Box) -> bool:
    """Do two boxes of equal dimension share a point?"""
    return all(map(le, a[0], b[1])) and all(map(le, b[0], a[1]))


def touching(boxes: Iterable[tuple[int, HasBox]], by: Box) -> list[int]:
    """The names of all that have a box which touches this one: asked at every hop of a publication.

    In the plane it is written out, which is five times as fast.
    """
    if len(by[0]) != 2:
        return [name for name, one in boxes if touch(one.box, by)]
    (west, south), (east, north) = by
    found = []
    for name, one in boxes:
        (left, bottom), (right, top) = one.box
        if left <= east and right >= west and bottom <= north and top >= south:
            found.append(name)
    return found


def inside(a: Box, b: Box) -> bool:
    """Is all of `a` in `b`?"""
    return all(map(le, b[0], a[0])) and all(map(le, a[1], b[1]))


def enclosing_box(boxes: Iterable[Box]) -> BoxBounds:
    """The smallest box around these, at least one."""
    lows, highs = zip(*boxes, strict=True)
    return BoxBounds(
        tuple(map(min, zip(*lows, strict=True))), tuple(map(max, zip(*highs, strict=True)))
    )


def is_valid_box(box: Box, dimensions: int) -> bool:
    """Could a peer in its right mind have sent it? NaN is on no side of anything."""
    low, high = box
    if len(low) != dimensions or len(high) != dimensions:
        return False
    if dimensions == 2:
        (west, south), (east, north) = box
        return west <= east > -inf and south <= north > -inf and west < inf and south < inf
    pairs = zip(low, high, strict=True)
    return all(a <= b and a < inf and b > -inf for a, b in pairs)


def require_numbers(box: Box) -> None:
    """Whatever arrives equals itself: NaN, which does not, is refused on the wire."""
    if not (all(map(eq, box[0], box[0])) and all(map(eq, box[1], box[1]))):
        raise ValueError("a box has a side that is not a number")


# Publications.


def box_of_publication(publication: Publication, dimensions: Sequence[str]) -> BoxBounds:
    """What it may touch. Without a number for an attribute it may touch anything there."""
    shape = publication.shape
    if shape.kind == POINT and dimensions == ("x", "y"):  # nearly all of them, at every hop
        x, y = shape.x, shape.y
        dx, dy = abs(x) * ROUNDING, abs(y) * ROUNDING
        return BoxBounds((x - dx, y - dy), (x + dx, y + dy))
    sides = [
        _reach(shape, AXES.index(name), 0.0)
        if name in AXES
        else _value(publication.attributes.get(name))
        for name in dimensions
    ]
    lows, highs = zip(*sides, strict=True)
    return BoxBounds(lows, highs)


def _value(value: object) -> BoxSide:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return EVERYWHERE
    slack = abs(value) * ROUNDING
    return value - slack, value + slack


# Subscriptions.


def box_of_subscription(
    subscription: Subscription, dimensions: Sequence[str], begin: Time, end: Time
) -> BoxBounds | None:
    """Where the interest is at any time from `begin` to `end`; None: nowhere, ever."""
    sides: list[BoxSide] = []
    for name in dimensions:
        if name in AXES:
            side = _region_side(subscription.region, name, begin, end)
        else:
            text = subscription.filter.text if subscription.filter else None
            side = _bounds(text, name) if text else EVERYWHERE
        if side is None:
            return None
        sides.append(side)
    lows, highs = zip(*sides, strict=True)
    return BoxBounds(lows, highs)


def evolves(subscription: Subscription) -> bool:
    """Does its box change by itself? A formula's does not: what evolves in it is unbounded."""
    region = subscription.region
    return isinstance(region, Path) or (isinstance(region, Moving) and region.moves)


def _region_side(region: Region, name: str, begin: Time, end: Time) -> BoxSide | None:
    if isinstance(region, Formula):
        return _bounds(region.text, name)
    axis = AXES.index(name)
    if isinstance(region, Moving):
        return _sweep(region, axis, begin, end)
    first, legs = region.leg(begin), region.legs
    under_way = [leg for leg in legs if leg is first or begin < leg.since <= end]
    sides = [_sweep(leg, axis, max(begin, leg.since), end) for leg in under_way]
    return min(low for low, _ in sides), max(high for _, high in sides)


def _sweep(leg: Moving, axis: int, begin: Time, end: Time) -> BoxSide:
    """Both ends of a linear motion, which stops at `until`: what lies between is between them."""
    if not leg.moves:
        return _reach(leg.shape, axis, 0.0)
    wrong = _wrong(leg, axis, end)
    moments = [begin, end] if not begin < leg.until < end else [begin, leg.until, end]
    sides = [_reach(leg.at(t), axis, wrong) for t in moments]
    return min(low for low, _ in sides), max(high for _, high in sides)


def _wrong(leg: Moving, axis: int, end: Time) -> float:
    seconds = max(0, min(end, leg.until) - leg.since) / 1e6
    grows = leg.growth[0 if leg.shape.kind == DISC else axis]
    return (_middle(leg.shape, axis) + (abs(leg.velocity[axis]) + abs(grows)) * seconds) * ROUNDING


def _middle(shape: Shape, axis: int) -> float:
    return abs((shape.x, shape.y, shape.z)[axis])


def _reach(shape: Shape, axis: int, wrong: float) -> BoxSide:
    middle = (shape.x, shape.y, shape.z)[axis]
    extent = shape.rx if shape.kind == DISC else (shape.rx, shape.ry, shape.rz)[axis]
    slack = (abs(middle) + extent) * ROUNDING + wrong
    return middle - extent - slack, middle + extent + slack


def _bounds(text: str, name: str) -> BoxSide | None:
    """What the comparisons with constants leave of an axis or attribute; None: nothing."""
    low, high = -inf, inf
    for item in predicates.parse(text).items:
        if item.attribute != name or item.evolves:
            continue
        bound = evaluator(item.expression)(0.0, predicates.NO_VALUES)
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            continue
        slack = abs(bound) * ROUNDING
        if item.operator in (">", ">=", "=="):
            low = max(low, bound - slack)
        if item.operator in ("<", "<=", "=="):
            high = min(high, bound + slack)
    return (low, high) if low <= high else None
