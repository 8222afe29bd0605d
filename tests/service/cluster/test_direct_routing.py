"""Direct messages in simulated clusters: heard once, by the right client, wherever it goes."""

from typing import Any

import pytest

from nearcast.errors import InvariantError
from nearcast.service.cluster.direct_routing import DirectRouting
from nearcast.service.cluster.handover import Handover
from nearcast.service.connections import Connections
from nearcast.sim.cluster.world import ClusterWorld
from support.cluster_scenarios import (
    BORDERS,
    cluster_scenario,
    handover_scenario,
    mixed_scenario,
    run_cluster,
)


def heard(world: ClusterWorld) -> tuple[int, int]:
    """Direct messages that were sent, and those that were heard."""
    assert world.checker is not None
    sent = world.checker.direct.messages.values()
    return len(sent), sum(one.heard for one in sent)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_every_message_is_heard_once_while_clients_are_handed_over(servers: int) -> None:
    world, _ = run_cluster(cluster_scenario(servers, servers=servers, direct=0.5))
    sent, received = heard(world)
    assert sent == received > 50
    assert servers == 1 or sum(client.handovers for client in world.clients) > 0


def test_the_trace_has_each_message_with_who_should_receive_it_and_who_did() -> None:
    world, memory = run_cluster(cluster_scenario(1, servers=4, direct=0.5), "all")
    sent, heard_by = memory.table("direct_messages"), memory.table("direct_deliveries")
    due = {(row["publication"], row["to"]) for row in sent.to_pylist()}
    got = [(row["publication"], row["node"]) for row in heard_by.to_pylist()]
    assert len(got) == len(set(got)) == heard(world)[1]
    assert set(got) == due


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_are_late_find_who_has_gone_on(seed: int) -> None:
    world, _ = run_cluster(cluster_scenario(seed, **BORDERS, direct=1.0, servers=4))
    sent, received = heard(world)
    assert sent == received > 100
    assert sum(client.handovers for client in world.clients) > 5


@pytest.mark.parametrize("seed", range(6))
def test_only_faults_explain_what_is_not_heard(seed: int) -> None:
    world, _ = run_cluster(mixed_scenario(seed, direct=0.5))
    assert heard(world)[1] > 0


@pytest.mark.parametrize("seed", range(2))
def test_faults_while_clients_are_handed_over(seed: int) -> None:
    scenario = handover_scenario(seed)
    scenario.settings["direct"] = 0.5
    run_cluster(scenario)


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        (Handover, "forward_direct"),
        (Connections, "deliver_direct"),
        (DirectRouting, "_deliver"),
    ],
)
def test_a_message_that_is_not_delivered_is_noticed(
    what: type, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: Any) -> Any:
        return 0 if broken == "_deliver" else []

    monkeypatch.setattr(what, broken, nobody)
    with pytest.raises(InvariantError, match="no fault explains it"):
        for seed in range(3):
            run_cluster(cluster_scenario(seed, **BORDERS, direct=1.0, servers=4))
