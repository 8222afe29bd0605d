"""`nearcast geofence`: who entered and left which fence, over a history of fixes."""

import argparse
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

if TYPE_CHECKING:
    from nearcast.pipeline.geofence.event_files import EventCounts
    from nearcast.pipeline.geofence.fix_sources import FixCounts
    from nearcast.storage import AnyPath


def add_geofence(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "geofence",
        help="find who entered and left which fence, in a trace or a file of fixes, on Spark",
        description="Find the events of all entities at all fences, exactly: also those between two"
        " fixes, at their own times. FENCES is a GeoJSON FeatureCollection, in degrees if the fixes"
        " are. SOURCE is a trace, whose publications to points are the fixes, or any file that"
        " `nearcast import` reads.",
    )
    add = command.add_argument
    add("fences", type=path_argument, metavar="FENCES", help="a file or URI of GeoJSON")
    add("source", type=path_argument, metavar="SOURCE", help="a trace or a file of fixes, or a URI")
    add(
        "--events",
        default="enter,leave",
        metavar="NAME,...",
        help="of enter, leave, cross, inside, outside (default: enter,leave; a crossing between two"
        " fixes is both)",
    )
    add("--dwell", type=float, metavar="S", help="also report who is inside for so many seconds")
    add(
        "--linger",
        type=float,
        default=0.0,
        metavar="S",
        help="report who leaves only after so many seconds outside",
    )
    add("--ttl", type=float, metavar="S", help="a fix holds no longer than so many seconds")
    add("--channel", metavar="NAME", help="of a trace: only publications of this channel")
    add(
        "--out",
        type=path_argument,
        metavar="OUT",
        help="OUT.parquet, OUT.csv, OUT.geojson, or a folder for many Parquet files"
        " (default: SOURCE-events.parquet)",
    )
    add_spark_options(command)
    command.set_defaults(run=run_geofence)
    return command


def run_geofence(arguments: argparse.Namespace) -> int:
    keep_pandas_out()
    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.geofence.event_files import with_times, write_events
    from nearcast.pipeline.geofence.fence_history import fence_events, fence_rules, with_ttl
    from nearcast.pipeline.geofence.fix_sources import is_on_earth, open_fixes, open_source
    from nearcast.pipeline.geofence.packed_fences import read_fences, send_fences

    # Before Spark starts: what is wrong should not wait.
    rules = fence_rules(arguments.events.split(","), arguments.dwell, arguments.linger)
    source = open_source(arguments.source)
    out = arguments.out or default_target(arguments.source)
    if out.exists():
        raise ValueError(f"{out} exists already; say with --out where the events go")
    step = StepMeter()
    try:
        step("reading fences", 0, 4)
        fences = read_fences(arguments.fences, is_on_earth(source))
        step("starting Spark", 1, 4)
        spark = start_spark(arguments)
        try:
            step("reading fixes", 2, 4)
            fixes, counts = open_fixes(spark, source, arguments.channel)
            step("finding events", 3, 4)
            events = fence_events(
                with_ttl(fixes.frame, arguments.ttl), send_fences(spark, fences), rules,
                fixes.places, until=fixes.until,
            )  # fmt: skip
            found = write_events(with_times(events, fixes.calendar), out.resolve())
            read = counts()
        finally:
            spark.stop()
    finally:
        step.clear()
    if arguments.json:
        summary = {"fences": len(fences.ids), "out": str(out), "read": read._asdict()}
        write_json({**summary, "events": found.kinds, "busiest": found.busiest})
    else:
        write_lines(*summary_lines(len(fences.ids), read, found), f"all events in {out}")
    return 0


def default_target(source: "AnyPath") -> "AnyPath":
    return source.with_name(f"{source.resolve().stem}-events.parquet")


def summary_lines(fences: int, read: "FixCounts", found: "EventCounts") -> list[str]:
    lines = [f"{read.fixes:,} fixes, {fences:,} fences, {sum(found.kinds.values()):,} events"]
    if read.skipped:
        first = f"; the first: {read.first_skipped}" if read.first_skipped else ""
        lines.append(f"{read.skipped:,} rows skipped{first}")
    lines += read.notes
    if found.kinds:
        lines.append("events: " + ", ".join(f"{n:,} {kind}" for kind, n in found.kinds.items()))
        lines.append(
            "busiest fences: " + ", ".join(f"{name} ({n:,})" for name, n in found.busiest.items())
        )
    return lines
