"""Fence events of a live node: retained states are fixes, areas of subscriptions are fences.

`nearcast.fences` decides what happens, and which fences share an engine (`fences.groups`); here it
is decided whom that concerns.

Engines know entities by numbers that are not used again while an engine may still have something to
report about them.

A subscription that watches (`watches`) is a fence with the events `enter` and `leave`. What no
engine can solve for it is compared at every tick instead (`compared_watches`).
"""

from collections.abc import Iterable, Sequence
from itertools import count
from math import isnan, nan
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, Geometry
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import FeatureId
from nearcast.errors import Refused
from nearcast.fences.areas import ENTER_AND_LEAVE, Fence, columns_of
from nearcast.fences.events import FENCE_ADDED, FenceEvents, FenceKind, FixColumns, LeaveReason
from nearcast.fences.groups import (
    GroupKey,
    entered_or_left,
    give_fixes,
    put_area,
    put_in_set,
    with_options,
)
from nearcast.matching import MATCHERS
from nearcast.model.subscription import Formula, Subscription, region_evolves
from nearcast.service.client_state import ActiveSubscription, ClientState, FenceOptions
from nearcast.service.fences.compared_watches import WatchComparison
from nearcast.service.fences.groups import (
    KIND_NAMES,
    FeedNumbers,
    FenceEntity,
    FenceGroup,
    FenceListener,
    InFence,
    bounded,
    group_key,
    inside_events,
    kinds_of,
)
from nearcast.service.fences.recording import FenceRecording
from nearcast.service.fences.sets import FenceSet, PreparedFences
from nearcast.service.fences.watches import Watch, Watches
from nearcast.service.retained_state import (
    ALL_PLACES,
    FeedEnded,
    RetainedStates,
    StatesMade,
    publication_batch,
)
from nearcast.space.earth import lon_lat
from nearcast.space.motion import FOREVER, SECOND, Moving, Path, Time
from nearcast.space.shapes import ShapeKind
from nearcast.trace.recorder import Recorder

NOBODY = -1  # as subscriber: nobody's own publications
FILTERS = 256  # different ones of fences on one node: each state is judged by all of them
WATCH_FILTERS = 128  # of these, watches begin only so many; others are compared
MOVING_WATCHES = 8  # with fences that move by themselves: engines look at each at every fix
REASONS: dict[int, messages.LeaveReasonName] = {
    LeaveReason.LEFT: "left",
    LeaveReason.EXPIRED: "expired",
    LeaveReason.GONE: "gone",
    LeaveReason.FENCE_REMOVED: "removed",
}
LACKING = 8  # watches that are looked at in one tick because there is room again
FILTERED = 500  # states at most for which the filter of a new watch is asked at once
SET_GROUPS = 256  # of one node: each has an engine with all fences of its set
ToldNotices: TypeAlias = list[tuple[ClientState, messages.Notice]]


class LiveFences:
    """The fences of a node's subscriptions, and the notices about them that wait to be sent."""

    def __init__(
        self, states: RetainedStates, geometry: Geometry, limits: Limits,
        recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        self._states, self._geometry, self._most_pairs = states, geometry, limits.pairs
        self._recording = FenceRecording(recorder) if recorder else None
        self._notices: list[tuple[ClientState, messages.FenceNotice]] = []
        self._errors: list[tuple[ClientState, messages.ErrorNotice]] = []
        self._numbers = FeedNumbers()
        self._groups: dict[GroupKey, FenceGroup] = {}
        self._filters = MATCHERS["keyed"]()  # has a subscription for each group with a filter
        self._fence_numbers, self._group_numbers = count(1), count(1)
        self._fences: dict[int, tuple[FenceGroup, int]] = {}  # by subscription slot
        # By number: areas that are other ones since a moment, of which no engine knows yet.
        self._moved: dict[int, tuple[Time, FenceGroup, Fence]] = {}
        self._sets: dict[str, FenceSet] = {}
        self._sets_used: Time = 0  # when one was last changed, or somebody began to follow one
        self._watches = Watches(states, limits.watched)
        self._compared = WatchComparison(states, self._watches)  # with all states
        self._extended: set[int] = set()  # feeds that have had a state with an extent
        self._compared_with_extended = WatchComparison(states, self._watches)

    def __len__(self) -> int:
        return len(self._fences) + len(self._compared)

    def __contains__(self, slot: int) -> bool:
        return slot in self._fences or self._watches.find(slot) is not None

    def take_notices(self, now: Time) -> ToldNotices:
        """All that is to be told until now, in order for each entity."""
        self.advance(now)
        notices, self._notices = self._notices, []
        errors, self._errors = self._errors, []
        if self._recording:
            self._recording.write_waiting(now)
        return [*notices, *errors, *self._watches.take_notices()]

    def tick(self, now: Time) -> None:
        """Ten times a second: what no engine can find out."""
        self.advance(now)
        if len(self._compared):
            self._compared.compare(now, self._states.feeds())
        if len(self._compared_with_extended):
            self._compared_with_extended.compare(now, self._extended)
        lacking = [one for one in self._watches.lacking if self._watches.has_room(one)]
        for watch in lacking[:LACKING]:
            del self._watches.lacking[watch]
            if watch.active.slot in self._fences:
                group, number = self._fences[watch.active.slot]
                inside = group.engine.entities_inside(number, now).tolist()
                for feed in self._counted_feeds(group.listeners[number], inside):
                    self._watches.enter(watch, feed)

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
            self._check_overflow(self._groups[key])
            return
        if condition is not None and self._filtered_groups() >= FILTERS:
            raise Refused(f"this node has fences with {FILTERS} different filters already")
        shared = sum(group.shared for group in self._groups.values())
        if options.lacks_area and shared >= SET_GROUPS:
            raise Refused(
                f"this node has subscriptions to sets and to pairs in {SET_GROUPS} ways already"
            )
        if options.near is not None:
            # The group stays, if there are not too many pairs: `begin` follows.
            self.advance(subscription.region.since)
            self._follow_states()
            self._check_overflow(self._begin_group(key, subscription))

    def _check_overflow(self, group: FenceGroup) -> None:
        """Refused if there are too many pairs, or were for whoever else hears of the same."""
        if group.pairs is not None and group.pairs.overflowed:
            if not group.listeners:
                self._end_group(group)
                self._forget_states()
            raise Refused(
                f"more than {self._most_pairs} pairs are within {group.key.near:g} of each other:"
                " a smaller distance, a filter or another channel is needed"
            )

    def begin(self, now: Time, client: ClientState, active: ActiveSubscription) -> list[InFence]:
        """This subscription is a fence from now on, or follows a set. Who is inside."""
        self.advance(now)
        self._follow_states()
        if active.fence_options.watch:
            watch = self._watches.begin(client, active)
            return [InFence(feed, None) for feed in self._begin_watch(now, watch)]
        return self._begin_fence(now, FenceListener(client, active, kinds_of(active.fence_options)))

    def _begin_fence(self, now: Time, listener: FenceListener) -> list[InFence]:
        active = listener.active
        key = group_key(active.subscription, active.fence_options, active.linger)
        if active.fence_options.fences:
            self._sets_used = now
        if self._recording:
            self._recording.begin(now, active)
        known = self._groups.get(key)
        group = known or self._begin_group(key, active.subscription)
        if known is None:
            group.rules.advance(now - 1)  # whose state has expired is not inside
        if group.pairs is not None:
            number, events = active.slot, group.pairs.current(now)
        elif group.set_name:
            number = active.slot
            if known is not None:
                events = inside_events(group.engine, now)
            else:  # a node that a client was handed over to may not have the set yet
                columns = (self._sets.get(group.set_name) or FenceSet()).columns()
                events = group.engine.put_fences(with_options(columns, key), now)
        else:
            number = next(self._fence_numbers)
            fence = self._fence(number, active)
            if self._recording and fence is not None:
                self._recording.put_area(now, active, fence.region)
            events = self._put(now, group, number, fence)
        group.listeners[number] = listener
        self._fences[active.slot] = group, number
        if group.pairs is not None and group.pairs.overflowed:
            self._tell_overflow(group, [listener])
        added = events["reason"] == FENCE_ADDED
        self._report(group, events[~added])
        pairs = zip(events["entity"][added].tolist(), events["fence"][added].tolist(), strict=True)
        inside = [(self._numbers.entities[one], fence) for one, fence in pairs]
        if group.pairs is not None:
            others = [(one, self._numbers.entities[fence]) for one, fence in inside]
            return [
                InFence(one.feed, None, other.feed)
                for one, other in others
                if listener.counts(one) and listener.counts(other)
            ]
        return [
            InFence(one.feed, self._feature(group, fence))
            for one, fence in inside
            if listener.counts(one)
        ]

    def change(self, now: Time, active: ActiveSubscription) -> None:
        """It has another area: whoever is in only one of the two enters or leaves.

        Areas that stand still are given to engines many at a time, when the next state comes. An
        engine begins a fence anew that stood still and moves now.
        """
        if self._states.changes:
            self.advance(now)
        watch = self._watches.find(active.slot)
        if watch is not None and not self._stays_in_engine(watch):
            self._change_watch(now, watch)
            return
        group, number = self._fences[active.slot]
        fence = self._fence(number, active)
        if self._recording and fence is not None:
            self._recording.put_area(now, active, fence.region)
        if watch is not None and self._extended:
            self._compared_with_extended.put(watch)
        if number in self._moved:
            self._apply_moves()
        known = number in group.engine.index.slots
        if fence is not None and known and not region_evolves(fence.region):
            self._moved[number] = now, group, fence
            return
        self.advance(now)
        events = self._put(now, group, number, fence)
        self._report(group, entered_or_left(events))

    def _apply_moves(self) -> None:
        """Give the engines all areas that have changed."""
        moved, self._moved = self._moved, {}
        groups: dict[FenceGroup, list[tuple[Time, Fence]]] = {}
        for t, group, fence in moved.values():
            groups.setdefault(group, []).append((t, fence))
        for group, some in groups.items():
            first, last = some[0][0], some[-1][0]
            if group.engine.due() < first:
                self._report(group, group.engine.advance(first - 1))
            columns = columns_of([fence for _, fence in some], last)
            times = np.array([t for t, _ in some], np.int64)
            self._report(group, group.engine.move_fences(columns, times))

    def end(self, slot: int, now: Time) -> None:
        """The subscription of this slot is no fence any more. Nobody is told."""
        if slot not in self:
            return
        self.advance(now)
        if self._recording and slot in self._fences:
            group, fence = self._fences[slot]
            self._recording.end(now, group.listeners[fence].active)
        client, number = self._end_place(slot, now)
        self._notices = [
            (other, notice)
            for other, notice in self._notices
            if other is not client or notice.subscription != number
        ]
        if self._watches.find(slot) is not None:
            self._watches.end(slot)
        self._forget_states()

    def _follow_states(self) -> None:
        """Changes of states are noted from now on."""
        if self._states.changes is None:
            self._states.changes = []
            self._extended = set(self._states.extended())

    def _forget_states(self) -> None:
        """They need not be, if there is no fence, and none about to be."""
        if not len(self) and not self._groups:
            self._states.changes = None
            self._numbers = FeedNumbers()

    def _end_place(self, slot: int, now: Time) -> tuple[ClientState, int]:
        """No engine and no comparison has it any more. Whose it was, and its client's number."""
        self._compared_with_extended.drop(slot)
        if slot not in self._fences:
            self._compared.drop(slot)
            watch = self._watches.find(slot)
            assert watch is not None
            return watch.client, watch.active.number
        group, number = self._fences.pop(slot)
        listener = group.listeners.pop(number)
        if not group.shared:
            group.engine.remove_fences([number], now)
        if not group.listeners:
            self._end_group(group)
        return listener.client, listener.active.number

    def _end_group(self, group: FenceGroup) -> None:
        del self._groups[group.key]
        if group.filter is not None:
            self._filters.drop(group.number)

    # Watches.

    def _solves(self, subscription: Subscription, moving: int) -> bool:
        """Can an engine find out when somebody enters and leaves, beside so many moving fences?"""
        condition, region = subscription.filter, subscription.region
        if isinstance(region, Formula) or (region_evolves(region) and moving >= MOVING_WATCHES):
            return False
        if condition is None or group_key(subscription, FenceOptions(), 0.0) in self._groups:
            return True
        return not condition.parsed.evolves and self._filtered_groups() < WATCH_FILTERS

    def _moving_fences(self) -> int:
        return sum(len(group.engine.moving.fences) for group in self._groups.values())

    def _filtered_groups(self) -> int:
        return sum(group.filter is not None for group in self._groups.values())

    def _stays_in_engine(self, watch: Watch) -> bool:
        """Can the engine that this watch is in, if it is in one, go on with it?"""
        active = watch.active
        if active.slot not in self._fences:
            return False
        group, number = self._fences[active.slot]
        moving = self._moving_fences() - (number in group.engine.moving.fences)
        key = group_key(active.subscription, active.fence_options, active.linger)
        return group.key == key and self._solves(active.subscription, moving)

    def _begin_watch(self, now: Time, watch: Watch) -> list[int]:
        """An engine or a comparison has it from now on. The feeds that are inside."""
        active = watch.active
        subscription, feeds = active.subscription, list[int]()
        if self._solves(subscription, self._moving_fences()):
            listener = FenceListener(watch.client, active, ENTER_AND_LEAVE, watch)
            inside = self._begin_fence(now, listener)
            feeds = [one.feed for one in inside if one.feed not in self._extended]
            if not self._extended:
                return feeds
            self._compared_with_extended.put(watch)
            among = np.array(sorted(self._extended), np.int64)
        else:
            self._compared.put(watch)
            among = np.array(sorted(self._states.feeds()), np.int64)
        if subscription.filter is not None:
            among = among[:FILTERED]  # the next tick continues
        return [*feeds, *self._states.inside(now, subscription, among).tolist()]

    def _change_watch(self, now: Time, watch: Watch) -> None:
        """The watch is another one from now on. A comparison finds out at the next tick."""
        slot, subscription = watch.active.slot, watch.active.subscription
        if slot not in self._fences and not self._solves(subscription, self._moving_fences()):
            self._compared.put(watch)
            return
        self.advance(now)
        self._end_place(slot, now)
        inside = self._begin_watch(now, watch)
        if slot in self._fences:
            for feed in sorted(watch.known - set(inside)):
                self._watches.leave(watch, feed, gone=False)
            for feed in inside:
                self._watches.enter(watch, feed)

    def _note_extents(self, made: StatesMade) -> None:
        """From now on these feeds are compared with all watches."""
        extended = made.table["feed"][made.table["kind"] != ShapeKind.POINT]
        if not len(extended):
            return
        if not self._extended:
            for watch in self._watches:
                if watch.active.slot in self._fences:
                    self._compared_with_extended.put(watch)
        self._extended.update(extended.tolist())

    def _end_feed(self, feed: int) -> None:
        self._watches.end_feed(feed)
        self._compared.end_feed(feed)
        if feed in self._extended:
            self._extended.discard(feed)
            self._compared_with_extended.end_feed(feed)
            if not self._extended:
                self._compared_with_extended = WatchComparison(self._states, self._watches)

    def _counted_feeds(self, listener: FenceListener, numbers: Iterable[int]) -> list[int]:
        """The feeds of these entities that a watch learns about from its engine."""
        entities = [self._numbers.entities[number] for number in numbers]
        return [
            one.feed for one in entities if listener.counts(one) and one.feed not in self._extended
        ]

    def tell_inside(
        self, now: Time, client: ClientState, active: ActiveSubscription, inside: list[InFence],
        listed: int,
    ) -> None:  # fmt: skip
        """These are inside of a new fence, and only the first are in the answer to its request."""
        watch = self._watches.find(active.slot)
        if watch is not None:
            self._watches.know(watch, [one.feed for one in inside[:listed]])
            for one in inside[listed:]:
                self._watches.enter(watch, one.feed)
            return
        for feed, fence, other in inside[listed:]:
            state = self._states.state(feed).entity(client.form)
            place = self._place(*self._states.place(feed))
            notice = messages.FenceNotice(
                active.number, "inside", now, state.entity, place, state.name, state=state,
                fence=fence, **self._other(client, other),
            )  # fmt: skip
            self._notices.append((client, notice))

    def _fence(self, number: int, active: ActiveSubscription) -> Fence | None:
        """None: it follows an entity that is nowhere."""
        region = active.subscription.region
        if isinstance(region, Formula):
            return None
        if isinstance(region, Path):
            region = Path(tuple(map(bounded, region.legs)))
        else:
            region = bounded(region)
        options = active.fence_options
        return Fence(
            number, region, kinds_of(options) | ENTER_AND_LEAVE,
            None if options.dwell is None else round(options.dwell * SECOND),
            round(active.linger * SECOND),
        )  # fmt: skip

    def _put(self, now: Time, group: FenceGroup, number: int, fence: Fence | None) -> FenceEvents:
        if fence is None:
            return group.engine.remove_fences([number], now)
        return put_area(group.engine, now, fence)

    def _begin_group(self, key: GroupKey, subscription: Subscription) -> FenceGroup:
        number, earth = next(self._group_numbers), self._geometry == EARTH
        group = self._groups[key] = FenceGroup(number, key, earth, self._most_pairs)
        condition, channel = subscription.filter, subscription.channel
        if condition is not None:
            region = Moving(ALL_PLACES)
            self._filters.put(Subscription(group.number, NOBODY, region, condition, channel))
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
        self._sets_used = now
        if self._recording:
            self._recording.change_set(now, name, [one.ids[number] for number in gone], prepared)
        groups = [group for group in self._groups.values() if group.set_name == name]
        for group in groups:
            self._report(group, group.engine.remove_fences(gone, now))
        one.remove(gone)
        numbers = [one.numbers.get(which) or next(self._fence_numbers) for which in prepared.ids]
        columns = one.put(prepared, numbers)
        one.changed = max(now, one.changed + 1)
        if len(one):
            self._sets[name] = one
        else:
            self._sets.pop(name, None)
        for group in groups:
            put = with_options(columns, group.key)
            self._report(group, put_in_set(group.engine, now, put))
        return len(one)

    def set_change_time(self, now: Time) -> Time:
        """When a set may change: each change has a microsecond of its own, and so have those who
        began to follow a set before, because a trace has no other order."""
        return max(now, self._sets_used + 1)

    def find_set(self, name: str) -> FenceSet | None:
        return self._sets.get(name)

    def list_sets(self) -> list[tuple[str, FenceSet]]:
        """All by name."""
        return sorted(self._sets.items())

    def _feature(self, group: FenceGroup, fence: int) -> FeatureId | None:
        one = self._sets.get(group.set_name)
        return None if one is None else one.ids.get(fence)

    # States.

    def advance(self, now: Time) -> None:
        """Give the engines what has changed until now. Fixes of this very moment may still come."""
        if self._states.changes is None:
            return
        if self._moved:
            self._apply_moves()
        for group in self._groups.values():
            if group.rules.due() < now:
                self._report(group, group.rules.advance(now - 1))
        self._numbers.release(now)
        changes, self._states.changes = self._states.changes, []
        for change in changes:
            if isinstance(change, FeedEnded):
                number = self._numbers.end(change.feed, now)
                self._end_feed(change.feed)
                if number is not None:
                    for group in self._groups.values():
                        self._report(group, group.rules.withdraw([number], now))
            else:
                self._note_extents(change)
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
            passes = None
            if group.filter is not None:
                passes = np.zeros(len(channels), np.bool_)
                passes[accepted.get(group.number, [])] = True
                passes = passes[there]
            self._take_fixes(group, fixes if there.all() else fixes.part(there), passes)

    def _take_fixes(self, group: FenceGroup, fixes: FixColumns, passes: Any) -> None:
        before = group.pairs is not None and group.pairs.overflowed
        for events in give_fixes(group.rules, fixes, passes):
            self._report(group, events)
        if group.pairs is not None and group.pairs.overflowed and not before:
            self._tell_overflow(group, group.listeners.values())

    def _tell_overflow(self, group: FenceGroup, listeners: Iterable[FenceListener]) -> None:
        """There are too many pairs: that is told, and nothing else any more."""
        for client, active, _, _ in listeners:
            why = (
                f"subscription {active.number} tells no pairs any more: more than"
                f" {self._most_pairs} were within {group.key.near:g} of each other"
            )
            self._errors.append((client, messages.ErrorNotice(why)))

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
        if group.pairs is not None:
            self._report_pairs(group, events)
            return
        for event in events.tolist():
            entity, feature = self._numbers.entities[event[2]], self._feature(group, event[3])
            for listener in group.who(event[3]):
                if not listener.kinds & 1 << event[4] or not listener.counts(entity):
                    continue
                if listener.watch is not None:
                    self._tell_watch(event, entity, listener.watch)
                else:
                    notice = self._notice(event, entity, listener, feature)
                    self._notices.append((listener.client, notice))
                    if self._recording:
                        self._recording.tell(listener.active, notice, event[6:9])

    def _tell_watch(self, event: Any, entity: FenceEntity, watch: Watch) -> None:
        _, _, number, _, kind, reason, *_ = event
        if entity.feed in self._extended or not self._numbers.is_current(number):
            return
        if kind == FenceKind.ENTER:
            self._watches.enter(watch, entity.feed)
        else:
            self._watches.leave(watch, entity.feed, reason != LeaveReason.LEFT)

    def _report_pairs(self, group: FenceGroup, events: FenceEvents) -> None:
        for event in events.tolist():
            entity, other = self._numbers.entities[event[2]], self._numbers.entities[event[3]]
            for listener in group.listeners.values():
                if listener.counts(entity) and listener.counts(other):
                    there = None if event[4] == FenceKind.LEAVE else other.feed
                    named = self._other(listener.client, there)
                    named |= {"other": other.entity, "other_name": other.name}
                    notice = self._notice(event, entity, listener, None)
                    self._notices.append((listener.client, replace(notice, **named)))

    def _other(self, client: ClientState, feed: int | None) -> dict[str, Any]:
        """The fields of a notice about the other one of a pair, which has this feed."""
        if feed is None or not self._states.retains(feed):
            return {}
        state = self._states.state(feed).entity(client.form)
        return {"other": state.entity, "other_name": state.name, "other_state": state}

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
