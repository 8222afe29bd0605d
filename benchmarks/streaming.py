"""Rows a second of `analyse --follow` over a trace that is all there, against counting it at once.

A world is written as a recorder would: boxes that move once a second, points published, about ten
deliveries of each, of which one in a hundred is missing and one in two hundred comes twice, and a
message for each of both. Ours is the whole of `follow`: from the call until the last window of a
second is kept, with the exact truth found on the way, and Spark's own log of the stream.
The others are asked for the same windows in one SQL query over the same Parquet files: plain Spark,
and duckdb in one process. They need not find the truth; it is handed to them as one more table.

Each runs in a process of its own, on two cores, files in the page cache, warm: the best of a few
runs counts. CPU is that of all processes of a contestant, the JVM and Python workers included.
Sums of all windows must agree, or it is said that they differ.

Run: python benchmarks/streaming.py [--publications 1000000] [--quick] [--folder DIR]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from join import cpu
from join_worlds import HALF, TICKS, Places, table

from nearcast.pipeline.truth import join
from nearcast.space.motion import SECOND
from nearcast.trace.sinks import TraceFolder

FLUSH_S = 4
LATE = 5 * SECOND
TIMES = 3
COUNTS = ("publications", "correct", "missed", "spurious", "duplicates", "messages", "bytes")

QUERY = """
WITH heard AS (
    SELECT publication, subscription, min(d.t - p.t) AS late, count(*) AS heard
    FROM {deliveries} d JOIN {publications} p USING (publication)
    WHERE d.t BETWEEN p.t AND p.t + {late}
    GROUP BY publication, subscription
), judged AS (
    SELECT publication, due IS NOT NULL AS due, coalesce(heard, 0) AS heard, late
    FROM (SELECT publication, subscription, 1 AS due FROM {truth})
    FULL JOIN heard USING (publication, subscription)
), delivery AS (
    SELECT floor(p.t / 1000000) AS second,
           count_if(due AND heard > 0)                            AS correct,
           count_if(due AND heard = 0)                            AS missed,
           count_if(NOT due)                                      AS spurious,
           sum(greatest(heard - 1, 0))                            AS duplicates,
           {percentile}(CASE WHEN due THEN late END, {shares})    AS late_at,
           avg(CASE WHEN due THEN late END)                       AS late_mean
    FROM judged JOIN {publications} p USING (publication)
    GROUP BY floor(p.t / 1000000)
), published AS (
    SELECT floor(t / 1000000) AS second, count(*) AS publications
    FROM {publications} GROUP BY floor(t / 1000000)
), sent AS (
    SELECT floor(t / 1000000) AS second, sum(copies) AS messages, sum(bytes) AS bytes
    FROM {messages} GROUP BY floor(t / 1000000)
)
SELECT * FROM published FULL JOIN delivery USING (second) FULL JOIN sent USING (second)
"""


def write_world(folder: Path, publications: int) -> int:
    """The trace and, beside it, the truth; says how many rows there are to count."""
    people = publications // TICKS
    rng = np.random.default_rng(5)
    at, there = Places(people, False, 1), Places(people, False, 2)
    phase = np.sort(rng.integers(0, SECOND, people))
    who = rng.permutation(people)
    wanted, said = [], []
    for tick in range(TICKS):
        place, heard = at(people), there(people)
        wanted.append(
            table(
                "interests", people, t=tick * SECOND + phase, node=who, subscription=who,
                x=place[:, 0], y=place[:, 1], rx=HALF, ry=HALF, shape="box",
            )
        )  # fmt: skip
        said.append(
            table(
                "publications", people, t=np.sort(rng.integers(0, SECOND, people)) + tick * SECOND,
                node=rng.permutation(people), publication=tick * people + np.arange(people),
                x=heard[:, 0], y=heard[:, 1], shape="point", bytes=60,
            )
        )  # fmt: skip
    tables = {"interests": pa.concat_tables(wanted), "publications": pa.concat_tables(said)}
    pairs = list(join.find_pairs(join.interest_spans(tables["interests"]), tables["publications"]))
    which, subscription = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    ids, made = (tables["publications"].column(n).to_numpy() for n in ("publication", "t"))
    pq.write_table(
        pa.table({"publication": ids[which], "subscription": subscription}),
        folder.with_name("truth.parquet"),
    )
    times = rng.choice([0, 1, 2], len(which), p=[0.01, 0.985, 0.005])
    which, subscription = np.repeat(which, times), np.repeat(subscription, times)
    count = len(which)
    tables["deliveries"] = table(
        "deliveries", count, t=made[which] + rng.integers(20_000, 80_000, count),
        node=subscription, publication=ids[which], subscription=subscription, hops=2,
    )  # fmt: skip
    sent = np.concatenate([made, made[which] + 10_000])
    tables["messages"] = table(
        "messages", len(sent), t=sent, bytes=90, copies=1, arrived=sent + 10_000,
        kind=np.repeat(["publish", "notice"], [len(made), count]),
        publication=np.concatenate([ids, ids[which]]),
    )  # fmt: skip
    sink = TraceFolder(folder, b'{"schema": 1}')
    edges = np.arange(0, TICKS + 2 * FLUSH_S, FLUSH_S) * SECOND
    ordered = {name: join.sort_by_time(rows) for name, rows in tables.items()}
    cuts = {name: np.searchsorted(rows.column("t"), edges) for name, rows in ordered.items()}
    for flush in range(len(edges) - 1):
        sink.write(
            {
                name: rows.slice(cuts[name][flush], cuts[name][flush + 1] - cuts[name][flush])
                for name, rows in ordered.items()
            }
        )
    sink.finish({})
    return sum(rows.num_rows for rows in tables.values())


# Contestants: each says how long a run took, and the sums of all its windows.


def ours(trace: Path, scratch: Path) -> Callable[[], dict[str, int]]:
    from nearcast.pipeline.spark.session import start
    from nearcast.pipeline.stream.streaming import follow, read_windows

    spark = start("local[2]", lean=True)

    def run() -> dict[str, int]:
        out = Path(tempfile.mkdtemp(dir=scratch))
        assert follow(spark, trace, out)
        found = read_windows(out, trace.name)
        return {name: sum(getattr(one, name) for one in found) for name in COUNTS}

    return run


def plain_spark(trace: Path, scratch: Path) -> Callable[[], dict[str, int]]:
    from nearcast.pipeline.spark.session import start

    spark = start("local[2]", spark_local_dir=str(scratch))
    places = {name: f"parquet.`{path}`" for name, path in tables_of(trace).items()}
    query = QUERY.format(
        percentile="percentile", shares="array(0.5, 0.9, 0.99)", late=LATE, **places
    )

    def run() -> dict[str, int]:
        rows = [row.asDict() for row in spark.sql(query).collect()]
        return {name: int(sum(row[name] or 0 for row in rows)) for name in COUNTS}

    return run


def duckdb(trace: Path, scratch: Path) -> Callable[[], dict[str, int]]:
    import duckdb

    connection = duckdb.connect(config={"threads": 2, "temp_directory": str(scratch)})
    places = {
        name: f"read_parquet('{path if path.suffix else path / '*.parquet'}')"
        for name, path in tables_of(trace).items()
    }
    query = QUERY.format(percentile="quantile_cont", shares="[0.5, 0.9, 0.99]", late=LATE, **places)

    def run() -> dict[str, int]:
        answer = connection.execute(query)
        columns = [column[0] for column in answer.description]
        rows = [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]
        return {name: int(sum(row[name] or 0 for row in rows)) for name in COUNTS}

    return run


def tables_of(trace: Path) -> dict[str, Path]:
    names = ("publications", "deliveries", "messages")
    return {"truth": trace.with_name("truth.parquet"), **{name: trace / name for name in names}}


CONTESTANTS = {"ours, streaming": ours, "Spark, at once": plain_spark, "duckdb, at once": duckdb}


def contest(name: str, trace: Path, scratch: Path) -> None:
    run = CONTESTANTS[name](trace, scratch)
    for _ in range(TIMES):
        began, spent = perf_counter(), cpu(os.getpid())
        found = run()
        wall = perf_counter() - began
        print(json.dumps([wall, cpu(os.getpid()) - spent, found]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--publications", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="20,000: does it work at all?")
    parser.add_argument("--folder", type=Path, help="where to write the trace")
    parser.add_argument("--contestant", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.contestant:
        name, trace, scratch = asked.contestant
        contest(name, Path(trace), Path(scratch))
        return
    if asked.folder:
        asked.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="nearcast-streaming-", dir=asked.folder))
    try:
        rows = write_world(folder / "trace", 20_000 if asked.quick else asked.publications)
        print(
            f"{'contestant':18}{'wall s':>8}{'CPU s':>8}{'rows/s':>13}{'rows/CPU s':>13}"
            f"{'times ours':>12}  ({rows:,} rows)",
            flush=True,
        )
        mine: dict[str, int] = {}
        fastest = 0.0
        for name in CONTESTANTS:
            command = [sys.executable, __file__, "--contestant", name, folder / "trace", folder]
            told = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            wall, spent, found = min(
                map(json.loads, told.splitlines()), key=lambda result: result[0]
            )
            mine, fastest = mine or found, fastest or wall
            ratio = f"{wall / fastest:.2f}" if found == mine else "differs"
            print(
                f"{name:18}{wall:>8.2f}{spent:>8.2f}{rows / wall:>13,.0f}{rows / spent:>13,.0f}"
                f"{ratio:>12}",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
