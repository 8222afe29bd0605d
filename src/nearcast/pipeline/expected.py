"""Who should have heard what: the exact join of publications and interests, on Spark.

Parts are cut by time, so that a publication lives in one part and needs no de-duplication. Two ways
lead to a part's interests, and both end in the same kernel (`join`):

- *nearby*: the part's task reads, besides its publications, all interest rows up to its end. No row
  passes through the JVM and nothing is shuffled. Right while the parts are few.
- *shuffled*: interests are gathered by subscription to learn how long each row holds, then sent, as
  blocks of columns, to every part in which they are in force; publications likewise. Spark's own
  shuffle carries the blocks, so lost executors cost nothing but time. Right for very long traces.

A part that would hold too many publications at one time is cut in space too, by quantiles of x.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from nearcast.pipeline import join, lake
from nearcast.pipeline.lake import RUN, Piece, Trace
from nearcast.space.motion import FOREVER
from nearcast.trace.schema import TABLES

Way: TypeAlias = Literal["nearby", "shuffled"]

PART = 400_000  # publications per part: seconds of work, tens of megabytes
READ_AGAIN = 4  # nearby may read the interests so often; beyond that a shuffle is cheaper

PAIRS = pa.schema([RUN, pa.field("publication", pa.int64()), pa.field("subscription", pa.int64())])
COUNTS = pa.schema([RUN, pa.field("publication", pa.int64()), pa.field("interested", pa.int64())])


class Part(Struct, frozen=True):
    """The publications of a run made in [begin, end), and where to find what concerns them."""

    run: str
    begin: int
    end: int
    publications: list[Piece]
    interests: list[Piece]


def expected(spark: SparkSession, traces: Sequence[Trace]) -> DataFrame:
    """Every (run, publication, subscription) that should have been, once."""

    def pairs(part: Part) -> Iterator[pa.RecordBatch]:
        held, said = read_part(part)
        ids = join.column(said, "publication")
        for which, subscription in join.join(held, said):
            runs = pa.array([part.run]).take(pa.array(np.zeros(len(which), np.int8)))
            yield pa.RecordBatch.from_arrays([runs, ids[which], subscription], schema=PAIRS)

    return lake.mapped(spark, plan(spark, traces), Part, pairs, PAIRS)


def interested(spark: SparkSession, traces: Sequence[Trace]) -> DataFrame:
    """How many subscriptions each publication should have reached: counted, no pair emitted."""

    def counts(part: Part) -> Iterator[pa.RecordBatch]:
        held, said = read_part(part)
        ids = join.column(said, "publication")
        total = np.zeros(len(ids), np.int64)
        for which, _ in join.join(held, said):
            total += np.bincount(which, minlength=len(ids))
        runs = pa.array([part.run] * len(ids), pa.string())
        yield pa.RecordBatch.from_arrays([runs, ids, total], schema=COUNTS)

    return lake.mapped(spark, plan(spark, traces), Part, counts, COUNTS)


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
    said = said.filter(pa.array((t >= part.begin) & (t < part.end)))
    order = np.lexsort((join.column(said, "publication"), join.column(said, "t")))
    said = said.take(order)
    wanted = _together([lake.sound_rows(piece) for piece in part.interests], "interests")
    return join.spans(wanted, part.begin, part.end), said


def _together(tables: list[pa.Table], name: str) -> pa.Table:
    return pa.concat_tables(tables) if tables else TABLES[name].empty_table()
