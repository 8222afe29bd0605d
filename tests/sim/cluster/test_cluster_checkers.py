"""The checkers of a simulated cluster find what is wrong: each is shown a cluster with that bug."""

from typing import Any

import pytest

from nearcast.errors import InvariantError
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.routing import Routing
from nearcast.service.effects import DeliverFlush
from nearcast.sim.cluster.server_host import ServerHost
from support.cluster_scenarios import cluster_scenario, run_cluster


def test_a_failure_names_its_seed_and_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServerHost, "_on_deliver_flush", lambda *_: None)
    with pytest.raises(InvariantError) as failed:
        run_cluster(cluster_scenario(3))
    line = str(failed.value)
    assert "\n" not in line
    assert "deliveries are missing and no fault explains it" in line
    assert "(seed 3)" in line
    assert "nearcast simulate cluster --workload waypoint --nodes 12 --seconds 6 --seed 3" in line


def test_what_is_sent_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = ServerHost._on_deliver_flush

    def twice(self: ServerHost, effect: DeliverFlush) -> None:
        deliver(self, effect)
        deliver(self, effect)

    monkeypatch.setattr(ServerHost, "_on_deliver_flush", twice)
    with pytest.raises(InvariantError, match="twice"):
        run_cluster(cluster_scenario(1))


def test_what_is_delivered_in_vain_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ClusterRealm, "_match_versions",
        lambda _, __, found: (found.publication, found.subscription),
    )  # fmt: skip
    with pytest.raises(InvariantError, match=r"nobody asked for|, after \d+"):
        for seed in range(5):
            run_cluster(cluster_scenario(seed, motion="steps", slow=0.2))


def test_publications_that_are_not_routed_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Routing, "_send_outgoing", lambda *_: None)
    with pytest.raises(InvariantError, match="are missing"):
        run_cluster(cluster_scenario(1, retain=0))


def test_an_internal_error_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Routing, "route_flush", broken)
    with pytest.raises(InvariantError, match="could not be passed on"):
        run_cluster(cluster_scenario(1))
