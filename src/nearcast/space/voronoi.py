"""The plane divided among sites: each point belongs to the site nearest to it (VSO, II-C).

A node of a Voronoi overlay asks about one region at a time, so a region is built alone, without
the diagram. The region of a site is the intersection of half-planes, one for each other site,
bordered by the bisector towards it. Half-planes are added nearest site first, and the building
ends when no farther site can reach the region: a bisector lies half-way, so a site more than
twice as far as the farthest corner changes nothing.

Nodes that know the same sites must agree, or messages circle and are lost. So every decision is
exact: it is taken in floating point when the result exceeds a bound of its rounding error, and
otherwise repeated in integers. (A float is an integer times a power of two; on a common power,
the sums and products of coordinates below are sums and products of integers.) Only the polygons
of `cell` are rounded. The bounds hold for coordinates and lengths up to 1e30; tiny distances only
cost more repetitions.

Rules that the papers leave open:

* A point at equal distance from several sites belongs to the smallest id among them.
* Two sites enclose each other when their closed regions have a point in common: a border, or the
  mere corner at which four sites of a grid meet. VON speaks of borders only, but then greedy
  forwarding to such a corner may end at a site that is not the corner's owner and does not know
  the owner. With corners it always arrives, and the relation stays symmetric.
* Of sites at one position (twins) the smallest id owns the region, and the others have an empty
  one. All twins enclose each other, and only the owner has the neighbours of the region. So the
  relation stays symmetric and connected, and greedy forwarding passes from a twin to the owner.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

Point = tuple[float, float]
Sites = Mapping[int, Point]

# Another site as seen from the site in question: squared distance, x, y, id. Plain and in this
# order, because hundreds of them are made and sorted by distance for one region.
Spoke = tuple[float, float, float, int]

# Bounds the rounding error of every expression below, relative to the sum of its terms taken
# positive. The longest lose about 12 units of 2^-53; this allows 32.
NOISE = 2.0**-48
# A result smaller than this may have lost digits to underflow, and is always repeated exactly.
FLOOR = 1e-190
# Directions closer than this are told apart exactly. The error of an angle is below 2e-15.
SAME_ANGLE = 1e-14


class Corner(NamedTuple):
    """Where the borders towards two neighbours meet: at (x, y) / (2 cross) from the site."""

    x: float
    y: float
    cross: float
    doubt: float  # bounds the errors of x and of y
    cross_doubt: float
    limit: float  # a site with a larger squared distance is too far to reach the corner
    right: int
    left: int


class Edge(NamedTuple):
    """The border towards one neighbour, and its corner with the next one counter-clockwise."""

    angle: float
    spoke: Spoke
    corner: Corner | None  # none if the region is open between the two borders


# A border, the corner that ends it and the border that follows: in floats or in integers.
Side = tuple[Spoke, Corner | None, Spoke]

# Something asked of the sides, the centre of a shape as seen from the site, the shape's lengths,
# and the noise of all these numbers. The answer None means: in doubt because of the noise.
Question = Callable[[Sequence[Side], float, float, Sequence[float], float], bool | None]


@dataclass(frozen=True, slots=True)
class VoronoiRegion:
    """The closed region of one site: keep it to ask many questions while the sites rest."""

    site: int
    places: Sites  # of the site and of the neighbours along its edges
    edges: tuple[Edge, ...]  # counter-clockwise; a mere corner neighbour has one of no length
    enclosing: tuple[int, ...]
    empty: bool  # a twin with a smaller id owns the region

    def touches_disc(self, x: float, y: float, r: float) -> bool:
        """Whether the closed disc has a point in common with the region. Exact."""
        return not self.empty and not self._holds(_disc_apart, x, y, r)

    def touches_box(self, x: float, y: float, rx: float, ry: float) -> bool:
        """Whether the closed box, of half-extents that may be inf, touches the region. Exact."""
        return not self.empty and not self._holds(_box_apart, x, y, rx, ry)

    def inside_disc(self, x: float, y: float, r: float) -> bool:
        """Whether the whole region lies in the closed disc. Exact."""
        return self.empty or not self._holds(_sticks_out, x, y, r)

    def clipped(self, world: tuple[Point, Point]) -> list[Point]:
        """The part of the region in the world, a counter-clockwise polygon; [] without area."""
        if self.empty:
            return []
        (left, bottom), (right, top) = world
        polygon = [(left, bottom), (right, bottom), (right, top), (left, top)]
        origin_x, origin_y = self.places[self.site]
        for edge in self.edges:
            _, dx, dy, _ = edge.spoke
            length = math.hypot(dx, dy)  # the squared one may be too small for a float
            dx, dy = dx / length, dy / length
            excess = [dx * (x - origin_x) + dy * (y - origin_y) - length / 2 for x, y in polygon]
            polygon = _cut(polygon, excess)
        distinct = [point for at, point in enumerate(polygon) if point != polygon[at - 1]]
        return distinct if len(distinct) > 2 else []

    def _holds(self, question: Question, x: float, y: float, *lengths: float) -> bool:
        origin = self.places[self.site]
        spokes = [edge.spoke for edge in self.edges]
        corners = [edge.corner for edge in self.edges]
        sides = list(zip(spokes, corners, spokes[1:] + spokes[:1], strict=True))
        answer = question(sides, x - origin[0], y - origin[1], lengths, NOISE)
        if answer is None:
            points = [(x, y), *(self.places[spoke[3]] for spoke in spokes)]
            (centre, *spokes), exact_lengths = _integer_spokes(origin, points, lengths)
            sides = [
                (a, corner and _meet(a, b, 0), b)
                for a, corner, b in zip(spokes, corners, spokes[1:] + spokes[:1], strict=True)
            ]
            answer = question(sides, centre[1], centre[2], exact_lengths, 0)
        return bool(answer)


def nearest(sites: Sites, x: float, y: float) -> int:
    """The owner of a point: the site at the least exact distance, of equals the smallest id."""
    squares = [(sx - x) * (sx - x) + (sy - y) * (sy - y) for sx, sy in sites.values()]
    bound = min(squares) * (1 + NOISE) + FLOOR
    close = [site for site, square in zip(sites, squares, strict=True) if not square > bound]
    if len(close) == 1:
        return close[0]
    spokes, _ = _integer_spokes((x, y), [sites[site] for site in close])
    return min((spoke[0], site) for spoke, site in zip(spokes, close, strict=True))[1]


def region(sites: Sites, site: int) -> VoronoiRegion:
    """The region of one site among all."""
    here = sites[site]
    twins = [other for other, place in sites.items() if place == here and other != site]
    if any(other < site for other in twins):
        return VoronoiRegion(site, {site: here}, (), tuple(sorted(twins)), empty=True)
    edges = _edges(sites, site)
    neighbours = [edge.spoke[3] for edge in edges]
    places = {other: sites[other] for other in (site, *neighbours)}
    return VoronoiRegion(site, places, tuple(edges), tuple(sorted(neighbours + twins)), empty=False)


def enclosing(sites: Sites, site: int) -> list[int]:
    """The sites whose regions touch this site's region, and its twins; by id."""
    return list(region(sites, site).enclosing)


def cell(sites: Sites, site: int, world: tuple[Point, Point]) -> list[Point]:
    """The site's region within the world, given by its low and high corner: see `clipped`."""
    return region(sites, site).clipped(world)


def touches_disc(sites: Sites, site: int, x: float, y: float, r: float) -> bool:
    """Whether a closed disc touches the site's closed region. Exact; a region may be empty."""
    return region(sites, site).touches_disc(x, y, r)


def touches_box(sites: Sites, site: int, x: float, y: float, rx: float, ry: float) -> bool:
    """Whether a closed box touches the site's closed region. Exact; half-extents may be inf."""
    return region(sites, site).touches_box(x, y, rx, ry)


def boundary(sites: Sites, site: int, radius: float) -> list[int]:
    """The boundary neighbours (VSO, II-C): in the AOI, with a region that leaves it; by id.

    The AOI is the closed disc around the site. An empty region leaves nothing, an open one always.
    """
    here = sites[site]
    return sorted(
        other
        for other, place in sites.items()
        if other != site
        and _within(here, place, radius)
        and not region(sites, other).inside_disc(*here, radius)
    )


def _edges(sites: Sites, site: int) -> list[Edge]:
    """The borders of the region, counter-clockwise.

    A new site lies in a direction between two neighbours so far, and if anything hides it, these
    two do. So one test tells whether it has a border: does it reach the corner of the two?
    """
    origin_x, origin_y = sites[site]
    spokes = [
        ((dx := x - origin_x) * dx + (dy := y - origin_y) * dy, dx, dy, other)
        for other, (x, y) in sites.items()
    ]
    spokes.sort()
    ring: list[Edge] = []
    limit = math.inf
    for spoke in spokes:
        square, dx, dy, _ = spoke
        if square > limit:
            break
        if not (dx or dy):
            continue  # the site itself, or its twin
        angle = math.atan2(dy + 0.0, dx)  # a dy of -0.0 would turn pi into -pi
        at, aligned = _place(sites, site, ring, spoke, angle)
        if aligned:
            if not _replaces(sites, site, spoke, ring[at].spoke):
                continue
        elif ring:
            corner = ring[at - 1].corner
            if corner is not None and _side(sites, site, corner, spoke) < 0:
                continue
        ring = _insert(sites, site, ring, Edge(angle, spoke, None), at, aligned)
        limit = max(math.inf if edge.corner is None else edge.corner.limit for edge in ring)
    return ring


def _place(
    sites: Sites, site: int, ring: list[Edge], spoke: Spoke, angle: float
) -> tuple[int, bool]:
    """Where in the ring a direction belongs, and whether the edge there has that very direction.

    The ring is in exact order, and so are its angles up to rounding. So bisection finds the place
    unless the direction is close to one of its two neighbours.
    """
    at = bisect(ring, angle, key=itemgetter(0))
    if not ring:
        return at, False
    before = abs(angle - ring[at - 1].angle)
    after = abs(angle - ring[at % len(ring)].angle)
    if SAME_ANGLE < before < math.tau - SAME_ANGLE and SAME_ANGLE < after < math.tau - SAME_ANGLE:
        return at, False
    third = _third(spoke)
    for index, edge in enumerate(ring):
        if third > _third(edge.spoke):
            continue
        turn = _turn(sites, site, edge.spoke, spoke) if third == _third(edge.spoke) else -1
        if turn <= 0:
            return index, turn == 0
    return len(ring), False


def _third(spoke: Spoke) -> int:
    """Which part of the angles from -pi to pi: below 0, from 0 to below pi, or pi itself.

    Within each part the angles increase with the turns, and no turn is 0 but between equals.
    """
    _, dx, dy, _ = spoke
    return 0 if dy < 0 else 2 if dy == 0 and dx < 0 else 1


def _insert(
    sites: Sites, site: int, ring: list[Edge], edge: Edge, at: int, aligned: bool
) -> list[Edge]:
    """The ring with a new edge before position `at`, without the edges that it cuts off.

    An edge is cut off when the corner at its far end is. An edge that has the new one's own
    direction is replaced by it.
    """
    count = len(ring)
    if not count:
        return [edge]
    spoke = edge.spoke
    before, after = at - 1, at + aligned
    # Across an opening of half a turn or more a corner beyond it is none of this edge's business.
    if _turn(sites, site, spoke, ring[after % count].spoke) > 0:
        while (corner := ring[after % count].corner) and _side(sites, site, corner, spoke) > 0:
            after += 1
    if _turn(sites, site, ring[before % count].spoke, spoke) > 0:
        while (corner := ring[(before - 1) % count].corner) and (
            _side(sites, site, corner, spoke) > 0
        ):
            before -= 1
    gone = {index % count for index in range(before + 1, after)}
    lower = [ring[index] for index in range(at) if index not in gone]
    upper = [ring[index] for index in range(at, count) if index not in gone]
    result = [*lower, edge, *upper]
    here = len(lower)
    for index in (here - 1, here):
        a, b = result[index], result[(index + 1) % len(result)]
        meet = _turn(sites, site, a.spoke, b.spoke) > 0
        result[index] = a._replace(corner=_meet(a.spoke, b.spoke, NOISE) if meet else None)
    return result


def _replaces(sites: Sites, site: int, spoke: Spoke, old: Spoke) -> bool:
    """Whether, of two sites in one direction, the first hides the second: nearer, or a twin."""
    (new_exact, old_exact), _ = _integer_spokes(sites[site], [sites[spoke[3]], sites[old[3]]])
    return (new_exact[0], spoke[3]) < (old_exact[0], old[3])


def _turn(sites: Sites, site: int, a: Spoke, b: Spoke) -> int:
    """The sign of the turn from a to b: 1 if counter-clockwise by less than half a turn."""
    first, second = a[1] * b[2], a[2] * b[1]
    value = first - second
    doubt = NOISE * (abs(first) + abs(second)) + FLOOR
    if value > doubt:
        return 1
    if value < -doubt:
        return -1
    ((_, ax, ay, _), (_, bx, by, _)), _ = _integer_spokes(sites[site], [sites[a[3]], sites[b[3]]])
    return (ax * by > ay * bx) - (ax * by < ay * bx)


def _meet(a: Spoke, b: Spoke, noise: float) -> Corner:
    """The corner of two borders: the solution of a.v = |a|²/2, b.v = |b|²/2 by Cramer's rule."""
    a_square, ax, ay, right = a
    b_square, bx, by, left = b
    x, y, cross = a_square * by - b_square * ay, ax * b_square - bx * a_square, ax * by - ay * bx
    if not noise:
        return Corner(x, y, cross, 0, 0, 0, right, left)
    doubt = noise * (a_square * (abs(bx) + abs(by)) + b_square * (abs(ax) + abs(ay)))
    cross_doubt = noise * (abs(ax * by) + abs(ay * bx))
    limit = math.inf
    if cross > cross_doubt + FLOOR:
        reach = (math.hypot(x, y) + 2 * doubt) / (cross - cross_doubt)
        limit = reach * reach * (1 + 1e-9)
    return Corner(x, y, cross, doubt, cross_doubt, limit, right, left)


def _side(sites: Sites, site: int, corner: Corner, spoke: Spoke) -> int:
    """The in-circle test: 1 if the corner is nearer to the spoke's site, 0 if as near, or -1."""
    square, dx, dy, other = spoke
    x, y, cross, corner_doubt, cross_doubt, _, right, left = corner
    value = dx * x + dy * y - square * cross
    doubt = (abs(dx) + abs(dy)) * corner_doubt + square * cross_doubt + FLOOR
    if value > doubt:
        return 1
    if value < -doubt:
        return -1
    places = [sites[right], sites[left], sites[other]]
    (a, b, (square, dx, dy, _)), _ = _integer_spokes(sites[site], places)
    x, y, cross, *_ = _meet(a, b, 0)
    value = dx * x + dy * y - square * cross
    return (value > 0) - (value < 0)


def _integer_spokes(
    origin: Point, points: Sequence[Point], lengths: Sequence[float] = ()
) -> tuple[list[Spoke], list[float]]:
    """The points as seen from the origin, and the lengths, all on one scale that makes them int.

    The ids are the points' positions in the list. An infinite length stays what it is.
    """
    numbers = [number for point in (origin, *points) for number in point] + [*lengths]
    ratios = [(n, 0) if math.isinf(n) else n.as_integer_ratio() for n in numbers]
    scale = max(bottom for _, bottom in ratios)
    scaled = [top * (scale // bottom) if bottom else top for top, bottom in ratios]
    origin_x, origin_y = scaled[:2]
    spokes = []
    for index in range(len(points)):
        dx, dy = scaled[2 * index + 2] - origin_x, scaled[2 * index + 3] - origin_y
        spokes.append((dx * dx + dy * dy, dx, dy, index))
    return spokes, scaled[2 * len(points) + 2 :]


def _within(a: Point, b: Point, radius: float) -> bool:
    """Whether two points are at most the radius apart."""
    square, limit = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2, radius * radius
    if abs(square - limit) > NOISE * (square + limit) + FLOOR:
        return square < limit
    (spoke,), (exact_radius,) = _integer_spokes(a, [b], [radius])
    return spoke[0] <= exact_radius * exact_radius


def _cut(polygon: Sequence[Point], excess: Sequence[float]) -> list[Point]:
    """The part of a convex polygon where a linear excess, given per vertex, is not above 0."""
    kept = []
    for at, ((x, y), over) in enumerate(zip(polygon, excess, strict=True)):
        last_over = excess[at - 1]
        if (over > 0) != (last_over > 0):
            last_x, last_y = polygon[at - 1]
            share = last_over / (last_over - over)
            kept.append((last_x + share * (x - last_x), last_y + share * (y - last_y)))
        if not over > 0:
            kept.append((x, y))
    return kept


# Two convex shapes are apart when a line separates them. For polygons one of the sides gives its
# direction; a disc may also be kept off by a corner, with a line square to the way from there to
# its centre. Each such line is a claim: numbers, each with a bound of its error, that must all be
# positive for the line to separate.
Bounded = tuple[float, float]
Claim = tuple[Bounded, ...]


def _any(claims: Iterable[Claim], noise: float) -> bool | None:
    """Whether some claim holds."""
    floor = FLOOR if noise else 0
    in_doubt = False
    for claim in claims:
        if all(value > doubt + floor for value, doubt in claim):
            return True
        if noise and not any(value < -doubt - floor for value, doubt in claim):
            in_doubt = True
    return None if in_doubt else False


def _disc_apart(
    sides: Sequence[Side], x: float, y: float, lengths: Sequence[float], noise: float
) -> bool | None:
    (r,) = lengths

    def claims() -> Iterator[Claim]:
        for a, corner, b in sides:
            beyond, doubt = _beyond(a, x, y, noise)
            square, limit = beyond * beyond, 4 * r * r * a[0]
            square_doubt = (2 * abs(beyond) + doubt) * doubt + noise * (square + limit)
            yield (beyond, doubt), (square - limit, square_doubt)
            if corner is not None:
                way_x, way_y, doubt = _way(corner, x, y, noise)
                # The corner is the region's nearest point if the way leads between the spokes.
                turn_doubt = doubt + noise * (abs(way_x) + abs(way_y))
                yield (
                    (a[1] * way_y - a[2] * way_x, (abs(a[1]) + abs(a[2])) * turn_doubt),
                    (way_x * b[2] - way_y * b[1], (abs(b[1]) + abs(b[2])) * turn_doubt),
                    _farther(corner, x, y, r, noise),
                )

    return _any(claims(), noise)


def _box_apart(
    sides: Sequence[Side], x: float, y: float, lengths: Sequence[float], noise: float
) -> bool | None:
    rx, ry = lengths

    def claims() -> Iterator[Claim]:
        for a, corner, b in sides:
            _, dx, dy, _ = a
            # No line across an infinite extent has the box on one side. An extent along the
            # line does not matter, but infinity times zero would be no number.
            if not (rx == math.inf and dx) and not (ry == math.inf and dy):
                beyond, doubt = _beyond(a, x, y, noise)
                extent = 2 * ((abs(dx) * rx if dx else 0) + (abs(dy) * ry if dy else 0))
                yield ((beyond - extent, doubt + noise * extent),)
            if corner is None:
                continue
            # The sides of the box: does the corner, extreme in a direction, fall short of them?
            for ex, ey, distance, extent in (
                (1 if x > 0 else -1, 0, abs(x), rx),
                (0, 1 if y > 0 else -1, abs(y), ry),
            ):
                extreme = a[1] * ey >= a[2] * ex and ex * b[2] >= ey * b[1]
                if extreme and extent < math.inf:
                    gap = 2 * corner.cross * (distance - extent) - (ex * corner.x + ey * corner.y)
                    cross_doubt = corner.cross_doubt + noise * abs(corner.cross)
                    yield ((gap, 2 * cross_doubt * (distance + extent) + 2 * corner.doubt),)

    return _any(claims(), noise)


def _sticks_out(
    sides: Sequence[Side], x: float, y: float, lengths: Sequence[float], noise: float
) -> bool | None:
    """Whether a part of the region lies outside the disc: always if the region is open."""
    (r,) = lengths
    corners = [corner for _, corner, _ in sides if corner is not None]
    if not sides or len(corners) < len(sides):
        return True
    return _any(((_farther(corner, x, y, r, noise),) for corner in corners), noise)


def _beyond(spoke: Spoke, x: float, y: float, noise: float) -> Bounded:
    """How far a point lies beyond the bisector, times twice the length of the spoke."""
    square, dx, dy, _ = spoke
    x, y = 2 * dx * x, 2 * dy * y
    return x + y - square, noise * (abs(x) + abs(y) + square)


def _way(corner: Corner, x: float, y: float, noise: float) -> tuple[float, float, float]:
    """The way from a corner to a point, times twice the corner's cross; the error of either."""
    cross_doubt = corner.cross_doubt + noise * abs(corner.cross)
    doubt = 2 * cross_doubt * (abs(x) + abs(y)) + 2 * corner.doubt
    return 2 * corner.cross * x - corner.x, 2 * corner.cross * y - corner.y, doubt


def _farther(corner: Corner, x: float, y: float, r: float, noise: float) -> Bounded:
    """Positive if a corner is farther than r from a point."""
    way_x, way_y, doubt = _way(corner, x, y, noise)
    radius = 2 * corner.cross * r
    doubt += 2 * (corner.cross_doubt + noise * abs(corner.cross)) * r
    size = abs(way_x) + abs(way_y) + abs(radius)
    value = way_x * way_x + way_y * way_y - radius * radius
    return value, (2 * size + 3 * doubt) * doubt + noise * size * size
