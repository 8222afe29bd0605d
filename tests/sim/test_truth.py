"""What is wanted is delivered: every workload, against brute force from the trace's own rows."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.matching import EXACT
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.run import simulate
from nearcast.sim.world import SimulatedWorld
from nearcast.trace import reader
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.publisher_order import PublisherOrder

WORLDS: list[tuple[str, dict[str, object]]] = [
    *(("hotspots", {"hotspots": heat, "rate": 2.0}) for heat in ("cold", "warm", "hot", "burning")),
    ("hotspots", {"hotspots": "burning", "dims": 3, "spread": 10.0, "rate": 2.0}),
    *(("waypoint", {"motion": motion, "size": 300.0}) for motion in ("line", "steps", "path")),
    ("waypoint", {"motion": "path", "dims": 3, "size": 150.0, "speed": 50.0, "pause": 0.0}),
    ("clustering", {"motion": "line"}),
    ("clustering", {"motion": "steps", "speed": 100.0}),
]
CHECKERS = (DeliveredOnce(), PublisherOrder(), NotBeforePublished())


def run(workload: str, settings: dict[str, object], **more: object) -> MemoryTrace:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="client-server",
        workload=workload,
        nodes=40,
        seconds=4.0,
        settings=settings,
        **more,
    )
    checkers = (DeliveredOnce(), PublisherOrder(), NotBeforePublished())
    world = SimulatedWorld(scenario, lambda _: Recorder(memory), checkers)
    world.run()
    world.recorder.close()
    return memory


def assert_delivered_exactly(trace: MemoryTrace) -> None:
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) > 20, "a world without deliveries proves nothing"
    assert sorted(received) == sorted(should)


@pytest.mark.parametrize(("workload", "settings"), WORLDS)
def test_without_faults_everyone_receives_exactly_what_touches_their_area_once(
    workload: str, settings: dict[str, object]
) -> None:
    assert_delivered_exactly(run(workload, settings))


@pytest.mark.parametrize("matcher", EXACT)
def test_every_engine_makes_the_same_world(matcher: str) -> None:
    trace = run("waypoint", {"matcher": matcher, "size": 300.0})
    reference = run("waypoint", {"matcher": "scan", "size": 300.0})
    assert reader.digest(trace) == reader.digest(reference)


@pytest.mark.parametrize("churn", [
    {"join_rate": 20.0},
    {"churn_rate": 5.0},
    {"churn_rate": 5.0, "churn_by": "crash"},
    {"flash_at": 1.0, "flash_nodes": 30},
    {"crash_at": 2.0, "crash_share": 0.5},
])  # fmt: skip
def test_churn_loses_only_what_was_under_way(churn: dict[str, object]) -> None:
    """Who goes within two hops (100 ms) of a publication may miss it; nothing else is missed."""
    trace = run("waypoint", {"size": 300.0, **churn})
    interests, publications = trace.table("interests"), trace.table("publications")
    received, should = delivered(trace.table("deliveries")), expected(interests, publications)
    gone_at = {row["subscription"]: row["t"] for row in interests.to_pylist() if row["ended"]}
    made_at = {row["publication"]: row["t"] for row in publications.to_pylist()}
    assert len(received) == len(set(received))
    assert set(received) <= should
    for publication, subscription in should - set(received):
        assert gone_at[subscription] - made_at[publication] <= 100_000


@pytest.mark.parametrize("network", [
    {"jitter_ms": 30.0},
    {"loss": 0.05},
    {"network": "embedding"},
    {"network": "adsl"},
    {"reorder": 0.2},
    {"crash": 0.05, "restart_s": 1.0},
    {"partition": 0.5, "partition_s": 1.0},
    {"slow": 0.3},
])  # fmt: skip
def test_a_bad_network_may_lose_deliveries_but_never_repeats_them(
    network: dict[str, object],
) -> None:
    trace = MemoryTrace()
    scenario = Scenario(
        protocol="client-server", workload="waypoint", nodes=40, seconds=4.0,
        settings={"size": 300.0, "duplicate": 0.2, **network},
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(trace), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(received) == len(set(received))
    assert len(set(received) & should) > len(should) / 4


def test_a_recorded_world_is_delivered_exactly(tmp_path: Path) -> None:
    t = [k * 0.25 for k in range(16) for _ in range(12)]
    x = [10.0 * e + 3.0 * k for k in range(16) for e in range(12)]
    y = [float((e * 7 + k) % 23) for k in range(16) for e in range(12)]
    file = tmp_path / "fixes.parquet"
    pq.write_table(pa.table({"t": t, "entity": list(range(12)) * 16, "x": x, "y": y}), file)
    for motion in ("steps", "line"):
        memory = MemoryTrace()
        settings = {"file": str(file), "radius": 20.0, "motion": motion}
        scenario = Scenario(
            protocol="client-server", workload="recorded", nodes=12, seconds=4.0, settings=settings
        )
        world = SimulatedWorld(scenario, lambda _, m=memory: Recorder(m))
        world.run()
        world.recorder.close()
        assert_delivered_exactly(memory)


@pytest.mark.parametrize("record", ["all", "sampled", "sums"])
def test_a_trace_on_disk_is_found_in_order(tmp_path: Path, record: str) -> None:
    scenario = Scenario(
        protocol="client-server", workload="waypoint", nodes=40, seconds=2.0, record=record
    )
    summary = simulate(scenario, tmp_path / "trace")
    report = validate(tmp_path / "trace")
    assert report.problems == ()
    assert report.finished
    assert {name: table.rows for name, table in report.tables.items()} == summary.rows


def test_a_returned_entity_receives_nothing_of_its_earlier_session() -> None:
    settings = {"hotspots": "burning", "rate": 2.0, "crash": 0.1, "restart_s": 1.0}
    trace = run("hotspots", settings)
    ended = {
        row["subscription"]: row["t"]
        for row in trace.table("interests").to_pylist()
        if row["ended"]
    }
    made = {row["publication"]: row["t"] for row in trace.table("publications").to_pylist()}
    received = delivered(trace.table("deliveries"))
    assert len(ended) > 5
    assert [p for p, s in received if s in ended and made[p] >= ended[s]] == []


def test_a_run_with_high_latency_lets_everything_arrive() -> None:
    trace = run("waypoint", {"latency_ms": 10_000.0, "size": 300.0})
    assert_delivered_exactly(trace)
