"""Features of GeoJSON as fences in columns, very many at a time.

Most are plain polygons, which are decoded and checked in bulk (`sound_polygons`). Whoever reads
them gives a function that reads any one feature by itself, as a shape, and says what is wrong with
it.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

import msgspec
import numpy as np
from msgspec import Struct

from nearcast.fences.areas import Fence, FenceColumns, columns_of, join_columns
from nearcast.fences.sound_polygons import GivenPolygon, Position, sound_polygons
from nearcast.space.motion import Moving
from nearcast.space.outlines import MOST_VERTICES
from nearcast.space.shapes import Shape

AT_ONCE = 1_000  # features that are Python objects at the same time


class _Polygon(Struct, tag="Polygon", tag_field="type", gc=False):
    coordinates: list[list[Position]]


class _MultiPolygon(Struct, tag="MultiPolygon", tag_field="type", gc=False):
    coordinates: list[list[list[Position]]]


class _Heights(Struct, gc=False):
    low: float | None = None
    high: float | None = None
    z: float | None = None
    rz: float | None = None


class _Feature(Struct, gc=False):
    type: Literal["Feature"]
    geometry: _Polygon | _MultiPolygon
    properties: _Heights | None = None


_decode = msgspec.json.Decoder(_Feature).decode


def areas_of_features(
    texts: Sequence[bytes | msgspec.Raw],
    earth: bool,
    read_one: Callable[[int], Shape],
    most_vertices: int = MOST_VERTICES,
) -> FenceColumns:
    """A row without a number for each text. `read_one` reads the feature at a place, or raises."""
    blocks = []
    for first in range(0, len(texts), AT_ONCE):
        places = range(first, min(first + AT_ONCE, len(texts)))
        blocks.append(_areas_of_some(texts, places, earth, read_one, most_vertices))
    return join_columns(blocks)


def _areas_of_some(
    texts: Sequence[bytes | msgspec.Raw], places: range, earth: bool,
    read_one: Callable[[int], Shape], most_vertices: int,
) -> FenceColumns:  # fmt: skip
    polygons, of_polygons = [], []
    for place in places:
        polygon = _given_polygon(texts[place], earth, most_vertices)
        if polygon is not None:
            polygons.append(polygon)
            of_polygons.append(place)
    sound, columns = sound_polygons(polygons, earth)
    read = np.array(of_polygons, np.int64)[sound]
    others = np.setdiff1d(np.array(places), read)
    shapes = [read_one(place) for place in others.tolist()]
    rest = columns_of([Fence(0, Moving(shape)) for shape in shapes], 0)
    areas, coordinates, starts = join_columns([columns, rest])
    order = np.argsort(np.concatenate((read, others)))
    return FenceColumns(areas[order], coordinates, starts)


def _given_polygon(
    text: bytes | msgspec.Raw, earth: bool, most_vertices: int
) -> GivenPolygon | None:  # fmt: skip
    """None if the feature is anything else, or should be read by itself."""
    try:
        feature = _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    geometry, heights = feature.geometry, feature.properties or _Heights()
    parts = [geometry.coordinates] if isinstance(geometry, _Polygon) else geometry.coordinates
    if sum(len(ring) for part in parts for ring in part) > most_vertices or not all(parts):
        return None
    if earth:
        low = -inf if heights.low is None else heights.low
        return GivenPolygon(parts, low, inf if heights.high is None else heights.high)
    return GivenPolygon(parts, z=heights.z or 0.0, rz=heights.rz or 0.0)
