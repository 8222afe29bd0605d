"""Scenarios of a simulated cluster: calm ones, and ones with faults of all kinds, by a seed."""

from typing import Any

from nearcast.scenario import Scenario, stream
from nearcast.sim.cluster.world import ClusterWorld
from nearcast.trace.recorder import Level, Recorder
from nearcast.trace.sinks import MemoryTrace

# Small and busy: clients walk fast, across borders, and hear several others.
WALKERS: dict[str, Any] = {
    "latency_ms": 4, "jitter_ms": 3, "flush_ms": 5, "size": 300, "speed": 30, "rate": 4,
    "radius": 60,
}  # fmt: skip
# Clients walk across borders all the time, and messages have very different delays.
BORDERS: dict[str, Any] = {
    "nodes": 10, "seconds": 8, "slow": 0.2, "speed": 60, "latency_ms": 2, "jitter_ms": 40,
    "rate": 8, "size": 200,
}  # fmt: skip
# Each fault alone is so frequent that a run of some seconds has several.
FAULTS: dict[str, float] = {
    "crash": 0.06, "partition": 0.15, "cut": 0.2, "disconnect": 0.05, "client_cut": 0.05,
    "link_break": 0.3, "halt": 0.1, "slow_reader": 0.05, "join": 0.2, "leave": 0.04, "slow": 0.03,
}  # fmt: skip


def cluster_scenario(seed: int, nodes: int = 12, seconds: float = 6.0, **settings: Any) -> Scenario:
    return Scenario(
        protocol="cluster", workload="waypoint", nodes=nodes, seconds=seconds, seed=seed,
        settings={**WALKERS, **settings},
    )  # fmt: skip


def mixed_scenario(seed: int, **settings_then: Any) -> Scenario:
    """Some of all faults, with numbers that the seed determines. `settings_then`: of a seed that
    was found before there were others."""
    rng = stream(seed, "mixed faults")
    chosen = {name: most for name, most in FAULTS.items() if rng.random() < 0.4}
    settings: dict[str, Any] = {
        name: round(most * rng.random(), 3) for name, most in chosen.items()
    }
    settings["servers"] = rng.randint(2, 5)
    settings["skew_ms"] = rng.choice((0, 0, 20, 100))
    settings["motion"] = rng.choice(("line", "line", "path", "steps"))
    settings["cut_s"], settings["halt_s"] = rng.choice((0.5, 2.0, 6.0)), rng.choice((0.3, 1.0, 3.0))
    settings["restart_s"] = rng.choice((0.2, 1.0, 3.0))
    settings["watch"] = 0.5
    later = stream(seed, "later settings")
    settings["redial_s"], settings["withdraw"] = later.choice((0, 0.5, 2)), later.choice((0, 0.1))
    # States that outlive their clients, who come and go.
    if stream(seed, "ttl").random() < 0.4:
        settings |= {"ttl_s": 1000, "retain": 0.5, "churn_rate": 1}
        settings["churn_by"] = stream(seed, "churn").choice(("leave", "crash"))
    settings |= settings_then
    return cluster_scenario(seed, rng.randint(6, 14), rng.randint(4, 8), **settings)


def handover_scenario(seed: int) -> Scenario:
    """Servers stand still and links fail, most of all while clients are handed over."""
    return cluster_scenario(
        seed, 6, 8, servers=3 + seed % 2, handover_fault=0.2, halt_s=3, cut_s=3, speed=60, size=200,
        slow=0.03, recovery_s=15, watch=0.5,
    )  # fmt: skip


# A crowd comes, so that two servers that stand by are called in; it leaves, and they leave as well.
CROWDS: dict[str, Any] = {
    "servers": 3, "standbys": 2, "capacity": 10, "high_s": 2, "low_s": 6, "size": 200, "speed": 10,
    "rate": 1, "flush_ms": 20, "flash_at": 2, "flash_nodes": 15, "flash_s": 15, "flash_every": 45,
}  # fmt: skip


def standby_scenario(seed: int) -> Scenario:
    """Some servers stand by; a crowd comes and leaves, with some of all faults or none."""
    rng = stream(seed, "standbys")
    often = rng.choice((0.0, 0.3, 0.3))
    settings: dict[str, Any] = {
        name: round(most * rng.random() / 2, 3)
        for name, most in FAULTS.items()
        if rng.random() < often
    }
    if rng.random() < often:
        settings["handover_fault"] = 0.02
    servers = rng.randint(2, 5)
    settings |= {
        "servers": servers, "standbys": rng.randint(1, servers - 1),
        "capacity": rng.choice((8, 10, 15)), "skew_ms": rng.choice((0, 0, 20)),
        "motion": rng.choice(("line", "line", "path", "steps")),
        "cut_s": rng.choice((0.5, 2.0, 6.0)), "halt_s": rng.choice((0.3, 1.0, 3.0)),
        "restart_s": rng.choice((0.2, 1.0, 3.0)), "flash_nodes": rng.randint(10, 20),
        "flash_every": 0, "watch": 0.5,
    }  # fmt: skip
    return cluster_scenario(seed, rng.randint(2, 4), 32, **{**CROWDS, **settings})


def run_cluster(scenario: Scenario, level: Level = "none") -> tuple[ClusterWorld, MemoryTrace]:
    """Run it with all checks."""
    memory = MemoryTrace()
    world = ClusterWorld(scenario, lambda _: Recorder(memory, level))
    world.run()
    world.recorder.close()
    return world, memory
