"""What subscriptions were told of fences, judged against what happened: told, missed, spurious.

What happened is computed from the recorded states and areas alone (`geofence.fence_replay`), by
entity. An event is told if a subscription was told exactly this: of the same fence, entity, kind
and reason, with the same times. Whatever else was told is spurious, also an event told twice. An
event is missed if it was not told although the subscription stayed for another second, and
`unsettled` if it did not stay so long or the recording ended.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.extras import keep_pandas_out
from nearcast.pipeline.geofence.fence_replay import ExpectedEvent, FenceReplay
from nearcast.pipeline.geofence.fix_sources import ALTITUDE
from nearcast.pipeline.geofence.recorded_fences import FenceHistory, fence_history
from nearcast.pipeline.jobs.delivery import QUANTILES
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import (
    RUN,
    OpenedTrace,
    RowGroup,
    list_row_groups,
    valid_rows,
)
from nearcast.space.motion import FOREVER, SECOND, Time
from nearcast.trace.reader import EARTH, trace_geometry

SETTLED: Time = SECOND  # after so long, whoever stays has been told
EXAMPLES = 10  # of each kind and outcome
AT_ONCE = 100_000  # rows that a task gives away together
# Tables whose last row is the end of what is known of a run.
LASTING = ("publications", "states", "fence_interests", "fence_areas", "fence_events", "notes")

_KEY = [
    pa.field("node", pa.int64()), pa.field("subscription", pa.int64()),
    pa.field("fence", pa.string()), pa.field("entity", pa.int64()), pa.field("kind", pa.string()),
    pa.field("reason", pa.string()), pa.field("event_t", pa.int64()),
    pa.field("out_t", pa.int64()),
]  # fmt: skip
EXPECTED_SCHEMA = pa.schema(
    [RUN, *_KEY, pa.field("decided", pa.int64()), pa.field("until", pa.int64())]
)


class RecordedRun(NamedTuple):
    """Where the fences of a run are recorded, and when the recording ends."""

    interests: list[RowGroup]
    areas: list[RowGroup]
    earth: bool
    until: Time


def expected_fence_events(
    states: DataFrame, publications: DataFrame, traces: Sequence[OpenedTrace]
) -> DataFrame:
    """What subscriptions should have been told: a row for each, with when it was decided."""
    moves = query_sql(
        f"""
        SELECT run, t, node, publication, channel, x, y, z, {ALTITUDE} AS height, attributes, ttl,
               FALSE AS ended
        FROM (SELECT run, publication, ttl FROM {{states}} WHERE NOT ended)
        JOIN {{publications}} USING (run, publication)
        UNION ALL
        SELECT run, t, node, publication, '', 0D, 0D, 0D, NULL, NULL, NULL, TRUE
        FROM {{states}} WHERE ended
        DISTRIBUTE BY run, node
        SORT BY run, t, publication, ended
        """,
        states=states,
        publications=publications,
    )
    runs = recorded_runs(traces)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        for run, some in groupby(_by_run(batches), key=lambda piece: piece[0]):
            if run in runs:
                yield from replay_run(run, runs[run], (batch for _, batch in some))

    return moves.mapInArrow(work, from_arrow_schema(EXPECTED_SCHEMA))


def recorded_runs(traces: Sequence[OpenedTrace]) -> dict[str, RecordedRun]:
    """The runs that can be judged: with fences, and with all their publications."""
    found = {}
    for trace in traces:
        groups = {name: list_row_groups([trace], name)[0] for name in LASTING}
        sampled = trace.scenario is not None and trace.scenario.record in ("sampled", "brief")
        if groups["fence_interests"] and groups["fence_areas"] and not sampled:
            ends = [group.last for some in groups.values() for group in some]
            until = max((t for t in ends if t < FOREVER), default=0)
            found[trace.run] = RecordedRun(
                groups["fence_interests"], groups["fence_areas"],
                trace_geometry(trace.path) == EARTH, until,
            )  # fmt: skip
    return found


def _by_run(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Batches, which come run by run, cut where the run changes."""
    for batch in filter(len, batches):
        for run in pc.unique(batch.column("run")).to_pylist():
            yield run, batch.filter(pc.equal(batch.column("run"), run))


def replay_run(
    run: str, recorded: RecordedRun, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The events of some entities of a run, as rows of EXPECTED_SCHEMA."""
    replay = FenceReplay(_history(run, recorded), recorded.earth)
    for batch in batches:
        replay.take(batch)
        if len(replay.expected) > AT_ONCE:
            yield _rows(run, replay.expected, recorded.until)
            replay.expected.clear()
    replay.finish(recorded.until)
    yield _rows(run, replay.expected, recorded.until)


_histories: dict[tuple[str, str], FenceHistory] = {}  # of this process, the last one


def _history(run: str, recorded: RecordedRun) -> FenceHistory:
    """The fences of a run; a process reads them once."""
    key = run, recorded.interests[0].file
    if key not in _histories:
        _histories.clear()  # before others take their memory
        interests, areas = (pa.concat_tables(map(valid_rows, groups)) for groups in recorded[:2])
        _histories[key] = fence_history(interests, areas)
    return _histories[key]


def _rows(run: str, events: Sequence[ExpectedEvent], until: Time) -> pa.RecordBatch:
    """What is decided later than the end of the recording is not expected."""
    known = [event for event in events if event[-2] <= until]
    columns: list[Any] = list(zip(*known, strict=True)) or [()] * (len(EXPECTED_SCHEMA) - 1)
    *others, ends = columns
    columns = [[run] * len(known), *others, [min(end, until) for end in ends]]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip(columns, EXPECTED_SCHEMA, strict=True)
        ],
        schema=EXPECTED_SCHEMA,
    )


def judged_fence_events(
    states: DataFrame,
    publications: DataFrame,
    fence_events: DataFrame,
    traces: Sequence[OpenedTrace],
) -> DataFrame:
    """Every event that was expected or told, with its outcome; equal ones are paired in order."""
    judged = list(recorded_runs(traces))
    return query_sql(
        """
        WITH listed AS (
            SELECT run, node, subscription, fence, entity, kind, reason, event_t, out_t,
                   decided, until, CAST(NULL AS BIGINT) AS told
            FROM {expected}
            UNION ALL
            SELECT run, node, subscription, fence, entity, kind, reason, event_t, out_t,
                   NULL, NULL, t
            FROM {told}
        ), placed AS (
            SELECT *, row_number() OVER (
                PARTITION BY run, subscription, entity, event_t, kind, node, fence, reason, out_t,
                             told IS NULL
                ORDER BY decided, told
            ) AS place
            FROM listed
        ), pairs AS (
            SELECT run, node, subscription, fence, entity, kind, reason, event_t, out_t,
                   max(decided) AS decided, max(until) AS until, max(told) AS told
            FROM placed
            GROUP BY run, node, subscription, fence, entity, kind, reason, event_t, out_t, place
        )
        SELECT *,
               CASE WHEN decided IS NULL             THEN 'spurious'
                    WHEN told IS NOT NULL            THEN 'told'
                    WHEN decided + {settled} > until THEN 'unsettled'
                    ELSE 'missed' END AS outcome
        FROM pairs
        """,
        expected=expected_fence_events(states, publications, traces),
        told=fence_events.where(fence_events.run.isin(judged)),
        settled=SETTLED,
    )


def fence_totals(judged_fence_events: DataFrame) -> DataFrame:
    """For each kind of event: what was expected, told, missed, spurious, unsettled, and how late.

    `late` is from the event until it was told; `delay` from the moment at which it was decided,
    which is the next fix, or the end of dwell, linger or ttl.
    """
    return query_sql(
        """
        SELECT run, kind,
               count_if(outcome IN ('told', 'missed')) AS expected,
               count_if(outcome = 'told')              AS told,
               count_if(outcome = 'missed')            AS missed,
               count_if(outcome = 'spurious')          AS spurious,
               count_if(outcome = 'unsettled')         AS unsettled,
               percentile(late, 0.5) / 1000            AS late_p50_ms,
               percentile(late, 0.99) / 1000           AS late_p99_ms,
               max(late) / 1000                        AS late_max_ms,
               percentile(delay, 0.5) / 1000           AS delay_p50_ms,
               percentile(delay, 0.99) / 1000          AS delay_p99_ms,
               max(delay) / 1000                       AS delay_max_ms
        FROM (
            SELECT run, kind, outcome,
                   CASE WHEN outcome = 'told' THEN told - event_t END AS late,
                   CASE WHEN outcome = 'told' THEN told - decided END AS delay
            FROM {judged}
        )
        GROUP BY run, kind
        """,
        judged=judged_fence_events,
    )


def fence_lateness(judged_fence_events: DataFrame) -> DataFrame:
    """How late events were told, for runs in which some were: since they happened, and since they
    were decided, each by itself."""
    return query_sql(
        """
        WITH spreads AS (
            SELECT run,
                   percentile(told - event_t, array{quantiles}) AS late,
                   percentile(told - decided, array{quantiles}) AS delay
            FROM {judged}
            WHERE outcome = 'told'
            GROUP BY run
        )
        SELECT run,
               percent / 100         AS quantile,
               late[percent] / 1000  AS late_ms,
               delay[percent] / 1000 AS delay_ms
        FROM spreads LATERAL VIEW explode(sequence(0, 100)) AS percent
        """,
        judged=judged_fence_events,
        quantiles=QUANTILES,
    )


def fence_examples(judged_fence_events: DataFrame) -> DataFrame:
    """Some events of each kind that were missed or spurious, chosen by chance."""
    return query_sql(
        """
        SELECT run, outcome, kind, inline(events)
        FROM (
            SELECT run, outcome, kind,
                   min_by(
                       struct(node, subscription, fence, entity, reason, event_t, out_t, decided,
                              told),
                       struct(xxhash64(subscription, fence, entity, event_t), subscription, fence,
                              entity, event_t, told),
                       {most}
                   ) AS events
            FROM {judged}
            WHERE outcome IN ('missed', 'spurious')
            GROUP BY run, outcome, kind
        )
        """,
        judged=judged_fence_events,
        most=EXAMPLES,
    )
