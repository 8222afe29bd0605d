"""`nearcast peer`: one peer of an overlay without servers, or many bots."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import (
    Parser,
    path_argument,
    port_argument,
    split_setting,
    write_lines,
)
from nearcast.cli.progress import telling_of_compilation
from nearcast.extras import keep_pandas_out
from nearcast.protocols import PROTOCOLS

if TYPE_CHECKING:
    from nearcast.peer.peer import PeerOptions

PEERS = """\
one peer, and what it hears:
  nearcast peer --overlay bubblestorm --port 9001
  {"do": "subscribe", "subscription": 1, "area": {"x": 0, "y": 0, "r": 5}}
in another terminal, on this machine or any that reaches it:
  nearcast peer --join 127.0.0.1:9001
  {"do": "publish", "x": 3, "y": 4, "payload": "hello"}
a world of bots, which others may join, and what became of it:
  nearcast peer --overlay bubblestorm --bots 32 --port 9001 --trace world
  nearcast analyse world
"""


def add_peer(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "peer",
        help="be one peer of an overlay without servers, or fill it with bots",
        description="Run one peer of an overlay until it leaves, or Ctrl-C. Requests are lines of"
        " JSON on standard input, notices (what it hears among them) lines of JSON on standard"
        " output; the words are those of clients (docs/reference/wire.md). The first peer begins"
        " the overlay; its welcome has the address that others join, and by any one peer a newcomer"
        " comes to know all it needs. Every peer has a key: links are encrypted, names are"
        " proven, and publications are signed by their authors.",
        epilog=PEERS,
    )
    add = command.add_argument
    add(
        "--overlay", default="", metavar="NAME",
        help=f"{', '.join(PROTOCOLS)}; with --join it is not needed: the peer that is joined"
        " knows it, and its settings",
    )  # fmt: skip
    add("--join", metavar="HOST:PORT", help="where a peer of the overlay listens")
    add(
        "--host", default="", metavar="ADDRESS",
        help="where to listen, and where others find it (default: the address from which the peer"
        " that is joined is reached; without --join 127.0.0.1)",
    )  # fmt: skip
    add("--port", type=port_argument, default=0, metavar="N", help="where to listen (default: any)")
    add("--link", default="tls", metavar="NAME", help="tls (default) or quic, for all peers alike")
    add("--serve", action="store_true", help="brokers: also run a broker, beside the one joined")
    add(
        "--trace",
        type=path_argument,
        metavar="DIR",
        help="leave a trace there: merge them, analyse them",
    )
    add("--key", type=Path, metavar="FILE", help="this peer's key (default: a new one)")
    add(
        "--unsigned",
        action="store_true",
        help="publications are not signed by their authors; for all peers alike",
    )
    add(
        "--geometry", choices=["plane", "earth"],
        help="plane (default), or earth: longitude, latitude and metres; with --join it is not"
        " needed",
    )  # fmt: skip
    add(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="any setting of the overlay, and with --bots of the workload",
    )  # fmt: skip
    add(
        "--websocket", type=port_argument, metavar="PORT",
        help="be the way into the overlay for pages in JavaScript: each client that connects to"
        " this port of this machine gets a peer of its own; there are no requests on standard"
        " input then",
    )  # fmt: skip
    add("--bots", type=int, metavar="N", help="so many peers, which live as a workload says")
    add("--workload", default="planetpi4", metavar="NAME", help="of bots (default planetpi4)")
    add("--seed", type=int, default=1, metavar="K", help="of the bots' world (default 1)")
    add("--seconds", type=float, metavar="S", help="how long bots live (default: until stopped)")
    command.set_defaults(run=run_peer)
    return command


def run_peer(arguments: argparse.Namespace) -> int:
    from nearcast.peer.peer import PeerOptions, parse_address, run_peer_process

    options = PeerOptions(
        overlay=arguments.overlay,
        join=parse_address(arguments.join) if arguments.join else None,
        host=arguments.host,
        port=arguments.port,
        link=arguments.link,
        serve=arguments.serve,
        trace=arguments.trace,
        key=arguments.key,
        unsigned=arguments.unsigned,
        geometry=arguments.geometry,
        settings=dict(map(split_setting, arguments.set)),
    )
    if arguments.websocket is not None and arguments.bots is not None:
        raise ValueError("--websocket and --bots are for different peers: start two programs")
    if arguments.bots is not None and arguments.geometry == "earth":
        raise ValueError("bots play in a plane: leave out --geometry earth")
    keep_pandas_out()
    with telling_of_compilation():
        if arguments.websocket is not None:
            _serve_clients(options, arguments)
        elif arguments.bots is None:
            run_peer_process(options)
        else:
            _run_bots(options, arguments)
    return 0


def _serve_clients(options: "PeerOptions", arguments: argparse.Namespace) -> None:
    import asyncio
    import signal

    import msgspec

    from nearcast.peer.host import run
    from nearcast.server.peer_gateway import serve_overlay_clients

    def ready(url: str, where: str) -> None:
        if arguments.json:
            write_lines(msgspec.json.encode({"websocket": url, "join": where}).decode())
        else:
            write_lines(f"clients connect to {url}; peers join {where}")
        sys.stdout.flush()

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve_overlay_clients(options, arguments.websocket, ready, stop)

    run(main())


def _run_bots(options: "PeerOptions", arguments: argparse.Namespace) -> None:
    import msgspec

    from nearcast.demo.peer_bots import BotCounts, BotSettings, PeerBots, run_bots

    bot_settings = BotSettings(
        bots=arguments.bots, workload=arguments.workload, seed=arguments.seed
    )

    def report(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def ready(where: str) -> None:
        if arguments.json:
            write_lines(msgspec.json.encode({"join": where, "bots": bot_settings.bots}).decode())
        else:
            write_lines(
                f"{bot_settings.bots} bots play; to join them: nearcast peer --join {where}"
            )
        sys.stdout.flush()

    def show(counts: BotCounts) -> None:
        if arguments.json:
            write_lines(msgspec.json.encode(counts._asdict()).decode())
        else:
            write_lines(
                f"{counts.seconds:.0f} s: {counts.peers} peers, each knows {counts.known:.1f};"
                f" {counts.publications:,} publications, {counts.deliveries:,} deliveries,"
                f" {counts.files} files open, at most {counts.late_ms:.0f} ms late"
                + ("" if counts.aware is None else f"; ships in sight known: {counts.aware:.1%}")
                + ("" if counts.accuracy is None else f", accuracy {counts.accuracy:.1%}")
            )
        sys.stdout.flush()

    run_bots(PeerBots(options, bot_settings), arguments.seconds, report, ready, show)
    if options.trace is not None and not arguments.json:
        write_lines(f"stopped; next: nearcast analyse {options.trace}")
