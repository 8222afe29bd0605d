"""A trace, replayed: each entity subscribes, moves and publishes as the trace says it did.

With more entities than the trace has, the others are copies: each follows a recorded entity, but
from another moment of the recording on and a little displaced, so that the same space becomes
denser. With fewer, some of the recorded ones take part. The seed decides which and when.
"""

import re
from collections.abc import Iterator
from functools import cache
from heapq import merge
from itertools import chain
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nearcast.field_checks import between
from nearcast.model.commands import Move, Publish, Subscribe, Unsubscribe, continue_region
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, NodeId, Region, Subscription
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.shapes import Shape, Vector
from nearcast.workloads.workload import NUMBERS, Scheduled, Workload, first_id

if TYPE_CHECKING:
    import pyarrow as pa

CLOCK = re.compile(r"\bt\b")  # in a formula or a filter


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload replayed."""

    # The trace: a folder or a URI.
    trace: str = ""
    # Seconds from the trace's first subscription or publication to the beginning of the replay,
    # 0 to 1e9.
    start_s: float = 0.0
    # Units, 0 to 1e15, by which copies are displaced at most; regions by formulas stay in place.
    displace: float = 0.0

    def __post_init__(self) -> None:
        if not self.trace:
            raise ValueError("a replayed workload needs its trace")
        between("start_s", self.start_s, 0, 1e9)
        between("displace", self.displace, 0, 1e15)


class InterestChange(NamedTuple):
    """From `t` on, this is in force; None: the subscription has ended. The regions and filters of
    subscriptions have the clock of the trace, `t` has that of the recording."""

    t: Time
    number: int  # of the subscription, among those of its entity
    subscription: Subscription | None


class Recording:
    """The commands of a trace by entity, in order of time; times count from the first of them."""

    def __init__(self, interests: "pa.Table", publications: "pa.Table") -> None:
        import pyarrow.compute as pc

        self.origin: Time = min(
            pc.min(table.column("t")).as_py() for table in (interests, publications) if len(table)
        )
        self.length: Time = max(
            pc.max(table.column("t")).as_py() - self.origin
            for table in (interests, publications)
            if len(table)
        )
        keys = [("node", "ascending"), ("t", "ascending")]
        self._interests, self._publications = interests.sort_by(keys), publications.sort_by(keys)
        self.nodes: list[NodeId] = sorted(
            {
                *pc.unique(interests["node"]).to_pylist(),
                *pc.unique(publications["node"]).to_pylist(),
            }
        )
        self._bounds = [
            (rows["node"].to_numpy(), rows) for rows in (self._interests, self._publications)
        ]
        self.changes = cache(self._changes)
        self.publications = cache(self._read_publications)

    def _rows_of(self, which: int, entity: int) -> list[dict[str, Any]]:
        nodes, rows = self._bounds[which]
        low = int(nodes.searchsorted(self.nodes[entity], "left"))
        high = int(nodes.searchsorted(self.nodes[entity], "right"))
        found: list[dict[str, Any]] = rows.slice(low, high - low).to_pylist()
        return found

    def _changes(self, entity: int) -> list[InterestChange]:
        """What the entity wanted, change by change."""
        from nearcast.trace.row_values import subscription_of

        numbers: dict[int, int] = {}
        return [
            InterestChange(
                row["t"] - self.origin,
                numbers.setdefault(row["subscription"], len(numbers)),
                subscription_of(row),
            )
            for row in self._rows_of(0, entity)
        ]

    def _read_publications(self, entity: int) -> list[tuple[Time, Publication]]:
        """What the entity published, with payloads of the recorded length."""
        from nearcast.trace.row_values import publication_of

        return [
            (row["t"] - self.origin, replace(publication_of(row), payload=blank(row["bytes"])))
            for row in self._rows_of(1, entity)
        ]


@cache
def blank(length: int) -> bytes:
    return bytes(length)


def clock_ahead(text: str, by: Time) -> str:
    """A formula whose `t` is ahead by so much."""
    return CLOCK.sub(f"(t + {by / SECOND!r})", text) if by else text


def region_at(region: Region, now: Time) -> Region:
    """A recorded region as a command would give it at `now`."""
    if isinstance(region, Formula):
        return Formula(clock_ahead(region.text, now - region.since))
    going = continue_region(region, now)
    assert isinstance(going, Moving), "a trace has the legs of a path one by one"
    return replace(going, since=0)


def filter_at(condition: Filter | None, now: Time) -> Filter | None:
    if condition is None or not condition.parsed.evolves:
        return condition and Filter(condition.text)
    return Filter(clock_ahead(condition.text, now - condition.since))


def displaced(region: Region, by: Vector) -> Region:
    if isinstance(region, Formula | Path) or not any(by):
        return region
    return replace(region, shape=moved_shape(region.shape, by))


def moved_shape(shape: Shape, by: Vector) -> Shape:
    return replace(shape, x=shape.x + by[0], y=shape.y + by[1], z=shape.z + by[2])


class ReplayedEntity:
    """One stay of one entity: what a recorded one did from `start` on."""

    def __init__(self, world: "Replayed", entity: NodeId, stay: int, begins: Time) -> None:
        self.recording = world.recording
        self.entity, self.start, self.displacement = world.role(entity)
        self.begins = begins
        self.first = first_id(entity, stay)

    def commands(self) -> Iterator[Scheduled]:
        interests = ((t, False, command) for t, command in self.interest_commands())
        publications = ((t, True, command) for t, command in self.publish_commands())
        for t, _, command in merge(interests, publications, key=lambda due: due[:2]):
            yield t, command

    def interest_commands(self) -> Iterator[Scheduled]:
        """What is in force at the beginning is subscribed to then; changes come at their times."""
        changes, from_ = self.recording.changes(self.entity), self.start + self.begins
        current: dict[int, Subscription | None] = {}
        coming = iter(changes)
        for change in coming:
            if change.t >= from_:
                coming = chain([change], coming)
                break
            current[change.number] = change.subscription
        for number, wanted in current.items():
            if wanted is not None:
                yield self.begins, self.subscribe(number, wanted, from_)
        for t, number, wanted in coming:
            before, current[number] = current.get(number), wanted
            if wanted is not None and before is not None and differs_by_region(before, wanted):
                yield t - self.start, Move(self.first + number, self.region(wanted, t))
            elif wanted is not None:
                yield t - self.start, self.subscribe(number, wanted, t)
            elif before is not None:
                yield t - self.start, Unsubscribe(self.first + number)

    def region(self, wanted: Subscription, t: Time) -> Region:
        return displaced(region_at(wanted.region, t + self.recording.origin), self.displacement)

    def subscribe(self, number: int, wanted: Subscription, t: Time) -> Subscribe:
        condition = filter_at(wanted.filter, t + self.recording.origin)
        region = self.region(wanted, t)
        return Subscribe(self.first + number, region, condition, wanted.channel, wanted.echo)

    def publish_commands(self) -> Iterator[Scheduled]:
        number = self.first + NUMBERS // 2  # the first half is for subscriptions
        for t, made in self.recording.publications(self.entity):
            if t >= self.start + self.begins:
                shape = moved_shape(made.shape, self.displacement)
                yield (
                    t - self.start,
                    Publish(number, shape, made.channel, made.attributes, made.payload),
                )
            number += 1

    def position(self, t: Time) -> Vector:
        """The centre of its first subscription, or else where it published last, or publishes
        first."""
        now = self.start + t
        here: Vector | None = None
        for change in self.recording.changes(self.entity):
            if change.t > now and here is not None:
                break
            region = change.subscription.region if change.subscription else None
            if change.number == 0 and isinstance(region, Moving):
                here = region.centre(max(now, change.t) + self.recording.origin)
        if here is None:
            for made_t, made in self.recording.publications(self.entity):
                if made_t > now and here is not None:
                    break
                here = made.shape.x, made.shape.y, made.shape.z
        x, y, z = here or (0.0, 0.0, 0.0)
        return x + self.displacement[0], y + self.displacement[1], z + self.displacement[2]


def differs_by_region(before: Subscription, after: Subscription) -> bool:
    """Is it the same but for its region? With a new formula, a filter's clock begins anew."""
    restarts = isinstance(after.region, Formula) and after.filter is not None
    return not restarts and replace(before, region=after.region) == after


class Replayed(Struct, frozen=True):
    """Entities that do what a trace says."""

    parameters: Parameters
    entities: int
    recording: Recording
    taken: list[int]  # which of the recorded ones take part
    spare: Time  # by how much a copy may begin after the beginning of the recording
    seed: int
    world: tuple[Vector, Vector]

    def life(self, entity: NodeId, stay: int, begins: Time) -> ReplayedEntity:
        return ReplayedEntity(self, entity, stay, begins)

    def role(self, entity: NodeId) -> tuple[int, Time, Vector]:
        """Whom the entity follows, from which moment on, and how far it is displaced."""
        original = self.taken[entity % len(self.taken)]
        if entity < len(self.taken):
            return original, round(self.parameters.start_s * SECOND), (0.0, 0.0, 0.0)
        draw = stream(self.seed, "copy", entity)
        start = draw.randint(0, self.spare)
        angle, away = draw.uniform(0, 2 * pi), self.parameters.displace * sqrt(draw.random())
        return original, start, (away * cos(angle), away * sin(angle), 0.0)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    """So many entities; 0 means as many as the trace has."""
    from nearcast.trace import reader

    trace = parameters.trace
    interests, publications = reader.read(trace, "interests"), reader.read(trace, "publications")
    if not len(interests) and not len(publications):
        raise ValueError(f"{trace} has neither subscriptions nor publications to replay")
    recording = Recording(interests, publications)
    start, length = round(parameters.start_s * SECOND), round(seconds * SECOND)
    if start > recording.length:
        raise ValueError(
            f"{trace} ends after {recording.length / SECOND:g} s; the replay cannot begin at"
            f" {parameters.start_s:g} s"
        )
    many = len(recording.nodes)
    taken = list(range(many))
    if 0 < entities < many:
        taken = sorted(stream(seed, "taken").sample(range(many), entities))
    spare = max(0, recording.length - length)
    return Replayed(
        parameters,
        entities or many,
        recording,
        taken,
        spare,
        seed,
        corners(interests, publications),
    )


def corners(interests: "pa.Table", publications: "pa.Table") -> tuple[Vector, Vector]:
    """Of the box around all places of the trace."""
    import numpy as np

    plain = interests.filter(interests["formula"].is_null())
    ends = []
    for axis in "xyz":
        places = np.concatenate([plain[axis].to_numpy(), publications[axis].to_numpy()])
        ends.append((float(places.min()), float(places.max())) if len(places) else (0.0, 0.0))
    (x, x2), (y, y2), (z, z2) = ends
    return (x, y, z), (x2, y2, z2)
