"""Engines and brokers: what the reproduction of [Evolving] needs of them."""

import pytest

from nearcast.matching.cached import CachedMatcher
from nearcast.matching.swept import SweptMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Subscription
from nearcast.protocols.brokers.broker import REPORT_INTERVAL, Broker
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, box, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast_papers.evolving.scenarios import ENGINES, scenario


def walking(subscription: int, channel: str) -> Subscription:
    region = Moving(box(0, 0, 3, 2), (1.0, 0.0, 0.0))
    return Subscription(subscription, subscription, region, channel=channel)


def test_a_cached_version_ends_with_its_subscription_even_if_another_takes_its_place() -> None:
    here = Publication(1, 99, SECOND, point(1, 0), channel="chat")
    engine = CachedMatcher(threshold_us=SECOND)
    engine.put(walking(1, "chat"))
    assert engine.match(here, here.t) == [1]
    engine.put(walking(1, "moves"))
    assert engine.match(here, here.t) == [], "it listens elsewhere now"
    engine.put(walking(1, "chat"))
    assert engine.match(here, here.t) == [1]
    engine.drop(1)
    engine.put(walking(2, "moves"))
    assert engine.match(here, here.t) == []


def test_swept_counts_a_filter_that_it_bounds_when_it_is_put_as_when_a_slice_begins() -> None:
    engine = SweptMatcher()
    for i in range(5):
        engine.put(Subscription(i, i, Moving(EVERYWHERE), Filter(f"price >= {100 * i} + t")))
    engine.put(Subscription(5, 5, Moving(EVERYWHERE), Filter("price >= 0")))
    assert engine.evaluations == 5
    engine.match(Publication(1, 99, 0, point(0, 0), attributes={"price": 250}), 0)
    assert engine.evaluations == 5 + 5 + 3, "a slice begins, and three are near enough to verify"


@pytest.mark.parametrize("engine", ENGINES)
def test_all_that_engines_evaluate_is_noted_and_set_up_apart_from_the_workload(
    engine: str,
) -> None:
    memory = MemoryTrace()
    world = SimulatedWorld(scenario(engine, nodes=12, seconds=2.0), lambda _: Recorder(memory))
    world.run()
    world.recorder.close()
    rows = [row for row in memory.table("notes").to_pylist() if row["fact"] == "evaluations"]
    brokers = [node for node in world.simulation.nodes.values() if isinstance(node, Broker)]
    noted, done = (
        sum(row["value"] for row in rows),
        sum(broker.matcher.count("evaluations") for broker in brokers),
    )
    assert noted > 0
    assert all((row["t"] - world.begins) % REPORT_INTERVAL == 0 for row in rows)
    # What evolves by itself goes on until the host stops; nothing else is left to note by then.
    assert noted <= done <= noted + (len(brokers) * 12 if engine == "periodic" else 0)


@pytest.mark.parametrize("design", ["resubscribe", "parametric"])
def test_repeated_subscriptions_do_not_keep_brokers_from_being_ready(design: str) -> None:
    chosen = scenario(design, "trading", nodes=4, seconds=0.1, brokers=2, interval_ms=300.0)
    world = SimulatedWorld(chosen, lambda _: Recorder(MemoryTrace()))
    world.run()
    assert world.begins < 10 * SECOND
