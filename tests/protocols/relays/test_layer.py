"""Relays under BubbleStorm and VON: the same deliveries, and more where uplinks are short."""

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Leave, Move, Publish
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.relays.kernels import REDIR
from nearcast.protocols.relays.layer import UNLIMITED
from nearcast.protocols.relays.messages import MESSAGES
from nearcast.protocols.relays.options import Option
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import Deliveries, delivered, expected
from support.examples import examples
from support.message_strategies import messages
from support.peer_worlds import PeerWorld

OVERLAYS = pytest.mark.parametrize("overlay", ["bubblestorm", "von"])
INTERVAL: Time = 500_000
RESTORED = 4 * INTERVAL  # misses + 1 intervals, as `relays` states it


class Outcome(NamedTuple):
    delivered: Deliveries
    should: Deliveries
    overloaded: int  # peers, of the second half of the run
    facts: Counter[str]


def play(
    overlay: str, workload: str, nodes: int, seconds: float, seed: int, **more: Any
) -> Outcome:
    memory, loads = MemoryTrace(), dict[int, list[float]]()
    scenario = Scenario(
        protocol=overlay, workload=workload, nodes=nodes, seconds=seconds, seed=seed,
        settings={"sample_ms": 0, **more},
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )

    def record_load(done: Time, whole: Time) -> None:
        if 2 * done >= whole:
            for peer in world.simulation.nodes.values():
                relays = getattr(peer, "relays", None)
                if relays is not None:
                    loads.setdefault(peer.id, []).append(relays.utilisation)

    world.run(record_load)
    world.recorder.close()
    return Outcome(
        set(delivered(memory.table("deliveries"))),
        expected(memory.table("interests"), memory.table("publications")),
        sum(sum(load) / len(load) > 1 for load in loads.values()),
        Counter(memory.table("notes").column("fact").to_pylist()),
    )


# Calm.


@pytest.mark.parametrize(
    ("overlay", "workload", "more"),
    [
        ("bubblestorm", "planetpi4", {"rate": 4.0, "radius": 400.0, "lambda": 2.0}),
        ("bubblestorm", "hotspots", {"rate": 4.0, "lambda": 3.0}),
        ("von", "waypoint", {"radius": 250.0}),
        ("von", "hotspots", {"rate": 4.0}),
        ("von", "waypoint", {"radius": 250.0, "cast": "vorocast"}),
    ],
)
def test_on_uplinks_without_limit_the_same_is_delivered_with_relays_and_without(
    overlay: str, workload: str, more: dict[str, Any]
) -> None:
    off = play(overlay, workload, 14, 3.0, 2, relays="off", **more)
    on = play(overlay, workload, 14, 3.0, 2, relays="on", **more)
    assert on.delivered == off.delivered
    assert len(on.delivered) > (15 if workload == "hotspots" else 100)
    assert on.delivered <= on.should
    if overlay == "von" and "cast" not in more:
        assert on.delivered == on.should
    assert on.facts["withheld"] == on.overloaded == 0
    assert on.facts["uplink"] == 14
    assert off.facts["uplink"] == 0


@OVERLAYS
def test_without_relays_and_without_a_limit_there_is_no_relay_layer(overlay: str) -> None:
    world = PeerWorld(overlay)
    peer = world.join(1, disc(0, 0, 10))
    assert peer.relays is None
    with_relays = PeerWorld(overlay, relays="on").join(1, disc(0, 0, 10))
    assert with_relays.relays.uplink.capacity == UNLIMITED
    assert with_relays.relays.optimises
    limited = PeerWorld(overlay, uplink_min=80.0, uplink_max=80.0).join(1, disc(0, 0, 10))
    assert limited.relays.uplink.capacity == pytest.approx(10_000)
    assert not limited.relays.optimises
    drawn = [
        PeerWorld(overlay, uplink_min=10.0, uplink_max=1000.0).join(n).relays.uplink.capacity
        for n in range(200)
    ]
    assert 1250 <= min(drawn) < 2000 and 80_000 < max(drawn) <= 125_000
    assert 70 < sum(capacity < 12_500 for capacity in drawn) < 130, "the logarithm is uniform"


@OVERLAYS
def test_invalid_settings_are_refused_by_name(overlay: str) -> None:
    for name, more in (
        ("relays", {"relays": "maybe"}), ("uplink_max", {"uplink_min": 5.0}),
        ("uplink_min", {"uplink_max": 5.0}), ("uplink_min", {"uplink_min": 9.0, "uplink_max": 5.0}),
        ("uplink_max", {"uplink_max": float("nan")}), ("interval_ms", {"interval_ms": 1.0}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{name} must"):
            PROTOCOLS[overlay].parameters(**more)


# Short uplinks, which together can carry it all. Where they cannot, relays even out the load: less
# is missed, but hardly fewer peers are overloaded.

GAME = {"uplink_min": 30.0, "uplink_max": 400.0, "lambda": 2.0, "interval_ms": 250.0}
WALK = {"uplink_min": 10.0, "uplink_max": 300.0, "rate": 5.0, "interval_ms": 200.0}


@pytest.mark.parametrize(
    ("overlay", "workload", "seconds", "seed", "more"),
    [("bubblestorm", "planetpi4", 6.0, 3, GAME), ("von", "waypoint", 5.0, 2, WALK)],
)
def test_relays_halve_the_overloaded_and_miss_no_more(
    overlay: str, workload: str, seconds: float, seed: int, more: dict[str, Any]
) -> None:
    off, on = (
        play(overlay, workload, 20, seconds, seed, relays=relays, radius=400.0, **more)
        for relays in ("off", "on")
    )
    assert off.should == on.should
    assert off.delivered <= off.should
    assert on.delivered <= on.should
    assert off.overloaded >= 0.35 * 20
    assert on.overloaded <= off.overloaded / 2
    assert len(on.delivered) >= len(off.delivered)
    assert off.facts["redirected"] == 0
    assert on.facts["redirected"] > 20
    assert on.facts["withheld"] < off.facts["withheld"] / 2


# Forwarders that go.

PUBLISHER, FORWARDER, SUBSCRIBER = 0, 1, 2


class Circle:
    """Four peers who all see each other; what the first publishes goes to the last by another."""

    def __init__(self, overlay: str) -> None:
        quick = (
            {"lambda": 3.0, "gossip_s": 1.0, "linger_s": 0.5} if overlay == "bubblestorm" else {}
        )
        self.world = PeerWorld(overlay, relays="on", **quick)
        self.published: list[tuple[Time, int]] = []
        for node in range(4):
            self.world.join(node, disc(5 * node, 0, 100))
        self.world.pass_seconds(5)
        simulation = self.world.simulation
        for t in range(simulation.now + 1, simulation.now + 12 * SECOND, SECOND // 10):
            simulation.at(t, self.publish)
        self.world.pass_seconds(2)
        publisher = simulation.nodes[PUBLISHER]
        flow = PUBLISHER, SUBSCRIBER
        publisher.now = simulation.now
        publisher.relays._request(Option(REDIR, flow, FORWARDER, 1e9, 1e9), simulation.now)
        simulation._apply(publisher, publisher.out.drain())
        self.world.pass_seconds(2)
        assert self.next_hop() == FORWARDER

    def next_hop(self) -> int:
        publisher: Any = self.world.simulation.nodes[PUBLISHER]
        hop: int = publisher.relays.table.entries[PUBLISHER, SUBSCRIBER].next
        return hop

    def publish(self) -> None:
        for node in (PUBLISHER, FORWARDER, SUBSCRIBER, 3):
            if node in self.world.simulation.nodes:
                number = 10 * len(self.published) + node
                self.world.obey(node, Publish(number, point(5 * node, 0)))
        self.published.append((self.world.simulation.now, 10 * len(self.published) + PUBLISHER))

    def missed(self, since: Time, until: Time) -> list[int]:
        """What the first has published and the last has not received."""
        self.world.simulation.recorder.flush()
        received = {
            pair[0]
            for pair in delivered(self.world.memory.table("deliveries"))
            if pair[1] // 1000 == SUBSCRIBER
        }
        published = [number for t, number in self.published if since < t < until]
        assert len(published) >= 5
        return [number for number in published if number not in received]


@OVERLAYS
def test_when_a_forwarder_crashes_its_flows_are_restored_in_time(overlay: str) -> None:
    circle = Circle(overlay)
    simulation = circle.world.simulation
    simulation.crash(FORWARDER)
    crashed = simulation.now
    simulation.run(crashed + RESTORED)
    assert circle.next_hop() == SUBSCRIBER
    simulation.run(crashed + RESTORED + 3 * SECOND)
    assert circle.missed(crashed, crashed + SECOND), "it went by the forwarder"
    assert circle.missed(crashed + RESTORED, simulation.now - SECOND) == []


@OVERLAYS
def test_a_forwarder_that_leaves_gives_its_flows_back(overlay: str) -> None:
    circle = Circle(overlay)
    simulation = circle.world.simulation
    left = simulation.now
    circle.world.obey(FORWARDER, Leave())
    simulation.run(left + SECOND // 10)
    assert circle.next_hop() == SUBSCRIBER
    simulation.run(left + 3 * SECOND)
    assert circle.missed(left + SECOND // 10, simulation.now - SECOND) == []


@OVERLAYS
def test_a_forwarder_that_walks_away_gives_its_flows_back_and_nothing_is_lost(
    overlay: str,
) -> None:
    circle = Circle(overlay)
    simulation = circle.world.simulation
    went = simulation.now
    circle.world.obey(FORWARDER, Move(1000 * FORWARDER, Moving(disc(5000, 0, 10))))
    simulation.run(went + 6 * SECOND)
    assert circle.next_hop() == SUBSCRIBER
    assert circle.missed(went - SECOND, simulation.now - SECOND) == []


# Nonsense.


@OVERLAYS
@pytest.mark.parametrize("relays", ["on", "off"])
@given(
    st.lists(
        st.tuples(st.sampled_from((1, 2, 3, 9)), st.one_of(*map(messages, MESSAGES))), max_size=8
    )
)
@examples(6)
def test_no_message_of_the_relays_breaks_a_peer(
    overlay: str, relays: str, messages: list[tuple[int, Any]]
) -> None:
    world = PeerWorld(overlay, relays=relays)
    for node in (0, 1, 2):
        world.join(node, disc(node, 0, 50))
    world.pass_seconds(1.5)
    simulation = world.simulation
    for number, (sender, message) in enumerate(messages):
        effects = simulation.nodes[0].receive(simulation.now, sender, message)
        assert relays == "on" or effects == []
        simulation._apply(simulation.nodes[0], effects)
        world.obey(0, Publish(number, point(0, 0)))
        world.pass_seconds(0.3)
    world.obey(0, Leave())
