"""Movement recorded elsewhere, replayed: each entity follows its fixes from a file.

The recording's first fix is the workload's beginning. An entity appears with its first fix; one
that joins later than that (churn) appears where the recording has it at that moment. Between fixes
it moves straight from one to the next. Nothing is left to chance.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.subscription import NodeId
from nearcast.space.motion import SECOND, STILL, Moving, Time
from nearcast.space.shapes import Vector, ball, point
from nearcast.workloads.workload import Scheduled, Workload, first_id

if TYPE_CHECKING:
    from nearcast.workloads.fixes import Fix, Fixes


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload recorded."""

    # The recording: CSV if its name ends in .csv, otherwise Parquet; columns t (seconds), entity
    # (integers or strings), x, y and, for a 3-D world, z.
    file: str = ""
    # Radius of the area of interest in the file's unit, 0 to 1e15; neighbours grow with its square.
    # 0: one hundredth of the longest side of the space that the recording fills.
    radius: float = 0.0
    # How many recorded seconds pass in one second, 0.000001 to 1,000,000; rate and speed grow.
    faster: float = 1.0
    # steps: at each fix the disc is moved there. line: it moves by itself from fix to fix.
    motion: str = "steps"
    # Bytes that a publication carries, 0 to 1,000,000; message sizes grow with it.
    payload: int = 64

    def __post_init__(self) -> None:
        if not self.file:
            raise ValueError("a recorded workload needs its file")
        between("radius", self.radius, 0, 1e15)
        between("faster", self.faster, 1e-6, 1e6)
        one_of("motion", self.motion, ("steps", "line"))
        between("payload", self.payload, 0, 1_000_000)


def leg(here: "Fix", there: "Fix", radius: float) -> Moving:
    """Straight from one fix to the next, arriving there at its time."""
    (t, x, y, z), (arrival, to_x, to_y, to_z) = here, there
    per_second = SECOND / (arrival - t)
    velocity = (to_x - x) * per_second, (to_y - y) * per_second, (to_z - z) * per_second
    return Moving(ball(x, y, z, radius), velocity, STILL, arrival - t)


class RecordedEntity:
    """One stay of one entity."""

    def __init__(self, recording: "Recorded", entity: NodeId, stay: int, begins: Time) -> None:
        self.recording, self.fixes, self.begins = recording, recording.fixes, begins
        self.first = first_id(entity, stay)
        self.row = recording.order[entity]  # its number among the file's sorted names

    def commands(self) -> Iterator[Scheduled]:
        low, high = self.fixes.rows(self.row)
        start = self.fixes.first_from(self.row, self.begins)
        stops = self.fixes.between(start, high)
        # Who joins between two fixes listens from then on, and speaks first at the next fix.
        late = start > low and (start == high or self.fixes.t[start] != self.begins)
        if late:
            stops = chain([(self.begins, *self.position(self.begins))], stops)
        steps = self.recording.parameters.motion == "steps"
        for number, ((t, x, y, z), region) in enumerate(self.regions(stops)):
            if number == 0:
                yield t, Subscribe(self.first, region)
            elif steps or region.moves:  # otherwise it stays where it has arrived
                yield t, Move(self.first, region)
            if number > 0 or not late:
                payload = self.recording.payload
                yield t, Publish(self.first + 1 + number, point(x, y, z), payload=payload)

    def regions(self, stops: "Iterator[Fix]") -> "Iterator[tuple[Fix, Moving]]":
        """Each stop, with the region that begins there."""
        radius = self.recording.radius
        here = next(stops)
        for there in stops:
            if self.recording.parameters.motion == "steps":
                yield here, Moving(ball(*here[1:], radius))
            else:
                yield here, leg(here, there, radius)
            here = there
        yield here, Moving(ball(*here[1:], radius))

    def position(self, t: Time) -> Vector:
        """By the recording; before the first fix and after the last, it stands there."""
        low, high = self.fixes.rows(self.row)
        after = min(self.fixes.first_from(self.row, t), high - 1)
        here, *beyond = self.fixes.between(max(after - 1, low), after + 1)
        if not beyond:
            return here[1:]
        shape = leg(here, beyond[0], 0.0).stamped(here[0]).at(t)
        return shape.x, shape.y, shape.z


class Recorded(Struct, frozen=True):
    """Entities that follow recorded positions."""

    parameters: Parameters
    entities: int
    fixes: "Fixes"
    order: list[int]  # the entities' numbers among the file's sorted names
    world: tuple[Vector, Vector]
    radius: float
    payload: bytes  # one for all publications

    def life(self, entity: NodeId, stay: int, begins: Time) -> RecordedEntity:
        if entity >= len(self.order):
            raise ValueError(
                f"{self.parameters.file} holds {len(self.order):,} entities;"
                f" there is no recording for one more"
            )
        return RecordedEntity(self, entity, stay, begins)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    """The first `entities` to appear in the recording; 0 means all of them.

    Those taken come first, by their sorted names; the others follow as newcomers for churn.
    """
    del seconds, seed  # a recording is as long as it is, and leaves nothing to chance
    from nearcast.workloads.fixes import read  # Arrow is loaded only when a file is opened

    fixes = read(parameters.file, parameters.faster)
    if not 0 <= entities <= fixes.entities:
        raise ValueError(
            f"{parameters.file} holds {fixes.entities:,} entities; {entities:,} were asked for"
        )
    taken = entities or fixes.entities
    appeared = sorted(range(fixes.entities), key=lambda number: int(fixes.t[fixes.starts[number]]))
    order = sorted(appeared[:taken]) + sorted(appeared[taken:])
    low, high = fixes.corners
    longest = max(end - begin for begin, end in zip(low, high, strict=True))
    radius = parameters.radius or longest / 100
    payload = bytes(parameters.payload)
    return Recorded(parameters, taken, fixes, order, (low, high), radius, payload)
