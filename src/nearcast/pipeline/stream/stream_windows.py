"""What became of a stretch of a trace's time, in sums: how well it was heard, and what was sent.

A stretch is judged when nothing of it can come any more. Its publications are joined with the
interests (`parts`, `join`), the pairs that should be are matched with the deliveries that were, and
what is alike is added up where it lies: outcomes for each span of time, first deliveries also by
their latency, messages by their kind. So only sums travel, thousands for millions of rows; windows
of whole spans are made of them.
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

PUBLICATIONS_PER_JOIN = (
    100_000  # publications that are judged together: their pairs must fit into memory
)
LATENCY_STEP = (
    100  # microseconds: latencies are told apart by so much, all but the mean and the longest
)

COUNTS = (
    "publications", "correct", "missed", "spurious", "duplicates", "late_sum", "messages", "bytes"
)  # fmt: skip
SUM_SCHEMA = pa.schema(
    [
        RUN,
        pa.field("t", pa.int64(), nullable=False),  # where the span begins
        pa.field("kind", pa.string()),  # of messages
        pa.field("late", pa.int64()),  # of first deliveries, to a tick
        pa.field("late_max", pa.int64()),
        *(pa.field(name, pa.int64()) for name in COUNTS),
    ]
)
DELIVERY_COLUMNS = pa.schema(
    [TABLES["deliveries"].field(n) for n in ("t", "publication", "subscription")]
)
MESSAGE_COLUMNS = pa.schema([TABLES["messages"].field(n) for n in ("t", "kind", "bytes", "copies")])


class StreamSlice(Struct, frozen=True):
    """The time of a part, and where to find what came of it."""

    part: TracePart
    deliveries: list[RowGroup]  # until `late` after its end
    messages: list[RowGroup]
    late: int  # microseconds for which a publication waits for its deliveries
    span: int


def slice_sums(stretch: StreamSlice) -> Iterator[pa.RecordBatch]:
    """Rows of `SUMS`, to be added up; then a mark."""
    yield from _delivery_sums(stretch)
    yield from _message_sums(stretch)
    yield _watermark_row(stretch)


def _watermark_row(stretch: StreamSlice) -> pa.RecordBatch:
    """A row without counts, which says how far time has come."""
    said = {"run": stretch.part.run, "t": stretch.part.end}
    return pa.RecordBatch.from_pylist([said], SUM_SCHEMA)


def _delivery_sums(stretch: StreamSlice) -> Iterator[pa.RecordBatch]:
    """Deliveries are read once, as far as the publications at hand can have been heard."""
    unread = sorted(stretch.deliveries, key=lambda piece: piece.first, reverse=True)
    left = DELIVERY_COLUMNS.empty_table()
    for held, said in _publication_chunks(stretch.part):
        made = join.column_or_zeros(said, "t")
        until = int(made[-1]) + stretch.late
        fresh = []
        while unread and unread[-1].first <= until:
            fresh.append(unread.pop())
        left = pa.concat_tables(
            [left, pa.Table.from_batches(valid_batches(DELIVERY_COLUMNS, fresh), DELIVERY_COLUMNS)]
        )
        place = pc.index_in(
            left.column("publication"), pa.array(join.column_or_zeros(said, "publication"))
        )
        pairs = _match_deliveries(held, said, left, place, stretch.late)
        yield from _outcome_sums(stretch, made, pairs)
        # What is not known may be of publications to come, if it is not older than they will be.
        later = pc.greater_equal(left.column("t"), int(made[-1]))
        left = left.filter(pc.and_(place.is_null(), later))


def _publication_chunks(part: TracePart) -> Iterator[tuple[pa.Table, pa.Table]]:
    for held, said in read_chunks(part):
        for first in range(0, len(said), PUBLICATIONS_PER_JOIN):
            yield held, said.slice(first, PUBLICATIONS_PER_JOIN)


def _match_deliveries(
    held: pa.Table, said: pa.Table, heard: pa.Table, place: pa.ChunkedArray, late: int
) -> pa.Table:
    """Each pair once: was it due, how often and how late was it heard?

    What comes before its publication, or too late, does not count.
    """
    made = join.column_or_zeros(said, "t")
    known = place.is_valid()
    where = place.filter(known).cast(pa.int64()).to_numpy()
    heard = heard.filter(known)
    wait = heard.column("t").to_numpy() - made[where]
    in_time = (wait >= 0) & (wait <= late)
    due = list(join.find_pairs(held, said))
    count = sum(len(which) for which, _ in due)
    places = [which for which, _ in due] + [where[in_time]]
    subscriptions = [who for _, who in due] + [heard.column("subscription").to_numpy()[in_time]]
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


def _outcome_sums(
    stretch: StreamSlice, made: NDArray[np.int64], pairs: pa.Table
) -> Iterator[pa.RecordBatch]:
    """Outcomes by span, and by latency where a pair is correct."""
    begun, published = np.unique(made - made % stretch.span, return_counts=True)
    yield _sum_rows(stretch, {"t": begun, "publications": published})
    t = made[pairs.column("place").to_numpy()]
    due = pairs.column("due_max").to_numpy() == 1
    heard = pairs.column("late_count").to_numpy()
    correct = due & (heard > 0)
    late = pc.fill_null(pairs.column("late_min"), 0).to_numpy()
    late = np.where(correct, late, 0)
    judged = pa.table(
        {
            "t": t - t % stretch.span,
            "late": pa.array(
                (late + LATENCY_STEP // 2) // LATENCY_STEP * LATENCY_STEP, mask=~correct
            ),
            "late_max": late,
            "late_sum": late,
            "correct": correct.astype(np.int64),
            "missed": (due & (heard == 0)).astype(np.int64),
            "spurious": (~due).astype(np.int64),
            "duplicates": np.maximum(heard - 1, 0),
        }
    )
    yield _sum_rows(stretch, _sum_by(judged, ["t", "late"]))


def _message_sums(stretch: StreamSlice) -> Iterator[pa.RecordBatch]:
    for rows in valid_batches(MESSAGE_COLUMNS, stretch.messages):
        t = rows.column("t").to_numpy()
        inside = pa.array((t >= stretch.part.begin) & (t < stretch.part.end))
        messages = pa.table(
            {
                "t": t - t % stretch.span,
                "kind": rows.column("kind"),
                "messages": rows.column("copies"),
                "bytes": rows.column("bytes"),
            }
        ).filter(inside)
        yield _sum_rows(stretch, _sum_by(messages, ["t", "kind"]))


def _sum_by(rows: pa.Table, alike: list[str]) -> dict[str, pa.ChunkedArray]:
    ways = {name: "max" if name == "late_max" else "sum" for name in rows.column_names}
    added = rows.group_by(alike, use_threads=False).aggregate(
        [(name, way) for name, way in ways.items() if name not in alike]
    )
    return {
        name: added.column(name if name in alike else f"{name}_{way}") for name, way in ways.items()
    }


def _sum_rows(stretch: StreamSlice, columns: dict[str, object]) -> pa.RecordBatch:
    """Rows of `SUMS` that have these columns, and zeros in other counts."""
    whole = pa.table(columns)
    others = {
        field.name: pa.repeat(0, len(whole))
        if field.name in COUNTS
        else pa.nulls(len(whole), field.type)
        for field in SUM_SCHEMA
    }
    others["run"] = pa.repeat(stretch.part.run, len(whole))
    arrays = [
        whole.column(name).combine_chunks() if name in columns else array
        for name, array in others.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SUM_SCHEMA)
