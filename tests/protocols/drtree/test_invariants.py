"""The invariants of a DR-tree: the legal state returns in time, chains are always consistent."""

from collections.abc import Mapping

import pytest

from nearcast.errors import InvariantError
from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.drtree.invariants import ConsistentChains, find_violations, members_of
from nearcast.protocols.drtree.peer import DRTreePeer
from nearcast.protocols.overlay import Invariant
from nearcast.sim.checkers import InvariantChecker
from nearcast.space.motion import SECOND, Time
from support.drtree_worlds import settled_tree


class LegalTree:
    """The tree is never outside its legal state for longer than `patience`."""

    def __init__(self, patience: Time) -> None:
        self._patience = patience
        self._legal: Time = 0

    def violations(self, nodes: Mapping[NodeId, Node], now: Time) -> list[str]:
        parameters = [node.parameters for node in nodes.values() if isinstance(node, DRTreePeer)]
        found = find_violations(members_of(nodes), parameters[0]) if parameters else []
        if not found:
            self._legal = now
        elif now - self._legal > self._patience:
            return [f"the tree is not legal since {self._legal}: {found[0]}"]
        return []


def test_a_tree_that_heals_in_time_is_fine() -> None:
    world = settled_tree(30, check_ms=1000.0)
    invariants: list[Invariant] = [
        LegalTree(world.simulation.now + 25 * SECOND),
        ConsistentChains(),
    ]
    world.simulation.checkers = [InvariantChecker(world.simulation.nodes, invariants, SECOND)]
    for node in range(9):
        world.simulation.crash(node)
    world.pass_periods(40)
    assert world.faults() == []


def test_a_tree_that_stays_wrong_breaks_the_run() -> None:
    world = settled_tree(30, check_ms=1000.0)
    checker = InvariantChecker(world.simulation.nodes, [LegalTree(2 * SECOND)], SECOND)
    world.pass_periods(1)
    checker.passed(world.simulation.now)
    for node in range(9):
        world.simulation.crash(node)
    checker.passed(world.simulation.now + SECOND)
    with pytest.raises(InvariantError, match="the tree is not legal since"):
        checker.passed(world.simulation.now + 9 * SECOND)


def test_a_chain_that_does_not_fit_together_is_found() -> None:
    world = settled_tree(30, check_ms=1000.0)
    checker = InvariantChecker(world.simulation.nodes, [ConsistentChains()])
    checker.passed(world.simulation.now)
    owner = next(member for member in world.members().values() if member.top)
    del owner.levels[1].children[owner.address]
    with pytest.raises(InvariantError, match="lacks its owner's own node"):
        checker.passed(world.simulation.now)
