"""`nearcast listen` and `say`: clients of a node for a terminal."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import Parser, write_json, write_lines

if TYPE_CHECKING:
    from nearcast.space.shapes import Shape

QUICK_START = """\
in one terminal:
  nearcast node &
  nearcast listen ws://127.0.0.1:8470 --x 0 --y 0 --r 50
in another:
  nearcast say ws://127.0.0.1:8470 --x 3 --y 4 hello
  nearcast say ws://127.0.0.1:8470 --to listener "you alone hear this"
on Earth:
  nearcast listen ws://127.0.0.1:8470 --lon 8.54 --lat 47.37 --radius 500
"""


def add_listen(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "listen",
        help="print the publications of an area as they are made",
        description="Subscribe to a disc around x and y, on Earth around lon and lat, or without"
        " them to everywhere, and print"
        " each publication on a line (with --json, as a document on a line). Waits some seconds for"
        " a node that is just starting.",
        epilog=QUICK_START,
    )
    _add_area_arguments(command)
    add = command.add_argument
    add("--filter", metavar="TEXT", help="conditions on attributes: 'level >= 3'")
    add("--watch", action="store_true", help="also print who is there, who enters and who leaves")
    add(
        "--name",
        default="listener",
        metavar="NAME",
        help="for messages to it alone (say --to)",
    )
    add("--count", type=int, metavar="N", help="stop after N lines")
    command.set_defaults(run=run_listen)
    return command


def run_listen(arguments: argparse.Namespace) -> int:
    import asyncio

    from nearcast.cli.terminal import listen, summary_line, to_json

    def show(shown: dict[str, Any]) -> None:
        write_lines(to_json(shown) if arguments.json else summary_line(shown))
        sys.stdout.flush()

    where = area_of(arguments)
    if arguments.count is not None and arguments.count < 1:
        raise ValueError(f"--count must be 1 or more, not {arguments.count}")
    try:
        asyncio.run(
            listen(
                arguments.url, where, show, name=arguments.name, token=_token(),
                channel=arguments.channel, filter=arguments.filter, watch=arguments.watch,
                most=arguments.count, report=_report,
            )
        )  # fmt: skip
    except KeyboardInterrupt:
        return 0  # the usual way to stop it
    return 0


def add_say(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "say",
        help="publish a text at a place, or send it to one entity",
        description="Publish a text at a point (with --r, to a disc): everyone whose area it"
        " touches receives it. With --to, send it to one entity instead, wherever it is.",
        epilog=QUICK_START,
    )
    _add_area_arguments(command)
    command.add_argument("text", metavar="TEXT", help="the payload")
    command.add_argument("--name", default="", metavar="NAME", help="of the publisher")
    command.add_argument("--to", metavar="NAME", help="of the entity that alone receives it")
    command.set_defaults(run=run_say)
    return command


def run_say(arguments: argparse.Namespace) -> int:
    import asyncio

    from nearcast.cli import terminal
    from nearcast.space.shapes import EVERYWHERE

    where = area_of(arguments)
    if arguments.to is not None:
        if where != EVERYWHERE or arguments.channel:
            raise ValueError("a text that is sent --to somebody has neither a place nor a channel")
        number = asyncio.run(
            terminal.send(
                arguments.url, arguments.to, arguments.text,
                name=arguments.name, token=_token(), report=_report,
            )
        )  # fmt: skip
        if arguments.json:
            write_json({"message": number})
        return 0
    if arguments.x is None and arguments.lon is None:
        raise ValueError("give --x and --y, or --lon and --lat; or --to")
    number = asyncio.run(
        terminal.publish(
            arguments.url, where, arguments.text,
            name=arguments.name, token=_token(), channel=arguments.channel, report=_report,
        )
    )  # fmt: skip
    if arguments.json:
        write_json({"publication": number})
    return 0


def _add_area_arguments(command: Parser) -> None:
    add = command.add_argument
    add("url", metavar="URL", help="of a node: ws://127.0.0.1:8470; its token is $NEARCAST_TOKEN")
    add("--x", type=float, metavar="X")
    add("--y", type=float, metavar="Y")
    add("--z", type=float, default=0.0, metavar="Z")
    add("--lon", type=float, metavar="LON", help="longitude in degrees, in a world on Earth")
    add("--lat", type=float, metavar="LAT", help="latitude in degrees")
    add("--r", "--radius", type=float, metavar="R", help="radius; on Earth in metres")
    add("--channel", default="", metavar="NAME")


def area_of(arguments: argparse.Namespace) -> "Shape":
    from nearcast.client_protocol.geometry_json import shape_from_fields
    from nearcast.space.earth_shapes import earth_disc, earth_point
    from nearcast.space.shapes import EVERYWHERE

    lon, lat, r = arguments.lon, arguments.lat, arguments.r
    if lon is not None or lat is not None:
        if lon is None or lat is None:
            raise ValueError("give both --lon and --lat")
        if arguments.x is not None or arguments.y is not None:
            raise ValueError("give --x and --y, or --lon and --lat, not both")
        return earth_point(lon, lat) if r is None else earth_disc(lon, lat, r)
    if arguments.x is None and arguments.y is None and arguments.r is None:
        return EVERYWHERE
    if arguments.x is None or arguments.y is None:
        raise ValueError("give both --x and --y")
    return shape_from_fields(arguments.x, arguments.y, arguments.z, r)


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _token() -> str:
    return os.environ.get("NEARCAST_TOKEN", "")
