"""`nearcast sweep`: simulate a grid of scenarios on Spark."""

import argparse
from pathlib import Path
from typing import Any

from nearcast.cli.common import (
    Parser,
    add_spark_options,
    path_argument,
    start_spark,
    write_json,
    write_lines,
)


def add_sweep(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "sweep",
        help="simulate a grid of scenarios, one Spark task each",
        description="FILE.toml holds a scenario in which any value may be a list; all combinations"
        " are run. Killed at any moment, the same command goes on where it was.",
    )
    add = command.add_argument
    add("file", type=path_argument, metavar="FILE.toml")
    add(
        "--out",
        type=path_argument,
        default=Path("sweep"),
        metavar="DIR",
        help="where traces and failures go, a folder or a URI (default: sweep)",
    )
    add_spark_options(command)
    command.set_defaults(run=run_sweep)
    return command


def run_sweep(arguments: argparse.Namespace) -> int:
    from nearcast.pipeline.sweeps import read_sweep, sweep

    read_sweep(arguments.file)  # before Spark starts: a wrong file should not wait
    from nearcast.cli.progress import StepMeter

    step = StepMeter()
    spark = start_spark(arguments, lean=True)
    try:
        summary = sweep(spark, arguments.file, arguments.out, step.of_sweep)
    finally:
        spark.stop()
        step.clear()
    if arguments.json:
        write_json(summary)
    else:
        write_lines(
            f"{summary.total} scenarios: {summary.done} run, {summary.skipped} were there already,"
            f" {summary.failed} failed; traces in {arguments.out / 'traces'}"
        )
    return 1 if summary.failed else 0
