"""Fence events of a live node: retained states are fixes, areas of subscriptions are fences.

`nearcast.fences` decides what happens; here it is decided whom that concerns. Fences on one channel
with the same filter are a group with one engine, which knows the entities whose state on that
channel the filter accepts. So are the fences of a set for all who ask the same about it. A state
that is accepted no longer counts as leaving, and one that is accepted again as coming, so the
filter and the area are judged alike, at every fix.

Engines know entities by numbers that are not used again while an engine may still have something to
report about them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from math import inf, isnan, nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, Geometry
from nearcast.client_protocol.limits import LONGEST_LINGER
from nearcast.client_protocol.messages import FeatureId
from nearcast.columns import SlotAllocator
from nearcast.errors import Refused
from nearcast.fences.areas import ENTER_AND_LEAVE, NEVER, Fence, FenceColumns, columns_of
from nearcast.fences.event_columns import write_events
from nearcast.fences.events import (
    FENCE_ADDED,
    FENCE_REMOVED,
    FenceEvents,
    FenceKind,
    FixColumns,
    LeaveReason,
)
from nearcast.fences.fence_index import COMES
from nearcast.fences.fence_state import FenceEngine
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Integers
from nearcast.model.subscription import Formula, Subscription, region_evolves
from nearcast.service.client_state import ActiveSubscription, ClientState, FenceOptions
from nearcast.service.fence_sets import FenceSet, PreparedFences
from nearcast.service.presence import ALL_PLACES
from nearcast.service.retained_state import (
    FeedEnded,
    RetainedStates,
    StatesMade,
    publication_batch,
)
from nearcast.space.earth import lon_lat
from nearcast.space.motion import FOREVER, SECOND, Moving, Path, Time
from nearcast.space.shapes import LARGEST

NOBODY = -1  # as subscriber: nobody's own publications
FILTERS = 256  # different ones of fences on one node: each state is judged by all of them
KIND_NAMES: tuple[messages.FenceEventName, ...] = (
    "leave", "cross", "enter", "dwell", "inside", "outside",
)  # fmt: skip
REASONS: dict[int, messages.LeaveReasonName] = {
    LeaveReason.LEFT: "left",
    LeaveReason.EXPIRED: "expired",
    LeaveReason.GONE: "gone",
    LeaveReason.FENCE_REMOVED: "removed",
}
SET_GROUPS = 256  # of one node: each has an engine with all fences of its set
# Channel and filter; of a set also its name, kinds, dwell and linger.
GroupKey: TypeAlias = tuple[str, str | None, str, int, Time, Time]
ToldNotices: TypeAlias = list[tuple[ClientState, messages.FenceNotice]]


class FenceListener(NamedTuple):
    """Who is told about a fence, and which kinds of events, as bits."""

    client: ClientState
    active: ActiveSubscription
    kinds: int

    def counts(self, entity: "FenceEntity") -> bool:
        """A client's own entity counts if it also wants its own publications."""
        return entity.entity != self.client.entity or self.active.subscription.echo


class FenceEntity(NamedTuple):
    """Whom a number of the engines stands for: one entity on one channel."""

    feed: int
    entity: int
    name: str


class InFence(NamedTuple):
    """A feed whose entity is inside of a fence, and which one of a set that is."""

    feed: int
    fence: FeatureId | None


class FenceGroup:
    """Fences with the same channel and filter, of single subscriptions or of a set."""

    def __init__(self, number: int, key: GroupKey, earth: bool) -> None:
        self.engine = FenceEngine(earth)
        self.number, self.key = number, key
        self.channel, self.filter, self.set_name = key[:3]
        self.listeners: dict[int, FenceListener] = {}  # by fence, or by subscription slot of a set

    def who(self, fence: int) -> Iterable[FenceListener]:
        """Whoever listens to this fence."""
        return self.listeners.values() if self.set_name else (self.listeners[fence],)

    def with_options(self, columns: FenceColumns) -> FenceColumns:
        """The fences of a set as this group asks about them."""
        areas = columns.areas.copy()
        areas["kinds"], areas["dwell"], areas["linger"] = self.key[3:]
        return columns._replace(areas=areas)


class FeedNumbers:
    """The numbers by which engines know feeds."""

    def __init__(self) -> None:
        self.entities: dict[int, FenceEntity] = {}
        self._numbers: dict[int, int] = {}  # by feed
        self._slots = SlotAllocator()
        self._ended: deque[tuple[Time, int]] = deque()  # to be used again then

    def of_states(self, made: StatesMade) -> Integers:
        """A number for each of these states."""
        numbers = []
        for feed, one in zip(made.table["feed"].tolist(), made.accepted, strict=True):
            number = self._numbers.get(feed)
            if number is None:
                number = self._numbers[feed] = self._slots.take()
                client = one.client
                self.entities[number] = FenceEntity(feed, client.entity, client.name)
            numbers.append(number)
        return np.array(numbers, np.int64)

    def end(self, feed: int, now: Time) -> int | None:
        """The feed has ended. Its number, if it has one; nobody may linger longer than allowed."""
        number = self._numbers.pop(feed, None)
        if number is not None:
            self._ended.append((now + round(LONGEST_LINGER * SECOND), number))
        return number

    def release(self, now: Time) -> None:
        """Use numbers again about which nothing can be reported any more."""
        while self._ended and self._ended[0][0] < now:
            _, number = self._ended.popleft()
            del self.entities[number]
            self._slots.give(number)


class LiveFences:
    """The fences of a node's subscriptions, and the notices about them that wait to be sent."""

    def __init__(self, states: RetainedStates, geometry: Geometry) -> None:
        self._states, self._geometry = states, geometry
        self._notices: ToldNotices = []
        self._numbers = FeedNumbers()
        self._groups: dict[GroupKey, FenceGroup] = {}
        self._filters = MATCHERS["keyed"]()  # has a subscription for each group with a filter
        self._fence_numbers, self._group_numbers = count(1), count(1)
        self._fences: dict[int, tuple[FenceGroup, int]] = {}  # by subscription slot
        self._sets: dict[str, FenceSet] = {}

    def __len__(self) -> int:
        return len(self._fences)

    def __contains__(self, slot: int) -> bool:
        return slot in self._fences

    def take_notices(self, now: Time) -> ToldNotices:
        """All that is to be told until now, in order for each entity."""
        self.advance(now)
        notices, self._notices = self._notices, []
        return notices

    # Fences.

    def check(self, subscription: Subscription, options: FenceOptions, linger: float) -> None:
        """Refused if this subscription cannot be a fence."""
        if isinstance(subscription.region, Formula):
            raise Refused("a fence has neither a formula nor variables")
        condition, key = subscription.filter, group_key(subscription, options, linger)
        if condition is not None and condition.parsed.evolves:
            raise Refused("the filter of a fence does not change with t")
        if options.fences and options.fences not in self._sets:
            raise Refused(f"there is no set of fences {options.fences[:64]!a}")
        if key in self._groups:
            return
        filtered = sum(group.filter is not None for group in self._groups.values())
        if condition is not None and filtered >= FILTERS:
            raise Refused(f"this node has fences with {FILTERS} different filters already")
        if options.fences and sum(bool(g.set_name) for g in self._groups.values()) >= SET_GROUPS:
            raise Refused(f"this node has subscriptions to sets in {SET_GROUPS} ways already")

    def begin(self, now: Time, client: ClientState, active: ActiveSubscription) -> list[InFence]:
        """This subscription is a fence from now on, or follows a set. Who is inside."""
        self.advance(now)
        listener = FenceListener(client, active, kinds_of(active.fence_options))
        key = group_key(active.subscription, active.fence_options, active.linger)
        known = self._groups.get(key)
        group = known or self._begin_group(key, active.subscription)
        if group.set_name:
            number = active.slot
            if known is not None:
                events = inside_events(group.engine, now)
            else:
                columns = self._sets[group.set_name].columns()
                events = group.engine.put_fences(group.with_options(columns), now)
        else:
            number = next(self._fence_numbers)
            events = self._put(now, group, number, active)
        group.listeners[number] = listener
        self._fences[active.slot] = group, number
        added = events["reason"] == FENCE_ADDED
        self._report(group, events[~added])
        pairs = zip(events["entity"][added].tolist(), events["fence"][added].tolist(), strict=True)
        inside = [(self._numbers.entities[one], fence) for one, fence in pairs]
        return [
            InFence(one.feed, self._feature(group, fence))
            for one, fence in inside
            if listener.counts(one)
        ]

    def change(self, now: Time, active: ActiveSubscription) -> None:
        """It has another area: whoever is in only one of the two enters or leaves.

        An engine begins a fence anew that stood still and moves now.
        """
        self.advance(now)
        group, number = self._fences[active.slot]
        events = self._put(now, group, number, active)
        added, removed = events["reason"] == FENCE_ADDED, events["reason"] == FENCE_REMOVED
        stayed = np.intersect1d(events["entity"][added], events["entity"][removed])
        events["kind"][added], events["reason"][added] = FenceKind.ENTER, LeaveReason.NONE
        events["reason"][removed] = LeaveReason.LEFT
        changed = ~np.isin(events["entity"], stayed) | ~(added | removed)
        self._report(group, events[changed])

    def end(self, slot: int, now: Time) -> None:
        """The subscription of this slot is no fence any more. Nobody is told."""
        if slot not in self._fences:
            return
        self.advance(now)
        group, number = self._fences.pop(slot)
        client, active, _ = group.listeners.pop(number)
        if not group.set_name:
            group.engine.remove_fences([number], now)
        self._notices = [
            (other, notice)
            for other, notice in self._notices
            if other is not client or notice.subscription != active.number
        ]
        if not group.listeners:
            del self._groups[group.key]
            if group.filter is not None:
                self._filters.drop(group.number)
        if not self._groups:
            self._states.changes = None
            self._numbers = FeedNumbers()

    def tell_inside(
        self, now: Time, client: ClientState, active: ActiveSubscription, inside: Iterable[InFence]
    ) -> None:
        """These are inside of a new fence, and are not in the answer to its request."""
        for feed, fence in inside:
            state = self._states.state(feed).entity(client.form)
            place = self._place(*self._states.place(feed))
            notice = messages.FenceNotice(
                active.number, "inside", now, state.entity, place, state.name, state=state,
                fence=fence,
            )  # fmt: skip
            self._notices.append((client, notice))

    def _put(
        self, now: Time, group: FenceGroup, number: int, active: ActiveSubscription
    ) -> FenceEvents:
        region = active.subscription.region
        assert not isinstance(region, Formula)
        if isinstance(region, Path):
            region = Path(tuple(map(bounded, region.legs)))
        else:
            region = bounded(region)
        options = active.fence_options
        fence = Fence(
            number, region, kinds_of(options) | ENTER_AND_LEAVE,
            None if options.dwell is None else round(options.dwell * SECOND),
            round(active.linger * SECOND),
        )  # fmt: skip
        if region_evolves(region) or number in group.engine.moving.fences:
            return group.engine.put_moving([fence], now)
        return group.engine.put_fences(columns_of([fence], now), now)

    def _begin_group(self, key: GroupKey, subscription: Subscription) -> FenceGroup:
        number, earth = next(self._group_numbers), self._geometry == EARTH
        group = self._groups[key] = FenceGroup(number, key, earth)
        condition, channel = subscription.filter, subscription.channel
        if condition is not None:
            region = Moving(ALL_PLACES)
            self._filters.put(Subscription(group.number, NOBODY, region, condition, channel))
        if self._states.changes is None:
            self._states.changes = []
        known = self._states.all_made(channel)
        if len(known.t):
            self._give_fixes(known, [group])
        return group

    # Sets.

    def change_set(
        self, now: Time, name: str, prepared: PreparedFences, remove: Sequence[FeatureId],
        replace_all: bool, most: int,
    ) -> int:  # fmt: skip
        """Put these fences into the set of this name, and remove others: these, or all others.

        Whoever is inside of a new one enters it now. How many fences the set has then.
        """
        one = self._sets.get(name) or FenceSet()
        if replace_all:
            remove = list(one.numbers.keys() - set(prepared.ids))
        gone = [one.numbers[which] for which in dict.fromkeys(remove) if which in one.numbers]
        new = [which for which in prepared.ids if which not in one.numbers]
        total = sum(map(len, self._sets.values())) + len(new) - len(gone)
        if total > most:
            raise Refused(f"the sets of this node have at most {most} fences")
        self.advance(now)
        groups = [group for group in self._groups.values() if group.set_name == name]
        for group in groups:
            self._report(group, group.engine.remove_fences(gone, now))
        one.remove(gone)
        numbers = [one.numbers.get(which) or next(self._fence_numbers) for which in prepared.ids]
        columns = one.put(prepared, numbers)
        if len(one):
            self._sets[name] = one
        else:
            self._sets.pop(name, None)
        for group in groups if numbers else ():
            events = group.engine.put_fences(group.with_options(columns), now)
            added = events["reason"] == FENCE_ADDED
            events["kind"][added], events["reason"][added] = FenceKind.ENTER, LeaveReason.NONE
            self._report(group, events)
        return len(one)

    def find_set(self, name: str) -> FenceSet | None:
        return self._sets.get(name)

    def _feature(self, group: FenceGroup, fence: int) -> FeatureId | None:
        one = self._sets.get(group.set_name)
        return None if one is None else one.ids.get(fence)

    # States.

    def advance(self, now: Time) -> None:
        """Give the engines what has changed until now. Fixes of this very moment may still come."""
        if not self._groups:
            return
        for group in self._groups.values():
            if group.engine.due() < now:
                self._report(group, group.engine.advance(now - 1))
        self._numbers.release(now)
        changes, self._states.changes = self._states.changes or [], []
        for change in changes:
            if isinstance(change, FeedEnded):
                number = self._numbers.end(change.feed, now)
                if number is not None:
                    for group in self._groups.values():
                        self._report(group, group.engine.withdraw([number], now))
            else:
                self._give_fixes(change, list(self._groups.values()))

    def _give_fixes(self, made: StatesMade, groups: Sequence[FenceGroup]) -> None:
        channels = [one.request.channel for one in made.accepted]
        groups = [group for group in groups if group.channel in channels]
        if not groups:
            return
        fixes = self._fixes(made)
        accepted: dict[int, list[int]] = {}
        if any(group.filter is not None for group in groups):
            accepted = self._accepted(made, channels)
        on_channel = {
            group.channel: np.array([channel == group.channel for channel in channels])
            for group in groups
        }
        for group in groups:
            there = on_channel[group.channel]
            if group.filter is None:
                some = fixes if there.all() else fixes.part(there)
                self._report(group, group.engine.fixes(some))
            else:
                passes = np.zeros(len(channels), np.bool_)
                passes[accepted.get(group.number, [])] = True
                self._give_filtered(group, fixes, there, passes)

    def _give_filtered(
        self, group: FenceGroup, fixes: FixColumns, there: Any, passes: Any
    ) -> None:  # fmt: skip
        """Fixes that the filter accepts; the others end what the entity was to these fences.

        If an entity has several fixes, they are given in runs, because their order matters.
        """
        which = np.flatnonzero(there)
        parts = [which[passes[which]], which[~passes[which]]]
        if len(np.unique(fixes.entity[which])) < len(which):
            parts = np.split(which, np.flatnonzero(np.diff(passes[which].astype(np.int8))) + 1)
        for part in parts:
            if not len(part):
                continue
            some = fixes.part(part)
            if passes[part[0]]:
                self._report(group, group.engine.fixes(some))
            else:
                rejected = group.engine.withdraw(some.entity.tolist(), int(some.t[-1]))
                rejected["reason"] = LeaveReason.LEFT
                self._report(group, rejected)

    def _fixes(self, made: StatesMade) -> FixColumns:
        heights = [one.request.alt for one in made.accepted]
        lives = [one.request.ttl for one in made.accepted]
        return FixColumns(
            self._numbers.of_states(made),
            made.t,
            np.ascontiguousarray(made.table["centre"]),
            np.array([nan if height is None else height for height in heights]),
            np.array([FOREVER if ttl is None else round(ttl * SECOND) for ttl in lives], np.int64),
        )

    def _accepted(self, made: StatesMade, channels: Sequence[str]) -> dict[int, list[int]]:
        """Which of the states each group's filter accepts."""
        batch = publication_batch(0, made.table, made.accepted, channels)
        matches = self._filters.match_many(batch)
        accepted: dict[int, list[int]] = {}
        pairs = zip(matches.subscription.tolist(), matches.publication.tolist(), strict=True)
        for group, state in pairs:
            accepted.setdefault(group, []).append(state)
        return accepted

    # Events.

    def _report(self, group: FenceGroup, events: FenceEvents) -> None:
        """Tell these events to whoever has asked for them: all go this way."""
        for event in events.tolist():
            entity, feature = self._numbers.entities[event[2]], self._feature(group, event[3])
            for listener in group.who(event[3]):
                if listener.kinds & 1 << event[4] and listener.counts(entity):
                    notice = self._notice(event, entity, listener, feature)
                    self._notices.append((listener.client, notice))

    def _notice(
        self, event: Any, entity: FenceEntity, listener: FenceListener, feature: FeatureId | None
    ) -> messages.FenceNotice:
        t, _, _, _, kind, reason, x, y, z, direction, t_out, x_out, y_out, z_out = event
        crossed = kind == FenceKind.CROSS
        state = None
        if kind == FenceKind.ENTER and self._states.retains(entity.feed):
            state = self._states.state(entity.feed).entity(listener.client.form)
        return messages.FenceNotice(
            listener.active.number, KIND_NAMES[kind], t, entity.entity, self._place(x, y, z),
            entity.name, None if isnan(direction) else direction,
            REASONS[reason] if kind == FenceKind.LEAVE else "",
            t_out if crossed else None,
            self._place(x_out, y_out, z_out) if crossed else None,
            state, feature,
        )  # fmt: skip

    def _place(self, x: float, y: float, z: float) -> messages.FencePlace:
        if self._geometry == EARTH:
            lon, lat = lon_lat(x, y, z)
            return messages.FencePlace(lon=lon, lat=lat)
        return messages.FencePlace(x, y, z)


def group_key(subscription: Subscription, options: FenceOptions, linger: float) -> GroupKey:
    """Subscriptions with the same key share an engine."""
    condition = None if subscription.filter is None else subscription.filter.text
    if not options.fences:
        return subscription.channel, condition, "", 0, 0, 0
    dwell = NEVER if options.dwell is None else round(options.dwell * SECOND)
    kinds = kinds_of(options) | ENTER_AND_LEAVE
    lingers = round(linger * SECOND)
    return subscription.channel, condition, options.fences, kinds, dwell, lingers


def bounded(leg: Moving) -> Moving:
    """The same, where a half-extent without bounds reaches beyond all places."""
    shape = leg.shape
    if inf not in (shape.rx, shape.ry):
        return leg
    rx, ry = min(shape.rx, LARGEST), min(shape.ry, LARGEST)
    return replace(leg, shape=replace(shape, rx=rx, ry=ry))


def inside_events(engine: FenceEngine, now: Time) -> FenceEvents:
    """Who is in which fence of this engine that stands still, as if the fences were new."""
    rows = engine.last.everybody(COMES, FENCE_ADDED, now)
    visits = engine.index.find(rows)
    return write_events(rows, visits, engine.index.areas, np.zeros(len(visits), np.bool_))


def kinds_of(options: FenceOptions) -> int:
    """The events as bits of an engine."""
    names = {*options.events, *(("dwell",) if options.dwell is not None else ())}
    return sum(1 << KIND_NAMES.index(name) for name in names)
