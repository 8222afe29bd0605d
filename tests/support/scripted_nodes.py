"""Nodes that do what a test tells them: they let clients in, hand them on, fall silent, and end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    ws_create_server,
)

from nearcast.client_protocol import messages


class ScriptedConnection(WSListener):
    """One connection to a node that welcomes everyone as `entity`, and says done to all else."""

    def __init__(self, node: "ScriptedNode") -> None:
        self.node = node
        self.transport: WSTransport
        self.form: messages.Encoding

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport
        self.node.connections.append(self)

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        self.node.connections.remove(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.BINARY, WSMsgType.TEXT):
            self.form = messages.MSGPACK if frame.msg_type == WSMsgType.BINARY else messages.JSON
            word = self.form.read_request(frame.get_payload_as_bytes())
            kind = self.form.message_class(word)
            self.node.asked.append((kind, word))
            if kind is messages.JoinRequest:
                self.node.joined(self, word)
            elif word.id is not None and kind not in self.node.slow:
                self.send(messages.DoneNotice(word.id, 1, publication=7))

    def send(self, *notices: messages.Notice) -> None:
        for notice in notices:
            kind = WSMsgType.BINARY if self.form.binary else WSMsgType.TEXT
            self.transport.send(kind, self.form.encode(notice))


class ScriptedNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.url = ""
        self.entity: int | None = 7  # as whom it lets in; None: not at all
        self.nodes: list[str] = []
        self.answers = True
        self.after_welcome: list[messages.Notice] = []  # what it says right after its welcome
        self.slow: set[type] = set()  # what it does not answer by itself
        self.asked: list[tuple[type, Any]] = []
        self.connections: list[ScriptedConnection] = []

    def meet(self, _: WSUpgradeRequest) -> ScriptedConnection:
        return ScriptedConnection(self)

    def joined(self, one: ScriptedConnection, word: Any) -> None:
        if not self.answers:
            return
        if self.entity is None:
            one.send(messages.ErrorNotice("this ticket is not known here", word.id))
        else:
            welcome = messages.WelcomeNotice(
                self.entity, 1, self.name, id=word.id, nodes=self.nodes
            )
            one.send(welcome, *self.after_welcome)

    def send(self, *notices: messages.Notice) -> None:
        self.connections[0].send(*notices)

    def end(self) -> None:
        self.connections[0].transport.disconnect()

    def kinds(self) -> list[type]:
        return [kind for kind, _ in self.asked]


@asynccontextmanager
async def nodes(*names: str) -> AsyncIterator[list[ScriptedNode]]:
    made, servers = [], []
    try:
        for name in names:
            node = ScriptedNode(name)
            server = await ws_create_server(node.meet, "127.0.0.1", 0)
            servers.append(server)
            node.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            made.append(node)
        yield made
    finally:
        for server in servers:
            server.close()


async def until(met: Callable[[], object]) -> None:
    while not met():
        await asyncio.sleep(0.005)


def message_notice(publication: int, to: list[int], source: int = 3) -> messages.MessageNotice:
    return messages.MessageNotice(to, source, publication, 1, 0.0, 0.0)
