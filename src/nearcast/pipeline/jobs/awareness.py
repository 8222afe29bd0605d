"""Whom nodes knew, against whom they should have known, at the instants when a run was sampled.

A node should know every other entity whose true position lies in one of the regions that the node's
subscriptions have at that instant: whoever would be heard there, speaking from where it is. So the
truth is that of deliveries, and the same kernel tells it (`join`), formulas included; only channels
and filters do not matter here. Only runs that recorded views are judged, since a protocol without
views has nothing to be judged by; and only nodes that have a position at the instant. Who is known
but has no position is known wrongly.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.truth import join
from nearcast.space.motion import FOREVER

ROWS_PER_SLICE = (
    400_000  # positions and views that one call of the kernel takes, if instants are no larger
)

AWARENESS_PAIRS = (
    "run string, t long, node long, other long,"
    " knew boolean, due boolean, present boolean, difference double, others long"
)


def awareness_pairs(positions: DataFrame, views: DataFrame, interests: DataFrame) -> DataFrame:
    """Each (instant, node, other) where the node knew the other or should have, once.

    An other is `present` if it has a position then; `difference` is how far from it the node
    believed it to be. Besides, each (instant, node) has a row of its own, which has no other but
    tells how many `others` there were. Step by step, without WITH, for the reason given in
    `delivery.pairs`.
    """
    seen = query_sql(
        """
        SELECT run, t, node, NULL AS other, x, y, z FROM {positions}
        UNION ALL
        SELECT run, t, node, other, x, y, z FROM {views}
        """,
        positions=positions,
        views=views,
    )
    # A run is cut into slices of time with about so many rows as a worker likes to hold.
    cuts = query_sql(
        """
        SELECT run,
               min(t)                                                  AS earliest,
               max(t)                                                  AS latest,
               floor((max(t) - min(t)) / ceil(count(*) / {slice})) + 1 AS length
        FROM {seen}
        GROUP BY run
        HAVING count(other) > 0
        """,
        seen=seen,
        slice=ROWS_PER_SLICE,
    )
    there = query_sql(
        """
        SELECT /*+ BROADCAST(cuts) */
               run, floor((t - earliest) / length) AS slice, t, node, other, x, y, z
        FROM {seen} JOIN {cuts} AS cuts USING (run)
        """,
        seen=seen,
        cuts=cuts,
    )
    # Every interest goes to all slices in which it is in force. Of rows of one subscription at one
    # microsecond, that one holds which `join.spans` would choose.
    held = query_sql(
        """
        SELECT *, explode(sequence(floor((begins - earliest) / length),
                                   floor((ends - earliest) / length))) AS slice
        FROM (
            SELECT /*+ BROADCAST(cuts) */
                   *, greatest(t, earliest) AS begins, least(end - 1, latest) AS ends
            FROM (
                SELECT *, lead(t, 1, {forever}) OVER (
                    PARTITION BY run, subscription
                    ORDER BY t, ended DESC, x DESC, y DESC, z DESC, rx DESC
                ) AS end
                FROM {interests}
            ) JOIN {cuts} AS cuts USING (run)
            WHERE NOT ended
        )
        WHERE begins <= ends
        """,
        interests=interests,
        cuts=cuts,
        forever=FOREVER,
    )
    return (
        there.groupBy("run", "slice")
        .cogroup(held.groupBy("run", "slice"))
        .applyInArrow(_pairs_of_slice, AWARENESS_PAIRS)
    )


def _pairs_of_slice(seen: pa.Table, held: pa.Table) -> pa.Table:
    """`awareness_pairs` for one slice of positions, which have no other, and views."""
    views = seen.filter(pc.field("node") != pc.field("other"))
    positions = seen.filter(pc.field("other").is_null()).sort_by("t")
    sampled = positions.select(["t", "node"])
    met = (
        pa.concat_tables([_known_pairs(positions, views), _due_pairs(positions, held)])
        .join(sampled, ["t", "node"], join_type="left semi", use_threads=False)
        .group_by(["t", "node", "other"], use_threads=False)
        .aggregate([("knew", "any"), ("due", "any"), ("present", "any"), ("difference", "min")])
        .rename_columns(["t", "node", "other", "knew", "due", "present", "difference"])
    )
    crowds = sampled.group_by("t", use_threads=False).aggregate([([], "count_all")])
    each = sampled.join(crowds, "t", use_threads=False)
    each = each.append_column("others", pc.subtract(each.column("count_all"), 1))
    both = pa.concat_tables([met, each.drop_columns("count_all")], promote_options="default")
    runs = seen.column("run").slice(0, 1).take(pa.array(np.zeros(len(both), np.int8)))
    return both.add_column(0, "run", runs)


def _known_pairs(positions: pa.Table, views: pa.Table) -> pa.Table:
    """Whom nodes believed to be somewhere, and how far from the truth that was."""
    truth = positions.select(["t", "node", "x", "y", "z"])
    truth = truth.rename_columns(["t", "other", "true_x", "true_y", "true_z"])
    believed = views.join(truth, ["t", "other"], join_type="left outer", use_threads=False)
    x, y, z = (pc.subtract(believed.column(a), believed.column(f"true_{a}")) for a in "xyz")
    squares = pc.add(pc.add(pc.multiply(x, x), pc.multiply(y, y)), pc.multiply(z, z))
    return pa.table(
        {
            **{name: believed.column(name) for name in ("t", "node", "other")},
            "knew": pa.repeat(True, len(believed)),
            "due": pa.repeat(False, len(believed)),
            "present": believed.column("true_x").is_valid(),
            "difference": pc.sqrt(squares),
        }
    )


def _due_pairs(positions: pa.Table, held: pa.Table) -> pa.Table:
    """Whom nodes should know: everyone speaks at a point, on a channel on which all listen."""
    count = len(positions)
    said = positions.append_column("channel", pa.repeat("", count))
    said = said.append_column("shape", pa.repeat("point", count))
    said = said.append_column("attributes", pa.nulls(count, pa.string()))
    for extent in ("rx", "ry", "rz"):
        said = said.append_column(extent, pa.repeat(0.0, count))
    replaced = {
        "channel": pa.repeat("", len(held)),
        "filter": pa.nulls(len(held), pa.string()),
        "echo": pa.repeat(False, len(held)),
    }
    for name, column in replaced.items():
        held = held.set_column(held.column_names.index(name), name, column)
    found = list(join.find_pairs(held, said)) or [(np.empty(0, np.int32), np.empty(0, np.int64))]
    which, subscription = (np.concatenate(column) for column in zip(*found, strict=True))
    subscriptions, first = np.unique(join.column_or_zeros(held, "subscription"), return_index=True)
    owner = join.column_or_zeros(held, "node")[first]
    return pa.table(
        {
            "t": join.column_or_zeros(positions, "t")[which],
            "node": owner[np.searchsorted(subscriptions, subscription)],
            "other": join.column_or_zeros(positions, "node")[which],
            "knew": pa.repeat(False, len(which)),
            "due": pa.repeat(True, len(which)),
            "present": pa.repeat(True, len(which)),
            "difference": pa.nulls(len(which), pa.float64()),
        }
    )


# The tables. Each names the `part` of a run to which its rows of `met` belong.

RANKED = """
    , in_order AS (
        SELECT *,
               row_number() OVER (PARTITION BY run, part ORDER BY difference NULLS LAST) AS place,
               1 + 90 * (count(difference) OVER whole - 1) / 100                         AS ninety,
               avg(difference) OVER whole                                                AS mean
        FROM met
        WINDOW whole AS (
            PARTITION BY run, part ORDER BY difference NULLS LAST
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        )
    )
"""
# Known and should are means over samples, ratios are of the sums of all samples. Consistency is
# VAST's: all that is seen over all that should be. That is recall, under the name that the papers
# on Voronoi overlays know. Position differences are of all that are known and exist. Percent 90
# lies at place 90/100 · (n - 1) of them, counted from 0, between two of them in proportion, as
# numpy has it: exact, of a run of any size, since windows sort on disk if need be.
MEASURES = """
    count_if(knew) / count(others)                               AS known,
    count_if(due) / count(others)                                AS should,
    count_if(knew AND due)                                       AS true_positives,
    count_if(knew AND NOT due)                                   AS false_positives,
    count_if(due AND NOT knew)                                   AS false_negatives,
    sum(others) - count_if(present)                              AS true_negatives,
    try_divide(true_positives, true_positives + false_positives) AS precision,
    try_divide(true_positives, true_positives + false_negatives) AS recall,
    try_divide(
        true_positives + true_negatives,
        true_positives + true_negatives + false_positives + false_negatives
    )                                                            AS accuracy,
    try_divide(true_negatives, true_negatives + false_positives) AS specificity,
    try_divide(true_positives, true_positives + false_negatives) AS consistency,
    max(mean)                                                    AS position_difference_mean,
    sum(difference * (1 - abs(place - ninety)))
        FILTER (WHERE abs(place - ninety) < 1)                   AS position_difference_p90
    FROM in_order
    GROUP BY run, part
"""


def awareness_by_second(acquaintances: DataFrame, origins: DataFrame) -> DataFrame:
    """All samples of a second together; a run without publications and messages counts from its
    first position."""
    return query_sql(
        """
        WITH met AS (
            SELECT /*+ BROADCAST(origins) */ *, floor((t - origin) / 1000000) AS part
            FROM {acquaintances} JOIN {origins} AS origins USING (run)
        )
        """
        + RANKED
        + "SELECT run, part AS second, count(DISTINCT node) AS nodes,"
        + MEASURES,
        acquaintances=acquaintances,
        origins=origins,
    )


def awareness_by_node(acquaintances: DataFrame) -> DataFrame:
    return query_sql(
        "WITH met AS (SELECT *, node AS part FROM {acquaintances})"
        + RANKED
        + "SELECT run, part AS node,"
        + MEASURES,
        acquaintances=acquaintances,
    )


def awareness_totals(acquaintances: DataFrame) -> DataFrame:
    return query_sql(
        "WITH met AS (SELECT *, 'all' AS part FROM {acquaintances})"
        + RANKED
        + "SELECT run, count(DISTINCT node) AS nodes,"
        + MEASURES,
        acquaintances=acquaintances,
    )
