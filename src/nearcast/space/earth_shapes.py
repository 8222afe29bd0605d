"""Shapes and motions on Earth, from longitude, latitude and metres to what the rest computes with.

A module of its own, because outlines compute with `space.earth` and shapes have outlines.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import dist, inf
from typing import TypeAlias

from msgspec.structs import replace

from nearcast.space.earth import (
    EQUATORIAL_RADIUS,
    LEG,
    arc_of,
    central_angle,
    chord_of,
    ecef,
    great_circle,
    height_ratio,
    legs_between,
    lon_lat_box,
    require_lon_lat,
    require_radius,
    unwrap,
)
from nearcast.space.motion import FASTEST, LATEST, MOST_LEGS, SECOND, STILL, Moving, Path, Time
from nearcast.space.outlines import BALL, POLYGON, WHOLE, Outline, pack
from nearcast.space.shapes import LARGEST, Shape, ShapeKind, Vector, cuboid

LonLat: TypeAlias = Sequence[float]  # degrees, longitude first

LONGEST_LEG = 50_000.0  # metres; in its middle it is 50 m below the surface


def earth_point(lon: float, lat: float, alt: float | None = None) -> Shape:
    """A place on the surface, perhaps with an altitude in metres above the ellipsoid."""
    require_lon_lat(lon, lat)
    if alt is None:
        return Shape(ShapeKind.POINT, *ecef(lon, lat))
    _require_altitude(alt)
    outline = Outline(WHOLE, earth=True, low=float(alt), high=float(alt))
    return Shape(ShapeKind.POINT, *ecef(lon, lat), outline=outline)


def earth_disc(
    lon: float, lat: float, metres: float, low: float | None = None, high: float | None = None
) -> Shape:
    """What is within so many metres along the surface, and perhaps between two heights."""
    require_lon_lat(lon, lat)
    lowest, highest = _heights(low, high)
    outline = None
    if lowest > -inf or highest < inf:
        outline = Outline(WHOLE, earth=True, low=lowest, high=highest)
    return Shape(ShapeKind.DISC, *ecef(lon, lat), chord_of(metres, lat), outline=outline)


def earth_ball(lon: float, lat: float, alt: float, metres: float) -> Shape:
    """What is within so many metres of a place in the air: chord² + difference of heights²."""
    require_lon_lat(lon, lat)
    require_radius(metres)
    _require_altitude(alt)
    size = float(metres)
    outline = Outline(BALL, earth=True, size=size, low=float(alt), high=float(alt))
    return Shape(ShapeKind.DISC, *ecef(lon, lat), size, outline=outline)


def earth_bounds(
    west: float, south: float, east: float, north: float,
    low: float | None = None, high: float | None = None,
) -> Shape:  # fmt: skip
    """The area between these meridians and parallels, across the antimeridian if `west` > `east`.

    Its outline is a polygon. Where it crosses the antimeridian, its eastern longitudes are beyond
    180, or the western ones beyond -180 if it also crosses longitude 0 eastwards of it.
    """
    corner, opposite = lon_lat_box(west, south, east, north)
    first, last = unwrap(west, east)
    if first == last or south == north:
        raise ValueError(f"bounds from {west}, {south} to {east}, {north} enclose no area")
    ring = pack([first, south, last, south, last, north, first, north])
    lowest, highest = _heights(low, high)
    outline = Outline(POLYGON, True, ring, (0,), low=lowest, high=highest)
    centre = [(a + b) / 2 for a, b in zip(corner, opposite, strict=True)]
    extents = [(b - a) / 2 for a, b in zip(corner, opposite, strict=True)]
    return replace(cuboid(*centre, *extents), outline=outline)


def great_circle_line(shape: Shape, to: LonLat, speed: float) -> Moving | Path:
    """From where the shape stands along the great circle to `to`, at metres per second, and stop.

    See `great_circle_path`; a way of one leg is a single `Moving`.
    """
    way = great_circle_path(shape, [to], speed)
    return way.legs[0] if len(way.legs) == 1 else way


def great_circle_path(shape: Shape, waypoints: Sequence[LonLat], speed: float) -> Path:
    """Along great circles through the waypoints, at metres per second along the surface.

    Motion is straight on each leg, so in its middle a leg of L metres is L²/8R below the surface:
    2 cm for those of 1 km, which all are up to about 1,000 km. A longer way has `MOST_LEGS` longer
    ones: 0.5 m deep for 5,000 km, 2 m for 10,000 km. `space.earth` says what a great circle is.
    """
    if not 0 < speed <= FASTEST:
        raise ValueError(f"a speed must be above 0 and at most {FASTEST}, not {speed}")
    _require_movable(shape)
    legs: list[Moving] = []
    since, travelled = 0, 0.0
    for place in _places(shape, waypoints):
        travelled += arc_of(dist((shape.x, shape.y, shape.z), place))
        if not travelled / speed * SECOND < LATEST:
            raise ValueError(f"at {speed} metres per second it would take too long to arrive")
        # By all that has been travelled: what rounding does to the legs must not add up.
        arrival = round(travelled / speed * SECOND)
        arrived = replace(shape, x=place[0], y=place[1], z=place[2])
        legs.append(_leg(shape, arrived, since, arrival))
        shape, since = arrived, arrival
    return Path(tuple(legs))


def _places(shape: Shape, waypoints: Sequence[LonLat]) -> list[Vector]:
    """Where the legs end."""
    if not 1 <= len(waypoints) <= MOST_LEGS:
        raise ValueError(f"a path has from 1 to {MOST_LEGS} waypoints, not {len(waypoints)}")
    stops: list[Vector] = [(shape.x, shape.y, shape.z)]
    for place in waypoints:
        if len(place) != 2:
            raise ValueError(f"a place on Earth is a longitude and a latitude, not {place!r}")
        require_lon_lat(*place)
        stops.append(ecef(*place))
    ways = list(pairwise(stops))
    angles = [central_angle(start, end) for start, end in ways]
    length = LEG
    if sum(map(legs_between, angles)) > MOST_LEGS:
        spare = MOST_LEGS - len(ways)  # each way may end with a leg that is shorter than others
        length = sum(angles) * EQUATORIAL_RADIUS / spare if spare else inf
        if length > LONGEST_LEG:
            raise ValueError(
                f"a path on Earth has at most {MOST_LEGS} legs of at most"
                f" {LONGEST_LEG / 1000:g} km; this one is longer: divide it"
            )
    places: list[Vector] = []
    for (start, end), angle in zip(ways, angles, strict=True):
        places += great_circle(start, end, legs_between(angle, length))
    return places


def _leg(shape: Shape, arrived: Shape, since: Time, arrival: Time) -> Moving:
    if arrival == since:
        return Moving(arrived, duration=0, since=since)
    per_second = SECOND / (arrival - since)
    velocity = (
        (arrived.x - shape.x) * per_second,
        (arrived.y - shape.y) * per_second,
        (arrived.z - shape.z) * per_second,
    )
    return Moving(shape, velocity, STILL, arrival - since, since)


def _require_movable(shape: Shape) -> None:
    if shape.outline is not None and shape.outline.form not in (WHOLE, BALL):
        raise ValueError("on Earth polygons, corridors and sectors stay where they are")
    if not 0.99 < height_ratio(shape.x, shape.y, shape.z) < 1.01:
        raise ValueError(
            f"a centre at {shape.x, shape.y, shape.z} is not on the surface of the Earth"
        )


def _require_altitude(alt: float) -> None:
    if not -LARGEST <= alt <= LARGEST:
        raise ValueError(f"an altitude must be a number of metres, not {alt}")


def _heights(low: float | None, high: float | None) -> tuple[float, float]:
    lowest = -inf if low is None else float(low)
    highest = inf if high is None else float(high)
    if not (lowest <= highest and lowest < inf and highest > -inf):
        raise ValueError(f"heights must be numbers of metres, the lower first, not {low}, {high}")
    return lowest, highest
