"""The fences that a trace tells of, as changes in the order of their times.

A subscription asks for events at its own area, or at all fences of a set. Areas and sets change
while subscriptions to them go on.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from nearcast.fences.areas import Fence, FenceColumns, columns_of
from nearcast.space.motion import FOREVER, Moving, Path, Time
from nearcast.trace.row_values import shape_of
from nearcast.trace.schema import FENCE_KINDS

Row: TypeAlias = Mapping[str, Any]
SetMember: TypeAlias = tuple[str, str]  # a set, and a feature's id as JSON


class FenceInterest(NamedTuple):
    """Who is told what, from the moment of its change until `until`."""

    subscription: int
    node: int
    set_name: str | None
    kinds: int  # bits: 1 << kind
    dwell: Time | None
    linger: Time
    channel: str
    filter: str | None
    echo: bool
    until: Time
    area: Moving | Path | None  # if it is of no set


class InterestEnds(NamedTuple):
    """Nobody is told any more what concerns this subscription."""

    subscription: int


class SetChanges(NamedTuple):
    """Fences of a set that end, and others that have these areas from then on."""

    name: str
    gone: list[int]
    put: dict[int, Fence]
    columns: FenceColumns


class AreaChanges(NamedTuple):
    """A subscription has another area."""

    subscription: int
    area: Moving | Path


Change: TypeAlias = InterestEnds | SetChanges | FenceInterest | AreaChanges
_ORDER = (InterestEnds, SetChanges, FenceInterest, AreaChanges)  # at one moment


class FenceHistory(NamedTuple):
    """All changes with their times, in order, and the ids of the fences of sets by number."""

    changes: list[tuple[Time, Change]]
    fences: list[SetMember]

    @property
    def groups(self) -> set[tuple[str, str | None]]:
        """The channels and filters whose states matter."""
        found = (change for _, change in self.changes if isinstance(change, FenceInterest))
        return {(one.channel, one.filter) for one in found}


def fence_history(interests: pa.Table, areas: pa.Table) -> FenceHistory:
    """From the rows of `fence_interests` and `fence_areas` of one run."""
    by_owner = pa.compute.is_valid(areas.column("subscription"))
    own = _own_areas(areas.filter(by_owner).to_pylist())
    fences: dict[SetMember, int] = {}
    changes: list[tuple[Time, Change]] = _set_changes(
        areas.filter(pa.compute.invert(by_owner)).to_pylist(), fences
    )
    for interest in _interests(interests.to_pylist(), own):
        changes.append(interest)
    changes += [(t, AreaChanges(subscription, area)) for (subscription, t), area in own.items()]
    changes.sort(key=lambda one: (one[0], _ORDER.index(type(one[1]))))
    return FenceHistory(changes, list(fences))


def _own_areas(rows: Iterable[Row]) -> dict[tuple[int, Time], Moving | Path]:
    """The areas of subscriptions; several rows of one moment are the legs of a path."""
    order = sorted(rows, key=lambda row: (row["subscription"], row["t"], row["since"]))
    found: dict[tuple[int, Time], Moving | Path] = {}
    for key, some in groupby(order, key=lambda row: (row["subscription"], row["t"])):
        legs = tuple(map(_leg, some))
        found[key] = legs[0] if len(legs) == 1 else Path(legs)
    return found


def _leg(row: Row) -> Moving:
    until, since = row["until"], row["since"]
    return Moving(
        shape_of(row),
        (row["vx"], row["vy"], row["vz"]),
        (row["gx"], row["gy"], row["gz"]),
        None if until is None else until - since,
        since,
    )


def _set_changes(rows: Iterable[Row], fences: dict[SetMember, int]) -> list[tuple[Time, Change]]:
    """What changes in which set, and when; each fence gets a number."""
    order = sorted(rows, key=lambda row: (row["t"], row["set"]))
    changes: list[tuple[Time, Change]] = []
    for (t, name), some in groupby(order, key=lambda row: (row["t"], row["set"])):
        gone: list[int] = []
        put: dict[int, Fence] = {}
        for row in some:
            number = fences.setdefault((name, row["fence"]), len(fences))
            if row["ended"]:
                gone.append(number)
            else:
                put[number] = Fence(number, Moving(shape_of(row)))
        changes.append((t, SetChanges(name, gone, put, columns_of(list(put.values()), t))))
    return changes


def _interests(
    rows: Iterable[Row], own: dict[tuple[int, Time], Moving | Path]
) -> Iterable[tuple[Time, Change]]:
    """Each takes its first area out of `own`."""
    order = sorted(rows, key=lambda row: (row["subscription"], row["t"], not row["ended"]))
    for row, later in zip(order, [*order[1:], None], strict=False):
        number, t = row["subscription"], row["t"]
        if row["ended"]:
            yield t, InterestEnds(number)
            continue
        until = FOREVER
        if later is not None and later["subscription"] == number:
            until = later["t"]
        area = own.pop((number, t), None)
        if row["set"] is None and area is None:
            continue  # a row of it is damaged: nothing is known of it
        yield t, FenceInterest(
            number, row["node"], row["set"], _kinds(row["events"]), row["dwell"], row["linger"],
            row["channel"], row["filter"], row["echo"], until, area,
        )  # fmt: skip


def _kinds(events: str) -> int:
    return sum(1 << FENCE_KINDS.index(name) for name in events.split(",") if name)
