"""Players of a game like Mammoth ([Evolving] sections 3 and 5).

A player chooses a destination, walks there at constant speed, pauses, and chooses again; some
follow another player, whose place they take for their destination. Each is interested in a
rectangle around itself, 6 by 4 times `scale`, which is said once per move with its motion: it walks
with its owner and stays where it arrives. While it walks, a player publishes where it is; and, now
and then, walking or not, that it picks something up (`action == "pick-up"`) within its reach.
A follower looks for its leader where that one is in its first life, whatever became of it.
"""

from collections.abc import Iterator
from functools import cached_property
from heapq import merge
from itertools import count
from math import ceil
from random import Random

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.subscription import NodeId
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Time, line
from nearcast.space.shapes import Vector, box, point
from nearcast.workloads.cube import Cube
from nearcast.workloads.walker import RegionTimeline
from nearcast.workloads.workload import Scheduled, Workload, first_id, fits_identifiers

WIDTH, HEIGHT = 6.0, 4.0  # of the area of interest ([Evolving] section 3)
MOST_CANDIDATES = 100  # players whom one asks before it gives up looking for a leader
APPLE: dict[str, bool | int | float | str] = {"action": "pick-up", "object": "apple"}


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload mammoth."""

    # Side of the world in units, 1 to 1e9; players meet less often as it grows.
    size: float = 200.0
    # By how much the rectangle of 6 by 4 is enlarged, 0 to 1e9; neighbours grow with its square.
    scale: float = 5.0
    # Walking speed in units per second, size / 1e9 to 1,000 × size; neighbours change faster.
    speed: float = 5.0
    # Half the side in units, size / 1e6 to 1e9, of the square around a player from which it draws
    # its destination (what lies outside the world is moved to its border); moves take longer and
    # interests are said less often as it grows.
    stride: float = 100.0
    # Mean pause in seconds after a move, 0 to 1e6 (uniform between 0 and twice that).
    pause: float = 2.0
    # Share of players that follow another one, 0 to 1; crowds grow with it.
    follow: float = 0.2
    # Position updates per second of a walking player, above 0 to 1,000 (the game: 5 to 10).
    rate: float = 5.0
    # Pick-ups per second and player, 0 to 1,000; at random moments.
    pickups: float = 0.1
    # Bytes that a publication carries, 0 to 1,000,000; message sizes grow with it.
    payload: int = 32

    def __post_init__(self) -> None:
        between("size", self.size, 1, 1e9)
        between("scale", self.scale, 0, 1e9)
        between("speed", self.speed, self.size / 1e9, 1000 * self.size)
        between("stride", self.stride, self.size / 1e6, 1e9)
        between("pause", self.pause, 0, 1e6)
        between("follow", self.follow, 0, 1)
        between("rate", self.rate, 1e-6, 1000)
        between("pickups", self.pickups, 0, 1000)
        between("payload", self.payload, 0, 1_000_000)


class MammothPlayer:
    """One stay of one player. Commands and positions follow the same walk, each on its own."""

    def __init__(self, game: "Mammoth", entity: NodeId, stay: int, begins: Time) -> None:
        self.game, self.entity, self.stay, self.begins = game, entity, stay, begins

    def _stream(self, purpose: str) -> Random:
        return stream(self.game.seed, "mammoth", purpose, self.entity, self.stay)

    def moves(self) -> Iterator[Moving]:
        """From a uniform start on, move after move without end, each with its moment."""
        game, chosen, rng = self.game, self.game.parameters, self._stream("walk")
        leader = game.leader(self.entity)
        led = RegionTimeline(game.life(leader, 0, 0).moves()) if leader is not None else None
        here, since, first = game.cube.anywhere(rng), self.begins, True
        rx, ry = WIDTH / 2 * chosen.scale, HEIGHT / 2 * chosen.scale
        while True:
            there = _near(rng, here, chosen.stride) if led is None else _place(led, since)
            x, y, _ = there = game.cube.inside(there)
            move = line(box(here[0], here[1], rx, ry), there, chosen.speed).stamped(since)
            pause = round(rng.uniform(0, 2 * chosen.pause) * SECOND)
            if move.until > since or first:  # a first one may stand still, another is no move
                yield move
                here, first = (x, y, 0.0), False
            # Who follows somebody that stands still looks again after a while.
            since = move.until + max(pause, 1 if move.until > since else SECOND // 4)

    def _updates(self) -> Iterator[tuple[Time, bool]]:
        """When it says where it is: regularly while it walks, with a phase of its own, and when it
        has arrived."""
        period, phase = SECOND / self.game.parameters.rate, 1 - self._stream("phase").random()
        for move in self.moves():
            for number in count():
                t = move.since + ceil((number + phase) * period)
                if t >= move.until:
                    break
                yield t, False
            yield move.until, False

    def _pickups(self) -> Iterator[tuple[Time, bool]]:
        rng, rate, t = self._stream("hunger"), self.game.parameters.pickups, self.begins
        while rate:
            t += 1 + round(rng.expovariate(rate) * SECOND)
            yield t, True

    def commands(self) -> Iterator[Scheduled]:
        timeline, rng = RegionTimeline(self.moves()), self._stream("reach")
        first, payload = first_id(self.entity, self.stay), self.game.payload
        yield self.begins, Subscribe(first, timeline.region.stamped(0))
        moments = merge(self._updates(), self._pickups())
        for publication, (t, is_pickup) in enumerate(moments, first + 1):
            for move in timeline.until(t):
                yield move.since, Move(first, move.stamped(0))
            x, y, _ = _centre(timeline, t)
            if is_pickup:
                reach = self.game.parameters.scale
                place = point(x + rng.uniform(-reach, reach), y + rng.uniform(-reach, reach))
                yield t, Publish(publication, place, attributes=APPLE, payload=payload)
            else:
                yield t, Publish(publication, point(x, y), payload=payload)

    def position(self, t: Time) -> Vector:
        return _place(self._timeline, t)

    @cached_property
    def _timeline(self) -> RegionTimeline:
        return RegionTimeline(self.moves())


def _near(rng: Random, here: Vector, stride: float) -> Vector:
    return here[0] + rng.uniform(-stride, stride), here[1] + rng.uniform(-stride, stride), 0.0


def _place(timeline: RegionTimeline, t: Time) -> Vector:
    for _ in timeline.until(t):
        pass
    return _centre(timeline, t)


def _centre(timeline: RegionTimeline, t: Time) -> Vector:
    here = timeline.region.at(t)
    return here.x, here.y, here.z


class Mammoth(Struct, frozen=True):
    """A game whose players walk, pause and pick things up."""

    parameters: Parameters
    entities: int
    seed: int
    payload: bytes  # one for all publications

    @property
    def cube(self) -> Cube:
        return Cube(self.parameters.size, 2)

    @property
    def world(self) -> tuple[Vector, Vector]:
        return self.cube.corners

    def life(self, entity: NodeId, stay: int, begins: Time) -> MammothPlayer:
        return MammothPlayer(self, entity, stay, begins)

    def follows(self, entity: NodeId) -> bool:
        return stream(self.seed, "mammoth", "follows", entity).random() < self.parameters.follow

    def leader(self, entity: NodeId) -> NodeId | None:
        """Whom it follows: one who follows nobody, so that there are no circles."""
        if not self.follows(entity):
            return None
        rng = stream(self.seed, "mammoth", "leader", entity)
        others = rng.sample(range(self.entities), min(self.entities, MOST_CANDIDATES))
        return next((other for other in others if not self.follows(other)), None)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    moves = 4 * parameters.speed / parameters.stride  # per second, at most about
    fits_identifiers((parameters.rate + parameters.pickups + moves) * seconds)
    return Mammoth(parameters, entities, seed, bytes(parameters.payload))
