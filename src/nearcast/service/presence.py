"""Presence: which watching subscriptions see which retained states, and what changes about that.

A *watch* is a subscription that wants to know who is inside. It sees a state if it would match it,
were the state published now. Matching all watches with all states at every tick is the simple way,
which this must agree with; here only what can have changed is matched. A watch that does not move
and has seen everything (it is *settled*) is matched with the states that changed since. A watch
that is new, was moved, or evolves by itself is matched with all states. An entity that a watch no
longer sees stays known to it for `linger` seconds and is reported as left only then, so that nobody
flaps at a border.

Work is bounded: an update ends after about `WORK` units and continues at the next tick. Clients are
in groups, each matched as one, in columns. The groups that have cost least for each of their
clients come first. A client whose watches see much gets a group of its own: it is then updated less
often, and nobody else is.
"""

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.columns import SlotAllocator, grow
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers, Matcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription, evolves
from nearcast.service.retained_state import FEED_BITS, FEED_MASK, RetainedStates, is_among
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import EVERYWHERE, LARGEST

VISIBLE = -1  # in place of the time since when an entity is out of sight
NONE: Integers = np.empty(0, np.int64)
ALL_PLACES = replace(EVERYWHERE, rx=LARGEST, ry=LARGEST)  # no place lies outside of it

# Units of work are about 0.1 microseconds.
WORK = 200_000  # of one update of all groups
CHUNK = 400_000  # of states that are matched in one go, if every watch of a group sees them
FASTER = 4  # times as many, while few of them are seen
LOAD = 50_000  # of a round of a group, from which on a client that knows much is moved out of it
HEAVY = 2_000  # pairs: knowing much
WATCHES, PAIRS = 16_384, 100_000  # of a group, from which on it takes no more clients
SETTLING = 64  # watches in one round
TURN, STATE, PAIR, KNOWN, TOLD, PUT, FILTER = 1_500, 5, 1, 1, 20, 150, 100  # of each such thing


class PresenceChanges(NamedTuple):
    """Pairs of watch and feed, each as one number."""

    entered: Integers
    left: Integers
    gone: Integers  # whose entity has left the world


class _CountingSequence(Sequence[Publication]):
    """Counts how often a filter asks for a publication: that is most of its cost."""

    def __init__(self, publications: Sequence[Publication]) -> None:
        self._publications = publications
        self.asked = 0

    def __len__(self) -> int:
        return len(self._publications)

    @overload
    def __getitem__(self, index: int) -> Publication: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Publication]: ...
    def __getitem__(self, index: int | slice) -> Publication | Sequence[Publication]:
        self.asked += 1
        return self._publications[index]


def watch_subscription(subscription: Subscription, number: int) -> Subscription:
    """As a matcher takes it for presence: without the client's own states.

    Engines find boxes in compiled loops, and look at what has no bounds one by one in Python. So
    everywhere becomes a box that no place lies outside of.
    """
    region = subscription.region
    if isinstance(region, Moving) and region.shape == EVERYWHERE and not region.moves:
        region = replace(region, shape=ALL_PLACES)
    return replace(subscription, id=number, echo=False, region=region)


class _Group:
    """Watches of some clients, matched together. A round matches all that can have changed."""

    def __init__(self, seq: int) -> None:
        self.watches: dict[int, Subscription] = {}
        self.clients: dict[int, int] = {}  # how many watches each has
        self.cost = 0.0  # so far, for each client: who has cost least comes first
        self.load = 0  # work of the last whole round
        self.departed = seq  # feeds that ended until this change are not known any more
        self.ended: list[int] = []  # watches
        self._settled, self._open = MATCHERS["keyed"](), MATCHERS["keyed"]()
        self._new: set[int] = set()  # watches that have not seen everything yet
        self._evolving: set[int] = set()  # these two are in `_open`, all others in `_settled`
        self._weight = 0  # work for one state, were it seen by all watches
        self._known, self._since = NONE, NONE  # pairs, sorted; since when they are out of sight
        self._added: list[tuple[Integers, Integers]] = []
        # Of a round: feeds whose states settled watches are matched with, watches that are matched
        # with all states, and how far both are.
        self._round_seq = seq  # changes after this one are for the next round
        self._changed, self._unsettled = NONE, NONE
        self._done = self._from = 0
        self._over_limit: set[int] = set()  # watches that could not be told everything
        self._under_way = False
        self._spent = self._work = 0  # in this round, and in this step of it
        self._faster = 1

    @property
    def full(self) -> bool:
        pairs = len(self._known) + sum(len(added) for added, _ in self._added)
        return (
            len(self.watches) >= WATCHES or pairs >= PAIRS or self._weight > CHUNK
            or (len(self.clients) == 1 and pairs >= HEAVY)
        )  # fmt: skip

    def idle(self, seq: int) -> bool:
        """Nothing can have changed."""
        return not (
            self._under_way or self._round_seq < seq or self.departed < seq or self._new
            or self._evolving or self._added or self.ended or (self._since != VISIBLE).any()
        )  # fmt: skip

    def put(self, watch: int, subscription: Subscription) -> None:
        self.drop(watch)
        self.watches[watch] = subscription
        self._weight += _weight(subscription)
        self._open.put(subscription)
        (self._evolving if evolves(subscription) else self._new).add(watch)

    def drop(self, watch: int) -> None:
        before = self.watches.pop(watch, None)
        if before is not None:
            self._weight -= _weight(before)
            self._settled.drop(watch)
            self._open.drop(watch)
            for some in (self._new, self._evolving, self._over_limit):
                some.discard(watch)
            self._unsettled = self._unsettled[self._unsettled != watch]

    def know(self, pairs: Integers, since: Integers) -> None:
        self._added.append((pairs, since))

    def take(self, watches: list[int]) -> tuple[Integers, Integers]:
        """What these watches know; the group forgets it, and them."""
        self._merge()
        mine = np.isin(self._known >> FEED_BITS, watches)
        taken = self._known[mine], self._since[mine]
        self._keep(~mine)
        for watch in watches:
            self.drop(watch)
        return taken

    def heavy_client(self, clients: Integers) -> int | None:
        """The client whose watches know most, if that is much; `clients`: whose each watch is."""
        if len(self._known) <= HEAVY:
            return None
        pairs = np.bincount(self._known >> FEED_BITS)
        watches = np.flatnonzero(pairs)
        whose, place = np.unique(clients[watches], return_inverse=True)
        known = np.bincount(place, pairs[watches])
        most = int(np.argmax(known))
        return int(whose[most]) if known[most] > HEAVY else None

    def step(
        self, now: Time, states: RetainedStates, columns: "WatchColumns", work: int
    ) -> tuple[PresenceChanges, int, bool]:
        """Continues the round. Returns what changed, the work, and whether the round is over."""
        self._merge()
        self._work = TURN + KNOWN * len(self._known)
        gone = self._remove_departed(states)
        if not self._under_way:
            self._start_round(states)
        entered = [NONE]
        if self._done < len(self._changed):
            entered.append(self._match_changed(now, states, columns, work))
        over = self._done == len(self._changed)
        if over and len(self._unsettled):
            entered.append(self._match_all(now, states, columns, work))
            over = self._from >= states.used
        left = self._finish_round(now, columns.linger) if over else NONE
        changes = PresenceChanges(np.concatenate(entered), left, gone)
        self._work += TOLD * sum(map(len, changes))
        if over:
            self.load, self._spent = self._spent + self._work, 0
        else:
            self._spent += self._work
        return changes, self._work, over

    def _merge(self) -> None:
        """Adds pairs that wait to be added, and removes those of watches that have ended."""
        if self._added:
            pairs, since = zip(*self._added, strict=True)
            self._added.clear()
            self._insert(np.concatenate(pairs), np.concatenate(since))
        if self.ended:
            self._keep(~np.isin(self._known >> FEED_BITS, self.ended))

    def _insert(self, pairs: Integers, since: Integers) -> None:
        known = np.concatenate((self._known, pairs))
        order = np.argsort(known, kind="stable")
        self._known, self._since = known[order], np.concatenate((self._since, since))[order]

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self._known, self._since = self._known[kept], self._since[kept]

    def _remove_departed(self, states: RetainedStates) -> Integers:
        """Removes known pairs whose feed has ended since, and returns them."""
        left = states.left
        left = left[states.changed[left] > self.departed]
        self.departed = states.seq
        if not len(left):
            return NONE
        departed = np.isin(self._known & FEED_MASK, left)
        gone = self._known[departed]
        self._keep(~departed)
        return gone

    def _start_round(self, states: RetainedStates) -> None:
        self._changed = states.changed_since(self._round_seq)
        if len(self.watches) == len(self._new) + len(self._evolving):
            self._changed = NONE  # none is settled
        self._unsettled = np.array([*self._new, *self._evolving], np.int64)
        self._round_seq, self._done, self._from = states.seq, 0, 0
        self._under_way = True

    def _match_changed(
        self, now: Time, states: RetainedStates, columns: "WatchColumns", work: int
    ) -> Integers:
        """Matches settled watches with the states that have changed, within the work allowed."""
        begin, seen = self._done, [NONE]
        while self._done < len(self._changed) and (self._work < work or begin == self._done):
            some = self._changed[self._done : self._done + self._chunk]
            seen.append(self._match(self._settled, *states.batch_of(now, some)))
            self._done += len(some)
        mine = np.isin(self._known & FEED_MASK, self._changed[begin : self._done])
        mine &= ~np.isin(self._known >> FEED_BITS, [*self._new, *self._evolving])
        return self._compare(now, mine, np.sort(np.concatenate(seen)), columns)

    def _match_all(
        self, now: Time, states: RetainedStates, columns: "WatchColumns", work: int
    ) -> Integers:
        """Matches watches that are not settled with all states, within the work allowed."""
        begin, seen = self._from, [NONE]
        while self._from < states.used and (self._work < work or begin == self._from):
            which, batch, last = states.some(now, self._from, self._chunk)
            seen.append(self._match(self._open, which, batch))
            self._from = last
        found = np.sort(np.concatenate(seen))
        found = found[np.isin(found >> FEED_BITS, self._unsettled)]
        feed = self._known & FEED_MASK
        mine = (feed >= begin) & (feed < self._from)
        mine &= np.isin(self._known >> FEED_BITS, self._unsettled)
        return self._compare(now, mine, found, columns)

    @property
    def _chunk(self) -> int:
        """How many states to match at a time: bounded, even if all watches see them all."""
        return max(1, self._faster * CHUNK // (FASTER * max(1, self._weight)))

    def _match(self, engine: Matcher, which: Integers, states: Batch) -> Integers:
        counted = _CountingSequence(states.publications)
        matches = engine.match_many(replace(states, publications=counted))
        work = STATE * len(which) + FILTER * counted.asked + PAIR * len(matches.publication)
        self._work += work
        self._faster = min(2 * self._faster, FASTER) if work * 4 * FASTER < CHUNK else 1
        pairs: Integers = (matches.subscription << FEED_BITS) | which[matches.publication]
        return pairs

    def _compare(
        self, now: Time, mine: NDArray[np.bool_], seen: Integers, columns: "WatchColumns"
    ) -> Integers:
        """Updates the matched ones of the known pairs by what is seen, and returns new pairs."""
        places = np.flatnonzero(mine)
        visible = is_among(self._known[places], seen)
        since = self._since[places]
        self._since[places] = np.where(visible, VISIBLE, np.where(since == VISIBLE, now, since))
        entered = seen[~is_among(seen, self._known)]
        if len(entered) and len(entered) + len(self._known) > columns.most:
            entered = self._within_limit(entered, columns)
        if len(entered):
            self._insert(entered, np.full(len(entered), VISIBLE, np.int64))
        return entered

    def _within_limit(self, entered: Integers, columns: "WatchColumns") -> Integers:
        """Without pairs beyond their client's limit; their watches are matched again."""
        whose = columns.client[entered >> FEED_BITS]
        order = np.argsort(whose, kind="stable")
        entered, whose = entered[order], whose[order]
        have = np.sort(columns.client[self._known >> FEED_BITS])
        before = np.searchsorted(have, whose, "right") - np.searchsorted(have, whose)
        before += np.arange(len(whose)) - np.searchsorted(whose, whose)
        kept = before < columns.most
        self._over_limit.update((entered[~kept] >> FEED_BITS).tolist())
        fits: Integers = np.sort(entered[kept])
        return fits

    def _finish_round(self, now: Time, linger: Integers) -> Integers:
        """Ends the round. Returns the pairs that have been out of sight for long enough."""
        for watch in self._unsettled[:SETTLING].tolist():
            if watch in self._new and watch not in self._over_limit:
                self._new.discard(watch)
                self._open.drop(watch)
                self._settled.put(self.watches[watch])
                self._work += PUT
        for watch in self._over_limit - self._new - self._evolving:
            self._settled.drop(watch)
            self._open.put(self.watches[watch])
            self._new.add(watch)
            self._work += PUT
        self._over_limit.clear()
        self._under_way = False
        self._changed, self._unsettled = NONE, NONE
        out = np.flatnonzero(self._since != VISIBLE)
        over = out[now - self._since[out] >= linger[self._known[out] >> FEED_BITS]]
        left: Integers = self._known[over]
        if len(over):
            kept = np.ones(len(self._known), np.bool_)
            kept[over] = False
            self._keep(kept)
        return left


class WatchColumns(NamedTuple):
    """Of each watch: microseconds of its linger, and its client. And how many a client knows."""

    linger: Integers
    client: Integers
    most: int

    def doubled(self) -> "WatchColumns":
        """With room for as many watches more."""
        linger, client = (grow(column, len(column) + 1) for column in self[:2])
        return WatchColumns(linger, client, self.most)


class Presence:
    """All watches of a node. `most` bounds how many entities the watches of a client know."""

    def __init__(self, states: RetainedStates, most: int) -> None:
        self._states = states
        self._slots = SlotAllocator()
        self._columns = WatchColumns(np.zeros(64, np.int64), np.zeros(64, np.int64), most)
        self._groups: list[_Group] = []
        self._group_of: dict[int, _Group] = {}  # by client
        # By client: how many entities its watches were told of when they began.
        self._told_at_start: dict[int, int] = {}

    def __len__(self) -> int:
        """Those that have ended count until their group is looked at."""
        return len(self._slots)

    @property
    def departed(self) -> int:
        """No watch knows feeds any more that ended until this change."""
        return min((group.departed for group in self._groups), default=self._states.seq)

    def begin(self, client: int, subscription: Subscription, linger: float) -> int:
        """One more watch of this client, which knows nobody yet."""
        watch = self._slots.take()
        if watch == len(self._columns.linger):
            self._columns = self._columns.doubled()
        self._columns.linger[watch] = round(linger * SECOND)
        self._columns.client[watch] = client
        group = self._group_of.get(client)
        if group is None:
            group = next((one for one in self._groups if not one.full), None) or self._add_group()
            self._group_of[client] = group
        group.clients[client] = group.clients.get(client, 0) + 1
        self.change(watch, subscription)
        return watch

    def _add_group(self) -> _Group:
        group = _Group(self._states.seq)
        group.departed = self.departed
        group.cost = min((one.cost for one in self._groups), default=0.0)
        self._groups.append(group)
        return group

    def _group(self, watch: int) -> _Group:
        return self._group_of[int(self._columns.client[watch])]

    def change(self, watch: int, subscription: Subscription) -> None:
        """The watch's subscription has changed."""
        self._group(watch).put(watch, watch_subscription(subscription, watch))

    def end(self, watch: int) -> None:
        group, client = self._group(watch), int(self._columns.client[watch])
        group.drop(watch)
        group.ended.append(watch)
        group.clients[client] -= 1
        if not group.clients[client]:
            del group.clients[client], self._group_of[client]
            self._told_at_start.pop(client, None)

    def know(self, watch: int, states: list[int]) -> None:
        """Its client has been told that these are inside."""
        pairs = (watch << FEED_BITS) | np.array(states, np.int64)
        group, client = self._group(watch), int(self._columns.client[watch])
        group.know(pairs, np.full(len(pairs), VISIBLE, np.int64))
        self._told_at_start[client] = self._told_at_start.get(client, 0) + len(pairs)
        if self._told_at_start[client] > HEAVY and len(group.clients) > 1:
            self._split_off(group, client)

    def update(self, now: Time) -> PresenceChanges:
        """What has changed since the last update, within the work allowed."""
        work = WORK
        floor = max((group.cost for group in self._groups), default=0.0) - 10 * WORK
        found: list[PresenceChanges] = [PresenceChanges(NONE, NONE, NONE)]
        for group in sorted(self._groups, key=lambda group: group.cost):
            if work <= 0:
                break
            if group.idle(self._states.seq):
                continue
            over = False
            while not over and work > 0:
                changes, cost, over = group.step(now, self._states, self._columns, work)
                found.append(changes)
                work -= cost
                group.cost = max(group.cost, floor) + cost / max(1, len(group.clients))
                for watch in group.ended:
                    self._slots.give(watch)
                group.ended.clear()
            if over and group.load > LOAD and len(group.clients) > 1:
                work -= TURN
                if client := group.heavy_client(self._columns.client):
                    self._split_off(group, client)
        self._groups = [group for group in self._groups if group.watches or group.ended]
        return PresenceChanges(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def _split_off(self, group: _Group, client: int) -> None:
        """Gives a client a group of its own."""
        mine = [watch for watch in group.watches if self._columns.client[watch] == client]
        alone = self._add_group()
        alone.departed, alone.cost = group.departed, group.cost
        wanted = [group.watches[watch] for watch in mine]
        alone.know(*group.take(mine))
        for watch, subscription in zip(mine, wanted, strict=True):
            alone.put(watch, subscription)
        alone.clients[client] = group.clients.pop(client)
        self._group_of[client] = alone


def _weight(subscription: Subscription) -> int:
    """Of a watch: the work of one state that it must look at."""
    return FILTER if subscription.filter is not None else PAIR
