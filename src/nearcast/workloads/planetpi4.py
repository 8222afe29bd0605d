"""Planet π4: a space game of many players, all of them bots ([Lucas2011] sections 2.1 and 5.3).

Every ship listens to a ball around itself, which flies on with it, and says where it is and how it
flies (`planetpi4_reckoning`), at a steady rate, and at once when it begins a new life; a wreck is
silent. An explosion is heard by all around (`exploded`). Hits and collisions "go directly to the
player concerned": they are points at its place on a channel of its own, `ship N`, to which it alone
listens, in a smaller ball. That one is moved only when dead reckoning has led it astray.

Lives depend on each other, so one game is played for all, as far as somebody has asked, and every
life reads its own part of it. Whoever joins later or returns takes over a ship under way; who has
gone leaves a ship that flies on unheard, as others in the game still reckon with it. Newcomers
beyond the first number of players fly in a further game of the same size, in the same landscape.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import count
from math import asin, atan2, ceil, dist
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.rates import check_rates, parse_rates
from nearcast.model.subscription import NodeId, Value
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import Vector, ball, point
from nearcast.workloads.cube import Cube
from nearcast.workloads.planetpi4_reckoning import ShipUpdate, pack, predict
from nearcast.workloads.planetpi4_rules import TICK, GameEvent, GameEventKind, Rules
from nearcast.workloads.workload import Scheduled, Workload, first_id, fits_identifiers

if TYPE_CHECKING:
    from nearcast.workloads.planetpi4_log import GameLog

MOST_EVENTS = 20  # hits, collisions and new lives of a ship in a second, far more than there can be
DRIFT_SHARE = 0.25  # of the radius: so far the smaller ball may be from its ship


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload planetpi4."""

    # Side of the world in units, 100 to 1e6; a larger world holds the ships farther apart.
    size: float = 1000.0
    # true or false: does the world end there? If not, ships that chase and flee fly on beyond
    # (section 2.1: "infinitely big"); they begin, and begin anew, within.
    bounded: bool = True
    # Radius of the area of interest in units, 1 to 1e6, which is also how far a bot sees;
    # neighbours grow with its cube.
    radius: float = 250.0
    # Updates per second and ship, 0.1 to 100 (section 5.3.1: 10); all traffic grows with it.
    rate: float = 10.0
    # Cruising speed in units per second, 0.1 to 1e5; neighbours change faster.
    speed: float = 40.0
    # How many times faster the booster is, 1 to 10.
    boost: float = 2.5
    # Teams that fight each other, 1 to 1,000; 1: nobody fights.
    teams: int = 2
    # Asteroids and repair zones, 0 to 10,000 and 0 to 1,000.
    asteroids: int = 100
    zones: int = 4
    # Seconds from an explosion to the next life, 0.1 to 1e4.
    respawn: float = 1.0
    # Fewer updates of ships that are far away: DISTANCE:MESSAGES, ..., as in 133:2, 267:1 (beyond
    # 133 units two a second, beyond 267 one), for overlays that offer `rates`; "": all updates.
    rates: str = ""

    def __post_init__(self) -> None:
        between("size", self.size, 100, 1e6)
        between("radius", self.radius, 1, 1e6)
        between("rate", self.rate, 0.1, 100)
        between("speed", self.speed, 0.1, 1e5)
        between("boost", self.boost, 1, 10)
        between("teams", self.teams, 1, 1000)
        between("asteroids", self.asteroids, 0, 10_000)
        between("zones", self.zones, 0, 1000)
        between("respawn", self.respawn, 0.1, 1e4)
        check_rates(parse_rates(self.rates), Moving(ball(0.0, 0.0, 0.0, self.radius)))


class Flight(NamedTuple):
    """Where a ship is at a moment, and how it flies."""

    place: Vector
    velocity: Vector
    heading: Vector
    spin: Vector


def channel(ship: NodeId) -> str:
    """On which a ship alone listens."""
    return f"ship {ship}"


def rotation(heading: Vector) -> Vector:
    """Yaw, pitch and roll of a ship that looks there; ships do not roll."""
    x, y, z = heading
    return atan2(y, x), asin(min(max(z, -1.0), 1.0)), 0.0


class PlanetPi4Player:
    """One stay of one player."""

    def __init__(self, game: "PlanetPi4", entity: NodeId, stay: int, begins: Time) -> None:
        self.game, self.entity, self.stay, self.begins = game, entity, stay, begins
        self.game_number, self.ship = divmod(entity, game.entities)

    @cached_property
    def log(self) -> "GameLog":
        return self.game.log(self.game_number)

    def position(self, t: Time) -> Vector:
        return self.flight(t).place

    def flight(self, t: Time) -> Flight:
        place, velocity, heading, spin = self.log.flight(self.ship, t)
        here = predict(place, velocity, t - t % TICK, t)
        if self.game.parameters.bounded:
            here = self.game.cube.inside(here)
        return Flight(here, velocity, heading, spin)

    def moments(self) -> Iterator[tuple[Time, bool]]:
        """Every tick of the game and every update from the beginning on; True: an update."""
        period = SECOND / self.game.parameters.rate
        rng = stream(self.game.seed, "planetpi4", "phase", self.entity, self.stay)
        phase = 1 - rng.random()  # above 0 and at most 1
        updates = (self.begins + ceil((number + phase) * period) for number in count())
        update = next(updates)
        for beginning in count((self.begins // TICK + 1) * TICK, TICK):
            while update < beginning:
                yield update, True
                update = next(updates)
            yield beginning, update == beginning
            if update == beginning:
                update = next(updates)

    def commands(self) -> Iterator[Scheduled]:
        radius, first = self.game.parameters.radius, first_id(self.entity, self.stay)
        flight = self.flight(self.begins)
        sight, own = _ball(flight, radius), _ball(flight, radius / 2)
        rates = parse_rates(self.game.parameters.rates)
        yield self.begins, Subscribe(first, sight, rates=rates)
        yield self.begins, Subscribe(first + 1, own, channel=channel(self.entity))
        own = own.stamped(self.begins)
        numbers = count(first + 2)
        for t, is_update in self.moments():
            events = self.log.events(self.ship, t)
            is_turn = any(
                event.kind in (GameEventKind.EXPLODED, GameEventKind.RESPAWNED) for event in events
            )
            is_alive = self.log.is_alive(self.ship, t)
            if is_turn or (is_update and is_alive):
                flight = self.flight(t)
                yield t, Move(first, _ball(flight, radius))
                predicted = own.at(t)
                off = dist((predicted.x, predicted.y, predicted.z), flight.place)
                if is_turn or off > DRIFT_SHARE * radius:
                    yield t, Move(first + 1, _ball(flight, radius / 2))
                    own = _ball(flight, radius / 2).stamped(t)
                if is_alive:
                    yield t, _publish_update(flight, next(numbers))
            for event in events:
                if event.kind != GameEventKind.RESPAWNED:
                    yield t, self._publish_event(event, next(numbers))

    def _publish_event(self, event: GameEvent, number: int) -> Publish:
        place = point(*event.place)
        if event.kind == GameEventKind.EXPLODED:
            return Publish(number, place, attributes={"exploded": True})
        whom = channel(self.game_number * self.game.entities + event.other)
        hit: dict[str, Value] = {"hit": event.kind.name.lower(), "damage": event.damage}
        return Publish(number, place, whom, hit)


def _ball(flight: Flight, radius: float) -> Moving:
    return Moving(ball(*flight.place, radius), flight.velocity)


def _publish_update(flight: Flight, number: int) -> Publish:
    update = ShipUpdate(flight.place, rotation(flight.heading), flight.velocity, flight.spin)
    return Publish(number, point(*flight.place), payload=pack(update))


class PlanetPi4(Struct, frozen=True, dict=True):
    """The game Planet π4, played by bots."""

    parameters: Parameters
    entities: int
    seed: int

    @property
    def cube(self) -> Cube:
        return Cube(self.parameters.size, 3)

    @property
    def world(self) -> tuple[Vector, Vector]:
        return self.cube.corners

    @cached_property
    def _logs(self) -> "dict[int, GameLog]":
        return {}

    def log(self, game_number: int) -> "GameLog":
        """The game of the first players, or of the next so many."""
        # Numbers in columns are loaded when the first life begins, not with the register.
        from nearcast.workloads.planetpi4_log import GameLog

        if game_number not in self._logs:
            landscape = stream(self.seed, "planetpi4", "landscape")
            self._logs[game_number] = GameLog(
                self._rules, landscape, stream(self.seed, "planetpi4", game_number)
            )
        return self._logs[game_number]

    @property
    def _rules(self) -> Rules:
        chosen = self.parameters
        return Rules(
            self.entities, chosen.teams, chosen.size, chosen.radius, chosen.speed, chosen.boost,
            chosen.asteroids, chosen.zones, max(1, round(chosen.respawn * SECOND / TICK)),
            chosen.bounded,
        )  # fmt: skip

    def life(self, entity: NodeId, stay: int, begins: Time) -> PlanetPi4Player:
        return PlanetPi4Player(self, entity, stay, begins)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers((parameters.rate + MOST_EVENTS) * seconds)
    return PlanetPi4(parameters, entities, seed)
