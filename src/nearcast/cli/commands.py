"""What the commands do, and how they tell it. All but the simplest is imported when it is needed.

With --json, standard output is one JSON document and nothing else.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threading import Event

    from nearcast.pipeline.analyse import AnalysisSummary
    from nearcast.pipeline.stream.streaming import Window
    from nearcast.sim.run import RunSummary
    from nearcast.trace.validate import ValidationReport


def say(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))


def say_json(value: Any) -> None:
    import msgspec

    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


# simulate


def run_simulate(arguments: argparse.Namespace) -> int:
    settings = dict(split_setting(text) for text in arguments.settings)
    arguments.workload = arguments.workload or usual_workload(arguments.protocol)
    if arguments.explain:
        return run_explain(arguments)
    if arguments.trace is None:
        raise ValueError("say where to leave the trace: --trace DIR")
    nodes = arguments.nodes
    if nodes is None:
        nodes = 1000
        if arguments.workload == "recorded":
            nodes = entities_recorded(settings)
    settings = with_room(arguments.workload, nodes, settings)

    from nearcast.scenario import Scenario
    from nearcast.sim.run import simulate

    scenario = Scenario(
        protocol=arguments.protocol, workload=arguments.workload, nodes=nodes,
        seconds=arguments.seconds, seed=arguments.seed, record=arguments.record,
        settings=dict(settings),
    )  # fmt: skip
    from nearcast.cli.progress import SimulationMeter

    meter = SimulationMeter() if sys.stderr.isatty() else None
    try:
        summary = simulate(scenario, arguments.trace, meter, check=not arguments.no_check)
    except KeyboardInterrupt:
        raise SystemExit(
            f"nearcast: interrupted; {arguments.trace} holds what was recorded"
        ) from None
    finally:
        if meter:
            meter.clear()
    if arguments.json:
        say_json(summary)
    else:
        say(*told(summary))
    return 0


def split_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--set wants KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


def usual_workload(protocol: str) -> str:
    """An overlay made for a kind of world is run in it, unless another is asked for."""
    from nearcast.protocols import PROTOCOLS

    return PROTOCOLS[protocol].workload if protocol in PROTOCOLS else "waypoint"


def with_room(workload: str, nodes: int, settings: dict[str, str]) -> dict[str, str]:
    """A larger crowd gets a larger world, unless its size is set: all hear about as many others."""
    from nearcast.workloads import WORKLOADS

    if "size" in settings or workload not in WORKLOADS:
        return settings
    size = WORKLOADS[workload].size_for(nodes, 3 if settings.get("dims") == "3" else 2)
    return settings if size is None else {**settings, "size": repr(size)}


def entities_recorded(settings: dict[str, str]) -> int:
    from nearcast.workloads import fixes

    if not settings.get("file"):
        raise ValueError("the recorded workload wants --set file=PATH")
    return fixes.read(settings["file"], 1.0).entities


def told(summary: "RunSummary") -> list[str]:
    s, rows = summary.scenario, summary.rows
    speed = summary.simulated_s / summary.wall_s
    return [
        f"{s.protocol} · {s.workload} · {s.nodes:,} entities · {s.seconds:g} s · seed {s.seed}"
        f" · run {summary.run}",
        f"{rows['publications']:,} publications, {rows['deliveries']:,} deliveries,"
        f" {rows['interests']:,} interests, {summary.messages:,} messages",
        f"{summary.simulated_s:g} s simulated in {summary.wall_s:.1f} s"
        f" ({speed:.2g} × real time, {summary.messages / summary.wall_s:,.0f} messages/s)",
        f"{sum(rows.values()):,} rows in {summary.trace}; next: nearcast validate {summary.trace}",
    ]


def run_explain(arguments: argparse.Namespace) -> int:
    from nearcast.cli.settings import documented_fields
    from nearcast.sim.world import parameters_of

    told = {
        part: [
            dict(zip(("name", "default", "meaning"), row, strict=True))
            for row in documented_fields(kind)
        ]
        for part, kind in parameters_of(arguments.protocol, arguments.workload).items()
    }
    if arguments.json:
        say_json(told)
        return 0
    for part, rows in told.items():
        say(f"{part}:")
        for row in rows:
            say(f"  {row['name'] + '=' + row['default']:<22} {row['meaning']}".rstrip())
    return 0


# validate


def run_validate(arguments: argparse.Namespace) -> int:
    from nearcast.trace.validate import validate

    report = validate(arguments.trace)
    if arguments.json:
        say_json(report)
    else:
        say(*found(report))
    return 1 if report.problems else 0


def found(report: "ValidationReport") -> list[str]:
    lines = [f"{'table':14}{'rows':>12}{'files':>7}{'first s':>16}{'last s':>16}"]
    for name, table in report.tables.items():
        first, last = ("" if t is None else f"{t / 1e6:,.3f}" for t in (table.first, table.last))
        lines.append(f"{name:14}{table.rows:>12,}{table.files:>7}{first:>16}{last:>16}")
    if not report.finished:
        lines.append("the run did not end by itself; what it wrote until then is here")
    lines += [f"warning: {warning}" for warning in report.warnings]
    for p in report.problems:
        where = f"{p.file or p.table}" + ("" if p.row is None else f", row {p.row}")
        many = "" if p.count is None else f" ({p.count:,} rows)"
        example = f", e.g. {p.example}" if p.example else ""
        lines.append(f"problem: {where}: {p.reason}{many}{example}")
    lines.append(f"{len(report.problems)} problems" if report.problems else "nothing wrong")
    return lines


# analyse, import, sweep


def run_analyse(arguments: argparse.Namespace) -> int:
    first = arguments.traces[0]
    out = arguments.out or first.with_name(f"{first.resolve().name}-analysis")
    if arguments.follow:
        return run_follow(arguments, out)

    from nearcast.pipeline.spark.storage import count_rows, open_traces

    traces = open_traces(arguments.traces)  # before Spark starts: a wrong path should not wait

    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.analyse import analyse
    from nearcast.pipeline.report.reports import write_report
    from nearcast.pipeline.spark.session import LEAN_ROWS, start

    step = StepMeter()
    step("starting Spark", 0, 1)
    spark = start(arguments.master, lean=count_rows(traces) < LEAN_ROWS)
    try:
        headlines = analyse(spark, traces, out, step)
        step("report.html", 1, 1)
        known = {trace.run: trace.scenario for trace in traces}
        page = write_report(out, out, list(known), scenarios_of(known))
    finally:
        spark.stop()
        step.clear()
    if arguments.json:
        say_json(headlines[0] if len(headlines) == 1 else headlines)
    else:
        for headline in headlines:
            say(*judged(headline))
        say(f"results in {out}; look at {page}")
    return 0


def scenarios_of(known: dict[str, Any]) -> dict[str, dict[str, Any]]:
    import msgspec

    return {run: msgspec.to_builtins(scenario) or {} for run, scenario in known.items()}


def judged(headline: "AnalysisSummary") -> list[str]:
    h = headline
    share = (
        "" if h.recall is None else f" (recall {h.recall:.4f}, precision {h.precision or 0:.4f})"
    )
    late = {name: "–" if ms is None else f"{ms:,.1f}" for name, ms in h.latency_ms.items()}
    return [
        f"run {h.run} · {h.trace}",
        f"{h.expected:,} expected, {h.correct:,} correct, {h.missed:,} missed,"
        f" {h.spurious:,} spurious, {h.duplicates:,} duplicates{share}",
        f"latency ms: mean {late['mean']}, p50 {late['p50']}, p90 {late['p90']},"
        f" p99 {late['p99']}, max {late['max']}",
        f"{h.messages:,} messages, {h.bytes:,} bytes, {h.rejected:,} rows rejected",
    ]


def run_follow(arguments: argparse.Namespace, out: Path) -> int:
    """Until the trace ends, or somebody says so: both are a success."""
    if len(arguments.traces) > 1:
        raise ValueError("--follow takes one trace")
    from threading import Event

    (trace,) = arguments.traces
    stop = Event()
    with stopped_by_signals(stop):
        if not there(trace, stop):
            return 0

        from nearcast.cli.progress import StepMeter
        from nearcast.pipeline.spark.session import start
        from nearcast.pipeline.stream.stream_source import open_single_trace
        from nearcast.pipeline.stream.streaming import follow

        open_single_trace(trace)  # before Spark starts: a wrong path should not wait
        step = StepMeter()
        step("starting Spark", 0, 1)
        spark = start(arguments.master, lean=True)

    def tell(windows: "Sequence[Window]") -> None:
        step.clear()
        try:
            for window in windows:
                say(in_a_line(window, arguments.json))
            sys.stdout.flush()
        except BrokenPipeError:
            stop.set()  # nobody listens any more

    with stopped_by_signals(stop):  # again: Spark has signals of its own
        try:
            ended = follow(spark, trace, out, tell=tell, stopped=stop.is_set)
        finally:
            spark.stop()
            step.clear()
    if not arguments.json:
        how = "the trace is complete" if ended else "stopped; the same command goes on from here"
        say(f"{how}; results in {out}")
    return 0


@contextmanager
def stopped_by_signals(stop: "Event") -> Iterator[None]:
    """Ctrl-C and SIGTERM say stop, and nothing else."""
    from signal import SIGINT, SIGTERM, signal

    before = {number: signal(number, lambda *_: stop.set()) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, then in before.items():
            signal(number, then)


def there(trace: Path, stop: "Event") -> bool:
    """Wait for somebody to begin the trace; false if told to stop instead."""
    waiting = False
    while not stop.is_set():
        if trace.exists() and not (trace.is_dir() and not any(trace.iterdir())):
            return True
        if not waiting:
            waiting = True
            sys.stderr.write(f"nearcast: waiting for a trace at {trace} (Ctrl-C stops)\n")
            sys.stderr.flush()
        stop.wait(0.2)
    return False


def in_a_line(window: "Window", as_json: bool) -> str:
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


def run_import(arguments: argparse.Namespace) -> int:
    from nearcast.pipeline.importers import import_movement
    from nearcast.trace.validate import validate

    import_movement(
        arguments.file, arguments.trace,
        radius=arguments.radius, shape=arguments.shape, motion=arguments.motion,
    )  # fmt: skip
    report = validate(arguments.trace)
    if arguments.json:
        say_json(report)
    else:
        say(*found(report))
    return 1 if report.problems else 0


def run_sweep(arguments: argparse.Namespace) -> int:
    from nearcast.pipeline.spark.session import start
    from nearcast.pipeline.sweeps import read_sweep, sweep

    read_sweep(arguments.file)  # before Spark starts: a wrong file should not wait
    from nearcast.cli.progress import StepMeter

    step = StepMeter()
    spark = start(arguments.master, lean=True)
    try:
        summary = sweep(spark, arguments.file, arguments.out, step.of_sweep)
    finally:
        spark.stop()
        step.clear()
    if arguments.json:
        say_json(summary)
    else:
        say(
            f"{summary.total} scenarios: {summary.done} run, {summary.skipped} were there already,"
            f" {summary.failed} failed; traces in {arguments.out / 'traces'}"
        )
    return 1 if summary.failed else 0


# reproduce


def run_reproduce(arguments: argparse.Namespace) -> int:
    from nearcast_papers import PAPERS

    wanted = papers_wanted(arguments.papers, {name: p.figures for name, p in PAPERS.items()})

    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.spark.session import start
    from nearcast_papers.run import WORDS, counts, gather, reproduce

    step = StepMeter()
    step("starting Spark", 0, 1)
    spark = start(arguments.master)
    claims = []
    try:
        for name, figures in wanted.items():
            claims += reproduce(
                spark, PAPERS[name], figures, arguments.out / name, full=arguments.full, show=step
            )
            gather(arguments.out, list(PAPERS))
    finally:
        spark.stop()
        step.clear()
    if arguments.json:
        say_json(claims)
        return 0
    say(*(f"{c.claim:8}{WORDS[c.holds]:15}{c.says}: {c.measured or c.note}" for c in claims))
    held, failed, unknown = counts(claims)
    say(
        f"{held} claims hold, {failed} do not, {unknown} were not measured;"
        f" look at {', '.join(str(arguments.out / name / 'report.html') for name in wanted)}"
    )
    return 0


def papers_wanted(
    asked: list[str], known: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The figures of each paper that PAPER[:FIGURE] asks for; all of them, if nothing is asked."""
    wanted: dict[str, list[str]] = {}
    for text in asked or list(known):
        paper, _, figure = text.partition(":")
        if paper not in known:
            raise ValueError(f"no paper {paper!r}; there is {', '.join(known)}")
        if figure and figure not in known[paper]:
            raise ValueError(
                f"{paper} has no figure {figure!r}; there are {', '.join(known[paper])}"
            )
        wanted.setdefault(paper, []).extend([figure] if figure else known[paper])
    return {paper: tuple(dict.fromkeys(figures)) for paper, figures in wanted.items()}


# up, monitor


WALKERS = 300  # bots, where nobody says how many


def run_up(arguments: argparse.Namespace) -> int:
    from nearcast.monitor.server import run_until_signal, serve_live
    from nearcast.server.config import load_settings

    bots = WALKERS if arguments.bots is None else arguments.bots
    trace = None if arguments.trace is None else str(arguments.trace)
    chosen = load_settings(flags={"port": arguments.port, "trace": trace})

    def ready(page: str, recording: Path) -> None:
        if arguments.json:
            say_json({"page": page, "trace": str(recording), "bots": bots})
        else:
            say(
                f"a world with {bots} bots: open {page}",
                "  click to walk there; type help, storm, spawn 50 or gather 40 below the world",
                f"recording to {recording}; in another terminal, while it runs or later:",
                f"  nearcast analyse --follow {recording}",
                f"  nearcast monitor {recording}",
                "stop with Ctrl-C",
            )
        sys.stdout.flush()

    if sys.stderr.isatty():
        sys.stderr.write("opening a world; the first time on a machine this takes half a minute\n")
    run_until_signal(lambda stop: serve_live(chosen, bots, ready, stop))
    return 0


def run_monitor(arguments: argparse.Namespace) -> int:
    from nearcast.monitor.server import run_until_signal, serve_replay

    def ready(page: str) -> None:
        if arguments.json:
            say_json({"page": page})
        else:
            say(f"{arguments.trace}: open {page}", "stop with Ctrl-C")
        sys.stdout.flush()

    run_until_signal(lambda stop: serve_replay(arguments.trace, arguments.port, ready, stop))
    return 0


# doctor


def run_doctor(arguments: argparse.Namespace) -> int:
    from nearcast.cli.doctor import run_checks

    findings = run_checks()
    if arguments.json:
        say_json(findings)
    else:
        for finding in findings:
            say(f"{'ok ' if finding.good else 'BAD'}  {finding.check}: {finding.found}")
            if not finding.good:
                say(f"     → {finding.remedy}")
    return 0 if all(finding.good for finding in findings) else 1
