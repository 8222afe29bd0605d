"""Players of a game like Mammoth: they walk, pause, follow and pick things up."""

from itertools import islice, pairwise, takewhile
from math import dist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import ShapeKind
from nearcast.workloads import WORKLOADS
from nearcast.workloads.mammoth import Mammoth, Parameters, make
from nearcast.workloads.workload import NUMBERS, Scheduled, first_id
from support.examples import examples

MINUTE = 60 * SECOND


def game(entities: int = 20, seed: int = 1, **chosen: float) -> Mammoth:
    made = make(Parameters(**chosen), entities, 60.0, seed)
    assert isinstance(made, Mammoth)
    return made


def minute(played: Mammoth, entity: int, stay: int = 0, begins: Time = 0) -> list[Scheduled]:
    commands = played.life(entity, stay, begins).commands()
    return list(takewhile(lambda scheduled: scheduled[0] < begins + MINUTE, commands))


def moves(commands: list[Scheduled]) -> list[Moving]:
    return [c.region.stamped(t) for t, c in commands if not isinstance(c, Publish)]


chosen = st.fixed_dictionaries(
    {
        "size": st.floats(1, 1e4),
        "scale": st.floats(0, 20),
        "stride": st.floats(0.1, 1e4),
        "pause": st.sampled_from([0.0, 0.5, 5.0]),
        "follow": st.sampled_from([0.0, 0.5, 1.0]),
        "rate": st.floats(0.1, 20),
        "pickups": st.sampled_from([0.0, 0.5, 20.0]),
    }
).flatmap(
    lambda drawn: st.fixed_dictionaries(
        {name: st.just(value) for name, value in drawn.items()}
        | {"speed": st.floats(1e-3, min(10 * drawn["size"], 100 * drawn["stride"]))}
    )
)
lives = st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3 * SECOND))


@examples(60)
@given(chosen=chosen, life=lives, seed=st.integers(0, 5))
def test_a_script_satisfies_the_contract_of_every_workload(
    chosen: dict[str, float], life: tuple[int, int, Time], seed: int
) -> None:
    entity, stay, begins = life
    played = game(6, seed, **chosen)
    commands = list(islice(played.life(*life).commands(), 120))
    kinds = [(t, isinstance(command, Publish)) for t, command in commands]
    assert kinds == sorted(kinds)
    assert kinds[0] == (begins, False)
    assert isinstance(commands[0][1], Subscribe)
    assert all(isinstance(command, Move | Publish) for _, command in commands[1:])
    moments = [t for t, command in commands if not isinstance(command, Publish)]
    assert moments == sorted(set(moments)), "no two interests of a life share a moment"
    low = first_id(entity, stay)
    numbers = [c.publication for _, c in commands if isinstance(c, Publish)]
    assert numbers == list(range(low + 1, low + 1 + len(numbers)))
    assert low + NUMBERS > numbers[-1]
    assert {c.subscription for _, c in commands if not isinstance(c, Publish)} == {low}
    assert list(islice(played.life(*life).commands(), 120)) == commands


@examples(30)
@given(chosen=chosen, life=lives)
def test_a_player_is_where_its_area_is_and_publishes_it(
    chosen: dict[str, float], life: tuple[int, int, Time]
) -> None:
    lived = game(6, **chosen).life(*life)
    region: Moving | None = None
    for t, command in islice(lived.commands(), 100):
        if not isinstance(command, Publish):
            region = command.region.stamped(t)
            continue
        assert region is not None
        area = region.at(t)
        here = lived.position(t)
        assert dist(here, (area.x, area.y, area.z)) <= 1e-6 * max(1.0, chosen["size"])
        assert command.shape.kind == ShapeKind.POINT
        if not command.attributes:
            assert (command.shape.x, command.shape.y) == (area.x, area.y)


def test_the_area_is_six_by_four_times_the_scale_and_walks_with_its_owner() -> None:
    for move in moves(minute(game(scale=5.0, speed=3.0, follow=0.0), 4)):
        assert (move.shape.rx, move.shape.ry) == (15.0, 10.0)
        assert dist(move.velocity, (0.0, 0.0, 0.0)) == pytest.approx(3.0, rel=1e-3)


def test_players_stay_in_the_world_and_move_on_where_they_arrived() -> None:
    walked = moves(minute(game(size=50.0, stride=500.0, speed=20.0), 4))
    assert len(walked) > 5
    for move, onward in pairwise(walked):
        there = move.at(move.until)
        assert 0 <= there.x <= 50 + 1e-9
        assert 0 <= there.y <= 50 + 1e-9
        assert dist((there.x, there.y), (onward.shape.x, onward.shape.y)) < 1e-3
        assert move.until < onward.since <= move.until + 4 * SECOND


def test_position_updates_come_at_the_rate_while_walking_and_never_while_pausing() -> None:
    commands = minute(game(rate=8.0, pickups=0.0, pause=5.0, speed=20.0), 4)
    walked = moves(commands)
    moments = [t for t, command in commands if isinstance(command, Publish)]
    for move in walked[:-1]:
        during = [t for t in moments if move.since <= t <= move.until]
        assert len(during) == pytest.approx(8 * (move.until - move.since) / SECOND, abs=2)
        assert during[-1] == move.until
    walking = [t for t in moments if any(m.since <= t <= m.until for m in walked)]
    assert walking == moments


def test_pickups_come_now_and_then_within_reach_and_are_published() -> None:
    commands = minute(game(pickups=2.0, rate=1.0, scale=3.0), 4)
    picked = [(t, c) for t, c in commands if isinstance(c, Publish) and c.attributes]
    assert 70 <= len(picked) <= 180
    lived = game(pickups=2.0, rate=1.0, scale=3.0).life(4, 0, 0)
    for t, command in picked:
        assert command.attributes == {"action": "pick-up", "object": "apple"}
        x, y, _ = lived.position(t)
        assert abs(command.shape.x - x) <= 3.0
        assert abs(command.shape.y - y) <= 3.0


def test_followers_go_where_their_leader_is_and_leaders_follow_nobody() -> None:
    played = game(40, follow=0.5, size=400.0, stride=300.0, speed=15.0)
    followers = [e for e in range(40) if played.leader(e) is not None]
    assert 10 <= len(followers) <= 30
    for entity in followers:
        leader = played.leader(entity)
        assert leader is not None
        assert played.leader(leader) is None
        led = played.life(leader, 0, 0)
        for move in moves(minute(played, entity)):
            there, aim = move.at(move.until), led.position(move.since)
            assert dist((there.x, there.y), aim[:2]) < 1e-3
    assert all(game(follow=0.0).leader(e) is None for e in range(20))
    assert game(5, follow=1.0).leader(0) is None, "there is nobody who leads"


def test_a_game_does_not_depend_on_its_neighbours_and_differs_by_seed() -> None:
    first = minute(game(follow=0.3), 3)
    assert minute(game(follow=0.3), 3) == first
    assert minute(game(follow=0.3, seed=2), 3) != first
    assert minute(game(follow=0.0), 3, stay=1) != minute(game(follow=0.0), 3)
    shifted = minute(game(follow=0.0), 3, begins=7 * SECOND)
    assert shifted == [(t + 7 * SECOND, command) for t, command in minute(game(follow=0.0), 3)]


def test_the_world_is_registered_and_payloads_are_of_the_size_that_was_set() -> None:
    assert WORKLOADS["mammoth"].parameters is Parameters
    played = make(Parameters(payload=5, size=70.0), 3, 60.0, 1)
    assert played.world == ((0.0, 0.0, 0.0), (70.0, 70.0, 0.0))
    assert played.entities == 3
    published = [
        c for _, c in islice(played.life(0, 0, 0).commands(), 30) if isinstance(c, Publish)
    ]
    assert all(command.payload == bytes(5) for command in published)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"size": 0.0}, "size must be between"),
        ({"scale": -1.0}, "scale must be between"),
        ({"speed": 0.0}, "speed must be between"),
        ({"stride": 0.0}, "stride must be between"),
        ({"pause": float("nan")}, "pause must be between"),
        ({"follow": 1.5}, "follow must be between 0 and 1, not 1.5"),
        ({"rate": 0.0}, "rate must be between"),
        ({"pickups": 2000.0}, "pickups must be between"),
        ({"payload": -1}, "payload must be between"),
    ],
)
def test_invalid_parameters_are_refused(chosen: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Parameters(**chosen)


def test_a_game_with_more_publications_than_identifiers_is_refused() -> None:
    with pytest.raises(ValueError, match="lower the rate"):
        make(Parameters(rate=100.0), 3, 1e6, 1)
