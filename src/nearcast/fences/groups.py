"""Fences that share an engine, and what their events mean to whoever asks about them.

Fences of subscriptions on one channel with the same filter are a group with one engine, which knows
the entities whose state on that channel the filter accepts. So are the fences of a set for all who
ask the same about it. A state that is accepted no longer counts as leaving, and one that is
accepted again as coming. Who is inside when a fence begins is no event; but when it changes,
whoever is in only one of the two areas enters or leaves.

A live node and the replay of its trace follow the same rules: these.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nearcast.fences.areas import ENTER_AND_LEAVE, NEVER, Fence, FenceColumns, columns_of
from nearcast.fences.events import (
    ENTER,
    FENCE_ADDED,
    FENCE_REMOVED,
    LEFT,
    NONE,
    FenceEvents,
    FixColumns,
    no_events,
)
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.near_pairs import NearPairs
from nearcast.model.subscription import region_evolves
from nearcast.space.motion import Time


class GroupKey(NamedTuple):
    """What those have in common who share an engine: about areas of subscriptions, channel and
    filter."""

    channel: str
    filter: str | None
    set_name: str = ""  # of a set: its name, and all that is asked about its fences
    kinds: int = 0
    dwell: Time = 0
    linger: Time = 0
    near: float = 0.0  # of pairs: the distance


def set_group(
    channel: str, condition: str | None, name: str, kinds: int, dwell: Time | None, linger: Time
) -> GroupKey:
    """The group of those who ask this about a set."""
    lasts = NEVER if dwell is None else dwell
    return GroupKey(channel, condition, name, kinds | ENTER_AND_LEAVE, lasts, linger)


def with_options(columns: FenceColumns, group: GroupKey) -> FenceColumns:
    """The fences of a set as a group asks about them."""
    areas = columns.areas.copy()
    areas["kinds"], areas["dwell"], areas["linger"] = group.kinds, group.dwell, group.linger
    return columns._replace(areas=areas)


def put_area(engine: FenceEngine, now: Time, fence: Fence) -> FenceEvents:
    """The area of a subscription is a fence from now on, or another one."""
    if region_evolves(fence.region) or fence.number in engine.moving.fences:
        return engine.put_moving([fence], now)
    return engine.put_fences(columns_of([fence], now), now)


def entered_or_left(events: FenceEvents) -> FenceEvents:
    """What has changed if an area was replaced by another, of which these are the events: the
    first was removed, or the second added, or both."""
    added, removed = events["reason"] == FENCE_ADDED, events["reason"] == FENCE_REMOVED
    stayed = np.intersect1d(events["entity"][added], events["entity"][removed])
    stays = np.isin(events["entity"], stayed) & (added | removed)
    events["kind"][added], events["reason"][added] = ENTER, NONE
    events["reason"][removed] = LEFT
    return events[~stays]


def put_in_set(engine: FenceEngine, now: Time, fences: FenceColumns) -> FenceEvents:
    """A set has these fences from now on: whoever is in one enters it."""
    if not len(fences.areas):
        return no_events()
    events = engine.put_fences(fences, now)
    added = events["reason"] == FENCE_ADDED
    events["kind"][added], events["reason"][added] = ENTER, NONE
    return events


def give_fixes(
    rules: FenceEngine | NearPairs, fixes: FixColumns, passes: Any
) -> Iterator[FenceEvents]:
    """Fixes that the filter of a group accepts (`passes`; None: all); the others end what their
    entities were to these fences, each at its own time.

    If an entity has several fixes, they are given in runs, because their order matters.
    """
    if passes is None:
        yield rules.fixes(fixes)
        return
    parts = [np.flatnonzero(passes), np.flatnonzero(~passes)]
    if len(np.unique(fixes.entity)) < len(fixes.entity):
        cuts = np.flatnonzero(np.diff(passes.astype(np.int8))) + 1
        parts = np.split(np.arange(len(passes)), cuts)
    for part in parts:
        if len(part) and passes[part[0]]:
            yield rules.fixes(fixes.part(part))
        elif len(part):
            some, t = fixes.entity[part], fixes.t[part]
            for same in np.split(np.arange(len(part)), np.flatnonzero(np.diff(t)) + 1):
                now = int(t[same[0]])
                if rules.due() < now:
                    yield rules.advance(now - 1)
                yield rules.withdraw(some[same], now, LEFT)
