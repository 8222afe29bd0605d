"""WGS84 in plain numbers: degrees to metres and back, distances, boxes and ways on the surface.

Inside Nearcast a place on Earth is a point on the surface of the ellipsoid in ECEF metres: x to
longitude 0, y to 90° east, z to the north pole. Poles and the antimeridian need no case there, and
a geodesic disc is a ball with a chord as its radius. Heights stand apart (`space.outlines`).

`ecef`, `lon_lat`, `tangent_plane` and `surface_box` take and return plain numbers, so numba
compiles them as they are. For the same bits in both they use `sqrt` rather than `hypot`,
which Python and numba compute in different ways. They check nothing: `require_lon_lat` does, once,
where a place enters the system.

A great circle is here the cut of the ellipsoid with a plane through two places and the centre of
the Earth, the great ellipse: geocentric directions and geodetic normals give the same one. Over
1,000 km it is at most 80 m beside the geodesic and 2 cm longer, over 10,000 km 10 km and 20 m
(measured by `test_earth`).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import asin, atan2, ceil, cos, floor, pi, sin, sqrt
from typing import TypeAlias

Ecef: TypeAlias = tuple[float, float, float]  # metres

EQUATORIAL_RADIUS = 6_378_137.0  # metres
FLATTENING = 1 / 298.257223563
POLAR_RADIUS = EQUATORIAL_RADIUS * (1 - FLATTENING)
SQUASH = (1 - FLATTENING) ** 2  # 1 - e²
ECCENTRICITY2 = FLATTENING * (2 - FLATTENING)
MEAN_RADIUS = (2 * EQUATORIAL_RADIUS + POLAR_RADIUS) / 3
QUARTER_MERIDIAN = 10_001_965  # metres from a pole to the equator: a disc of half the globe
DEGREE = pi / 180  # in radians
DEGREES = 180 / pi  # in a radian

LEG = 1_000.0  # metres: a straight leg is nowhere more than LEG²/8R, 2 cm, below the surface
MOST_VERTICES = 100_000  # of a line on Earth, once divided into such legs
BOX_MARGIN = 1e-6  # metres: far above what rounding does to 6,400 km, and far below any fix
SAME = 1e-15  # radians, 6 nm: below the precision of a place
SURFACE_ROUNDING = 2e-15  # of the radius, 13 nm: what the digits of a place leave open
OPPOSITE = 1e-9  # radians from the antipode: any direction is as good as another


def require_lon_lat(lon: float, lat: float, widest: float = 180.0) -> None:
    """Refuse what is no place on Earth. What crosses the antimeridian may be `widest` 360."""
    if not -widest <= lon <= widest:
        raise ValueError(f"a longitude must be within ±{widest:g} degrees, not {lon}")
    if not -90 <= lat <= 90:
        raise ValueError(f"a latitude must be within ±90 degrees, not {lat}")


def require_radius(metres: float) -> None:
    if not 0 <= metres <= QUARTER_MERIDIAN:
        raise ValueError(
            f"a radius on Earth must be from 0 to {QUARTER_MERIDIAN} metres (half the globe),"
            f" not {metres}"
        )


def ecef(lon: float, lat: float) -> Ecef:
    """The place on the surface, in metres."""
    sine, cosine = sin(lat * DEGREE), cos(lat * DEGREE)
    normal = EQUATORIAL_RADIUS / sqrt(1.0 - ECCENTRICITY2 * sine * sine)
    across = normal * cosine
    return (
        across * cos(lon * DEGREE),
        across * sin(lon * DEGREE),
        normal * SQUASH * sine,
    )


def lon_lat(x: float, y: float, z: float) -> tuple[float, float]:
    """Degrees of a place on the surface, exactly; of one h metres below, within h/300 metres."""
    return atan2(y, x) * DEGREES, atan2(z, SQUASH * sqrt(x * x + y * y)) * DEGREES


def tangent_plane(lon: float, lat: float) -> tuple[Ecef, Ecef]:
    """The unit vectors to the east and to the north at a place, along the surface."""
    sin_lon, cos_lon = sin(lon * DEGREE), cos(lon * DEGREE)
    sin_lat, cos_lat = sin(lat * DEGREE), cos(lat * DEGREE)
    return (-sin_lon, cos_lon, 0.0), (-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat)


def bearing(start: Ecef, end: Ecef) -> float:
    """The direction of the way from place to place, as it begins: degrees clockwise from north.

    It is the direction of the normal section, within 0.001° of the geodesic's up to 1,000 km.
    From a place to itself it is 0.
    """
    east, north = tangent_plane(*lon_lat(*start))
    way = _minus(end, start)
    degrees = atan2(_dot(way, east), _dot(way, north)) * DEGREES
    # A negative number too small to change 360 is north, which is 0.
    return degrees % 360.0 % 360.0


def chord_of(metres: float, lat: float) -> float:
    """The straight distance between places that are so far apart on the surface.

    By the mean (Gaussian) radius of curvature at the latitude of one of them, because the chord
    also depends on the direction. Against the geodesic it is off by less than 0.0001 % up to
    100 km, 0.001 % at 1,000 km and 0.2 % at 10,000 km (measured by `test_earth`).
    """
    require_radius(metres)
    sine = sin(lat * DEGREE)
    radius = POLAR_RADIUS / (1.0 - ECCENTRICITY2 * sine * sine)
    return 2.0 * radius * sin(metres / (2.0 * radius))


def arc_of(chord: float) -> float:
    """The distance on the surface between places with that chord; for chords up to 100 km."""
    return 2.0 * MEAN_RADIUS * asin(chord / (2.0 * MEAN_RADIUS))


def unwrap(west: float, east: float) -> tuple[float, float]:
    """The two meridians as longitudes within ±360, the western one not above the eastern one.

    `west` > `east` says that the area between them lies across the antimeridian.
    """
    require_lon_lat(west, 0.0, widest=360.0)
    require_lon_lat(east, 0.0, widest=360.0)
    first, last = west, east
    if west > east and east <= 0.0:
        last = east + 360.0
    elif west > east:
        first = west - 360.0
    if not 0.0 <= last - first <= 360.0:
        raise ValueError(f"longitudes from {west} to {east} are no part of one way round the Earth")
    return first, last


def lon_lat_box(west: float, south: float, east: float, north: float) -> tuple[Ecef, Ecef]:
    """The ECEF box around the surface between these meridians and parallels: low, high.

    Across the antimeridian if `west` > `east`, or if a longitude is beyond ±180. It is the
    smallest one, and a millionth of a metre more on each side for rounding.
    """
    west, east = unwrap(west, east)
    require_lon_lat(0.0, south)
    require_lon_lat(0.0, north)
    if south > north:
        raise ValueError(f"the southern latitude {south} is above the northern one, {north}")
    return surface_box(west, south, east, north)


def surface_box(west: float, south: float, east: float, north: float) -> tuple[Ecef, Ecef]:
    """`lon_lat_box` of bounds that are checked: `west` <= `east`. numba compiles this, too."""
    # The distance from the axis falls from the equator to the poles.
    widest = ecef(0.0, min(max(south, 0.0), north))[0]
    narrowest = ecef(0.0, south if -south > north else north)[0]
    x = _extremes(west, east, narrowest, widest)
    y = _extremes(west - 90.0, east - 90.0, narrowest, widest)
    z = ecef(0.0, south)[2], ecef(0.0, north)[2]
    return (
        (x[0] - BOX_MARGIN, y[0] - BOX_MARGIN, z[0] - BOX_MARGIN),
        (x[1] + BOX_MARGIN, y[1] + BOX_MARGIN, z[1] + BOX_MARGIN),
    )


def _extremes(west: float, east: float, narrowest: float, widest: float) -> tuple[float, float]:
    """Of distance from the axis times the cosine of longitude, over both ranges."""
    first, last = cos(west * DEGREE), cos(east * DEGREE)
    least, most = min(first, last), max(first, last)
    if floor(east / 360.0) * 360.0 >= west:  # the meridian where a cosine is 1
        most = 1.0
    if floor((east - 180.0) / 360.0) * 360.0 + 180.0 >= west:
        least = -1.0
    return (
        least * (widest if least < 0 else narrowest),
        most * (widest if most > 0 else narrowest),
    )


def central_angle(start: Ecef, end: Ecef) -> float:
    """Between the directions to two places from the centre of the Earth, in radians.

    Times the equatorial radius, it is at least the length of the great circle between them.
    """
    across = _cross(start, end)
    return atan2(sqrt(_dot(across, across)), _dot(start, end))


def great_circle(start: Ecef, end: Ecef, legs: int) -> list[Ecef]:
    """The places where so many legs along the great circle end, the last one at `end`.

    Their central angles are equal, so that their lengths differ by up to 0.7 %.
    """
    angle = central_angle(start, end)
    if angle > pi - OPPOSITE:
        raise ValueError(
            f"{_degrees(end)} is opposite to {_degrees(start)} on Earth, and every way there is"
            " as short as any other: name a place between them"
        )
    if angle < SAME:
        return [end] * legs
    u, v = _unit(start), _unit(end)
    places = []
    for leg in range(1, legs):
        s, t = sin(angle * (legs - leg) / legs), sin(angle * leg / legs)
        places.append(_on_surface(s * u[0] + t * v[0], s * u[1] + t * v[1], s * u[2] + t * v[2]))
    return [*places, end]


def legs_between(angle: float, metres: float = LEG) -> int:
    """Into how many legs of at most so many metres a great circle of that angle is divided."""
    return max(1, ceil(angle * EQUATORIAL_RADIUS / metres))


def densify(line: Sequence[tuple[float, float]]) -> list[Ecef]:
    """The line through these longitudes and latitudes along great circles, for corridors.

    In ECEF, with vertices at most 1 km apart: its straight segments are nowhere more than 2 cm
    below the surface.
    """
    for lon, lat in line:
        require_lon_lat(lon, lat, widest=360.0)
    given = [ecef(lon, lat) for lon, lat in line]
    ways = list(pairwise(given))
    counts = [legs_between(central_angle(start, end)) for start, end in ways]
    if sum(counts) >= MOST_VERTICES:
        raise ValueError(
            f"a line on Earth may have {MOST_VERTICES} vertices, one for each km; this one"
            f" would need {sum(counts) + 1}"
        )
    places = given[:1]
    for (start, end), legs in zip(ways, counts, strict=True):
        places += great_circle(start, end, legs)
    return places


def height_ratio(x: float, y: float, z: float) -> float:
    """How far a place is from the centre of the Earth, as a part of the surface below it: 1."""
    return sqrt((x * x + y * y) / EQUATORIAL_RADIUS**2 + z * z / POLAR_RADIUS**2)


def is_on_surface(x: float, y: float, z: float) -> bool:
    """Is it a place of `ecef`? A place of a plane is that only within some nanometres."""
    return abs(height_ratio(x, y, z) - 1.0) <= SURFACE_ROUNDING


def _on_surface(x: float, y: float, z: float) -> Ecef:
    ratio = height_ratio(x, y, z)
    return x / ratio, y / ratio, z / ratio


def _degrees(place: Ecef) -> str:
    return "longitude {:.6f}, latitude {:.6f}".format(*lon_lat(*place))


def _unit(v: Ecef) -> Ecef:
    length = sqrt(_dot(v, v))
    return v[0] / length, v[1] / length, v[2] / length


def _minus(a: Ecef, b: Ecef) -> Ecef:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def _dot(a: Ecef, b: Ecef) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Ecef, b: Ecef) -> Ecef:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
