"""`nearcast explain`: why a subscription received a publication, or did not."""

import argparse
from typing import Any

from nearcast.cli.common import A_TRACE, Parser, path_argument, write_json, write_lines

DESCRIPTION = """\
Tell the story of a publication from its trace: which subscriptions wanted it and why (place, time,
channel, filter, with numbers), which messages carried it, when it was delivered, and what was lost,
withheld, late or doubled. For each miss, the most likely cause and the row of the trace that shows
it. Without a publication: how many misses there are of which cause, and some to ask about.
"""
EXAMPLES = """\
examples:
  nearcast simulate client-server --nodes 40 --seconds 5 --set loss=0.05 --trace lossy
  nearcast explain lossy
  nearcast explain lossy 42949672962
  nearcast explain lossy 42949672962 12884901888 --json
"""


def add_explain(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "explain",
        help="why a subscription received a publication, or missed it",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    add = command.add_argument
    add("trace", type=path_argument, metavar="TRACE", help=A_TRACE)
    add(
        "publication",
        nargs="?",
        type=int,
        metavar="PUBLICATION",
        help="its number (default: count the misses of the trace by their causes)",
    )
    add(
        "subscription",
        nargs="?",
        type=int,
        metavar="SUBSCRIPTION",
        help="its number (default: those that wanted or received the publication)",
    )
    command.set_defaults(run=run_explain)
    return command


def run_explain(arguments: argparse.Namespace) -> int:
    if arguments.publication is None:
        return list_misses(arguments)
    from nearcast.pipeline.explain.stories import explain
    from nearcast.pipeline.explain.texts import story_lines

    story = explain(arguments.trace, arguments.publication, arguments.subscription)
    if arguments.json:
        write_json(story)
    else:
        write_lines(*story_lines(story))
    return 0


def list_misses(arguments: argparse.Namespace) -> int:
    from nearcast.pipeline.explain.stories import find_misses, judge_misses
    from nearcast.pipeline.explain.texts import miss_lines, miss_summary
    from nearcast.trace.reader import folder

    misses = find_misses(arguments.trace)
    causes = judge_misses(folder(arguments.trace), misses)
    if arguments.json:
        write_json(miss_summary(misses, causes))
    else:
        write_lines(*miss_lines(misses, causes))
    return 0
