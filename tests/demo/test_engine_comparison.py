"""The comparison counts what really would be said, by a naive count of the same movement."""

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
CROWD = 150  # so that names are of one and of two bytes
Said = tuple[int, list[tuple[int, Moving]], list[Publication]]


@pytest.fixture(scope="module")
def movement() -> list[Said]:
    """A few seconds of the game."""
    game, number = MammothGame(MammothRules(size=400.0, pause=1.0), Random(3)), 0
    newcomers = game.spawn(START, CROWD)
    told: list[Said] = [(START, [(one.number, one.move) for one in newcomers], [])]
    for now in range(START + TICK, START + 4 * SECOND, TICK):
        walks, words = game.step(now)
        said = []
        for deed in words:
            number += 1
            said.append(Publication(number, deed.number, now, point(deed.x, deed.y)))
        told.append((now, [(d.number, d.move) for d in walks if d.move], said))
    return told


@pytest.fixture(scope="module")
def tallies(movement: list[Said]) -> dict[str, EngineCounts]:
    comparison = EngineComparison()
    for now, walks, said in movement:
        comparison.step(now, walks, said)
    return {tally.name: tally for tally in comparison.tallies()}


@pytest.fixture(scope="module")
def pairs(movement: list[Said]) -> list[tuple[Publication, int]]:
    """Who should hear what, by looking at everybody."""
    regions: dict[int, Moving] = {}
    found = []
    for now, walks, said in movement:
        regions.update(walks)
        for publication in said:
            found += [
                (publication, node)
                for node, region in regions.items()
                if node != publication.node and region.touches(publication.shape, now)
            ]
    return found


def test_exact_engines_tell_everybody_and_nobody_else(
    tallies: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    assert len(pairs) > 1000
    for name in ("lazy", "swept"):
        assert tallies[name].notices == len(pairs)
        assert (tallies[name].missed, tallies[name].spurious) == (0, 0)


def test_what_stale_engines_miss_or_add_is_the_difference_to_the_truth(
    tallies: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    for name in ("resubscribe", "periodic", "cached"):
        tally = tallies[name]
        assert tally.missed > 0 and tally.spurious > 0, f"{name} cannot be exact at this pace"
        assert tally.notices == len(pairs) - tally.missed + tally.spurious


def test_bytes_are_those_of_every_single_message(
    movement: list[Said], tallies: dict[str, EngineCounts], pairs: list[tuple[Publication, int]]
) -> None:
    said_before: set[int] = set()
    about_interests = 0
    for now, walks, _ in movement:
        for node, region in walks:
            if node in said_before:
                about_interests += CODEC.size(Cancel(node, node, now))
            about_interests += CODEC.size(Interest(Subscription(node, node, region), now, now))
            said_before.add(node)
    posts = sum(CODEC.size(Post(one)) for _, _, said in movement for one in said)
    notices = sum(CODEC.size(Notify(publication, (node,), 1)) for publication, node in pairs)
    for name in ("lazy", "swept"):
        assert tallies[name].subscription_bytes == about_interests
        assert tallies[name].bytes == about_interests + posts + notices


def test_a_walk_costs_two_messages_or_two_for_every_interval() -> None:
    still = Moving(box(0, 0, 3, 2), since=START)
    walk = line(box(0, 0, 3, 2), (10.0, 0.0, 0.0), 10.0).stamped(START + SECOND)
    comparison = EngineComparison()
    comparison.step(START, [(0, still)], [])
    comparison.step(START + SECOND, [(0, walk)], [])
    for now in range(START + SECOND + TICK, START + 4 * SECOND, TICK):
        comparison.step(now, [], [])
    messages = {tally.name: tally.subscriptions for tally in comparison.tallies()}
    renewals = SECOND // INTERVAL  # the last one says where it has arrived
    assert messages.pop("resubscribe") == 1 + 2 * renewals
    assert set(messages.values()) == {1 + 2}


def test_lazy_looks_at_all_that_moves_and_the_others_at_less(
    tallies: dict[str, EngineCounts],
) -> None:
    evaluations = {name: tally.evaluations for name, tally in tallies.items()}
    assert evaluations["resubscribe"] == 0
    assert 0 < evaluations["swept"] < evaluations["lazy"]
    assert 0 < evaluations["periodic"] < evaluations["lazy"]
    assert 0 < evaluations["cached"] < evaluations["lazy"]
