"""`nearcast simulate`: run a protocol in a simulated world."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import (
    FOR_A_TRACE,
    Parser,
    path_argument,
    split_setting,
    write_json,
    write_lines,
)
from nearcast.protocols import PROTOCOLS
from nearcast.workloads import WORKLOADS

if TYPE_CHECKING:
    from nearcast.sim.run import RunSummary

EXAMPLES = """\
examples:
  nearcast simulate client-server --nodes 2000 --seconds 10 --trace world
  nearcast simulate client-server --workload hotspots --set hotspots=burning --trace burning
  nearcast simulate client-server --set loss=0.02 --set jitter_ms=5 --trace lossy
  nearcast simulate client-server --workload clustering --settings
  nearcast validate world
"""


def add_simulate(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "simulate",
        help="run a protocol in a simulated world and leave a trace",
        description="Run a protocol in a simulated world. Same arguments, same trace, always.",
        epilog=EXAMPLES,
    )
    add = command.add_argument
    add("protocol", metavar="PROTOCOL", help=", ".join((*PROTOCOLS, "cluster (live nodes)")))
    add(
        "--workload",
        metavar="NAME",
        help="what entities do (default: the protocol's usual workload, mostly waypoint): "
        + ", ".join(WORKLOADS)
        .replace("recorded", "recorded (--set file=PATH)")
        .replace("replayed", "replayed (--set trace=DIR)"),
    )
    add(
        "--nodes",
        type=int,
        metavar="N",
        help="entities (default 1000; recorded, replayed: all in the file). The size of the world"
        " grows with this number, unless it is set",
    )
    add("--seconds", type=float, default=10.0, metavar="S", help="simulated seconds (default 10)")
    add("--seed", type=int, default=1, metavar="K", help="random seed (default 1)")
    add(
        "--record",
        default="all",
        metavar="LEVEL",
        help="all (default), sampled (some publications), sums (messages per second), brief (both),"
        " none",
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
    add("--trace", type=path_argument, metavar="DIR", help=FOR_A_TRACE)
    add(
        "--no-check",
        action="store_true",
        help="do not check deliveries, nor the protocol's invariants once a simulated second",
    )
    command.set_defaults(run=run_simulate)
    return command


def run_simulate(arguments: argparse.Namespace) -> int:
    settings = dict(split_setting(text) for text in arguments.settings)
    arguments.workload = arguments.workload or default_workload(arguments.protocol)
    if arguments.explain:
        return list_settings(arguments)
    if arguments.trace is None:
        raise ValueError("--trace DIR is needed: the folder for the trace")
    nodes = arguments.nodes
    if nodes is None:
        nodes = 1000
        if arguments.workload == "recorded":
            nodes = count_recorded_entities(settings)
        elif arguments.workload == "replayed":
            nodes = count_replayed_entities(settings)
    settings = with_world_size(arguments.workload, nodes, settings)

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
        write_json(summary)
    else:
        write_lines(*summary_lines(summary))
    return 0


def default_workload(protocol: str) -> str:
    """The workload that a protocol was made for."""

    return PROTOCOLS[protocol].workload if protocol in PROTOCOLS else "waypoint"


def with_world_size(workload: str, nodes: int, settings: dict[str, str]) -> dict[str, str]:
    """Scale the world with the number of entities, so that each has as many others nearby."""

    if "size" in settings or workload not in WORKLOADS:
        return settings
    size = WORKLOADS[workload].size_for(nodes, 3 if settings.get("dims") == "3" else 2)
    return settings if size is None else {**settings, "size": repr(size)}


def count_recorded_entities(settings: dict[str, str]) -> int:
    from nearcast.workloads import fixes

    if not settings.get("file"):
        raise ValueError("the recorded workload needs --set file=PATH")
    return fixes.read(settings["file"], 1.0).entities


def count_replayed_entities(settings: dict[str, str]) -> int:
    from nearcast.workloads import replayed

    if not settings.get("trace"):
        raise ValueError("the replayed workload needs --set trace=DIR")
    return replayed.make(replayed.Parameters(trace=settings["trace"]), 0, 1.0, 1).entities


def summary_lines(summary: "RunSummary") -> list[str]:
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


def list_settings(arguments: argparse.Namespace) -> int:
    from nearcast.field_docs import documented_fields
    from nearcast.sim.settings import parameters_of

    settings = {
        part: [
            dict(zip(("name", "default", "meaning"), row, strict=True))
            for row in documented_fields(kind)
        ]
        for part, kind in parameters_of(arguments.protocol, arguments.workload).items()
    }
    if arguments.json:
        write_json(settings)
        return 0
    for part, rows in settings.items():
        write_lines(f"{part}:")
        for row in rows:
            write_lines(f"  {row['name'] + '=' + row['default']:<22} {row['meaning']}".rstrip())
    return 0
