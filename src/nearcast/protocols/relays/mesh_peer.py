"""A relaying peer that finds the peers around it by the mesh of VON, without a directory.

[Lehn] leaves to other systems who wants whose publications, and names VON among them (I). Here each
peer is a site of VON, at the centre of its first interest. A site knows all whose interest covers
its place: they are its audience, and the relays bring them what it publishes. A publication for
another place goes to the owner of that place, which is its source then. Whoever leaves or crashes
is forgotten by its neighbours; nobody is needed by all.
"""

from random import Random

from nearcast.model.subscription import NodeId
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.relays.layer import capacity_of
from nearcast.protocols.relays.peer import Parameters
from nearcast.protocols.relays.relays import RARELY, Relays
from nearcast.protocols.voronoi import von


class MeshRelayPeer(von.VonPeer):
    """A peer of VON with all settings of the relays."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, contacts: Contacts
    ) -> None:
        # Uplinks are scarce: the mesh speaks as rarely as the relays do to peers without a flow.
        interval = parameters.interval_ms
        mesh = von.Parameters(
            room=parameters.room, step_ms=interval, beat_s=RARELY * interval / 1e3
        )
        super().__init__(node_id, rng, mesh, contacts)
        self.relays = Relays(
            node_id, self.out, rng, lambda: self.now, parameters,
            capacity_of(parameters.uplink_min, parameters.uplink_max, rng),
            lambda node: node in self.mesh.known,
            optimises=parameters.relays == "on", for_others=True,
        )  # fmt: skip
