"""How each overlay begins, and how a peer joins it through one of its nodes.

The simulator gives its nodes what they must know; here they learn it from the nodes they meet.
Addresses are no matter of protocols: whoever mentions a name has handed over its record before
(`address_book.py`), so a peer can send to every node whose name it has received.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct

from nearcast.matching import MATCHERS
from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols import PROTOCOLS, client_server, drtree
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.client import BrokerClient
from nearcast.protocols.brokers.parameters import Parameters as BrokerParameters
from nearcast.protocols.drtree.messages import SLOTS
from nearcast.protocols.drtree.peer import DRTreePeer
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.vso.parameters import Parameters as VsoParameters
from nearcast.protocols.voronoi.vso.peer import VsoPeer
from nearcast.scenario import Setting
from nearcast.space.motion import SECOND, Time
from nearcast.transport.address_book import AddressBook

REMIND: Time = 60 * SECOND  # after which all are named again: who was silent may have come back


def _nobody(_node: Node, _name: NodeId) -> None:
    """For overlays whose nodes need not know others."""


class Bootstrap(Struct, frozen=True):
    """`met`: whom it has met; its own name if it is the first."""

    entity: Callable[[Any, NodeId, Random, NodeId], Node]
    # Who begins runs one of these beside it. None: this overlay is of peers alone.
    server: Callable[[Any, NodeId, Random, NodeId], Node] | None = None
    servers_join: bool = False  # may somebody else run a further one?
    introduce: Callable[[Node, NodeId], None] = _nobody
    # A newcomer is named to others when it has been there for so long.
    newcomer: Time = 0
    # Settings with which an overlay of peers begins, where they are not those of the simulator.
    settings: dict[str, Setting] = {}


def _client(
    parameters: client_server.Parameters, node_id: NodeId, rng: Random, server: NodeId
) -> Node:
    memory = round(parameters.memory_s * SECOND)
    return client_server.CentralServerClient(node_id, rng, server, memory)


def _server(parameters: client_server.Parameters, node_id: NodeId, rng: Random, _: NodeId) -> Node:
    return client_server.CentralServer(node_id, rng, MATCHERS[parameters.matcher]())


def _tree_peer(parameters: Any, node_id: NodeId, rng: Random, _: NodeId) -> Node:
    return drtree.KIND.make(parameters, Random).entity(node_id, rng)


def _introduce_to_tree(node: Node, name: NodeId) -> None:
    """Trees that have begun apart find each other by any member of either."""
    assert isinstance(node, DRTreePeer)
    node.contacts.add(name * SLOTS)


def _with_contacts(protocol: str) -> Callable[[Any, NodeId, Random, NodeId], Node]:
    """A peer that asks its contacts: at first the one whom it has met."""

    def entity(parameters: Any, node_id: NodeId, rng: Random, contact: NodeId) -> Node:
        overlay: Any = PROTOCOLS[protocol].make(parameters, Random)
        if contact != node_id:
            overlay.contacts.add(contact)
        node: Node = overlay.entity(node_id, rng)
        return node

    return entity


def _introduce_to_contacts(node: Any, name: NodeId) -> None:
    node.contacts.add(name)


def _broker(parameters: BrokerParameters, node_id: NodeId, rng: Random, above: NodeId) -> Node:
    """A newcomer greets one broker alone, so the network stays the tree that it must be."""
    neighbours = [] if above == node_id else [above]
    return Broker(node_id, rng, parameters, neighbours, neighbours)


def _broker_client(
    parameters: BrokerParameters, node_id: NodeId, rng: Random, broker: NodeId
) -> Node:
    return BrokerClient(node_id, rng, parameters, [broker])


def _vso_peer(parameters: VsoParameters, node_id: NodeId, rng: Random, contact: NodeId) -> Node:
    return VsoPeer(node_id, rng, parameters, contact)


def _introduce_to_vso_peer(node: Node, name: NodeId) -> None:
    assert isinstance(node, VsoPeer)
    node.contacts[name] = None


BOOTSTRAPS: dict[str, Bootstrap] = {
    # Of two peers that are a ring by themselves one gives up its own, so a newcomer that has no
    # ring yet must not be introduced.
    "bubblestorm": Bootstrap(
        _with_contacts("bubblestorm"),
        introduce=_introduce_to_contacts,
        newcomer=5 * SECOND,
        settings={"gossip_boost": 16.0},
    ),
    "psense": Bootstrap(_with_contacts("psense"), introduce=_introduce_to_contacts),
    # A peer that knows others waits for one of them to let it in. Whoever begins the overlay and
    # has its first subscription only when others have come would wait for those who wait for it.
    "von": Bootstrap(_with_contacts("von"), introduce=_introduce_to_contacts, newcomer=5 * SECOND),
    # The gateway may go at any time, and only another matcher can follow it.
    "vso": Bootstrap(_vso_peer, introduce=_introduce_to_vso_peer, settings={"least": 2}),
    # A join ends with a check or two; messages take less than a second.
    "drtree": Bootstrap(_tree_peer, introduce=_introduce_to_tree, settings={"check_ms": 1000.0}),
    "brokers": Bootstrap(_broker_client, _broker, servers_join=True),
    "relays": Bootstrap(
        _with_contacts("relays"),
        introduce=_introduce_to_contacts,
        newcomer=5 * SECOND,
        settings={"directory": "mesh", "compress": "on"},
    ),
    "client-server": Bootstrap(_client, _server),
}


class KnownPeers:
    """Introduces peers of the address book to a node: each when it is due, and now and then all.

    A node forgets peers that do not answer; they must not be introduced again every second.
    """

    def __init__(self, bootstrap: Bootstrap, node: Node, book: AddressBook) -> None:
        self._bootstrap, self._node, self._book = bootstrap, node, book
        self._introduced: dict[NodeId, Time] = {}  # by name: the time of its record
        self._introduced_all_at: Time = 0

    def introduce_due(self, now: Time) -> None:
        if now - self._introduced_all_at >= REMIND:
            self._introduced_all_at = now
            self._introduced.clear()
        for name in self._book.names():
            record = self._book.record(name)
            if name == self._node.id or name >= FIRST_SERVER or record is None:
                continue
            if (
                self._introduced.get(name) != record.t
                and now - record.t >= self._bootstrap.newcomer
            ):
                self._introduced[name] = record.t
                self._bootstrap.introduce(self._node, name)
