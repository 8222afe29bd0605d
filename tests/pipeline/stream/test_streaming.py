"""Windows over a growing trace against plain Python: through a kill, a stop, and to the end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from nearcast.cli.main import main
from nearcast.errors import TraceError
from nearcast.pipeline.spark.storage import read_result
from nearcast.pipeline.stream.streaming import follow, read_windows
from support.growing_traces import COUNTS, as_printed, grow, made_up, windows_of
from support.patience import PATIENCE_S
from support.small_traces import Rows, begin_trace

LATE_S = 5.0  # as `nearcast analyse --follow` has it
FOLLOW = [sys.executable, "-m", "nearcast.cli", "analyse", "--json", "--follow"]

Printed = list[dict[str, Any]]


class Story(NamedTuple):
    """What was followed; what a killed process, one that was stopped and the last one said."""

    rows: Rows
    trace: Path
    out: Path
    killed: Printed
    kept_when_killed: Printed
    stopped: Printed
    ended: Printed


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    root = tmp_path_factory.mktemp("followed")
    rows, trace, out = made_up(1, seconds=24), root / "walk", root / "out"
    killed = printed_until_killed(trace, out, rows)
    kept = [window_as_printed(window) for window in read_windows(out, "walk")]
    later: list[Printed] = []
    for flushes in (range(16, 20, 2), range(20, 40, 2)):
        for second in flushes:
            grow(trace, rows, second, second + 2)
        if flushes.stop == 40:
            (trace / "summary.json").write_text("{}")
        later.append(windows_of_one_follow(spark, trace, out, stop_after=flushes.stop < 40))
    return Story(rows, trace, out, killed, kept, *later)


def printed_until_killed(trace: Path, out: Path, rows: Rows) -> Printed:
    """Another process waits for a trace, follows it, and is killed in the middle of a batch."""
    lines, scratch = out.with_name("lines"), out.with_name("scratch")
    scratch.mkdir()
    with lines.open("wb") as stdout:
        child = subprocess.Popen(
            [*FOLLOW, str(trace), "--out", str(out)], stdout=stdout, start_new_session=True,
            env=os.environ | {"TMPDIR": str(scratch)},
        )  # fmt: skip
        try:
            sleep(0.5)
            begin_trace(trace)
            grow(trace, rows, 0, 12)
            wait_until(lambda: lines.stat().st_size > 0, child)
            grow(trace, rows, 12, 16)
            wait_until(lambda: batches(scratch, "offsets") > batches(scratch, "commits"), child)
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # Spark's Java too
            child.wait()
    return [json.loads(line) for line in lines.read_text().splitlines()]


def wait_until(something: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    begun = monotonic()
    while not something():
        assert child.poll() is None, "it has ended by itself"
        assert monotonic() - begun < 300, "nothing has happened"
        sleep(0.01)


def batches(scratch: Path, log: str) -> int:
    """How many batches Spark has written down in its own log."""
    return len(list(scratch.glob(f"nearcast-stream-*/{log}/[0-9]*")))


def windows_of_one_follow(spark: SparkSession, trace: Path, out: Path, stop_after: bool) -> Printed:
    """One that is stopped when it has returned something, or that ends by itself."""
    printed: Printed = []
    ended = follow(
        spark, trace, out,
        on_windows=lambda found: printed.extend(map(window_as_printed, found)),
        stopped=lambda: stop_after and bool(printed),
    )  # fmt: skip
    assert ended != stop_after
    assert not spark.streams.active
    return printed


def window_as_printed(window: Any) -> dict[str, Any]:
    return {name: getattr(window, name) for name in window.__struct_fields__}


def check(printed: Printed, rows: Rows) -> None:
    """Each window once, as plain Python counts it."""
    truth = windows_of(rows, 1.0, LATE_S)
    seconds = [one["second"] for one in printed]
    assert seconds == sorted(set(seconds)), "a window was printed twice"
    for one in printed:
        true, late = as_printed(truth[one["second"]]), one["latency_ms"]
        kinds = {kind["kind"]: kind["messages"] for kind in one["kinds"]}
        assert sum(kind["bytes"] for kind in one["kinds"]) == one["bytes"]
        found = {name: one[name] for name in COUNTS}
        found |= {"mean": pytest.approx(late["mean"]), "max": late["max"], "kinds": kinds}
        assert true == found
        ranked = sorted(truth[one["second"]]["late"])
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            assert late[name] == pytest.approx(between_ranks(ranked, share))


def between_ranks(ranked: list[float], share: float) -> float | None:
    """As SQL's `percentile` has it."""
    if not ranked:
        return None
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])


def test_a_killed_process_has_printed_and_kept_whole_windows(story: Story) -> None:
    check(story.killed, story.rows)
    check(story.kept_when_killed, story.rows)
    assert [one["second"] for one in story.killed][:3] == [0.0, 1.0, 2.0]
    assert story.kept_when_killed[: len(story.killed)] == story.killed


def test_after_a_kill_and_a_stop_every_window_was_printed_and_kept_once(story: Story) -> None:
    assert story.stopped and story.ended
    together = story.kept_when_killed + story.stopped + story.ended
    check(together, story.rows)
    assert [one["second"] for one in together] == sorted(windows_of(story.rows, 1.0, LATE_S))
    kept = [window_as_printed(window) for window in read_windows(story.out, "walk")]
    assert kept == together
    assert len(read_result(story.out, "windows", "walk")) == len(kept)
    assert not list(story.out.glob("**/.*.unfinished"))


def test_a_monitor_finds_the_latest_windows_in_one_file(story: Story) -> None:
    live = json.loads((story.out / "live.json").read_text())
    assert live == {"windows": [window_as_printed(one) for one in read_windows(story.out, "walk")]}


def test_a_trace_that_was_followed_to_its_end_has_no_more_windows(
    spark: SparkSession, story: Story
) -> None:
    assert windows_of_one_follow(spark, story.trace, story.out, stop_after=False) == []


def test_windows_of_two_kinds_do_not_mix(spark: SparkSession, story: Story) -> None:
    with pytest.raises(TraceError, match="begin another folder"):
        follow(spark, story.trace, story.out, 2.0)
    with pytest.raises(ValueError, match="window_s must be above 0"):
        follow(spark, story.trace, story.out, 0.0)


def test_waiting_for_a_trace_is_reported_and_stops_on_a_signal(tmp_path: Path) -> None:
    for name, number in (("missing", signal.SIGINT), ("empty", signal.SIGTERM)):
        trace = tmp_path / name
        if name == "empty":
            trace.mkdir()
        child = subprocess.Popen([*FOLLOW, str(trace)], stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        printed = child.stderr.readline()
        assert printed == f"nearcast: waiting for a trace at {trace} (Ctrl-C stops)\n"
        child.send_signal(number)
        assert child.communicate(timeout=PATIENCE_S)[1] == "" and child.returncode == 0


@pytest.mark.parametrize(
    ("names", "why", "code"),
    [
        (["file"], "there is no trace at", 1),
        (["several"], "holds several traces", 1),
        (["strange"], "holds neither a trace nor", 1),
        (["several", "file"], "--follow takes one trace", 2),
    ],
)
def test_what_cannot_be_followed_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], why: str, code: int
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "strange" / "inside").mkdir(parents=True)
    for name in "ab":
        begin_trace(tmp_path / "several" / name)
    assert main(["analyse", "--follow", *(str(tmp_path / name) for name in names)]) == code
    printed = capsys.readouterr()
    assert why in printed.err and printed.err.count("\n") == 1 and printed.out == ""
