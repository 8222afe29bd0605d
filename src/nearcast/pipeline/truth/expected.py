"""The expected deliveries of traces: the exact join of publications and interests, on Spark.

A run is cut into parts by time. Each publication is in exactly one part, so no pair is found twice.
There are two strategies to bring the interests to a part; both end in the same kernel (`join`):

- *direct*: as many parts as cores. The task of a part reads the row groups of its time range, and
  first finds in earlier row groups which interests are still in force. No row passes through the
  JVM and nothing is shuffled. This suits traces in time order, which all recorders write.
- *shuffle*: interests are grouped by subscription to find out when each row ends. They are then
  sent, as encoded blocks, to every part in which they are in force; publications are sent likewise.
  Spark's shuffle carries the blocks, so a lost executor costs only time. This suits traces without
  time order, and clusters with so many cores that each would read far more interests than it needs.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.session import parallel_tasks
from nearcast.pipeline.spark.storage import RUN, OpenedTrace, RowGroup
from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.block_codec import block_cell, decode_block
from nearcast.pipeline.truth.partitioning import TracePart, read_chunks, split_along_x, split_times
from nearcast.pipeline.truth.row_groups import concat_rows, read_row_group

JoinStrategy: TypeAlias = Literal["direct", "shuffle"]
# (run, interest spans, publications in time order) -> rows of the result.
EmitRows: TypeAlias = Callable[[str, pa.Table, pa.Table], Iterator[pa.RecordBatch]]

PUBLICATIONS_PER_PART = 400_000  # with "shuffle": seconds of work, tens of megabytes
MIN_PUBLICATIONS_PER_PART = 20_000  # with "direct": a smaller part costs more than it saves
MAX_READS = 4  # "direct" may read the average row so often; beyond that a shuffle is cheaper
MAX_READS_IN_ORDER = 1.5  # reads of the average publication if row groups are in time order
MAX_SAMPLED_GROUPS = 16  # row groups that are read to choose the edges of parts
INTERESTS_PER_BUCKET = 1_000_000  # interest rows that one task sorts
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


def expected_deliveries(
    spark: SparkSession, traces: Sequence[OpenedTrace], strategy: JoinStrategy | None = None
) -> DataFrame:
    """Every (run, publication, subscription) that should have been delivered, once."""
    return run_join(spark, traces, strategy, emit_pairs, PAIR_SCHEMA)


def emit_pairs(run: str, spans: pa.Table, publications: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column_or_zeros(publications, "publication")
    for which, subscription in join.find_pairs(spans, publications):
        runs = pa.repeat(run, len(which))
        yield pa.RecordBatch.from_arrays([runs, ids[which], subscription], schema=PAIR_SCHEMA)


def run_join(
    spark: SparkSession,
    traces: Sequence[OpenedTrace],
    strategy: JoinStrategy | None,
    emit: EmitRows,
    schema: pa.Schema,
) -> DataFrame:
    """The rows that `emit` makes from the spans and publications of each part."""
    parts = plan_parts(spark, traces)
    if (strategy or choose_strategy(parts)) == "shuffle":
        return _join_by_shuffle(spark, traces, emit, schema)

    def work(part: TracePart) -> Iterator[pa.RecordBatch]:
        for spans, publications in read_chunks(part):
            yield from emit(part.run, spans, publications)

    return storage.map_items(spark, parts, TracePart, work, schema)


def plan_parts(spark: SparkSession, traces: Sequence[OpenedTrace]) -> list[TracePart]:
    """Cut each run by time into parts with about the same number of publications."""
    publications, _ = storage.list_row_groups(traces, "publications")
    interests, _ = storage.list_row_groups(traces, "interests")
    cores = parallel_tasks(spark)
    parts: list[TracePart] = []
    for trace in traces:
        published = [group for group in publications if group.run == trace.run]
        rows = sum(group.rows for group in published)
        count = max(1, min(cores, rows // MIN_PUBLICATIONS_PER_PART))
        times = split_times(published, count)
        for begin, end in times:
            inside = [p for p in published if p.first < end and p.last >= begin]
            earlier = [p for p in interests if p.run == trace.run and p.first < end]
            parts += [
                TracePart(trace.run, begin, end, inside, earlier, low, high)
                for low, high in split_along_x(inside, ceil(count / len(times)))
            ]
    return parts


def choose_strategy(parts: Sequence[TracePart]) -> JoinStrategy:
    """ "direct", unless tasks would read the same rows too often."""
    everything = [group for part in parts for group in (*part.publications, *part.interests)]
    # Parts of the same time share row groups. Parts of different times do so only without order.
    times = {(part.run, part.begin): part.publications for part in parts}
    publications = [group for groups in times.values() for group in groups]
    large = sum(group.rows for group in publications) > 4 * PUBLICATIONS_PER_PART
    if _reads_per_row(everything) > MAX_READS or (
        large and _reads_per_row(publications) > MAX_READS_IN_ORDER
    ):
        return "shuffle"
    return "direct"


def _reads_per_row(groups: Sequence[RowGroup]) -> float:
    """How often the average row is read if every task reads all its row groups."""
    once = {(group.file, group.row_group): group.rows for group in groups}
    return sum(group.rows for group in groups) / max(1, sum(once.values()))


# The strategy "shuffle".


def _join_by_shuffle(
    spark: SparkSession, traces: Sequence[OpenedTrace], emit: EmitRows, schema: pa.Schema
) -> DataFrame:
    interests, _ = storage.list_row_groups(traces, "interests")
    publications, _ = storage.list_row_groups(traces, "publications")
    edges = {
        trace.run: part_edges([p for p in publications if p.run == trace.run]) for trace in traces
    }
    buckets = max(1, ceil(sum(group.rows for group in interests) / INTERESTS_PER_BUCKET))
    cores = parallel_tasks(spark)

    def by_subscription(group: RowGroup) -> Iterator[pa.RecordBatch]:
        rows = read_row_group(group)
        yield from _encode_blocks(
            group.run, INTERESTS, rows, join.column_or_zeros(rows, "subscription") % buckets
        )

    def by_time(group: RowGroup) -> Iterator[pa.RecordBatch]:
        rows = read_row_group(group)
        part = np.searchsorted(edges[group.run], join.column_or_zeros(rows, "t"), "right")
        yield from _encode_blocks(group.run, PUBLICATIONS, rows, part)

    def to_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), (interests, _) in _decode_blocks(batches):
            spans = join.interest_spans(interests)
            t, until = join.column_or_zeros(spans, "t"), join.column_or_zeros(spans, "end")
            first = np.searchsorted(edges[run], t, "right")
            last = np.searchsorted(edges[run], until - 1, "right")
            for more in range(int((last - first).max(initial=0)) + 1):
                still = np.flatnonzero(first + more <= last)
                rows = spans if len(still) == len(spans) else spans.take(still)
                yield from _encode_blocks(run, INTERESTS, rows, first[still] + more)

    def join_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), (spans, publications) in _decode_blocks(batches):
            if len(publications):
                yield from emit(run, _with_end(spans), join.sort_by_time(publications))

    block = from_arrow_schema(BLOCK_SCHEMA)
    grouped = storage.map_items(spark, interests, RowGroup, by_subscription, BLOCK_SCHEMA)
    spans = _distribute(grouped, min(buckets, 4 * cores)).mapInArrow(to_parts, block)
    blocks = spans.unionAll(storage.map_items(spark, publications, RowGroup, by_time, BLOCK_SCHEMA))
    by_part = _distribute(blocks, sum(len(each) + 1 for each in edges.values()))
    return by_part.mapInArrow(join_part, from_arrow_schema(schema))


def _distribute(blocks: DataFrame, partitions: int) -> DataFrame:
    """Blocks of one number together. By their hashes, some partitions would get several numbers
    and a third of them none."""
    place = expr(f"CAST(pmod(hash(run) + number, {partitions}) AS INT)")
    return blocks.repartitionById(partitions, place)


def part_edges(publications: Sequence[RowGroup]) -> NDArray[np.int64]:
    """The times at which a run is cut into parts with about equally many publications.

    Without time order every row group spans the whole run, so its statistics do not tell when the
    run was busy. Therefore the times themselves are read, from a sample of the row groups. These
    are chosen in order of time: in files that are each in order, every eighth may be the first.
    """
    count = ceil(sum(group.rows for group in publications) / PUBLICATIONS_PER_PART)
    if count < 2:
        return np.empty(0, np.int64)
    in_order = sorted(publications, key=lambda group: group.first + group.last)
    every = ceil(len(in_order) / MAX_SAMPLED_GROUPS)
    some = in_order[every // 2 :: every]
    t = np.sort(
        np.concatenate([join.column_or_zeros(read_row_group(group), "t") for group in some])
    )
    return np.unique(t[len(t) * np.arange(1, count) // count])


def _with_end(spans: pa.Table) -> pa.Table:
    """The spans. A part without any has an empty table of interests, which lacks `end`."""
    return spans if "end" in spans.column_names else spans.append_column("end", spans.column("t"))


def _encode_blocks(
    run: str, side: int, rows: pa.Table, number: NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """One encoded block for each distinct `number`, which is that of a bucket or part."""
    order = np.argsort(number.astype(np.uint16), kind="stable")  # numpy: a radix sort, few passes
    ordered = rows if np.all(number[:-1] <= number[1:]) else rows.take(order)
    number = number[order]
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(number)], strict=True):
        cell = block_cell(ordered.slice(first, last - first))
        columns = [pa.array([run]), pa.array([int(number[first])]), pa.array([side]), cell]
        yield pa.RecordBatch.from_arrays(columns, schema=BLOCK_SCHEMA)


def _decode_blocks(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, int], tuple[pa.Table, pa.Table]]]:
    """For each (run, bucket or part) of a Spark partition: its interests and its publications."""
    found: dict[tuple[str, int], tuple[list[pa.Buffer], list[pa.Buffer]]] = {}
    for batch in batches:
        rows = batch.drop_columns(["block"]).to_pylist()
        for row, block in zip(rows, batch.column("block"), strict=True):
            sides = found.setdefault((row["run"], row["number"]), ([], []))
            sides[row["side"]].append(block.as_buffer())
    for key in sorted(found):
        interests, publications = found.pop(key)
        yield (
            key,
            (
                concat_rows([decode_block(block) for block in interests], "interests"),
                concat_rows([decode_block(block) for block in publications], "publications"),
            ),
        )
