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
from nearcast.pipeline.spark.storage import RUN, Piece, Trace
from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.block_codec import packed, unpacked
from nearcast.pipeline.truth.partitioning import Part, chunks, cuts, stripes
from nearcast.pipeline.truth.row_groups import read, together

Way: TypeAlias = Literal["nearby", "shuffled"]
# From a run, its spans of interest and its publications in order of time to rows of the answer.
Emit: TypeAlias = Callable[[str, pa.Table, pa.Table], Iterator[pa.RecordBatch]]

PART = 400_000  # publications per part of the shuffled way: seconds of work, tens of megabytes
FEW = 20_000  # publications for which another part is not worth its while
READ_AGAIN = 4  # nearby may read the trace so often; beyond that a shuffle is cheaper
IN_ORDER = 1.5  # readings of the average publication, at most, if row groups are in order of time
SAMPLED = 16  # row groups, at most, that are asked for the moments at which parts are cut
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


def expected(spark: SparkSession, traces: Sequence[Trace], way: Way | None = None) -> DataFrame:
    """Every (run, publication, subscription) that should have been, once."""
    return joined(spark, traces, way, pairs_of, PAIRS)


def interested(spark: SparkSession, traces: Sequence[Trace], way: Way | None = None) -> DataFrame:
    """How many subscriptions each publication should have reached: counted, no pair emitted."""
    return joined(spark, traces, way, counts_of, COUNTS)


def pairs_of(run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column(said, "publication")
    for which, subscription in join.join(held, said):
        runs = pa.repeat(run, len(which))
        yield pa.RecordBatch.from_arrays([runs, ids[which], subscription], schema=PAIRS)


def counts_of(run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids = join.column(said, "publication")
    total = np.zeros(len(ids), np.int64)
    for which, _ in join.join(held, said):
        total += np.bincount(which, minlength=len(ids))
    yield pa.RecordBatch.from_arrays([pa.repeat(run, len(ids)), ids, total], schema=COUNTS)


def joined(
    spark: SparkSession, traces: Sequence[Trace], way: Way | None, emit: Emit, schema: pa.Schema
) -> DataFrame:
    """What `emit` makes of the join, part by part."""
    parts = plan(spark, traces)
    if (way or choose(parts)) == "shuffled":
        return _shuffled(spark, traces, emit, schema)

    def work(part: Part) -> Iterator[pa.RecordBatch]:
        for held, said in chunks(part):
            yield from emit(part.run, held, said)

    return storage.mapped(spark, parts, Part, work, schema)


def plan(spark: SparkSession, traces: Sequence[Trace]) -> list[Part]:
    """Cut each run's time such that parts have about as much to do each."""
    said, _ = storage.pieces(traces, "publications")
    wanted, _ = storage.pieces(traces, "interests")
    cores = spark.sparkContext.defaultParallelism
    parts: list[Part] = []
    for trace in traces:
        mine = [piece for piece in said if piece.run == trace.run]
        interests = [piece for piece in wanted if piece.run == trace.run]
        count = max(1, min(cores, sum(piece.rows for piece in mine) // FEW))
        times = cuts(mine, count)
        for begin, end in times:
            said_then = [p for p in mine if p.first < end and p.last >= begin]
            wanted_by_then = [p for p in interests if p.first < end]
            parts += [
                Part(trace.run, begin, end, said_then, wanted_by_then, low, high)
                for low, high in stripes(said_then, ceil(count / len(times)))
            ]
    return parts


def choose(parts: Sequence[Part]) -> Way:
    """Nearby, unless tasks would read far too much, or too much at once."""
    everything = [piece for part in parts for piece in (*part.publications, *part.interests)]
    # Stripes of one time share their row groups; times share them only if there is no order.
    times = {(part.run, part.begin): part.publications for part in parts}
    said = [piece for pieces in times.values() for piece in pieces]
    large = sum(piece.rows for piece in said) > 4 * PART
    if _reads(everything) > READ_AGAIN or (large and _reads(said) > IN_ORDER):
        return "shuffled"
    return "nearby"


def _reads(pieces: Sequence[Piece]) -> float:
    """How often, at worst, the average row is read."""
    once = {(piece.file, piece.row_group): piece.rows for piece in pieces}
    return sum(piece.rows for piece in pieces) / max(1, sum(once.values()))


# The shuffled way: blocks of columns, as binary cells.


def _shuffled(
    spark: SparkSession, traces: Sequence[Trace], emit: Emit, schema: pa.Schema
) -> DataFrame:
    wanted, _ = storage.pieces(traces, "interests")
    said, _ = storage.pieces(traces, "publications")
    edges = {trace.run: edges_of([p for p in said if p.run == trace.run]) for trace in traces}
    buckets = max(1, ceil(sum(piece.rows for piece in wanted) / GATHERED))
    cores = spark.sparkContext.defaultParallelism

    def by_subscription(piece: Piece) -> Iterator[pa.RecordBatch]:
        rows = read(piece)
        yield from _sent(piece.run, INTERESTS, rows, join.column(rows, "subscription") % buckets)

    def by_time(piece: Piece) -> Iterator[pa.RecordBatch]:
        rows = read(piece)
        part = np.searchsorted(edges[piece.run], join.column(rows, "t"), "right")
        yield from _sent(piece.run, PUBLICATIONS, rows, part)

    def to_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), (wanted, _) in _gathered(batches):
            held = join.spans(wanted)
            t, until = join.column(held, "t"), join.column(held, "end")
            first = np.searchsorted(edges[run], t, "right")
            last = np.searchsorted(edges[run], until - 1, "right")
            for more in range(int((last - first).max(initial=0)) + 1):
                still = np.flatnonzero(first + more <= last)
                rows = held if len(still) == len(held) else held.take(still)
                yield from _sent(run, INTERESTS, rows, first[still] + more)

    def of_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (run, _), (held, asked) in _gathered(batches):
            if len(asked):
                yield from emit(run, _with_end(held), join.in_order(asked))

    block = from_arrow_schema(BLOCK)
    gathered = (
        storage.mapped(spark, wanted, Piece, by_subscription, BLOCK)
        .repartition(min(buckets, 4 * cores), "run", "number")
        .mapInArrow(to_parts, block)
    )
    blocks = gathered.unionAll(storage.mapped(spark, said, Piece, by_time, BLOCK))
    parts = sum(len(each) + 1 for each in edges.values())
    spread = blocks.repartition(parts, "run", "number")
    return spread.mapInArrow(of_part, from_arrow_schema(schema))


def edges_of(said: Sequence[Piece]) -> NDArray[np.int64]:
    """The moments at which parts of a run end and others begin: as much is said in each.

    In a trace without order every row group spans the whole run, so its statistics do not tell when
    the run was busy; the moments themselves do, of some row groups as well as of all.
    """
    count = ceil(sum(piece.rows for piece in said) / PART)
    if count < 2:
        return np.empty(0, np.int64)
    some = said[:: ceil(len(said) / SAMPLED)]
    t = np.sort(np.concatenate([join.column(read(piece), "t") for piece in some]))
    return np.unique(t[len(t) * np.arange(1, count) // count])


def _with_end(held: pa.Table) -> pa.Table:
    return held if "end" in held.column_names else held.append_column("end", held.column("t"))


def _sent(
    run: str, side: int, rows: pa.Table, number: NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """The rows in blocks, one for each number."""
    order = np.argsort(number.astype(np.uint16), kind="stable")  # of which numpy makes few passes
    ordered = rows if np.all(number[:-1] <= number[1:]) else rows.take(order)
    number = number[order]
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(number)], strict=True):
        block = packed(ordered.slice(first, last - first))
        columns = [[run], [int(number[first])], [side], [block]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, field.type) for c, field in zip(columns, BLOCK, strict=True)], schema=BLOCK
        )


def _gathered(
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
                together([unpacked(block) for block in wanted], "interests"),
                together([unpacked(block) for block in said], "publications"),
            ),
        )
