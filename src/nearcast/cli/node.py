"""`nearcast node` and `config`: run a live node, and print its settings."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.clients import QUICK_START
from nearcast.cli.common import SETTINGS_FILE, Parser, write_json, write_lines
from nearcast.cli.progress import telling_of_compilation
from nearcast.extras import keep_pandas_out

if TYPE_CHECKING:
    from nearcast.server.server import Server
    from nearcast.storage import AnyPath


def add_node(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "node",
        help="run a live node: clients connect, publish, subscribe",
        description="Run a live node until Ctrl-C or SIGTERM. Settings come from these flags, then"
        " from environment variables NEARCAST_…, then from the file, then from the defaults that"
        " `nearcast config` prints.",
        epilog=QUICK_START,
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
    add(
        "--trace", metavar="DIR",
        help="where the recording goes, a folder or a URI (default: traces/ and the time)",
    )  # fmt: skip
    add("--no-record", action="store_false", dest="record", default=None, help="leave no trace")
    add(
        "--join", action="append", metavar="HOST:PORT",
        help="where a node of the cluster listens for others; several times: the first to answer",
    )  # fmt: skip
    add(
        "--standby", action="store_true", default=None,
        help="stand by until the load of the cluster needs this node",
    )  # fmt: skip
    add("--workers", type=int, metavar="N", help="threads that read and write sockets (default 1)")
    add("--capacity", type=int, metavar="N", help="subscriptions that it can serve")
    add("--cluster-key", metavar="FILE", help="the cluster's secret; the first node makes it")
    add("--cluster-host", metavar="ADDRESS", help="where other nodes reach it (127.0.0.1)")
    add("--cluster-port", type=int, metavar="N", help="where other nodes reach it (default: any)")
    add("--advertise", metavar="URL", help="what clients are told (default: ws://HOST:PORT)")
    command.set_defaults(run=run_node)
    return command


def run_node(arguments: argparse.Namespace) -> int:
    from nearcast.server.config import load_settings

    flags = (
        "host", "port", "name", "token_file", "tls_certificate", "tls_key", "trace", "record",
        "workers",
    )  # fmt: skip
    file = arguments.config or (SETTINGS_FILE if SETTINGS_FILE.exists() else None)
    given = {flag: getattr(arguments, flag) for flag in flags}
    given |= {
        "jwt.keys": arguments.jwt_keys,
        "cluster.join": ",".join(arguments.join) if arguments.join else None,
        "cluster.standby": arguments.standby,
        "cluster.capacity": arguments.capacity,
        "cluster.key": arguments.cluster_key,
        "cluster.host": arguments.cluster_host,
        "cluster.port": arguments.cluster_port,
        "cluster.advertise": arguments.advertise,
    }
    chosen = load_settings(file, os.environ, given)
    chosen.storage.use()
    keep_pandas_out()

    from nearcast.monitor.server import LiveMonitor
    from nearcast.server.server import serve

    trace: list[AnyPath] = []

    def ready(service: "Server") -> None:
        LiveMonitor(service)
        if service.recording:
            trace.append(service.recording.path)
        url = service.url.removesuffix("/ws")
        page = f"{url.replace('ws', 'http', 1)}/"
        links = service.cluster_host.links if service.cluster_host else None
        cluster = f"{links.host}:{links.port}" if links else None
        if arguments.json:
            write_json(
                {
                    "url": url,
                    "page": page,
                    "port": service.port,
                    "cluster": cluster,
                    "trace": str(trace[0]) if trace else None,
                }
            )
        else:
            write_lines(
                f"a node at {url} (stop with Ctrl-C); to watch it: {page}",
                f"recording to {trace[0]}" if trace else "recording is off",
                *([f"others join its cluster by: --join {cluster}"] if cluster else []),
            )
        sys.stdout.flush()

    with telling_of_compilation():
        serve(chosen, ready)
    if trace and not arguments.json:
        write_lines(f"stopped; next: nearcast analyse {trace[0]}")
    return 0


def add_config(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
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
        write_json(Settings())
    else:
        sys.stdout.write(default_file())
    return 0
