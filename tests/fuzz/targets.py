"""All targets by name. Each takes any bytes, and raises only if the code has a mistake."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from nearcast.client_protocol import messages

from . import clients, connections, texts

TARGETS: dict[str, Callable[[bytes], None]] = {
    "requests-json": partial(clients.requests, messages.JSON),
    "requests-packed": partial(clients.requests, messages.MSGPACK),
    "notices-json": partial(clients.notices, messages.JSON),
    "notices-packed": partial(clients.notices, messages.MSGPACK),
    "http": connections.http,
    "websocket": connections.websocket,
    "links": connections.links,
    "quic": connections.quic,
    "messages": texts.messages,
    "trace": texts.trace,
    "formulas": texts.formulas,
    "areas": texts.areas,
}
CORPUS = Path(__file__).with_name("corpus")


def corpus(target: str) -> list[bytes]:
    """The inputs that are kept for a target: examples of all kinds, and all that ever failed."""
    return [file.read_bytes() for file in sorted((CORPUS / target).iterdir())]
