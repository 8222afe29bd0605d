"""Which entities nodes knew, compared with those they should have known, at the sampled instants.

A node should know every other entity whose true position is inside one of the node's subscribed
regions at that instant. So the truth is that of deliveries of a point publication, computed by the
same kernel (`join`), formulas included; only channels and filters do not matter here. Only runs
that recorded views are evaluated, and only nodes that have a position at the instant. To know an
entity that has no position is a false positive.
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

    The other is `present` if it has a position then; `difference` is the distance between that and
    where the node believed it to be. Besides, each (instant, node) has a row without an other, with
    the number of `others`. Queries do not use WITH, for the reason given in `delivery.pairs`.
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
    # A run is cut into slices of time that fit into a worker.
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
    # Every interest goes to all slices in which it is in force. Of several rows of a subscription
    # in one microsecond, the one counts that `join.add_ends` would choose.
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
    compared = (
        pa.concat_tables([_known_pairs(positions, views), _due_pairs(positions, held)])
        .join(sampled, ["t", "node"], join_type="left semi", use_threads=False)
        .group_by(["t", "node", "other"], use_threads=False)
        .aggregate([("knew", "any"), ("due", "any"), ("present", "any"), ("difference", "min")])
        .rename_columns(["t", "node", "other", "knew", "due", "present", "difference"])
    )
    crowds = sampled.group_by("t", use_threads=False).aggregate([([], "count_all")])
    each = sampled.join(crowds, "t", use_threads=False)
    each = each.append_column("others", pc.subtract(each.column("count_all"), 1))
    both = pa.concat_tables([compared, each.drop_columns("count_all")], promote_options="default")
    runs = seen.column("run").slice(0, 1).take(pa.array(np.zeros(len(both), np.int8)))
    return both.add_column(0, "run", runs)


def _known_pairs(positions: pa.Table, views: pa.Table) -> pa.Table:
    """The entities that nodes knew, and how far from its true position each was believed to be."""
    truth = positions.select(["t", "node", "x", "y", "z"])
    truth = truth.rename_columns(["t", "other", "true_x", "true_y", "true_z"])
    joined = views.join(truth, ["t", "other"], join_type="left outer", use_threads=False)
    x, y, z = (pc.subtract(joined.column(a), joined.column(f"true_{a}")) for a in "xyz")
    squares = pc.add(pc.add(pc.multiply(x, x), pc.multiply(y, y)), pc.multiply(z, z))
    return pa.table(
        {
            **{name: joined.column(name) for name in ("t", "node", "other")},
            "knew": pa.repeat(True, len(joined)),
            "due": pa.repeat(False, len(joined)),
            "present": joined.column("true_x").is_valid(),
            "difference": pc.sqrt(squares),
        }
    )


def _due_pairs(positions: pa.Table, held: pa.Table) -> pa.Table:
    """The entities that nodes should know: as if each published a point, on a common channel."""
    count = len(positions)
    points = positions.append_column("channel", pa.repeat("", count))
    points = points.append_column("shape", pa.repeat("point", count))
    points = points.append_column("attributes", pa.nulls(count, pa.string()))
    for extent in ("rx", "ry", "rz"):
        points = points.append_column(extent, pa.repeat(0.0, count))
    replaced = {
        "channel": pa.repeat("", len(held)),
        "filter": pa.nulls(len(held), pa.string()),
        "echo": pa.repeat(False, len(held)),
    }
    for name, column in replaced.items():
        held = held.set_column(held.column_names.index(name), name, column)
    found = list(join.find_pairs(held, points)) or [(np.empty(0, np.int32), np.empty(0, np.int64))]
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


# The tables. Each says to which `part` of a run the rows of `met` belong.

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
# `known` and `should` are means over samples; ratios are ratios of sums over all samples.
# Consistency is VAST's name for recall. Position differences are over all entities that are known
# and present. The 90th percentile is exact and interpolated as in numpy, for runs of any size,
# because windows sort on disk if necessary.
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


def awareness_by_second(awareness_pairs: DataFrame, origins: DataFrame) -> DataFrame:
    """All samples of a second together; a run without publications and messages counts from its
    first position."""
    return query_sql(
        """
        WITH met AS (
            SELECT /*+ BROADCAST(origins) */ *, floor((t - origin) / 1000000) AS part
            FROM {awareness_pairs} JOIN {origins} AS origins USING (run)
        )
        """
        + RANKED
        + "SELECT run, part AS second, count(DISTINCT node) AS nodes,"
        + MEASURES,
        awareness_pairs=awareness_pairs,
        origins=origins,
    )


def awareness_by_node(awareness_pairs: DataFrame) -> DataFrame:
    return query_sql(
        "WITH met AS (SELECT *, node AS part FROM {awareness_pairs})"
        + RANKED
        + "SELECT run, part AS node,"
        + MEASURES,
        awareness_pairs=awareness_pairs,
    )


def awareness_totals(awareness_pairs: DataFrame) -> DataFrame:
    return query_sql(
        "WITH met AS (SELECT *, 'all' AS part FROM {awareness_pairs})"
        + RANKED
        + "SELECT run, count(DISTINCT node) AS nodes,"
        + MEASURES,
        awareness_pairs=awareness_pairs,
    )
