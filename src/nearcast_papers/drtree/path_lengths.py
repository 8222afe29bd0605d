"""The number of steps of a publication, computed from the tree alone.

In these runs peers do not move, so the last notes of a trace describe the whole tree: which peer
owns which nodes, and their parents. The positions of the publisher's and the subscriber's leaves
decide how many steps are between them, for every strategy, and whether a step is from peer to peer
or from node to node. So one run gives the paths of all strategies, also for readings of the paper
that were not simulated.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from nearcast.pipeline.jobs.levels import tree
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import OpenedTrace

SHARE = 4  # of so many publications one is followed: means need no more, and ways are many
TOLD_BY = "double-wave"  # one tree tells the ways of all strategies
HIGHEST = 8  # level of a root; with four children at least, a tree of 10,000 has no level 7


def paths(notes: DataFrame) -> DataFrame:
    """Of each leaf the owners of the nodes above it, level by level; null above the root."""
    # Asked once for every level: planned as one question, all of it would be counted as often.
    known = tree(notes).localCheckpoint()
    rows = "SELECT run, node, array(node) AS path FROM {tree}"
    for level in range(HIGHEST):
        rows = f"""
            SELECT /*+ BROADCAST(above) */ below.run, below.node, concat(path, array(
                       if(top > {level}, element_at(path, -1), father))) AS path
            FROM ({rows}) AS below
            LEFT JOIN {{tree}} AS above
                ON above.run = below.run AND above.node = element_at(path, -1)
        """
    return query_sql(rows, tree=known).localCheckpoint()


def ways(pairs: DataFrame, notes: DataFrame, traces: Sequence[OpenedTrace]) -> DataFrame:
    """Of a share of the publications, in the runs of the strategy whose tree tells all ways."""
    runs = [
        trace.run
        for trace in traces
        if trace.scenario is not None and trace.scenario.settings["strategy"] == TOLD_BY
    ]
    some, told = f"pmod(hash(publication), {SHARE}) = 0", notes["run"].isin(runs)
    return steps(pairs.where(pairs["run"].isin(runs)).where(some), notes.where(told))


def steps(pairs: DataFrame, notes: DataFrame) -> DataFrame:
    """Steps until the last interested has a publication, by how many are interested.

    `meet` is the lowest level at which the publisher and a subscriber are under one node: 0 for the
    publisher itself. A peer owns a chain of nodes, so owners on a way are as many as are different.
    Sums over the publications.
    """
    return query_sql(
        """
        WITH met AS (
            SELECT wanted.run, publication, up.path AS up, down.path AS down,
                   CAST(array_position(zip_with(up.path, down.path, (a, b) -> a = b), TRUE) AS INT)
                       - 1 AS meet,
                   size(filter(up.path, owner -> owner IS NOT NULL)) - 1 AS height
            FROM {pairs} AS wanted
            JOIN {paths} AS up ON up.run = wanted.run AND up.node = publisher
            JOIN {paths} AS down ON down.run = wanted.run AND down.node = wanted.node
            WHERE outcome <> 'spurious'
        ), counted AS (
            SELECT run, publication, meet, height,
                   size(array_distinct(slice(up, 1, meet + 1))) - 1         AS rise,
                   size(array_distinct(slice(down, 1, meet + 1))) - 1       AS fall,
                   size(array_distinct(slice(up, 1, greatest(meet, 1)))) - 1   AS rise_below,
                   size(array_distinct(slice(down, 1, greatest(meet, 1)))) - 1 AS fall_below,
                   if(get(up, meet) = up[0], 0, 1)                          AS jump,
                   if(get(up, height) = up[0], 0, 1)
                       + size(array_distinct(slice(down, 1, height + 1))) - 1 AS by_root
            FROM met
        ), fates AS (
            SELECT run, publication, count(*) AS interested,
                   max(rise + fall)                                      AS peers_double_wave,
                   max(if(meet = 0, 0, rise_below + 1 + fall_below))     AS peers_brothers,
                   max(by_root)                                          AS peers_root_link,
                   max(jump + fall)                                      AS peers_ancestors,
                   max(2 * meet)                                         AS nodes_double_wave,
                   max(greatest(2 * meet - 1, 0))                        AS nodes_brothers,
                   max(height + 1)                                       AS nodes_root_link,
                   max(if(meet = 0, 0, meet + 1))                        AS nodes_ancestors
            FROM counted GROUP BY run, publication
        )
        SELECT run, interested, count(*) AS publications,
               sum(peers_double_wave) AS peers_double_wave, sum(peers_brothers) AS peers_brothers,
               sum(peers_root_link)   AS peers_root_link,  sum(peers_ancestors) AS peers_ancestors,
               sum(nodes_double_wave) AS nodes_double_wave, sum(nodes_brothers) AS nodes_brothers,
               sum(nodes_root_link)   AS nodes_root_link,  sum(nodes_ancestors) AS nodes_ancestors
        FROM fates GROUP BY run, interested
        """,
        pairs=pairs,
        paths=paths(notes),
    )
