"""The commands of the live service: what may be typed, and what it does.

`nearcast node` runs a node, `nearcast config` prints its settings, `nearcast listen` and
`nearcast say` are clients for a terminal, `nearcast peer` is a member of an overlay without any
server, or many of them, and `nearcast merge` puts together what several have recorded. All but the
simplest is imported when it is needed.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.commands import say, say_json, split_setting

if TYPE_CHECKING:
    from nearcast.peer.peer import PeerOptions
    from nearcast.server.server import Server
    from nearcast.space.shapes import Shape

FILE = Path("nearcast.toml")
SHIPS = 24  # bots, where nobody says how many
QUICK_START = """\
in one terminal:
  nearcast node &
  nearcast listen ws://127.0.0.1:8470 --x 0 --y 0 --r 50
in another:
  nearcast say ws://127.0.0.1:8470 --x 3 --y 4 hello
"""
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


def add_node(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "node",
        help="run a live node: clients connect, publish, subscribe",
        description="Run a live node until Ctrl-C or SIGTERM. Settings come from these flags, then"
        " from environment variables NEARCAST_…, then from the file, then from the defaults that"
        " `nearcast config` prints.",
        epilog=QUICK_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("--config", type=Path, metavar="FILE", help="settings (default: nearcast.toml, if there)")
    add("--host", metavar="ADDRESS", help="where to listen (default 127.0.0.1)")
    add("--port", type=int, metavar="N", help="of WebSocket and HTTP (default 8470; 0: any)")
    add("--name", metavar="NAME", help="what it calls itself towards clients")
    add("--token-file", metavar="FILE", help="tokens and their roles")
    add("--jwt-keys", metavar="FILE|URL", help="a JWKS: keys of whoever issues JWTs")
    add("--tls-certificate", metavar="FILE", help="certificate chain in PEM")
    add("--tls-key", metavar="FILE", help="its private key in PEM")
    add("--trace", metavar="DIR", help="where the recording goes (default: traces/ and the time)")
    add("--no-record", action="store_false", dest="record", default=None, help="leave no trace")
    add(
        "--join", action="append", metavar="HOST:PORT",
        help="where a node of the cluster listens for others; several times: the first to answer",
    )  # fmt: skip
    add("--cluster-key", metavar="FILE", help="the cluster's secret; the first node makes it")
    add("--cluster-host", metavar="ADDRESS", help="where other nodes reach it (127.0.0.1)")
    add("--cluster-port", type=int, metavar="N", help="where other nodes reach it (default: any)")
    add("--advertise", metavar="URL", help="what clients are told (default: ws://HOST:PORT)")
    command.set_defaults(run=run_node)
    return command


def run_node(arguments: argparse.Namespace) -> int:
    from nearcast.server.config import load_settings

    flags = ("host", "port", "name", "token_file", "tls_certificate", "tls_key", "trace", "record")
    file = arguments.config or (FILE if FILE.exists() else None)
    given = {flag: getattr(arguments, flag) for flag in flags}
    given |= {
        "jwt.keys": arguments.jwt_keys,
        "cluster.join": ",".join(arguments.join) if arguments.join else None,
        "cluster.key": arguments.cluster_key,
        "cluster.host": arguments.cluster_host,
        "cluster.port": arguments.cluster_port,
        "cluster.advertise": arguments.advertise,
    }
    chosen = load_settings(file, os.environ, given)

    from nearcast.monitor.server import LiveMonitor
    from nearcast.server.server import serve

    trace: list[Path] = []

    def ready(service: "Server") -> None:
        LiveMonitor(service, game=False)
        if service.recording:
            trace.append(service.recording.path)
        url = service.url.removesuffix("/ws")
        page = f"{url.replace('ws', 'http', 1)}/"
        links = service.cluster.links if service.cluster else None
        cluster = f"{links.host}:{links.port}" if links else None
        if arguments.json:
            say_json(
                {
                    "url": url,
                    "page": page,
                    "port": service.port,
                    "cluster": cluster,
                    "trace": str(trace[0]) if trace else None,
                }
            )
        else:
            say(
                f"a node at {url} (stop with Ctrl-C); to watch it: {page}",
                f"recording to {trace[0]}" if trace else "recording is off",
                *([f"others join its cluster by: --join {cluster}"] if cluster else []),
            )
        sys.stdout.flush()

    serve(chosen, ready)
    if trace and not arguments.json:
        say(f"stopped; next: nearcast analyse {trace[0]}")
    return 0


def add_peer(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "peer",
        help="be one peer of an overlay without servers, or fill it with bots",
        description="Run one peer of an overlay until it leaves, or Ctrl-C. Requests are lines of"
        " JSON on standard input, notices (what it hears among them) lines of JSON on standard"
        " output; the words are those of clients (docs/reference/wire.md). The first peer begins"
        " the overlay; its welcome has the address that others join, and by any one peer a newcomer"
        " comes to know all it needs. Every peer has a key: links are encrypted, names are"
        " proven, and publications are signed by their authors.",
        epilog=PEERS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add(
        "--overlay", default="", metavar="NAME",
        help="bubblestorm, psense, von, drtree, relays, brokers or client-server; with --join it"
        " need not be said: the peer that is joined knows it, and its settings",
    )  # fmt: skip
    add("--join", metavar="HOST:PORT", help="where a peer of the overlay listens")
    add(
        "--host", default="", metavar="ADDRESS",
        help="where to listen, and where others find it (default: the address from which the peer"
        " that is joined is reached; without --join 127.0.0.1)",
    )  # fmt: skip
    add("--port", type=int, default=0, metavar="N", help="where to listen (default: any)")
    add("--link", default="tls", metavar="NAME", help="tls (default) or quic, for all peers alike")
    add("--serve", action="store_true", help="brokers: also run a broker, beside the one joined")
    add("--trace", type=Path, metavar="DIR", help="leave a trace there: merge them, analyse them")
    add("--key", type=Path, metavar="FILE", help="this peer's key (default: a new one)")
    add(
        "--unsigned",
        action="store_true",
        help="publications are not signed by their authors; for all peers alike",
    )
    add(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="any setting of the overlay, and with --bots of the workload",
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
        settings=dict(map(split_setting, arguments.set)),
    )
    if arguments.bots is None:
        run_peer_process(options)
    else:
        _run_fleet(options, arguments)
    return 0


def run_ships(arguments: argparse.Namespace) -> int:
    """`nearcast up --game planetpi4`."""
    from nearcast.demo.peer_bots import BotSettings, PeerBots
    from nearcast.demo.ship_page import SETTINGS, run_ship_page
    from nearcast.monitor.server import run_until_signal
    from nearcast.peer.peer import PeerOptions

    bots = SHIPS if arguments.bots is None else arguments.bots
    options = PeerOptions(overlay="bubblestorm", trace=arguments.trace, settings=SETTINGS)

    def ready(page: str, where: str) -> None:
        if arguments.json:
            say_json({"page": page, "join": where, "bots": bots})
        else:
            say(
                f"{bots} ships, each a peer of its own: open {page} and fly another",
                "  arrows or WASD steer, space fires, shift boosts; or drag and tap",
                f"more of them, in another terminal: nearcast peer --bots 8 --join {where}",
                "stop with Ctrl-C",
            )
        sys.stdout.flush()

    def remark(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")

    fleet = PeerBots(options, BotSettings(bots=bots))
    run_until_signal(lambda stop: run_ship_page(fleet, arguments.port, remark, ready, stop))
    return 0


def _run_fleet(options: "PeerOptions", arguments: argparse.Namespace) -> None:
    import msgspec

    from nearcast.demo.peer_bots import BotCounts, BotSettings, PeerBots, run_bots

    crew = BotSettings(bots=arguments.bots, workload=arguments.workload, seed=arguments.seed)

    def remark(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def ready(where: str) -> None:
        if arguments.json:
            say(msgspec.json.encode({"join": where, "bots": crew.bots}).decode())
        else:
            say(f"{crew.bots} bots play; to join them: nearcast peer --join {where}")
        sys.stdout.flush()

    def tell(tally: BotCounts) -> None:
        if arguments.json:
            say(msgspec.json.encode(tally._asdict()).decode())
        else:
            say(
                f"{tally.seconds:.0f} s: {tally.peers} peers, each knows {tally.known:.1f};"
                f" {tally.publications:,} publications, {tally.deliveries:,} deliveries,"
                f" {tally.files} files open, at most {tally.late_ms:.0f} ms late"
            )
        sys.stdout.flush()

    run_bots(PeerBots(options, crew), arguments.seconds, remark, ready, tell)
    if options.trace is not None and not arguments.json:
        say(f"stopped; next: nearcast analyse {options.trace}")


def add_config(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "config",
        help="print nearcast.toml: every setting of a node, its default and its meaning",
        description="Print the settings of `nearcast node` with their defaults, as a file to keep:"
        " nearcast config > nearcast.toml",
    )
    command.set_defaults(run=run_config)
    return command


def run_config(arguments: argparse.Namespace) -> int:
    from nearcast.server.config import Settings, default_file

    if arguments.json:
        say_json(Settings())
    else:
        sys.stdout.write(default_file())
    return 0


def add_listen(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "listen",
        help="print what is said in an area, as it is said",
        description="Subscribe to a disc around x and y, or without them to everywhere, and print"
        " each message on a line (with --json, as a document on a line).",
        epilog=QUICK_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_place(command, required=False)
    add = command.add_argument
    add("--filter", metavar="TEXT", help="conditions on attributes: 'level >= 3'")
    add("--watch", action="store_true", help="also tell who is there, who comes and who goes")
    add("--count", type=int, metavar="N", help="stop after N lines")
    command.set_defaults(run=run_listen)
    return command


def run_listen(arguments: argparse.Namespace) -> int:
    import asyncio

    from nearcast.cli.terminal import listen, summary_line, to_json

    def show(shown: dict[str, Any]) -> None:
        say(to_json(shown) if arguments.json else summary_line(shown))
        sys.stdout.flush()

    def remark(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    where = place_of(arguments)
    try:
        asyncio.run(
            listen(
                arguments.url, where, show, token=_token(), channel=arguments.channel,
                filter=arguments.filter, watch=arguments.watch, most=arguments.count, remark=remark,
            )
        )  # fmt: skip
    except KeyboardInterrupt:
        return 0  # that is how one stops it
    return 0


def add_say(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "say",
        help="publish a text at a place",
        description="Publish a text at a point (with --r, to a disc): everyone whose area it"
        " touches hears it.",
        epilog=QUICK_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_place(command, required=True)
    command.add_argument("text", metavar="TEXT", help="what to say")
    command.add_argument("--name", default="", metavar="NAME", help="who says so")
    command.set_defaults(run=run_say)
    return command


def run_say(arguments: argparse.Namespace) -> int:
    import asyncio

    from nearcast.cli import terminal

    number = asyncio.run(
        terminal.publish(
            arguments.url, place_of(arguments), arguments.text,
            name=arguments.name, token=_token(), channel=arguments.channel,
        )
    )  # fmt: skip
    if arguments.json:
        say_json({"publication": number})
    return 0


def add_merge(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "merge",
        help="put what clients recorded into the trace of their node",
        description="Write a trace in which clients' own recordings (connect(..., trace=DIR)) take"
        " the place of the node's word for what they heard; `nearcast analyse` then judges the run"
        " from end to end.",
    )
    add = command.add_argument
    add("node", metavar="NODE", help="the node's trace")
    add("clients", nargs="+", metavar="CLIENT", help="traces that its clients recorded")
    add("--trace", required=True, metavar="DIR", help="where to leave the merged trace")
    command.set_defaults(run=run_merge)
    return command


def run_merge(arguments: argparse.Namespace) -> int:
    from nearcast.trace.merge import merge

    summary = merge(arguments.node, arguments.clients, arguments.trace)
    if arguments.json:
        say_json(summary)
    else:
        say(
            f"{summary['rows']['deliveries']:,} deliveries, those of {summary['clients']:,} clients"
            f" as they recorded them, in {arguments.trace}"
        )
    return 0


def _add_place(command: argparse.ArgumentParser, required: bool) -> None:
    add = command.add_argument
    add("url", metavar="URL", help="of a node: ws://127.0.0.1:8470; its token is $NEARCAST_TOKEN")
    add("--x", type=float, required=required, metavar="X")
    add("--y", type=float, required=required, metavar="Y")
    add("--z", type=float, default=0.0, metavar="Z")
    add("--r", type=float, metavar="R", help="radius")
    add("--channel", default="", metavar="NAME")


def place_of(arguments: argparse.Namespace) -> "Shape":
    from nearcast.client_protocol.geometry_json import shape_from_fields
    from nearcast.space.shapes import EVERYWHERE

    if arguments.x is None and arguments.y is None and arguments.r is None:
        return EVERYWHERE
    if arguments.x is None or arguments.y is None:
        raise ValueError("give both --x and --y")
    return shape_from_fields(arguments.x, arguments.y, arguments.z, arguments.r)


def _token() -> str:
    return os.environ.get("NEARCAST_TOKEN", "")


ADDERS = (add_node, add_peer, add_config, add_listen, add_say, add_merge)
