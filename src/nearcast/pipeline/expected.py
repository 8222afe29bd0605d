"""Who should have heard what: the exact join of publications and interests, on Spark.

Parts are cut by time, so that a publication lives in one part and needs no de-duplication. Two ways
lead to a part's interests, and both end in the same kernel (`join`):

- *nearby*: the part's task reads, besides its publications, all interest rows up to its end. No row
  passes through the JVM and nothing is shuffled. Right while the parts are few.
- *shuffled*: interests are gathered by subscription to learn how long each row holds, then sent, as
  blocks of columns, to every part in which they are in force; publications likewise. Spark's own
  shuffle carries the blocks, so a lost executor costs nothing but time. Right for long traces, in
  which each part would read far more interests than it needs.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.pipeline import join, lake
from nearcast.pipeline.lake import RUN, Piece, Trace
from nearcast.space.motion import FOREVER
from nearcast.trace.schema import TABLES

Way: TypeAlias = Literal["nearby", "shuffled"]
# From a run, its spans of interest and its publications in order of time to rows of the answer.
Emit: TypeAlias = Callable[[str, pa.Table, pa.Table], Iterator[pa.RecordBatch]]

PART = 400_000  # publications per part: seconds of work, tens of megabytes
READ_AGAIN = 4  # nearby may read the interests so often; beyond that a shuffle is cheaper
GATHERED = 1_000_000  # interest rows that one task brings into order
INTERESTS, PUBLICATIONS = 0, 1  # the sides of a block

PAIRS = pa.schema([RUN, pa.field("publication", pa.int64()), pa.field("subscription", pa.int64())])
BLOCK = pa.schema(
    [
        RUN,
        pa.field("number", pa.int64()),
        pa.field("side", pa.int64()),
        pa.field("block", pa.binary()),
    ]
)
COUNTS = pa.schema([RUN, pa.field("publication", pa.int64()), pa.field("interested", pa.int64())])


class Part(Struct, frozen=True):
    """The publications of a run made in [begin, end), and where to find what concerns them."""

    run: str
    begin: int
    end: int
    publications: list[Piece]
    interests: list[Piece]


def expected(spark: SparkSession, traces: Sequence[Trace], way: Way | None = None) -> DataFrame:
    """Every (run, publication, subscription) that should have been, once."""
    return _joined(spark, traces, way, pairs_of, PAIRS)


def interested(spark: SparkSession, traces: Sequence[Trace], way: Way | None = None) -> DataFrame:
    """How many subscriptions each publication should have reached: counted, no pair emitted."""
    return _joined(spark, traces, way, counts_of, COUNTS)


def pairs_of(run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column(said, "publication")
    for which, subscription in join.join(held, said):
        runs = pa.array([run]).take(pa.array(np.zeros(len(which), np.int8)))
        yield pa.RecordBatch.from_arrays([runs, ids[which], subscription], schema=PAIRS)


def counts_of(run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column(said, "publication")
    total = np.zeros(len(ids), np.int64)
    for which, _ in join.join(held, said):
        total += np.bincount(which, minlength=len(ids))
    runs = pa.array([run] * len(ids), pa.string())
    yield pa.RecordBatch.from_arrays([runs, ids, total], schema=COUNTS)


def _joined(
    spark: SparkSession, traces: Sequence[Trace], way: Way | None, emit: Emit, schema: pa.Schema
) -> DataFrame:
    parts = plan(spark, traces)
    if way is None:
        read = sum(piece.rows for part in parts for piece in part.interests)
        once = sum(piece.rows for piece in lake.pieces(traces, "interests")[0])
        way = "nearby" if read <= READ_AGAIN * once else "shuffled"
    if way == "shuffled":
        return _shuffled(spark, traces, parts, emit, schema)

    def work(part: Part) -> Iterator[pa.RecordBatch]:
        yield from emit(part.run, *read_part(part))

    return lake.mapped(spark, parts, Part, work, schema)


def plan(spark: SparkSession, traces: Sequence[Trace]) -> list[Part]:
    """Cut each run's time such that parts hold about as many publications each."""
    said, _ = lake.pieces(traces, "publications")
    wanted, _ = lake.pieces(traces, "interests")
    cores = spark.sparkContext.defaultParallelism
    parts: list[Part] = []
    for trace in traces:
        mine = [piece for piece in said if piece.run == trace.run]
        interests = [piece for piece in wanted if piece.run == trace.run]
        total = sum(piece.rows for piece in mine)
        count = max(1, ceil(total / PART), min(cores, total // 20_000))
        for begin, end in cuts(mine, count):
            said_then = [p for p in mine if p.first < end and p.last >= begin]
            wanted_by_then = [p for p in interests if p.first < end]
            parts.append(Part(trace.run, begin, end, said_then, wanted_by_then))
    return parts


def cuts(publications: Sequence[Piece], count: int) -> list[tuple[int, int]]:
    """Spans of time with about equally many publications, judged by the row groups' statistics."""
    if not publications:
        return [(-FOREVER, FOREVER)]
    # Within a row group, publications are taken as evenly spread over its time.
    moments = np.concatenate([np.linspace(p.first, p.last, 33) for p in publications])
    weights = np.concatenate([np.full(33, p.rows / 33) for p in publications])
    order = np.argsort(moments, kind="stable")
    reached = np.cumsum(weights[order])
    inner = [
        int(moments[order][np.searchsorted(reached, reached[-1] * k / count)])
        for k in range(1, count)
    ]
    edges = [-FOREVER, *sorted(set(inner)), FOREVER]
    return list(pairwise(edges))


def read_part(part: Part) -> tuple[pa.Table, pa.Table]:
    """The interests in force and the publications of a part, these in order of time."""
    said = _together([lake.sound_rows(piece) for piece in part.publications], "publications")
    t = join.column(said, "t")
    said = in_order(said.filter(pa.array((t >= part.begin) & (t < part.end))))
    wanted = _together([lake.sound_rows(piece) for piece in part.interests], "interests")
    return join.spans(wanted, part.begin, part.end), said


def in_order(publications: pa.Table) -> pa.Table:
    t, publication = join.column(publications, "t"), join.column(publications, "publication")
    return publications.take(np.lexsort((publication, t)))


def _together(tables: list[pa.Table], name: str) -> pa.Table:
    return pa.concat_tables(tables) if tables else TABLES[name].empty_table()


# The shuffled way: blocks of columns, as binary cells.


def _shuffled(
    spark: SparkSession, traces: Sequence[Trace], parts: list[Part], emit: Emit, schema: pa.Schema
) -> DataFrame:
    edges = {t.run: [(p.begin, p.end) for p in parts if p.run == t.run] for t in traces}
    wanted, _ = lake.pieces(traces, "interests")
    said, _ = lake.pieces(traces, "publications")
    buckets = max(1, ceil(sum(piece.rows for piece in wanted) / GATHERED))
    cores = spark.sparkContext.defaultParallelism

    def by_subscription(piece: Piece) -> Iterator[pa.RecordBatch]:
        rows = lake.sound_rows(piece)
        bucket = join.column(rows, "subscription") % buckets
        for number in np.unique(bucket).tolist():
            yield _block(piece.run, number, INTERESTS, rows.filter(pa.array(bucket == number)))

    def by_time(piece: Piece) -> Iterator[pa.RecordBatch]:
        rows = lake.sound_rows(piece)
        t = join.column(rows, "t")
        for number, (begin, end) in enumerate(edges[piece.run]):
            mine = (t >= begin) & (t < end)
            if mine.any():
                yield _block(piece.run, number, PUBLICATIONS, rows.filter(pa.array(mine)))

    def to_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), tables in _gathered(batches).items():
            held = join.spans(pa.concat_tables(tables[INTERESTS]))
            t, until = join.column(held, "t"), join.column(held, "end")
            for number, (begin, end) in enumerate(edges[run]):
                in_force = (t < end) & (until > begin)
                if in_force.any():
                    yield _block(run, number, INTERESTS, held.filter(pa.array(in_force)))

    def of_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), tables in _gathered(batches).items():
            if tables[INTERESTS] and tables[PUBLICATIONS]:
                said = in_order(pa.concat_tables(tables[PUBLICATIONS]))
                yield from emit(run, pa.concat_tables(tables[INTERESTS]), said)
            elif tables[PUBLICATIONS]:
                empty = TABLES["interests"].empty_table()
                yield from emit(run, join.spans(empty), in_order(pa.concat_tables(tables[1])))

    block = from_arrow_schema(BLOCK)
    gathered = (
        lake.mapped(spark, wanted, Piece, by_subscription, BLOCK)
        .repartition(min(buckets, 4 * cores), "run", "number")
        .mapInArrow(to_parts, block)
    )
    blocks = gathered.unionAll(lake.mapped(spark, said, Piece, by_time, BLOCK))
    spread = blocks.repartition(max(1, len(parts)), "run", "number")
    return spread.mapInArrow(of_part, from_arrow_schema(schema))


def _block(run: str, number: int, side: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    columns = [[run], [number], [side], [sink.getvalue().to_pybytes()]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, field.type) for c, field in zip(columns, BLOCK, strict=True)], schema=BLOCK
    )


def _gathered(
    batches: Iterator[pa.RecordBatch],
) -> dict[tuple[str, int], tuple[list[pa.Table], list[pa.Table]]]:
    """All blocks of a Spark partition, by the part (or bucket) and the side they belong to."""
    found: dict[tuple[str, int], tuple[list[pa.Table], list[pa.Table]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            sides = found.setdefault((row["run"], row["number"]), ([], []))
            sides[row["side"]].append(pa.ipc.open_stream(row["block"]).read_all())
    return found
