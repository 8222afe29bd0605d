"""BubbleStorm and its spatial publish/subscribe layer: peers meet by probability (seed 002)."""

from collections.abc import Callable
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.bubblestorm.messages import CODEC
from nearcast.protocols.bubblestorm.parameters import Parameters
from nearcast.protocols.bubblestorm.peer import Peer
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.overlay import Kind


class BubbleStorm:
    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        del stream  # it has no servers that would need one
        self.parameters = parameters
        self.contacts = Contacts()

    def servers(self) -> list[Node]:
        return []

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        strong = rng.random() < self.parameters.strong
        strength = self.parameters.strength if strong else 1.0
        return Peer(node_id, rng, self.parameters, self.contacts, strength)


KIND = Kind(Parameters, CODEC, BubbleStorm)

__all__ = ["KIND"]
