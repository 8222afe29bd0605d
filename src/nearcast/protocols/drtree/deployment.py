"""One deployment of a DR-tree: peers, and the contacts through which they join."""

from collections.abc import Callable
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.drtree.contacts import MemberContacts
from nearcast.protocols.drtree.invariants import invariants
from nearcast.protocols.drtree.messages import CODEC
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.peer import MILLISECOND, DRTreePeer
from nearcast.protocols.overlay import ProtocolKind


class DRTreeOverlay:
    """There are no servers: every entity is a peer."""

    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        del stream  # only servers need one
        self.parameters = parameters
        self.contacts = MemberContacts(
            round(parameters.join_queue * parameters.check_ms * MILLISECOND)
        )

    def servers(self) -> list[Node]:
        return []

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        return DRTreePeer(node_id, rng, self.parameters, self.contacts)


KIND = ProtocolKind(
    Parameters,
    CODEC,
    DRTreeOverlay,
    settles=True,
    workload="hotspots",
    invariants=invariants,
    spatial={"dimensions": "x,y,z"},
)
