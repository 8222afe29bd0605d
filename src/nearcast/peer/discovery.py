"""Discovery: a transport answers, before any protocol message, to which overlay its node belongs.

A newcomer knows an address and nothing else. It asks the node there for its overlay and settings.
So they need not be given, and a mismatch is an error message instead of a timeout. No message of
any protocol begins with the byte that questions and answers begin with.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from nearcast.client_protocol.geometry_json import PLANE, Geometry
from nearcast.model.subscription import NodeId
from nearcast.node import Priority
from nearcast.scenario import Setting
from nearcast.transport.links import LinkTransport
from nearcast.transport.transport import Receive

QUESTION, ANSWER = b"\xc1?", b"\xc1!"  # 0xC1 is never used in MessagePack
LONGEST = 4096  # bytes of an answer


class OverlayDescription(Struct, frozen=True):
    """The overlay of a node, its settings, and what coordinates are in its world."""

    overlay: str
    settings: dict[str, Setting] = {}
    signed: bool = False  # are publications signed by their authors?
    geometry: Geometry = PLANE


class Discovery:
    """A transport of one node, which answers such questions by itself."""

    def __init__(self, links: LinkTransport) -> None:
        self.links = links
        self.name = links.name
        self.about: OverlayDescription | None = None  # until it is known, nobody is answered
        self._receive: Receive | None = None
        self._queries: dict[NodeId, asyncio.Future[OverlayDescription]] = {}

    async def open(self, on_receive: Receive | None) -> None:
        """Without `on_receive`: only to send queries."""
        self._receive = on_receive
        await self.links.open(self._receive_frames)

    def send(
        self,
        to: NodeId,
        frame: bytes,
        lossy: bool,
        priority: Priority = Priority.UPKEEP,
        ordered: bool = True,
    ) -> None:
        self.links.send(to, frame, lossy, priority, ordered)

    def knows(self, node: NodeId) -> bool:
        return self.links.knows(node)

    async def close(self) -> None:
        await self.links.close()

    async def query(self, node: NodeId, patience_s: float) -> OverlayDescription:
        """The overlay of that node; TimeoutError: it does not answer."""
        answered: asyncio.Future[OverlayDescription] = asyncio.get_running_loop().create_future()
        self._queries[node] = answered
        try:
            self.send(node, QUESTION, False)
            async with asyncio.timeout(patience_s):
                return await answered
        finally:
            del self._queries[node]

    def _receive_frames(self, sender: NodeId, frames: Sequence[bytes]) -> None:
        discovery_frames = [frame for frame in frames if frame[:1] == QUESTION[:1]]
        for frame in discovery_frames:
            self._receive_discovery(sender, frame)
        if discovery_frames:
            frames = [frame for frame in frames if frame[:1] != QUESTION[:1]]
        if frames and self._receive is not None:
            self._receive(sender, frames)

    def _receive_discovery(self, sender: NodeId, frame: bytes) -> None:
        if frame == QUESTION:
            if self.about is not None:
                self.send(sender, ANSWER + msgspec.msgpack.encode(self.about), False)
            return
        answer = self._queries.get(sender)
        if answer is None or answer.done() or len(frame) > LONGEST or frame[:2] != ANSWER:
            return  # no answer to a query of ours
        try:
            answer.set_result(msgspec.msgpack.decode(frame[2:], type=OverlayDescription))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            answer.set_exception(ValueError("its answer is not valid"))
