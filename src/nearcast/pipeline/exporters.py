"""`nearcast export`: the movement in a trace, in forms that maps and other tools read.

A row is a fix: who was where, and when. Fixes are the publications to points, as entities make them
at each of theirs. GeoParquet and CSV are written row group by row group. A feature of GeoJSON is an
entity, whose fixes are all over the trace: some entities are collected at a time, as many as fit,
and the trace is read once for each such group.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from msgspec import Struct

from nearcast.errors import TraceError
from nearcast.space.motion import SECOND
from nearcast.space.outlines import WHOLE, outline_from_text
from nearcast.storage import AnyPath, PathInput, locate, open_parquet, writing_whole
from nearcast.trace import reader
from nearcast.trace.earth_columns import lon_lat_columns
from nearcast.trace.reader import EARTH
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import ROW_GROUP, in_a_line
from nearcast.workloads.fixes import Numbers, Whole

COLUMNS = ["t", "node", "shape", "x", "y", "z", "outline"]
SCHEMA = pa.schema([TABLES["publications"].field(name) for name in COLUMNS])
ROWS_AT_ONCE = 2_000_000  # that are collected for GeoJSON
TIME = pa.timestamp("us", "UTC")
WKB_POINT = np.dtype([("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")])
LITTLE_ENDIAN, POINT = 1, 1
DECIMALS = 9  # of degrees in texts


class ExportSummary(Struct, frozen=True):
    """What was written."""

    file: str
    rows: int
    geometry: str
    calendar: bool  # else times count from 1970, and are seconds in CSV
    areas: int = 0  # publications that are no positions


class _Movement:
    """The fixes of a trace, row group by row group."""

    def __init__(self, trace: PathInput, progress: Callable[[str, int, int], None]) -> None:
        self.root = reader.folder(trace)
        self.geometry = reader.trace_geometry(self.root)
        self.epoch = reader.trace_epoch(self.root)
        self.names = pa.array(reader.entity_names(self.root), pa.string())
        self.areas = 0
        self.rows = 0
        self._progress = progress

    @property
    def earth(self) -> bool:
        return self.geometry == EARTH

    def count(self) -> int:
        """How many rows there are at most, according to the files' footers."""
        return sum(self._opened(part).metadata.num_rows for part in self._parts())

    def fixes(self, share: int = 0, shares: int = 1) -> Iterator[pa.RecordBatch]:
        """All fixes, or those of a share of the entities: t, entity, name, x, y, z, alt."""
        self.areas = self.rows = 0
        parts = self._parts()
        for number, part in enumerate(parts):
            with self._opened(part) as file:
                names = [name for name in COLUMNS if name in file.schema_arrow.names]
                try:
                    for batch in file.iter_batches(ROW_GROUP, columns=names):
                        rows = reader.complete_columns(batch, SCHEMA)
                        points = pc.equal(rows.column("shape").cast(pa.string()), "point")
                        self.areas += rows.num_rows - pc.sum(points).as_py()
                        rows = rows.filter(points)
                        if shares > 1:
                            mine = rows.column("node").to_numpy() % shares == share
                            rows = rows.filter(pa.array(mine))
                        self.rows += rows.num_rows
                        yield self._described(rows)
                except (OSError, pa.ArrowException) as error:
                    raise TraceError(f"cannot read {part}: {in_a_line(error)}") from error
            self._progress(f"{self.rows:,} fixes", share * len(parts) + number + 1,
                           shares * len(parts))  # fmt: skip

    def _parts(self) -> list[AnyPath]:
        return reader.files(self.root, "publications")

    def _opened(self, part: AnyPath) -> pq.ParquetFile:
        try:
            file = open_parquet(part, page_checksum_verification=True)
        except (OSError, pa.ArrowException) as error:
            raise TraceError(f"cannot read {part}: {in_a_line(error)}") from error
        if faults := reader.missing_or_mistyped(file.schema_arrow, SCHEMA):
            raise TraceError(f"cannot read {part}: {faults[0]}")
        return file

    def _described(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        x, y, z = (rows.column(axis).to_numpy() for axis in "xyz")
        if self.earth:
            (x, y), z = lon_lat_columns(x, y, z), np.zeros(len(x))
        entity = rows.column("node")
        numbered = pc.if_else(pc.less(entity, len(self.names)), entity, pa.scalar(None, pa.int64()))
        times = pc.add(rows.column("t"), self.epoch or 0).cast(TIME)
        return pa.RecordBatch.from_arrays(
            [times, entity, self.names.take(numbered), pa.array(x), pa.array(y), pa.array(z),
             altitudes(rows.column("outline"))],
            names=["t", "entity", "name", "x", "y", "z", "alt"],
        )  # fmt: skip


def export_movement(
    trace: PathInput,
    out: PathInput,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> ExportSummary:
    """Write the fixes of a trace to a file whose name says the form.

    Raises ValueError, OSError or TraceError, each with one clear sentence.
    """
    file = locate(out)
    writers = {".parquet": write_geoparquet, ".geojson": write_geojson, ".csv": write_csv}
    write = writers.get(file.suffix.lower())
    if write is None:
        raise ValueError(f"{file} must end with {', '.join(writers)}, which says what to write")
    if file.exists():
        raise ValueError(f"{file} exists already")
    movement = _Movement(trace, progress)
    rows = write(movement, file)
    return ExportSummary(
        str(file), rows, movement.geometry, movement.epoch is not None, movement.areas
    )


def altitudes(outlines: pa.Array) -> pa.Array:
    """The altitudes that publications have; null where they have none."""
    encoded = outlines.dictionary_encode()
    found: list[float | None] = []
    for text in encoded.dictionary.to_pylist():
        outline = outline_from_text(text)
        single = outline.form == WHOLE and outline.low == outline.high
        found.append(outline.low if single else None)
    return pa.array(found, pa.float64()).take(encoded.indices)


def write_geoparquet(movement: _Movement, file: AnyPath) -> int:
    """GeoParquet 1.1: points as WKB, with t, entity, name and altitude. Gives the rows."""
    written = 0
    geometry: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["Point"]}
    if not movement.earth:
        geometry["crs"] = None  # otherwise it is longitude and latitude (OGC:CRS84)
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}
    columns = geoparquet_columns(movement)
    schema = pa.schema(columns, {"geo": msgspec.json.encode(geo)})
    with writing_whole(file) as output, pq.ParquetWriter(output, schema, compression="zstd") as out:
        for rows in movement.fixes():
            shown = [rows.column(field.name) for field in columns[:-1]]
            points = wkb_points(rows.column("x").to_numpy(), rows.column("y").to_numpy())
            out.write_batch(pa.RecordBatch.from_arrays([*shown, points], schema=schema))
            written += rows.num_rows
    return written


def geoparquet_columns(movement: _Movement) -> list[pa.Field]:
    return [
        pa.field("t", TIME),
        pa.field("entity", pa.int64()),
        *([pa.field("name", pa.string())] if len(movement.names) else []),
        pa.field("alt" if movement.earth else "z", pa.float64()),
        pa.field("geometry", pa.binary()),
    ]


def wkb_points(x: Numbers, y: Numbers) -> pa.Array:
    """Points as well-known binary: 21 bytes each."""
    points = np.empty(len(x), WKB_POINT)
    points["order"], points["kind"] = LITTLE_ENDIAN, POINT
    points["x"], points["y"] = x, y
    offsets = np.arange(len(x) + 1, dtype=np.int32) * WKB_POINT.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(points.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(x), buffers)


def write_csv(movement: _Movement, file: AnyPath) -> int:
    """Rows that `nearcast import` reads: timestamp, entity, lon, lat, alt; or t, entity, x, y, z.

    Without a calendar, and in a plane, times are seconds.
    """
    written = 0
    axes = (
        {"lon": "x", "lat": "y", "alt": "alt"} if movement.earth else {"x": "x", "y": "y", "z": "z"}
    )
    entity = "name" if len(movement.names) else "entity"
    dated = movement.earth and movement.epoch is not None
    schema = pa.schema([
        ("timestamp", TIME) if dated else ("t", pa.float64()),
        ("entity", pa.string() if entity == "name" else pa.int64()),
        *((name, pa.float64()) for name in axes),
    ])  # fmt: skip
    with writing_whole(file) as output, pyarrow.csv.CSVWriter(output, schema) as out:
        for rows in movement.fixes():
            t = rows.column("t")
            if not dated:
                t = pa.array(t.cast(pa.int64()).to_numpy() / SECOND)
            places = [rounded(movement, rows.column(name)) for name in axes.values()]
            shown = [t, rows.column(entity), *places]
            out.write_batch(pa.RecordBatch.from_arrays(shown, schema=schema))
            written += rows.num_rows
    return written


def rounded(movement: _Movement, column: pa.Array) -> pa.Array:
    """For people: degrees to a tenth of a millimetre. In a plane the unit is not known."""
    return pc.round(column, DECIMALS) if movement.earth else column


# GeoJSON.


def write_geojson(movement: _Movement, file: AnyPath) -> int:
    """A feature for each entity: its fixes as a line, their times as its property `datetimes`.

    So does the encoding of trajectories of OGC Moving Features.

    An entity that crosses the antimeridian has points instead: a line would lead round the world.
    """
    written = areas = 0
    shares = max(1, -(-movement.count() // ROWS_AT_ONCE))
    with writing_whole(file) as output:
        output.write(b'{"type":"FeatureCollection",')
        output.write(b'"features":[' if movement.earth else b'"crs":null,"features":[')
        comma = b"\n"
        for share in range(shares):
            batches = list(movement.fixes(share, shares))
            for feature in features(movement, batches):
                output.write(comma + msgspec.json.encode(feature))
                comma = b",\n"
            written += movement.rows
            areas = movement.areas
        output.write(b"\n]}\n")
    movement.areas = areas
    return written


def features(movement: _Movement, batches: list[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The entities of these rows, in the order of their numbers."""
    if not batches:
        return
    rows = pa.Table.from_batches(batches)
    order = pc.sort_indices(rows, sort_keys=[("entity", "ascending"), ("t", "ascending")])
    rows = rows.take(order).combine_chunks()
    entity: Whole = rows["entity"].to_numpy()
    starts = np.append(np.flatnonzero(np.diff(entity, prepend=-1)), len(entity)).tolist()
    for low, high in pairwise(starts):
        yield feature(movement, rows.slice(low, high - low))


def feature(movement: _Movement, rows: pa.Table) -> dict[str, Any]:
    """One entity. Its coordinates, times and altitudes are in the same order."""
    x, y = (rounded(movement, rows[axis]).to_numpy() for axis in "xy")
    points = np.stack([x, y], 1).tolist()
    times = rows["t"].to_numpy().astype("datetime64[us]")
    properties: dict[str, Any] = {"entity": rows["entity"][0].as_py()}
    if len(movement.names):
        properties["name"] = rows["name"][0].as_py()
    properties["datetimes"] = [f"{text}Z" for text in np.datetime_as_string(times).tolist()]
    heights = rows["alt" if movement.earth else "z"]
    if heights.null_count < len(heights) and (movement.earth or any(heights.to_pylist())):
        properties["altitudes"] = heights.to_pylist()
    if len(points) == 1:
        geometry: dict[str, Any] = {"type": "Point", "coordinates": points[0]}
    elif movement.earth and bool(np.any(np.abs(np.diff(x)) > 180)):
        geometry = {"type": "MultiPoint", "coordinates": points}
    else:
        geometry = {"type": "LineString", "coordinates": points}
    return {"type": "Feature", "geometry": geometry, "properties": properties}
