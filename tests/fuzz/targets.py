"""All targets by name. Each takes any bytes, and raises only if the code has a mistake."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from nearcast.live import words

from . import clients, connections, texts

TARGETS: dict[str, Callable[[bytes], None]] = {
    "requests-json": partial(clients.requests, words.JSON),
    "requests-packed": partial(clients.requests, words.PACKED),
    "notices-json": partial(clients.notices, words.JSON),
    "notices-packed": partial(clients.notices, words.PACKED),
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
