"""`nearcast up` and `monitor`: a world, live or recorded, in a web page."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import (
    A_TRACE,
    Parser,
    path_argument,
    port_argument,
    write_json,
    write_lines,
)
from nearcast.cli.progress import telling_of_compilation
from nearcast.extras import keep_pandas_out
from nearcast.protocols import PROTOCOLS

if TYPE_CHECKING:
    from nearcast.storage import AnyPath

DEFAULT_WALKERS = 300  # bots, without --bots
DEFAULT_SHIPS = 24  # bots, without --bots


def add_up(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "up",
        help="open a world: a live node, a game played by bots, and a page to watch it",
        description="Start a live node with recording on, let bots play a small game on it, and"
        " serve a page on which you watch, walk a character and see the numbers. With --game"
        " planetpi4 the bots are peers of an overlay, and you fly a ship among them; the page shows"
        " how many of the ships in its sight each peer knows.",
    )
    add = command.add_argument
    add(
        "--port", type=port_argument, default=8470, metavar="N",
        help="of page and clients (default 8470)",
    )  # fmt: skip
    add(
        "--game", default="walkers", choices=("walkers", "planetpi4"),
        help="walkers (default): characters on a node; planetpi4: ships, each a peer of an overlay",
    )  # fmt: skip
    add(
        "--overlay", choices=tuple(PROTOCOLS), metavar="NAME",
        help=f"in which planetpi4 is flown: {', '.join(PROTOCOLS)} (default bubblestorm)",
    )  # fmt: skip
    add(
        "--link", choices=("tls", "quic"), metavar="NAME",
        help="between peers of planetpi4: tls (default) or quic",
    )  # fmt: skip
    add(
        "--bots", type=int, metavar="N",
        help="characters (default 300; 0: none) or ships (default 24)",
    )  # fmt: skip
    add(
        "--trace", type=path_argument, metavar="DIR",
        help="where the recording goes, a folder or a URI (default: traces/…)",
    )  # fmt: skip
    command.set_defaults(run=run_up)
    return command


def run_up(arguments: argparse.Namespace) -> int:
    keep_pandas_out()
    ships = arguments.game == "planetpi4"
    for option in ("overlay", "link"):
        if getattr(arguments, option) is not None and not ships:
            raise ValueError(f"--{option} is for --game planetpi4; walkers play on a node")
    with telling_of_compilation():
        return _run_ships(arguments) if ships else _run_walkers(arguments)


def _run_walkers(arguments: argparse.Namespace) -> int:
    from nearcast.demo.up import serve_with_bots
    from nearcast.monitor.server import run_until_signal
    from nearcast.server.config import load_settings

    bots = DEFAULT_WALKERS if arguments.bots is None else arguments.bots
    if bots < 0:
        raise ValueError(f"bots must be 0 or more, not {bots}")
    trace = None if arguments.trace is None else str(arguments.trace)
    chosen = load_settings(flags={"port": arguments.port, "trace": trace})

    def ready(page: str, recording: "AnyPath") -> None:
        if arguments.json:
            write_json({"page": page, "trace": str(recording), "bots": bots})
        else:
            write_lines(
                f"a world with {bots} bots: open {page}",
                "  click to walk there; type help, storm, spawn 50 or gather 40 below the world",
                f"recording to {recording}; in another terminal, while it runs or later:",
                f"  nearcast analyse --follow {recording}",
                f"  nearcast monitor {recording}",
                "stop with Ctrl-C",
            )
        sys.stdout.flush()

    run_until_signal(lambda stop: serve_with_bots(chosen, bots, ready, stop))
    return 0


def _run_ships(arguments: argparse.Namespace) -> int:
    """`nearcast up --game planetpi4`."""
    from nearcast.demo.peer_bots import BotSettings, PeerBots
    from nearcast.demo.ship_page import page_settings, run_ship_page
    from nearcast.monitor.server import run_until_signal
    from nearcast.peer.peer import PeerOptions

    bots = DEFAULT_SHIPS if arguments.bots is None else arguments.bots
    overlay = arguments.overlay or "bubblestorm"
    options = PeerOptions(
        overlay=overlay, link=arguments.link or "tls", trace=arguments.trace,
        settings=page_settings(overlay),
    )  # fmt: skip

    def ready(page: str, where: str) -> None:
        if arguments.json:
            write_json({"page": page, "join": where, "bots": bots, "overlay": overlay})
        else:
            write_lines(
                f"{bots} ships, each a peer of its own in {overlay}: open {page} and fly another",
                "  arrows or WASD steer, space fires, shift boosts; or drag and tap",
                f"more of them, in another terminal: nearcast peer --bots 8 --join {where}",
                "stop with Ctrl-C",
            )
        sys.stdout.flush()

    def report(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")

    peer_bots = PeerBots(options, BotSettings(bots=bots))
    run_until_signal(lambda stop: run_ship_page(peer_bots, arguments.port, report, ready, stop))
    return 0


def add_monitor(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "monitor",
        help="play a recorded or simulated trace in the same page",
        description="Serve a page on which the trace is played: play, pause, seek, any speed.",
    )
    command.add_argument("trace", type=path_argument, metavar="TRACE", help=A_TRACE)
    command.add_argument(
        "--port", type=port_argument, default=8471, metavar="N", help="of the page (default 8471)"
    )
    command.set_defaults(run=run_monitor)
    return command


def run_monitor(arguments: argparse.Namespace) -> int:
    from nearcast.monitor.server import run_until_signal, serve_replay

    keep_pandas_out()

    def ready(page: str) -> None:
        if arguments.json:
            write_json({"page": page})
        else:
            write_lines(f"{arguments.trace}: open {page}", "stop with Ctrl-C")
        sys.stdout.flush()

    run_until_signal(lambda stop: serve_replay(arguments.trace, arguments.port, ready, stop))
    return 0
