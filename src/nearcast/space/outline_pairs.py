"""Do two shapes touch, of which at least one has an outline? For all pairs of forms, in Python.

Their boxes touch already. A point is decided by `outline_touch`, as in kernels. Of the others, all
but a sector is a core (a point, a line, or rings that enclose an area) with a reach around it, and
two of them touch if their cores are no farther apart than both reaches. What is exact:

- In the plane places are rounded once, relative to the centre of an outline. Polygons, boxes and
  lines without a reach are then decided without rounding; what has a reach compares a distance.
- A ball in a 3-D plane world meets a prism as the disc that it has at the prism's nearest height.
- On Earth polygons meet each other in degrees. A disc or corridor meets the edge of a polygon if
  the edge comes within its reach; an edge is divided until its pieces are straight within 1 mm.
- A sector on Earth meets what is no point as a polygon that is off by less than 1/10,000 of its
  range. A box without an outline is there for everything: its corners are no places on Earth.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import cos, dist, inf, sqrt
from typing import TYPE_CHECKING, NamedTuple

from nearcast.space.earth import DEGREE, ecef
from nearcast.space.outline_drawing import earth_sector_ring
from nearcast.space.outline_touch import (
    contains_point,
    earth_rings_contain,
    height_gap,
    heights_touch,
    line_is_near,
    rings_contain,
    sector_faces,
    settle,
    turn,
)
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, SECTOR, WHOLE, Outline, numbers, rings

if TYPE_CHECKING:
    from nearcast.space.shapes import Shape

Place = tuple[float, ...]  # x, y or longitude, latitude or ECEF x, y, z
Segment = tuple[Place, Place]

POINT, DISC, BOX = 0, 1, 2  # `shapes` asks this module, so it cannot be asked for them
LARGEST_CURVATURE_RADIUS = 6_400_000.0  # metres, of a meridian at a pole
STRAIGHT = 50.0  # metres: half of a piece of an edge that may be straight
BENT = 4e-3  # metres times radians: a piece of a narrow circle of latitude is not straight yet


class _Core(NamedTuple):
    """What a shape is but for the reach around it."""

    lines: list[list[Place]]
    is_area: bool  # the lines are rings: even-odd
    reach: float


def touches_outline(area: "Shape", other: "Shape") -> bool:
    """Do they share a point, if their boxes or balls do? `other` is what is published.

    Only heights tell the two apart: an area with heights touches nothing that has none.
    """
    one, two = area.outline or _UNBOUNDED, other.outline or _UNBOUNDED
    if other.kind == POINT and two.form == WHOLE:
        return _contains(area, other, two)
    radii = _meeting_radii(area, one, other, two)
    if radii is None:
        return False
    if area.kind == POINT and two.form not in (WHOLE, BALL):
        return _contains(other, area, two)  # of the same heights, which have been compared
    if one.earth or two.earth:
        return _touch_on_earth(area, radii[0], other, radii[1])
    return (one.form == WHOLE and two.form == WHOLE) or _touch_in_plane(area, other)


_UNBOUNDED = Outline(WHOLE)


def _contains(shape: "Shape", place: "Shape", heights: Outline) -> bool:
    """Is a point with these heights inside the outline of a shape whose box it touches?"""
    o = shape.outline
    return o is None or contains_point(
        o.form, o.earth, numbers(o), o.starts, o.size, o.low, o.high,
        shape.x, shape.y, shape.z, place.x, place.y, place.z, heights.low, heights.high,
    )  # fmt: skip


def _meeting_radii(
    area: "Shape", one: Outline, other: "Shape", two: Outline
) -> tuple[float, float] | None:
    """Of the discs in which they meet at their nearest heights; None if those are too far apart.

    A ball is smaller beside its centre's height: radius² = size² - difference of heights².
    """
    radius = area.rx if area.kind == DISC else 0.0
    other_radius = other.rx if other.kind == DISC else 0.0
    if one.form != BALL and two.form != BALL:
        touch = heights_touch(one.low, one.high, two.low, two.high)
        return (radius, other_radius) if touch else None
    size = (one.size if one.form == BALL else 0.0) + (two.size if two.form == BALL else 0.0)
    has_heights = one.low > -inf or one.high < inf
    gap = height_gap(one.low, one.high, two.low, two.high) if has_heights else 0.0
    if gap > size:
        return None
    left = sqrt(size * size - gap * gap)
    if one.form == BALL:
        return left, 0.0 if two.form == BALL else other_radius
    return radius, left


def _form(shape: "Shape") -> int:
    return WHOLE if shape.outline is None else shape.outline.form


# In the plane.


def _touch_in_plane(area: "Shape", other: "Shape") -> bool:
    middle = area if _form(area) != WHOLE else other
    if _form(area) == SECTOR and _form(other) == SECTOR:
        return _sectors_touch(_sector(area, middle), _sector(other, middle))
    if _form(area) == SECTOR:
        return _sector_touches(_sector(area, middle), _planar_core(other, area, middle))
    if _form(other) == SECTOR:
        return _sector_touches(_sector(other, middle), _planar_core(area, other, middle))
    return _cores_touch(_planar_core(area, other, middle), _planar_core(other, area, middle))


def _planar_core(shape: "Shape", partner: "Shape", middle: "Shape") -> _Core:
    """Relative to the centre of `middle`."""
    dx, dy = shape.x - middle.x, shape.y - middle.y
    o = shape.outline
    if o is not None and o.form == POLYGON:
        lines: list[list[Place]] = [
            [(settle(x + dx), settle(y + dy)) for x, y in ring] for ring in rings(o)
        ]
        return _Core(lines, True, 0.0)
    if o is not None and o.form == CORRIDOR:
        flat = numbers(o)
        line: list[Place] = [(flat[k] + dx, flat[k + 1] + dy) for k in range(0, len(flat), 2)]
        return _Core([line], False, o.size)
    if shape.kind == BOX:
        # Its part around the partner is enough, and finite.
        away_x, away_y = partner.x - middle.x, partner.y - middle.y
        wide, long = 2 * partner.rx, 2 * partner.ry
        west, east = max(dx - shape.rx, away_x - wide), min(dx + shape.rx, away_x + wide)
        south, north = max(dy - shape.ry, away_y - long), min(dy + shape.ry, away_y + long)
        west, east, south, north = map(settle, (west, east, south, north))
        return _Core([[(west, south), (east, south), (east, north), (west, north)]], True, 0.0)
    gap = max(0.0, abs(shape.z - partner.z) - partner.rz)
    reach = sqrt(max(0.0, shape.rx * shape.rx - gap * gap)) if gap else shape.rx
    return _Core([[(settle(dx), settle(dy))]], False, reach)


def _cores_touch(one: _Core, two: _Core) -> bool:
    if _holds_one_of(one, two.lines) or _holds_one_of(two, one.lines):
        return True
    reach = one.reach + two.reach
    others = list(_near(_segments(two), _bounds(one.lines), reach))
    if not others:
        return False
    bounds = _bounds([[*segment] for segment in others])
    for segment in _near(_segments(one), bounds, reach):
        around = _bounds([[*segment]])
        for other in _near(others, around, reach):
            if _segments_meet(segment, other) or (reach > 0 and _is_near(segment, other, reach)):
                return True
    return False


def _holds_one_of(core: _Core, lines: list[list[Place]]) -> bool:
    """A vertex of each line is enough where the borders do not meet."""
    if not core.is_area:
        return False
    flat, starts = flatten(core.lines)
    return any(rings_contain(flat, starts, line[0][0], line[0][1]) for line in lines)


def flatten(lines: Sequence[Sequence[Place]]) -> tuple[list[float], list[int]]:
    """Rings or lines as the coordinates and starts of an outline."""
    flat: list[float] = []
    starts, count = [], 0
    for line in lines:
        starts.append(count)
        count += len(line)
        for vertex in line:
            flat.extend(vertex)
    return flat, starts


def _segments(core: _Core) -> Iterator[Segment]:
    for line in core.lines:
        if core.is_area or len(line) == 1:
            yield line[-1], line[0]
        yield from pairwise(line)


def _bounds(lines: list[list[Place]]) -> tuple[float, float, float, float]:
    xs = [vertex[0] for line in lines for vertex in line]
    ys = [vertex[1] for line in lines for vertex in line]
    return min(xs), min(ys), max(xs), max(ys)


def _near(
    segments: Iterator[Segment] | list[Segment],
    bounds: tuple[float, float, float, float],
    reach: float,
) -> Iterator[Segment]:
    """Those that may come within `reach` of what has these bounds."""
    # Rounding of a sum must not lose one that just reaches.
    reach *= 1 + 1e-12
    west, south, east, north = bounds
    west, south, east, north = west - reach, south - reach, east + reach, north + reach
    for a, b in segments:
        if (
            (a[0] >= west or b[0] >= west)
            and (a[0] <= east or b[0] <= east)
            and (a[1] >= south or b[1] >= south)
            and (a[1] <= north or b[1] <= north)
        ):
            yield a, b


def _segments_meet(one: Segment, other: Segment) -> bool:
    """Exactly; their bounds touch already."""
    (ax, ay), (bx, by) = one
    (cx, cy), (dx, dy) = other
    from_one = turn(ax, ay, bx, by, cx, cy), turn(ax, ay, bx, by, dx, dy)
    from_other = turn(cx, cy, dx, dy, ax, ay), turn(cx, cy, dx, dy, bx, by)
    # With bounds that touch, segments on one line, or as short as a point, meet.
    return not (
        max(from_one) < 0 or min(from_one) > 0 or max(from_other) < 0 or min(from_other) > 0
    )


def _is_near(one: Segment, other: Segment, reach: float) -> bool:
    """Does an end of one come within `reach` of the other? They do not meet."""
    (a, b), (c, d) = one, other
    return (
        line_is_near((*a, *b), 2, reach, c[0], c[1], 0.0)
        or line_is_near((*a, *b), 2, reach, d[0], d[1], 0.0)
        or line_is_near((*c, *d), 2, reach, a[0], a[1], 0.0)
        or line_is_near((*c, *d), 2, reach, b[0], b[1], 0.0)
    )


class _Sector(NamedTuple):
    """A planar sector relative to some centre."""

    x: float
    y: float
    size: float
    coordinates: Sequence[float]

    def faces(self, place: Place) -> bool:
        return sector_faces(self.coordinates, 2, place[0] - self.x, place[1] - self.y)

    def borders(self) -> list[Segment]:
        _, _, _, _, right_x, right_y, left_x, left_y = self.coordinates
        apex, size = (self.x, self.y), self.size
        ends = (right_x * size, right_y * size), (left_x * size, left_y * size)
        return [(apex, (self.x + dx, self.y + dy)) for dx, dy in ends]


def _sector(shape: "Shape", middle: "Shape") -> _Sector:
    assert shape.outline is not None
    flat = numbers(shape.outline)
    dx, dy = shape.x - middle.x, shape.y - middle.y
    return _Sector(flat[0] + dx, flat[1] + dy, shape.outline.size, flat)


def _sector_touches(sector: _Sector, core: _Core) -> bool:
    if _holds_one_of(core, [[(sector.x, sector.y)]]):
        return True
    return any(_sector_is_near(sector, segment, core.reach) for segment in _segments(core))


def _sector_is_near(sector: _Sector, segment: Segment, reach: float) -> bool:
    """Does the segment come within `reach` of the sector?

    The nearest to the arc is an end of the segment, or its place nearest to the apex, seen between
    the borders; all others are nearer to one of the two straight borders.
    """
    apex = sector.x, sector.y
    for place in (*segment, _nearest(segment, apex)):
        if sector.faces(place) and dist(place, apex) <= sector.size + reach:
            return True
    for border in sector.borders():
        near = list(_near([border], _bounds([[*segment]]), reach))
        if near and (_segments_meet(border, segment) or _is_near(border, segment, reach)):
            return True
    return False


def _nearest(segment: Segment, to: Place) -> Place:
    """The place on a segment in the plane that is nearest to another."""
    (ax, ay), (bx, by) = segment
    ux, uy = bx - ax, by - ay
    length = ux * ux + uy * uy
    if length == 0:
        return ax, ay
    s = min(max(((to[0] - ax) * ux + (to[1] - ay) * uy) / length, 0.0), 1.0)
    return ax + s * ux, ay + s * uy


def _sectors_touch(one: _Sector, two: _Sector) -> bool:
    """A straight border of one touches the other, or their arcs meet."""
    for sector, other in ((one, two), (two, one)):
        if any(_sector_is_near(other, border, 0.0) for border in sector.borders()):
            return True
    dx, dy = two.x - one.x, two.y - one.y
    apart = sqrt(dx * dx + dy * dy)
    if apart == 0 or not abs(one.size - two.size) <= apart <= one.size + two.size:
        return False
    along = (apart + (one.size - two.size) * (one.size + two.size) / apart) / 2
    aside = sqrt(max(0.0, one.size * one.size - along * along))
    ux, uy = dx / apart, dy / apart
    for side in (aside, -aside):
        meeting = one.x + along * ux - side * uy, one.y + along * uy + side * ux
        if one.faces(meeting) and two.faces(meeting):
            return True
    return False


# On Earth.


def _touch_on_earth(area: "Shape", radius: float, other: "Shape", other_radius: float) -> bool:
    if any(shape.kind == BOX and _form(shape) == WHOLE for shape in (area, other)):
        return True
    cores = _earth_core(area, radius), _earth_core(other, other_radius)
    one, two = cores
    if one.is_area and two.is_area:
        return _degrees_touch(one, two)
    if one.is_area or two.is_area:
        polygon, line = (one, two) if one.is_area else (two, one)
        return _line_touches_polygon(line, polygon)
    reach = one.reach + two.reach
    legs = list(_segments(two))
    return any(
        _segment_distance(leg, other_leg) <= reach for leg in _segments(one) for other_leg in legs
    )


def _earth_core(shape: "Shape", radius: float) -> _Core:
    """Rings in degrees, or a line or point in ECEF."""
    o = shape.outline
    if o is not None and o.form == POLYGON:
        return _Core([list(ring) for ring in rings(o)], True, 0.0)
    if o is not None and o.form == SECTOR:
        return _Core([list(earth_sector_ring(o))], True, 0.0)
    if o is not None and o.form == CORRIDOR:
        flat = numbers(o).tolist()
        return _Core([list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))], False, o.size)
    return _Core([[(shape.x, shape.y, shape.z)]], False, radius)


def _degrees_touch(one: _Core, two: _Core) -> bool:
    """Two polygons, the second as it is and once round the Earth in both directions."""
    for pole in (-90.0, 90.0):
        if all(any(v[1] == pole for line in core.lines for v in line) for core in (one, two)):
            return True
    west, _, east, _ = _bounds(one.lines)
    for shift in (0.0, -360.0, 360.0):
        lines: list[list[Place]] = [[(x + shift, y) for x, y in ring] for ring in two.lines]
        other_west, _, other_east, _ = _bounds(lines)
        overlap = other_west <= east and west <= other_east
        if overlap and _cores_touch(one, _Core(lines, True, 0.0)):
            return True
    return False


def _line_touches_polygon(line: _Core, polygon: _Core) -> bool:
    """Does the line begin inside the polygon, or come within its reach of an edge?"""
    flat, starts = flatten(polygon.lines)
    x, y, z = line.lines[0][0]
    if earth_rings_contain(flat, starts, x, y, z):
        return True
    legs = list(_segments(line))
    return any(_edge_is_near(edge, legs, line.reach) for edge in _segments(polygon))


def _edge_is_near(edge: Segment, legs: list[Segment], reach: float) -> bool:
    """Does an edge that is straight in degrees come within `reach` of one of these legs in ECEF?

    Pieces of the edge are divided as long as it is open whether they do.
    """
    pieces = [(edge, legs)]
    while pieces:
        (a, b), candidates = pieces.pop()
        middle = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
        lat = min(abs(a[1]), abs(b[1])) if a[1] * b[1] > 0 else 0.0
        turned = abs(b[0] - a[0]) * DEGREE
        half = (abs(b[1] - a[1]) * DEGREE + turned * cos(lat * DEGREE)) / 2
        half *= LARGEST_CURVATURE_RADIUS
        place = ecef(*middle)
        near = []
        for leg in candidates:
            distance = _segment_distance((place, place), leg)
            if distance <= reach:
                return True
            if distance <= reach + half:
                near.append(leg)
        if not near:
            continue
        if half <= STRAIGHT and half * turned <= BENT:
            piece = ecef(*a), ecef(*b)
            if any(_segment_distance(piece, leg) <= reach for leg in near):
                return True
        else:
            pieces += [((a, middle), near), ((middle, b), near)]
    return False


def _segment_distance(one: Segment, other: Segment) -> float:
    """Between two segments in space."""
    (a, b), (c, d) = one, other
    u = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    v = d[0] - c[0], d[1] - c[1], d[2] - c[2]
    w = a[0] - c[0], a[1] - c[1], a[2] - c[2]
    uu, vv, uv = _dot(u, u), _dot(v, v), _dot(u, v)
    uw, vw = _dot(u, w), _dot(v, w)
    span = uu * vv - uv * uv
    s = min(max((uv * vw - vv * uw) / span, 0.0), 1.0) if span > 1e-12 * uu * vv else 0.0
    t = min(max((uv * s + vw) / vv, 0.0), 1.0) if vv else 0.0
    s = min(max((uv * t - uw) / uu, 0.0), 1.0) if uu else 0.0
    return sqrt(sum((w[k] + s * u[k] - t * v[k]) ** 2 for k in range(3)))


def _dot(a: Place, b: Place) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
