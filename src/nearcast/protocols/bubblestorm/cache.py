"""The subscription cache: who was where lately, and how far it sees (seed 002, 3.4.2.1).

Every replica of a subscription comes here. A new one is matched against those of others: whoever
was last seen inside its area is an answer. Entries that are not renewed time out.
"""

from typing import NamedTuple

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, Subscription
from nearcast.protocols.bubblestorm.layouts import Sighting, is_newer
from nearcast.protocols.interests import ball_around
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector

MOST = 100_000  # entries: nobody may fill a peer's memory


class Entry(NamedTuple):
    sighting: Sighting
    heard: Time
    managed: bool
    wanted: tuple[Subscription, ...]


class Cache:
    def __init__(self, timeout: Time) -> None:
        self._timeout = timeout
        self.entries: dict[NodeId, Entry] = {}
        self._places: dict[NodeId, Vector] = {}  # of the same, for those who look at all of them

    def update(
        self, sighting: Sighting, now: Time, managed: bool, wanted: tuple[Subscription, ...]
    ) -> None:
        """Store it; what has been overtaken by something newer is not news."""
        node = sighting.node
        known = self.entries.get(node)
        if known is None:
            if len(self.entries) >= MOST:
                return
        elif is_newer(known.sighting.stamp, sighting.stamp):
            return
        self.entries[node] = Entry(sighting, now, managed, wanted)
        self._places[node] = sighting.place

    def inside(self, sighting: Sighting) -> list[NodeId]:
        """Whose last place is in this area (getPeersInAoi)."""
        asks, ax, ay, az, radius, _ = sighting
        limit, left, right = radius * radius, ax - radius, ax + radius
        return [
            node
            for node, (x, y, z) in self._places.items()
            if left <= x <= right  # most are not, and need no more than that
            and (x - ax) * (x - ax) + (y - ay) * (y - ay) + (z - az) * (z - az) <= limit
            and node != asks
        ]

    def wanting(self, publication: Publication) -> list[NodeId]:
        """Who may want this; exactly who does, where whole interests are known."""
        place = ball_around(publication.shape)
        return [
            node
            for node, (s, _, _, wanted) in self.entries.items()
            if (
                any(wants(one, publication, publication.t) for one in wanted)
                if wanted
                else place.away(s.x, s.y, s.z) <= s.radius + place.radius
            )
        ]

    def drop(self, node: NodeId) -> None:
        del self.entries[node], self._places[node]

    def clean(self, now: Time) -> None:
        since = now - self._timeout
        for node in [n for n, entry in self.entries.items() if entry.heard < since]:
            self.drop(node)
