"""How a node gives away what it has: its clients first, then the records of its site.

A node that stops does so, and a node that the load does not need any more.
"""

from typing import TYPE_CHECKING

from nearcast.space.motion import SECOND, Time

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

# Clients leave one after the other. As long as they do, a node waits; one whose handover failed is
# offered again after `handover.REST`, which is shorter.
WITHOUT_PROGRESS: Time = 6 * SECOND
HANDING_OVER: Time = 60 * SECOND  # but not for longer than this
RESIGNING: Time = 2 * SECOND  # then for its site's records


class Departure:
    """A node that gives away its clients and records, step by step."""

    def __init__(self, now: Time, node: "ClusterNode") -> None:
        self._node = node
        self._last, self._until = now + HANDING_OVER, now + WITHOUT_PROGRESS
        self._steps = node.handover.steps
        self.resigning = False  # its clients are gone, its records go
        node.handover.hand_over_all()

    def step(self, now: Time) -> bool:
        """Take the next step, once the last one is done or has taken too long. Done?"""
        node = self._node
        if not self.resigning:
            if node.handover.steps != self._steps:
                self._steps, self._until = node.handover.steps, now + WITHOUT_PROGRESS
            late = now >= min(self._until, self._last)
            if node.handover.all_gone or not node.has_heirs or late:
                self.resigning, self._until = True, now + RESIGNING
                node.site.resign()
            return False
        gone = not node.nodes or node.site.resigned or node.site.mesh.me is None
        if not gone and now < self._until:
            return False
        # Clients may have come meanwhile.
        alone = node.handover.all_gone or not node.has_heirs
        return alone or now >= min(self._until + WITHOUT_PROGRESS, self._last)
