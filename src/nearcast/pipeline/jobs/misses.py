"""Why publications were missed: the cause of every miss, and the stories of some.

Misses are distributed by time. A task takes those of some seconds, reads from the trace what
concerns them, and applies the rules of `explain.causes`, so `nearcast explain` says the same.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.pipeline.explain.stories import Misses, judge_misses, tell_misses
from nearcast.pipeline.explain.texts import story_lines
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import RUN, OpenedTrace
from nearcast.space.motion import SECOND, Time
from nearcast.storage import AnyPath, locate

SLICE: Time = 10 * SECOND  # misses of so many seconds are judged together
MOST_TOGETHER = 50_000  # unless there are more
STORIES = 5  # of each cause

MISS = [
    pa.field("publication", pa.int64()), pa.field("subscription", pa.int64()),
    pa.field("node", pa.int64()), pa.field("t", pa.int64()),
]  # fmt: skip
JUDGED_SCHEMA = pa.schema([RUN, pa.field("cause", pa.string()), *MISS])
STORY_SCHEMA = pa.schema([*JUDGED_SCHEMA, pa.field("story", pa.string())])
# The trace, its misses, and the first and last moment of their publications -> a column of texts.
Answer = Callable[[AnyPath, Misses, Time, Time], list[str]]


def judged_misses(pairs: DataFrame, traces: Sequence[OpenedTrace]) -> DataFrame:
    """Every miss with its most likely cause."""
    missed = query_sql(
        """
        SELECT run, '' AS cause, publication, subscription, node, t
        FROM {pairs}
        WHERE outcome = 'missed'
        DISTRIBUTE BY run, floor(t / {slice})
        SORT BY run, t, publication, subscription
        """,
        pairs=pairs,
        slice=SLICE,
    )
    paths = {trace.run: trace.path for trace in traces}

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run, misses in _together(batches):
            causes = pa.array(_answer(paths[run], misses, _causes), pa.string())
            place = misses.schema.get_field_index("cause")
            judged = misses.set_column(place, JUDGED_SCHEMA.field("cause"), causes)
            yield from judged.cast(JUDGED_SCHEMA).to_batches()

    return missed.mapInArrow(judge, from_arrow_schema(JUDGED_SCHEMA))


def miss_causes(judged_misses: DataFrame) -> DataFrame:
    """How many misses of which cause."""
    return query_sql(
        "SELECT run, cause, count(*) AS misses FROM {judged} GROUP BY run, cause",
        judged=judged_misses,
    )


def miss_stories(judged_misses: DataFrame, traces: Sequence[OpenedTrace]) -> DataFrame:
    """Some misses of each cause, chosen by chance, and what the trace tells of them."""
    some = query_sql(
        """
        SELECT run, cause, inline(misses)
        FROM (
            SELECT run, cause,
                   min_by(
                       struct(publication, subscription, node, t),
                       struct(xxhash64(publication, subscription), publication, subscription),
                       {most}
                   ) AS misses
            FROM {judged}
            GROUP BY run, cause
        )
        DISTRIBUTE BY run, floor(t / {slice})
        SORT BY run, t, publication, subscription
        """,
        judged=judged_misses,
        most=STORIES,
        slice=SLICE,
    )
    paths = {trace.run: trace.path for trace in traces}

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run, misses in _together(batches):
            stories = pa.array(_answer(paths[run], misses, _stories), pa.string())
            told = misses.append_column(STORY_SCHEMA.field("story"), stories)
            yield from told.cast(STORY_SCHEMA).to_batches()

    return some.mapInArrow(tell, from_arrow_schema(STORY_SCHEMA))


def _causes(trace: AnyPath, misses: Misses, low: Time, high: Time) -> list[str]:
    return [one.cause for one in judge_misses(trace, misses, low, high)]


def _stories(trace: AnyPath, misses: Misses, low: Time, high: Time) -> list[str]:
    return ["\n".join(story_lines(one)) for one in tell_misses(trace, misses, low, high)]


def _answer(path: str, misses: pa.Table, answer: Answer) -> list[str]:
    t = misses.column("t").to_numpy()
    columns = (misses.column(name).to_pylist() for name in ("publication", "subscription"))
    return answer(locate(path), Misses(*columns), int(t.min()), int(t.max()))


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """The misses of a task, sorted by run and time, in pieces of one run and one slice of time."""
    waiting: list[pa.RecordBatch] = []
    key: tuple[str, int] | None = None
    for each, piece in _pieces(batches):
        if waiting and (each != key or sum(map(len, waiting)) + len(piece) > MOST_TOGETHER):
            assert key is not None
            yield key[0], pa.Table.from_batches(waiting)
            waiting = []
        key = each
        waiting.append(piece)
    if waiting:
        assert key is not None
        yield key[0], pa.Table.from_batches(waiting)


def _pieces(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Batches, cut where the run or the slice changes."""
    for batch in batches:
        keys = zip(
            batch.column("run").to_pylist(),
            (batch.column("t").to_numpy() // SLICE).tolist(),
            strict=True,
        )
        place = 0
        for key, some in groupby(keys):
            count = sum(1 for _ in some)
            yield key, batch.slice(place, count)
            place += count
