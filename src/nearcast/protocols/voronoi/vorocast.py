"""VoroCast: a message to every site whose region an area touches; each receives it once.

The cast begins at the owner of a point of the area, the root, and spreads from neighbour to
neighbour. A site that has received it decides for each neighbour: am I its parent? Every site has
one parent, known to all around it by the same rule: of the neighbours with which it shares a
border that the area touches, the one nearest to the root; of equals the smallest id. (VoroCast, as
described in [VSO] II-C, has the rule without the condition on the border. It is for
discs around the root; for other areas the nearest neighbour may never receive the cast.)

Why each receives it once: an area is convex. From a point of it in a site's region, go straight to
the root. The way stays in the area, and where it leaves the region it crosses a border to a
neighbour that is nearer to the root. So a parent exists, its region is touched too, and parents
lead ever nearer to the root, to its owner. A rectangle's sites outside it relay by the same rule,
as long as their regions reach into it (Genovali and Ricci, quoted in [VSO] II-C).

To decide for a neighbour, a site must know which sites enclose it. If it does not, it sends, to be
safe. Where sites move, those around a site may differ on which enclose it. `position_error` is the
length by which places may be wrong: a site sends unless another is certainly nearer. Then some
receive twice, which receivers must expect, and fewer not at all.

The decision depends on the site in question, its neighbours, the area and the root alone, so all
sites compute the same. Which is nearest is exact. Borders are rounded, so the area is widened by a
sliver, and a border that touches it in a single point does so in spite of rounding; sites that are
not at one place should be farther apart than that.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import hypot, inf
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.space.shapes import BOX, Shape
from nearcast.space.voronoi import Point, Sites, nearest

SLIVER = 1e-9  # relative to the largest number of a cast; rounding is far below it
KEPT = 8192  # sites whose borders are remembered


class Border(NamedTuple):
    """From (x, y) along (dx, dy), a unit vector, from `low` to `high`; either may be infinite."""

    x: float
    y: float
    dx: float
    dy: float
    low: float
    high: float


def forward(
    me: NodeId,
    place: Point,
    enclosing: Sites,
    rings: Mapping[NodeId, Sites],
    root: Point,
    area: Shape,
    sender: NodeId | None = None,
    position_error: float = 0.0,
) -> list[NodeId]:
    """The sites to which a site that has received a cast forwards it.

    `enclosing`: the sites around it. `rings`: the sites around each of those, where known. `root`:
    a point of the area, where the cast began. `sender`: from which site it came.
    """
    twins = [node for node, at in enclosing.items() if at == place]
    if twins and min(twins) < me:
        return []  # a twin with a smaller id owns the region
    sliver = SLIVER * max(1.0, *(abs(n) for n in (*root, *place, *_finite(area))))
    mine = _borders(place, _ordered(me, enclosing))
    receivers = [node for node in twins if node != sender]
    for node, border in mine.items():
        if node != sender and _touches(border, area, sliver + position_error):
            ring = rings.get(node)
            if ring is None or _is_parent(
                me, place, node, enclosing[node], ring, root, area, sliver, position_error
            ):
                receivers.append(node)
    return sorted(receivers)


def _is_parent(
    me: NodeId,
    place: Point,
    node: NodeId,
    at: Point,
    ring: Sites,
    root: Point,
    area: Shape,
    sliver: float,
    position_error: float,
) -> bool:
    around = ring if ring.get(me) == place else {**ring, me: place}
    borders = _borders(at, _ordered(node, around))
    others = [n for n, border in borders.items() if n != me and _touches(border, area, sliver)]
    if not position_error:
        candidates = {n: around[n] for n in (me, *others)}
        return nearest(candidates, *root) == me and nearest({node: at, me: place}, *root) == me
    away = {n: hypot(x - root[0], y - root[1]) for n, (x, y) in around.items()}
    own = hypot(at[0] - root[0], at[1] - root[1])
    return away[me] < own + 2 * position_error and all(
        away[me] <= away[n] + 2 * position_error for n in others
    )


def _ordered(node: NodeId, sites: Sites) -> tuple[tuple[NodeId, Point], ...]:
    return tuple(sorted((other, at) for other, at in sites.items() if other != node))


@lru_cache(maxsize=KEPT)
def _borders(place: Point, ring: tuple[tuple[NodeId, Point], ...]) -> dict[NodeId, Border]:
    """The borders of a site's region towards the sites around it, by id."""
    spokes = [(node, x - place[0], y - place[1]) for node, (x, y) in ring]
    found = {}
    for node, dx, dy in spokes:
        length = hypot(dx, dy)
        if length == 0.0:
            continue  # a twin
        along_x, along_y = -dy / length, dx / length
        low, high = -inf, inf
        for other, ox, oy in spokes:
            # Points at t along the bisector are nearer to the site than to the other one if
            # t * slope <= room.
            slope = along_x * ox + along_y * oy
            room = (ox * ox + oy * oy - dx * ox - dy * oy) / 2
            if other == node or (ox == 0.0 and oy == 0.0):
                continue
            if abs(slope) <= 1e-12 * hypot(ox, oy):
                if room < 0:
                    high = -inf  # hidden by a nearer site in the same direction
            elif slope > 0:
                high = min(high, room / slope)
            else:
                low = max(low, room / slope)
        if low <= high + SLIVER * length:
            middle = place[0] + dx / 2, place[1] + dy / 2
            found[node] = Border(*middle, along_x, along_y, low, max(low, high))
    return found


def _touches(border: Border, area: Shape, room: float) -> bool:
    """Does a border touch an area widened by `room`? A point is a disc without radius."""
    x, y, dx, dy, low, high = border
    x, y = x - area.x, y - area.y
    if area.kind != BOX:
        along = min(max(-(x * dx + y * dy), low), high)
        return hypot(x + along * dx, y + along * dy) <= area.rx + room
    for start, step, half in ((x, dx, area.rx + room), (y, dy, area.ry + room)):
        if step == 0.0:
            if abs(start) > half:
                return False
        else:
            one, two = (-half - start) / step, (half - start) / step
            low, high = max(low, min(one, two)), min(high, max(one, two))
    return low <= high


def _finite(area: Shape) -> list[float]:
    return [n for n in (area.x, area.y, area.rx, area.ry) if n < inf]
