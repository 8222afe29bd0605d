"""The game's rules, by what its characters do."""

from math import hypot
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearcast.demo.mammoth_game import MAX_CHARACTERS, CharacterAction, MammothGame, MammothRules
from nearcast.space.motion import SECOND
from support.examples import examples

TICK = SECOND // 20
START = 1_000 * SECOND


def played(
    game: MammothGame, begin: int, seconds: float
) -> list[tuple[int, list[CharacterAction], list[CharacterAction]]]:
    return [
        (now, *game.step(now))
        for now in range(begin + TICK, begin + round(seconds * SECOND) + 1, TICK)
    ]


def a_game(characters: int, **rules: float) -> MammothGame:
    game = MammothGame(MammothRules(**rules), Random(7))
    game.spawn(START, characters)
    return game


def test_a_walk_goes_straight_at_the_rules_speed_and_ends_inside_the_world() -> None:
    game = a_game(30)
    walks = [action for _, begun, _ in played(game, START, 30) for action in begun]
    assert len(walks) > 30
    for action in walks:
        assert action.move is not None
        there = action.move.at(action.move.until)
        way = hypot(there.x - action.x, there.y - action.y)
        assert abs(way - game.rules.speed * (action.move.duration or 0) / SECOND) < 1e-3
        assert 0 <= there.x <= game.rules.size and 0 <= there.y <= game.rules.size


def test_walkers_publish_their_position_at_the_given_rate_and_on_arrival() -> None:
    game = a_game(1, pickups=1e-9)
    steps = played(game, START, 60)
    walks = [action.move for _, begun, _ in steps for action in begun if action.move]
    published = [(now, action) for now, _, publications in steps for action in publications]
    first = walks[0]
    during = [now for now, _ in published if first.since <= now < first.until]
    assert during == [first.since + k * SECOND // 5 for k in range(len(during))]
    assert len(during) == -(-(first.until - first.since) * 5 // SECOND)
    for now, action in published:
        walk = next((w for w in reversed(walks) if w.since <= now), None)
        if walk:
            here = walk.at(now)
            assert (action.x, action.y) == (here.x, here.y)
    arrived = first.at(first.until)
    assert any((action.x, action.y) == (arrived.x, arrived.y) for _, action in published)


def test_in_a_storm_everybody_walks_at_once_and_nobody_pauses() -> None:
    game = a_game(50)
    played(game, START, 10)
    now = START + 10 * SECOND
    game.storm(now, 5)
    for moment, _, _ in played(game, now, 4):
        assert all(one.move.until > moment for one in game.characters)


def test_gathered_characters_come_to_the_person_and_scatter_when_it_leaves() -> None:
    game = a_game(40)
    game.persons["me"] = (500.0, 500.0, 0.0)
    assert game.gather(START, "me", 25) == 25
    led = [one for one in game.characters if one.leader == "me"]
    assert len(led) == 25
    played(game, START, 40)
    now = START + 40 * SECOND
    assert all(hypot(one.at(now).x - 500, one.at(now).y - 500) < 80 for one in led)
    game.remove_person(now, "me")
    assert all(one.leader == one.default_leader for one in game.characters)
    played(game, now, 30)
    later = now + 30 * SECOND
    assert any(hypot(one.at(later).x - 500, one.at(later).y - 500) > 120 for one in led)


def test_the_closest_characters_are_gathered() -> None:
    game = a_game(30)
    game.persons["me"] = (0.0, 0.0, 0.0)
    game.gather(START, "me", 5)
    far = {one.number: hypot(one.at(START).x, one.at(START).y) for one in game.characters}
    called = [one.number for one in game.characters if one.leader == "me"]
    assert sorted(called) == sorted(sorted(far, key=lambda number: far[number])[:5])


def test_the_number_of_characters_is_limited() -> None:
    game = MammothGame(MammothRules(), Random(1))
    assert len(game.spawn(START, MAX_CHARACTERS - 1)) == MAX_CHARACTERS - 1
    assert len(game.spawn(START, 100)) == 1


ORDERS = st.lists(
    st.sampled_from(["spawn", "storm", "gather", "scatter", "person", "part", "wait"]), max_size=25
)


@given(ORDERS, st.integers(0, 100))
@examples(40)
def test_after_any_orders_characters_stay_inside_and_publish_their_true_position(
    orders: list[str], seed: int
) -> None:
    game, now = MammothGame(MammothRules(), Random(seed)), START
    for order in orders:
        if order == "spawn":
            game.spawn(now, 3)
        elif order == "storm":
            game.storm(now, 2)
        elif order == "person":
            game.persons["me"] = (game._rng.uniform(0, 1000), 30.0, 0.0)
        elif order == "gather" and "me" in game.persons:
            game.gather(now, "me", 4)
        elif order == "scatter":
            game.scatter(now)
        elif order == "part":
            game.remove_person(now, "me")
        for moment in range(now + TICK, now + SECOND + 1, TICK):
            walks, published = game.step(moment)
            for action in walks + published:
                here = game.characters[action.number].at(moment)
                assert -1e-6 <= here.x <= 1000 + 1e-6 and -1e-6 <= here.y <= 1000 + 1e-6
                if not action.picks_up:
                    assert (action.x, action.y) == (here.x, here.y)
        now += SECOND
