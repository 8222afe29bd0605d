"""The long forms of what the suite checks briefly: `make soak`. Every run prints its seed first."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from nearcast.matching import EXACT, MATCHERS
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.world import SimulatedWorld
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected
from support.matcher_histories import histories, play

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("name", [name for name in EXACT if name != "scan"])
def test_engines_agree_over_many_thousand_histories(name: str) -> None:
    @settings(max_examples=20_000, suppress_health_check=list(HealthCheck))
    @given(history=histories())
    def agree(history: list[tuple[str, object]]) -> None:
        play(MATCHERS[name](), history)

    agree()


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_delivered_twice_or_too_early_under_any_faults(seed: int) -> None:
    rng = Random(seed)
    chances = ("loss", "duplicate", "reorder", "crash", "partition", "slow")
    drawn = {name: round(rng.choice([0.0, rng.random() ** 3]), 4) for name in chances}
    workload = rng.choice(["waypoint", "hotspots", "clustering"])
    more = {"churn_rate": rng.choice([0.0, 5.0]), "jitter_ms": rng.choice([0.0, 40.0])}
    print(f"seed {seed}: {workload} {drawn} {more}")  # noqa: T201
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="client-server", workload=workload, nodes=60, seconds=10.0, seed=seed,
        settings={**drawn, **more},
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    received = delivered(memory.table("deliveries"))
    assert len(received) == len(set(received))
    if not any(drawn.values()) and not any(more.values()):
        assert set(received) == expected(memory.table("interests"), memory.table("publications"))
