"""The rules of Planet π4 ([Lucas2011] section 2.1), played by bots, tick by tick and as columns.

Ships of two or more teams roam a space with asteroids and repair zones. A beam that hits takes from
the shields of its target, and so does an asteroid or another ship that is run into; repair zones
give back. Without shields a ship explodes, and its player begins anew somewhere else. Beams and the
booster take energy, which comes back by itself. The numbers are ours: the paper gives none.

Within a tick every ship flies straight on, so a place and a velocity per tick tell where it was at
any moment. Only sums, products and square roots decide the course of a game, and chance is drawn
ship by ship, so it is the same wherever it is played.
"""

from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.space.motion import SECOND
from nearcast.space.shapes import Vector
from nearcast.workloads.cube import Cube
from nearcast.workloads.planetpi4_bots import BotObservation, BotState, boosts, next_state
from nearcast.workloads.planetpi4_rules import ENERGY, SHIELD, TICK, GameEvent, GameEventKind, Rules

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ships = NDArray[np.int64]

STEP = TICK / SECOND  # in seconds
THOUGHT = 5  # ticks between two thoughts of a bot
RECHARGE = 8.0  # energy per second
BOOSTER = 30.0  # energy per second
BEAM_COST, BEAM_DAMAGE, BEAM_TICKS = 6.0, 12.0, 4  # a shot in so many ticks at most
REPAIR = 25.0  # shields per second in a zone
CRASH_DAMAGE = 30.0  # of an asteroid or a ship
GRACE = 10  # ticks after a crash in which a ship is not hurt by another
HULL = 4.0  # radius of a ship
AIM = 0.97  # cosine of the angle within which a beam hits
AGILITY = 2.0  # share of the way to the wanted heading, per second
THRUST = 2.0  # of the cruising speed, per second
WARY = 3.0  # seconds of flight within which an asteroid ahead is dodged
NOBODY = -1


class StaticBalls(NamedTuple):
    """Asteroids or repair zones: balls that stay where they are."""

    places: Floats
    radii: Floats


def place_balls(cube: Cube, many: int, least: float, most: float, rng: Random) -> StaticBalls:
    places = [cube.anywhere(rng) for _ in range(many)]
    radii = [rng.uniform(least, most) for _ in range(many)]
    return StaticBalls(np.array(places).reshape(-1, 3), np.array(radii))


def lengths(vectors: Floats) -> Floats:
    squares = vectors * vectors
    return np.sqrt(squares[..., 0] + squares[..., 1] + squares[..., 2])


def directions(vectors: Floats) -> Floats:
    """Of length 1; a vector without length has no direction and stays as it is."""
    long = lengths(vectors)
    return vectors / np.where(long > 0, long, 1.0)[..., None]


def dots(a: Floats, b: Floats) -> Floats:
    products = a * b
    return np.asarray(products[..., 0] + products[..., 1] + products[..., 2])


class Game:
    """The state of one game in columns by ship; `advance` plays one tick."""

    def __init__(self, rules: Rules, landscape: Random, rng: Random) -> None:
        """`landscape` makes asteroids and zones, `rng` everything else."""
        n, self.rules, self.rng = rules.ships, rules, rng
        self.cube = Cube(rules.size, 3)
        self._borders = (0.0, rules.size) if rules.bounded else (-np.inf, np.inf)
        self.asteroids = place_balls(
            self.cube, rules.asteroids, rules.size / 100, rules.size / 40, landscape
        )
        self.zones = place_balls(
            self.cube, rules.zones, rules.size / 20, rules.size / 12, landscape
        )
        self.team: Ships = np.arange(n, dtype=np.int64) % rules.teams
        self.place: Floats = np.array([self.cube.anywhere(rng) for _ in range(n)])
        self.waypoint: Floats = np.array([self.cube.anywhere(rng) for _ in range(n)])
        self.heading: Floats = directions(self.waypoint - self.place)
        self.velocity: Floats = self.heading * rules.speed
        self.spin: Floats = np.zeros((n, 3))
        self.shield: Floats = np.full(n, SHIELD)
        self.energy: Floats = np.full(n, ENERGY)
        self.state: Ships = np.full(n, BotState.PATROL, np.int64)
        self.enemy: Ships = np.full(n, NOBODY, np.int64)
        self.boosting: Flags = np.zeros(n, np.bool_)
        self.ready_at: Ships = np.zeros(n, np.int64)  # tick from which it may shoot
        self.safe_until: Ships = np.zeros(n, np.int64)  # tick until which it cannot crash
        self.back_at: Ships = np.zeros(n, np.int64)  # tick of its latest respawn, maybe to come
        self.tick = 0
        self.events: dict[int, list[GameEvent]] = {}  # by ship, at the beginning of this tick
        self._stay_inside()

    @property
    def alive(self) -> Flags:
        return self.back_at <= self.tick

    def advance(self) -> None:
        """One tick later."""
        self.place = np.clip(self.place + self.velocity * STEP, *self._borders)
        self.tick += 1
        self.events = {}
        self._come_back()
        self._think()
        self._shoot()
        self._crash()
        self._power()
        self._explode()
        self._steer()
        self._stay_inside()

    def _note(self, ship: int, event: GameEvent) -> None:
        self.events.setdefault(ship, []).append(event)

    def _where(self, ship: int) -> Vector:
        x, y, z = self.place[ship].tolist()
        return x, y, z

    def _come_back(self) -> None:
        for ship in np.flatnonzero(self.back_at == self.tick).tolist():
            self.place[ship] = self.cube.anywhere(self.rng)
            self.waypoint[ship] = self.cube.anywhere(self.rng)
            self.heading[ship] = directions(self.waypoint[ship] - self.place[ship])
            self.velocity[ship] = self.heading[ship] * self.rules.speed
            self.shield[ship], self.energy[ship] = SHIELD, ENERGY
            self.state[ship], self.enemy[ship] = BotState.PATROL, NOBODY
            self._note(ship, GameEvent(GameEventKind.RESPAWNED, ship, self._where(ship), 0.0))

    # Bots.

    def _think(self) -> None:
        """A fifth of the bots in each tick."""
        thinking = np.arange(self.tick % THOUGHT, self.rules.ships, THOUGHT)
        thinking = thinking[self.alive[thinking]]
        if not len(thinking):
            return
        enemy, away = self._nearest_enemies(thinking)
        self.enemy[thinking] = np.where(away <= self.rules.sight, enemy, NOBODY)
        arrived = lengths(self.waypoint[thinking] - self.place[thinking]) < self.rules.sight / 4
        for ship, distance, is_there in zip(
            thinking.tolist(), away.tolist(), arrived.tolist(), strict=True
        ):
            shield, energy = self.shield[ship] / SHIELD, self.energy[ship] / ENERGY
            senses = BotObservation(shield, energy, distance / self.rules.sight)
            state = next_state(BotState(self.state[ship]), senses)
            if not self.rules.zones and state == BotState.REPAIR:
                state = BotState.PATROL  # there is nowhere to go
            self.state[ship] = state
            self.boosting[ship] = boosts(state, senses)
            if is_there:
                self.waypoint[ship] = self.cube.anywhere(self.rng)

    def _nearest_enemies(self, ships: Ships) -> tuple[Ships, Floats]:
        """Of each the nearest living ship of another team, and how far it is."""
        others = np.flatnonzero(self.alive)
        gaps = lengths(self.place[others][None, :, :] - self.place[ships][:, None, :])
        gaps[self.team[others][None, :] == self.team[ships][:, None]] = np.inf
        nearest = gaps.argmin(axis=1)
        return others[nearest], gaps[np.arange(len(ships)), nearest]

    def _goals(self) -> Floats:
        """Where each ship wants to go."""
        goal = self.waypoint.copy()
        chased = (self.state == BotState.CHASE) & (self.enemy != NOBODY)
        goal[chased] = self.place[self.enemy[chased]]
        if self.rules.zones:
            hurt = np.flatnonzero((self.state == BotState.REPAIR) | (self.state == BotState.FLEE))
            gaps = lengths(self.zones.places[None, :, :] - self.place[hurt][:, None, :])
            goal[hurt] = self.zones.places[gaps.argmin(axis=1)]
        fleeing = (self.state == BotState.FLEE) & (self.enemy != NOBODY)
        away = directions(self.place[fleeing] - self.place[self.enemy[fleeing]])
        goal[fleeing] += away * self.rules.sight
        return goal

    # Rules.

    def _shoot(self) -> None:
        """Every beam of a tick is on its way before any takes effect."""
        able = self.alive & (self.state == BotState.CHASE) & (self.enemy != NOBODY)
        able &= (self.ready_at <= self.tick) & (self.energy >= BEAM_COST)
        shooters = np.flatnonzero(able)
        targets = self.enemy[shooters]
        to_target = self.place[targets] - self.place[shooters]
        aimed = dots(directions(to_target), self.heading[shooters]) >= AIM
        reached = lengths(to_target) <= self.rules.sight / 2
        hit = aimed & reached & self.alive[targets]
        for ship, target in zip(shooters[hit].tolist(), targets[hit].tolist(), strict=True):
            self.energy[ship] -= BEAM_COST
            self.ready_at[ship] = self.tick + BEAM_TICKS
            self.shield[target] -= BEAM_DAMAGE
            self._note(
                ship, GameEvent(GameEventKind.BEAM, target, self._where(target), BEAM_DAMAGE)
            )

    def _crash(self) -> None:
        exposed = self.alive & (self.safe_until <= self.tick)
        if self.rules.asteroids:
            ships = np.flatnonzero(exposed)
            gaps = self.place[ships][:, None, :] - self.asteroids.places[None, :, :]
            touch = lengths(gaps) <= self.asteroids.radii[None, :] + HULL
            for ship, rock in zip(*(found.tolist() for found in np.nonzero(touch)), strict=True):
                if self.safe_until[ship] <= self.tick:  # not of two at once
                    self._bounce(ships[ship], self.asteroids.places[rock])
        for one, other in self._touching(np.flatnonzero(exposed)):
            if max(self.safe_until[one], self.safe_until[other]) > self.tick:
                continue
            here, there = self.place[one].copy(), self.place[other].copy()
            self._note(
                one, GameEvent(GameEventKind.COLLISION, other, self._where(other), CRASH_DAMAGE)
            )
            self._note(
                other, GameEvent(GameEventKind.COLLISION, one, self._where(one), CRASH_DAMAGE)
            )
            self._bounce(one, there)
            self._bounce(other, here)

    def _bounce(self, ship: int, obstacle: Floats) -> None:
        """Away from it, at half the speed."""
        self.shield[ship] -= CRASH_DAMAGE
        self.safe_until[ship] = self.tick + GRACE
        away = directions(self.place[ship] - obstacle)
        # Two ships at the very same place know no direction but back.
        self.heading[ship] = away if away.any() else -self.heading[ship]
        self.velocity[ship] = self.heading[ship] * lengths(self.velocity[ship]) / 2

    def _touching(self, ships: Ships) -> list[tuple[int, int]]:
        """Pairs of these ships whose hulls touch. In the order of x, a pair is never far apart."""
        order = ships[np.argsort(self.place[ships, 0], kind="stable")]
        pairs: list[tuple[int, int]] = []
        for apart in range(1, len(order)):
            one, other = order[:-apart], order[apart:]
            near = self.place[other, 0] - self.place[one, 0] <= 2 * HULL
            if not near.any():
                break
            one, other = one[near], other[near]
            touch = lengths(self.place[one] - self.place[other]) <= 2 * HULL
            pairs += zip(one[touch].tolist(), other[touch].tolist(), strict=True)
        return sorted((min(pair), max(pair)) for pair in pairs)

    def _power(self) -> None:
        """Energy and shields come and go."""
        alive = self.alive
        self.boosting &= alive & (self.energy >= BOOSTER * STEP)
        self.energy -= np.where(self.boosting, BOOSTER * STEP, 0.0)
        self.energy = np.clip(self.energy + np.where(alive, RECHARGE * STEP, 0.0), 0.0, ENERGY)
        if self.rules.zones:
            gaps = lengths(self.place[:, None, :] - self.zones.places[None, :, :])
            inside = (gaps <= self.zones.radii[None, :]).any(axis=1) & alive & (self.shield > 0)
            self.shield += np.where(inside, REPAIR * STEP, 0.0)
        self.shield = np.clip(self.shield, 0.0, SHIELD)

    def _explode(self) -> None:
        for ship in np.flatnonzero(self.alive & (self.shield <= 0)).tolist():
            self.back_at[ship] = self.tick + self.rules.respawn
            self.velocity[ship] = 0.0
            self.boosting[ship] = False
            self._note(ship, GameEvent(GameEventKind.EXPLODED, ship, self._where(ship), 0.0))

    def _steer(self) -> None:
        """Headings turn to the goal, away from asteroids; velocities follow."""
        alive = self.alive[:, None]
        wanted = directions(directions(self._goals() - self.place) + self._dodge())
        # Those who wait at their goal keep their heading.
        wanted = np.where(lengths(wanted)[:, None] > 0, wanted, self.heading)
        share = AGILITY * STEP
        turned = directions(self.heading * (1 - share) + wanted * share)
        turned = np.where(lengths(turned)[:, None] > 0, turned, self.heading)
        turned = np.where(alive, turned, self.heading)
        self.spin = np.cross(self.heading, turned) / STEP
        self.heading = turned
        speed = self.rules.speed * np.where(self.boosting, self.rules.boost, 1.0)
        change = self.heading * speed[:, None] - self.velocity
        most = THRUST * self.rules.speed * STEP
        long = lengths(change)
        change *= np.where(long > most, most / np.where(long > 0, long, 1.0), 1.0)[:, None]
        self.velocity = np.where(alive, self.velocity + change, 0.0)

    def _dodge(self) -> Floats:
        """Away from asteroids that are close and ahead, the more the closer they are."""
        if not self.rules.asteroids:
            return np.zeros_like(self.place)
        gaps = self.place[:, None, :] - self.asteroids.places[None, :, :]
        free = lengths(gaps) - self.asteroids.radii[None, :]
        ahead = dots(gaps, self.heading[:, None, :]) < 0
        wary = WARY * self.rules.speed
        push = np.where(ahead & (free < wary), 1 - free / wary, 0.0)
        away = directions(gaps) * push[..., None]
        return np.asarray(2 * away.sum(axis=1))

    def _stay_inside(self) -> None:
        """Where the world has an end, whoever would leave it slides along."""
        if not self.rules.bounded:
            return
        ahead = np.clip(self.place + self.velocity * STEP, *self._borders)
        self.velocity = (ahead - self.place) / STEP
