"""pSense as a protocol by name: peers, and nothing but peers."""

from collections.abc import Callable
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.overlay import Kind
from nearcast.protocols.psense.messages import CODEC
from nearcast.protocols.psense.parameters import Parameters
from nearcast.protocols.psense.peer import Peer


class PSense:
    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        del stream  # it has no servers that would need one
        self.parameters = parameters
        self.contacts = Contacts()

    def servers(self) -> list[Node]:
        return []

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        return Peer(node_id, rng, self.parameters, self.contacts)


KIND = Kind(Parameters, CODEC, PSense, settles=True)
