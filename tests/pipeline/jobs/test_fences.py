"""What was told of fences is judged on Spark as in plain Python: of live runs, and with faults."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.analyse import GROUPS, analyse
from nearcast.pipeline.jobs import fences
from nearcast.pipeline.spark.storage import open_traces, read_result
from nearcast.space.motion import SECOND
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import MemoryTrace, TraceFolder
from support.recorded_realms import KEY, FenceRealm, replayed, run_realm, told_events

OUTCOMES = ("told", "missed", "spurious", "unsettled")


def write_realm(here: FenceRealm, root: Path, told: pa.Table | None = None) -> None:
    """Its trace as files, perhaps with other events than it has told."""
    rows = {name: here.sink.table(name) for name in TABLES}
    if told is not None:
        rows["fence_events"] = told
    TraceFolder(root, b'{"schema":2}').write(rows)


def judge(spark: SparkSession, root: Path, out: Path) -> dict[str, dict[str, Counter[str]]]:
    """Counts of outcomes by run and kind."""
    traces = open_traces([root])
    for trace, one in zip(traces, analyse(spark, traces, out, jobs=GROUPS["fences"]), strict=True):
        rows = read_result(out, "fence_totals", trace.run)
        counts = [one.fence_events[name] if one.fence_events else 0 for name in OUTCOMES]
        assert counts == [sum(row[name] for row in rows) for name in OUTCOMES]
    return {
        trace.run: {
            row["kind"]: Counter({name: row[name] for name in OUTCOMES})
            for row in read_result(out, "fence_totals", trace.run)
        }
        for trace in traces
    }


def judged_plainly(trace: MemoryTrace, told: Counter[Any]) -> dict[str, Counter[str]]:
    """The same counts, in plain Python."""
    until = max(
        max(trace.table(name).column("t").to_pylist(), default=0) for name in fences.LASTING
    )
    expected: dict[Any, list[tuple[int, int]]] = {}
    for *event, decided, ends in replayed(trace, until):
        expected.setdefault(tuple(event), []).append((decided, min(ends, until)))
    outcomes: dict[str, Counter[str]] = {}
    for event in expected.keys() | told.keys():
        counts = outcomes.setdefault(event[KEY.index("kind")], Counter())
        due = sorted(expected.get(event, []))
        counts["told"] += min(len(due), told[event])
        counts["spurious"] += max(0, told[event] - len(due))
        for decided, ends in due[told[event] :]:
            counts["unsettled" if decided + SECOND > ends else "missed"] += 1
    return {kind: +counts for kind, counts in outcomes.items()}


def test_live_runs_with_and_without_planted_faults(spark: SparkSession, tmp_path: Path) -> None:
    plain = {}
    for seed in range(3):
        here = run_realm(seed, steps=150)
        write_realm(here, tmp_path / "traces" / f"live-{seed}")
        plain[f"live-{seed}"] = judged_plainly(here.sink, told_events(here.sink))
    for seed, fault in enumerate(("dropped", "duplicated", "moved")):
        here = run_realm(seed, steps=150)
        rows = here.sink.table("fence_events").to_pylist()
        # Neither `inside` nor `outside`: they come twice at one moment.
        some = [row for row in rows if row["kind"] not in ("inside", "outside")]
        chosen = Random(seed).sample(some, 7)
        kept = [row for row in rows if fault == "duplicated" or row not in chosen]
        if fault == "moved":
            chosen = [{**row, "event_t": row["event_t"] + 1} for row in chosen]
        told = kept if fault == "dropped" else kept + chosen
        schema = TABLES["fence_events"]
        write_realm(here, tmp_path / "traces" / fault, pa.Table.from_pylist(told, schema))
        counted = Counter(tuple(row[name] for name in KEY) for row in told)
        plain[fault] = judged_plainly(here.sink, counted)
    found = judge(spark, tmp_path / "traces", tmp_path / "out")
    assert {run: {kind: +some for kind, some in kinds.items()} for run, kinds in found.items()} == {
        run: {kind: some for kind, some in kinds.items() if some} for run, kinds in plain.items()
    }
    total = {run: sum(kinds.values(), Counter()) for run, kinds in found.items()}
    for seed in range(3):
        assert total[f"live-{seed}"]["told"] > 50
        assert total[f"live-{seed}"].keys() <= {"told", "unsettled"}
    away = total["dropped"]["missed"] + total["dropped"]["unsettled"]
    assert away - total["live-0"]["unsettled"] == 7 and total["dropped"]["spurious"] == 0
    assert total["duplicated"]["spurious"] == 7 and total["duplicated"]["missed"] == 0
    assert total["moved"]["spurious"] == 7
    examples = read_result(tmp_path / "out", "fence_examples", "duplicated")
    assert Counter(row["outcome"] for row in examples) == {"spurious": 7}


def test_how_late_events_are_told(spark: SparkSession, tmp_path: Path) -> None:
    here = run_realm(5)
    write_realm(here, tmp_path / "late")
    judge(spark, tmp_path / "late", tmp_path / "out")
    rows = here.sink.table("fence_events").to_pylist()
    late = sorted(row["t"] - row["event_t"] for row in rows)
    found = sorted(
        read_result(tmp_path / "out", "fence_lateness", "late"), key=lambda row: row["quantile"]
    )
    assert len(found) == 101
    assert (found[0]["late_ms"], found[-1]["late_ms"]) == (late[0] / 1000, late[-1] / 1000)
    assert found[0]["delay_ms"] == 0.0
    totals = read_result(tmp_path / "out", "fence_totals", "late")
    assert sum(row["told"] for row in totals) == len(rows)
    assert max(row["late_max_ms"] for row in totals) == pytest.approx(late[-1] / 1000)


def test_a_trace_without_fences_has_no_such_tables(spark: SparkSession, tmp_path: Path) -> None:
    here = FenceRealm()
    here.client_state(0)
    here.table("notes")
    write_realm(here, tmp_path / "plain")
    assert judge(spark, tmp_path / "plain", tmp_path / "out") == {"plain": {}}
    assert not (tmp_path / "out" / "fence_totals").exists()


def test_the_benchmark_in_small(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    benchmark = import_module("fence_truth")
    monkeypatch.setattr(benchmark, "ROUNDS", 6)
    benchmark.record(tmp_path / "trace", fixes=1200, fences=150)
    rows = benchmark.judge(spark, tmp_path / "trace", tmp_path / "out")
    assert {row["kind"] for row in rows} >= {"enter", "leave", "cross", "dwell"}
    assert sum(row["told"] for row in rows) > 200
    assert sum(row["missed"] + row["spurious"] for row in rows) == 0
