"""The workload of a run: where entities crowd, how they move, how many are in each other's areas.

This is what one needs to know about a recorded world before choosing an overlay. Positions are
counted in a 64 x 64 grid over the box that bounds all positions of the run: of x and y, or of
longitude and latitude on Earth.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from nearcast.pipeline.jobs.graphs import measure
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import OpenedTrace
from nearcast.space.earth import ECCENTRICITY2
from nearcast.trace.reader import EARTH, GEOMETRY

CELLS = 64
CROWDED = 10  # the fullest tenth of the occupied cells
MAX_TRACKED_NODES = 2_000  # that the map of links can show

# Each run's bounds, and the cell of a position: the far border belongs to the last cell; if the
# world has no extent along an axis, everything is in the first cell. `map_places` says what u and v
# are.
BOUNDS = """
    bounds AS (
        SELECT run, min({u}) AS x_low, max({u}) AS x_high, min({v}) AS y_low, max({v}) AS y_high
        FROM   {positions}
        GROUP  BY run
    )"""
CELL_X = "least(floor({cells} * coalesce(try_divide(u - x_low, x_high - x_low), 0)), {cells} - 1)"
CELL_Y = CELL_X.replace("u ", "v ").replace("x_", "y_")


def earth_runs(traces: Sequence[OpenedTrace]) -> str:
    """The runs on Earth, for SQL; nothing if there are none."""
    return ", ".join(
        f"'{trace.run}'" for trace in traces
        if trace.scenario is not None and trace.scenario.settings.get(GEOMETRY) == EARTH
    )  # fmt: skip


def map_places(positions: DataFrame, traces: Sequence[OpenedTrace]) -> tuple[DataFrame, str, str]:
    """The positions, and which of their columns are their places on a map.

    On Earth these are degrees. Longitudes are from 0 to 360 if a run needs fewer of those, because
    it crosses the antimeridian.
    """
    earth = earth_runs(traces)
    if not earth:
        return positions, "x", "y"
    degrees = query_sql(
        """
        WITH degrees AS (
            SELECT *,
                   if(earth, degrees(atan2(y, x)), x)                            AS lon,
                   if(earth, degrees(atan2(z, {flat} * sqrt(x * x + y * y))), y) AS map_y
            FROM   (SELECT *, run IN ({earth}) AS earth FROM {positions})
        ),
        ranges AS (
            SELECT run,
                   max(earth) AND max(pmod(lon, 360)) - min(pmod(lon, 360)) < max(lon) - min(lon)
                       AS across
            FROM   degrees
            GROUP  BY run
        )
        SELECT /*+ BROADCAST(ranges) */
               degrees.*, if(across, pmod(lon, 360), lon) AS map_x
        FROM   degrees JOIN ranges USING (run)
        """,
        positions=positions,
        earth=earth,
        flat=1 - ECCENTRICITY2,
    )
    return degrees, "map_x", "map_y"


def world_density(
    positions: DataFrame, origins: DataFrame, traces: Sequence[OpenedTrace]
) -> DataFrame:
    """Entities in each occupied cell; each counts once a second, at its last position."""
    positions, u, v = map_places(positions, traces)
    return query_sql(
        f"""
        WITH {BOUNDS},
        latest AS (
            SELECT /*+ BROADCAST(origins) */
                   run, floor((t - origin) / 1e6) AS second, node,
                   max(struct(t, {{u}} AS u, {{v}} AS v)) AS latest
            FROM   {{positions}} JOIN {{origins}} AS origins USING (run)
            GROUP  BY ALL
        ),
        places AS (SELECT run, second, latest.u, latest.v FROM latest)
        SELECT /*+ BROADCAST(bounds) */
               run, second, {CELL_X} AS cell_x, {CELL_Y} AS cell_y,
               count(*) AS entities,
               x_low, y_low,
               (x_high - x_low) / {{cells}} AS cell_width,
               (y_high - y_low) / {{cells}} AS cell_height
        FROM   places JOIN bounds USING (run)
        GROUP  BY ALL
        """,
        positions=positions,
        origins=origins,
        cells=CELLS,
        u=u,
        v=v,
    )


def world_positions(positions: DataFrame, origins: DataFrame) -> DataFrame:
    """The first position of each node in each second, for the 2,000 nodes with lowest numbers."""
    return query_sql(
        """
        WITH numbered AS (
            SELECT *, dense_rank() OVER (PARTITION BY run ORDER BY node) AS number
            FROM   {positions}
        ),
        firsts AS (
            SELECT /*+ BROADCAST(origins) */
                   run, floor((t - origin) / 1e6) AS second, node,
                   min(struct(t, x, y, z)) AS first
            FROM   numbered JOIN {origins} AS origins USING (run)
            WHERE  number <= {followed}
            GROUP  BY ALL
        )
        SELECT run, second, node, first.x, first.y, first.z
        FROM   firsts
        """,
        positions=positions,
        origins=origins,
        followed=MAX_TRACKED_NODES,
    )


# From each position of an entity to the next: the speed; at the end of a stay in one cell, its
# length; and the last cell of each second. An entity is at a position until the next one is
# recorded, or until it leaves or crashes. Seconds are those of the clock: those of the run
# would make no difference.
STEPS = f"""
    lives AS (
        SELECT run, node, t, x, y, z, {{u}} AS u, {{v}} AS v, FALSE AS gone
        FROM   {{positions}}
        UNION ALL
        SELECT run, node, t, NULL, NULL, NULL, NULL, NULL, TRUE
        FROM   {{notes}}
        WHERE  fact IN ('left', 'crashed')
    ),
    places AS (
        SELECT /*+ BROADCAST(bounds) */
               run, node, t, x, y, z, gone,
               floor(t / 1e6) AS second,
               {CELL_X} * {{cells}} + {CELL_Y} AS cell
        FROM   lives JOIN bounds USING (run)
    ),
    moves AS (
        SELECT *,
               lead(t) OVER life AS next_t,
               lead(x) OVER life AS next_x,
               lead(y) OVER life AS next_y,
               lead(z) OVER life AS next_z,
               lead(if(gone, NULL, second)) IGNORE NULLS OVER life                       AS seen,
               coalesce((lag(gone)  OVER life) OR (lag(cell)  OVER life) <> cell, TRUE)  AS arrives,
               coalesce((lead(gone) OVER life) OR (lead(cell) OVER life) <> cell, TRUE)  AS departs
        FROM   places
        WINDOW life AS (PARTITION BY run, node ORDER BY t, gone, x, y, z)
    ),
    stays AS (
        SELECT *, last(if(arrives, t, NULL)) IGNORE NULLS OVER so_far AS arrival
        FROM   moves
        WINDOW so_far AS (
            PARTITION BY run, node ORDER BY t, gone, x, y, z
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    ),
    steps AS (
        SELECT run, node, second,
               if(second IS DISTINCT FROM seen, cell, NULL)             AS cell,
               if(departs, (coalesce(next_t, t) - arrival) / 1e6, NULL) AS dwell_s,
               try_divide(
                   sqrt(pow(next_x - x, 2) + pow(next_y - y, 2) + pow(next_z - z, 2)),
                   (next_t - t) / 1e6
               )                                                        AS speed
        FROM   stays
        WHERE  NOT gone
    )"""

# All measures of a world in one table, so that it is sorted and summed up only once. Boxes bound
# the regions when they begin; unbounded regions have none. The Earth is as flat as a plane: there a
# disc has an area.
MEASURED = """
    boxes AS (
        SELECT run, rx,
               if(shape = 'disc', rx, ry)     AS ry,
               if(shape = 'disc', rx, rz)     AS rz,
               if({on_earth}, 0, greatest(abs(z), interests.rz)) AS height
        FROM   {interests} AS interests
        WHERE  NOT ended AND formula IS NULL AND greatest(rx, ry, rz) < double('inf')
    ),
    measured AS (
        SELECT run, measure, measures.second, which, value
        FROM   steps LATERAL VIEW stack(4,
                   'node',  NULL,   node, NULL,
                   'cell',  second, cell, NULL,
                   'speed', NULL,   NULL, speed,
                   'dwell', NULL,   NULL, dwell_s
               ) measures AS measure, second, which, value
        WHERE  which IS NOT NULL OR value IS NOT NULL
        UNION ALL
        SELECT run, measure, NULL, NULL, value
        FROM   boxes LATERAL VIEW stack(3,
                   'area',   4 * rx * ry,
                   'volume', 8 * rx * ry * rz,
                   'height', height
               ) measures AS measure, value
        UNION ALL
        SELECT run, 'node', NULL, node, NULL FROM {interests}
        UNION ALL
        SELECT run, 'node', NULL, node, NULL FROM {publications}
        UNION ALL
        SELECT run, measure, NULL, NULL, value FROM {hearing}
    )"""

# The exact distribution of the values of a measure, with percentiles interpolated as in numpy.
# Equal values are counted, then sorted (on disk if necessary), and added up in that order, so that
# the sum is the same every time. The value of a cell is how many entities it holds.
SPREADS = """
    counted AS (
        SELECT run, measure, second, which,
               if(measure = 'cell', count(*), value) AS value,
               if(measure = 'cell', 1, count(*))     AS times
        FROM   measured
        GROUP  BY run, measure, second, which, value
    ),
    sorted AS (
        SELECT run, measure, second, value, times,
               lead(value)        OVER in_order     AS following,
               sum(times)         OVER so_far       AS so_far,
               sum(times)         OVER all_in_order AS total,
               sum(value * times) OVER all_in_order AS whole
        FROM   counted
        WINDOW in_order     AS (PARTITION BY run, measure, second ORDER BY value),
               so_far       AS (
                   PARTITION BY run, measure, second ORDER BY value
                   ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
               ),
               all_in_order AS (
                   PARTITION BY run, measure, second ORDER BY value
                   ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
               )
    )"""


def _percent(percent: int) -> str:
    """The percentile of `sorted`: the value at this percent of the positions 0 … total − 1."""
    place = f"(total - 1) * {percent} / 100"
    return f"""
        max(value + greatest({place} - (so_far - 1), 0) * coalesce(following - value, 0))
        FILTER (WHERE floor({place}) BETWEEN so_far - times AND so_far - 1)"""


def world_movement(
    positions: DataFrame,
    interests: DataFrame,
    publications: DataFrame,
    notes: DataFrame,
    expected: DataFrame,
    traces: Sequence[OpenedTrace],
) -> DataFrame:
    """One row for each run. Crowding is the share of entities, over all seconds, in the fullest
    tenth of each second's cells."""
    links = audience_pairs(expected, publications, interests).groupBy("run")
    positions, u, v = map_places(positions, traces)
    earth = earth_runs(traces)
    return query_sql(
        f"""
        WITH {BOUNDS}, {STEPS}, {MEASURED}, {SPREADS},
        spreads AS (
            SELECT run, measure, second,
                   count(*)               AS number,
                   max(whole)             AS whole,
                   max(whole / total)     AS mean,
                   {_percent(50)}         AS p50,
                   {_percent(90)}         AS p90,
                   max(value)             AS max,
                   sum(times / total) FILTER (WHERE value = 0) AS zero,
                   sum(value) FILTER (WHERE so_far > total - ceil(total / {{crowded}})) AS crowded
            FROM   sorted
            GROUP  BY run, measure, second
        )
        SELECT run,
               coalesce(max(number) FILTER (WHERE measure = 'node'), 0)      AS entities,
               max(mean) FILTER (WHERE measure = 'speed')                    AS speed_mean,
               max(p50)  FILTER (WHERE measure = 'speed')                    AS speed_p50,
               max(p90)  FILTER (WHERE measure = 'speed')                    AS speed_p90,
               max(max)  FILTER (WHERE measure = 'speed')                    AS speed_max,
               max(coalesce(zero, 0)) FILTER (WHERE measure = 'speed')       AS still_share,
               max(mean) FILTER (WHERE measure = 'dwell')                    AS dwell_mean_s,
               max(p90)  FILTER (WHERE measure = 'dwell')                    AS dwell_p90_s,
               -- A world in which no region has a height is flat: its regions have areas.
               if(max(max) FILTER (WHERE measure = 'height') = 0,
                  max(mean) FILTER (WHERE measure = 'area'),
                  max(mean) FILTER (WHERE measure = 'volume'))               AS area_mean,
               max(mean) FILTER (WHERE measure = 'neighbours mean')          AS neighbours_mean,
               CAST(max(mean) FILTER (WHERE measure = 'neighbours max') AS BIGINT)
                                                                             AS neighbours_max,
               max(mean) FILTER (WHERE measure = 'clustering')               AS clustering,
               try_divide(sum(crowded) FILTER (WHERE measure = 'cell'),
                          sum(whole)   FILTER (WHERE measure = 'cell'))      AS crowding
        FROM   spreads
        GROUP  BY run
        """,
        positions=positions,
        interests=interests,
        publications=publications,
        notes=notes,
        hearing=links.applyInArrow(audience_measures, "run string, measure string, value double"),
        cells=CELLS,
        crowded=CROWDED,
        on_earth=f"run IN ({earth})" if earth else "FALSE",
        u=u,
        v=v,
    )


def audience_pairs(expected: DataFrame, publications: DataFrame, interests: DataFrame) -> DataFrame:
    """Each pair of entities of which one should receive publications of the other, and how many.

    A publication that nobody else should receive counts for the pair of the publisher with itself.
    """
    return query_sql(
        """
        WITH subscribers AS (
            SELECT run, subscription, min(node) AS subscriber
            FROM   {interests}
            GROUP  BY run, subscription
        ),
        ends AS (
            SELECT run, publication, node AS publisher, NULL AS subscriber
            FROM   {publications}
            UNION ALL
            SELECT run, publication, NULL, subscriber
            FROM   {expected} JOIN subscribers USING (run, subscription)
        ),
        deliveries AS (
            SELECT run, publication, max(publisher) AS publisher,
                   collect_set(subscriber) AS subscribers
            FROM   ends
            GROUP  BY run, publication
        ),
        audiences AS (
            SELECT run, publisher, array_remove(subscribers, publisher) AS others
            FROM   deliveries
            WHERE  publisher IS NOT NULL
        )
        SELECT run,
               least(publisher, other)          AS low,
               greatest(publisher, other)       AS high,
               count(other)                     AS reached,
               count_if(coalesce(place, 0) = 0) AS publications,
               max(size(others))                AS most
        FROM   audiences LATERAL VIEW OUTER posexplode(others) measures AS place, other
        GROUP  BY ALL
        """,
        expected=expected,
        publications=publications,
        interests=interests,
    )


def audience_measures(group: pa.Table) -> pa.Table:
    """How many others should receive a publication, and the transitivity of the graph of pairs."""
    links = group.filter(pc.not_equal(group["low"], group["high"]))
    graph = measure(links["low"].to_numpy(), links["high"].to_numpy())
    measures = {
        "neighbours mean": pc.sum(group["reached"]).as_py() / pc.sum(group["publications"]).as_py(),
        "neighbours max": float(pc.max(group["most"]).as_py()),
        "clustering": 3 * graph["triangles"] / graph["triples"] if graph["triples"] else None,
    }
    run = pa.repeat(group["run"][0], len(measures))
    values = pa.array(list(measures.values()), pa.float64())
    return pa.table({"run": run, "measure": list(measures), "value": values})
