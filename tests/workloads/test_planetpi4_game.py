"""The rules of Planet π4, its bots, and its columns against naive loops."""

from itertools import pairwise
from math import dist
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.workloads.planetpi4_bots import (
    CLOSE,
    FULL,
    LOW,
    READY,
    BotObservation,
    BotState,
    boosts,
    next_state,
)
from nearcast.workloads.planetpi4_game import (
    BEAM_COST,
    BEAM_DAMAGE,
    BEAM_TICKS,
    CRASH_DAMAGE,
    HULL,
    NOBODY,
    STEP,
    Game,
)
from nearcast.workloads.planetpi4_rules import ENERGY, SHIELD, GameEvent, GameEventKind, Rules
from support.examples import examples

EXAMPLES = examples(10)

rules = st.builds(
    Rules,
    ships=st.integers(1, 12),
    teams=st.integers(1, 4),
    size=st.floats(100, 800),
    sight=st.floats(30, 400),
    speed=st.floats(1, 150),
    boost=st.floats(1, 5),
    asteroids=st.sampled_from([0, 10, 80]),
    zones=st.integers(0, 3),
    respawn=st.integers(1, 12),
)


def play(chosen: Rules, seed: int = 1) -> Game:
    return Game(chosen, Random(seed), Random(seed + 1000))


def arena(ships: int = 2, **changed: object) -> Game:
    """An empty space in which ships of two teams stand still at the places that a test gives."""
    plain = {"teams": 2, "size": 1000.0, "sight": 200.0, "speed": 10.0, "boost": 2.0}
    chosen = {"asteroids": 0, "zones": 0, "respawn": 5, **plain, **changed}
    game = play(Rules(ships=ships, **chosen))
    game.velocity[:] = 0.0
    return game


def face(game: Game, ship: int, target: int) -> None:
    there = game.place[target] - game.place[ship]
    game.heading[ship] = there / np.linalg.norm(there)
    game.state[ship], game.enemy[ship] = BotState.CHASE, target


@EXAMPLES
@given(chosen=rules, seed=st.integers(0, 99))
def test_whatever_happens_ships_shields_and_energy_stay_within_bounds(
    chosen: Rules, seed: int
) -> None:
    game = play(chosen, seed)
    for _ in range(80):
        game.advance()
        assert ((game.place >= 0) & (game.place <= chosen.size)).all()
        ahead = game.place + game.velocity * STEP
        assert ((ahead >= -1e-9) & (ahead <= chosen.size + 1e-9)).all()
        assert ((game.energy >= 0) & (game.energy <= ENERGY)).all()
        assert ((game.shield >= 0) & (game.shield <= SHIELD)).all()
        assert (game.shield[game.alive] > 0).all()
        assert np.isfinite(game.velocity).all()
        assert np.allclose((game.heading**2).sum(axis=1), 1.0)
        fastest = max(chosen.speed * chosen.boost, chosen.speed) + 1e-6
        assert (np.sqrt((game.velocity**2).sum(axis=1)) <= fastest).all()


@EXAMPLES
@given(chosen=rules, seed=st.integers(0, 99))
def test_equal_seeds_give_equal_games(chosen: Rules, seed: int) -> None:
    one, other = play(chosen, seed), play(chosen, seed)
    for _ in range(40):
        one.advance()
        other.advance()
        assert one.events == other.events
    assert (one.place == other.place).all()
    assert (one.velocity == other.velocity).all()


@EXAMPLES
@given(chosen=rules, seed=st.integers(0, 99))
def test_an_exploded_ship_does_not_move_until_it_comes_back(chosen: Rules, seed: int) -> None:
    game, gone = play(chosen, seed), {}
    for _ in range(150):
        game.advance()
        for ship, events in game.events.items():
            kinds = [event.kind for event in events]
            if GameEventKind.RESPAWNED in kinds:
                assert game.tick == gone.pop(ship) + chosen.respawn
                assert game.alive[ship] or GameEventKind.EXPLODED in kinds
            if GameEventKind.EXPLODED in kinds:
                gone[ship] = game.tick
        for ship in gone:
            assert not game.alive[ship]
            assert not game.velocity[ship].any()
            assert game.shield[ship] == 0
        assert sorted(gone) == np.flatnonzero(~game.alive).tolist()


def test_a_game_has_its_share_of_everything() -> None:
    game = play(Rules(24, 3, 500.0, 200.0, 40.0, 2.0, 60, 3, 10))
    kinds: list[GameEventKind] = []
    boosted = repaired = False
    for _ in range(600):
        before = game.shield.copy()
        game.advance()
        kinds += [event.kind for events in game.events.values() for event in events]
        boosted |= bool(game.boosting.any())
        repaired |= bool(((game.shield > before) & (before > 0)).any())
    assert set(kinds) == set(GameEventKind)
    assert boosted
    assert repaired
    assert kinds.count(GameEventKind.EXPLODED) - kinds.count(GameEventKind.RESPAWNED) in range(25)


# Rules, one by one.


def test_a_beam_takes_energy_from_one_and_shields_from_the_other() -> None:
    game = arena()
    game.place[:] = [[500, 500, 500], [560, 500, 500]]
    face(game, 0, 1)
    game._shoot()
    assert game.events == {
        0: [GameEvent(GameEventKind.BEAM, 1, (560.0, 500.0, 500.0), BEAM_DAMAGE)]
    }
    assert game.shield.tolist() == [SHIELD, SHIELD - BEAM_DAMAGE]
    assert game.energy.tolist() == [ENERGY - BEAM_COST, ENERGY]
    game._shoot()
    assert len(game.events[0]) == 1, "the weapon cools down"
    game.tick += BEAM_TICKS
    game._shoot()
    assert len(game.events[0]) == 2


@pytest.mark.parametrize("why", ["far", "askew", "weak", "wreck", "calm"])
def test_a_beam_needs_aim_range_energy_and_a_living_target(why: str) -> None:
    game = arena()
    game.place[:] = [[500, 500, 500], [560, 500, 500]]
    if why == "far":
        game.place[1, 0] = 601
    face(game, 0, 1)
    if why == "askew":
        game.heading[0] = [0.9, 0.435889894, 0.0]
    if why == "weak":
        game.energy[0] = BEAM_COST - 1
    if why == "wreck":
        game.back_at[1] = 9
    if why == "calm":
        game.state[0] = BotState.PATROL
    game._shoot()
    assert game.events == {}


def test_ships_that_touch_are_hurt_and_thrown_apart_once() -> None:
    game = arena(3)
    game.place[:] = [[500, 500, 500], [500 + 2 * HULL, 500, 500], [500, 900, 500]]
    game.velocity[:] = [[10, 0, 0], [-10, 0, 0], [0, 0, 0]]
    game._crash()
    assert game.shield.tolist() == [SHIELD - CRASH_DAMAGE, SHIELD - CRASH_DAMAGE, SHIELD]
    assert [(s, a.kind, a.other) for s, events in game.events.items() for a in events] == [
        (0, GameEventKind.COLLISION, 1),
        (1, GameEventKind.COLLISION, 0),
    ]
    assert game.velocity[:2].tolist() == [[-5, 0, 0], [5, 0, 0]]
    game._crash()
    assert game.shield[0] == SHIELD - CRASH_DAMAGE, "not again while they part"


def test_ships_at_the_very_same_place_turn_back() -> None:
    game = arena()
    game.place[:] = 500.0
    before = game.heading.copy()
    game._crash()
    assert (game.heading == -before).all()


def test_an_asteroid_that_is_hit_hurts_and_a_zone_repairs() -> None:
    game = arena(asteroids=1, zones=1)
    rock, zone = game.asteroids.places[0], game.zones.places[0]
    game.place[0] = rock
    game.place[0, 0] += game.asteroids.radii[0] + HULL
    game.place[1] = zone
    game.shield[1] = 50
    game._crash()
    game._power()
    assert game.shield[0] == SHIELD - CRASH_DAMAGE
    assert game.velocity[0, 0] >= 0, "it flies away from it"
    assert game.shield[1] > 50


def test_a_ship_without_shields_explodes() -> None:
    game = arena()
    game.shield[1] = 0.0
    game._explode()
    assert [event.kind for event in game.events[1]] == [GameEventKind.EXPLODED]
    assert game.alive.tolist() == [True, False]
    game._explode()
    assert len(game.events[1]) == 1


def test_a_new_life_begins_elsewhere_with_full_shields_and_energy() -> None:
    game = arena()
    game.shield[1], game.energy[1] = 0.0, 3.0
    game._explode()
    wreck = game.place[1].copy()
    for _ in range(5):
        assert not game.alive[1]
        game.advance()
    assert game.alive[1]
    assert game.events[1] == [
        GameEvent(GameEventKind.RESPAWNED, 1, tuple(game.place[1].tolist()), 0.0)
    ]
    assert (game.shield[1], game.energy[1]) == (SHIELD, ENERGY)
    assert np.abs(game.place[1] - wreck).max() > 10


def test_bots_dodge_most_asteroids() -> None:
    """With their eyes shut they would run into far more."""

    def damage(dodging: bool) -> float:
        game = play(Rules(20, 1, 500.0, 200.0, 20.0, 1.0, 250, 0, 5), 4)
        if not dodging:
            game._dodge = lambda: np.zeros_like(game.place)
        lost = 0.0
        for _ in range(300):
            before = game.shield.copy()
            game.advance()
            lost += float(np.maximum(before - game.shield, 0).sum())
        return lost

    assert damage(dodging=True) < damage(dodging=False) / 2


# Columns against loops.

places = st.lists(
    st.tuples(*(st.integers(0, 40).map(lambda n: n * 3.0) for _ in range(3))),
    min_size=2,
    max_size=14,
)


@EXAMPLES
@given(places=places)
def test_touching_ships_are_those_of_the_naive_loop(
    places: list[tuple[float, float, float]],
) -> None:
    game = arena(len(places))
    game.place[:] = places
    naive = [
        (one, other)
        for one in range(len(places))
        for other in range(one + 1, len(places))
        if dist(places[one], places[other]) <= 2 * HULL
    ]
    assert game._touching(np.arange(len(places))) == naive


@EXAMPLES
@given(places=places, dead=st.integers(0, 13))
def test_the_nearest_enemy_is_that_of_the_naive_loop(
    places: list[tuple[float, float, float]], dead: int
) -> None:
    game = arena(len(places))
    game.place[:] = places
    game.back_at[dead % len(places)] = 5
    ships = np.flatnonzero(game.alive)
    enemy, away = game._nearest_enemies(ships)
    for ship, found, distance in zip(ships.tolist(), enemy.tolist(), away.tolist(), strict=True):
        naive = [
            dist(places[ship], places[other]) for other in ships.tolist() if other % 2 != ship % 2
        ]
        if naive:
            assert distance == pytest.approx(min(naive))
            assert found % 2 != ship % 2
        else:
            assert distance == np.inf


def test_a_lone_team_has_no_enemies() -> None:
    game = arena(4, teams=1)
    for _ in range(10):
        game.advance()
    assert (game.enemy == NOBODY).all()
    assert (game.state == BotState.PATROL).all()


# Bots.

shares = st.floats(0, 1)
distances = st.floats(0, 3) | st.just(float("inf"))


@given(st.sampled_from(BotState), st.builds(BotObservation, shares, shares, distances))
def test_a_bot_acts_by_its_state_and_its_senses(state: BotState, senses: BotObservation) -> None:
    after = next_state(state, senses)
    if after == BotState.FLEE:
        assert senses.enemy <= CLOSE
        assert senses.shield < FULL
    if after == BotState.CHASE:
        assert senses.enemy <= 1
        assert senses.energy >= READY or state == BotState.CHASE
    if senses.shield < LOW:
        assert after in (BotState.FLEE, BotState.REPAIR)
    if senses.shield >= FULL:
        assert after in (BotState.PATROL, BotState.CHASE)
    if after == BotState.PATROL:
        assert not boosts(after, senses)
    assert boosts(BotState.FLEE, senses)


def test_a_hurt_bot_flees_repairs_and_fights_again() -> None:
    story = [
        BotObservation(1.0, 1.0, 9.0), BotObservation(1.0, 1.0, 0.9), BotObservation(0.3, 0.5, 0.3),
        BotObservation(0.3, 0.5, 0.8), BotObservation(0.9, 1.0, 0.8), BotObservation(0.96, 1.0,
        0.8),
    ]  # fmt: skip
    states = [BotState.PATROL]
    for senses in story:
        states.append(next_state(states[-1], senses))
    assert states[1:] == [
        BotState.PATROL, BotState.CHASE, BotState.FLEE, BotState.REPAIR, BotState.REPAIR,
        BotState.CHASE,
    ]  # fmt: skip
    assert all(before != after or before != BotState.FLEE for before, after in pairwise(states))


def test_a_world_without_end_lets_ships_fly_on_where_another_stops_them() -> None:
    for bounded in (True, False):
        game = arena(bounded=bounded)
        game.place[0], game.velocity[0] = (999.0, 500.0, 500.0), (60.0, 0.0, 0.0)
        game._stay_inside()
        game.place = game.place + game.velocity
        assert (game.place[0, 0] > 1000) is not bounded
    free = [
        play(Rules(12, 2, 300.0, 300.0, 80.0, 3.0, 0, 0, 5, bounded=b), 3) for b in (True, False)
    ]
    for _ in range(300):
        for game in free:
            game.advance()
    outside = [((game.place < 0) | (game.place > 300.0)).any() for game in free]
    assert outside == [False, True]
