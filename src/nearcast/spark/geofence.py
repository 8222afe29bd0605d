"""Who entered, left, crossed or dwelt in which fence, and when: of any DataFrame of fixes."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql.functions import expr
from pyspark.sql.types import DataType, IntegralType, StringType, TimestampType

from nearcast.errors import ColumnsError
from nearcast.pipeline.geofence.fence_history import (
    DEGREES,
    PLANE,
    SPACE,
    FixPlaces,
    fence_events,
    fence_rules,
    micros,
)
from nearcast.pipeline.geofence.packed_fences import fences_of_shapes, read_fences, send_fences
from nearcast.space.motion import FOREVER, SECOND
from nearcast.space.shapes import LARGEST, Shape
from nearcast.spark.columns import ColumnReader, Columns, Number, column_names, quote_name
from nearcast.storage import PathInput, RemotePath

HIGHEST = 1e8  # metres; farther up nothing is near the Earth


def geofence(
    fixes: DataFrame,
    fences: PathInput | Sequence[tuple[Any, Shape]],
    *,
    entity: str = "entity",
    t: str = "t",
    x: str = "x",
    y: str = "y",
    z: str | None = None,
    lon: str | None = None,
    lat: str | None = None,
    alt: str | None = None,
    events: str | Sequence[str] = ("enter", "leave"),
    dwell: float | None = None,
    linger: float = 0.0,
    ttl: Number | None = None,
    order: str | None = None,
    keep: Columns = (),
    observation: Observation | None = None,
) -> DataFrame:
    """The events of entities at fences: a row for each, in no order.

    A fix says where an entity is at `t` (a timestamp, or a whole number of microseconds): in a
    plane `x` and `y`, in space also `z`, on Earth `lon` and `lat` in degrees, perhaps `alt` in
    metres. `fences` is a file of GeoJSON, or pairs of an id and a shape; `keep` names properties of
    its features that the rows have as well. `events` are some of enter, leave, cross, inside,
    outside; `dwell` seconds inside are an event, too. `leave` is reported after `linger` seconds
    outside, and when a fix has outlived its `ttl` (seconds, or a column of seconds). Fixes of one
    entity and moment are taken in the order of the column `order`, else of their places.

    Fixes without entity, time or place are left out; an `observation` of Spark counts `fixes` and
    `skipped` of them, when the events are first asked for. Nothing is reported that is decided
    after the last of all fixes: with `dwell`, `linger` or `ttl` the fixes are read twice.
    """
    reader = ColumnReader(fixes, "fixes")
    if fixes.isStreaming:
        raise ColumnsError("fixes must not be a stream: a live service reports events of those")
    rules = fence_rules(events, dwell, linger)
    places = fix_places(z, lon, lat, alt)
    named = [name for name in ((lon, lat) if places.earth else (x, y, z)) if name]
    selected = [
        f"{reader.name(entity, StringType, IntegralType)} AS entity",
        f"{reader.time(t)} AS t",
        *(f"{reader.number(c)} AS {n}" for n, c in zip(places.given, named, strict=True)),
        *([f"{height_in_range(reader.number(alt))} AS height"] if alt else []),
        *([f"{ttl_in_micros(reader, ttl)} AS ttl"] if ttl is not None else []),
        *([f"{reader.name(order)} AS tie"] if order else []),
    ]
    kept = column_names(keep)
    if isinstance(fences, str | PathLike | RemotePath):
        packed = read_fences(fences, places.earth, kept)
    elif kept:
        raise ColumnsError("shapes have no properties to keep")
    else:
        packed = fences_of_shapes(fences, places.earth)
    frame = fixes.selectExpr(*selected)
    usable = usable_fixes(places)
    # Otherwise each event is decided by a fix.
    ending = rules.dwell is not None or rules.linger > 0 or ttl is not None
    until = frame.where(usable) if ending else None
    if observation is not None:
        skipped = expr(f"count_if(NOT coalesce({usable}, FALSE))").alias("skipped")
        frame = frame.observe(observation, expr("count(1)").alias("fixes"), skipped)
    sent = send_fences(fixes.sparkSession, packed)
    found = fence_events(frame.where(usable), sent, rules, places, kept, until)
    return found.selectExpr(*(shown_column(name, reader.kind(t)) for name in found.columns))


def fix_places(z: str | None, lon: str | None, lat: str | None, alt: str | None) -> FixPlaces:
    """Where fixes are, by the columns that are named."""
    if (lon is None) != (lat is None):
        raise ColumnsError("fixes on Earth need the columns lon and lat")
    if lon is None:
        if alt is not None:
            raise ColumnsError("only fixes on Earth, with lon and lat, have a column alt")
        return FixPlaces(*((PLANE, PLANE) if z is None else (SPACE, SPACE)))
    if z is not None:
        raise ColumnsError("fixes on Earth have a column alt, not z")
    return FixPlaces(DEGREES, DEGREES, height=alt is not None)


def usable_fixes(places: FixPlaces) -> str:
    """The condition without which a fix is left out."""
    most = {"lon": 180.0, "lat": 90.0}
    limits = {name: most.get(name, LARGEST) for name in places.given}
    return " AND ".join(
        [
            "entity IS NOT NULL",
            f"t > {-FOREVER} AND t < {FOREVER}",
            *(f"{name} BETWEEN {-limit!r}D AND {limit!r}D" for name, limit in limits.items()),
        ]
    )


def height_in_range(number: str) -> str:
    """A height that is none is not known."""
    return f"CASE WHEN {number} BETWEEN {-HIGHEST!r}D AND {HIGHEST!r}D THEN {number} END"


def ttl_in_micros(reader: ColumnReader, ttl: Number) -> str:
    """Microseconds; null if a fix holds until the next one. Less than nothing is nothing."""
    if not isinstance(ttl, str):
        return f"{micros('ttl', ttl)}L"
    seconds = reader.number(ttl)
    whole = f"CAST(round(greatest({seconds}, 0D) * {SECOND}) AS BIGINT)"
    return f"CASE WHEN {seconds} < 1e10D THEN {whole} END"


def shown_column(name: str, kind: DataType) -> str:
    """A column of events; times have the type of those of the fixes."""
    if name not in ("t", "fix_t", "t_out") or isinstance(kind, IntegralType):
        return quote_name(name)
    if isinstance(kind, TimestampType):
        return f"timestamp_micros({name}) AS {name}"
    passed = f"make_dt_interval(0, 0, 0, CAST({name} AS DECIMAL(20, 0)) / {SECOND})"
    return f"TIMESTAMP_NTZ'1970-01-01 00:00:00' + {passed} AS {name}"
