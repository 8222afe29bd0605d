"""Evaluates a time slice of a trace into sums: outcomes of deliveries, latencies and traffic.

A slice is evaluated when none of its rows can still arrive. Its publications are joined with the
interests (`partitioning`, `join`), and the expected pairs are matched with the deliveries. Each
task sums its rows: outcomes for each span of time, first deliveries also by latency, messages by
kind. So only sums leave a task, thousands for millions of rows; Spark adds them up to windows.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.pipeline.spark.storage import RUN, RowGroup, valid_batches
from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.partitioning import TracePart, read_chunks
from nearcast.trace.schema import TABLES

PUBLICATIONS_PER_JOIN = 100_000  # their pairs must fit into memory
LATENCY_STEP = 100  # microseconds to which latencies are rounded, except the mean and the maximum

COUNTS = (
    "publications", "correct", "missed", "spurious", "duplicates", "late_sum", "messages", "bytes"
)  # fmt: skip
SUM_SCHEMA = pa.schema(
    [
        RUN,
        pa.field("t", pa.int64(), nullable=False),  # where the span begins
        pa.field("kind", pa.string()),  # of messages
        pa.field("late", pa.int64()),  # latency of first deliveries, rounded
        pa.field("late_max", pa.int64()),
        *(pa.field(name, pa.int64()) for name in COUNTS),
    ]
)
DELIVERY_COLUMNS = pa.schema(
    [TABLES["deliveries"].field(n) for n in ("t", "publication", "subscription")]
)
NOTE_COLUMNS = pa.schema([TABLES["notes"].field(n) for n in ("t", "fact", "about", "value")])
MESSAGE_COLUMNS = pa.schema([TABLES["messages"].field(n) for n in ("t", "kind", "bytes", "copies")])


class StreamSlice(Struct, frozen=True):
    """A part of a trace, and the row groups with its deliveries, notes and messages."""

    part: TracePart
    deliveries: list[RowGroup]  # until `late` after its end
    notes: list[RowGroup]  # likewise
    messages: list[RowGroup]
    late: int  # microseconds for which a publication waits for its deliveries
    span: int


def slice_sums(time_slice: StreamSlice) -> Iterator[pa.RecordBatch]:
    """Rows of `SUM_SCHEMA`, to be added up."""
    yield from _delivery_sums(time_slice)
    yield from _message_sums(time_slice)


def _delivery_sums(time_slice: StreamSlice) -> Iterator[pa.RecordBatch]:
    """Outcomes of all publications. Deliveries are read once, as far as each chunk needs them."""
    unread = sorted(time_slice.deliveries, key=lambda group: group.first, reverse=True)
    left, withheld = DELIVERY_COLUMNS.empty_table(), _withheld(time_slice.notes)
    for spans, publications in _publication_chunks(time_slice.part):
        made = join.column_or_zeros(publications, "t")
        until = int(made[-1]) + time_slice.late
        fresh = []
        while unread and unread[-1].first <= until:
            fresh.append(unread.pop())
        left = pa.concat_tables(
            [left, pa.Table.from_batches(valid_batches(DELIVERY_COLUMNS, fresh), DELIVERY_COLUMNS)]
        )
        place = pc.index_in(
            left.column("publication"), pa.array(join.column_or_zeros(publications, "publication"))
        )
        pairs = _match_deliveries(spans, publications, left, place, time_slice.late)
        if len(withheld):
            pairs = _without_withheld(pairs, spans, publications, withheld)
        yield from _outcome_sums(time_slice, made, pairs)
        # A delivery of an unknown publication may belong to a later one, unless it is older.
        later = pc.greater_equal(left.column("t"), int(made[-1]))
        left = left.filter(pc.and_(place.is_null(), later))


def _publication_chunks(part: TracePart) -> Iterator[tuple[pa.Table, pa.Table]]:
    for spans, publications in read_chunks(part):
        for first in range(0, len(publications), PUBLICATIONS_PER_JOIN):
            yield spans, publications.slice(first, PUBLICATIONS_PER_JOIN)


def _match_deliveries(
    spans: pa.Table, publications: pa.Table, deliveries: pa.Table, place: pa.ChunkedArray, late: int
) -> pa.Table:
    """Each expected or delivered pair once: was it due, how often and how late was it delivered?

    Deliveries before their publication, or too late, do not count.
    """
    made = join.column_or_zeros(publications, "t")
    known = place.is_valid()
    where = place.filter(known).cast(pa.int64()).to_numpy()
    deliveries = deliveries.filter(known)
    wait = deliveries.column("t").to_numpy() - made[where]
    in_time = (wait >= 0) & (wait <= late)
    due = list(join.find_pairs(spans, publications))
    count = sum(len(which) for which, _ in due)
    places = [which for which, _ in due] + [where[in_time]]
    subscriptions = [subscription for _, subscription in due] + [
        deliveries.column("subscription").to_numpy()[in_time]
    ]
    waits = pa.chunked_array([pa.nulls(count, pa.int64()), pa.array(wait[in_time])])
    pairs = pa.table(
        {
            "place": np.concatenate(places),
            "subscription": np.concatenate(subscriptions),
            "due": pa.chunked_array([pa.repeat(1, count), pa.repeat(0, int(in_time.sum()))]),
            "late": waits,
        }
    )
    return pairs.group_by(["place", "subscription"], use_threads=False).aggregate(
        [("due", "max"), ("late", "min"), ("late", "count")]
    )


def _withheld(notes: list[RowGroup]) -> pa.Table:
    """Publications, and the subscribers from whom they were withheld as these had asked."""
    asked = (pc.field("fact") == "withheld") & pc.field("value").is_valid()
    rows = pa.Table.from_batches(valid_batches(NOTE_COLUMNS, notes), NOTE_COLUMNS).filter(asked)
    node = rows.column("value").cast(pa.int64())
    return pa.table({"publication": rows.column("about"), "node": node})


def _without_withheld(
    pairs: pa.Table, spans: pa.Table, publications: pa.Table, withheld: pa.Table
) -> pa.Table:
    """Without those that were not delivered because the subscriber had asked for that."""
    publication = join.column_or_zeros(publications, "publication")
    subscribers, first = np.unique(join.column_or_zeros(spans, "subscription"), return_index=True)
    missed = pc.equal(pairs.column("late_count"), 0)
    undelivered = pairs.filter(missed)
    which = np.searchsorted(subscribers, undelivered.column("subscription").to_numpy())
    keys = {
        "publication": publication[undelivered.column("place").to_numpy()],
        "node": join.column_or_zeros(spans, "node")[first][which],
    }
    for name, values in keys.items():
        undelivered = undelivered.append_column(name, pa.array(values))
    kept = undelivered.join(withheld, list(keys), join_type="left anti")
    return pa.concat_tables(
        [pairs.filter(pc.invert(missed)), kept.select(pairs.column_names).cast(pairs.schema)]
    )


def _outcome_sums(
    time_slice: StreamSlice, made: NDArray[np.int64], pairs: pa.Table
) -> Iterator[pa.RecordBatch]:
    """Outcomes by span, and by latency where a pair is correct."""
    begun, published = np.unique(made - made % time_slice.span, return_counts=True)
    yield _sum_rows(time_slice, {"t": begun, "publications": published})
    t = made[pairs.column("place").to_numpy()]
    due = pairs.column("due_max").to_numpy() == 1
    delivered = pairs.column("late_count").to_numpy()
    correct = due & (delivered > 0)
    late = pc.fill_null(pairs.column("late_min"), 0).to_numpy()
    late = np.where(correct, late, 0)
    outcomes = pa.table(
        {
            "t": t - t % time_slice.span,
            "late": pa.array(
                (late + LATENCY_STEP // 2) // LATENCY_STEP * LATENCY_STEP, mask=~correct
            ),
            "late_max": late,
            "late_sum": late,
            "correct": correct.astype(np.int64),
            "missed": (due & (delivered == 0)).astype(np.int64),
            "spurious": (~due).astype(np.int64),
            "duplicates": np.maximum(delivered - 1, 0),
        }
    )
    yield _sum_rows(time_slice, _sum_by(outcomes, ["t", "late"]))


def _message_sums(time_slice: StreamSlice) -> Iterator[pa.RecordBatch]:
    for rows in valid_batches(MESSAGE_COLUMNS, time_slice.messages):
        t = rows.column("t").to_numpy()
        inside = pa.array((t >= time_slice.part.begin) & (t < time_slice.part.end))
        messages = pa.table(
            {
                "t": t - t % time_slice.span,
                "kind": rows.column("kind"),
                "messages": rows.column("copies"),
                "bytes": rows.column("bytes"),
            }
        ).filter(inside)
        yield _sum_rows(time_slice, _sum_by(messages, ["t", "kind"]))


def _sum_by(rows: pa.Table, alike: list[str]) -> dict[str, pa.ChunkedArray]:
    ways = {name: "max" if name == "late_max" else "sum" for name in rows.column_names}
    added = rows.group_by(alike, use_threads=False).aggregate(
        [(name, way) for name, way in ways.items() if name not in alike]
    )
    return {
        name: added.column(name if name in alike else f"{name}_{way}") for name, way in ways.items()
    }


def _sum_rows(time_slice: StreamSlice, columns: dict[str, object]) -> pa.RecordBatch:
    """Rows of `SUM_SCHEMA` that have these columns, and zeros in other counts."""
    whole = pa.table(columns)
    others = {
        field.name: pa.repeat(0, len(whole))
        if field.name in COUNTS
        else pa.nulls(len(whole), field.type)
        for field in SUM_SCHEMA
    }
    others["run"] = pa.repeat(time_slice.part.run, len(whole))
    arrays = [
        whole.column(name).combine_chunks() if name in columns else array
        for name, array in others.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SUM_SCHEMA)
