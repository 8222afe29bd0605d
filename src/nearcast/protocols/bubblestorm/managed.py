"""Managed bubbles: replicas that their owner maintains ([Lucas2011] 3.3.1.1).

The owner casts a bubble once, and each holder of a replica reports to it. From then on the owner
sends changes to the holders directly, and asks from time to time whether they still hold it. The
bubble is cast again with the weight of missing replicas. When its owner leaves, it ends.
"""

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time

ASKS_EVERY = 4  # rounds between two questions to the holders
MISSES = 2  # questions that a holder may leave unanswered
MOST_HOLDERS = 100_000


class ReplicaHolders:
    """Holders of replicas of this peer's bubble, and when each last reported."""

    def __init__(self, round_: Time) -> None:
        self._patience = MISSES * ASKS_EVERY * round_
        self._last_received: dict[NodeId, Time] = {}
        self._round = 0
        self._cast: Time = -1  # when replicas were last cast that may not have reported yet
        self._under_way = 0
        self._wait = 2 * round_

    @property
    def nodes(self) -> list[NodeId]:
        return list(self._last_received)

    def receive(self, node: NodeId, now: Time) -> None:
        if node not in self._last_received:
            if len(self._last_received) >= MOST_HOLDERS:
                return
            self._under_way = max(0, self._under_way - 1)
        self._last_received[node] = now

    def asks(self) -> bool:
        """Is it time to ask?"""
        self._round += 1
        return self._round % ASKS_EVERY == 0

    def missing(self, size: int, now: Time) -> int:
        """Replicas to cast again; those under way have two rounds to report."""
        since = now - self._patience
        self._last_received = {node: t for node, t in self._last_received.items() if t >= since}
        if now - self._cast > self._wait:
            self._under_way = 0
        lacking = size - len(self._last_received) - self._under_way
        if lacking > 0:
            self._under_way += lacking
            self._cast = now
        return max(0, lacking)

    def clear(self) -> None:
        self._last_received.clear()
        self._under_way = 0
