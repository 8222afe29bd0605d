"""Servers of a simulated cluster that stand by, with and without faults. Each run checks itself."""

import pytest

from nearcast.errors import InvariantError
from nearcast.service.cluster import scaling
from nearcast.sim.cluster.checkers import ScalingChecker
from support.cluster_scenarios import CROWDS, cluster_scenario, run_cluster, standby_scenario
from support.examples import seeds


# Of seed 2, a node forgot what it had delivered of others that it took for lost, so older
# publications that were held up on the way came after newer ones that a third node had relayed.
@seeds([0, 2, 13, 24, 40], [1, 3])
def test_servers_come_and_go_with_the_crowd_whatever_fails(seed: int) -> None:
    run_cluster(standby_scenario(seed))


def test_there_is_a_server_that_does_not_stand_by() -> None:
    with pytest.raises(ValueError, match=r"standbys \(3\) must be fewer than servers \(3\)"):
        run_cluster(cluster_scenario(1, servers=3, standbys=3))


def test_a_server_that_comes_and_goes_without_need_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leaves while the others are full, and is called in again."""
    monkeypatch.setattr(scaling, "can_carry", lambda *_: True)
    settings = {**CROWDS, "low_s": 2, "flash_s": 0, "flash_every": 0}
    monkeypatch.setattr(scaling, "choose_leaving", lambda nodes, _: max(nodes))
    monkeypatch.setattr(scaling.ScalingParameters, "low", 0.79)
    with pytest.raises(InvariantError, match="has stood down again, though no fewer than"):
        run_cluster(cluster_scenario(1, 3, 60, **settings))


def test_servers_may_come_and_go_as_often_as_the_load_does() -> None:
    checker = ScalingChecker()
    for clients, calling in ((20, True), (20, True), (2, False), (2, False), (9, True), (3, False)):
        checker.count(clients)
        assert checker.changes(calling) is None


def test_a_crowd_that_comes_while_a_server_stands_down_is_no_reason_to_complain() -> None:
    checker = ScalingChecker()
    checker.count(20)
    assert checker.changes(calling=True) is None
    checker.count(3)
    checker.count(25)
    assert checker.changes(calling=False) is None
    assert checker.changes(calling=True) is None


def test_without_clients_that_come_or_leave_nobody_does_either() -> None:
    checker = ScalingChecker()
    checker.count(20)
    assert checker.changes(calling=True) is None
    assert "has stood down again" in str(checker.changes(calling=False))
    assert "was called in again" in str(checker.changes(calling=True))
    checker.reset()  # a server has crashed
    assert checker.changes(calling=False) is None
