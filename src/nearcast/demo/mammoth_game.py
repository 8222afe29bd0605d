"""A small game: characters choose a destination, walk there, pause, and choose again.

The rules are those of `workloads.mammoth` ([Evolving] 3 and 5), but this game can be influenced
while it runs: characters may be added, made to follow a person, or made to walk all at once. The
game has neither clock nor socket: its caller asks `step` every few milliseconds what happens now.
"""

from random import Random
from typing import TypeAlias

from msgspec import Struct

from nearcast.space.motion import SECOND, Moving, Time, line
from nearcast.space.shapes import Shape, Vector, box
from nearcast.workloads.mammoth import HEIGHT, WIDTH

CharacterNumber: TypeAlias = int  # of a character, from 0 on

FOLLOW_INTERVAL = SECOND // 2  # after which a follower looks where its leader is
NEAR_ENOUGH = 10.0  # units from its leader within which a follower stands still
MAX_CHARACTERS = 5_000  # characters


class MammothRules(Struct, frozen=True, kw_only=True):
    """Size, speed and rates of the game."""

    size: float = 1000.0  # side of the world, in units
    scale: float = 20.0  # by which the area of interest, 6 by 4, is enlarged
    speed: float = 25.0  # units per second
    stride: float = 300.0  # half the side of the square from which a destination is drawn
    pause: float = 4.0  # mean seconds between two walks
    follow: float = 0.2  # share of characters that follow another one
    rate: float = 5.0  # position updates per second while walking
    pickups: float = 0.05  # per second and character

    @property
    def area(self) -> tuple[float, float]:
        """Half-extents of an area of interest."""
        return WIDTH / 2 * self.scale, HEIGHT / 2 * self.scale


class Character(Struct, eq=False):
    """One character: its current motion, whom it follows, and when it acts next."""

    number: CharacterNumber
    move: Moving
    leader: CharacterNumber | str | None = None  # a character, or a person
    default_leader: CharacterNumber | None = None  # whom it follows when no person leads it
    walks_at: Time = 0  # when its next walk begins
    publishes_at: Time = 0  # when it next publishes its position
    picks_up_at: Time = 0  # when it next picks something up

    def at(self, t: Time) -> Shape:
        return self.move.at(t)


class CharacterAction(Struct, frozen=True):
    """What one character does: with `move` it begins that walk, otherwise it publishes."""

    number: CharacterNumber
    x: float
    y: float
    move: Moving | None = None
    picks_up: bool = False


class MammothGame:
    """All characters, and the persons whom they may follow."""

    def __init__(self, rules: MammothRules, rng: Random) -> None:
        self.rules, self._rng = rules, rng
        self.characters: list[Character] = []
        self.storm_until: Time = 0
        self.persons: dict[str, Vector] = {}  # where persons were last seen

    def spawn(self, now: Time, count: int) -> list[Character]:
        """Add characters at random places; fewer than asked for if there would be too many."""
        rules, rng = self.rules, self._rng
        added = []
        for _ in range(min(count, MAX_CHARACTERS - len(self.characters))):
            number = len(self.characters)
            x, y = rng.uniform(0, rules.size), rng.uniform(0, rules.size)
            one = Character(number, Moving(box(x, y, *rules.area), since=now))
            leads = [other.number for other in self.characters if other.default_leader is None]
            if leads and rng.random() < rules.follow:
                one.leader = one.default_leader = rng.choice(leads[-50:])
            one.walks_at = now + round(rng.uniform(0, 2 * rules.pause) * SECOND)
            one.publishes_at = now
            one.picks_up_at = self._next_pickup(now)
            self.characters.append(one)
            added.append(one)
        return added

    def storm(self, now: Time, seconds: float) -> None:
        """For so many seconds, everybody walks and nobody pauses."""
        self.storm_until = now + round(seconds * SECOND)
        for one in self.characters:
            one.walks_at = min(one.walks_at, max(now, one.move.until if one.move.moves else now))

    def gather(self, now: Time, person: str, count: int) -> int:
        """The characters closest to this person follow them from now on."""
        x, y, _ = self.persons[person]

        def distance(one: Character) -> float:
            here = one.at(now)
            return (here.x - x) ** 2 + (here.y - y) ** 2

        called = sorted(self.characters, key=distance)[:count]
        for one in called:
            one.leader, one.walks_at = person, now
        return len(called)

    def scatter(self, now: Time) -> int:
        """All who follow a person choose their own destinations again."""
        return sum(self._release(now, person) for person in list(self.persons))

    def remove_person(self, now: Time, person: str) -> None:
        """This person has left; nobody can follow them any more."""
        self._release(now, person)
        self.persons.pop(person, None)

    def _release(self, now: Time, person: str) -> int:
        led = [one for one in self.characters if one.leader == person]
        for one in led:
            one.leader, one.walks_at = one.default_leader, now
        return len(led)

    def step(self, now: Time) -> tuple[list[CharacterAction], list[CharacterAction]]:
        """The walks that begin by now, and what is published by now."""
        walks, publications = [], []
        for one in self.characters:
            if one.walks_at <= now:
                move = self._begin_walk(one, now)
                if move is not None:
                    here = move.shape
                    walks.append(CharacterAction(one.number, here.x, here.y, move))
            if one.publishes_at <= now:
                here = one.at(now)
                publications.append(CharacterAction(one.number, here.x, here.y))
                one.publishes_at = self._next_publication(one, now)
            if one.picks_up_at <= now:
                here, reach = one.at(now), self.rules.scale
                x = here.x + self._rng.uniform(-reach, reach)
                y = here.y + self._rng.uniform(-reach, reach)
                publications.append(CharacterAction(one.number, x, y, picks_up=True))
                one.picks_up_at = self._next_pickup(now)
        return walks, publications

    def _begin_walk(self, one: Character, now: Time) -> Moving | None:
        """Its next walk; None: it stays, and tries again later."""
        here = one.at(now)
        there = self._destination(one, here, now)
        if there is None:
            one.walks_at = now + FOLLOW_INTERVAL
            return None
        one.move = line(here, there, self.rules.speed).stamped(now)
        one.publishes_at = now
        if isinstance(one.leader, str):
            # A person may turn at any moment, so a follower looks again soon.
            one.walks_at = min(one.move.until, now + FOLLOW_INTERVAL)
        else:
            calm = self.storm_until <= now
            pause = self._rng.uniform(0, 2 * self.rules.pause) if calm else 0.0
            one.walks_at = one.move.until + round(pause * SECOND)
        return one.move

    def _destination(self, one: Character, here: Shape, now: Time) -> Vector | None:
        if one.leader is None or now < self.storm_until:
            stride, rng = self.rules.stride, self._rng
            return (
                self._reflect(here.x + rng.uniform(-stride, stride)),
                self._reflect(here.y + rng.uniform(-stride, stride)),
                0.0,
            )
        if isinstance(one.leader, str):
            x, y, _ = self.persons[one.leader]
        else:
            led = self.characters[one.leader].at(now)
            x, y = led.x, led.y
        # A place of its own around the leader: a crowd, not a pile.
        x += (one.number * 37 % 61 - 30) * 1.5
        y += (one.number * 53 % 59 - 29) * 1.0
        there = self._clamp(x, y)
        far = abs(there[0] - here.x) + abs(there[1] - here.y) > NEAR_ENOUGH
        return there if far else None

    def _reflect(self, coordinate: float) -> float:
        """Reflected at the border, so that nobody gathers there."""
        size = self.rules.size
        folded = coordinate % (2 * size)
        return min(folded, 2 * size - folded)

    def _clamp(self, x: float, y: float) -> Vector:
        size = self.rules.size
        return min(max(x, 0.0), size), min(max(y, 0.0), size), 0.0

    def _next_publication(self, one: Character, now: Time) -> Time:
        """Regularly during a walk and when it ends; then not before the next walk."""
        until = one.move.until if one.move.moves else now
        if now >= until:
            return 2**62
        return min(now + round(SECOND / self.rules.rate), until)

    def _next_pickup(self, now: Time) -> Time:
        return now + round(self._rng.expovariate(self.rules.pickups) * SECOND)
