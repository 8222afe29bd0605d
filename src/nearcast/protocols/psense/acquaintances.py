"""All peers that a peer knows: position, radius, and when they last changed."""

from collections.abc import Iterator
from math import dist

from nearcast.model.subscription import NodeId
from nearcast.protocols.psense.area_of_interest import AreaOfInterest
from nearcast.protocols.psense.layouts import PositionRecord, is_newer
from nearcast.protocols.psense.sectors import PlacedNode, best_sensors
from nearcast.space.motion import Time


def sees(vision: AreaOfInterest, other: PositionRecord) -> bool:
    """Is one in the other's area of interest?"""
    away = dist(vision.place, other.place)
    return away <= vision.radius or away <= other.radius


class Acquaintances:
    """Known peers, near nodes and sensors of one peer."""

    def __init__(self, me: NodeId, dimensions: int) -> None:
        self.me = me
        self.dimensions = dimensions
        self.seen: dict[NodeId, PositionRecord] = {}
        self.last_received: dict[NodeId, Time] = {}  # when their position last changed
        self.near: dict[NodeId, Time] = {}  # when they were near
        self.sensors: list[NodeId] = []  # each once, in the order of their first sectors
        self.sensor_of: list[NodeId | None] = []  # by sector

    def learn(self, sighting: PositionRecord, now: Time) -> bool:
        """Store a position; False: a newer one is known."""
        before = self.seen.get(sighting.node)
        if sighting.node == self.me:
            return False
        if before is not None and not is_newer(sighting.sequence, before.sequence):
            return False
        self.seen[sighting.node] = sighting
        self.last_received[sighting.node] = now
        return True

    def forget(self, node: NodeId) -> None:
        for memory in (self.seen, self.last_received, self.near):
            memory.pop(node, None)

    def find_near_nodes(self, vision: AreaOfInterest, now: Time) -> list[NodeId]:
        """Find the near nodes and the best sensors; returns the new near nodes."""
        came = []
        for node, sighting in self.seen.items():
            if sees(vision, sighting):
                if node not in self.near:
                    came.append(node)
                self.near[node] = now
        spots = [PlacedNode(node, sighting.place) for node, sighting in self.seen.items()]
        self.sensor_of = best_sensors(vision.place, vision.radius, spots, self.dimensions)
        self.sensors = list(dict.fromkeys(node for node in self.sensor_of if node is not None))
        return came

    def connections(self, now: Time) -> Iterator[NodeId]:
        """Near nodes of the latest `find_near_nodes`, and sensors."""
        for node in self.seen:
            if self.near.get(node) == now or node in self.sensors:
                yield node

    def drop(self, now: Time, silent: Time, linger: Time) -> list[NodeId]:
        """Forget silent peers (returned); after `linger`, those that are neither near nor sensors.

        The paper forgets the latter in every round, and learns of them again in the next.
        """
        gone = [node for node, t in self.last_received.items() if now - t > silent]
        unneeded = [
            node
            for node, t in self.last_received.items()
            if now - t > linger
            and now - self.near.get(node, -linger - 1) > linger
            and node not in self.sensors
        ]
        for node in (*gone, *unneeded):
            self.forget(node)
        for node, t in list(self.near.items()):
            if now - t > linger:
                del self.near[node]
        return gone
