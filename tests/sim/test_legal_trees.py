"""The checker of trees: patient while they heal, and no longer."""

import pytest

from nearcast.errors import InvariantError
from nearcast.sim.legal_trees import LegalTree
from nearcast.space.motion import SECOND
from support.drtree_worlds import grown


def test_a_tree_that_heals_in_time_is_fine() -> None:
    grove = grown(30, check_ms=1000.0)
    now = grove.simulation.now
    grove.simulation._checkers = (LegalTree(grove.simulation.nodes, now + 25 * SECOND, SECOND),)
    for node in range(9):
        grove.simulation.crash(node)
    grove.pass_periods(40)
    assert grove.faults() == []


def test_a_tree_that_stays_wrong_breaks_the_run() -> None:
    grove = grown(30, check_ms=1000.0)
    checker = LegalTree(grove.simulation.nodes, 2 * SECOND, SECOND)
    grove.pass_periods(1)
    checker.passed(grove.simulation.now)
    for node in range(9):
        grove.simulation.crash(node)
    checker.passed(grove.simulation.now + SECOND)
    with pytest.raises(InvariantError, match="the tree is not legal since"):
        checker.passed(grove.simulation.now + 9 * SECOND)
