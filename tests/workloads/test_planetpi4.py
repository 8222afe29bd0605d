"""Planet π4 as a workload: entities keep the contract, and what is published is what happened."""

import subprocess
import sys
from itertools import islice, takewhile
from math import dist, inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.subscription import Subscription
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads import WORKLOADS
from nearcast.workloads.planetpi4 import Parameters, PlanetPi4, channel, make
from nearcast.workloads.planetpi4_reckoning import ShipUpdate, pack, predict, unpack
from nearcast.workloads.planetpi4_rules import TICK, GameEventKind
from nearcast.workloads.workload import NUMBERS, Scheduled, first_id
from support.brute_force import delivered, expected
from support.dead_reckoning import ReceivedUpdate, position_errors
from support.examples import choices, examples

EXAMPLES = examples(10)
SMALL = {"size": 300.0, "radius": 100.0, "asteroids": 30, "zones": 1}


def game(entities: int = 8, seed: int = 1, **chosen: Any) -> PlanetPi4:
    made = make(Parameters(**{**SMALL, **chosen}), entities, 60.0, seed)
    assert isinstance(made, PlanetPi4)
    return made


def some(
    played: PlanetPi4, entity: int, stay: int = 0, begins: Time = 0, until: Time = 20 * SECOND
) -> list[Scheduled]:
    commands = played.life(entity, stay, begins).commands()
    return list(takewhile(lambda scheduled: scheduled[0] < until, commands))


chosen = st.fixed_dictionaries(
    {
        "size": st.floats(100, 1000),
        "radius": st.floats(20, 300),
        "rate": st.sampled_from([0.5, 7.0, 10.0, 20.0]),
        "speed": st.floats(1, 200),
        "teams": st.integers(1, 4),
        "asteroids": st.sampled_from([0, 5, 60]),
        "zones": st.integers(0, 3),
        "respawn": st.sampled_from([0.1, 1.0]),
    }
)
lives = st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(0, 3 * SECOND))


@EXAMPLES
@given(chosen=chosen, life=lives, seed=st.integers(0, 5))
def test_a_script_satisfies_the_contract_of_every_workload(
    chosen: dict[str, Any], life: tuple[int, int, Time], seed: int
) -> None:
    entity, stay, begins = life
    played = game(6, seed, **chosen)
    commands = list(islice(played.life(*life).commands(), 150))
    kinds = [(t, isinstance(command, Publish)) for t, command in commands]
    assert kinds == sorted(kinds)
    assert [type(command) for _, command in commands[:2]] == [Subscribe, Subscribe]
    assert commands[0][0] == commands[1][0] == begins
    assert all(isinstance(command, Move | Publish) for _, command in commands[2:])
    low = first_id(entity, stay)
    for subscription in (low, low + 1):
        published = [
            t
            for t, command in commands
            if not isinstance(command, Publish) and command.subscription == subscription
        ]
        assert published == sorted(set(published)), "no two rows of a subscription share a moment"
    numbers = [c.publication for _, c in commands if isinstance(c, Publish)]
    assert numbers == list(range(low + 2, low + 2 + len(numbers)))
    assert low + NUMBERS > numbers[-1]


@EXAMPLES
@given(chosen=chosen, life=lives, seed=st.integers(0, 5))
def test_scripts_are_the_same_whatever_was_played_before(
    chosen: dict[str, Any], life: tuple[int, int, Time], seed: int
) -> None:
    fresh = list(islice(game(6, seed, **chosen).life(*life).commands(), 100))
    played = game(6, seed, **chosen)
    some(played, 5, until=8 * SECOND)
    lived = played.life(*life)
    places = [lived.position(life[2] + t) for t in range(0, 5 * SECOND, SECOND)]
    assert list(islice(lived.commands(), 100)) == fresh
    again = game(6, seed, **chosen).life(*life)
    assert [again.position(life[2] + t) for t in range(0, 5 * SECOND, SECOND)] == places


@EXAMPLES
@given(chosen=chosen, seed=st.integers(0, 5), moments=st.lists(st.integers(0, 20 * SECOND)))
def test_ships_stay_in_the_world(chosen: dict[str, Any], seed: int, moments: list[Time]) -> None:
    played = game(6, seed, **chosen)
    lives = [played.life(entity, 0, 0) for entity in range(6)]
    for t in moments:
        for life in lives:
            assert all(0 <= c <= chosen["size"] for c in life.position(t))


@EXAMPLES
@given(chosen=chosen, life=lives, seed=st.integers(0, 5))
def test_updates_contain_place_and_velocity_of_the_ship(
    chosen: dict[str, Any], life: tuple[int, int, Time], seed: int
) -> None:
    played = game(6, seed, **chosen)
    entity, _, _ = life
    lived = played.life(*life)
    interests: dict[int, Subscription] = {}
    for t, command in islice(played.life(*life).commands(), 150):
        if isinstance(command, Subscribe):
            interests[command.subscription] = command.stamped(entity, t)
        elif isinstance(command, Move):
            interests[command.subscription] = interests[command.subscription].moved(
                command.region, t
            )
        elif command.channel == "" and not command.attributes:
            here = (command.shape.x, command.shape.y, command.shape.z)
            assert lived.position(t) == here
            update = unpack(command.payload)
            assert dist(update.place, here) <= 1e-3
            sight, own = interests.values()
            seen = sight.region.at(t)
            assert (seen.x, seen.y, seen.z, seen.rx) == (*here, chosen["radius"])
            assert dist(update.velocity, sight.region.velocity) <= 1e-3
            believed = own.region.at(t)
            off = dist((believed.x, believed.y, believed.z), here)
            assert off <= chosen["radius"] / 4 + 1e-9
            assert own.channel == channel(entity)


def test_updates_come_at_the_rate_and_size_that_were_set_unless_the_ship_is_a_wreck() -> None:
    played = game(2, teams=1, asteroids=0, rate=8.0)
    commands = some(played, 0, until=60 * SECOND)
    published = [command for _, command in commands if isinstance(command, Publish)]
    updates = [command for command in published if not command.attributes]
    assert 478 <= len(updates) <= 480
    assert {len(command.payload) for command in updates} == {48}


def test_after_an_explosion_a_ship_is_silent_and_starts_again_elsewhere() -> None:
    played, seen = game(seed=3, respawn=1.0), 0
    for entity in range(8):
        commands = some(played, entity, until=40 * SECOND)
        published = [(t, c) for t, c in commands if isinstance(c, Publish)]
        for t, command in published:
            if "exploded" not in command.attributes or t > 38 * SECOND:
                continue
            seen += 1
            later = [(s, c) for s, c in published if s > t]
            assert later[0][0] == t + SECOND, "at once when it is back, and not before"
            assert not [c for s, c in commands if t < s < t + SECOND], "a wreck is still"
            again, there = later[0][1].shape, command.shape
            assert dist((again.x, again.y, again.z), (there.x, there.y, there.z)) > 1
            moved = {c.subscription for s, c in commands if s == t + SECOND and type(c) is Move}
            assert moved == {first_id(entity, 0), first_id(entity, 0) + 1}
    assert seen >= 3


def test_hits_and_collisions_are_published_where_the_player_concerned_is() -> None:
    played, published = game(), 0
    log = played.log(0)
    for entity in range(8):
        for t, command in some(played, entity):
            if isinstance(command, Publish) and command.channel:
                published += 1
                assert t % TICK == 0
                assert command.attributes["hit"] in ("beam", "collision")
                target = next(n for n in range(8) if channel(n) == command.channel)
                here = (command.shape.x, command.shape.y, command.shape.z)
                assert played.life(target, 0, 0).position(t) == here
    events = [
        event
        for tick in range(200)
        for ship in range(8)
        for event in log.events(ship, tick * TICK)
        if event.kind in (GameEventKind.BEAM, GameEventKind.COLLISION)
    ]
    assert published == len(events) > 10


def test_newcomers_fly_in_a_game_of_their_own_in_the_same_landscape() -> None:
    played = game(6)
    first, other = played.log(0).game, played.log(1).game
    assert (first.asteroids.places == other.asteroids.places).all()
    assert (first.zones.radii == other.zones.radii).all()
    assert played.life(0, 0, 0).position(0) != played.life(6, 0, 0).position(0)
    commands = [c for entity in range(6, 12) for _, c in some(played, entity)]
    channels = {c.channel for c in commands if isinstance(c, Publish) and c.channel}
    assert channels
    assert channels <= {channel(n) for n in range(6, 12)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1.0}, {"radius": 0.0}, {"rate": 0.0}, {"speed": 0.0}, {"boost": 0.5},
        {"teams": 0}, {"asteroids": -1}, {"zones": -1}, {"respawn": 0.0}, {"rate": float("nan")},
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be between"):
        Parameters(**wrong)


def test_a_run_with_more_publications_than_identifiers_is_refused() -> None:
    with pytest.raises(ValueError, match="lower the rate"):
        make(Parameters(), 3, 1e6, 1)


def test_a_game_does_not_depend_on_the_hash_seed_and_is_loaded_late() -> None:
    program = (
        "import sys\n"
        "from itertools import islice\n"
        "from nearcast.workloads import WORKLOADS\n"
        "assert 'numpy' not in sys.modules\n"
        "kind = WORKLOADS['planetpi4']\n"
        "life = kind.make(kind.parameters(), 12, 60.0, 1).life(3, 0, 0)\n"
        "print(list(islice(life.commands(), 400)))\n"
    )
    received = [
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert received[0] == received[1]
    assert len(received[0]) > 10_000


# Dead reckoning.

NUMBERS_4 = st.floats(-1e6, 1e6, width=32)
VECTORS = st.tuples(NUMBERS_4, NUMBERS_4, NUMBERS_4)


@given(update=st.builds(ShipUpdate, VECTORS, VECTORS, VECTORS, VECTORS))
def test_an_update_contains_what_was_put_into_it(update: ShipUpdate) -> None:
    assert unpack(pack(update)) == update


def test_what_is_no_update_is_refused() -> None:
    with pytest.raises(ValueError, match="48 bytes"):
        unpack(bytes(47))


@given(place=VECTORS, velocity=VECTORS, since=st.integers(0, 10**9), after=st.integers(0, 10**7))
def test_a_prediction_flies_straight_on(
    place: tuple[float, float, float], velocity: tuple[float, float, float], since: int, after: int
) -> None:
    there = predict(place, velocity, since, since + after)
    assert predict(place, velocity, since, since) == place
    assert predict(place, velocity, since, since - 1) == place, "never backwards"
    for p, v, q in zip(place, velocity, there, strict=True):
        assert q == pytest.approx(p + v * after / 1e6, abs=1e-6)


def test_differences_are_those_of_the_newest_update_that_was_received() -> None:
    still = (0.0, 0.0, 0.0)
    heard = [
        ReceivedUpdate(10, 1, 2, 0, (0.0, 0.0, 0.0), (1e6, 0.0, 0.0)),
        ReceivedUpdate(30, 1, 2, 20, (20.0, 0.0, 0.0), (1e6, 0.0, 0.0)),
        ReceivedUpdate(31, 1, 2, 15, (7.0, 7.0, 7.0), still),  # overtaken
    ]
    truth = [(t, 2, (float(t), 0.0, 0.0)) for t in (5, 10, 40, 100)]
    found = [(d.t, d.plain, d.reckoned) for d in position_errors(heard, truth, 50)]
    assert found == [(10, 10.0, 0.0), (40, 20.0, 0.0)]


# In the simulator.


def run(protocol: str, nodes: int, seconds: float, **chosen: Any) -> MemoryTrace:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol=protocol, workload="planetpi4", nodes=nodes, seconds=seconds, settings=chosen
    )
    world = SimulatedWorld(scenario, lambda _: Recorder(memory), (DeliveredOnce(),))
    world.run()
    world.recorder.close()
    return memory


def reckonings(trace: MemoryTrace, memory: Time) -> list[tuple[float, float]]:
    """Position differences without and with dead reckoning, from the tables of a trace alone."""
    flown = {
        (row["t"], row["node"]): (row["vx"], row["vy"], row["vz"])
        for row in trace.table("interests").to_pylist()
        if row["channel"] == ""
    }
    published = {
        row["publication"]: row
        for row in trace.table("publications").to_pylist()
        if row["channel"] == "" and row["attributes"] is None
    }
    received = [
        ReceivedUpdate(
            row["t"], row["node"], one["node"], one["t"], (one["x"], one["y"], one["z"]),
            flown[one["t"], one["node"]],
        )
        for row in trace.table("deliveries").to_pylist()
        if (one := published.get(row["publication"]))
    ]  # fmt: skip
    truth = [
        (row["t"], row["node"], (row["x"], row["y"], row["z"]))
        for row in trace.table("positions").to_pylist()
    ]
    return [(d.plain, d.reckoned) for d in position_errors(received, truth, memory)]


def test_a_server_serves_the_game_exactly_and_dead_reckoning_halves_the_difference() -> None:
    trace = run("client-server", 16, 15.0, size=500.0, sample_ms=250.0)
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert sorted(received) == sorted(should)
    channels = {row["channel"] for row in trace.table("publications").to_pylist()}
    assert len(channels) > 4, "there were hits"
    hits = [row for row in trace.table("publications").to_pylist() if row["channel"]]
    wanted = {publication for publication, _ in should}
    assert all(row["publication"] in wanted for row in hits), "each is heard by its player"
    both = reckonings(trace, SECOND // 5)
    assert len(both) > 1000
    plain, reckoned = (sum(column) / len(both) for column in zip(*both, strict=True))
    assert 0 < reckoned < plain / 2 < inf


@choices("dimensions", [3], [2])
def test_psense_delivers_the_game(dimensions: int) -> None:
    trace = run("psense", 12, 6.0, dimensions=dimensions, size=500.0, limit=100_000)
    received = set(delivered(trace.table("deliveries")))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert received <= should
    assert len(received) > 0.95 * len(should)


def test_players_may_join_late_and_leave() -> None:
    trace = run("client-server", 8, 8.0, churn_rate=1.0, crash=0.02, restart_s=1.0, **SMALL)
    heard = delivered(trace.table("deliveries"))
    assert len(heard) == len(set(heard)) > 100


def test_the_game_is_among_the_workloads() -> None:
    assert WORKLOADS["planetpi4"].parameters is Parameters
    assert WORKLOADS["planetpi4"].make(Parameters(), 5, 1.0, 1).world == (
        (0.0, 0.0, 0.0), (1000.0, 1000.0, 1000.0),
    )  # fmt: skip
