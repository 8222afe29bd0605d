"""Areas and places on Earth, as clients write them: degrees and metres. Inside it is ECEF.

What a client has made of degrees becomes degrees again here. That is off by a nanometre on the
ground, and a number of at most 12 decimals is the same again.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, starmap
from math import dist, isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.space.earth import (
    EQUATORIAL_RADIUS,
    Ecef,
    central_angle,
    ecef,
    height_ratio,
    lon_lat,
)
from nearcast.space.earth_shapes import (
    earth_ball,
    earth_bounds,
    earth_disc,
    earth_point,
    great_circle_path,
)
from nearcast.space.geojson import geojson_from_shape, shape_from_geojson, surface_metres
from nearcast.space.motion import SECOND, Moving, Path
from nearcast.space.outline_shapes import earth_sector
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, SECTOR, WHOLE, Outline, numbers
from nearcast.space.shapes import Shape, ShapeKind, point

if TYPE_CHECKING:
    from nearcast.client_protocol.geometry_json import Area

DECIMALS = 12  # of a degree: a tenth of a micrometre
SHORT_METRES = 6  # decimals of metres
SAME_PLACE = 2e-9  # metres: the last digits of ECEF
SAME_WAY = 1e-9  # radians beside a great circle: 6 mm on the ground
OUTLINES = 65_536  # altitudes of which the outline is kept

# What an area or a publication has on Earth instead of a field of the plane.
_INSTEAD = {
    "x": "lon and lat", "y": "lon and lat", "z": "alt", "rx": "r", "ry": "r", "rz": "r",
    "vx": "to and speed", "vy": "to and speed", "vz": "to and speed", "gx": "a radius that stays",
    "gy": "a radius that stays", "gz": "a radius that stays", "lasts": "to and speed",
}  # fmt: skip


def refuse_plane_fields(what: str, given: Any) -> None:
    """Refuse fields that only mean something in a plane: this world is the Earth."""
    for name, instead in _INSTEAD.items():
        if getattr(given, name, None):
            raise ValueError(f"this world is the Earth: {what} has {instead} there, not {name}")
    if getattr(given, "x", None) is not None or getattr(given, "y", None) is not None:  # 0.0
        raise ValueError(f"this world is the Earth: {what} has lon and lat there, not x and y")


def earth_place_shape(
    lon: float | None, lat: float | None, alt: float | None, metres: float | None
) -> Shape:
    """Where something was published on Earth: a point, or a disc of so many metres."""
    if lon is None or lat is None:
        raise ValueError("a publication on Earth needs lon and lat")
    if metres is None:
        return earth_point(lon, lat, alt)
    return earth_disc(lon, lat, metres, alt, alt)


@lru_cache(OUTLINES)
def altitude_outline(alt: float | None) -> Outline | None:
    """The outline of what was published at an altitude, as `earth_place_shape` gives it."""
    return None if alt is None else Outline(WHOLE, earth=True, low=float(alt), high=float(alt))


def earth_region(area: "Area") -> Moving | Path:
    """The region of an area that is neither everywhere nor a formula."""
    refuse_plane_fields("an area", area)
    shape = _earth_shape(area)
    if area.to is None:
        if area.speed is not None:
            raise ValueError("a speed needs a path (to)")
        return Moving(shape)
    if area.speed is None:
        raise ValueError("a path needs a speed")
    return great_circle_path(shape, area.to, area.speed)


def _earth_shape(area: "Area") -> Shape:
    parts = {"bounds": area.bounds, "geometry": area.geometry, "lon and lat": area.lon}
    given = [name for name, value in parts.items() if value is not None]
    if len(given) != 1:
        raise ValueError("an area on Earth has either lon and lat, bounds or a geometry")
    if area.half_width is not None and area.geometry is None:
        raise ValueError("a half_width needs a geometry, which is a LineString")
    low, high = area.low, area.high
    if area.lon is None:
        for name in ("lat", "alt", "r", "sector"):
            if getattr(area, name) is not None:
                raise ValueError(f"an area with {given[0]} has no {name} beside it")
        if area.bounds is not None:
            return earth_bounds(*area.bounds, low, high)
        more = {"half_width": area.half_width, "low": low, "high": high}
        return shape_from_geojson(as_feature(area.geometry or {}, more), earth=True)
    return _centred_shape(area)


def as_feature(geometry: Mapping[str, Any], beside: Mapping[str, float | None]) -> dict[str, Any]:
    """A geometry or Feature as a Feature, with these properties, which an area has beside it."""
    inner: Any = geometry
    properties: Any = {}
    if geometry.get("type") == "Feature":
        inner, properties = geometry.get("geometry"), geometry.get("properties") or {}
    if not isinstance(inner, Mapping) or not isinstance(properties, Mapping):
        raise ValueError("GeoJSON is an object with a type, and a Feature one with a geometry")
    if beside.get("half_width") is not None and inner.get("type") != "LineString":
        raise ValueError("only a LineString has a half_width")
    given = {name: value for name, value in beside.items() if value is not None}
    return {"type": "Feature", "geometry": inner, "properties": {**properties, **given}}


def count_positions(geometry: Mapping[str, Any]) -> int:
    """How many positions a geometry or Feature has, whatever else is wrong with it."""
    waiting = [_inner_geometry(geometry).get("coordinates")]
    count = 0
    for one in waiting:  # it grows during the loop
        if isinstance(one, list | tuple) and one:
            if isinstance(one[0], list | tuple):
                waiting += one
            else:
                count += 1
    return count


def line_length(geometry: Mapping[str, Any]) -> float:
    """About how many metres a LineString has along great circles; 0 for what is no such line."""
    inner = _inner_geometry(geometry)
    try:
        line = msgspec.convert(inner.get("coordinates"), list[list[float]])
    except msgspec.ValidationError:
        return 0.0
    if not all(len(place) > 1 and abs(place[0]) <= 360 and abs(place[1]) <= 90 for place in line):
        return 0.0
    places = [ecef(place[0], place[1]) for place in line]
    return EQUATORIAL_RADIUS * sum(starmap(central_angle, pairwise(places)))


def _inner_geometry(given: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = given.get("geometry") if given.get("type") == "Feature" else given
    return inner if isinstance(inner, Mapping) else {}


def _centred_shape(area: "Area") -> Shape:
    """A point, a disc, a ball or a sector."""
    assert area.lon is not None
    if area.lat is None:
        raise ValueError("an area on Earth needs lon and lat")
    low, high = area.low, area.high
    if area.alt is not None and (low, high, area.sector) != (None, None, None):
        raise ValueError("an area with alt is a ball: it has no low, high or sector beside it")
    if area.sector is not None:
        if area.r is None:
            raise ValueError("a sector has a radius r, in metres")
        return earth_sector(area.lon, area.lat, *area.sector, area.r, low, high)
    if area.r is None:
        if low is not None or high is not None:
            raise ValueError("a place on Earth has alt, not low or high; a disc has a radius r")
        return earth_point(area.lon, area.lat, area.alt)
    if area.alt is not None:
        return earth_ball(area.lon, area.lat, area.alt, area.r)
    return earth_disc(area.lon, area.lat, area.r, low, high)


# From shapes to degrees.


def degrees_of(place: Sequence[float]) -> tuple[float, float]:
    """Longitude and latitude of an ECEF place on the surface, of few decimals if these are it."""
    x, y, z = place
    if not 0.99 < height_ratio(x, y, z) < 1.01:
        raise ValueError(
            "this world is the Earth: say a shape of lon and lat, like earth_disc or earth_point"
        )
    lon, lat = lon_lat(x, y, z)
    lon, lat = min(max(lon, -180.0), 180.0), min(max(lat, -90.0), 90.0)
    short = round(lon, DECIMALS), round(lat, DECIMALS)
    return short if dist(ecef(*short), place) <= SAME_PLACE else (lon, lat)


def _metres_of(place: Sequence[float], chord: float) -> float:
    """Along the surface from a place, of few decimals if these are it."""
    metres = surface_metres(point(*place), chord)
    short = round(metres, SHORT_METRES)
    return short if abs(short - metres) <= SAME_PLACE else metres


def earth_publication_fields(shape: Shape) -> dict[str, Any]:
    """The fields lon, lat, alt and r of what is published at a shape on Earth."""
    outline = shape.outline
    flat = outline is None or (outline.form == WHOLE and outline.low == outline.high)
    if shape.kind == ShapeKind.BOX or not flat:
        raise ValueError("on Earth a publication is a point or a disc, with an altitude or without")
    place = _centre(shape)
    lon, lat = degrees_of(place)
    metres = _metres_of(place, shape.rx) if shape.kind == ShapeKind.DISC else None
    return {"lon": lon, "lat": lat, "alt": None if outline is None else outline.low, "r": metres}


def area_fields(region: Moving | Path) -> dict[str, Any]:
    """The fields of an area on Earth. ValueError for a motion that an area cannot express."""
    if isinstance(region, Moving):
        region = Path((region,))
    legs = [leg for leg in region.legs if leg.moves]
    if not legs:
        return _shape_fields(region.legs[-1].shape)
    shape = legs[0].shape
    stops = [_centre(leg.at(leg.until)) for leg in legs]
    waypoints = _great_circle_ends([_centre(shape), *stops])
    seconds = sum(leg.until - leg.since for leg in legs) / SECOND
    fields = _shape_fields(shape)
    to = [list(degrees_of(place)) for place in waypoints]
    lengths = great_circle_path(shape, to, 1.0).legs
    speed = sum(leg.duration or 0 for leg in lengths) / SECOND / seconds
    again = great_circle_path(shape, to, speed)
    if len(again.legs) != len(legs) or any(
        leg.growth != (0, 0, 0) or dist(stop, _centre(same.at(leg.until - legs[0].since))) > 1.0
        for leg, stop, same in zip(legs, stops, again.legs, strict=True)
    ):
        raise ValueError("a way on Earth follows great circles at one speed: great_circle_path")
    return {**fields, "to": to, "speed": speed}


def _shape_fields(shape: Shape) -> dict[str, Any]:
    outline = shape.outline or Outline(WHOLE, earth=True)
    if not outline.earth:
        raise ValueError("this world is the Earth: say a shape of lon and lat, like earth_polygon")
    low = outline.low if isfinite(outline.low) else None
    high = outline.high if isfinite(outline.high) else None
    heights = {"low": low, "high": high}
    if outline.form == POLYGON:
        return {"geometry": geojson_from_shape(shape)["geometry"], **heights}
    flat = numbers(outline).tolist()
    if outline.form == CORRIDOR:
        places = list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        line = [list(degrees_of(place)) for place in [places[0], *_great_circle_ends(places)]]
        geometry = {"type": "LineString", "coordinates": line}
        return {"geometry": geometry, "half_width": outline.size, **heights}
    if outline.form == SECTOR:
        lon, lat = degrees_of(flat[:3])
        view = {"lon": lon, "lat": lat, "r": _metres_of(flat[:3], outline.size)}
        return {**view, "sector": (flat[9], flat[10]), **heights}
    lon, lat = degrees_of(_centre(shape))
    if shape.kind == ShapeKind.BOX:
        raise ValueError("this world is the Earth: say bounds or a polygon, not a box")
    if outline.form == BALL:
        return {"lon": lon, "lat": lat, "alt": outline.low, "r": outline.size}
    if shape.kind == ShapeKind.POINT:
        return {"lon": lon, "lat": lat, "alt": low}
    return {"lon": lon, "lat": lat, "r": _metres_of(_centre(shape), shape.rx), **heights}


def _centre(shape: Shape) -> Ecef:
    return shape.x, shape.y, shape.z


def _great_circle_ends(places: Sequence[Ecef]) -> list[Ecef]:
    """Where a way through these places leaves one great circle for another, and its end."""
    ends: list[Ecef] = []
    start, bend = places[0], 1
    for k in range(2, len(places)):
        if not _is_onward(start, places[bend], places[k - 1], places[k]):
            ends.append(places[k - 1])
            start, bend = places[k - 1], k
    return [*ends, places[-1]]


def _is_onward(start: Ecef, first: Ecef, last: Ecef, place: Ecef) -> bool:
    """Does the great circle from start to first go on from last to place, less than half round?"""
    normal = _cross(start, first)
    length, reach = dist(normal, (0, 0, 0)), dist(place, (0, 0, 0))
    if length == 0 or abs(_dot(normal, place)) > SAME_WAY * length * reach:
        return False
    return _dot(normal, _cross(last, place)) > 0 and _dot(normal, _cross(start, place)) > 0


def _cross(a: Ecef, b: Ecef) -> Ecef:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _dot(a: Ecef, b: Ecef) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
