"""Jobs for the measures of [VSO], by second since the workload began.

True positions are first recorded when the workload begins. A node is a matcher from its note
`matcher` until it resigns, leaves or crashes. A second counts for the role that the node has in its
middle. Bandwidths are over the last third of a run, at most its last MEASURED_S seconds, when all
nodes have joined and matchers have settled; messages count in the second in which they are sent.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.jobs.overlay import ownership
from nearcast.pipeline.spark.sql import query_sql
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.vso.messages import (
    Cast,
    Notify,
    Post,
    RecordCopies,
    RegionUpdate,
    RegionUpdates,
    ReplicaMatch,
)
from nearcast_papers.voronoi.scenarios import LIMIT, MEASURED_S

# Bytes that VAST writes: to tell a client about one neighbour in one step, for an area that has
# moved (id and area), and for a whole subscription. It counts 4 more for the head of a message.
VAST_NEIGHBOUR, VAST_MOVE, VAST_SUBSCRIPTION = 36, 24, 58
# Of a message of ours that lists such entries: bytes of its head, and of each.
LIST_HEAD, LISTED_MOVE, LISTED_RECORD = 5, 136, 156

BOUNDS = """
    bounds AS (
        SELECT run, begin, floor((last - begin) / 1e6) AS seconds
        FROM (SELECT run, min(t) AS begin FROM {positions} GROUP BY run)
        JOIN (SELECT run, max(t) AS last FROM {publications} GROUP BY run) USING (run)
    )"""


def _spells(name: str, begins: str, ends: str) -> str:
    """Each second in whose middle a node is between one kind of note and the next of the others."""
    return f"""
    {name} AS (
        SELECT run, node, explode(sequence(first, last)) AS second
        FROM (
            SELECT /*+ BROADCAST(bounds) */
                   run, node, fact,
                   CAST(greatest(ceil((t - begin) / 1e6 - 0.5), 0) AS INT) AS first,
                   CAST(least(
                       coalesce(floor((until - begin) / 1e6 - 0.5), seconds), seconds - 1
                   ) AS INT) AS last
            FROM (
                SELECT run, node, t, fact,
                       lead(t) OVER (PARTITION BY run, node ORDER BY t) AS until
                FROM {{notes}}
                WHERE fact IN ('{begins}', {ends})
            ) JOIN bounds USING (run)
        )
        WHERE fact = '{begins}' AND first <= last
    )"""


MATCHING = _spells("matching", "matcher", "'resigned', 'left', 'crashed'")
PRESENT = _spells("present", "joined", "'left', 'crashed'")

# What each node sent and received in each second, and whether it was a matcher then; `late` seconds
# are those that are measured. Likewise `vast_` with notifications as long as VAST's, and `program_`
# with what VAST sends at all: a position is the centre of a subscription, so owners find it in
# their copies, and nobody posts or forwards a publication at a point.
LOADS = f"""
    {BOUNDS}, {MATCHING},
    sizes AS (
        SELECT *,
               if(kind = '{Notify.kind}', {VAST_NEIGHBOUR} * copies, bytes) AS vast,
               CASE
                   WHEN kind IN ('{Post.kind}', '{Cast.kind}', '{ReplicaMatch.kind}') THEN 0
                   WHEN kind = '{Notify.kind}' THEN {VAST_NEIGHBOUR} * copies
                   WHEN kind = '{RegionUpdate.kind}' THEN {VAST_MOVE} * copies
                   WHEN kind = '{RegionUpdates.kind}'
                       THEN {VAST_MOVE} * (bytes - {LIST_HEAD} * copies) / {LISTED_MOVE}
                   WHEN kind = '{RecordCopies.kind}'
                       THEN {VAST_SUBSCRIPTION} * (bytes - {LIST_HEAD} * copies) / {LISTED_RECORD}
                   ELSE bytes
               END AS program
        FROM {{messages}}
    ),
    sums AS (
        SELECT /*+ BROADCAST(bounds) */
               run, node, CAST(floor((t - begin) / 1e6) AS INT) AS second,
               (t - begin) / 1e6 >= ceil(greatest(seconds * 2 / 3, seconds - {MEASURED_S}))
                   AS late,
               sum(up) AS up, sum(down) AS down,
               sum(vast_up) AS vast_up, sum(vast_down) AS vast_down,
               sum(program_up) AS program_up, sum(program_down) AS program_down
        FROM (
            SELECT run, t, node, bytes AS up, 0 AS down, vast AS vast_up, 0 AS vast_down,
                   program AS program_up, 0 AS program_down
            FROM sizes
            UNION ALL
            SELECT run, t, `to`, 0, bytes, 0, vast, 0, program FROM sizes WHERE NOT lost
        ) JOIN bounds USING (run)
        WHERE t >= begin AND t < begin + seconds * 1000000L
        GROUP BY ALL
    ),
    loads AS (
        SELECT run, node, second, late, up, down, vast_up, vast_down, program_up, program_down,
               matching.node IS NOT NULL AS matches
        FROM sums LEFT JOIN matching USING (run, node, second)
    )"""


def bandwidth_by_node(
    messages: DataFrame, notes: DataFrame, positions: DataFrame, publications: DataFrame
) -> DataFrame:
    """Bytes per second of each node, on average and in its busiest second, in either role.

    Of the seconds that are measured; `whole` ones are of the whole run.
    """
    return query_sql(
        f"""
        WITH {LOADS}
        SELECT run, matches, node,
               count_if(late)                      AS late_seconds,
               avg(up)   FILTER (WHERE late)       AS up_mean,
               max(up)   FILTER (WHERE late)       AS up_max,
               avg(down) FILTER (WHERE late)       AS down_mean,
               max(down) FILTER (WHERE late)       AS down_max,
               avg(vast_up)   FILTER (WHERE late)  AS vast_up_mean,
               max(vast_up)   FILTER (WHERE late)  AS vast_up_max,
               avg(vast_down) FILTER (WHERE late)  AS vast_down_mean,
               max(vast_down) FILTER (WHERE late)  AS vast_down_max,
               avg(program_up)   FILTER (WHERE late)  AS program_up_mean,
               max(program_up)   FILTER (WHERE late)  AS program_up_max,
               avg(program_down) FILTER (WHERE late)  AS program_down_mean,
               max(program_down) FILTER (WHERE late)  AS program_down_max,
               avg(up)                             AS whole_up_mean,
               max(up)                             AS whole_up_max
        FROM loads
        GROUP BY run, matches, node
        """,
        messages=messages,
        notes=notes,
        positions=positions,
        publications=publications,
    )


def matcher_bandwidth(
    messages: DataFrame, notes: DataFrame, positions: DataFrame, publications: DataFrame
) -> DataFrame:
    """Of the matchers in one second: the average, the busiest and the idlest; then over seconds."""
    return query_sql(
        f"""
        WITH {LOADS},
        seconds AS (
            SELECT run, second, count(*) AS matchers,
                   avg(up)   AS up_mean,   max(up)   AS up_max,   min(up)   AS up_min,
                   avg(down) AS down_mean, max(down) AS down_max, min(down) AS down_min
            FROM loads WHERE matches AND late
            GROUP BY run, second
        )
        SELECT run, count(*) AS counted, avg(matchers) AS matchers,
               avg(up_mean)   AS up_mean,   avg(up_max)   AS up_max,   avg(up_min)   AS up_min,
               avg(down_mean) AS down_mean, avg(down_max) AS down_max, avg(down_min) AS down_min
        FROM seconds
        GROUP BY run
        """,
        messages=messages,
        notes=notes,
        positions=positions,
        publications=publications,
    )


def population_by_second(
    notes: DataFrame, positions: DataFrame, publications: DataFrame
) -> DataFrame:
    """How many entities there are, and how many nodes match; how many of these are servers."""
    return query_sql(
        f"""
        WITH {BOUNDS}, {MATCHING}, {PRESENT}
        SELECT run, second, sum(1 - matches) AS entities, sum(matches) AS matchers,
               count_if(matches = 1 AND node >= {FIRST_SERVER}) AS servers
        FROM (
            SELECT run, second, node, 1 AS matches FROM matching
            UNION ALL
            SELECT run, second, node, 0 FROM present
        )
        GROUP BY run, second
        """,
        notes=notes,
        positions=positions,
        publications=publications,
    )


def consistency_by_second(awareness_pairs: DataFrame, positions: DataFrame) -> DataFrame:
    """Discovery consistency is `seen` over `due`: who is visible, of those who should be (V)."""
    return query_sql(
        """
        SELECT /*+ BROADCAST(begins) */
               run, CAST(floor((t - begin) / 1e6) AS INT) AS second,
               count_if(due) AS due, count_if(due AND knew) AS seen
        FROM {awareness_pairs}
        JOIN (SELECT run, min(t) AS begin FROM {positions} GROUP BY run) AS begins USING (run)
        GROUP BY ALL
        """,
        awareness_pairs=awareness_pairs,
        positions=positions,
    )


def owners_by_epoch(notes: DataFrame) -> DataFrame:
    """How often a subscription found an owner, and how often two owners took one epoch of it."""
    return query_sql(
        """
        SELECT run, sum(taken) AS taken, count_if(owners > 1) AS disputed
        FROM (
            SELECT run, about, value, count(*) AS taken, count(DISTINCT node) AS owners
            FROM {notes} WHERE fact = 'owner'
            GROUP BY run, about, value
        )
        GROUP BY run
        """,
        notes=notes,
    )


def overloads(notes: DataFrame, interests: DataFrame, origins: DataFrame) -> DataFrame:
    """Each stretch of seconds in which one owner had more subscriptions than the limit.

    The last second is the one before that in which it is known to have fewer; of a stretch that
    goes on, the last of the run in which anything changed.
    """
    return query_sql(
        """
        WITH loads AS (
            SELECT run, owner, second, subscriptions,
                   subscriptions > {limit} AS over,
                   count_if(subscriptions <= {limit}) OVER (
                       PARTITION BY run, owner ORDER BY second) AS stretch,
                   coalesce(lead(second) OVER (PARTITION BY run, owner ORDER BY second) - 1, second)
                       AS until
            FROM {owned}
        )
        SELECT run, owner, min(second) AS first, max(until) AS last,
               max(subscriptions) AS most
        FROM loads WHERE over
        GROUP BY run, owner, stretch
        """,
        owned=ownership(notes, interests, origins),
        limit=LIMIT,
    )


def roles(notes: DataFrame, interests: DataFrame, origins: DataFrame) -> DataFrame:
    """Who began to match how often and resigned how often, and what each owned in the end."""
    return query_sql(
        """
        WITH last AS (
            SELECT run, owner AS node, subscriptions
            FROM {owned} JOIN (
                SELECT run, max(second) AS second FROM {owned} GROUP BY run
            ) USING (run, second)
        )
        SELECT run, node, began, resigned, gone, coalesce(subscriptions, 0) AS owned
        FROM (
            SELECT run, node,
                   count_if(fact = 'matcher')             AS began,
                   count_if(fact = 'resigned')            AS resigned,
                   count_if(fact IN ('left', 'crashed'))  AS gone
            FROM {notes}
            GROUP BY run, node
        ) LEFT JOIN last USING (run, node)
        WHERE began > 0
        """,
        notes=notes,
        owned=ownership(notes, interests, origins),
    )


def server_traffic(messages: DataFrame) -> DataFrame:
    """Bytes that servers send each other, and that they send to clients."""
    return query_sql(
        """
        SELECT run,
               coalesce(sum(bytes) FILTER (WHERE `to` >= {first}), 0) AS to_servers,
               coalesce(sum(bytes) FILTER (WHERE `to` <  {first}), 0) AS to_clients
        FROM {messages} WHERE node >= {first}
        GROUP BY run
        """,
        messages=messages,
        first=FIRST_SERVER,
    )


def publications_made(publications: DataFrame) -> DataFrame:
    return query_sql(
        "SELECT run, count(*) AS publications FROM {publications} GROUP BY run",
        publications=publications,
    )
