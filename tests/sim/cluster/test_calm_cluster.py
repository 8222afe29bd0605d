"""A simulated cluster without faults: every delivery is exact, and the trace says so."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nearcast.sim.run import simulate
from nearcast.trace.reader import digest
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.cluster_scenarios import cluster_scenario, run_cluster


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_nothing_is_missed_spurious_or_repeated(servers: int) -> None:
    world, memory = run_cluster(cluster_scenario(servers, servers=servers), "all")
    deliveries = delivered(memory.table("deliveries"))
    truth = expected(memory.table("interests"), memory.table("publications"))
    assert len(deliveries) == len(set(deliveries)) > 200
    assert set(deliveries) == truth
    assert world.checker is not None
    assert (world.checker.expected, world.checker.missed) == (len(truth), 0)
    facts = memory.table("notes").column("fact").to_pylist()
    handovers = facts.count("arrived")
    assert handovers == facts.count("departed")
    assert handovers > 3 or servers < 4, "clients that walk are handed over"


def test_clocks_that_differ_and_late_messages_change_nothing() -> None:
    world, _ = run_cluster(cluster_scenario(2, servers=4, skew_ms=100, slow=0.05))
    assert world.checker is not None
    assert world.checker.missed == 0


@pytest.mark.parametrize("motion", ["path", "steps"])
def test_any_motion_is_exact(motion: str) -> None:
    world, _ = run_cluster(cluster_scenario(3, motion=motion))
    assert world.checker is not None
    assert world.checker.missed == 0


def test_clients_may_come_and_go() -> None:
    """All that may be missed is what was on its way to one who leaves."""
    world, _ = run_cluster(cluster_scenario(4, churn_rate=2.0, churn_by="leave"))
    assert world.checker is not None
    assert world.checker.missed < 10 < 100 < world.checker.expected


def test_the_same_seed_leaves_the_same_trace() -> None:
    faults = {"crash": 0.1, "halt": 0.1, "disconnect": 0.1, "cut": 0.2, "slow": 0.03, "skew_ms": 50}
    digests = [
        digest(run_cluster(cluster_scenario(seed, seconds=4, **faults), "all")[1])
        for seed in (7, 7, 8)
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("record", ["all", "sums", "brief"])
def test_the_trace_of_a_cluster_is_valid(tmp_path: Path, record: str) -> None:
    scenario = replace(cluster_scenario(5, seconds=3, disconnect=0.1), record=record)
    summary = simulate(scenario, tmp_path / "trace", check=True)
    assert summary.messages > 100
    assert record != "all" or summary.messages == summary.rows["messages"]
    assert validate(tmp_path / "trace").problems == ()
