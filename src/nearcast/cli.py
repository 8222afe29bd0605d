"""The command line: parsing, printing, exit codes. Everything else is imported when it is needed.

Exit codes: 0 success, 1 failure, 2 wrong use. Errors are one line on standard error. With --json,
standard output is one JSON document and nothing else.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from nearcast import __version__

if TYPE_CHECKING:
    from nearcast.sim.run import Progress, Summary
    from nearcast.trace.validate import Report

EXAMPLES = """\
examples:
  nearcast simulate client-server --nodes 2000 --seconds 10 --trace world
  nearcast simulate client-server --workload hotspots --set hotspots=burning --trace burning
  nearcast simulate client-server --set loss=0.02 --set jitter_ms=5 --trace lossy
  nearcast simulate client-server --workload clustering --settings
  nearcast validate world
"""


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

    simulate = commands.add_parser(
        "simulate",
        help="run a protocol in a simulated world and leave a trace",
        description="Run a protocol in a simulated world. Same arguments, same trace, always.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    simulate.add_argument("protocol", metavar="PROTOCOL", help="client-server")
    simulate.add_argument(
        "--workload", default="waypoint", metavar="NAME",
        help="who does what: waypoint (default), hotspots, clustering, recorded (--set file=PATH)",
    )  # fmt: skip
    simulate.add_argument(
        "--nodes", type=int, metavar="N", help="entities (default 1000; recorded: all in the file)"
    )
    simulate.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="simulated seconds (default 10)"
    )
    simulate.add_argument("--seed", type=int, default=1, metavar="K", help="of all chance (1)")
    simulate.add_argument(
        "--record", default="all", metavar="LEVEL",
        help="all (default), sampled (some publications), sums (messages per second), none",
    )  # fmt: skip
    simulate.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="any setting of protocol, workload, network, faults (--settings lists them)",
    )  # fmt: skip
    simulate.add_argument(
        "--settings", action="store_true", dest="explain",
        help="list what can be set for this protocol and workload, and stop",
    )  # fmt: skip
    simulate.add_argument("--trace", type=Path, metavar="DIR", help="where to leave the trace")
    simulate.set_defaults(run=run_simulate)

    validate = commands.add_parser(
        "validate",
        help="tell what is wrong with a trace, table by table",
        description="Check every file and row of a trace. Exit code 1 if anything is wrong.",
    )
    validate.add_argument("trace", type=Path, metavar="TRACE", help="a trace folder")
    validate.set_defaults(run=run_validate)

    doctor = commands.add_parser(
        "doctor",
        help="check this machine",
        description="Check that everything Nearcast needs is here and works.",
    )
    doctor.set_defaults(run=run_doctor)
    for command in (simulate, validate, doctor):
        command.add_argument(
            "--json", action="store_true", help="one JSON document on standard output"
        )
    return top


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


class Meter:
    """A line on the terminal that tells how far a run is and how long it will take."""

    def __init__(self) -> None:
        self._began = monotonic()

    def __call__(self, progress: "Progress") -> None:
        share, took = progress.done / progress.whole, monotonic() - self._began
        left = took / share - took if share else 0.0
        bar = "█" * round(share * 24)
        sys.stderr.write(
            f"\r{bar:░<24} {progress.done / 1e6:7.1f} of {progress.whole / 1e6:.1f} s simulated, "
            f"{progress.messages:,} messages, {left:.0f} s left \x1b[K"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


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
