"""Shapes as rings of vertices, for pages and reports: (x, y) in the plane, (lon, lat) on Earth.

Polygons are drawn as they are. Discs, corridors and sectors are approximated: an arc has a vertex
every few degrees, a corridor is one ring around its line, round at ends and bends. On Earth
longitudes run on beyond ±180 where a ring crosses the antimeridian.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import atan2, ceil, cos, inf, sin, sqrt
from typing import TYPE_CHECKING

from nearcast.space.earth import (
    DEGREE,
    Ecef,
    height_ratio,
    lon_lat,
    tangent_plane,
)
from nearcast.space.outlines import CORRIDOR, POLYGON, SECTOR, Outline, numbers, rings

if TYPE_CHECKING:
    from nearcast.space.shapes import Shape

Ring = list[tuple[float, float]]
Place = Sequence[float]

DISC, BOX = 1, 2  # `shapes` asks for outlines, so it cannot be asked for them
ROUND = 5.0  # degrees between the vertices of an arc that is drawn
FINE = 1.0  # of one that decides
RADIUS_VERTICES = 64  # of each straight border of a sector on Earth: it is straight in no degrees
DRAWN_LEGS = 500  # of a corridor on Earth, which has one for each km


def drawing_rings(shape: "Shape", earth: bool = False) -> list[Ring]:
    """The rings of a shape; a point is a ring of one vertex. An unbounded box cannot be drawn.

    `earth` says where a shape without an outline is; a box without one is there drawn as nothing.
    """
    o = shape.outline
    if o is not None and o.form == POLYGON:
        dx, dy = (0.0, 0.0) if o.earth else (shape.x, shape.y)
        return [[(x + dx, y + dy) for x, y in ring] for ring in rings(o)]
    if o is not None and o.form == SECTOR:
        return [earth_sector_ring(o, ROUND) if o.earth else _sector_ring(shape, o)]
    if o is not None and o.form == CORRIDOR:
        return [_earth_corridor_ring(o) if o.earth else _corridor_ring(shape, o)]
    if earth or (o is not None and o.earth):
        return [] if shape.kind == BOX else [_earth_disc_ring(shape)]
    if shape.kind == DISC:
        return [[(shape.x + dx, shape.y + dy) for dx, dy in _arc(0.0, 360.0 - ROUND, shape.rx)]]
    if shape.kind == BOX:
        if inf in (shape.rx, shape.ry):
            raise ValueError("an unbounded box cannot be drawn")
        west, east = shape.x - shape.rx, shape.x + shape.rx
        south, north = shape.y - shape.ry, shape.y + shape.ry
        return [[(west, south), (east, south), (east, north), (west, north)]]
    return [[(shape.x, shape.y)]]


def unit_vector(degrees: float) -> tuple[float, float]:
    """Counter-clockwise from the x axis; exact in the directions of the axes."""
    degrees %= 360.0
    if degrees % 90.0 == 0.0:
        return [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][int(degrees // 90.0) % 4]
    return cos(degrees * DEGREE), sin(degrees * DEGREE)


def _arc(first: float, last: float, radius: float, step: float = ROUND) -> Ring:
    """From one direction to another, both included."""
    pieces = max(1, ceil((last - first) / step))
    directions = (unit_vector(first + (last - first) * k / pieces) for k in range(pieces + 1))
    return [(radius * x, radius * y) for x, y in directions]


def _sector_ring(shape: "Shape", o: Outline) -> Ring:
    ax, ay, direction, angle, *_ = numbers(o)
    x, y = shape.x + ax, shape.y + ay
    arc = _arc(direction - angle / 2, direction + angle / 2, o.size)
    return [(x, y), *((x + dx, y + dy) for dx, dy in arc)]


def _corridor_ring(shape: "Shape", o: Outline) -> Ring:
    flat = numbers(o).tolist()
    way = _there_and_back(list(zip(flat[::2], flat[1::2], strict=True)))
    ring: Ring = []
    for before, (x, y), after in _bends(way):
        first, last = (
            atan2(b[1] - a[1], b[0] - a[0]) / DEGREE for a, b in ((before, (x, y)), ((x, y), after))
        )
        ring += [
            (shape.x + x + dx, shape.y + y + dy) for dx, dy in _right_side(first, last, o.size)
        ]
    return ring


def _there_and_back(line: list[Place]) -> list[Place]:
    there = [place for k, place in enumerate(line) if k == 0 or place != line[k - 1]]
    return there + there[-2:0:-1]


def _bends(way: list[Place]) -> Iterator[tuple[Place, Place, Place]]:
    """Each place with those before and after it, all round."""
    for k, place in enumerate(way):
        yield way[k - 1], place, way[(k + 1) % len(way)]


def _right_side(first: float, last: float, size: float) -> Ring:
    """Beside a vertex that is reached in one direction and left in another: an arc, if outside."""
    bend = (last - first) % 360.0
    if bend > 180.0:  # a turn to the right, which has this side inside
        return _arc(last - 90.0, last - 90.0, size)[:1]
    return _arc(first - 90.0, first - 90.0 + bend, size)


# On Earth.


@lru_cache(256)
def earth_sector_ring(o: Outline, step: float = FINE) -> Ring:
    """A sector on Earth as a polygon in degrees. It contains no pole: such a one is refused."""
    flat = numbers(o).tolist()
    direction, angle = flat[9:11]
    first, last = 90.0 - direction - angle / 2, 90.0 - direction + angle / 2
    shares = [o.size * k / RADIUS_VERTICES for k in range(1, RADIUS_VERTICES)]
    (right_x, right_y), (left_x, left_y) = unit_vector(first), unit_vector(last)
    places = [
        (0.0, 0.0),
        *((right_x * share, right_y * share) for share in shares),
        *_arc(first, last, o.size, step),
        *((left_x * share, left_y * share) for share in reversed(shares)),
    ]
    apex, east, north = flat[0:3], flat[3:6], flat[6:9]
    return _unwrapped(_surface(apex, east, north, x, y) for x, y in places)


def _earth_disc_ring(shape: "Shape") -> Ring:
    place = shape.x, shape.y, shape.z
    if not shape.rx:
        return [lon_lat(*place)]
    east, north = tangent_plane(*lon_lat(*place))
    arc = _arc(0.0, 360.0 - ROUND, shape.rx)
    ring = _unwrapped(_surface(place, east, north, x, y) for x, y in arc)
    if abs(ring[-1][0] - ring[0][0]) > 180.0:  # around a pole, which the ring must not leave out
        pole = 90.0 if shape.z > 0 else -90.0
        ring += [(ring[-1][0], pole), (ring[0][0], pole)]
    return ring


def _earth_corridor_ring(o: Outline) -> Ring:
    flat = numbers(o).tolist()
    places = list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
    every = ceil(len(places) / DRAWN_LEGS)
    degrees: Ring = []
    for before, place, after in _bends(_there_and_back([*places[:-1:every], places[-1]])):
        east, north = tangent_plane(*lon_lat(*place))
        first, last = (
            atan2(_along(north, a, b), _along(east, a, b)) / DEGREE
            for a, b in ((before, place), (place, after))
        )
        degrees += [
            _surface(place, east, north, dx, dy) for dx, dy in _right_side(first, last, o.size)
        ]
    return _unwrapped(degrees)


def _along(axis: Ecef, a: Place, b: Place) -> float:
    return axis[0] * (b[0] - a[0]) + axis[1] * (b[1] - a[1]) + axis[2] * (b[2] - a[2])


def _surface(place: Place, east: Place, north: Place, x: float, y: float) -> tuple[float, float]:
    """Degrees of the place on the surface whose chord is as long as (x, y), in this direction.

    The surface is so far below the tangent plane that the chord is right; that depth is bisected.
    """
    chord = sqrt(x * x + y * y)
    if not chord:
        return lon_lat(*place)
    up = (
        east[1] * north[2] - east[2] * north[1],
        east[2] * north[0] - east[0] * north[2],
        east[0] * north[1] - east[1] * north[0],
    )
    at, low, high = [*place], 0.0, chord
    for _ in range(40):
        depth = (low + high) / 2
        share = sqrt(1.0 - (depth / chord) ** 2)
        at = [
            p + share * (x * e + y * n) - depth * u
            for p, e, n, u in zip(place, east, north, up, strict=True)
        ]
        if height_ratio(*at) > 1.0:
            low = depth
        else:
            high = depth
    return lon_lat(*at)


def _unwrapped(places: Iterable[tuple[float, float]]) -> Ring:
    """With longitudes that go on where the antimeridian is crossed."""
    ring: Ring = []
    for lon, lat in places:
        if ring:
            lon += 360.0 * round((ring[-1][0] - lon) / 360.0)
        ring.append((lon, lat))
    return ring
