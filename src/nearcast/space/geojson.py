"""Shapes from and to GeoJSON (RFC 7946), in the plane too, where positions are x and y.

A Feature's properties say what GeoJSON has no geometry for:

| geometry | properties | shape |
|---|---|---|
| Point | | a point; a third number is z, or the altitude on Earth |
| Point | `radius` | a disc; with a third number a ball |
| Point | `radius`, `direction`, `angle` | a sector |
| LineString | `half_width`, or `width` | a corridor |
| Polygon, MultiPolygon | | a polygon |

Areas on Earth may have `low` and `high` (metres), those with an outline in the plane `z` and `rz`.
All other properties are left to whoever has made them.
"""

from collections.abc import Mapping
from math import asin, inf, sin
from typing import Annotated, Any, TypeVar

import msgspec

from nearcast.space.earth import DEGREE, ECCENTRICITY2, POLAR_RADIUS, lon_lat
from nearcast.space.earth_shapes import earth_ball, earth_disc, earth_point
from nearcast.space.outline_drawing import drawing_rings
from nearcast.space.outline_shapes import (
    corridor,
    earth_corridor,
    earth_multipolygon,
    earth_sector,
    multipolygon,
    sector,
)
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, SECTOR, WHOLE, numbers
from nearcast.space.shapes import BOX, DISC, POINT, Shape, ball, disc, point
from nearcast.space.simple_rings import signed_area

Position = Annotated[list[float], msgspec.Meta(min_length=2)]
Read = TypeVar("Read")


def shape_from_geojson(value: Mapping[str, Any], earth: bool) -> Shape:
    """A Feature or a geometry as a shape; what is none is refused with a ValueError."""
    properties: Mapping[str, Any] = {}
    geometry: Any = value
    if isinstance(value, Mapping) and value.get("type") == "Feature":
        geometry, properties = value.get("geometry"), value.get("properties") or {}
    if not isinstance(geometry, Mapping) or not isinstance(properties, Mapping):
        raise ValueError("GeoJSON is an object with a type, and a Feature one with a geometry")
    read = {
        "Point": _read_point,
        "LineString": _read_line,
        "Polygon": _read_polygon,
        "MultiPolygon": _read_polygon,
    }.get(str(geometry.get("type")))
    if read is None:
        raise ValueError(
            "a shape is a Point, LineString, Polygon or MultiPolygon, or a Feature of one of"
            f" them, not {geometry.get('type')!r}"
        )
    return read(geometry, properties, earth)


def _read_point(geometry: Mapping[str, Any], properties: Mapping[str, Any], earth: bool) -> Shape:
    x, y, *more = _coordinates(geometry, Position)
    radius = _number(properties, "radius")
    if radius is None:
        return earth_point(x, y, *more[:1]) if earth else point(x, y, *more[:1])
    direction, angle = _number(properties, "direction"), _number(properties, "angle")
    if direction is not None and angle is not None:
        make = earth_sector if earth else sector
        return make(x, y, direction, angle, radius, **_heights(properties, earth))
    if earth and more:
        return earth_ball(x, y, more[0], radius)
    if earth:
        return earth_disc(x, y, radius, **_heights(properties, earth))
    return ball(x, y, more[0], radius) if more else disc(x, y, radius)


def _read_line(geometry: Mapping[str, Any], properties: Mapping[str, Any], earth: bool) -> Shape:
    line = _coordinates(geometry, list[Position])
    half_width, width = _number(properties, "half_width"), _number(properties, "width")
    if half_width is None and width is None:
        raise ValueError("a LineString needs the property half_width, or width, to be an area")
    make = earth_corridor if earth else corridor
    reach = half_width if half_width is not None else (width or 0.0) / 2
    return make(line, reach, **_heights(properties, earth))


def _read_polygon(geometry: Mapping[str, Any], properties: Mapping[str, Any], earth: bool) -> Shape:
    if geometry["type"] == "Polygon":
        parts = [_coordinates(geometry, list[list[Position]])]
    else:
        parts = _coordinates(geometry, list[list[list[Position]]])
    for part, rings in enumerate(parts):
        for number, ring in enumerate(rings):
            if len(ring) < 4 or ring[0] != ring[-1]:
                where = f" of part {part}" if len(parts) > 1 else ""
                raise ValueError(
                    f"ring {number}{where}: a ring in GeoJSON has 4 or more positions, the last as"
                    " the first"
                )
    make = earth_multipolygon if earth else multipolygon
    return make(parts, **_heights(properties, earth))


def _coordinates(geometry: Mapping[str, Any], wanted: type[Read]) -> Read:
    try:
        return msgspec.convert(geometry.get("coordinates"), wanted)
    except msgspec.ValidationError as error:
        raise ValueError(f"coordinates of a {geometry['type']}: {error}") from None


def _number(properties: Mapping[str, Any], name: str) -> float | None:
    try:
        return msgspec.convert(properties.get(name), float | None)
    except msgspec.ValidationError as error:
        raise ValueError(f"property {name}: {error}") from None


def _heights(properties: Mapping[str, Any], earth: bool) -> dict[str, Any]:
    names = ("low", "high") if earth else ("z", "rz")
    heights = {name: _number(properties, name) for name in names}
    return {name: height for name, height in heights.items() if height is not None}


def geojson_from_shape(shape: Shape, earth: bool = False) -> dict[str, Any]:
    """A Feature that gives back this shape, or the same but for rounding in its last digits.

    `earth` says where a shape without an outline is. An unbounded box cannot be written.
    """
    o = shape.outline
    earth = earth or (o is not None and o.earth)
    properties: dict[str, Any] = {}
    if o is not None and o.form not in (BALL, WHOLE):
        geometry = _outline_geometry(shape, properties)
    elif shape.kind == BOX and earth:
        raise ValueError("a box without an outline has no place on Earth")
    elif shape.kind == BOX:
        geometry = _polygon_geometry(drawing_rings(shape))
    else:
        geometry = _point_geometry(shape, earth)
        if shape.kind == DISC:
            is_ball = o is not None and o.form == BALL
            on_surface = earth and not is_ball
            properties["radius"] = surface_metres(shape, shape.rx) if on_surface else shape.rx
    if o is not None and o.form != BALL and shape.kind != POINT:
        heights = {"low": o.low, "high": o.high}
        properties |= {name: height for name, height in heights.items() if abs(height) < inf}
    if not earth and shape.kind == BOX:
        properties |= {n: v for n, v in (("z", shape.z), ("rz", shape.rz)) if v}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def _outline_geometry(shape: Shape, properties: dict[str, Any]) -> dict[str, Any]:
    o = shape.outline
    assert o is not None
    flat = numbers(o).tolist()
    if o.form == POLYGON:
        return _polygon_geometry(drawing_rings(shape))
    if o.form == CORRIDOR:
        properties["half_width"] = o.size
        if o.earth:
            places = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            line = [list(lon_lat(*place)) for place in places]
        else:
            pairs = zip(flat[::2], flat[1::2], strict=True)
            line = [[x + shape.x, y + shape.y] for x, y in pairs]
        return {"type": "LineString", "coordinates": line}
    assert o.form == SECTOR
    properties["direction"], properties["angle"] = flat[9:11] if o.earth else flat[2:4]
    apex = point(*flat[:3]) if o.earth else point(shape.x + flat[0], shape.y + flat[1])
    properties["radius"] = surface_metres(apex, o.size) if o.earth else o.size
    return _point_geometry(apex, o.earth)


def _point_geometry(shape: Shape, earth: bool) -> dict[str, Any]:
    o = shape.outline
    if earth:
        place = [*lon_lat(shape.x, shape.y, shape.z)]
        if o is not None and (shape.kind == POINT or o.form == BALL):
            place.append(o.low)
    else:
        place = [shape.x, shape.y, *([shape.z] if shape.z else [])]
    return {"type": "Point", "coordinates": place}


def _polygon_geometry(rings: list[list[tuple[float, float]]]) -> dict[str, Any]:
    """Outer rings run counter-clockwise, each followed by its holes."""
    parts: list[list[list[list[float]]]] = []
    for ring in rings:
        if not parts or signed_area(ring) >= 0:
            parts.append([])
        parts[-1].append([[*vertex] for vertex in (*ring, ring[0])])
    if len(parts) == 1:
        return {"type": "Polygon", "coordinates": parts[0]}
    return {"type": "MultiPolygon", "coordinates": parts}


def surface_metres(shape: Shape, chord: float) -> float:
    """Along the surface: the inverse of `earth.chord_of`."""
    sine = sin(lon_lat(shape.x, shape.y, shape.z)[1] * DEGREE)
    radius = POLAR_RADIUS / (1.0 - ECCENTRICITY2 * sine * sine)
    return 2.0 * radius * asin(min(1.0, chord / (2.0 * radius)))
