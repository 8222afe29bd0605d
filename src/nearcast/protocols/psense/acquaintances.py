"""Whom a peer has heard of: where they were, how far they see, and when that was news."""

from collections.abc import Iterator
from math import dist

from nearcast.model.subscription import NodeId
from nearcast.protocols.psense.area_of_interest import AreaOfInterest
from nearcast.protocols.psense.layouts import PositionRecord, is_newer
from nearcast.protocols.psense.sectors import PlacedNode, best_sensors
from nearcast.space.motion import Time


def sees(vision: AreaOfInterest, other: PositionRecord) -> bool:
    """Is one in the other's area of interest? With equal radii, each is in the other's."""
    return dist(vision.place, other.place) <= max(vision.radius, other.radius)


class Acquaintances:
    def __init__(self, me: NodeId, dimensions: int) -> None:
        self.me = me
        self.dimensions = dimensions
        self.seen: dict[NodeId, PositionRecord] = {}
        self.heard: dict[NodeId, Time] = {}  # when there was news of them
        self.near: dict[NodeId, Time] = {}  # when they were near
        self.sensors: list[NodeId] = []  # each once, in the order of their first sectors
        self.sensor_of: list[NodeId | None] = []  # by sector

    def learn(self, sighting: PositionRecord, now: Time) -> bool:
        """Is this news?"""
        before = self.seen.get(sighting.node)
        if sighting.node == self.me:
            return False
        if before is not None and not is_newer(sighting.sequence, before.sequence):
            return False
        self.seen[sighting.node] = sighting
        self.heard[sighting.node] = now
        return True

    def forget(self, node: NodeId) -> None:
        for memory in (self.seen, self.heard, self.near):
            memory.pop(node, None)

    def look_around(self, vision: AreaOfInterest, now: Time) -> list[NodeId]:
        """Who is near now, and who are the best sensors? Those who have come near are returned."""
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
        """Near nodes as of the latest look around, and sensors."""
        for node in self.seen:
            if self.near.get(node) == now or node in self.sensors:
                yield node

    def drop(self, now: Time, silent: Time, linger: Time) -> list[NodeId]:
        """Forget the silent, and those who are neither near nor sensors once there is no news of
        them; the silent are returned.

        The paper forgets the latter in every round, and learns of them in the next again.
        """
        gone = [node for node, t in self.heard.items() if now - t > silent]
        strangers = [
            node
            for node, t in self.heard.items()
            if now - t > linger
            and now - self.near.get(node, -linger - 1) > linger
            and node not in self.sensors
        ]
        for node in (*gone, *strangers):
            self.forget(node)
        for node, t in list(self.near.items()):
            if now - t > linger:
                del self.near[node]
        return gone
