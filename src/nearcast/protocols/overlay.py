"""What a host must know of a protocol to run it: parameters, nodes, messages, invariants."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer
from nearcast.scenario import Setting
from nearcast.space.motion import Time
from nearcast.wire import Codec

FIRST_SERVER: NodeId = 2**40  # nodes that serve no entity of their own are numbered from here


class Invariant(Protocol):
    """Something that must be true of all nodes together. It reads nodes and changes nothing."""

    def violations(self, nodes: Mapping[NodeId, Node], now: Time) -> Sequence[str]:
        """What is wrong at this moment, a sentence each; none if all is well."""
        ...


class MakeInvariants(Protocol):
    """`calm`: delays are constant, no message is lost and no node leaves or crashes."""

    def __call__(self, *, calm: bool) -> Sequence[Invariant]: ...


def no_invariants(*, calm: bool) -> Sequence[Invariant]:
    del calm
    return ()


class Overlay(Protocol):
    """One deployment of a protocol: makes its nodes."""

    def servers(self) -> list[Node]:
        """Nodes that run from the beginning and belong to no entity."""
        ...

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        """The node of an entity that joins, or that returns after a crash."""
        ...


class ProtocolKind(Struct, frozen=True):
    """A protocol as the registry knows it."""

    parameters: type[Struct]
    codec: Codec
    make: Callable[[Any, Callable[[NodeId], Random]], Overlay]
    # Is its overlay built from interests? Then the workload begins once the first are in place.
    settles: bool = False
    workload: str = "waypoint"  # the default workload of `nearcast simulate`
    invariants: MakeInvariants = no_invariants
    offers: frozenset[OverlayOffer] = PEER_OFFERS  # what an application may ask of its peer
    # Settings of its form for 3-D worlds; none if it needs none. None: it sends by x and y, and
    # z is a further condition that receivers check, so more is sent in vain.
    spatial: dict[str, Setting] | None = {}
    heights: bool = True  # does a node know others by three coordinates?
