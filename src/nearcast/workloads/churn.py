"""Churn: a slow arrival, steady churn, flash crowds that stay or leave, a crash of many at once.

Only the comings and goings are made here; what a newcomer does is a life of the movement workload,
as for any other number. Who would arrive after the end of the run never does; a crowd, a crash or
churn set to begin after the end is refused, as it must be a mistake.
"""

from collections.abc import Iterator
from enum import Enum, IntEnum
from heapq import merge
from itertools import count, takewhile
from math import ceil

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.model.subscription import NodeId
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Time
from nearcast.workloads.workload import first_id


class ChurnAction(Enum):
    """What an entity does."""

    JOIN = "join"
    LEAVE = "leave"
    CRASH = "crash"


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for entities that come and go."""

    # Entities per second that join at the beginning, 0 to 1e6; 0: all at once at the beginning.
    join_rate: float = 0.0
    # Exchanges per second, 0 to 100,000: one entity goes and a new one joins; repair grows with it.
    churn_rate: float = 0.0
    # Seconds from the beginning between which churn happens, 0 to 1e7; until = 0: to the end.
    churn_from: float = 0.0
    churn_until: float = 0.0
    # leave or crash: does an entity that goes announce it?
    churn_by: str = "leave"
    # Seconds until the crowd comes, 0 to 1e7, and how many new entities it is, 0 to 1,000,000.
    flash_at: float = 0.0
    flash_nodes: int = 0
    # Seconds for which a crowd stays, 0 to 1e7; 0: it does not leave together.
    flash_s: float = 0.0
    # Seconds after which another crowd comes, 0 to 1e7, at least flash_s; 0: there is one crowd.
    flash_every: float = 0.0
    # Seconds until many crash at once, 0 to 1e7, and the share of those present, 0 to 1; one always
    # survives.
    crash_at: float = 0.0
    crash_share: float = 0.0
    # Seconds until all servers crash, 0 to 1e7, brokers, a gateway or whatever they are; 0: never.
    # From then on there are entities alone, and what nodes of theirs cannot do nobody does.
    servers_until: float = 0.0

    def __post_init__(self) -> None:
        between("join_rate", self.join_rate, 0, 1e6)
        between("churn_rate", self.churn_rate, 0, 1e5)
        between("churn_from", self.churn_from, 0, 1e7)
        between("churn_until", self.churn_until, 0, 1e7)
        if 0 < self.churn_until < self.churn_from:
            raise ValueError(
                f"churn_until ({self.churn_until}) is before churn_from ({self.churn_from})"
            )
        one_of("churn_by", self.churn_by, ("leave", "crash"))
        between("flash_at", self.flash_at, 0, 1e7)
        between("flash_nodes", self.flash_nodes, 0, 1_000_000)
        between("flash_s", self.flash_s, 0, 1e7)
        between("flash_every", self.flash_every, 0, 1e7)
        if 0 < self.flash_every < max(self.flash_s, 1e-3):
            raise ValueError(
                f"flash_every ({self.flash_every}) must be at least flash_s ({self.flash_s})"
            )
        between("crash_at", self.crash_at, 0, 1e7)
        between("crash_share", self.crash_share, 0, 1)
        between("servers_until", self.servers_until, 0, 1e7)


class ChurnCause(IntEnum):
    """Why an entity joins or goes; at the same moment, in this order."""

    ARRIVAL = 0
    FLASH_ENDS = 1
    FLASH = 2
    EXCHANGE = 3
    CRASH = 4


MOST = 2**53 // first_id(1, 0)  # entities whose identifiers stay below 2^53


def population(
    parameters: Parameters, entities: int, seconds: float, seed: int
) -> Iterator[tuple[Time, NodeId, ChurnAction]]:
    """All joins, leaves and crashes of a run, in order of time.

    Newcomers have the numbers `entities`, `entities` + 1, … An exchange lets the newcomer in before
    the other goes, so from the first moment on somebody is always there.
    """
    between("entities", entities, 1, MOST)
    chosen = parameters
    moments = {
        "churn_from": (chosen.churn_rate, chosen.churn_from),
        "flash_at": (chosen.flash_nodes, chosen.flash_at),
        "crash_at": (chosen.crash_share, chosen.crash_at),
        "servers_until": (chosen.servers_until, chosen.servers_until),
    }
    for name, (wanted, moment) in moments.items():
        if wanted and moment >= seconds:
            raise ValueError(f"{name} ({moment} s) is not within the run of {seconds} s")
    last = min(chosen.churn_until or seconds, seconds)
    exchanged = ceil(chosen.churn_rate * max(last - chosen.churn_from, 0))
    crowds = 1
    if chosen.flash_every:
        crowds += int(max(seconds - chosen.flash_at, 0) / chosen.flash_every)
    if entities + crowds * chosen.flash_nodes + exchanged > MOST:
        raise ValueError(f"with its newcomers the run would have more than {MOST:,} entities")
    return _draw_actions(chosen, entities, seconds, seed)


def _draw_actions(
    chosen: Parameters, entities: int, seconds: float, seed: int
) -> Iterator[tuple[Time, NodeId, ChurnAction]]:
    present: list[NodeId] = []
    crowd = range(0)  # of the last flash
    arrivals, newcomers = count(), count(entities)
    how = ChurnAction.LEAVE if chosen.churn_by == "leave" else ChurnAction.CRASH
    victims, crashed = stream(seed, "churn", "victims"), stream(seed, "churn", "crash")
    for t, cause in _schedule_causes(chosen, entities, seconds, seed):
        match cause:
            case ChurnCause.ARRIVAL:
                present.append(next(arrivals))
                yield t, present[-1], ChurnAction.JOIN
            case ChurnCause.EXCHANGE:
                place = victims.randrange(len(present))
                gone, present[place] = present[place], next(newcomers)
                yield t, present[place], ChurnAction.JOIN
                yield t, gone, how
            case ChurnCause.FLASH:
                first = next(newcomers)
                crowd = range(first, first + chosen.flash_nodes)
                newcomers = count(crowd.stop)
                present += crowd
                yield from ((t, entity, ChurnAction.JOIN) for entity in crowd)
            case ChurnCause.FLASH_ENDS:
                staying = [entity for entity in present if entity not in crowd] or present[:1]
                leaving, present = [e for e in present if e in crowd and e != staying[0]], staying
                yield from ((t, entity, ChurnAction.LEAVE) for entity in leaving)
            case ChurnCause.CRASH:
                many = min(round(chosen.crash_share * len(present)), len(present) - 1)
                crashed.shuffle(present)
                yield from ((t, entity, ChurnAction.CRASH) for entity in present[:many])
                del present[:many]


def _schedule_causes(
    chosen: Parameters, entities: int, seconds: float, seed: int
) -> Iterator[tuple[Time, ChurnCause]]:
    end = int(seconds * SECOND)
    spacing = SECOND / chosen.join_rate if chosen.join_rate else 0.0
    arrivals = ((int(number * spacing), ChurnCause.ARRIVAL) for number in range(entities))
    flashes = _schedule_flashes(chosen, end) if chosen.flash_nodes else ()
    crash = [(int(chosen.crash_at * SECOND), ChurnCause.CRASH)] if chosen.crash_share else []
    everything = merge(arrivals, flashes, _schedule_exchanges(chosen, end, seed), crash)
    return takewhile(lambda happening: happening[0] < end, everything)


def _schedule_flashes(chosen: Parameters, end: Time) -> Iterator[tuple[Time, ChurnCause]]:
    """Crowds come, and leave; who was exchanged meanwhile has left already."""
    t, stays, every = (
        int(seconds * SECOND) for seconds in (chosen.flash_at, chosen.flash_s, chosen.flash_every)
    )
    while t < end:
        yield t, ChurnCause.FLASH
        if stays:
            yield t + stays, ChurnCause.FLASH_ENDS
        if not every:
            return
        t += every


def _schedule_exchanges(
    chosen: Parameters, end: Time, seed: int
) -> Iterator[tuple[Time, ChurnCause]]:
    """One exchange in each period 1/churn_rate, at a moment drawn uniformly within it."""
    if not chosen.churn_rate:
        return
    rng = stream(seed, "churn", "moments")
    last = min(int(chosen.churn_until * SECOND) or end, end)
    for number in count():
        t = int((chosen.churn_from + (number + rng.random()) / chosen.churn_rate) * SECOND)
        if t >= last:
            return
        yield t, ChurnCause.EXCHANGE
