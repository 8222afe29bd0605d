"""Transports within one process: for tests, and as the plainest reading of the contract."""

import asyncio

from nearcast.model.subscription import NodeId
from nearcast.node import Priority
from nearcast.transport.transport import Receive


class LoopbackNetwork:
    """Where loopback transports find each other by name."""

    def __init__(self) -> None:
        self.present: dict[NodeId, LoopbackTransport] = {}


class LoopbackTransport:
    """A transport to others in the same `LoopbackNetwork`."""

    def __init__(self, name: NodeId, network: LoopbackNetwork) -> None:
        self.name = name
        self._network = network
        self._receive: Receive | None = None
        self._arriving: dict[NodeId, list[bytes]] = {}

    async def open(self, on_receive: Receive) -> None:
        self._receive = on_receive
        self._network.present[self.name] = self

    def send(
        self,
        to: NodeId,
        frame: bytes,
        lossy: bool,  # noqa: ARG002  nothing is lost, and nothing waits
        priority: Priority = Priority.UPKEEP,  # noqa: ARG002
        ordered: bool = True,  # noqa: ARG002
    ) -> None:
        other = self._network.present.get(to)
        if other is not None and self._receive is not None:
            other._put(self.name, frame)

    def knows(self, node: NodeId) -> bool:
        return node in self._network.present

    async def close(self) -> None:
        self._receive = None
        if self._network.present.get(self.name) is self:
            del self._network.present[self.name]

    def _put(self, sender: NodeId, frame: bytes) -> None:
        # Never at once: a node must not be spoken to while it still speaks.
        if sender not in self._arriving:
            self._arriving[sender] = []
            asyncio.get_running_loop().call_soon(self._deliver, sender)
        self._arriving[sender].append(frame)

    def _deliver(self, sender: NodeId) -> None:
        frames = self._arriving.pop(sender)
        if self._receive is not None:
            self._receive(sender, frames)
