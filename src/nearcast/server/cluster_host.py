"""Hosts a service in a cluster: carries its messages over encrypted links to other nodes."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from random import choice
from time import process_time

from nearcast.errors import JoinError, WireError
from nearcast.model.subscription import NodeId
from nearcast.node import Send, SendMany, Stop
from nearcast.server.cluster_links import ClusterLinks
from nearcast.server.service_host import ServiceHost
from nearcast.service.cluster.cluster_node import STOP_ANSWERED
from nearcast.service.cluster.departure import HANDING_OVER, RESIGNING
from nearcast.service.cluster.messages import CODEC, Credential, LinkRefused
from nearcast.service.cluster.service import ClusterService
from nearcast.service.connection import Connection
from nearcast.service.effects import ProbeNode
from nearcast.space.motion import SECOND

LOG = logging.getLogger(__name__)
ANSWER_S = 1.5  # within which a living node accepts a connection
JOIN_S = 10.0
LOOK_S = 0.02  # between two looks at whether this node has been let in
# A node that leaves stops by its own clock: `departure` has its times, `STOP_ANSWERED` comes after.
LEAVE_S = (HANDING_OVER + RESIGNING + STOP_ANSWERED) / SECOND + 7.0
SECOND_S = 1.0


class ClusterHost:
    """The links of one node to the others."""

    def __init__(self, host: ServiceHost, service: ClusterService, links: ClusterLinks) -> None:
        self._host, self._service, self.links = host, service, links
        self._probes: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()
        self._measured = host.loop.time(), process_time()
        self._second: asyncio.TimerHandle | None = None
        self._url = ""  # where clients reach this node, once it has entered
        host.forward = self._forward
        host.handlers |= {
            Send: self._send,
            SendMany: self._send_many,
            ProbeNode: self._probe,
            Stop: lambda _: self._left.set(),
        }

    async def enter(self, url: str, join: Sequence[tuple[str, int]]) -> None:
        """Found a cluster, or join one through the first of these that answers."""
        await self._found_or_join(url, join)
        self._url = url
        self._every_second()

    async def _found_or_join(self, url: str, join: Sequence[tuple[str, int]]) -> None:
        host, service, links = self._host, self._service, self.links
        links.on_broken = lambda node: host.apply(service.link_broken(host.now(), node))
        await links.open(self._receive)
        if not join:
            host.apply(service.found_cluster(host.now(), url))
            return
        why = ""
        for address in join:
            try:
                async with asyncio.timeout(JOIN_S / len(join)):
                    contact = await links.meet(*address, JOIN_S)
                    host.apply(service.join_cluster(host.now(), url, contact))
                    while not (service.cluster.joined or service.cluster.refused or links.refused):
                        await asyncio.sleep(LOOK_S)
                if service.cluster.joined:
                    return
                why = links.refused or service.cluster.refused
            except OSError as error:  # TimeoutError is one
                why = links.refused or str(error) or "nobody answers"
            LOG.info("no way into the cluster at %s:%d: %s", *address, why)
        places = ", ".join(f"{name}:{port}" for name, port in join)
        raise JoinError(f"cannot join the cluster at {places}: {why}")

    async def leave(self) -> None:
        """Hand over all clients and records, and stop."""
        if self._url:
            self._host.apply(self._service.leave_cluster(self._host.now()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), LEAVE_S)
        if self._second is not None:
            self._second.cancel()
        for probe in self._probes:
            probe.cancel()
        await self.links.close()

    def _every_second(self) -> None:
        """Report the CPU share; and ask to be let in again, if the node that did so has failed."""
        (wall, used), host = self._measured, self._host
        self._measured = host.loop.time(), process_time()
        share = (self._measured[1] - used) / max(self._measured[0] - wall, 1e-6)
        self._second = host.loop.call_later(SECOND_S, self._every_second)
        host.apply(self._service.report_cpu(host.now(), share))
        members = [node for node in self.links.members if node != self.links.name]
        if not self._service.cluster.joined and members:
            host.apply(self._service.join_cluster(host.now(), self._url, choice(members)))

    def _receive(self, sender: NodeId, frames: Sequence[bytes]) -> None:
        arrivals = []
        for frame in frames:
            try:
                message = CODEC.decode(frame)
            except WireError as why:
                LOG.warning("a frame of node %d is refused: %s", sender, why)
            else:
                if not isinstance(message, Credential | LinkRefused):
                    arrivals.append((sender, message))
        self._host.before_input()
        self._host.apply(self._service.receive_many(self._host.now(), arrivals))

    def _forward(self, connection: Connection, frame: bytes, packed: bool) -> None:
        host = self._host
        host.apply(self._service.forward(host.now(), connection, frame, packed))

    def _send(self, effect: Send) -> None:
        self.links.send(effect.to, CODEC.encode(effect.message), lossy=False)

    def _send_many(self, effect: SendMany) -> None:
        frame = CODEC.encode(effect.message)
        for one in effect.to:
            self.links.send(one, frame, lossy=False)

    def _probe(self, effect: ProbeNode) -> None:
        task = self._host.loop.create_task(self._connect_to(effect.node))
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _connect_to(self, node: NodeId) -> None:
        """Try to connect to a node whose link has ended."""
        card = self.links.book.record(node)
        if card is None:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                _, writer = await asyncio.open_connection(card.host, card.port)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            accepts = True
        except OSError:
            accepts = False
        self._host.before_input()
        self._host.apply(self._service.probed(self._host.now(), node, accepts))
