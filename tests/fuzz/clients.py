"""Targets: what clients say to a node, and what a node says to clients."""

import asyncio
from functools import cache
from typing import Any

from msgspec import Raw

from nearcast.client.client import Client
from nearcast.client.websocket import ConnectionLost, OnMessage
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.payloads import Unreadable
from nearcast.errors import MalformedMessageError

from .socketless import Node, Wire

SEPARATORS = {
    messages.JSON: b"\n",
    messages.MSGPACK: b"\xc1\xc1",
}  # between the frames of one input
MOST_FRAMES = 20


def frames(form: messages.Encoding, data: bytes) -> list[bytes]:
    return data.split(SEPARATORS[form])[:MOST_FRAMES]


@cache
def node() -> Node:
    return Node()


def requests(form: messages.Encoding, data: bytes) -> None:
    """A client says anything, before and after it has joined, while others listen and watch.

    What others hear of it can be read, payloads included; the node makes no mistake; and when the
    client has gone, nothing of it is left.
    """
    here = node()
    gateway = here.gateway
    faults = gateway.metrics.faults
    listeners = [(one, *here.join(one, "listener")) for one in (messages.JSON, messages.MSGPACK)]
    for one, session, _ in listeners:
        here.say(session, messages.SubscribeRequest(1, Area(), watch=True, linger=0.0), one)
    stranger, heard = here.stranger()
    for place, frame in enumerate(frames(form, data)):
        if place == 1 and stranger.client is None and not stranger.closing:
            here.say(stranger, messages.JoinRequest("stranger"), form)
        if not stranger.closing:
            gateway.read(stranger, frame, form.binary)
    here.run()
    for one, session, wire in listeners:
        here.say(session, messages.NearbyRequest(Area(), id=9), one)
        _check_heard(one, wire)
    _check_heard(form, heard)
    for session in (stranger, *(session for _, session, _ in listeners)):
        session.on_ws_disconnected(session.transport)
    here.run()
    assert gateway.metrics.faults == faults, "the node made a mistake"
    assert not any(gateway.realm.clients), "a client is left"


def _check_heard(form: messages.Encoding, wire: Wire) -> None:
    for notice in wire.notices(form):
        entities = getattr(notice, "entities", ())
        for one in (notice, getattr(notice, "entity", None), *entities):
            payload = getattr(one, "payload", None)
            if isinstance(payload, Raw):
                form.check_payload(payload) if len(payload) else None


class Link:
    """In place of a connection: whatever is asked is done."""

    max_frame_bytes = 2**20

    def __init__(self, form: messages.Encoding) -> None:
        self.encoding = form

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        self.receive, self.lost = receive, lost

    def send(self, request: Any) -> None:
        if isinstance(request, messages.JoinRequest):
            self.receive(messages.WelcomeNotice, messages.WelcomeNotice(5, 1, id=request.id))
        elif request.id is not None:
            self.receive(messages.DoneNotice, messages.DoneNotice(request.id, 1))

    async def writable(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Nothing is open."""


@cache
def loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


async def _listening(form: messages.Encoding) -> tuple[Client, Link]:
    link = Link(form)
    client = await Client(link, "me").open()
    await client.subscribe()
    client.messages()
    return client, link


def notices(form: messages.Encoding, data: bytes) -> None:
    """A node says anything. Its client survives, and knows what it could not read."""
    loop().run_until_complete(_notices(form, data))


async def _notices(form: messages.Encoding, data: bytes) -> None:
    client, link = await _listening(form)
    for frame in frames(form, data):
        try:
            word = form.read_notice(frame)
        except MalformedMessageError:
            continue
        link.receive(form.message_class(word), word)
    inbox = client.messages()
    for _ in range(len(inbox)):
        payload = (await anext(inbox)).payload
        assert not isinstance(payload, Unreadable) or payload.reason
    await client.close()
