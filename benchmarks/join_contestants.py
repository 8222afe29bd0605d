"""Whoever can tell how many should have heard: ours and others, each in a process of its own.

Every contestant starts from the files of the trace, may use both cores (but for those that are said
to use one), and answers with the number of pairs and a checksum over them; the pairs themselves are
kept by nobody, unless its name says so. The question is that of `expected_deliveries`: an
interest holds until
its subscription's next row, and does not hear its own node. The others ask it in the way that suits
them best: they are told that nothing holds for more than a second, so that they can join on
seconds (an interest is in two of them), and on cells as wide as a box (it is in two along an axis);
they read only the columns that they need, and check none of them for being sound, as we do.

Run: python benchmarks/join_contestants.py CONTESTANT TRACE TIMES, as join.py does
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
from join_worlds import TICKS
from numba import njit

from nearcast.pipeline.truth import join
from nearcast.space.motion import FOREVER, SECOND

Answer = tuple[int, int]  # pairs, checksum
A, B, M = (
    1_000_003,
    7_919,
    2_147_483_647,
)  # the checksum: the sum of (A·publication + B·subscription) mod M
END = TICKS * SECOND  # of all worlds
SUM = pa.schema([("pairs", pa.int64()), ("checksum", pa.int64())])


@njit(cache=True)
def checksum(said: np.ndarray, subscription: np.ndarray, ids: np.ndarray) -> int:
    total = 0
    for i in range(len(said)):
        total += (A * ids[said[i]] + B * subscription[i]) % M
    return total


def summed(_run: str, held: pa.Table, said: pa.Table) -> Iterator[pa.RecordBatch]:
    ids, pairs, total = join.column_or_zeros(said, "publication"), 0, 0
    for which, subscription in join.find_pairs(held, said):
        pairs += len(which)
        total += int(checksum(which, subscription, ids))
    yield pa.RecordBatch.from_arrays([pa.array([pairs]), pa.array([total])], schema=SUM)


def ours(trace: Path, strategy: str) -> Callable[[], Answer]:
    from nearcast.pipeline.spark import storage
    from nearcast.pipeline.spark.session import start
    from nearcast.pipeline.truth.expected import expected_deliveries, run_join

    spark = start("local[2]", spark_driver_memory="1g")
    traces = storage.open_traces([trace])

    def emitted() -> Answer:
        # Every pair goes to the JVM, which adds them up.
        total = f"sum(({A} * publication + {B} * subscription) % {M})"
        row = expected_deliveries(spark, traces, "direct").selectExpr("count(*)", total).first()
        assert row is not None
        return row[0], row[1]

    def counted() -> Answer:
        rows = run_join(spark, traces, strategy, summed, SUM).collect()
        return sum(row.pairs for row in rows), sum(row.checksum for row in rows)

    if strategy == "emitted":
        return emitted
    return counted


def library(trace: Path) -> Callable[[], Answer]:
    """`nearcast.spark` on DataFrames of the same files: nothing is known of their order, all rows
    pass through the JVM, and so does every pair."""
    from nearcast.pipeline.spark.session import start
    from nearcast.spark import AreaColumns, PointColumns, spatial_join

    spark = start("local[2]", spark_driver_memory="1g")
    areas, points = (
        spark.read.parquet(str(trace / name)) for name in ("interests", "publications")
    )
    row = areas.select("shape").first()
    assert row is not None
    discs = AreaColumns(
        keys="subscription", radius="rx", t="t", velocity=("vx", "vy"), owner="node"
    )
    boxes = AreaColumns(keys="subscription", half_extents=("rx", "ry"), t="t", owner="node")
    of_areas = discs if row.shape == "disc" else boxes
    of_points = PointColumns(keys="publication", t="t", owner="node")
    total = f"sum(({A} * publication + {B} * subscription) % {M})"

    def run() -> Answer:
        pairs = spatial_join(areas, points, of_areas, of_points)
        row = pairs.selectExpr("count(*)", total).first()
        assert row is not None
        return row[0], row[1]

    return run


def single(trace: Path) -> Callable[[], Answer]:
    """The same kernel over the same files, on one core and without Spark."""
    from nearcast.pipeline.spark import storage
    from nearcast.pipeline.truth import partitioning

    pa.set_cpu_count(1)
    traces = storage.open_traces([trace])

    def run() -> Answer:
        said, wanted = (
            storage.list_row_groups(traces, name)[0] for name in ("publications", "interests")
        )
        part = partitioning.TracePart("", -FOREVER, FOREVER, said, wanted)
        sums = [
            b for held, asked in partitioning.read_chunks(part) for b in summed("", held, asked)
        ]
        pairs, total = (sum(b.column(i)[0].as_py() for b in sums) for i in range(2))
        return pairs, total

    return run


def polars(trace: Path) -> Callable[[], Answer]:
    import polars as pl

    side = _side(trace)

    def cell(value: pl.Expr) -> pl.Expr:
        return (value / side).floor().cast(pl.Int64) + 8

    def key(second: pl.Expr, x: pl.Expr, y: pl.Expr) -> pl.Expr:
        return (second * 2**40 + x * 2**20 + y).alias("key")

    def run() -> Answer:
        x, y, rx, ry = (pl.col(name) for name in ("x", "y", "rx", "ry"))
        t, end, second = (pl.col(name) for name in ("t", "end", "second"))
        same = pl.col("subscription") == pl.col("subscription").shift(-1)
        wanted = (
            pl.scan_parquet(trace / "interests" / "*.parquet")
            .select("t", "subscription", "node", "x", "y", "rx", "ry")
            .sort("subscription", "t")
            .with_columns(pl.when(same).then(t.shift(-1)).otherwise(END).alias("end"))
        )
        low_x, low_y = cell(x - rx), cell(y - ry)
        held = pl.concat(
            wanted.with_columns((t // 1_000_000 + k).alias("second"))
            .filter(
                (second * 1_000_000 < end)
                & (low_x + i <= cell(x + rx))
                & (low_y + j <= cell(y + ry))
            )
            .select(
                key(second, low_x + i, low_y + j), "subscription", x.alias("ix"), y.alias("iy"),
                rx, ry, t.alias("it"), end, pl.col("node").alias("owner"),
            )
            for i in (0, 1)
            for j in (0, 1)
            for k in (0, 1)
        )  # fmt: skip
        said = pl.scan_parquet(trace / "publications" / "*.parquet").select(
            key(t // 1_000_000, cell(x), cell(y)), "publication", "t", "x", "y", "node"
        )
        pairs = said.join(held, on="key").filter(
            ((pl.col("ix") - x).abs() <= rx) & ((pl.col("iy") - y).abs() <= ry)
            & (pl.col("owner") != pl.col("node")) & (pl.col("it") <= t) & (t < end)
        )  # fmt: skip
        hashed = (A * pl.col("publication") + B * pl.col("subscription")) % M
        found = pairs.select(pl.len(), hashed.sum().alias("sum")).collect(engine="streaming")
        return int(found["len"][0]), int(found["sum"][0])

    return run


def duckdb(trace: Path) -> Callable[[], Answer]:
    import duckdb as duck

    side = _side(trace)
    base = duck.connect()
    base.execute("SET threads = 2")
    query = f"""
        WITH said AS (
            SELECT publication, t, x, y, node,
                (t // 1000000) * {2**40} + (floor(x / {side})::BIGINT + 8) * {2**20}
                + floor(y / {side})::BIGINT + 8 AS key
            FROM '{trace}/publications/*.parquet'),
        spans AS (
            SELECT t, subscription, node, x, y, rx, ry,
                coalesce(lead(t) OVER (PARTITION BY subscription ORDER BY t), {END}) AS stop
            FROM '{trace}/interests/*.parquet'),
        cells AS (
            SELECT *, floor((x - rx) / {side})::BIGINT + i AS cx,
                floor((y - ry) / {side})::BIGINT + j AS cy, t // 1000000 + k AS second
            FROM spans, (VALUES (0), (1)) a(i), (VALUES (0), (1)) b(j), (VALUES (0), (1)) c(k)),
        held AS (
            SELECT subscription, t, stop, x, y, rx, ry, node,
                second * {2**40} + (cx + 8) * {2**20} + cy + 8 AS key
            FROM cells WHERE cx <= floor((x + rx) / {side}) AND cy <= floor((y + ry) / {side})
                AND second * 1000000 < stop)
        SELECT count(*), sum(({A} * said.publication + {B} * held.subscription) % {M})::BIGINT
        FROM said JOIN held USING (key)
        WHERE abs(held.x - said.x) <= rx AND abs(held.y - said.y) <= ry AND held.node != said.node
            AND held.t <= said.t AND said.t < stop
    """

    def run() -> Answer:
        row = base.execute(query).fetchone()
        assert row is not None
        return row

    return run


def sedona(trace: Path) -> Callable[[], Answer]:
    """Seconds lie side by side along x, so that its spatial index serves for time as well."""
    import sedonadb

    base = sedonadb.connect()
    apart = 4 * _world(trace)
    for name in ("interests", "publications"):
        files = [str(file) for file in sorted((trace / name).glob("*.parquet"))]
        base.read_parquet(files).to_view(name)
    # The geometry finds candidates, a little too many; the numbers decide.
    query = f"""
        WITH said AS (
            SELECT publication, t, x, y, node, ST_Point(x + (t / 1000000) * {apart}, y) AS place
            FROM publications),
        spans AS (
            SELECT t, subscription, node, x, y, rx, ry,
                coalesce(lead(t) OVER (PARTITION BY subscription ORDER BY t), {END}) AS stop
            FROM interests),
        seconds AS (
            SELECT *, t / 1000000 AS second FROM spans
            UNION ALL
            SELECT *, t / 1000000 + 1 AS second FROM spans
            WHERE (t / 1000000 + 1) * 1000000 < stop),
        held AS (
            SELECT subscription, t, stop, x, y, rx, ry, node, ST_Envelope(ST_MakeLine(
                ST_Point(x - rx - 1e-6 + second * {apart}, y - ry - 1e-6),
                ST_Point(x + rx + 1e-6 + second * {apart}, y + ry + 1e-6))) AS area
            FROM seconds)
        SELECT count(*) AS pairs,
            sum(({A} * said.publication + {B} * held.subscription) % {M}) AS checksum
        FROM held JOIN said ON ST_Intersects(held.area, said.place)
        WHERE abs(held.x - said.x) <= rx AND abs(held.y - said.y) <= ry AND held.node != said.node
            AND held.t <= said.t AND said.t < stop
    """

    def run() -> Answer:
        found = pa.table(base.sql(query))
        return found.column(0)[0].as_py(), found.column(1)[0].as_py()

    return run


def geopandas(trace: Path) -> Callable[[], Answer]:
    """On one core; its answer is a table of pairs."""
    import geopandas as geo
    import pandas as pd
    import shapely

    apart = 4 * _world(trace)

    def run() -> Answer:
        held = pd.read_parquet(
            trace / "interests", columns=["t", "subscription", "node", "x", "y", "rx", "ry"]
        )
        said = pd.read_parquet(
            trace / "publications", columns=["t", "publication", "node", "x", "y"]
        )
        held = held.sort_values(["subscription", "t"])
        held["stop"] = held.groupby("subscription").t.shift(-1, fill_value=END)
        held["second"] = held.t // 1_000_000
        longer = held[(held.second + 1) * 1_000_000 < held.stop]
        held = pd.concat([held, longer.assign(second=longer.second + 1)])
        x = held.x + held.second * apart
        rx, ry = held.rx + 1e-6, held.ry + 1e-6
        areas = geo.GeoDataFrame(
            held, geometry=shapely.box(x - rx, held.y - ry, x + rx, held.y + ry)
        )
        places = geo.GeoDataFrame(
            said, geometry=shapely.points(said.x + (said.t // 1_000_000) * apart, said.y)
        )
        pairs = geo.sjoin(places, areas, predicate="intersects", lsuffix="said", rsuffix="held")
        pairs = pairs[
            ((pairs.x_held - pairs.x_said).abs() <= pairs.rx)
            & ((pairs.y_held - pairs.y_said).abs() <= pairs.ry)
            & (pairs.node_held != pairs.node_said)
            & (pairs.t_held <= pairs.t_said)
            & (pairs.t_said < pairs.stop)
        ]
        return len(pairs), int(((A * pairs.publication + B * pairs.subscription) % M).sum())

    return run


def _side(trace: Path) -> float:
    """A little more than the width of a box, so that one reaches into two cells along an axis."""
    return float(json.loads((trace / "scenario.json").read_text())["half"]) * 2.001


def _world(trace: Path) -> float:
    return float(json.loads((trace / "scenario.json").read_text())["side"])


CONTESTANTS: dict[str, Callable[[Path], Callable[[], Answer]]] = {
    "one core, no Spark": single,
    "ours": partial(ours, strategy="direct"),
    "ours, shuffled": partial(ours, strategy="shuffle"),
    "ours, pairs emitted": partial(ours, strategy="emitted"),
    "ours, any DataFrames": library,
    "polars": polars,
    "duckdb": duckdb,
    "sedonadb": sedona,
    "geopandas, pairs emitted": geopandas,
}


def main() -> None:
    name, trace, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    run = CONTESTANTS[name](trace)
    for _ in range(times):
        print("begin", flush=True)
        begin = perf_counter()
        pairs, total = run()
        print(json.dumps([perf_counter() - begin, pairs, total]), flush=True)


if __name__ == "__main__":
    main()
