"""Interests and publications as boxes in the tree's dimensions ([DRtree] III).

The first dimensions are places (x, y, z), further ones are attributes: a filter's comparisons bound
the box there, and "if one attribute is undefined, then the corresponding rectangle is unbounded".
Where a filter chooses with `or` between ranges, each of them is a rectangle of its own (`ranges`).
What evolves is bounded by interval arithmetic over whole windows of time, which are longer than the
box is to hold: each time that a box changes, members may move in the tree, and nodes change hands.
Every side is moved outward by more than the arithmetic can have been wrong by; who really wants a
publication is decided by `model.publication.wants` alone, at the leaf.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from math import inf, prod
from typing import Protocol, TypeAlias

from nearcast.model.intervals import admitted_by_all
from nearcast.model.predicates import AXES, Predicate
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription, seconds_since
from nearcast.space.boxes import BoxBounds, Margin, box_around, overlaps, swept_box
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import POINT

Box: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # as it travels
BoxSide: TypeAlias = tuple[float, float]
WINDOW: Time = 16 * SECOND  # of a formula or filter
ROUNDING = 1e-15  # relative to the numbers that went in; a float is wrong by 1.2e-16
MARGIN = Margin(ROUNDING)
MOST_RANGES = 16  # of one subscription
EVERYWHERE: BoxSide = (-inf, inf)


class HasBox(Protocol):
    """Whatever has a box."""

    @property
    def box(self) -> Box: ...


def touching(boxes: Iterable[tuple[int, HasBox]], by: Box) -> list[int]:
    """The names of all that have a box which touches this one: asked at every hop of a publication.

    In the plane it is written out, which is five times as fast.
    """
    if len(by[0]) != 2:
        return [name for name, one in boxes if overlaps(one.box, by)]
    (west, south), (east, north) = by
    found = []
    for name, one in boxes:
        left, bottom = one.box[0]
        if left <= east and bottom <= north:
            right, top = one.box[1]
            if right >= west and top >= south:
                found.append(name)
    return found


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
    for corner in box:
        for side in corner:
            if side != side:  # NaN alone
                raise ValueError("a box has a side that is not a number")


def box_of_publication(publication: Publication, dimensions: Sequence[str]) -> Box:
    """What it may touch. Without a number for an attribute it may touch anything there."""
    shape = publication.shape
    if shape.kind == POINT and dimensions == ("x", "y"):  # nearly all of them, at every hop
        x, y = shape.x, shape.y
        dx, dy = abs(x) * ROUNDING, abs(y) * ROUNDING
        return (x - dx, y - dy), (x + dx, y + dy)
    lows, highs = box_around(shape, MARGIN)
    sides = []
    for name in dimensions:
        value = publication.attributes.get(name)
        if name in AXES:
            side = lows[AXES.index(name)], highs[AXES.index(name)]
        elif isinstance(value, bool) or not isinstance(value, int | float):
            side = EVERYWHERE
        else:
            side = _widened(value, value)
        sides.append(side)
    return _box(sides)


def ranges(subscription: Subscription, dimensions: Sequence[str]) -> list[tuple[Predicate, ...]]:
    """What to choose where the filter says `or` about a dimension: together, all that is wanted.

    One range without a choice if there is no `or`, or if it would be more than MOST_RANGES.
    """
    condition = subscription.filter
    choices = [
        choice
        for choice in (() if condition is None else condition.parsed.choices)
        if any(one.attribute in dimensions for one in choice)
    ]
    return list(product(*choices)) if prod(map(len, choices)) <= MOST_RANGES else [()]


def box_of_subscription(
    subscription: Subscription, dimensions: Sequence[str], begin: Time, end: Time,
    chosen: tuple[Predicate, ...] = (),
) -> BoxBounds | None:  # fmt: skip
    """Where the interest is at any time from `begin` to `end`; None: nowhere meanwhile. `chosen`:
    only one of its `ranges`."""
    region, condition = subscription.region, subscription.filter
    swept = None if isinstance(region, Formula) else swept_box(region, begin, end, MARGIN)
    sides = []
    for name in dimensions:
        if name in AXES and swept is not None:
            sides.append((swept.low[AXES.index(name)], swept.high[AXES.index(name)]))
            continue
        text = region if isinstance(region, Formula) and name in AXES else condition
        side = EVERYWHERE if text is None else _bounds(text, chosen, name, begin, end)
        if side is None:
            return None
        sides.append(_widened(*side))
    return _box(sides)


def _bounds(
    text: Formula | Filter, chosen: tuple[Predicate, ...], name: str, begin: Time, end: Time
) -> BoxSide | None:
    """What its comparisons leave of a dimension at any time from `begin` to `end`."""
    since = text.since
    first, last = begin // WINDOW * WINDOW, (end // WINDOW + 1) * WINDOW
    first = max(first, min(begin, since))  # not before it began
    return admitted_by_all(
        (*text.parsed.items, *chosen), name,
        seconds_since(since, first), seconds_since(since, last),
    )  # fmt: skip


def _widened(low: float, high: float) -> BoxSide:
    return low - abs(low) * ROUNDING, high + abs(high) * ROUNDING


def _box(sides: Sequence[BoxSide]) -> BoxBounds:
    lows, highs = zip(*sides, strict=True)
    return BoxBounds(lows, highs)
