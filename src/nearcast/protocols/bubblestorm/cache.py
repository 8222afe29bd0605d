"""The subscription cache: recent positions and vision radii of peers ([Lucas2011] 3.4.2.1).

It stores every replica of a subscription that reaches this peer. A new one is matched against those
of others: the peers whose last position is inside its area are the answer. Entries time out.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.columns import grow
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, Subscription
from nearcast.protocols.bubblestorm.layouts import PeerPosition, is_newer
from nearcast.protocols.interests import ball_around
from nearcast.space.motion import Time

MOST = 100_000  # entries: bounds the memory
FIRST_ROOM = 64


class CachedSubscription(NamedTuple):
    """The latest subscription of one peer."""

    position: PeerPosition
    last_received: Time
    managed: bool
    wanted: tuple[Subscription, ...]


class SubscriptionCache:
    """Subscriptions of other peers, by peer."""

    def __init__(self, timeout: Time) -> None:
        self._timeout = timeout
        self.entries: dict[NodeId, CachedSubscription] = {}
        # The positions again as columns, for `inside`; slot by node:
        self._slot: dict[NodeId, int] = {}
        self._nodes = np.zeros(FIRST_ROOM, np.int64)
        self._places = np.zeros((FIRST_ROOM, 3))
        self._found = np.zeros(FIRST_ROOM, np.int64)  # room for an answer

    def update(
        self, position: PeerPosition, now: Time, managed: bool, wanted: tuple[Subscription, ...]
    ) -> None:
        """Store it, unless a newer one is known."""
        node = position.node
        known = self.entries.get(node)
        if known is None:
            if len(self.entries) >= MOST:
                return
        elif is_newer(known.position.stamp, position.stamp):
            return
        self.entries[node] = CachedSubscription(position, now, managed, wanted)
        slot = self._slot.get(node)
        if slot is None:
            slot = self._slot[node] = len(self._slot)
            if slot == len(self._nodes):
                self._nodes, self._places = (
                    grow(self._nodes, slot + 1),
                    grow(self._places, slot + 1),
                )
                self._found = np.zeros_like(self._nodes)
            self._nodes[slot] = node
        places = self._places  # one by one: numpy takes five times as long for a tuple
        places[slot, 0], places[slot, 1], places[slot, 2] = position.x, position.y, position.z

    def inside(self, position: PeerPosition) -> list[NodeId]:
        """Peers whose last position is in this area (the thesis' getPeersInAoi)."""
        asks, ax, ay, az, radius, _ = position
        found = self._found
        count = _within(
            self._places, self._nodes, len(self._slot), asks, ax, ay, az, radius * radius, found
        )
        inside: list[NodeId] = found[:count].tolist() if count else []
        return inside

    def wanting(self, publication: Publication) -> list[NodeId]:
        """Peers that may want it; where whole interests are known, those that want it."""
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
        """Remove an entry; the last slot moves to its slot."""
        del self.entries[node]
        slot, last = self._slot.pop(node), len(self._slot)
        if slot != last:
            moved = int(self._nodes[last])
            self._slot[moved], self._nodes[slot] = slot, moved
            self._places[slot] = self._places[last]

    def clean(self, now: Time) -> None:
        since = now - self._timeout
        for node in [n for n, entry in self.entries.items() if entry.last_received < since]:
            self.drop(node)


@njit(cache=True)
def _within(
    places: NDArray[np.float64],
    nodes: NDArray[np.int64],
    count: int,
    besides: int,
    x: float,
    y: float,
    z: float,
    limit: float,
    found: NDArray[np.int64],
) -> int:
    """Which of the first `count` are within sqrt(limit), except `besides`; returns how many."""
    n = 0
    for i in range(count):
        dx, dy, dz = places[i, 0] - x, places[i, 1] - y, places[i, 2] - z
        if dx * dx + dy * dy + dz * dz <= limit and nodes[i] != besides:
            found[n] = nodes[i]
            n += 1
    return n
