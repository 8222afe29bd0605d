"""The events of which a recorded run should have told: its states go through engines again.

The rules by which events concern subscriptions are those of a live node (`fences.groups`).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import count
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from nearcast.columns import writable
from nearcast.fences.areas import ENTER_AND_LEAVE, NEVER, Fence, columns_of
from nearcast.fences.events import CROSS, FENCE_ADDED, LEAVE, FenceEvents, FixColumns
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.groups import (
    GroupKey,
    entered_or_left,
    give_fixes,
    put_area,
    put_in_set,
    set_group,
    with_options,
)
from nearcast.model.subscription import Filter
from nearcast.pipeline.geofence.recorded_fences import (
    AreaChanges,
    Change,
    FenceHistory,
    FenceInterest,
    InterestEnds,
    SetChanges,
)
from nearcast.space.motion import Moving, Path, Time
from nearcast.trace.row_values import plain_attributes
from nearcast.trace.schema import FENCE_KINDS, LEAVE_REASONS

# Subscriber, subscription, fence of a set, entity, kind, reason, time, end of a crossing, when it
# was decided, and until when the subscription was in force.
ExpectedEvent: TypeAlias = tuple[
    int, int, str | None, int, str, str | None, Time, Time | None, Time, Time
]


class ReplayedGroup:
    """An engine and who is told of its events: by fence, or of all fences of a set."""

    def __init__(self, engine: FenceEngine, set_name: str | None = None) -> None:
        self.engine, self.set_name = engine, set_name
        self.listeners: dict[int, FenceInterest] = {}

    def who(self, fence: int) -> Iterable[FenceInterest]:
        return self.listeners.values() if self.set_name is not None else (self.listeners[fence],)


class FenceReplay:
    """The states of some entities of a run, among all its fences, in order of time."""

    def __init__(self, history: FenceHistory, earth: bool) -> None:
        self.expected: list[ExpectedEvent] = []  # for whoever takes them away
        self._earth, self._fences = earth, history.fences
        self._changes = deque(history.changes)
        # Fences of subscriptions; and where everybody is, for engines of sets that begin later.
        self._single = {key: ReplayedGroup(FenceEngine(earth)) for key in history.groups}
        self._filters = {text: Filter(text) for _, text in history.groups if text is not None}
        self._of_sets: dict[GroupKey, ReplayedGroup] = {}
        self._sets: dict[str, dict[int, Fence]] = {}
        self._interests: dict[int, FenceInterest] = {}
        self._fence_numbers: dict[int, int] = {}  # by subscription, if it is a fence itself
        self._free_numbers = count(len(history.fences))
        self._known: dict[tuple[int, str], int] = {}  # numbers by entity and channel
        self._entities: list[int] = []  # by number
        self._states: list[int] = []  # by number: the publication that is the state
        self._numbers_of_states: dict[int, int] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        """States that are made or end, sorted by time and publication."""
        t = batch.column("t").to_numpy()
        ended = np.flatnonzero(batch.column("ended").to_numpy(zero_copy_only=False))
        place, ends = 0, deque([*ended.tolist(), len(t)])
        while place < len(t):
            due = self._changes[0][0] if self._changes else NEVER
            stop = min(int(np.searchsorted(t, due)), ends[0])
            if stop > place:
                self._move(batch.slice(place, stop - place))
                place = stop
            elif due <= t[place]:
                self._change(*self._changes.popleft())
            else:
                self._end(int(t[place]), batch.column("publication")[place].as_py())
                ends.popleft()
                place += 1

    def finish(self, until: Time) -> None:
        """What happens up to and including this moment without a state."""
        while self._changes and self._changes[0][0] <= until:
            self._change(*self._changes.popleft())
        self._advance(until + 1)

    # States.

    def _move(self, batch: pa.RecordBatch) -> None:
        fixes = self._fixes(batch)
        channels = batch.column("channel").dictionary_encode()
        names = channels.dictionary.to_pylist()
        for group_key, base in self._single.items():
            channel, condition = group_key
            if channel not in names:
                continue
            there = np.flatnonzero(channels.indices.to_numpy() == names.index(channel))
            some = fixes.part(there) if len(names) > 1 else fixes
            passes = None
            if condition is not None:
                texts = batch.column("attributes").take(pa.array(there)).to_pylist()
                accepts = self._filters[condition].accepts
                passes = np.array([accepts(plain_attributes(text), 0) for text in texts])
            for group in self._sharing(group_key, base):
                for events in give_fixes(group.engine, some, passes):
                    self._report(group, events)

    def _sharing(self, key: tuple[str, str | None], base: ReplayedGroup) -> Iterator[ReplayedGroup]:
        yield base
        for other, group in self._of_sets.items():
            if (other.channel, other.filter) == key:
                yield group

    def _fixes(self, batch: pa.RecordBatch) -> FixColumns:
        t = writable(batch.column("t").to_numpy(), np.int64)
        ttl = writable(batch.column("ttl").fill_null(NEVER).to_numpy(), np.int64)
        columns = (batch.column(name).to_pylist() for name in ("node", "channel", "publication"))
        numbers = [self._state(*row) for row in zip(*columns, strict=True)]
        places = np.stack([batch.column(axis).to_numpy() for axis in "xyz"], 1)
        heights = writable(batch.column("height").fill_null(np.nan).to_numpy(), np.float64)
        return FixColumns(np.array(numbers, np.int64), t, places, heights, ttl)

    def _state(self, node: int, channel: str, publication: int) -> int:
        """This publication is the state of an entity now; the number of the entity."""
        number = self._known.get((node, channel))
        if number is None:
            number = self._known[node, channel] = len(self._entities)
            self._entities.append(node)
            self._states.append(publication)
        else:
            self._numbers_of_states.pop(self._states[number], None)
            self._states[number] = publication
        self._numbers_of_states[publication] = number
        return number

    def _end(self, t: Time, publication: int) -> None:
        """This state was withdrawn, unless another one has replaced it."""
        number = self._numbers_of_states.pop(publication, None)
        if number is None:
            return
        self._advance(t)
        for group in self._groups():
            self._report(group, group.engine.withdraw([number], t))

    def _groups(self) -> Iterator[ReplayedGroup]:
        yield from self._single.values()
        yield from self._of_sets.values()

    def _advance(self, t: Time) -> None:
        """What is decided before this moment."""
        for group in self._groups():
            if group.engine.due() < t:
                self._report(group, group.engine.advance(t - 1))

    # Fences.

    def _change(self, t: Time, change: Change) -> None:
        self._advance(t)
        if isinstance(change, SetChanges):
            self._change_set(t, change)
        elif isinstance(change, AreaChanges):
            self._change_area(t, change)
        elif isinstance(change, FenceInterest):
            self._end_interest(t, change.subscription)
            self._begin_interest(t, change)
        else:
            assert isinstance(change, InterestEnds)
            self._end_interest(t, change.subscription)

    def _begin_interest(self, t: Time, interest: FenceInterest) -> None:
        """Who is inside is told at once, and no event; but they may dwell already."""
        number = interest.subscription
        self._interests[number] = interest
        if interest.set_name is None:
            group = self._single[interest.channel, interest.filter]
            fence = self._fence_numbers[number] = next(self._free_numbers)
            group.listeners[fence] = interest
            assert interest.area is not None
            events = put_area(group.engine, t, fence_of(fence, interest, interest.area))
            self._report(group, events[events["reason"] != FENCE_ADDED])
            return
        key = group_key(interest)
        known = self._of_sets.get(key)
        if known is not None:
            known.listeners[number] = interest
            return
        engine = FenceEngine(self._earth)
        engine.last = deepcopy(self._single[key[:2]].engine.last)
        group = self._of_sets[key] = ReplayedGroup(engine, interest.set_name)
        group.listeners[number] = interest
        members = columns_of(list(self._sets.get(interest.set_name, {}).values()), t)
        events = engine.put_fences(with_options(members, key), t)
        self._report(group, events[events["reason"] != FENCE_ADDED])

    def _end_interest(self, t: Time, subscription: int) -> None:
        interest = self._interests.pop(subscription, None)
        if interest is None:
            return
        if interest.set_name is None:
            group = self._single[interest.channel, interest.filter]
            fence = self._fence_numbers.pop(subscription)
            group.engine.remove_fences([fence], t)
            del group.listeners[fence]
            return
        key = group_key(interest)
        del self._of_sets[key].listeners[subscription]
        if not self._of_sets[key].listeners:
            del self._of_sets[key]

    def _change_area(self, t: Time, change: AreaChanges) -> None:
        """Whoever is in only one of the two areas enters or leaves."""
        interest = self._interests.get(change.subscription)
        if interest is None or interest.set_name is not None:
            return
        group = self._single[interest.channel, interest.filter]
        number = self._fence_numbers[change.subscription]
        events = put_area(group.engine, t, fence_of(number, interest, change.area))
        self._report(group, entered_or_left(events))

    def _change_set(self, t: Time, change: SetChanges) -> None:
        members = self._sets.setdefault(change.name, {})
        for key, group in self._of_sets.items():
            if key.set_name == change.name:
                self._report(group, group.engine.remove_fences(change.gone, t))
                put = with_options(change.columns, key)
                self._report(group, put_in_set(group.engine, t, put))
        for number in change.gone:
            members.pop(number, None)
        members.update(change.put)

    # Events.

    def _report(self, group: ReplayedGroup, events: FenceEvents) -> None:
        if not len(events) or not group.listeners:
            return
        names = ("t", "fix_t", "entity", "fence", "kind", "reason", "t_out")
        columns = (events[name].tolist() for name in names)
        for t, decided, number, fence, kind, reason, t_out in zip(*columns, strict=True):
            entity = self._entities[number]
            feature = None if group.set_name is None else self._fences[fence][1]
            for one in group.who(fence):
                if one.kinds & 1 << kind and (entity != one.node or one.echo):
                    self.expected.append((
                        one.node, one.subscription, feature, entity, FENCE_KINDS[kind],
                        LEAVE_REASONS[reason - 1] if kind == LEAVE else None, t,
                        t_out if kind == CROSS else None, decided, one.until,
                    ))  # fmt: skip


def group_key(interest: FenceInterest) -> GroupKey:
    """Of somebody who asks about a set."""
    assert interest.set_name is not None
    return set_group(
        interest.channel, interest.filter, interest.set_name, interest.kinds, interest.dwell,
        interest.linger,
    )  # fmt: skip


def fence_of(number: int, interest: FenceInterest, area: Moving | Path) -> Fence:
    """The area of a subscription as a fence."""
    kinds = interest.kinds | ENTER_AND_LEAVE
    return Fence(number, area, kinds, interest.dwell, interest.linger)
