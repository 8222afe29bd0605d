"""Relays as a protocol of its own: peers that find each other by a directory, or by themselves."""

from collections.abc import Callable
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.overlay import FIRST_SERVER, ProtocolKind
from nearcast.protocols.relays import directory
from nearcast.protocols.relays.compression import CompressedUpdate
from nearcast.protocols.relays.mesh_peer import MeshRelayPeer
from nearcast.protocols.relays.peer import Parameters, RelayPeer
from nearcast.protocols.voronoi import von
from nearcast.wire import Codec

CODEC = Codec(*directory.CODEC.messages, *von.MESSAGES_OF_VON, CompressedUpdate)


class RelayDeployment:
    """One directory and a `RelayPeer` for each entity; or a `MeshRelayPeer` for each."""

    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        self.parameters = parameters
        self.stream = stream
        self.contacts = Contacts()

    def servers(self) -> list[Node]:
        if self.parameters.directory == "mesh":
            return []
        rng = self.stream(FIRST_SERVER)
        return [directory.RelayDirectory(FIRST_SERVER, rng, self.parameters.room)]

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        if self.parameters.directory == "mesh":
            return MeshRelayPeer(node_id, rng, self.parameters, self.contacts)
        return RelayPeer(node_id, rng, self.parameters, FIRST_SERVER)


# Live peers find each other by the mesh, which is of x and y alone.
KIND = ProtocolKind(
    Parameters,
    CODEC,
    RelayDeployment,
    settles=True,
    workload="virtual-reality",
    spatial=None,
    heights=False,  # a directory that is a mesh has none
)
