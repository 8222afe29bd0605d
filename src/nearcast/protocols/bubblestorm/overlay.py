"""The peer-to-peer layer: links, measurement and bubbles ([Lucas2011] 3.4.1).

It does not look into bubbles. The layer above casts bubbles and receives those that arrive; this
layer forwards the rest of their weight.
"""

from collections.abc import Callable
from math import exp
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Timer
from nearcast.protocols.bubblestorm import links, sizes
from nearcast.protocols.bubblestorm.bubblecast import spread
from nearcast.protocols.bubblestorm.circuit import Circuit
from nearcast.protocols.bubblestorm.congestion import CongestedUplink
from nearcast.protocols.bubblestorm.gossip import Measurement
from nearcast.protocols.bubblestorm.messages import (
    Gossip,
    LocationRef,
    Number,
    PublicationBubble,
    SubscriptionBubble,
)
from nearcast.protocols.bubblestorm.parameters import LEAST_DEGREE, Parameters
from nearcast.protocols.dedup import DeliveredPublications
from nearcast.space.motion import SECOND, Time

EVERY: Time = SECOND  # between two checks of the links
BOOSTED = 3  # measurements that a new peer hurries on: others may wait for their first
GENEROUS = 1.2  # times the size that this peer would choose: a larger weight is cut
FRAME = 30  # bytes of a bubble around what it carries
KBIT = 125  # bytes

Cast = TypeVar("Cast", SubscriptionBubble, PublicationBubble)


class CheckCircuitLinks(Timer, frozen=True):
    """Check the links: heartbeats, repair, degree."""


class SendGossip(Timer, frozen=True):
    """Send a share of the measurement to a neighbour."""


class SendQueued(Timer, frozen=True):
    """Send what waits for the uplink."""


class OverlayNode(links.CircuitNode, Protocol):
    """What the overlay needs of the node that it belongs to."""

    def set_timer(self, timer: Timer, delay: Time) -> None: ...


class BubbleStormOverlay:
    """The peer-to-peer layer of one peer."""

    def __init__(self, node: OverlayNode, parameters: Parameters, strength: float) -> None:
        self._node = node
        self._parameters = parameters
        self.circuit = Circuit(node, parameters, parameters.desired(strength))
        self.measurement = Measurement(node.rng)
        rate = parameters.upload_kbit * KBIT * strength
        self.uplink = CongestedUplink(rate, node.post)
        self._flooded = DeliveredPublications()
        self._sized: sizes.NetworkEstimate | None = None
        self._size = self._partner = 1
        self.handlers: dict[type[Message], Callable[[NodeId, Any], None]] = {
            **self.circuit.handlers,
            Gossip: self._on_gossip,
        }

    def start(self) -> None:
        rng = self._node.rng
        self.circuit.tick()
        self._node.set_timer(CheckCircuitLinks(), EVERY // 2 + rng.randrange(EVERY))
        self._node.set_timer(SendGossip(), 1 + rng.randrange(self._gap()))

    def on_timer(self, timer: Timer) -> None:
        match timer:
            case CheckCircuitLinks():
                self.circuit.tick()
                self._node.set_timer(timer, EVERY)
            case SendGossip():
                self._send_gossip()
                self._node.set_timer(timer, self._gap())
            case _:
                self._flush()

    # Measurement.

    def _gap(self) -> Time:
        shared: float = max(self.circuit.degree, LEAST_DEGREE)
        if self.measurement.took_part < BOOSTED:
            shared *= self._parameters.gossip_boost
        return max(1, round(self._parameters.gossip_s * SECOND / shared))

    def _send_gossip(self) -> None:
        if not self.circuit.links:
            return
        if not self.measurement.round:  # the first to measure anything
            self.measurement.begin(1, self.circuit.degree, contributes=True)
        number, (node, location) = self._node.rng.choice(self.circuit.links)
        theirs = self.circuit.locations[number].degree
        gossip = self.measurement.share(location, self.circuit.degree, theirs)
        self._node.post(node, gossip)

    def _on_gossip(self, sender: NodeId, message: Gossip) -> None:
        if self.circuit.is_linked(message.location, sender):
            self.circuit.locations[message.location].degree = message.degree
            self.measurement.receive(message, self.circuit.degree)

    def _compute_sizes(self) -> None:
        network = self.measurement.network
        if network is self._sized:
            return
        self._sized, certainty = network, self._parameters.certainty
        steps = sizes.equal(certainty, network)
        self._size = sizes.bubble_size(certainty, network)
        self._partner = sizes.replicas(sizes.partner(steps, certainty, network), network)

    @property
    def size(self) -> int:
        """Replicas of a subscription bubble, which meets others of its size."""
        self._compute_sizes()
        return self._size

    @property
    def partner(self) -> int:
        """Replicas of an instant bubble that meets subscription bubbles."""
        self._compute_sizes()
        return self._partner

    @property
    def holders(self) -> int:
        """Expected number of different peers that a bubble reaches."""
        peers = self.measurement.network.peers
        return round(peers * (1 - exp(-self.size / peers)))

    # Bubbles.

    def is_new(self, token: Number) -> bool:
        """Is this flood seen for the first time?"""
        return self._flooded.is_new(token, self._node.now)

    def pass_on(self, cast: Cast, came: Number | None) -> None:
        """Forward the rest to `split` links of other locations than it came through."""
        if cast.weight > 1:  # every other one is the last of its branch
            own = self.size if isinstance(cast, SubscriptionBubble) else self.partner
            weight = min(cast.weight, max(1, int(GENEROUS * own)))
            links = [link for link in self.circuit.links if link[0] != came] or self.circuit.links
            for (_, end), part in spread(weight, self._parameters.split, links, self._node.rng):
                self._send(end, part, cast)
        self._flush_if_waiting()

    def flood(self, cast: SubscriptionBubble, came: NodeId | None) -> None:
        """To every neighbour but the one it came from ([Lucas2011] 3.2)."""
        ends = {end[0]: end for _, end in self.circuit.links}
        for node, end in ends.items():
            if node not in (came, self._node.id):
                self._send(end, 1, cast)
        self._flush_if_waiting()

    def _send(self, end: LocationRef, part: int, cast: Cast) -> None:
        message: SubscriptionBubble | PublicationBubble
        if isinstance(cast, SubscriptionBubble):
            message = SubscriptionBubble(
                end[1], part, cast.size, cast.token, cast.managed, cast.packet, cast.wanted
            )
            carried = len(cast.packet) * (1 + 2 * len(cast.wanted))
        else:
            message = replace(cast, location=end[1], weight=part, hops=cast.hops + 1)
            carried = len(cast.publication.payload) + FRAME
        self.uplink.offer(self._node.now, end[0], part / cast.size, carried + FRAME, message)

    def _flush_if_waiting(self) -> None:
        if self.uplink.waits:
            self._flush()

    def _flush(self) -> None:
        later = self.uplink.flush(self._node.now)
        if later is not None:
            self._node.set_timer(SendQueued(), later)
        if self.uplink.lost:
            self._node.note("congested", self.uplink.lost)
            self.uplink.lost = 0
