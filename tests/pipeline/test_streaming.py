"""Windows over a growing trace against plain Python, through stops and kills."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
from little_traces import Rows, add_part, begin_trace, delivery, message, publication
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.pipeline.streaming import follow, windows
from nearcast.trace.schema import TraceError

WINDOW_S, LATE_S = 0.5, 1.0
PART_S, PARTS = 2, 6
SECOND = 1_000_000

Windows = dict[tuple[Any, ...], tuple[Any, ...]]


def made_up(seed: int) -> Rows:
    """Twelve seconds in which some are heard by several, some twice, and some by nobody."""
    rng = Random(seed)
    rows: Rows = {"publications": [], "deliveries": [], "messages": []}
    for number in range(12 * 8):
        t = number * SECOND // 8 + rng.randrange(1000)
        rows["publications"].append(publication(t, number))
        for subscription in range(rng.choice([0, 1, 3])):
            for _ in range(rng.choice([1, 1, 2])):
                heard = t + rng.randrange(20_000, 700_000)
                rows["deliveries"].append(delivery(heard, number, subscription))
        kind, copies = rng.choice(["publish", "notice"]), rng.choice([1, 5])
        rows["messages"].append(message(t, kind=kind, copies=copies, bytes=60 * copies))
    return rows


def grow(trace: Path, rows: Rows, parts: range) -> None:
    """What a recorder would have flushed: publications before their deliveries."""
    for number in parts:
        for table in ("publications", "messages", "deliveries"):
            flushed = [row for row in rows[table] if part_of(row["t"]) == number]
            add_part(trace, table, flushed, number)


def part_of(t: int) -> int:
    return min(t // (PART_S * SECOND), PARTS - 1)


def end(trace: Path) -> None:
    (trace / "summary.json").write_text("{}")


def start_of(t: int) -> float:
    return t // round(WINDOW_S * SECOND) * WINDOW_S


def true_traffic(run: str, rows: Rows) -> Windows:
    messages: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[tuple[Any, ...]] = Counter()
    for row in rows["messages"]:
        key = (run, start_of(row["t"]), row["kind"])
        messages[key] += row["copies"]
        sizes[key] += row["bytes"]
    return {key: (messages[key], sizes[key]) for key in messages}


def true_delivery(run: str, rows: Rows) -> Windows:
    """(deliveries, pairs, duplicates, unheard, mean, p50, max) of the publications in a window."""
    made = {row["publication"]: row["t"] for row in rows["publications"]}
    first: dict[float, dict[tuple[int, int], float]] = defaultdict(dict)
    heard: Counter[float] = Counter()
    unheard = Counter(start_of(t) for t in made.values())
    seen: set[int] = set()
    for row in sorted(rows["deliveries"], key=lambda row: row["t"]):
        number = row["publication"]
        start = start_of(made[number])
        heard[start] += 1
        pair = (number, row["subscription"])
        first[start].setdefault(pair, (row["t"] - made[number]) / 1000)
        if number not in seen:
            seen.add(number)
            unheard[start] -= 1
    truth: Windows = {}
    for start in map(start_of, made.values()):
        latency = sorted(first[start].values())
        pairs = len(latency)
        told = (mean(latency), latency[(pairs - 1) // 2], latency[-1]) if pairs else (None,) * 3
        counts = (heard[start], pairs, heard[start] - pairs, unheard[start])
        truth[run, start] = (*counts, *told)
    return truth


def written(spark: SparkSession, out: Path) -> tuple[Windows, Windows]:
    """What has been written, having made sure that no window was written twice."""
    traffic = windows(spark, out, "traffic").collect()
    delivery = windows(spark, out).collect()
    told = {
        (row.run, row.start_s): (
            row.deliveries, row.pairs, row.duplicates, row.unheard,
            row.latency_mean_ms and pytest.approx(row.latency_mean_ms),
            row.latency_p50_ms, row.latency_max_ms,
        )
        for row in delivery
    }  # fmt: skip
    sent = {(row.run, row.start_s, row.kind): (row.messages, row.bytes) for row in traffic}
    assert len(told) == len(delivery)
    assert len(sent) == len(traffic)
    return sent, told


def part_of_truth(found: Windows, truth: Windows) -> bool:
    """Right, and without a gap: all windows of the truth up to the last one found."""
    last = max((key[1] for key in found), default=-1.0)
    return found == {key: value for key, value in truth.items() if key[1] <= last}


def drain(queries: list[StreamingQuery]) -> None:
    for query in queries:
        query.processAllAvailable()
    for query in queries:
        query.stop()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_windows_equal_plain_python_and_a_stop_in_the_middle_changes_nothing(
    spark: SparkSession, tmp_path: Path, out: Path
) -> None:
    rows, trace = made_up(1), begin_trace(tmp_path / "walk")
    sent_truth, told_truth = true_traffic("walk", rows), true_delivery("walk", rows)
    assert written_nothing(spark, out)
    grow(trace, rows, range(3))
    drain(follow(spark, trace, out, WINDOW_S, LATE_S))
    sent, told = written(spark, out)
    assert part_of_truth(sent, sent_truth) and 0 < len(sent) < len(sent_truth)
    assert part_of_truth(told, told_truth) and 0 < len(told) < len(told_truth)
    grow(trace, rows, range(3, PARTS))
    end(trace)
    drain(follow(spark, trace, out, WINDOW_S, LATE_S))
    assert written(spark, out) == (sent_truth, told_truth)


def written_nothing(spark: SparkSession, out: Path) -> bool:
    return windows(spark, out).isEmpty() and windows(spark, out, "traffic").isEmpty()
