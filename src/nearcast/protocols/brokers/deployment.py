"""One deployment: brokers in a tree, and entities attached to them."""

from collections.abc import Callable, Iterable
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.client import BrokerClient
from nearcast.protocols.brokers.invariants import invariants
from nearcast.protocols.brokers.messages import CODEC
from nearcast.protocols.brokers.parameters import Parameters
from nearcast.protocols.brokers.topology import TOPOLOGIES, ancestors, neighbours
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer
from nearcast.protocols.overlay import FIRST_SERVER, ProtocolKind


class BrokerOverlay:
    """`links`: any tree, by the brokers' numbers; otherwise the topology of the parameters."""

    def __init__(
        self,
        parameters: Parameters,
        stream: Callable[[NodeId], Random],
        links: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        self.parameters = parameters
        self.stream = stream
        chosen = TOPOLOGIES[parameters.topology](parameters.brokers) if links is None else links
        self.neighbours = neighbours(parameters.brokers, chosen)

    def servers(self) -> list[Node]:
        return [self.broker(number) for number in range(self.parameters.brokers)]

    def broker(self, number: int) -> Broker:
        """A new life of this broker, empty."""
        node_id = FIRST_SERVER + number
        beside = [FIRST_SERVER + other for other in self.neighbours[number]]
        above = [FIRST_SERVER + other for other in ancestors(self.neighbours, number)]
        below_root = [FIRST_SERVER + other for other in self.neighbours[0]]
        return Broker(node_id, self.stream(node_id), self.parameters, beside, above, below_root)

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        every, chosen = self.parameters.brokers, self.parameters.attach
        own = node_id % every if chosen < 0 else chosen
        turns = [FIRST_SERVER + (own + turn) % every for turn in range(every)]
        return BrokerClient(node_id, rng, self.parameters, turns)


KIND = ProtocolKind(
    Parameters, CODEC, BrokerOverlay, settles=True, invariants=invariants,
    offers=PEER_OFFERS | {OverlayOffer.EVOLUTION},
)  # fmt: skip
