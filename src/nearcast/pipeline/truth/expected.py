"""Who should have heard what: the exact join of publications and interests, on Spark.

Parts are cut by time, so that a publication lives in one part and needs no de-duplication. Two ways
lead to a part's interests, and both end in the same kernel (`join`):

- *nearby*: as many parts as cores; a part's task reads the row groups of its time, having found in
  earlier ones what is still in force. No row passes through the JVM and nothing is shuffled. Right
  for traces in order of time, which recorders write.
- *shuffled*: interests are gathered by subscription to learn how long each row holds, then sent, as
  blocks of columns, to every part in which they are in force; publications likewise. Spark's own
  shuffle carries the blocks, so a lost executor costs nothing but time. Right for rows in no order,
  and for so many cores that each would read far more interests than it needs.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.storage import RUN, RowGroup, TraceFolder
from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.block_codec import decode_block, encode_block
from nearcast.pipeline.truth.partitioning import TracePart, read_chunks, split_along_x, split_times
from nearcast.pipeline.truth.row_groups import concat_rows, read_row_group

JoinStrategy: TypeAlias = Literal["nearby", "shuffled"]
# From a run, its spans of interest and its publications in order of time to rows of the answer.
EmitRows: TypeAlias = Callable[[str, pa.Table, pa.Table], Iterator[pa.RecordBatch]]

PUBLICATIONS_PER_PART = (
    400_000  # publications per part of the shuffled way: seconds of work, tens of megabytes
)
MIN_PUBLICATIONS_PER_PART = 20_000  # publications for which another part is not worth its while
MAX_READS = 4  # nearby may read the trace so often; beyond that a shuffle is cheaper
MAX_READS_IN_ORDER = (
    1.5  # readings of the average publication, at most, if row groups are in order of time
)
MAX_SAMPLED_GROUPS = (
    16  # row groups, at most, that are asked for the moments at which parts are cut
)
INTERESTS_PER_BUCKET = 1_000_000  # interest rows that one task brings into order
INTERESTS, PUBLICATIONS = 0, 1  # the sides of a block

PAIR_SCHEMA = pa.schema(
    [RUN, pa.field("publication", pa.int64()), pa.field("subscription", pa.int64())]
)
BLOCK_SCHEMA = pa.schema(
    [
        RUN,
        pa.field("number", pa.int64()),
        pa.field("side", pa.int64()),
        pa.field("block", pa.binary()),
    ]
)
COUNT_SCHEMA = pa.schema(
    [RUN, pa.field("publication", pa.int64()), pa.field("interested", pa.int64())]
)


def expected_deliveries(
    spark: SparkSession, traces: Sequence[TraceFolder], way: JoinStrategy | None = None
) -> DataFrame:
    """Every (run, publication, subscription) that should have been, once."""
    return run_join(spark, traces, way, emit_pairs, PAIR_SCHEMA)


def count_interested(
    spark: SparkSession, traces: Sequence[TraceFolder], way: JoinStrategy | None = None
) -> DataFrame:
    """How many subscriptions each publication should have reached: counted, no pair emitted."""
    return run_join(spark, traces, way, emit_counts, COUNT_SCHEMA)


def emit_pairs(run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column_or_zeros(said, "publication")
    for which, subscription in join.find_pairs(held, said):
        runs = pa.repeat(run, len(which))
        yield pa.RecordBatch.from_arrays([runs, ids[which], subscription], schema=PAIR_SCHEMA)


def emit_counts(run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column_or_zeros(said, "publication")
    total = np.zeros(len(ids), np.int64)
    for which, _ in join.find_pairs(held, said):
        total += np.bincount(which, minlength=len(ids))
    yield pa.RecordBatch.from_arrays([pa.repeat(run, len(ids)), ids, total], schema=COUNT_SCHEMA)


def run_join(
    spark: SparkSession,
    traces: Sequence[TraceFolder],
    way: JoinStrategy | None,
    emit: EmitRows,
    schema: pa.Schema,
) -> DataFrame:
    """What `emit` makes of the join, part by part."""
    parts = plan_parts(spark, traces)
    if (way or choose_strategy(parts)) == "shuffled":
        return _join_by_shuffle(spark, traces, emit, schema)

    def work(part: TracePart) -> Iterator[pa.RecordBatch]:
        for held, said in read_chunks(part):
            yield from emit(part.run, held, said)

    return storage.map_items(spark, parts, TracePart, work, schema)


def plan_parts(spark: SparkSession, traces: Sequence[TraceFolder]) -> list[TracePart]:
    """Cut each run's time such that parts have about as much to do each."""
    said, _ = storage.list_row_groups(traces, "publications")
    wanted, _ = storage.list_row_groups(traces, "interests")
    cores = spark.sparkContext.defaultParallelism
    parts: list[TracePart] = []
    for trace in traces:
        mine = [piece for piece in said if piece.run == trace.run]
        interests = [piece for piece in wanted if piece.run == trace.run]
        count = max(1, min(cores, sum(piece.rows for piece in mine) // MIN_PUBLICATIONS_PER_PART))
        times = split_times(mine, count)
        for begin, end in times:
            said_then = [p for p in mine if p.first < end and p.last >= begin]
            wanted_by_then = [p for p in interests if p.first < end]
            parts += [
                TracePart(trace.run, begin, end, said_then, wanted_by_then, low, high)
                for low, high in split_along_x(said_then, ceil(count / len(times)))
            ]
    return parts


def choose_strategy(parts: Sequence[TracePart]) -> JoinStrategy:
    """Nearby, unless tasks would read far too much, or too much at once."""
    everything = [piece for part in parts for piece in (*part.publications, *part.interests)]
    # Stripes of one time share their row groups; times share them only if there is no order.
    times = {(part.run, part.begin): part.publications for part in parts}
    said = [piece for pieces in times.values() for piece in pieces]
    large = sum(piece.rows for piece in said) > 4 * PUBLICATIONS_PER_PART
    if _reads_per_row(everything) > MAX_READS or (
        large and _reads_per_row(said) > MAX_READS_IN_ORDER
    ):
        return "shuffled"
    return "nearby"


def _reads_per_row(pieces: Sequence[RowGroup]) -> float:
    """How often, at worst, the average row is read."""
    once = {(piece.file, piece.row_group): piece.rows for piece in pieces}
    return sum(piece.rows for piece in pieces) / max(1, sum(once.values()))


# The shuffled way: blocks of columns, as binary cells.


def _join_by_shuffle(
    spark: SparkSession, traces: Sequence[TraceFolder], emit: EmitRows, schema: pa.Schema
) -> DataFrame:
    wanted, _ = storage.list_row_groups(traces, "interests")
    said, _ = storage.list_row_groups(traces, "publications")
    edges = {trace.run: part_edges([p for p in said if p.run == trace.run]) for trace in traces}
    buckets = max(1, ceil(sum(piece.rows for piece in wanted) / INTERESTS_PER_BUCKET))
    cores = spark.sparkContext.defaultParallelism

    def by_subscription(piece: RowGroup) -> Iterator[pa.RecordBatch]:
        rows = read_row_group(piece)
        yield from _encode_blocks(
            piece.run, INTERESTS, rows, join.column_or_zeros(rows, "subscription") % buckets
        )

    def by_time(piece: RowGroup) -> Iterator[pa.RecordBatch]:
        rows = read_row_group(piece)
        part = np.searchsorted(edges[piece.run], join.column_or_zeros(rows, "t"), "right")
        yield from _encode_blocks(piece.run, PUBLICATIONS, rows, part)

    def to_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), (wanted, _) in _decode_blocks(batches):
            held = join.interest_spans(wanted)
            t, until = join.column_or_zeros(held, "t"), join.column_or_zeros(held, "end")
            first = np.searchsorted(edges[run], t, "right")
            last = np.searchsorted(edges[run], until - 1, "right")
            for more in range(int((last - first).max(initial=0)) + 1):
                still = np.flatnonzero(first + more <= last)
                rows = held if len(still) == len(held) else held.take(still)
                yield from _encode_blocks(run, INTERESTS, rows, first[still] + more)

    def of_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), (held, asked) in _decode_blocks(batches):
            if len(asked):
                yield from emit(run, _with_end(held), join.sort_by_time(asked))

    block = from_arrow_schema(BLOCK_SCHEMA)
    gathered = (
        storage.map_items(spark, wanted, RowGroup, by_subscription, BLOCK_SCHEMA)
        .repartition(min(buckets, 4 * cores), "run", "number")
        .mapInArrow(to_parts, block)
    )
    blocks = gathered.unionAll(storage.map_items(spark, said, RowGroup, by_time, BLOCK_SCHEMA))
    parts = sum(len(each) + 1 for each in edges.values())
    spread = blocks.repartition(parts, "run", "number")
    return spread.mapInArrow(of_part, from_arrow_schema(schema))


def part_edges(said: Sequence[RowGroup]) -> NDArray[np.int64]:
    """The moments at which parts of a run end and others begin: as much is said in each.

    In a trace without order every row group spans the whole run, so its statistics do not tell when
    the run was busy; the moments themselves do, of some row groups as well as of all.
    """
    count = ceil(sum(piece.rows for piece in said) / PUBLICATIONS_PER_PART)
    if count < 2:
        return np.empty(0, np.int64)
    some = said[:: ceil(len(said) / MAX_SAMPLED_GROUPS)]
    t = np.sort(
        np.concatenate([join.column_or_zeros(read_row_group(piece), "t") for piece in some])
    )
    return np.unique(t[len(t) * np.arange(1, count) // count])


def _with_end(held: pa.Table) -> pa.Table:
    return held if "end" in held.column_names else held.append_column("end", held.column("t"))


def _encode_blocks(
    run: str, side: int, rows: pa.Table, number: NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """The rows in blocks, one for each number."""
    order = np.argsort(number.astype(np.uint16), kind="stable")  # of which numpy makes few passes
    ordered = rows if np.all(number[:-1] <= number[1:]) else rows.take(order)
    number = number[order]
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(number)], strict=True):
        block = encode_block(ordered.slice(first, last - first))
        columns = [[run], [int(number[first])], [side], [block]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, field.type) for c, field in zip(columns, BLOCK_SCHEMA, strict=True)],
            schema=BLOCK_SCHEMA,
        )


def _decode_blocks(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, int], tuple[pa.Table, pa.Table]]]:
    """All blocks of a Spark partition, by the part (or bucket) and the side they belong to."""
    found: dict[tuple[str, int], tuple[list[bytes], list[bytes]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            sides = found.setdefault((row["run"], row["number"]), ([], []))
            sides[row["side"]].append(row["block"])
    for key in sorted(found):
        wanted, said = found.pop(key)
        yield (
            key,
            (
                concat_rows([decode_block(block) for block in wanted], "interests"),
                concat_rows([decode_block(block) for block in said], "publications"),
            ),
        )
