"""The comparison against a naive count of the same movement."""

from random import Random

import pytest

from nearcast.demo.engine_comparison import INTERVAL, EngineComparison, EngineCounts
from nearcast.demo.mammoth_game import MammothGame, MammothRules
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.protocols.brokers.messages import CODEC, Cancel, Interest, Notify, Post
from nearcast.space.motion import SECOND, Moving, line
from nearcast.space.shapes import box, point

START = 1_700_000_000 * SECOND
TICK = SECOND // 20
CROWD = 150  # so that node ids take one or two bytes
Step = tuple[int, list[tuple[int, Moving]], list[Publication]]


@pytest.fixture(scope="module")
def movement() -> list[Step]:
    """A few seconds of the game."""
    game, number = MammothGame(MammothRules(size=400.0, pause=1.0), Random(3)), 0
    newcomers = game.spawn(START, CROWD)
    steps: list[Step] = [(START, [(one.number, one.move) for one in newcomers], [])]
    for now in range(START + TICK, START + 4 * SECOND, TICK):
        walks, actions = game.step(now)
        publications = []
        for action in actions:
            number += 1
            publications.append(Publication(number, action.number, now, point(action.x, action.y)))
        steps.append((now, [(d.number, d.move) for d in walks if d.move], publications))
    return steps


@pytest.fixture(scope="module")
def by_engine(movement: list[Step]) -> dict[str, EngineCounts]:
    comparison = EngineComparison()
    for now, changes, publications in movement:
        comparison.step(now, changes, publications)
    return {one.name: one for one in comparison.counts()}


@pytest.fixture(scope="module")
def pairs(movement: list[Step]) -> list[tuple[Publication, int]]:
    """Who should receive what, by looking at every character."""
    regions: dict[int, Moving] = {}
    found = []
    for now, changes, publications in movement:
        regions.update(changes)
        for publication in publications:
            found += [
                (publication, node)
                for node, region in regions.items()
                if node != publication.node and region.touches(publication.shape, now)
            ]
    return found


def test_exact_engines_notify_exactly_the_matching_subscribers(
    by_engine: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    assert len(pairs) > 1000
    for name in ("lazy", "swept"):
        assert by_engine[name].notices == len(pairs)
        assert (by_engine[name].missed, by_engine[name].spurious) == (0, 0)


def test_what_stale_engines_miss_or_add_is_the_difference_to_the_truth(
    by_engine: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    for name in ("resubscribe", "periodic", "cached"):
        counts = by_engine[name]
        assert counts.missed > 0 and counts.spurious > 0, f"{name} cannot be exact at this pace"
        assert counts.notices == len(pairs) - counts.missed + counts.spurious


def test_bytes_are_those_of_every_single_message(
    movement: list[Step], by_engine: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    subscribed: set[int] = set()
    about_interests = 0
    for now, changes, _ in movement:
        for node, region in changes:
            if node in subscribed:
                about_interests += CODEC.size(Cancel(node, node, now))
            about_interests += CODEC.size(Interest(Subscription(node, node, region), now, now))
            subscribed.add(node)
    posts = sum(CODEC.size(Post(one)) for _, _, publications in movement for one in publications)
    notices = sum(CODEC.size(Notify(publication, (node,), 1)) for publication, node in pairs)
    for name in ("lazy", "swept"):
        assert by_engine[name].subscription_bytes == about_interests
        assert by_engine[name].bytes == about_interests + posts + notices


def test_a_walk_costs_two_messages_or_two_for_every_interval() -> None:
    still = Moving(box(0, 0, 3, 2), since=START)
    walk = line(box(0, 0, 3, 2), (10.0, 0.0, 0.0), 10.0).stamped(START + SECOND)
    comparison = EngineComparison()
    comparison.step(START, [(0, still)], [])
    comparison.step(START + SECOND, [(0, walk)], [])
    for now in range(START + SECOND + TICK, START + 4 * SECOND, TICK):
        comparison.step(now, [], [])
    messages = {one.name: one.subscriptions for one in comparison.counts()}
    renewals = SECOND // INTERVAL  # the last one is for the place of arrival
    assert messages.pop("resubscribe") == 1 + 2 * renewals
    assert set(messages.values()) == {1 + 2}


def test_lazy_evaluates_most_and_other_engines_less(
    by_engine: dict[str, EngineCounts],
) -> None:
    evaluations = {name: counts.evaluations for name, counts in by_engine.items()}
    assert evaluations["resubscribe"] == 0
    assert 0 < evaluations["swept"] < evaluations["lazy"]
    assert 0 < evaluations["periodic"] < evaluations["lazy"]
    assert 0 < evaluations["cached"] < evaluations["lazy"]
