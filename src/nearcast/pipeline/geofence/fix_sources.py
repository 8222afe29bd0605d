"""Fixes for `fence_history`, from traces and from files of movement.

In a trace, publications to points are fixes, and their publisher is the entity. Workers read them.
A file is read here, by the readers of `nearcast import`, and must fit into memory as columns.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, count_if, lit

from nearcast.pipeline.geofence.fence_history import DEGREES, PLANE, SPACE, FixPlaces
from nearcast.pipeline.importers import read_file
from nearcast.pipeline.movement.files import earth_reader
from nearcast.pipeline.spark.storage import OpenedTrace, list_row_groups, open_traces, table_frame
from nearcast.space.motion import FOREVER, SECOND, Time
from nearcast.storage import AnyPath, arrow_source, open_parquet
from nearcast.trace.reader import EARTH, entity_names, trace_epoch, trace_geometry
from nearcast.trace.sinks import holds_trace
from nearcast.workloads.fixes import is_csv

# Of a publication with an altitude, as `space.outlines.outline_text` writes it: low is high.
ALTITUDE = (
    "CASE WHEN get_json_object(outline, '$[0]') = '0'"
    " AND get_json_object(outline, '$[5]') = get_json_object(outline, '$[6]')"
    " THEN CAST(get_json_object(outline, '$[5]') AS DOUBLE) END"
)


class FixFrame(NamedTuple):
    """Fixes as `fence_history.fence_events` reads them; entities are texts."""

    frame: DataFrame
    places: FixPlaces
    until: Time
    calendar: bool  # else times count from whenever


class FixCounts(NamedTuple):
    """How many fixes were read, and what was wrong with others."""

    fixes: int
    skipped: int
    first_skipped: str = ""
    notes: tuple[str, ...] = ()


def open_source(source: AnyPath) -> OpenedTrace | AnyPath:
    """The trace, or the file, if there is such a one."""
    if source.is_dir() or holds_trace(source):
        traces = open_traces([source.resolve()])  # workers have folders of their own
        if len(traces) > 1:
            raise ValueError(f"{source} has {len(traces)} traces: name one of them")
        return traces[0]
    return source


def is_on_earth(source: OpenedTrace | AnyPath) -> bool:
    if isinstance(source, OpenedTrace):
        return trace_geometry(source.path) == EARTH
    return earth_reader(source) is not None


def open_fixes(
    spark: SparkSession, source: OpenedTrace | AnyPath, channel: str | None = None
) -> tuple[FixFrame, Callable[[], FixCounts]]:
    """The fixes of a source, and their counts, which are known when the fixes have been read."""
    if isinstance(source, OpenedTrace):
        return trace_fixes(spark, source, channel)
    if channel is not None:
        raise ValueError(f"{source} is a file of fixes, which has no channels")
    return file_fixes(spark, source)


def trace_fixes(
    spark: SparkSession, trace: OpenedTrace, channel: str | None
) -> tuple[FixFrame, Callable[[], FixCounts]]:
    groups, unreadable = list_row_groups([trace], "publications")
    rows = sum(group.rows for group in groups)
    last = max((group.last for group in groups), default=0)
    earth, epoch = trace_geometry(trace.path) == EARTH, trace_epoch(trace.path)
    wanted = col("shape") == "point"
    if channel is not None:
        wanted &= col("channel") == channel
    all_rows = table_frame(spark, [trace], "publications")
    published = all_rows.where(wanted)
    entity = "CAST(node AS STRING)"
    if names := entity_names(trace.path):
        named = pa.table({"node": range(len(names)), "name": names})
        published = published.join(spark.createDataFrame(named), "node", "left")
        entity = f"coalesce(name, {entity})"
    frame = published.selectExpr(
        f"{entity} AS entity", f"t + {epoch or 0}L AS t", "x", "y", "z",
        f"{ALTITUDE if earth else 'CAST(NULL AS DOUBLE)'} AS height", "publication AS tie",
    )  # fmt: skip

    def counts() -> FixCounts:
        # A query of its own: an observation is not made if Spark leaves out its part of a plan.
        found = all_rows.select(count(lit(1)).alias("valid"), count_if(wanted).alias("fixes"))
        (row,) = found.collect()
        notes = tuple(f"{group.file}: {group.fault}" for group in unreadable)
        return FixCounts(row.fixes, rows - row.valid, "", notes)

    places = FixPlaces(SPACE, DEGREES if earth else SPACE, height=earth)
    until = min(last + (epoch or 0), FOREVER - 1)
    return FixFrame(frame, places, until, epoch is not None), counts


def file_fixes(spark: SparkSession, file: AnyPath) -> tuple[FixFrame, Callable[[], FixCounts]]:
    found = read_file(file, None, "disc", lambda *_: None)
    fixes = found.fixes
    t = fixes.t + (found.began_us if found.earth else first_moment(file))
    numbers = np.repeat(np.arange(fixes.entities), np.diff(fixes.starts))
    in_space = found.earth or bool(fixes.z.any())
    columns = {
        "entity": pa.array(list(map(str, found.names))).take(pa.array(numbers)),
        "t": t,
        **dict(zip(SPACE if in_space else PLANE, (fixes.x, fixes.y, fixes.z), strict=False)),
    }
    if fixes.altitude is not None:
        columns["height"] = pa.array(fixes.altitude, from_pandas=True)
    given = SPACE if in_space else PLANE
    places = FixPlaces(given, DEGREES if found.earth else given, fixes.altitude is not None)
    frame = spark.createDataFrame(pa.table(columns))
    counts = FixCounts(len(t), found.skipped, found.first_skipped, found.notes)
    return FixFrame(frame, places, int(t.max()), found.epoch_us is not None), lambda: counts


def first_moment(file: AnyPath) -> Time:
    """When the first fix of a table of a plane is, on its own clock."""
    if is_csv(file):
        only = pyarrow.csv.ConvertOptions(include_columns=["t"], column_types={"t": pa.float64()})
        column = pyarrow.csv.read_csv(arrow_source(file), convert_options=only)["t"]
    else:
        with open_parquet(file) as parquet:
            column = parquet.read(columns=["t"])["t"]
    return round(float(pc.min(column).as_py()) * SECOND)
