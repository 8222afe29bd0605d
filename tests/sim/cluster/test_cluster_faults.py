"""Every fault of a simulated cluster, alone and together. Each run checks itself (`checkers`)."""

import pytest

from support.cluster_scenarios import (
    BORDERS,
    FAULTS,
    cluster_scenario,
    mixed_scenario,
    run_cluster,
)
from support.examples import seeds


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_happens_and_the_cluster_recovers(fault: str) -> None:
    rates = {"crash": 0.15, "disconnect": 0.1, "halt": 0.2, "leave": 0.1, "join": 0.5}
    rate = rates.get(fault, 2 * FAULTS[fault])
    world, memory = run_cluster(cluster_scenario(2, **{fault: rate}), "all")
    facts = set(memory.table("notes").column("fact").to_pylist())
    happened = {
        "crash": "crashed", "partition": "partitioned", "cut": "cut off", "leave": "leaves",
        "disconnect": "disconnected", "client_cut": "isolated", "link_break": "link broken",
        "halt": "halted", "slow_reader": "stopped reading", "join": "joined",
    }  # fmt: skip
    assert fault == "slow" or happened[fault] in facts
    assert world.checker is not None
    assert world.checker.expected > 100


@seeds(range(6), range(6, 20))
def test_mixed_faults(seed: int) -> None:
    run_cluster(mixed_scenario(seed))


# What is sent until a broken link is made again is lost, and states are withdrawn.
UNLINKED = {"retain": 1, "link_break": 0.5, "redial_s": 1, "watch": 0.5, "withdraw": 0.2}
# Seeds that once failed, and what was wrong.
FOUND = {
    "a node whose contact crashed while its site joined had no site": (
        4, {"seconds": 8, "crash": 0.1},
    ),
    "records of a home that crashed before their owner joined were never dropped": (
        2, {"seconds": 8, "crash": 0.1},
    ),
    "two nodes that left at once handed their clients to each other": (
        2, {"seconds": 8, "leave": 0.1},
    ),
    "nodes that gave each other up in a partition stayed apart": (
        6, {"seconds": 20, "partition": 0.3, "cut_s": 8, "servers": 4},
    ),
    "a site did not use replicas that it got while it took their home for dead": (
        5, {"seconds": 20, "partition": 0.3, "cut_s": 8, "servers": 4},
    ),
    "nobody believed a node that a client had left which had just returned there": (
        0, {**BORDERS, "retain": 1, "churn_rate": 2, "churn_by": "crash"},
    ),
    "a state that waited while its client left was known elsewhere for seconds": (
        5, {**BORDERS, "retain": 1, "churn_rate": 2, "churn_by": "leave"},
    ),
    "a late publication of a client that had left brought its state back": (
        14, {**BORDERS, "retain": 1, "churn_rate": 2, "churn_by": "crash"},
    ),
    "a miss of a client that crashed before its subscription was answered had no explanation": (
        13, {**BORDERS, "retain": 1, "churn_rate": 2, "churn_by": "crash"},
    ),
    "a node that lost the news of a withdrawn state knew it for ever": (8, UNLINKED),
    "a retained state overtook what its publisher had not retained before": (
        0, {**BORDERS, "retain": 1, "withdraw": 0.2},
    ),
    "a withdrawn state came back, as its client went to a node that knew it still": (5, UNLINKED),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_a_seed_has_found_stays_found(what: str) -> None:
    seed, settings = FOUND[what]
    run_cluster(cluster_scenario(seed, **settings))


# Likewise with faults of all kinds; with the settings that the scenario did not have then.
NO_TTL = {"ttl_s": 0, "retain": 0.25, "churn_rate": 0}
FIRST = {**NO_TTL, "redial_s": 0, "withdraw": 0}
MIXED_FOUND: dict[str, tuple[int, dict[str, float]]] = {
    "clients of a node that was cut off from the others, and then left, knew no other node": (
        7146, FIRST,
    ),
    "a late publication of a node that had left kept the state of a client that had moved": (
        7207, FIRST,
    ),
    "two meshes of nodes that all knew each other did not become one": (30225, FIRST),
    "what was overdue was delivered after later ones, as their publisher's node was lost": (
        11359, FIRST,
    ),
    "a publication that waited as its client came from its node, and withdrew it, was a state": (
        91024, NO_TTL,
    ),
    "a client that came to a server which had given away all others was not handed over": (
        94030, {},
    ),
    "a state that was made as its client had left was of a client that had not, by another clock": (
        95172, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED_FOUND)
def test_what_mixed_faults_have_found_stays_found(what: str) -> None:
    seed, settings_then = MIXED_FOUND[what]
    run_cluster(mixed_scenario(seed, **settings_then))
