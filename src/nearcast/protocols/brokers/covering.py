"""What a region reaches over its whole life, proven by the shapes at the ends of its motion.

Every shape is convex and moves and grows evenly, so two sentences hold:
- what lies inside a region at both ends of a leg lies inside it all the way;
- what a region touches on a leg lies in the convex hull of its two ends.
So one region covers another for ever if it contains each end of the other at each end of its own.
What rounding could spoil is not proven: borders must be apart by a margin, or equal for good. (The
margin is a million times what rounding does to a publication as large as the region.)
"""

from collections.abc import Iterable
from math import isfinite, sqrt

from nearcast.model.predicates import AXES, constant_bounds
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Region, Subscription, region_evolves
from nearcast.protocols.brokers.messages import Advertisement
from nearcast.space.boxes import BoxBounds, Margin, box_around, contains, overlaps, swept_box
from nearcast.space.motion import LATEST, Moving, Path
from nearcast.space.shapes import BOX, DISC, EVERYWHERE, Shape, half_extents

ENDLESS = box_around(EVERYWHERE)
MARGIN = Margin(1e-9, 1e-9)  # of the numbers at hand: far above the rounding of a few operations


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
    numbers = (abs(n) for s in shapes for n in (s.x, s.y, s.z, *half_extents(s)))
    return MARGIN.relative * max((1.0, *filter(isfinite, numbers)))


def bounds_for_ever(region: Region) -> BoxBounds:
    """A box that the region never leaves; where that is not known, without bounds."""
    if isinstance(region, Formula):
        items = region.parsed.items
        return BoxBounds(*zip(*(constant_bounds(items, axis) for axis in AXES), strict=True))
    if leg_ends(region) is None:
        return ENDLESS
    return swept_box(region, region.since, LATEST, MARGIN)


# Covering.


def covers(a: Subscription, b: Subscription) -> bool:
    """Does `a` want all that `b` wants, at every moment? False: yes could not be proven.

    `echo` does not count: what a node publishes comes to a broker from where the node's interests
    come from too, and never goes back there.
    """
    # What moves alike is alike at a broker only if it follows both in the same way.
    alike = a.evolution == b.evolution
    if a.channel != b.channel or not _filter_covers(a.filter, b.filter, alike):
        return False
    if a.region == b.region and (alike or not region_evolves(a.region)):
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


def _filter_covers(a: Filter | None, b: Filter | None, alike: bool) -> bool:
    if a is None or (alike and a == b):
        return True
    return b is not None and a.text == b.text and not a.parsed.evolves


def _inside(small: Shape, large: Shape, margin: float) -> bool:
    if large.outline is not None:
        return False  # its box may be covered, and not what is in it
    if large.kind == DISC:
        return _farthest(small, large) + margin <= large.rx
    centres = ((small.x, large.x), (small.y, large.y), (small.z, large.z))
    widths = zip(half_extents(small), half_extents(large), strict=True)
    low, high = box_around(small)
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
    if not contains(box_around(advertisement.area), box_around(publication.shape)):
        return False
    chosen = advertisement.filter
    return chosen is None or chosen.accepts(publication.attributes, publication.t)


def intersects(advertisement: Advertisement, subscription: Subscription) -> bool:
    """Could something advertised ever be wanted? True: no could not be proven."""
    if advertisement.channel not in (None, subscription.channel):
        return False
    if advertisement.area != EVERYWHERE:
        reach = bounds_for_ever(subscription.region)
        if not overlaps(reach, box_around(advertisement.area, MARGIN)):
            return False
    return not _apart(advertisement.filter, subscription.filter)


def _apart(a: Filter | None, b: Filter | None) -> bool:
    """Do two filters contradict each other in an attribute, by bounds that never change?"""
    if a is None or b is None:
        return False
    items = *a.parsed.items, *b.parsed.items
    equal: dict[str, str | bool] = {}
    for item in items:
        bound = item.constant if item.operator == "==" else None
        if isinstance(bound, str | bool) and equal.setdefault(item.attribute, bound) != bound:
            return True
    bounds = (constant_bounds(items, name) for name in dict.fromkeys(i.attribute for i in items))
    return any(low > high for low, high in bounds)
