"""The command line: parsing, printing, exit codes. Everything else is imported when it is needed.

Exit codes: 0 success, 1 failure, 2 wrong use. Errors are one line on standard error. With --json,
standard output is one JSON document and nothing else.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nearcast import __version__

if TYPE_CHECKING:
    from nearcast.pipeline.analyse import Headline
    from nearcast.sim.run import Summary
    from nearcast.trace.validate import Report

EXAMPLES = """\
examples:
  nearcast simulate client-server --nodes 2000 --seconds 10 --trace world
  nearcast simulate client-server --workload hotspots --set hotspots=burning --trace burning
  nearcast simulate client-server --set loss=0.02 --set jitter_ms=5 --trace lossy
  nearcast simulate client-server --workload clustering --settings
  nearcast validate world
"""


MASTER = "a Spark master (default: local[*], all cores of this machine)"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    top = Parser(
        prog="nearcast",
        description="Spatial publish/subscribe: everyone whose area a message touches hears it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"nearcast {__version__}")
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    made = [add(commands) for add in (
        add_simulate, add_validate, add_analyse, add_import, add_sweep, add_doctor)]  # fmt: skip
    for command in made:
        command.add_argument(
            "--json", action="store_true", help="one JSON document on standard output"
        )
    return top


def add_simulate(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "simulate",
        help="run a protocol in a simulated world and leave a trace",
        description="Run a protocol in a simulated world. Same arguments, same trace, always.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("protocol", metavar="PROTOCOL", help="client-server")
    add(
        "--workload",
        default="waypoint",
        metavar="NAME",
        help="who does what: waypoint (default), hotspots, clustering, recorded (--set file=PATH)",
    )
    add("--nodes", type=int, metavar="N", help="entities (default 1000; recorded: all in the file)")
    add("--seconds", type=float, default=10.0, metavar="S", help="simulated seconds (default 10)")
    add("--seed", type=int, default=1, metavar="K", help="of all chance (default 1)")
    add(
        "--record",
        default="all",
        metavar="LEVEL",
        help="all (default), sampled (some publications), sums (messages per second), none",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any setting of protocol, workload, network, faults (--settings lists them)",
    )
    add(
        "--settings",
        action="store_true",
        dest="explain",
        help="list what can be set for this protocol and workload, and stop",
    )
    add("--trace", type=Path, metavar="DIR", help="where to leave the trace")
    command.set_defaults(run=run_simulate)
    return command


def add_validate(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "validate",
        help="tell what is wrong with a trace, table by table",
        description="Check every file and row of a trace. Exit code 1 if anything is wrong.",
    )
    command.add_argument("trace", type=Path, metavar="TRACE", help="a trace folder")
    command.set_defaults(run=run_validate)
    return command


def add_analyse(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "analyse",
        help="count what happened in traces, on Spark: truth, quality, traffic, report",
        description="Compute the exact truth of each trace, judge every delivery by it, and write"
        " result tables (Parquet, partitioned by run) and report.html.",
    )
    add = command.add_argument
    add(
        "traces",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="a trace folder, or a folder of traces",
    )
    add("--out", type=Path, metavar="DIR", help="where results go (default: TRACE-analysis)")
    add("--master", metavar="URL", help=MASTER)
    command.set_defaults(run=run_analyse)
    return command


def add_import(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "import",
        help="turn recorded movement (CSV or Parquet) into a trace",
        description="Columns t (seconds), entity, x, y[, z]: every fix moves the entity's area of"
        " interest there and publishes its position.",
    )
    add = command.add_argument
    add("file", type=Path, metavar="FILE")
    add("--trace", type=Path, required=True, metavar="DIR", help="where to leave the trace")
    add(
        "--radius",
        type=float,
        metavar="R",
        help="of the areas of interest (default: 1 %% of the world's longer side)",
    )
    add("--shape", default="disc", metavar="NAME", help="disc (default) or box")
    add(
        "--motion",
        default="steps",
        metavar="NAME",
        help="steps (default: areas stand still between fixes) or line",
    )
    command.set_defaults(run=run_import)
    return command


def add_sweep(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "sweep",
        help="simulate a grid of scenarios, one Spark task each",
        description="FILE.toml holds a scenario in which any value may be a list; all combinations"
        " are run. Killed at any moment, the same command goes on where it was.",
    )
    add = command.add_argument
    add("file", type=Path, metavar="FILE.toml")
    add(
        "--out",
        type=Path,
        default=Path("sweep"),
        metavar="DIR",
        help="where traces and failures go (default: sweep)",
    )
    add("--master", metavar="URL", help=MASTER)
    command.set_defaults(run=run_sweep)
    return command


def add_doctor(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "doctor",
        help="check this machine",
        description="Check that everything Nearcast needs is here and works.",
    )
    command.set_defaults(run=run_doctor)
    return command


def say(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))


def say_json(value: Any) -> None:
    import msgspec

    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


# simulate


def run_simulate(arguments: argparse.Namespace) -> int:
    settings = dict(split_setting(text) for text in arguments.settings)
    if arguments.explain:
        return run_explain(arguments)
    if arguments.trace is None:
        raise ValueError("say where to leave the trace: --trace DIR")
    nodes = arguments.nodes
    if nodes is None:
        nodes = 1000
        if arguments.workload == "recorded":
            nodes = entities_recorded(settings)

    from nearcast.scenario import Scenario
    from nearcast.sim.run import simulate

    scenario = Scenario(
        protocol=arguments.protocol, workload=arguments.workload, nodes=nodes,
        seconds=arguments.seconds, seed=arguments.seed, record=arguments.record,
        settings=dict(settings),
    )  # fmt: skip
    from nearcast.progress import Meter

    show = Meter() if sys.stderr.isatty() else None
    try:
        summary = simulate(scenario, arguments.trace, show)
    except KeyboardInterrupt:
        raise SystemExit(
            f"nearcast: interrupted; {arguments.trace} holds what was recorded"
        ) from None
    finally:
        if show:
            show.clear()
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


def entities_recorded(settings: dict[str, str]) -> int:
    from nearcast.workloads import fixes

    if not settings.get("file"):
        raise ValueError("the recorded workload wants --set file=PATH")
    return fixes.read(settings["file"], 1.0).entities


def told(summary: "Summary") -> list[str]:
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
    from nearcast.explain import settings
    from nearcast.sim.world import parameters_of

    told = {
        part: [
            dict(zip(("name", "default", "meaning"), row, strict=True)) for row in settings(kind)
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


def found(report: "Report") -> list[str]:
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
    from nearcast.pipeline.lake import open_traces

    traces = open_traces(arguments.traces)  # before Spark starts: a wrong path should not wait
    first = arguments.traces[0]
    out = arguments.out or first.with_name(f"{first.resolve().name}-analysis")

    from nearcast.pipeline.analyse import analyse
    from nearcast.pipeline.reports import report
    from nearcast.pipeline.session import start
    from nearcast.progress import Step

    step = Step()
    step("starting Spark", 0, 1)
    spark = start(arguments.master)
    try:
        headlines = analyse(spark, traces, out, step)
        step("report.html", 1, 1)
        known = {trace.run: trace.scenario for trace in traces}
        page = report(out, out, list(known), scenarios_of(known))
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


def judged(headline: "Headline") -> list[str]:
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
    from nearcast.pipeline.session import start
    from nearcast.pipeline.sweeps import read, sweep

    read(arguments.file)  # before Spark starts: a wrong file should not wait
    from nearcast.progress import Step

    step = Step()
    spark = start(arguments.master)
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


# doctor


def run_doctor(arguments: argparse.Namespace) -> int:
    from nearcast.doctor import examine

    findings = examine()
    if arguments.json:
        say_json(findings)
    else:
        for finding in findings:
            say(f"{'ok ' if finding.good else 'BAD'}  {finding.check}: {finding.found}")
            if not finding.good:
                say(f"     → {finding.remedy}")
    return 0 if all(finding.good for finding in findings) else 1


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ValueError as why:
        return fail(2, why)
    except FileNotFoundError as why:
        return fail(2, f"there is no {why.filename}")
    except MemoryError:
        return fail(1, "not enough memory for this world; try fewer --nodes or --record sums")
    except KeyboardInterrupt:
        return fail(1, "interrupted")
    except Exception as why:
        if os.environ.get("NEARCAST_DEBUG"):
            raise
        return fail(1, why)


def fail(code: int, why: object) -> int:
    text = str(why) or type(why).__name__
    sys.stderr.write(f"nearcast: {' '.join(text.split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
