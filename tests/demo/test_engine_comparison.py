"""The comparison against a naive count of the same movement."""

from random import Random

import pytest

from nearcast.demo.engine_comparison import (
    INTERVAL,
    LATEST,
    MEMORY,
    TILE,
    ComparedTopics,
    EngineComparison,
    EngineCounts,
)
from nearcast.demo.mammoth_game import MammothGame, MammothRules
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.protocols.brokers.messages import CODEC, Cancel, Interest, Notify, Post
from nearcast.space.motion import SECOND, Moving, line
from nearcast.space.shapes import box, point

START = 1_700_000_000 * SECOND
TICK = SECOND // 20
EVOLVING = ("periodic", "lazy", "cached", "swept")
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
    assert {messages[name] for name in EVOLVING} == {1 + 2}


def test_lazy_evaluates_most_and_other_engines_less(
    by_engine: dict[str, EngineCounts],
) -> None:
    evaluations = {name: counts.evaluations for name, counts in by_engine.items()}
    assert evaluations["resubscribe"] == 0
    assert 0 < evaluations["swept"] < evaluations["lazy"]
    assert 0 < evaluations["periodic"] < evaluations["lazy"]
    assert 0 < evaluations["cached"] < evaluations["lazy"]


def test_a_client_of_tiles_has_those_that_its_area_touches() -> None:
    """An area of 40 by 40 walks along tiles of 80: from one, over two, to the next but one."""
    comparison = EngineComparison()
    still = Moving(box(TILE / 2, TILE / 2, 20, 20), since=START)
    walk = line(box(TILE / 2, TILE / 2, 20, 20), (5 * TILE / 2, TILE / 2), TILE)
    comparison.step(START, [(0, still)], [])
    tiles = comparison.topics[0]
    found = [messages_of(tiles)]
    comparison.step(START + SECOND, [(0, walk.stamped(START + SECOND))], [])
    for now in range(START + SECOND + TICK, START + 4 * SECOND, TICK):
        comparison.step(now, [], [])
        if messages_of(tiles) != found[-1]:
            found.append(messages_of(tiles))
    # It enters a tile, leaves the one before, and both once more.
    assert found == [1, 2, 3, 4, 5]


def messages_of(topics: ComparedTopics) -> int:
    return topics.counts.subscriptions


def test_a_client_of_objects_finds_others_and_then_gets_what_they_publish() -> None:
    comparison = EngineComparison()
    areas = [(node, Moving(box(10.0 * node, 0, 60, 40), since=START)) for node in (0, 1)]
    areas.append((2, Moving(box(5_000, 0, 60, 40), since=START)))
    comparison.step(START, areas, [])
    objects = comparison.topics[1]
    assert messages_of(objects) == 3, "each looks for others around its area"

    def publish(step: int) -> None:
        now = START + step * TICK
        made = [Publication(3 * step + n, n, now, point(10.0 * n, 0)) for n in (0, 1)]
        made.append(Publication(3 * step + 2, 2, now, point(5_000, 0)))
        comparison.step(now, [], made)

    publish(1)  # the copies for discovery: 0 and 1 find each other, and have missed this
    assert messages_of(objects) == 3 + 2
    assert (objects.counts.missed, objects.counts.notices) == (2, 2)
    publish(2)
    assert (objects.counts.missed, objects.counts.notices) == (2, 4)
    silent = 3 + MEMORY // TICK  # steps
    for step in range(silent, silent + 4):
        comparison.step(START + step * TICK, [], [])
    assert messages_of(objects) == 3 + 2 + 2
    publish(silent + 4)
    assert objects.counts.missed == 4


def test_topics_bring_more_than_is_wanted_and_deliver_nothing_else(
    by_engine: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    for name in ("tile", "object"):
        counts = by_engine[name]
        assert counts.spurious == 0
        assert 0 <= counts.missed < len(pairs)
        assert counts.notices > len(pairs) - counts.missed
        assert counts.bytes > counts.subscription_bytes > 0
    assert by_engine["tile"].missed < by_engine["resubscribe"].missed
    assert by_engine["tile"].subscriptions < by_engine["resubscribe"].subscriptions


def test_areas_are_renewed_in_time_though_the_game_is_late() -> None:
    """Seven tenths of a second after the last step, a publication meets areas of a tenth before."""
    walk = line(box(0, 0, 3, 2), (100.0, 0.0, 0.0), 10.0).stamped(START)
    comparison = EngineComparison()
    comparison.step(START, [(0, walk), (1, Moving(box(900, 900, 3, 2), since=START))], [])
    ahead = Publication(1, 1, START + 7 * SECOND // 10, point(7.0 + 2.9, 0))
    comparison.step(ahead.t, [], [ahead])
    counts = {one.name: one for one in comparison.counts()}
    assert counts["resubscribe"].subscriptions == 2 + 2 * 3
    assert {name for name, one in counts.items() if one.missed} >= {"resubscribe", "periodic"}
    assert counts["swept"].notices == counts["lazy"].notices == 1
    comparison.step(START + 3600 * SECOND, [], [])  # the machine slept
    assert counts["resubscribe"].subscriptions <= 2 + 2 * 3 + 2 * (1 + LATEST // INTERVAL)
