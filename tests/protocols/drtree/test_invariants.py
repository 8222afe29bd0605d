"""The invariants of a DR-tree: the legal state returns in time, chains are always consistent."""

import pytest

from nearcast.errors import InvariantError
from nearcast.protocols.drtree.invariants import ConsistentChains, LegalTree
from nearcast.sim.checkers import InvariantChecker
from nearcast.space.motion import SECOND
from support.drtree_worlds import grown


def test_a_tree_that_heals_in_time_is_fine() -> None:
    grove = grown(30, check_ms=1000.0)
    invariants = [LegalTree(grove.simulation.now + 25 * SECOND), ConsistentChains()]
    grove.simulation.checkers = [InvariantChecker(grove.simulation.nodes, invariants, SECOND)]
    for node in range(9):
        grove.simulation.crash(node)
    grove.pass_periods(40)
    assert grove.faults() == []


def test_a_tree_that_stays_wrong_breaks_the_run() -> None:
    grove = grown(30, check_ms=1000.0)
    checker = InvariantChecker(grove.simulation.nodes, [LegalTree(2 * SECOND)], SECOND)
    grove.pass_periods(1)
    checker.passed(grove.simulation.now)
    for node in range(9):
        grove.simulation.crash(node)
    checker.passed(grove.simulation.now + SECOND)
    with pytest.raises(InvariantError, match="the tree is not legal since"):
        checker.passed(grove.simulation.now + 9 * SECOND)


def test_a_chain_that_does_not_fit_together_is_found() -> None:
    grove = grown(30, check_ms=1000.0)
    checker = InvariantChecker(grove.simulation.nodes, [ConsistentChains()])
    checker.passed(grove.simulation.now)
    owner = next(member for member in grove.members().values() if member.top)
    del owner.levels[1].children[owner.address]
    with pytest.raises(InvariantError, match="lacks its owner's own node"):
        checker.passed(grove.simulation.now)
