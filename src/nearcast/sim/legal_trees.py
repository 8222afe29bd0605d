"""Watching a DR-tree from outside: is it in its legal state, and for how long was it not?

A tree that is being joined, left or repaired is not legal for a while, and need not be. So this
checker looks now and then, and complains only when the tree has been wrong for too long.
"""

from collections.abc import Mapping

from nearcast.errors import InvariantError
from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.drtree.invariants import find_violations
from nearcast.protocols.drtree.peer import DRTreePeer
from nearcast.sim.checkers import Checker
from nearcast.space.motion import Time


class LegalTree(Checker):
    """At most `patience` passes between two looks at which the tree is as it should be."""

    def __init__(self, nodes: Mapping[NodeId, Node], patience: Time, every: Time) -> None:
        self._nodes, self._patience, self._every = nodes, patience, every
        self._looked: Time = 0
        self._legal: Time = 0

    def passed(self, now: Time) -> None:
        if now - self._looked < self._every:
            return
        self._looked = now
        peers = [node for node in self._nodes.values() if isinstance(node, DRTreePeer)]
        members = {m.address: m for peer in peers for m in peer.members.values()}
        found = find_violations(members, peers[0].parameters) if peers else []
        if not found:
            self._legal = now
        elif now - self._legal > self._patience:
            raise InvariantError(f"at {now} the tree is not legal since {self._legal}: {found[0]}")
