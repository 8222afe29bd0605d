"""`nearcast nodes`: the nodes of a cluster, who of them serves, and why."""

import argparse
import os
from typing import Any

from nearcast.cli.common import Parser, write_json, write_lines

ANSWER_S = 30.0


def add_nodes(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "nodes",
        help="list the nodes of a cluster: which are active, which stand by, and their load",
        description="Ask one node of a cluster for all: whether each is active, standing by,"
        " entering or leaving, its load as a share of its capacity (above 1 is too much), its"
        " capacity in subscriptions, and why it was called in or stands by.",
    )
    command.add_argument(
        "url", metavar="URL", help="of any node: ws://127.0.0.1:8470; its token is $NEARCAST_TOKEN"
    )
    command.set_defaults(run=run_nodes)
    return command


def run_nodes(arguments: argparse.Namespace) -> int:
    cluster = ask_node(arguments.url, os.environ.get("NEARCAST_TOKEN", ""))["cluster"]
    if cluster is None:
        raise ValueError(f"the node at {arguments.url} is in no cluster")
    if arguments.json:
        write_json(cluster["members"])
    else:
        write_lines(*table_lines(cluster["members"]))
    return 0


def ask_node(url: str, token: str) -> dict[str, Any]:
    """The numbers of a node, as its page gets them. OSError or ValueError: in one line why not."""
    import json
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlsplit
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    schemes = {"ws": "http", "http": "http", "wss": "https", "https": "https"}
    if parts.scheme not in schemes or not parts.netloc:
        raise ValueError(f"{url!r} is no address of a node, like ws://127.0.0.1:8470")
    address = f"{schemes[parts.scheme]}://{parts.netloc}/monitor/numbers"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(address, headers=headers), timeout=ANSWER_S) as answer:
            numbers: dict[str, Any] = json.load(answer)
            return numbers
    except HTTPError as why:
        raise ConnectionError(f"the node at {url} refuses: {why.read().decode()}") from None
    except URLError as why:
        raise ConnectionError(f"no node answers at {url}: {why.reason}") from None


def table_lines(members: list[dict[str, Any]]) -> list[str]:
    rows = [("node", "state", "load", "capacity", "why")]
    for one in members:
        load, capacity = f"{one['load']:.2f}", f"{one['capacity']:,.0f}"
        rows.append((one["url"], one["state"], load, capacity, one["reason"]))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]),
             row[3].rjust(widths[3]), row[4]]
        ).rstrip()
        for row in rows
    ]  # fmt: skip
