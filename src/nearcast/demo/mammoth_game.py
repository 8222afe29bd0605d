"""A small game: characters that choose a destination, walk there, pause, and choose again.

The rules are those of `workloads.mammoth` (seed 001, sections 3 and 5), but here the game listens:
characters may be added, told to follow somebody, or to walk all at once. Nothing here knows of
clocks or sockets: `step` is asked every few milliseconds what happens now.
"""

from random import Random
from typing import TypeAlias

from msgspec import Struct

from nearcast.space.motion import SECOND, Moving, Time, line
from nearcast.space.shapes import Shape, Vector, box
from nearcast.workloads.mammoth import HEIGHT, WIDTH

CharacterNumber: TypeAlias = int  # of a character, from 0 on

LOOK_AGAIN = SECOND // 2  # after which a follower looks where its leader has gone
NEAR_ENOUGH = 10.0  # units from its leader within which a follower stands still
MAX_CHARACTERS = 5_000  # characters


class MammothRules(Struct, frozen=True, kw_only=True):
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
    number: CharacterNumber
    move: Moving
    leader: CharacterNumber | str | None = None  # a character, or somebody from outside by name
    strays: CharacterNumber | None = None  # whom it follows of its own accord, once nobody tells it
    walks_at: Time = 0  # when it next sets out
    says_at: Time = 0  # when it next says where it is
    picks_at: Time = 0  # when it next picks something up

    def at(self, t: Time) -> Shape:
        return self.move.at(t)


class CharacterAction(Struct, frozen=True):
    """What one character does at one moment: `move` is its new walk, else it says something."""

    number: CharacterNumber
    x: float
    y: float
    move: Moving | None = None
    picks_up: bool = False


class MammothGame:
    def __init__(self, rules: MammothRules, rng: Random) -> None:
        self.rules, self._rng = rules, rng
        self.characters: list[Character] = []
        self.storm_until: Time = 0
        self.strangers: dict[str, Vector] = {}  # where persons were last heard of

    def spawn(self, now: Time, count: int) -> list[Character]:
        """Newcomers at random places; fewer than asked for if the world would be too full."""
        rules, rng = self.rules, self._rng
        added = []
        for _ in range(min(count, MAX_CHARACTERS - len(self.characters))):
            number = len(self.characters)
            x, y = rng.uniform(0, rules.size), rng.uniform(0, rules.size)
            one = Character(number, Moving(box(x, y, *rules.area), since=now))
            leads = [other.number for other in self.characters if other.strays is None]
            if leads and rng.random() < rules.follow:
                one.leader = one.strays = rng.choice(leads[-50:])
            one.walks_at = now + round(rng.uniform(0, 2 * rules.pause) * SECOND)
            one.says_at = now
            one.picks_at = self._next_pickup(now)
            self.characters.append(one)
            added.append(one)
        return added

    def storm(self, now: Time, seconds: float) -> None:
        """For so long, everybody walks and nobody pauses."""
        self.storm_until = now + round(seconds * SECOND)
        for one in self.characters:
            one.walks_at = min(one.walks_at, max(now, one.move.until if one.move.moves else now))

    def gather(self, now: Time, stranger: str, count: int) -> int:
        """The characters closest to this person follow it from now on."""
        x, y, _ = self.strangers[stranger]

        def distance(one: Character) -> float:
            here = one.at(now)
            return (here.x - x) ** 2 + (here.y - y) ** 2

        called = sorted(self.characters, key=distance)[:count]
        for one in called:
            one.leader, one.walks_at = stranger, now
        return len(called)

    def scatter(self, now: Time) -> int:
        """All who follow a person go their own ways again."""
        return sum(self._release(now, stranger) for stranger in list(self.strangers))

    def part(self, now: Time, stranger: str) -> None:
        """This person has gone; nobody can follow it any more."""
        self._release(now, stranger)
        self.strangers.pop(stranger, None)

    def _release(self, now: Time, stranger: str) -> int:
        led = [one for one in self.characters if one.leader == stranger]
        for one in led:
            one.leader, one.walks_at = one.strays, now
        return len(led)

    def step(self, now: Time) -> tuple[list[CharacterAction], list[CharacterAction]]:
        """Walks that begin by now, and what is said by now."""
        walks, words = [], []
        for one in self.characters:
            if one.walks_at <= now:
                move = self._set_out(one, now)
                if move is not None:
                    here = move.shape
                    walks.append(CharacterAction(one.number, here.x, here.y, move))
            if one.says_at <= now:
                here = one.at(now)
                words.append(CharacterAction(one.number, here.x, here.y))
                one.says_at = self._next_word(one, now)
            if one.picks_at <= now:
                here, reach = one.at(now), self.rules.scale
                x = here.x + self._rng.uniform(-reach, reach)
                y = here.y + self._rng.uniform(-reach, reach)
                words.append(CharacterAction(one.number, x, y, picks_up=True))
                one.picks_at = self._next_pickup(now)
        return walks, words

    def _set_out(self, one: Character, now: Time) -> Moving | None:
        """Its next walk; None: it stays, and looks again."""
        here = one.at(now)
        there = self._destination(one, here, now)
        if there is None:
            one.walks_at = now + LOOK_AGAIN
            return None
        one.move = line(here, there, self.rules.speed).stamped(now)
        one.says_at = now
        if isinstance(one.leader, str):
            # A person may turn at any moment; who follows it must not walk to where it was.
            one.walks_at = min(one.move.until, now + LOOK_AGAIN)
        else:
            calm = self.storm_until <= now
            pause = self._rng.uniform(0, 2 * self.rules.pause) if calm else 0.0
            one.walks_at = one.move.until + round(pause * SECOND)
        return one.move

    def _destination(self, one: Character, here: Shape, now: Time) -> Vector | None:
        if one.leader is None or now < self.storm_until:
            stride, rng = self.rules.stride, self._rng
            return (
                self._back(here.x + rng.uniform(-stride, stride)),
                self._back(here.y + rng.uniform(-stride, stride)),
                0.0,
            )
        if isinstance(one.leader, str):
            x, y, _ = self.strangers[one.leader]
        else:
            led = self.characters[one.leader].at(now)
            x, y = led.x, led.y
        # A place of its own around the leader: a crowd, not a pile.
        x += (one.number * 37 % 61 - 30) * 1.5
        y += (one.number * 53 % 59 - 29) * 1.0
        there = self._inside(x, y)
        far = abs(there[0] - here.x) + abs(there[1] - here.y) > NEAR_ENOUGH
        return there if far else None

    def _back(self, coordinate: float) -> float:
        """What would lie outside is as far inside instead, so that nobody clings to the border."""
        size = self.rules.size
        folded = coordinate % (2 * size)
        return min(folded, 2 * size - folded)

    def _inside(self, x: float, y: float) -> Vector:
        size = self.rules.size
        return min(max(x, 0.0), size), min(max(y, 0.0), size), 0.0

    def _next_word(self, one: Character, now: Time) -> Time:
        """Regularly while it walks, and when it has arrived; then not before it sets out again."""
        until = one.move.until if one.move.moves else now
        if now >= until:
            return 2**62
        return min(now + round(SECOND / self.rules.rate), until)

    def _next_pickup(self, now: Time) -> Time:
        return now + round(self._rng.expovariate(self.rules.pickups) * SECOND)
