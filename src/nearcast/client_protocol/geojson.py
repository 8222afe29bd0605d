"""GeoJSON (RFC 7946) as areas have it: Polygon, MultiPolygon, LineString, or a Feature of one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from nearcast.space.outlines import Outline, rings
from nearcast.space.simple_rings import signed_area

Line = list[list[float]]  # positions: longitude and latitude, or x and y; a third is not looked at
Part = list[Line]  # the outer ring, then holes


class ParsedGeometry(NamedTuple):
    """Either the parts of a polygon, or the line of a corridor."""

    parts: list[Part] | None = None
    line: Line | None = None


def parse_geometry(given: Mapping[str, Any]) -> ParsedGeometry:
    """ValueError says what is wrong with the object; rings and lines are checked elsewhere."""
    kind = given.get("type")
    if kind == "Feature":
        inner = given.get("geometry")
        if not isinstance(inner, Mapping):
            raise ValueError("a Feature has a geometry, which is an object")
        given, kind = inner, inner.get("type")
    coordinates = given.get("coordinates")
    if kind == "Polygon":
        return ParsedGeometry(parts=[_checked(kind, coordinates, Part)])
    if kind == "MultiPolygon":
        return ParsedGeometry(parts=_checked(kind, coordinates, list[Part]))
    if kind == "LineString":
        return ParsedGeometry(line=_checked(kind, coordinates, Line))
    name = kind[:64] if isinstance(kind, str) else kind
    raise ValueError(f"a geometry is a Polygon, a MultiPolygon or a LineString, not {name!r:.80}")


def _checked(kind: str, coordinates: Any, wanted: Any) -> Any:
    try:
        return msgspec.convert(coordinates, wanted)
    except (msgspec.ValidationError, RecursionError) as why:
        raise ValueError(f"coordinates of a {kind}: {str(why).replace('`', '')}") from None


def count_vertices(geometry: ParsedGeometry) -> int:
    """As they are given, closing ones included."""
    if geometry.line is not None:
        return len(geometry.line)
    return sum(len(ring) for part in geometry.parts or () for ring in part)


def polygon_json(outline: Outline, dx: float = 0.0, dy: float = 0.0) -> dict[str, Any]:
    """The rings of an outline as a Polygon or MultiPolygon, moved by so much.

    Outer rings run counter-clockwise, and holes, which follow theirs, clockwise (`simple_rings`).
    """
    parts: list[Part] = []
    for ring in rings(outline):
        positions = [[x + dx, y + dy] for x, y in ring]
        if signed_area(ring) > 0 or not parts:
            parts.append([])
        parts[-1].append([*positions, positions[0]])
    if len(parts) == 1:
        return {"type": "Polygon", "coordinates": parts[0]}
    return {"type": "MultiPolygon", "coordinates": parts}


def line_json(line: Line) -> dict[str, Any]:
    return {"type": "LineString", "coordinates": line}
