"""Relays as a protocol of its own: peers, and a directory that tells them who is near them."""

from collections.abc import Callable
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.overlay import FIRST_SERVER, ProtocolKind
from nearcast.protocols.relays.directory import CODEC, RelayDirectory
from nearcast.protocols.relays.peer import Parameters, RelayPeer


class RelayDeployment:
    """One directory, and a `RelayPeer` for each entity."""

    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        self.parameters = parameters
        self.stream = stream

    def servers(self) -> list[Node]:
        return [RelayDirectory(FIRST_SERVER, self.stream(FIRST_SERVER), self.parameters.room)]

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        return RelayPeer(node_id, rng, self.parameters, FIRST_SERVER)


KIND = ProtocolKind(Parameters, CODEC, RelayDeployment, settles=True, workload="virtual-reality")
