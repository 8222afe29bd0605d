"""The events of a history of fixes: each worker gives some entities, one after the other, to the
engine of fence events.

Fixes are sent to partitions by entity and sorted there by entity and time, so they may come in any
order. An entity needs the fixes before, so those of a single entity are worked through by one task,
however many there are. A task holds the fences, a batch of fixes, and the last fix of each of its
entities. Fences and their index are kept by the worker process for its next task.
"""

from collections.abc import Callable, Iterator
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType

from nearcast.errors import ColumnsError
from nearcast.extras import keep_pandas_out
from nearcast.fences.areas import NEVER
from nearcast.fences.events import (
    CROSS,
    NONE,
    OUTSIDE,
    FenceEvents,
    FenceKind,
    Fixes,
    LeaveReason,
    fixes_of,
)
from nearcast.fences.fence_state import FenceEngine
from nearcast.pipeline.geofence.packed_fences import PackedFences, SentFences
from nearcast.pipeline.spark.sql import query_sql
from nearcast.space.motion import SECOND, Time
from nearcast.trace.earth_columns import ecef_columns, lon_lat_columns

PLANE, SPACE = ("x", "y"), ("x", "y", "z")
DEGREES = ("lon", "lat")
KINDS = {kind.name.lower(): kind for kind in FenceKind}
OUTSIDE_ROWS = 1_000_000  # pairs of fix and fence that are reported as outside at once


class FenceRules(NamedTuple):
    """What is asked about all fences: kinds as bits, times in microseconds."""

    kinds: int
    dwell: Time | None = None
    linger: Time = 0


def fence_rules(events: Any, dwell: float | None, linger: float) -> FenceRules:
    """From names of events and seconds. With `dwell`, its event is asked for."""
    names = [events] if isinstance(events, str) else list(events)
    for name in names:
        if name not in KINDS:
            raise ValueError(f"no event {name!r}; there are {', '.join(KINDS)}")
    if "dwell" in names and dwell is None:
        raise ValueError("the event dwell needs the seconds after which it is reported")
    if dwell is not None:
        names.append("dwell")
    if not names:
        raise ValueError(f"ask for at least one event: {', '.join(KINDS)}")
    kinds = 0
    for name in names:
        kinds |= 1 << KINDS[name]
    return FenceRules(
        kinds, None if dwell is None else micros("dwell", dwell), micros("linger", linger)
    )


def micros(name: str, seconds: float) -> Time:
    """Seconds of an argument as microseconds."""
    if isnan(seconds) or not 0 <= seconds <= 1e10:
        raise ValueError(f"{name} must be 0 or more seconds, at most 1e10, not {seconds}")
    return round(seconds * SECOND)


class FixPlaces(NamedTuple):
    """Which columns of the frame of fixes are places, and how events give them."""

    given: tuple[str, ...]  # x, y in the plane, x, y, z in space or ECEF; or lon, lat
    shown: tuple[str, ...]
    height: bool = False

    @property
    def earth(self) -> bool:
        return self.shown == DEGREES


def fence_events(
    fixes: DataFrame,
    fences: SentFences,
    rules: FenceRules,
    places: FixPlaces,
    keep: tuple[str, ...] = (),
    until: Time | DataFrame | None = None,
) -> DataFrame:
    """The events of fixes, with times in microseconds; in no order.

    `fixes` have the columns `entity`, `t` (microseconds), those of `places`, and perhaps `height`,
    `ttl` (microseconds; null: until the next fix) and `tie`, by which fixes of one moment are
    sorted. Nothing in them is null, infinite or NaN but `height` and `ttl`. What is decided after
    `until` is left out: a moment, or that of the last of these fixes.
    """
    ties = ["tie"] if "tie" in fixes.columns else list(places.given)
    in_order = fixes.repartition("entity").sortWithinPartitions("entity", "t", *ties)
    schema = event_schema(places.shown, fixes.schema["entity"].dataType, keep)
    found = in_order.mapInArrow(
        find_events(fences, rules, places, schema), from_arrow_schema(schema)
    )
    if until is None:
        return found
    if isinstance(until, DataFrame):
        return query_sql(
            "SELECT * FROM {found} WHERE fix_t <= (SELECT max(t) FROM {fixes})",
            found=found,
            fixes=until,
        )
    return found.where(f"fix_t <= {until}")


def with_ttl(fixes: DataFrame, seconds: float | None) -> DataFrame:
    """The same fixes, each of which holds so long."""
    if seconds is None:
        return fixes
    return fixes.selectExpr("*", f"{micros('ttl', seconds)}L AS ttl")


def event_schema(shown: tuple[str, ...], entity: DataType, keep: tuple[str, ...]) -> pa.Schema:
    columns = [
        ("fence", pa.string()),
        *((name, pa.string()) for name in keep),
        ("entity", to_arrow_type(entity)),
        ("kind", pa.string()),
        ("t", pa.int64()),
        ("fix_t", pa.int64()),
        *((name, pa.float64()) for name in shown),
        ("t_out", pa.int64()),
        *((f"{name}_out", pa.float64()) for name in shown),
        ("direction", pa.float64()),
        ("reason", pa.string()),
    ]
    names = [name for name, _ in columns]
    for name in keep:
        if names.count(name) > 1:
            raise ColumnsError(f"events have a column {name!r} already; it cannot be kept")
    return pa.schema(columns)


# On workers.


def find_events(
    fences: SentFences, rules: FenceRules, places: FixPlaces, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Sorted fixes to events."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        engine, texts = fence_engine(fences, rules, places.earth)
        entities = EntityNumbers()
        at_once = OUTSIDE_ROWS // max(1, len(texts.ids)) if rules.kinds & 1 << OUTSIDE else 0
        for batch in filter(len, batches):
            numbers = entities.take(batch.column("entity"))
            fixes = columns_of_fixes(batch, numbers, places)
            step = max(1, at_once or len(numbers))
            for start in range(0, len(numbers), step):
                some = Fixes._make(column[start : start + step] for column in fixes)
                yield event_rows(engine.fixes(some), entities, texts, places, schema)
        yield event_rows(engine.advance(NEVER - 1), entities, texts, places, schema)

    return work


class FenceTexts(NamedTuple):
    """What events say of a fence, by its number."""

    ids: pa.Array
    kept: dict[str, pa.Array]


_engines: dict[tuple[str, FenceRules, bool], tuple[FenceEngine, FenceTexts]] = {}  # the last one


def fence_engine(
    sent: SentFences, rules: FenceRules, earth: bool
) -> tuple[FenceEngine, FenceTexts]:
    """An engine with these fences and without entities; fences are read once for a process."""
    key = sent.digest, rules, earth
    if key not in _engines:
        _engines.clear()  # before others take their memory
        fences = sent.receive()
        engine = FenceEngine(earth)
        engine.put_fences(ruled(fences, rules), -NEVER)
        _engines[key] = engine, FenceTexts(fences.ids, fences.kept)
    engine, texts = _engines[key]
    return engine.without_entities(), texts


def ruled(fences: PackedFences, rules: FenceRules) -> Any:
    """The columns of fences that ask for what the rules say."""
    areas = fences.columns.areas.copy()
    areas["kinds"], areas["linger"] = rules.kinds, rules.linger
    areas["dwell"] = NEVER if rules.dwell is None else rules.dwell
    return fences.columns._replace(areas=areas)


class EntityNumbers:
    """Numbers for entities that come sorted."""

    def __init__(self) -> None:
        self._values: list[pa.Array] = []  # by number, in pieces
        self._first = 0  # the number of the first one in the last piece
        self._count = 0

    def take(self, entities: pa.Array) -> Any:
        """The number of each; the first of them may be the last one of the piece before."""
        encoded = entities.dictionary_encode()
        values = encoded.dictionary
        if self._count and len(values) and values[0].equals(self._values[-1][-1]):
            self._values[-1] = self._values[-1][:-1]
            self._count -= 1
        self._first = self._count
        self._count += len(values)
        self._values.append(values)
        return self._first + encoded.indices.to_numpy().astype(np.int64)

    def values(self, numbers: Any) -> pa.Array:
        """Who they are; usually all of the last piece."""
        if not len(numbers) or numbers.min() >= self._first:
            values, first = (self._values[-1] if self._values else pa.array([])), self._first
        else:
            values, first = pa.concat_arrays(self._values), 0
        return values.take(pa.array(numbers - first))


def columns_of_fixes(batch: pa.RecordBatch, numbers: Any, places: FixPlaces) -> Fixes:
    columns = [batch.column(name).to_numpy() for name in places.given]
    if places.given == DEGREES:
        columns = ecef_columns(*columns)
    optional: dict[str, Any] = {}
    if places.height:
        optional["height"] = batch.column("height").fill_null(np.nan).to_numpy()
    if "ttl" in batch.schema.names:
        optional["ttl"] = batch.column("ttl").fill_null(NEVER).to_numpy()
    return fixes_of(numbers, batch.column("t").to_numpy(), np.stack(columns, 1), **optional)


def event_rows(
    events: FenceEvents,
    entities: EntityNumbers,
    texts: FenceTexts,
    places: FixPlaces,
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Events as rows of the result."""
    crossed = events["kind"] == CROSS
    ends = "x_out", "y_out", "z_out"
    place = [events[axis] for axis in SPACE[: len(places.shown)]]
    place_out = [events[axis] for axis in ends[: len(places.shown)]]
    if places.earth:
        place = lon_lat_columns(*(np.ascontiguousarray(events[axis]) for axis in SPACE))
        place_out = lon_lat_columns(*(np.ascontiguousarray(events[axis]) for axis in ends))
    fence = pa.array(events["fence"])
    reasons = events["reason"]
    columns = {
        "fence": texts.ids.take(fence),
        **{name: column.take(fence) for name, column in texts.kept.items()},
        "entity": entities.values(events["entity"]),
        "kind": _names(FenceKind).take(pa.array(events["kind"])),
        "t": events["t"],
        "fix_t": events["fix_t"],
        **dict(zip(places.shown, place, strict=True)),
        "t_out": pa.array(events["t_out"], mask=~crossed),
        **{
            f"{name}_out": pa.array(column, mask=~crossed)
            for name, column in zip(places.shown, place_out, strict=True)
        },
        "direction": pa.array(events["direction"], mask=np.isnan(events["direction"])),
        "reason": _names(LeaveReason).take(pa.array(reasons, mask=reasons == NONE)),
    }
    return pa.RecordBatch.from_arrays(
        [pc.cast(pa.array(columns[field.name]), field.type) for field in schema], schema=schema
    )


def _names(kinds: type[FenceKind] | type[LeaveReason]) -> pa.Array:
    return pa.array([kind.name.lower() for kind in kinds])
