"""Without faults brokers deliver exactly what is wanted, against brute force."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.matching import MATCHERS
from nearcast.model.commands import Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.protocols.brokers.interests import EVERYTHING
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.broker_network import BrokerNetwork
from support.brute_force import Deliveries, delivered, expected
from support.examples import examples
from support.publisher_order import PublisherOrder
from support.strategies import ATTRIBUTES, FORMULAS, TIMES, regions, shapes, subscriptions

ENTITIES = (1, 2, 3, 4)
# Engines that are exact at every moment; those that trade freshness for speed are not asked here.
EXACT = [name for name in ("scan", "lazy", "swept", "grid") if name in MATCHERS]

# Wide, and mostly on one channel, so that publications have many receivers.
WIDE = st.builds(disc, st.floats(-9, 9), st.floats(-9, 9), st.floats(0, 60))
CHANNEL = st.sampled_from(["", "", "", "chat"])
VARIED = "weight <= limit + t"


def commands(dims: int) -> st.SearchStrategy[Subscribe | Move | Tune | Unsubscribe | Publish]:
    return st.one_of(
        st.builds(
            lambda s, channel: Subscribe(s.id % 2, s.region, s.filter, channel, s.echo),
            subscriptions(dims),
            CHANNEL,
        ),
        st.builds(
            lambda text, limit: Subscribe(0, text, VARIED, variables={"limit": limit}),
            st.sampled_from(FORMULAS),
            st.floats(0, 9),
        ),
        st.builds(Tune, st.just(0), st.fixed_dictionaries({"limit": st.floats(0, 9)})),
        st.builds(Move, st.integers(0, 1), regions(dims)),
        st.builds(Unsubscribe, st.integers(0, 1)),
        *[st.builds(Publish, st.just(0), WIDE | shapes(dims), CHANNEL, ATTRIBUTES)] * 4,
    )


LIVES = st.integers(2, 3).flatmap(
    lambda dims: st.lists(
        st.tuples(TIMES, st.sampled_from(ENTITIES), commands(dims)), min_size=8, max_size=25
    )
)


@examples(40)
@given(
    lives=LIVES,
    topology=st.sampled_from(["line", "star", "tree"]),
    brokers=st.integers(1, 5),
    covering=st.sampled_from(["off", "lazy", "active"]),
    stamp=st.sampled_from(["travels", "arrival"]),
    moment=st.sampled_from(["publication", "arrival"]),
    evolving=st.sampled_from(EXACT[:2]),
)
def test_whatever_is_commanded_everyone_receives_what_they_want_and_nothing_else(
    lives: list[tuple[int, int, Subscribe | Move | Tune | Unsubscribe | Publish]],
    **chosen: object,
) -> None:
    net = BrokerNetwork(ENTITIES, heartbeat_ms=0.0, **chosen)
    ended: set[int] = set()
    for number, (pause, node, command) in enumerate(lives):
        net.run(pause // 10)
        if isinstance(command, Publish):
            command = replace(command, publication=number)
        else:
            mine = node * 10 + command.subscription
            if mine in ended:  # names are never used again
                continue
            if isinstance(command, Unsubscribe):
                ended.add(mine)
            command = replace(command, subscription=mine)
        net.obey(node, command)
    assert sorted(net.delivered()) == sorted(net.should())


# Whole worlds.


def run(
    workload: str, settings: dict[str, object], seconds: float = 3.0
) -> tuple[MemoryTrace, list[tuple[int, int]], Deliveries]:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="brokers", workload=workload, nodes=20, seconds=seconds, settings=settings
    )
    checkers = (DeliveredOnce(), PublisherOrder(), NotBeforePublished())
    world = SimulatedWorld(scenario, lambda _: Recorder(memory), checkers)
    world.run()
    world.recorder.close()
    received = delivered(memory.table("deliveries"))
    return memory, received, expected(memory.table("interests"), memory.table("publications"))


WORLDS: list[tuple[str, dict[str, object]]] = [
    ("waypoint", {"size": 200.0, "motion": "line"}),
    ("waypoint", {"size": 200.0, "motion": "path", "dims": 3, "speed": 40.0}),
    ("waypoint", {"size": 200.0, "motion": "steps"}),
    ("hotspots", {"hotspots": "burning", "rate": 2.0, "covering": "active"}),
    ("mammoth", {"size": 60.0, "topology": "line"}),
    ("trading", {"symbols": 3, "topology": "star"}),
    ("trading", {"symbols": 3, "by": "channel", "covering": "lazy"}),
]


@pytest.mark.parametrize(
    ("workload", "chosen", "evolving"),
    [(*world, EXACT[k % len(EXACT)]) for k, world in enumerate(WORLDS)],
)
def test_without_latency_every_workload_is_delivered_exactly(
    workload: str, chosen: dict[str, object], evolving: str
) -> None:
    _, received, should = run(workload, {"latency_ms": 0.0, "evolving": evolving, **chosen})
    assert len(should) > 20, "a world without deliveries proves nothing"
    assert sorted(received) == sorted(should)


@pytest.mark.parametrize(("workload", "chosen"), WORLDS)
def test_with_latency_errors_occur_only_while_a_change_is_under_way(
    workload: str, chosen: dict[str, object]
) -> None:
    """Knowledge is late by the way that it takes, and by nothing else."""
    memory, received, should = run(workload, {"evolving": EXACT[-1], "brokers": 4, **chosen})
    changes: dict[int, list[int]] = {}
    for row in memory.table("interests").to_pylist():
        changes.setdefault(row["subscription"], []).append(row["t"])
    made = {row["publication"]: row["t"] for row in memory.table("publications").to_pylist()}
    longest = 5 * 50_000  # a client, at most four brokers, a client
    assert len(should & set(received)) > 0.7 * len(should)
    assert len(received) == len(set(received))
    for publication, subscription in should ^ set(received):
        moment = made[publication]
        assert any(abs(t - moment) <= longest for t in changes[subscription])


def test_interests_of_the_beginning_are_known_everywhere_when_the_world_begins() -> None:
    chosen = {"hotspots": "burning", "rate": 5.0, "topology": "line"}
    _, received, should = run("hotspots", chosen)
    assert len(should) > 20
    assert sorted(received) == sorted(should)


def test_one_copy_of_a_publication_at_most_crosses_a_link_and_none_comes_back() -> None:
    memory, received, _ = run("waypoint", {"size": 150.0, "topology": "tree", "brokers": 7})
    crossed: Counter[tuple[int, int, int]] = Counter()
    for row in memory.table("messages").to_pylist():
        if row["kind"] == "brokers.Pass":
            low, high = sorted((row["node"], row["to"]))
            crossed[low, high, row["publication"]] += 1
    assert len(received) > 100
    assert len(crossed) > 100
    assert set(crossed.values()) == {1}, "in neither direction a second time"
    links = {(low - FIRST_SERVER, high - FIRST_SERVER) for low, high, _ in crossed}
    assert links <= {(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)}


def test_hops_count_the_messages_between_publisher_and_subscriber() -> None:
    net = BrokerNetwork((0, 3), brokers=4, topology="line")
    net.obey(0, Subscribe(7, EVERYTHING, echo=True))
    net.obey(3, Publish(1, disc(0, 0, 1)))
    net.obey(0, Publish(2, disc(0, 0, 1)))
    hops = {row["publication"]: row["hops"] for row in net.rows("deliveries")}
    assert hops == {1: 5, 2: 2}  # Post, three times Pass, Notify; Post, Notify


# Comings and goings.


@pytest.mark.parametrize("churn", [
    {"join_rate": 20.0},
    {"churn_rate": 5.0},
    {"churn_rate": 5.0, "churn_by": "crash", "heartbeat_ms": 200.0},
    {"duplicate": 0.3, "jitter_ms": 10.0},
    {"loss": 0.05, "heartbeat_ms": 200.0},
    {"crash": 0.1, "restart_s": 0.5, "heartbeat_ms": 200.0},
    {"partition": 0.5, "partition_s": 1.0, "heartbeat_ms": 200.0},
])  # fmt: skip
def test_churn_and_bad_networks_lose_deliveries_but_never_repeat_them(
    churn: dict[str, object],
) -> None:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="brokers", workload="waypoint", nodes=30, seconds=3.0,
        settings={"size": 200.0, **churn},
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    received = delivered(memory.table("deliveries"))
    should = expected(memory.table("interests"), memory.table("publications"))
    assert len(received) == len(set(received))
    assert len(set(received) & should) > 0.5 * len(should)
    ended = {r["subscription"]: r["t"] for r in memory.table("interests").to_pylist() if r["ended"]}
    made = {row["publication"]: row["t"] for row in memory.table("publications").to_pylist()}
    assert all(made[p] < ended.get(s, 10 * SECOND**2) for p, s in received), (
        "nothing is delivered for an ended subscription"
    )
