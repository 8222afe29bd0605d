"""`nearcast analyse`: count what happened in traces, finished or growing (`--follow`)."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import (
    Parser,
    add_spark_options,
    path_argument,
    start_spark,
    write_json,
    write_lines,
)
from nearcast.extras import keep_pandas_out
from nearcast.pipeline.group_names import GROUP_NAMES

if TYPE_CHECKING:
    from threading import Event

    from nearcast.pipeline.analyse import AnalysisSummary
    from nearcast.pipeline.spark.storage import OpenedTrace
    from nearcast.pipeline.stream.streaming import Window
    from nearcast.storage import AnyPath


def add_analyse(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "analyse",
        help="count what happened in traces, on Spark: truth, quality, traffic, report",
        description="Compute the exact truth of each trace, judge every delivery by it, and write"
        " result tables (Parquet, partitioned by run) and report.html. With --follow, do so second"
        " by second while the trace grows: a line for each (with --json, a document on a line),"
        " a table `windows` and live.json. Stopped or killed, the same command goes on.",
    )
    add = command.add_argument
    add(
        "traces",
        nargs="+",
        type=path_argument,
        metavar="TRACE",
        help="a trace or a folder of traces; a URI like s3://bucket/walk is as good as a folder",
    )
    add(
        "--out",
        type=path_argument,
        metavar="DIR",
        help="where results go, a folder or a URI (default: TRACE-analysis)",
    )
    add(
        "--only",
        metavar="NAME,...",
        help="only these result tables, or groups of them: "
        f"{', '.join(GROUP_NAMES)}; the report notes which are absent",
    )
    add("--follow", action="store_true", help="count one trace while it grows, until it ends")
    add_spark_options(command)
    command.set_defaults(run=run_analyse)
    return command


def run_analyse(arguments: argparse.Namespace) -> int:
    keep_pandas_out()
    first = arguments.traces[0]
    out = arguments.out or first.with_name(f"{first.resolve().name}-analysis")
    if arguments.follow:
        return run_follow(arguments, out)

    from concurrent.futures import ThreadPoolExecutor

    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.spark.session import LEAN_ROWS
    from nearcast.pipeline.spark.storage import count_rows, open_traces

    # Before Spark starts: a wrong path or name should not wait.
    traces = open_traces(arguments.traces)
    only = None if arguments.only is None else load_jobs().select_jobs(arguments.only.split(","))
    step = StepMeter()
    step("starting Spark", 0, 1)
    try:
        with ThreadPoolExecutor(1) as aside:
            loading = aside.submit(load_jobs)  # which takes as long as Java takes to start
            spark = start_spark(arguments, lean=count_rows(traces) < LEAN_ROWS)
            try:
                jobs = loading.result()
                headlines = jobs.analyse(spark, traces, out, step, only or jobs.JOBS)
            finally:
                aside.submit(spark.stop)  # while the report is drawn
            step("drawing report.html", 1, 1)
            page = draw_report(traces, out)
    finally:
        step.clear()
    if arguments.json:
        write_json(headlines[0] if len(headlines) == 1 else headlines)
    else:
        for headline in headlines:
            write_lines(*summary_lines(headline))
        write_lines(f"results in {out}; look at {page}")
    return 0


def load_jobs() -> Any:
    """The modules of the analysis and its report: half of the imports of this command."""
    from nearcast.pipeline import analyse
    from nearcast.pipeline.report import reports

    assert reports
    return analyse


def draw_report(traces: "Sequence[OpenedTrace]", out: "AnyPath") -> "AnyPath":
    import msgspec

    from nearcast.pipeline.report.reports import write_report

    scenarios = {trace.run: msgspec.to_builtins(trace.scenario) or {} for trace in traces}
    return write_report(out, out, list(scenarios), scenarios)


def summary_lines(headline: "AnalysisSummary") -> list[str]:
    """What was counted of a run: nothing about deliveries or traffic if they were not asked for."""
    h = headline
    lines = [f"run {h.run} · {h.trace}"]
    if h.expected is not None:
        share = (
            ""
            if h.recall is None
            else f" (recall {h.recall:.4f}, precision {h.precision or 0:.4f})"
        )
        late = {name: "–" if ms is None else f"{ms:,.1f}" for name, ms in h.latency_ms.items()}
        lines += [
            f"{h.expected:,} expected, {h.correct:,} correct, {h.missed:,} missed,"
            f" {h.spurious:,} spurious, {h.duplicates:,} duplicates{share}",
            f"latency ms: mean {late['mean']}, p50 {late['p50']}, p90 {late['p90']},"
            f" p99 {late['p99']}, max {late['max']}",
        ]
    if h.fence_events is not None:
        counts = (f"{count:,} {outcome}" for outcome, count in h.fence_events.items())
        lines.append(f"fence events: {', '.join(counts)}")
    sent = "" if h.messages is None else f"{h.messages:,} messages, {h.bytes:,} bytes, "
    return [*lines, f"{sent}{h.rejected:,} rows rejected"]


def run_follow(arguments: argparse.Namespace, out: "AnyPath") -> int:
    """Analyse a growing trace until it ends or is interrupted; both are a success."""
    if len(arguments.traces) > 1:
        raise ValueError("--follow takes one trace")
    if arguments.remote is not None:
        from nearcast.pipeline.stream.streaming import NOT_ON_CONNECT

        raise ValueError(NOT_ON_CONNECT)
    if arguments.only is not None:
        raise ValueError("--follow has one result table; it does not go with --only")
    from threading import Event

    (trace,) = arguments.traces
    stop = Event()
    with stop_on_signals(stop):
        if not wait_for_trace(trace, stop):
            return 0

        from nearcast.cli.progress import StepMeter
        from nearcast.pipeline.stream.stream_source import open_single_trace
        from nearcast.pipeline.stream.streaming import follow

        open_single_trace(trace)  # before Spark starts: a wrong path should not wait
        step = StepMeter()
        step("starting Spark", 0, 1)
        spark = start_spark(arguments, lean=True)

    def show(windows: "Sequence[Window]") -> None:
        step.clear()
        try:
            for window in windows:
                write_lines(window_line(window, arguments.json))
            sys.stdout.flush()
        except BrokenPipeError:
            stop.set()  # standard output is closed

    with stop_on_signals(stop):  # again: Spark has signals of its own
        try:
            ended = follow(spark, trace, out, on_windows=show, stopped=stop.is_set)
        finally:
            spark.stop()
            step.clear()
    if not arguments.json:
        how = "the trace is complete" if ended else "stopped; the same command goes on from here"
        write_lines(f"{how}; results in {out}")
    return 0


@contextmanager
def stop_on_signals(stop: "Event") -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stop` and do nothing else."""
    from signal import SIGINT, SIGTERM, signal

    before = {number: signal(number, lambda *_: stop.set()) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, then in before.items():
            signal(number, then)


def wait_for_trace(trace: "AnyPath", stop: "Event") -> bool:
    """Wait until the trace exists; false if stopped before."""
    from nearcast.storage import list_names

    waiting, here = False, isinstance(trace, Path)
    while not stop.is_set():
        if list_names(trace) or (here and trace.exists() and not trace.is_dir()):
            return True
        if not waiting:
            waiting = True
            sys.stderr.write(f"nearcast: waiting for a trace at {trace} (Ctrl-C stops)\n")
            sys.stderr.flush()
        stop.wait(0.2 if here else 1.0)
    return False


def window_line(window: "Window", as_json: bool) -> str:
    if as_json:
        import msgspec

        return msgspec.json.encode(window).decode()
    w = window
    late = {name: "–" if ms is None else f"{ms:,.1f}" for name, ms in w.latency_ms.items()}
    return (
        f"{w.second:>8,.12g} s  {w.expected:,} expected, {w.delivered:,} delivered,"
        f" {w.missed:,} missed, {w.spurious:,} spurious; ms p50 {late['p50']}, p99 {late['p99']},"
        f" max {late['max']}; {w.messages:,} messages, {w.bytes:,} bytes"
    )
