"""What a region reaches over its whole life, proven by the shapes at the ends of its motion.

Every shape is convex and moves and grows evenly, so two sentences hold:
- what lies inside a region at both ends of a leg lies inside it all the way;
- what a region touches on a leg lies in the convex hull of its two ends.
So one region covers another for ever if it contains each end of the other at each end of its own.
What rounding could spoil is not proven: borders must be apart by a margin, or equal for good. (The
margin is a million times what rounding does to a publication as large as the region.)
"""

from collections.abc import Iterable
from math import inf, isfinite, sqrt
from typing import TypeAlias

from nearcast.model import predicates
from nearcast.model.expressions import Boolean, Text, evaluator
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Region, Subscription
from nearcast.protocols.brokers.messages import Advertisement
from nearcast.space.motion import Moving, Path
from nearcast.space.shapes import BOX, DISC, EVERYWHERE, Shape, Vector

Bounds: TypeAlias = tuple[Vector, Vector]
ENDLESS: Bounds = ((-inf, -inf, -inf), (inf, inf, inf))
MARGIN = 1e-9  # of the numbers at hand: far above the rounding of a few operations


def extents(shape: Shape) -> Vector:
    return (shape.rx,) * 3 if shape.kind == DISC else (shape.rx, shape.ry, shape.rz)


def bounds(shape: Shape) -> Bounds:
    (rx, ry, rz), s = extents(shape), shape
    return (s.x - rx, s.y - ry, s.z - rz), (s.x + rx, s.y + ry, s.z + rz)


def within(small: Bounds, large: Bounds) -> bool:
    (low, high), (least, most) = small, large
    return all(least[k] <= low[k] and high[k] <= most[k] for k in range(3))


def leg_ends(region: Region) -> list[Shape] | None:
    """The shapes at both ends of each leg; None: it goes on for ever, or is a formula."""
    if isinstance(region, Formula):
        return None
    legs = (region,) if isinstance(region, Moving) else region.legs
    shapes = []
    for leg in legs:
        shapes.append(leg.shape)
        if leg.moves:
            if leg.duration is None:
                return None
            shapes.append(leg.at(leg.until))
    return shapes


def rounding_margin(shapes: Iterable[Shape]) -> float:
    """More than rounding can do to any border of theirs: borders are differences of large numbers,
    so it is the size of these that counts."""
    numbers = (abs(n) for s in shapes for n in (s.x, s.y, s.z, *extents(s)))
    return MARGIN * max((1.0, *filter(isfinite, numbers)))


def bounds_for_ever(region: Region) -> Bounds:
    """A box that the region never leaves; where that is not known, without bounds."""
    if isinstance(region, Formula):
        return _reach_of_formula(region)
    shapes = leg_ends(region)
    if shapes is None:
        return ENDLESS
    boxes, margin = [bounds(shape) for shape in shapes], rounding_margin(shapes)
    low = [min(box[0][axis] for box in boxes) - margin for axis in range(3)]
    high = [max(box[1][axis] for box in boxes) + margin for axis in range(3)]
    return (low[0], low[1], low[2]), (high[0], high[1], high[2])


def _reach_of_formula(region: Formula) -> Bounds:
    low, high = [-inf, -inf, -inf], [inf, inf, inf]
    for item in predicates.spatial(predicates.parse(region.text)):
        bound = None if item.evolves else evaluator(item.expression)(0.0, {})
        if isinstance(bound, float):
            axis = predicates.AXES.index(item.attribute)
            if item.operator in (">", ">=", "=="):
                low[axis] = max(low[axis], bound)
            if item.operator in ("<", "<=", "=="):
                high[axis] = min(high[axis], bound)
    return (low[0], low[1], low[2]), (high[0], high[1], high[2])


# Covering.


def covers(a: Subscription, b: Subscription) -> bool:
    """Does `a` want all that `b` wants, at every moment? False: yes could not be proven.

    `echo` does not count: what a node publishes comes to a broker from where the node's interests
    come from too, and never goes back there.
    """
    if a.channel != b.channel or not _filter_covers(a.filter, b.filter):
        return False
    if a.region == b.region:
        return True
    if isinstance(a.region, Formula) or isinstance(b.region, Formula):
        return False
    # Most pairs are apart where they begin: no need to look where they end.
    if not _inside(_beginning(b.region), _beginning(a.region), 0.0):
        return False
    outer, inner = leg_ends(a.region), leg_ends(b.region)
    if outer is None or inner is None:
        return False
    margin = rounding_margin((*outer, *inner))
    return all(_inside(small, large, margin) for large in outer for small in inner)


def _beginning(region: Moving | Path) -> Shape:
    return region.shape if isinstance(region, Moving) else region.legs[0].shape


def _filter_covers(a: Filter | None, b: Filter | None) -> bool:
    if a is None or a == b:
        return True
    return b is not None and a.text == b.text and not predicates.parse(a.text).evolves


def _inside(small: Shape, large: Shape, margin: float) -> bool:
    if large.kind == DISC:
        return _farthest(small, large) + margin <= large.rx
    centres = ((small.x, large.x), (small.y, large.y), (small.z, large.z))
    widths = zip(extents(small), extents(large), strict=True)
    low, high = bounds(small)
    for axis, ((c, k), (r, wide)) in enumerate(zip(centres, widths, strict=True)):
        about_one_centre = c == k and r <= wide  # both compare |d| with a sum: no rounding differs
        apart = k - wide + margin <= low[axis] and high[axis] <= k + wide - margin
        if not ((about_one_centre and small.kind != DISC) or apart):
            return False
    return True


def _farthest(small: Shape, large: Shape) -> float:
    """From the centre of the large one to the farthest point of the small one."""
    dx, dy, dz = abs(small.x - large.x), abs(small.y - large.y), abs(small.z - large.z)
    if small.kind == BOX:
        dx, dy, dz = dx + small.rx, dy + small.ry, dz + small.rz
        return sqrt(dx * dx + dy * dy + dz * dz)
    return sqrt(dx * dx + dy * dy + dz * dz) + small.rx


# Advertisements.


def conforms(publication: Publication, advertisement: Advertisement) -> bool:
    """Is this a publication that was advertised?"""
    if advertisement.channel not in (None, publication.channel):
        return False
    if not within(bounds(publication.shape), bounds(advertisement.area)):
        return False
    chosen = advertisement.filter
    return chosen is None or chosen.accepts(publication.attributes, publication.t)


def intersects(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Could something advertised ever be wanted? True: no could not be proven."""
    if advertisement.channel not in (None, subscription.channel):
        return False
    if advertisement.area != EVERYWHERE:
        low, high = bounds_for_ever(subscription.region)
        least, most = bounds(advertisement.area)
        margin = rounding_margin((advertisement.area,))
        if any(high[k] + margin < least[k] or most[k] + margin < low[k] for k in range(3)):
            return False
    return not _apart(advertisement.filter, subscription.filter)


def _apart(a: Filter | None, b: Filter | None) -> bool:
    """Do two filters contradict each other in an attribute, by bounds that never change?"""
    if a is None or b is None:
        return False
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    equal: dict[str, str | bool] = {}
    for item in (*predicates.parse(a.text).items, *predicates.parse(b.text).items):
        name = item.attribute
        if isinstance(item.expression, Text | Boolean):
            if item.operator == "==" and equal.setdefault(name, item.expression.value) != (
                item.expression.value
            ):
                return True
            continue
        bound = None if item.evolves else evaluator(item.expression)(0.0, {})
        if isinstance(bound, float):
            if item.operator in (">", ">=", "=="):
                low[name] = max(low.get(name, -inf), bound)
            if item.operator in ("<", "<=", "=="):
                high[name] = min(high.get(name, inf), bound)
    return any(bound > high.get(name, inf) for name, bound in low.items())
