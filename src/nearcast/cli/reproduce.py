"""`nearcast reproduce`: the papers' figures and claims (`nearcast_papers`, imported late)."""

import argparse
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearcast.cli.common import Parser, add_spark_options, start_spark, write_json, write_lines


def add_reproduce(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "reproduce",
        help="draw the papers' figures beside ours, and judge every claim they make",
        description="Simulate what a paper's figures need, count it on Spark, and write"
        " claims.json, and for each paper a folder with report.html and figures/. What has been"
        " simulated before is not again.",
    )
    add = command.add_argument
    add(
        "papers",
        nargs="*",
        metavar="PAPER[:FIGURE]",
        help=f"{', '.join(paper_names())}; without a figure, all of it;"
        " without a paper, all of them",
    )
    add("--full", action="store_true", help="more seeds, sizes and readings: up to an hour a paper")
    add(
        "--out",
        type=Path,
        default=Path("reproduction"),
        metavar="DIR",
        help="where traces, results and figures go (default: reproduction)",
    )
    add_spark_options(command)
    command.set_defaults(run=run_reproduce)
    return command


def paper_names() -> list[str]:
    """The subpackages of `nearcast_papers`, which is not imported: `--help` must be fast."""
    spec = find_spec("nearcast_papers")
    folders = spec.submodule_search_locations if spec else None
    return [found.name for found in pkgutil.iter_modules(folders or []) if found.ispkg]


def run_reproduce(arguments: argparse.Namespace) -> int:
    from nearcast_papers import PAPERS

    selected = selected_figures(arguments.papers, {name: p.figures for name, p in PAPERS.items()})

    from nearcast.cli.progress import StepMeter
    from nearcast_papers.run import OUTCOMES, gather, reproduce, summary

    step = StepMeter()
    step("starting Spark", 0, 1)
    spark = start_spark(arguments)
    claims = []
    try:
        for name, figures in selected.items():
            claims += reproduce(
                spark, PAPERS[name], figures, arguments.out / name, full=arguments.full, show=step
            )
            gather(arguments.out, list(PAPERS))
    finally:
        spark.stop()
        step.clear()
    if arguments.json:
        write_json(claims)
        return 0
    write_lines(
        *(f"{c.claim:8}{OUTCOMES[c.holds]:15}{c.says}: {c.measured or c.note}" for c in claims)
    )
    write_lines(
        f"{summary(claims)};"
        f" look at {', '.join(str(arguments.out / name / 'report.html') for name in selected)}"
    )
    return 0


def selected_figures(
    selection: list[str], known: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The figures of each paper that PAPER[:FIGURE] asks for; without arguments, all."""
    selected: dict[str, list[str]] = {}
    for text in selection or list(known):
        paper, _, figure = text.partition(":")
        if paper not in known:
            raise ValueError(f"no paper {paper!r}; there is {', '.join(known)}")
        if figure and figure not in known[paper]:
            raise ValueError(
                f"{paper} has no figure {figure!r}; there are {', '.join(known[paper])}"
            )
        selected.setdefault(paper, []).extend([figure] if figure else known[paper])
    return {paper: tuple(dict.fromkeys(figures)) for paper, figures in selected.items()}
