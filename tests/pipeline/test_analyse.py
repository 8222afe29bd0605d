"""Which result tables are written, and what is told meanwhile and at the end."""

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from nearcast.cli.analyse import summary_lines
from nearcast.cli.main import main
from nearcast.cli.progress import StepMeter
from nearcast.pipeline.analyse import (
    GROUPS,
    JOBS,
    AnalysisSummary,
    TableProgress,
    Tables,
    select_jobs,
)
from nearcast.pipeline.group_names import GROUP_NAMES
from support.patience import PATIENCE_S
from support.small_traces import a_bit_of_everything, write_trace


def test_tables_are_selected_by_name_or_group_and_stay_in_order() -> None:
    traffic = [job.__name__ for job in select_jobs(["traffic"])]
    assert traffic[0] == "traffic_totals"
    assert all(name.startswith("traffic_") for name in traffic)
    both = [job.__name__ for job in select_jobs(["traffic_by_kind", "popularity", "popularity"])]
    assert both == ["popularity", "traffic_by_kind"]
    assert select_jobs(list(GROUPS)) == JOBS


def test_groups_are_named_where_help_and_guide_name_them() -> None:
    assert tuple(GROUPS) == GROUP_NAMES
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "record-and-analyse.md"
    assert f"({', '.join(GROUP_NAMES)})" in guide.read_text("utf-8")


@pytest.mark.parametrize("names", ["delivery,wind", "", "delivery,", "delivery; traffic"])
def test_a_name_that_nobody_knows_is_refused_before_spark_starts(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write_trace(tmp_path / "trace", a_bit_of_everything())

    def never(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("nearcast.pipeline.spark.session.start", never)
    assert main(["analyse", str(trace), "--only", names]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(job.__name__ in said for job in JOBS)
    assert all(group in said for group in GROUPS)


def test_only_what_was_asked_for_is_written_and_the_report_notes_the_rest(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = write_trace(tmp_path / "trace", a_bit_of_everything())
    monkeypatch.setattr("nearcast.pipeline.spark.session.start", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    out = tmp_path / "trace-analysis"
    assert main(["analyse", str(trace), "--only", "traffic_totals,overlay_paths", "--json"]) == 0
    written = {folder.name for folder in out.iterdir() if any(folder.glob("run=*"))}
    assert written == {"traffic_totals", "overlay_paths"}
    assert (out / "rejected").is_dir(), "rejected rows are counted always"
    told = json.loads(capsys.readouterr().out)
    assert (told["expected"], told["recall"]) == (None, None)
    assert (told["messages"], told["bytes"], told["rejected"]) == (3, 120, 0)
    page = (out / "report.html").read_text()
    assert "The table <code>delivery_totals</code> is absent" in page
    assert "The table <code>traffic_totals</code> is absent" not in page


def test_the_summary_is_silent_about_what_was_not_counted() -> None:
    nothing = AnalysisSummary(
        run="r", trace="t", expected=None, delivered=None, correct=None, missed=None,
        spurious=None, duplicates=None, precision=None, recall=None, latency_ms={},
        messages=None, bytes=None, rejected=2,
    )  # fmt: skip
    assert summary_lines(nothing) == ["run r · t", "2 rows rejected"]


def test_progress_names_each_table_when_it_is_begun() -> None:
    told: list[tuple[str, int, int]] = []
    progress = TableProgress(3, lambda *step: told.append(step))
    with progress.of("first"), progress.of("second"):
        pass
    with progress.of("third"):
        pass
    assert told == [
        ("table 1 of 3: first", 0, 3),
        ("table 2 of 3: second", 0, 3),
        ("table 3 of 3: third", 2, 3),
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_is_told_in_one_line_of_a_terminal_and_nowhere_else(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    step = StepMeter()
    step("table 3 of 24: popularity", 2, 24)
    step("drawing report.html", 1, 1)
    step.clear()
    said = stderr.getvalue()
    assert "\n" not in said
    assert ("table 3 of 24: popularity" in said) == terminal
    assert said.count("\r") == (3 if terminal else 0)


def test_a_table_is_made_once_and_different_ones_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, made = Barrier(2, timeout=PATIENCE_S), []

    def make(_: Tables, name: str) -> str:
        made.append(name)
        both.wait()  # nobody comes if one is made after the other
        return name

    monkeypatch.setattr(Tables, "_make", make)
    monkeypatch.setattr(Tables, "_keep", lambda _, frame: frame)
    monkeypatch.setattr("nearcast.pipeline.analyse.keep_view", lambda _: None)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    tables = Tables(cast(SparkSession, spark), [])
    with ThreadPoolExecutor(4) as pool:
        names = ["notes", "views", "notes", "views"]
        assert list(pool.map(tables.__getitem__, names)) == names
    assert sorted(made) == ["notes", "views"]
