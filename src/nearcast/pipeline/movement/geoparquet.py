"""GeoParquet with points: the places of its geometry become columns of longitude and latitude.

GeoParquet 1.1 says in the file's metadata which column is the geometry, and in which coordinate
reference system. Points are well-known binary, with or without a height.
"""

import struct
from math import nan

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET, Struct, UnsetType

from nearcast.workloads.fixes import Numbers

PLACES = ["lon", "lat", "alt"]  # what a geometry becomes
DEGREES = {("OGC", "CRS84"), ("OGC", "CRS84h"), ("EPSG", "4326"), ("EPSG", "4979")}
POINT = np.dtype([("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")])
PLAIN = 1  # a point of two numbers
KINDS = {PLAIN: 2, 1001: 3, 0x80000001: 3}  # and of three, in ISO's numbering and in the older one


class _Authority(Struct):
    authority: str
    code: str | int


class _System(Struct):
    """A coordinate reference system as PROJJSON."""

    id: _Authority | None = None
    name: str = "one without a name"


class _Geometry(Struct):
    encoding: str
    crs: _System | UnsetType | None = UNSET


class _Metadata(Struct):
    primary_column: str
    columns: dict[str, _Geometry]


def geometry_column(file: str, schema: pa.Schema) -> str | None:
    """The column of places on Earth; None if the file is no GeoParquet. ValueError: they are of
    another kind."""
    text = (schema.metadata or {}).get(b"geo")
    if text is None:
        return None
    try:
        metadata = msgspec.json.decode(text, type=_Metadata)
        geometry = metadata.columns[metadata.primary_column]
    except (msgspec.DecodeError, KeyError) as why:
        raise ValueError(f"{file} has no sound metadata of GeoParquet: {why}") from None
    if metadata.primary_column not in schema.names:
        raise ValueError(f"{file} has no column {metadata.primary_column!r:.40}, its geometry")
    if geometry.encoding != "WKB":
        raise ValueError(f"{file} has its places as {geometry.encoding!r:.40}, not as WKB")
    if geometry.crs is None:
        raise ValueError(
            f"{file} has places of a plane (its crs is null): import a CSV file with x and y"
        )
    if geometry.crs is not UNSET:
        known = geometry.crs.id
        if known is None or (known.authority, str(known.code)) not in DEGREES:
            raise ValueError(
                f"{file} has places in {geometry.crs.name!r:.60}, not in longitude and latitude"
            )
    return metadata.primary_column


def read_places(geometry: pa.Array) -> list[Numbers]:
    """Longitudes, latitudes and heights of points; NaN where there is none."""
    texts = geometry.cast(pa.binary())
    plain = np.diff(np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1])
    if len(texts) and not texts.null_count and (plain == POINT.itemsize).all():
        points = np.frombuffer(b"".join(texts.to_pylist()), POINT)
        if (points["order"] == 1).all() and (points["kind"] == PLAIN).all():
            return [points["x"].copy(), points["y"].copy(), np.full(len(points), nan)]
    places = [_read_point(text) for text in texts.to_pylist()]
    return list(np.array(places, np.float64).reshape(-1, 3).T)


def _read_point(text: bytes | None) -> tuple[float, ...]:
    if text is None or len(text) < 5 or text[0] > 1:
        return nan, nan, nan
    order = "<" if text[0] else ">"
    numbers = KINDS.get(struct.unpack_from(f"{order}I", text, 1)[0], 0)
    if not numbers or len(text) != 5 + 8 * numbers:
        return nan, nan, nan
    x, y, *more = struct.unpack_from(f"{order}{numbers}d", text, 5)
    return x, y, more[0] if more else nan
