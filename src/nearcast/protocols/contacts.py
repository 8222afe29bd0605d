"""Bootstrap: which nodes a node that joins can ask first."""

from collections.abc import Callable
from random import Random
from typing import Any

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.overlay import Overlay


class Contacts:
    """Nodes (or addresses of members) that are in the overlay, as far as is known."""

    def __init__(self) -> None:
        self._nodes: list[NodeId] = []
        self._places: dict[NodeId, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: NodeId) -> None:
        if node not in self._places:
            self._places[node] = len(self._nodes)
            self._nodes.append(node)

    def remove(self, node: NodeId) -> None:
        place = self._places.pop(node, None)
        if place is not None:
            last = self._nodes.pop()
            if last != node:
                self._nodes[place] = last
                self._places[last] = place

    def any(self, rng: Random, besides: NodeId) -> NodeId | None:
        """A random one except `besides`; None if there is no other."""
        if len(self._nodes) - (besides in self._places) < 1:
            return None
        while (node := rng.choice(self._nodes)) == besides:
            pass
        return node

    def some(self, rng: Random, most: int, besides: NodeId) -> list[NodeId]:
        """Up to `most` random ones, without `besides`."""
        others = [node for node in self._nodes if node != besides]
        return rng.sample(others, min(most, len(others)))


class PeerOverlay:
    """A deployment without servers: every entity is a peer, and all share the same contacts."""

    def __init__(
        self, peer: Callable[[NodeId, Random, Any, Contacts], Node], parameters: Any
    ) -> None:
        self._peer, self.parameters = peer, parameters
        self.contacts = Contacts()

    def servers(self) -> list[Node]:
        return []

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        return self._peer(node_id, rng, self.parameters, self.contacts)


def peer_overlay(
    peer: Callable[[NodeId, Random, Any, Contacts], Node],
) -> Callable[[Any, Callable[[NodeId], Random]], Overlay]:
    """The `make` of a ProtocolKind for such an overlay."""
    return lambda parameters, _: PeerOverlay(peer, parameters)
