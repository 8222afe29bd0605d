"""Windows over a growing trace against plain Python, through a stop and a kill."""

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import mean
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest
from little_traces import Rows, add_part, begin_trace, delivery, interest, message, publication
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as f

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


def start_of(t: int) -> float:
    return t // round(WINDOW_S * SECOND) * WINDOW_S


def true_traffic(rows: Rows) -> Windows:
    messages: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[tuple[Any, ...]] = Counter()
    for row in rows["messages"]:
        key = ("walk", start_of(row["t"]), row["kind"])
        messages[key] += row["copies"]
        sizes[key] += row["bytes"]
    return {key: (messages[key], sizes[key]) for key in messages}


def true_delivery(rows: Rows) -> Windows:
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
        truth["walk", start] = (*counts, *told)
    return truth


def part_of_truth(found: Windows, truth: Windows) -> bool:
    """Right, and without a gap: all windows of the truth up to the last one found."""
    last = max((key[1] for key in found), default=-1.0)
    return found == {key: value for key, value in truth.items() if key[1] <= last}


CHILD = """
import sys
from pathlib import Path
from nearcast.pipeline.session import start
from nearcast.pipeline.streaming import follow

trace, out, again = map(Path, sys.argv[1:4])
window_s, late_s = map(float, sys.argv[4:])
spark = start("local[2]", lean=True, spark_driver_memory="1g")
queries = follow(spark, trace, out, window_s, late_s)
for query in queries:
    query.processAllAvailable()
for query in queries:
    query.stop()
queries = follow(spark, trace, out, window_s, late_s)
again.touch()
queries[0].awaitTermination()
"""


def stop_and_kill(trace: Path, out: Path, rows: Rows) -> None:
    """Another process follows, stops cleanly, goes on, and is killed in the middle of a batch."""
    again = trace.parent / "again"
    arguments = map(str, (trace, out, again, WINDOW_S, LATE_S))
    child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], start_new_session=True)
    try:
        wait_until(again.exists, child)
        grow(trace, rows, range(2, 4))
        wait_until(lambda: batches(out, "offsets") > batches(out, "commits"), child)
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # Spark's Java too
        child.wait()


def wait_until(something: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    begun = monotonic()
    while not something():
        assert child.poll() is None, "it has ended by itself"
        assert monotonic() - begun < 300, "nothing has happened"
        sleep(0.01)


def batches(out: Path, log: str) -> int:
    return len(list((out / "checkpoints" / "delivery" / log).glob("[0-9]*")))


def made_up_counts(publications: DataFrame, interests: DataFrame) -> DataFrame:
    """As if every interest in two wanted every third publication."""
    interested = interests.groupBy("run").agg((f.count("t") / 2).cast("bigint").alias("some"))
    wanted = f.when(f.col("publication") % 3 == 0, f.col("some")).otherwise(0)
    return publications.join(interested, on="run", how="inner").select(
        "run", "publication", wanted.alias("expected")
    )


class Story(NamedTuple):
    """What was followed, and what `windows` said before, after the kill, and at the end."""

    rows: Rows
    trace: Path
    out: Path
    before: list[list[SparkRow]]
    killed: list[list[SparkRow]]
    ended: list[list[SparkRow]]


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    root = tmp_path_factory.mktemp("followed")
    rows, trace, out = made_up(1), begin_trace(root / "walk"), root / "out"
    add_part(trace, "interests", [interest(0, number) for number in range(8)], 0)
    grow(trace, rows, range(2))

    def told() -> list[list[SparkRow]]:
        return [windows(spark, out, table).collect() for table in ("traffic", "delivery")]

    before = told()
    stop_and_kill(trace, out, rows)
    killed = told()
    grow(trace, rows, range(4, PARTS))
    (trace / "summary.json").write_text("{}")
    queries = follow(spark, trace, out, WINDOW_S, LATE_S, made_up_counts)
    for query in queries:
        query.processAllAvailable()
    for query in queries:
        query.stop()
    return Story(rows, trace, out, before, killed, told())


def as_traffic(rows: list[SparkRow]) -> Windows:
    found = {(row.run, row.start_s, row.kind): (row.messages, row.bytes) for row in rows}
    assert len(found) == len(rows), "a window was written twice"
    return found


def as_delivery(rows: list[SparkRow]) -> Windows:
    found = {
        (row.run, row.start_s): (
            row.deliveries, row.pairs, row.duplicates, row.unheard,
            row.latency_mean_ms and pytest.approx(row.latency_mean_ms),
            row.latency_p50_ms, row.latency_max_ms,
        )
        for row in rows
    }  # fmt: skip
    assert len(found) == len(rows), "a window was written twice"
    return found


def test_before_anything_is_written_there_are_no_windows(story: Story) -> None:
    assert story.before == [[], []]


def test_what_a_killed_process_has_left_is_right_and_without_a_gap(story: Story) -> None:
    traffic, told = story.killed
    assert traffic and part_of_truth(as_traffic(traffic), true_traffic(story.rows))
    assert told and part_of_truth(as_delivery(told), true_delivery(story.rows))
    assert "expected" not in told[0].asDict()


def test_after_a_stop_and_a_kill_all_windows_equal_plain_python(story: Story) -> None:
    traffic, told = story.ended
    assert as_traffic(traffic) == true_traffic(story.rows)
    assert as_delivery(told) == true_delivery(story.rows)


def test_expected_counts_are_summed_over_the_publications_of_a_window(story: Story) -> None:
    made: Counter[float] = Counter()
    expected: Counter[float] = Counter()
    for row in story.rows["publications"]:
        made[start_of(row["t"])] += 1
        expected[start_of(row["t"])] += 4 * (row["publication"] % 3 == 0)
    found = {row.start_s: (row.publications, row.expected) for row in story.ended[1]}
    assert found == {start: (made[start], expected[start]) for start in made}


def test_windows_of_two_kinds_do_not_mix(spark: SparkSession, story: Story) -> None:
    with pytest.raises(TraceError, match="begin another folder"):
        follow(spark, story.trace, story.out, 2 * WINDOW_S, LATE_S)
    with pytest.raises(ValueError, match="no such windows"):
        follow(spark, story.trace, story.out, 0.0)
    with pytest.raises(
        ValueError, match="there are windows of traffic and delivery, not of 'note'"
    ):
        windows(spark, story.out, "note")


def test_one_trace_is_followed_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ab":
        begin_trace(tmp_path / "all" / name)
    with pytest.raises(TraceError, match="holds several traces"):
        follow(spark, tmp_path / "all", tmp_path / "out")
    assert not (tmp_path / "out").exists()
