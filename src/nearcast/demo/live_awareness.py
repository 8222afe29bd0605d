"""How many of the ships in its sight each peer of a live game knows: what an overlay is good for.

The process that plays the game knows where all its ships really are. A peer knows a ship if an
update of it was delivered to that peer within the last second; ships send ten in that time. To know
a ship that is out of sight, or has exploded, is wrong. Accuracy counts both kinds of errors, as in
[Lucas2011] and in the table `awareness_totals` of recorded runs.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nearcast.model.subscription import NodeId
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector

KNOWN_FOR: Time = SECOND


class ShipsInSight(NamedTuple):
    """Of one peer: how many others are in its sight, how many of them it knows, and how many it
    knows wrongly; `judged` are all others that fly, and those that it knows though they do not."""

    known: int
    in_sight: int
    wrong: int
    judged: int


class ReceivedUpdates:
    """When each peer was last delivered an update of which other ship."""

    def __init__(self) -> None:
        self._last: dict[NodeId, dict[NodeId, Time]] = {}

    def add(self, peer: NodeId, ship: NodeId, t: Time) -> None:
        self._last.setdefault(peer, {})[ship] = t

    def forget(self, peer: NodeId) -> None:
        """This peer has left."""
        self._last.pop(peer, None)

    def awareness(
        self, now: Time, places: Mapping[NodeId, Vector], sight: float
    ) -> dict[NodeId, ShipsInSight]:
        """By peer, what it knows of the ships that are within `sight` of it."""
        names, begun = list(places), now - KNOWN_FOR
        where = np.array(list(places.values()), np.float64).reshape(-1, 3)
        found: dict[NodeId, ShipsInSight] = {}
        for place, peer in zip(where, names, strict=True):
            near = np.flatnonzero(np.linalg.norm(where - place, axis=1) <= sight).tolist()
            others = [names[i] for i in near if names[i] != peer]
            last = self._last.get(peer, {})
            recent = {ship for ship, t in last.items() if t >= begun and ship != peer}
            known, gone = len(recent.intersection(others)), recent.difference(places)
            judged = len(places) - 1 + len(gone)
            found[peer] = ShipsInSight(known, len(others), len(recent) - known, judged)
        return found


def known_share(awareness: Mapping[NodeId, ShipsInSight]) -> float | None:
    """Of all pairs of a peer and a ship in its sight, the share that is known; None: no pairs."""
    in_sight = sum(one.in_sight for one in awareness.values())
    return sum(one.known for one in awareness.values()) / in_sight if in_sight else None


def accuracy(awareness: Mapping[NodeId, ShipsInSight]) -> float | None:
    """Of all pairs of a peer and another ship, the share where the peer rightly knows or rightly
    does not know it; None: no pairs."""
    judged = sum(one.judged for one in awareness.values())
    errors = sum(one.in_sight - one.known + one.wrong for one in awareness.values())
    return 1 - errors / judged if judged else None
