"""Polygons, corridors and sectors as shapes, in the plane and on Earth: checked, with their boxes.

In the plane `z` and `rz` are the middle and half of the heights of a prism, as of a cuboid. On
Earth `low` and `high` are metres above the ellipsoid, and None is unbounded.
"""

from collections.abc import Sequence
from math import dist, inf, nextafter

from nearcast.space.earth import (
    chord_of,
    densify,
    ecef,
    lon_lat_box,
    require_lon_lat,
    require_radius,
    tangent_plane,
)
from nearcast.space.outline_drawing import unit_vector
from nearcast.space.outline_touch import TINY, settle
from nearcast.space.outlines import CORRIDOR, FARTHEST, POLYGON, SECTOR, Outline, pack
from nearcast.space.shapes import Shape, ShapeKind
from nearcast.space.simple_rings import Part, checked_line, checked_parts

Position = Sequence[float]  # x, y or longitude, latitude; more is not looked at
LARGEST_EARTH_SECTOR = 1_000_000.0  # metres


def polygon(rings: Sequence[Sequence[Position]], z: float = 0.0, rz: float = 0.0) -> Shape:
    """What is inside the first ring and outside of the others, its holes."""
    return multipolygon([rings], z, rz)


def multipolygon(
    parts: Sequence[Sequence[Sequence[Position]]], z: float = 0.0, rz: float = 0.0
) -> Shape:
    """Several polygons, each an outer ring and its holes, as one shape."""
    checked = checked_parts(parts)
    vertices = [vertex for part in checked for ring in part for vertex in ring]
    return _outlined(POLYGON, vertices, _starts(checked), 0.0, z, rz)


def corridor(line: Sequence[Position], half_width: float, z: float = 0.0, rz: float = 0.0) -> Shape:
    """What is within `half_width` of a line."""
    _require_positive("half-width", half_width)
    return _outlined(CORRIDOR, checked_line(line), (0,), float(half_width), z, rz)


def sector(
    x: float, y: float, direction: float, angle: float, radius: float,
    z: float = 0.0, rz: float = 0.0,
) -> Shape:  # fmt: skip
    """A view: what is within `radius` of the apex, and within half of `angle` of the direction.

    Both are degrees; the direction counts counter-clockwise from the x axis.
    """
    _require_positive("radius", radius)
    _require_angles(direction, angle)
    first, last = direction - angle / 2, direction + angle / 2
    right, left = unit_vector(first), unit_vector(last)
    extremes = [(0.0, 0.0), right, left]
    quarter = 90.0 * -(-first // 90.0)
    while quarter <= last:
        extremes.append(unit_vector(quarter))
        quarter += 90.0
    places = [(x + ux * radius, y + uy * radius) for ux, uy in extremes]
    cx, cy = _middle(places)
    apex = settle(x - cx), settle(y - cy)
    flat = [*apex, float(direction), float(angle), *right, *left]
    outline = Outline(SECTOR, False, pack(flat), (0,), float(radius))
    rx, ry = (
        _wider(max(abs(place[axis] - (cx, cy)[axis]) for place in places), radius)
        for axis in (0, 1)
    )
    return Shape(ShapeKind.BOX, cx, cy, float(z), rx, ry, float(rz), outline)


def _outlined(
    form: int, vertices: Sequence[tuple[float, float]], starts: tuple[int, ...], size: float,
    z: float, rz: float,
) -> Shape:  # fmt: skip
    """Coordinates relative to the middle. A polygon's box is then exact: both are rounded alike."""
    cx, cy = _middle(vertices)
    relative = [(settle(x - cx), settle(y - cy)) for x, y in vertices]
    outline = Outline(form, False, pack([n for v in relative for n in v]), starts, size)
    rx, ry = (max(TINY, *(abs(vertex[axis]) for vertex in relative)) for axis in (0, 1))
    if size:
        rx, ry = _wider(rx + size, size), _wider(ry + size, size)
    return Shape(ShapeKind.BOX, cx, cy, float(z), rx, ry, float(rz), outline)


def _middle(places: Sequence[tuple[float, float]]) -> tuple[float, float]:
    xs, ys = [x for x, _ in places], [y for _, y in places]
    return min(xs) / 2 + max(xs) / 2, min(ys) / 2 + max(ys) / 2


def _wider(extent: float, size: float) -> float:
    """A hair more: distances are rounded in another way than extents."""
    return nextafter(extent + 4e-16 * size, inf)


def _starts(parts: list[Part]) -> tuple[int, ...]:
    starts, count = [], 0
    for part in parts:
        for ring in part:
            starts.append(count)
            count += len(ring)
    return tuple(starts)


def _require_positive(what: str, value: float) -> None:
    if not 0 < value <= FARTHEST:
        raise ValueError(f"a {what} must be above 0 and at most {FARTHEST}, not {value}")


def _require_angles(direction: float, angle: float) -> None:
    if not -360 <= direction <= 360:
        raise ValueError(f"a direction must be within ±360 degrees, not {direction}")
    if not 0 < angle <= 360:
        raise ValueError(f"an angle must be above 0 and at most 360 degrees, not {angle}")


# On Earth.


def earth_polygon(
    rings: Sequence[Sequence[Position]], low: float | None = None, high: float | None = None
) -> Shape:
    """What is inside the first ring and outside of the others, in degrees, longitude first.

    Edges are straight in longitude and latitude. Across the antimeridian longitudes go on, to at
    most 360: from 170 to 190, not to -170. A polygon with a vertex at a pole contains it.
    """
    return earth_multipolygon([rings], low, high)


def earth_multipolygon(
    parts: Sequence[Sequence[Sequence[Position]]],
    low: float | None = None,
    high: float | None = None,
) -> Shape:
    """Several polygons, each an outer ring and its holes, as one shape on Earth."""
    checked = checked_parts(parts)
    for p, part in enumerate(checked):
        for r, ring in enumerate(part):
            for lon, lat in ring:
                try:
                    require_lon_lat(lon, lat, widest=360.0)
                except ValueError as error:
                    raise ValueError(f"ring {r} of part {p}: {error}") from None
    vertices = [vertex for part in checked for ring in part for vertex in ring]
    lons, lats = [lon for lon, _ in vertices], [lat for _, lat in vertices]
    for part in checked:
        if max(lon for lon, _ in part[0]) - min(lon for lon, _ in part[0]) > 360.0:
            raise ValueError("a polygon may go round the Earth once, not farther")
    if max(lons) - min(lons) >= 360.0:
        lons = [-180.0, 180.0]
    bounds = lon_lat_box(min(lons), min(lats), max(lons), max(lats))
    flat = [number for vertex in vertices for number in vertex]
    outline = Outline(POLYGON, True, pack(flat), _starts(checked), 0.0, *_heights(low, high))
    return _boxed(*bounds, outline)


def earth_corridor(
    line: Sequence[Position],
    half_width: float,
    low: float | None = None,
    high: float | None = None,
) -> Shape:
    """What is within `half_width` metres of a line along great circles through these places."""
    require_radius(half_width)
    _require_positive("half-width", half_width)
    places = densify(checked_line(line))
    flat = [number for place in places for number in place]
    outline = Outline(CORRIDOR, True, pack(flat), (0,), float(half_width), *_heights(low, high))
    lows = [min(place[axis] for place in places) - half_width for axis in range(3)]
    highs = [max(place[axis] for place in places) + half_width for axis in range(3)]
    return _boxed(lows, highs, outline)


def earth_sector(
    lon: float, lat: float, direction: float, angle: float, radius: float,
    low: float | None = None, high: float | None = None,
) -> Shape:  # fmt: skip
    """A view on Earth: the direction is a bearing, degrees clockwise from north; metres.

    Directions are those of the tangent plane at the apex. One that reaches a pole, or farther than
    1,000 km, is refused: what it is in degrees, and so who touches it, would be hard to say.
    """
    require_lon_lat(lon, lat)
    if not 0 < radius <= LARGEST_EARTH_SECTOR:
        raise ValueError(
            f"the radius of a sector on Earth must be above 0 and at most"
            f" {LARGEST_EARTH_SECTOR:.0f} metres, not {radius}"
        )
    _require_angles(direction, angle)
    size, apex = chord_of(radius, lat), ecef(lon, lat)
    if min(dist(apex, ecef(0.0, pole)) for pole in (-90.0, 90.0)) <= size:
        raise ValueError("a sector on Earth must not reach a pole: a disc or a polygon may")
    east, north = tangent_plane(lon, lat)
    right = unit_vector(90.0 - direction - angle / 2)
    left = unit_vector(90.0 - direction + angle / 2)
    flat = [*apex, *east, *north, float(direction), float(angle), *right, *left]
    outline = Outline(SECTOR, True, pack(flat), (0,), size, *_heights(low, high))
    return _boxed([p - size for p in apex], [p + size for p in apex], outline)


def _boxed(lows: Sequence[float], highs: Sequence[float], outline: Outline) -> Shape:
    """The box between two corners in ECEF, a micrometre wider for rounding."""
    x, y, z = (a / 2 + b / 2 for a, b in zip(lows, highs, strict=True))
    rx, ry, rz = (b / 2 - a / 2 + 1e-6 for a, b in zip(lows, highs, strict=True))
    return Shape(ShapeKind.BOX, x, y, z, rx, ry, rz, outline)


def _heights(low: float | None, high: float | None) -> tuple[float, float]:
    return -inf if low is None else float(low), inf if high is None else float(high)
