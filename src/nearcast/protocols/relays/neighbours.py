"""What a peer knows of its neighbours: uplinks, one-way latencies (legs), and their audiences."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearcast.model.subscription import NodeId
from nearcast.protocols.relays import bloom
from nearcast.protocols.relays.messages import TICK, PeerStatus
from nearcast.space.motion import Time

UNKNOWN: Time = 50_000  # one way, before anything was measured
TICKS = 2**32
MOST = 10_000  # neighbours that a peer remembers
SMOOTH = 0.3  # weight of a new measurement


def ticks_of(t: Time) -> int:
    """A clock reading as a PeerStatus has it."""
    return t // TICK % TICKS


class RelayNeighbour:
    """One neighbour, as its statuses describe it."""

    __slots__ = (
        "age",
        "capacity",
        "last_received",
        "leg",
        "load",
        "sent",
        "status_at",
        "status_sent_at",
    )

    def __init__(self, now: Time) -> None:
        self.last_received = now  # when anything last came from it
        self.status_sent_at: Time | None = None  # when it was last sent our status
        self.sent: int | None = None  # the clock of its latest status, unless echoed already
        self.status_at = now  # when that came
        self.leg: Time | None = None  # to it, one way
        self.capacity = 0.0  # bytes per second; 0: not known
        self.load = 0.0  # utilisation
        self.age = 0.0  # seconds


class Neighbours:
    """All neighbours, the audiences of sources, and latencies between others."""

    def __init__(self) -> None:
        self.known: dict[NodeId, RelayNeighbour] = {}
        self.audiences: dict[NodeId, NDArray[np.uint8]] = {}  # by source: the bits of its filter
        self._former: dict[NodeId, NDArray[np.uint8]] = {}  # and of the one before
        self.legs: dict[tuple[NodeId, NodeId], Time] = {}  # between two others, as reported

    def meet(self, node: NodeId, now: Time) -> RelayNeighbour:
        neighbour = self.known.get(node)
        if neighbour is None:
            neighbour = self.known[node] = RelayNeighbour(now)
        return neighbour

    def receive(self, node: NodeId, now: Time, status: PeerStatus | None) -> None:
        neighbour = self.meet(node, now)
        neighbour.last_received = now
        if status is None:
            return
        neighbour.capacity, neighbour.load = float(status.uplink), status.used / 1000
        neighbour.age, neighbour.sent, neighbour.status_at = float(status.age), status.sent, now
        if status.echo or status.held:
            # Half the round trip: time since our status, less the time that the other held it.
            there_and_back = (ticks_of(now) - status.echo - status.held) % TICKS
            if there_and_back < TICKS // 2:
                leg = there_and_back * TICK // 2
                known = neighbour.leg if neighbour.leg is not None else leg
                neighbour.leg = round(known + SMOOTH * (leg - known))

    def learn_audience(self, source: NodeId, packed: bytes) -> None:
        if len(self.audiences) < MOST or source in self.audiences:
            bits, known = bloom.bits_of(packed), self.audiences.get(source)
            if known is not None and not np.array_equal(known, bits):
                self._former[source] = known
            self.audiences[source] = bits

    def is_in_audience(self, node: NodeId, source: NodeId) -> bool:
        """Is (node, source) in E, according to the source's filter?"""
        return _holds(self.audiences.get(source), node)

    def was_in_audience(self, node: NodeId, source: NodeId) -> bool:
        """Is it in E, or was it until recently? Publications may still be under way."""
        return self.is_in_audience(node, source) or _holds(self._former.get(source), node)

    def which_in_audience(self, nodes: Sequence[NodeId], source: NodeId) -> NDArray[np.bool_]:
        bits = self.audiences.get(source)
        return np.zeros(len(nodes), bool) if bits is None else bloom.holds_each(bits, nodes)

    def leg(self, node: NodeId) -> Time:
        neighbour = self.known.get(node)
        known = None if neighbour is None else neighbour.leg
        return UNKNOWN if known is None else known

    def learn_leg(self, a: NodeId, b: NodeId, leg: Time) -> None:
        if leg:
            if len(self.legs) >= MOST:
                del self.legs[next(iter(self.legs))]
            self.legs[a, b] = leg

    def between(self, a: NodeId, b: NodeId) -> Time:
        """Latency from a to b as a reported it; else the middle of what the triangle inequality
        allows, |x − y| to x + y. A reported latency may violate the inequality."""
        reported = self.legs.get((a, b))
        return max(self.leg(a), self.leg(b)) if reported is None else reported

    def silent(self, node: NodeId, since: Time) -> bool:
        neighbour = self.known.get(node)
        return neighbour is None or neighbour.last_received < since

    def forget(self, since: Time) -> None:
        """Forget neighbours from which nothing has come since then."""
        for node in [node for node, known in self.known.items() if known.last_received < since]:
            del self.known[node]
            self.audiences.pop(node, None)
            self._former.pop(node, None)


def _holds(bits: NDArray[np.uint8] | None, node: NodeId) -> bool:
    return bits is not None and bool(bloom.holds_each(bits, [node])[0])
