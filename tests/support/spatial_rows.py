"""Rows of areas and points, and which points are in which areas by brute force in plain Python."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

from nearcast.space.shapes import Shape, ShapeKind

Row = dict[str, Any]
KINDS = {"point": ShapeKind.POINT, "disc": ShapeKind.DISC, "box": ShapeKind.BOX}
NEVER = float("inf")


def with_ends(areas: list[Row]) -> list[Row]:
    """Each area with its `end`: the next row of its key. The rows of a key differ in time."""
    rows_of = defaultdict(list)
    for row in sorted(areas, key=lambda row: row["t"]):
        rows_of[row["area"]].append(row)
    ended = []
    for rows in rows_of.values():
        ended += [row | {"end": after["t"]} for row, after in pairwise(rows)]
        ended.append(rows[-1] | {"end": NEVER})
    return [row for row in ended if not row.get("ended")]


def touching(areas: list[Row], points: list[Row]) -> list[tuple[Any, Any]]:
    """Each pair of (area, point) as often as there are rows for it, sorted."""
    return sorted(
        (area["area"], point["point"]) for area in areas for point in points if _in(area, point)
    )


def _in(area: Row, point: Row) -> bool:
    at = point.get("t", 0)
    if not area.get("t", 0) <= at < area.get("end", NEVER):
        return False
    if area.get("channel") != point.get("channel"):
        return False
    if "owner" in area and area["owner"] == point["owner"]:
        return False
    seconds = (at - area.get("t", 0)) / 1e6
    centre = (area.get(axis, 0.0) + area.get(f"v{axis}", 0.0) * seconds for axis in "xyz")
    extents = (area.get(f"r{axis}", 0.0) for axis in "xyz")
    shape = Shape(KINDS[area["shape"]], *centre, *extents)
    place = Shape(ShapeKind.POINT, *(point.get(axis, 0.0) for axis in "xyz"))
    return shape.touches(place)
