"""`nearcast validate`, `import`, `export` and `merge`: check, make and combine traces."""

import argparse
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import A_TRACE, FOR_A_TRACE, Parser, path_argument, write_json, write_lines

if TYPE_CHECKING:
    from nearcast.pipeline.importers import ImportSummary
    from nearcast.trace.validate import ValidationReport


def add_validate(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "validate",
        help="check a trace and list its problems, table by table",
        description="Check every file and row of a trace. Exit code 1 if anything is wrong.",
    )
    command.add_argument("trace", type=path_argument, metavar="TRACE", help=A_TRACE)
    command.set_defaults(run=run_validate)
    return command


def run_validate(arguments: argparse.Namespace) -> int:
    from nearcast.trace.validate import validate

    report = validate(arguments.trace)
    if arguments.json:
        write_json(report)
    else:
        write_lines(*report_lines(report))
    return 1 if report.problems else 0


def report_lines(report: "ValidationReport") -> list[str]:
    lines = [f"{'table':18}{'rows':>12}{'files':>7}{'first s':>16}{'last s':>16}"]
    for name, table in report.tables.items():
        first, last = ("" if t is None else f"{t / 1e6:,.3f}" for t in (table.first, table.last))
        lines.append(f"{name:18}{table.rows:>12,}{table.files:>7}{first:>16}{last:>16}")
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


def add_import(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "import",
        help="turn recorded movement into a trace",
        description="CSV or Parquet with columns t (seconds), entity, x, y[, z]; or, on Earth, with"
        " latitude and longitude, GeoParquet, GeoJSON tracks (.geojson), GPX (.gpx), OpenSky's"
        " states (.json, .jsonl, .ndjson), AIS (.nmea, .ais, .aivdm, .txt, .log)."
        " Every fix moves the entity's area of interest there and publishes its position.",
    )
    add = command.add_argument
    add(
        "file",
        type=path_argument,
        metavar="FILE",
        help="a file, or a URI like s3://bucket/walk.csv",
    )
    add("--trace", type=path_argument, required=True, metavar="DIR", help=FOR_A_TRACE)
    add(
        "--radius",
        type=float,
        metavar="R",
        help="of the areas of interest, on Earth in metres (default: 1 %% of the world's longer"
        " side)",
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


def run_import(arguments: argparse.Namespace) -> int:
    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.importers import import_movement
    from nearcast.trace.validate import validate

    meter = StepMeter()
    try:
        done = import_movement(
            arguments.file, arguments.trace,
            radius=arguments.radius, shape=arguments.shape, motion=arguments.motion,
            progress=meter,
        )  # fmt: skip
    finally:
        meter.clear()
    report = validate(arguments.trace)
    if arguments.json:
        write_json({"imported": done, **report_columns(report)})
    else:
        write_lines(*import_lines(done), *report_lines(report))
    return 1 if report.problems else 0


def report_columns(report: "ValidationReport") -> dict[str, Any]:
    return {name: getattr(report, name) for name in report.__struct_fields__}


def import_lines(done: "ImportSummary") -> list[str]:
    """What the file was, and what of it is not in the trace."""
    from nearcast.pipeline.movement.fix_collector import utc_text

    lines = []
    if done.geometry == "earth":
        times = (
            "times in seconds, without a calendar"
            if done.epoch_us is None
            else f"from {utc_text(done.epoch_us)}"
        )
        lines.append(
            f"on Earth: {done.rows['publications']:,} fixes of {done.entities:,} entities in"
            f" {done.seconds:,.0f} s, {times}"
        )
    if done.skipped:
        lines.append(f"{done.skipped:,} rows skipped; the first: {done.first_skipped}")
    return [*lines, *done.notes]


def add_export(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "export",
        help="write the movement of a trace as GeoParquet, GeoJSON or CSV",
        description="The places at which entities published, with times and altitudes: of a trace"
        " of the Earth as longitude and latitude. GeoParquet and CSV have a row for each,"
        " GeoJSON a feature for each entity.",
    )
    add = command.add_argument
    add("trace", type=path_argument, metavar="TRACE", help=A_TRACE)
    add("out", type=path_argument, metavar="OUT", help="OUT.parquet, OUT.geojson or OUT.csv")
    command.set_defaults(run=run_export)
    return command


def run_export(arguments: argparse.Namespace) -> int:
    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.exporters import export_movement

    meter = StepMeter()
    try:
        done = export_movement(arguments.trace, arguments.out, progress=meter)
    finally:
        meter.clear()
    if arguments.json:
        write_json(done)
        return 0
    earth = done.geometry == "earth"
    places = "longitude and latitude" if earth else "x and y of a plane, without a reference system"
    lines = [f"{done.rows:,} fixes in {done.file}: {places}"]
    if not earth and done.file.endswith(".geojson"):
        lines.append("most programs take the numbers of GeoJSON for degrees all the same")
    if done.areas:
        lines.append(f"{done.areas:,} publications to areas are left out: they are no positions")
    if not done.calendar:
        times = "are seconds" if done.file.endswith(".csv") else "count from 1970-01-01T00:00:00Z"
        lines.append(f"the trace has no calendar: its times {times}")
    write_lines(*lines)
    return 0


def add_merge(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "merge",
        help="put what clients recorded into the trace of their node",
        description="Write a trace in which clients' own recordings (connect(..., trace=DIR)) take"
        " the place of the node's word for what they heard; `nearcast analyse` then judges the run"
        " from end to end.",
    )
    add = command.add_argument
    add("node", type=path_argument, metavar="NODE", help="the node's trace: a folder or a URI")
    add(
        "clients",
        nargs="+",
        type=path_argument,
        metavar="CLIENT",
        help="traces that its clients recorded",
    )
    add("--trace", type=path_argument, required=True, metavar="DIR", help=FOR_A_TRACE)
    command.set_defaults(run=run_merge)
    return command


def run_merge(arguments: argparse.Namespace) -> int:
    from nearcast.trace.merge import merge

    summary = merge(arguments.node, arguments.clients, arguments.trace)
    if arguments.json:
        write_json(summary)
    else:
        write_lines(
            f"{summary['rows']['deliveries']:,} deliveries, those of {summary['clients']:,} clients"
            f" as they recorded them, in {arguments.trace}"
        )
    return 0
