"""The last position and the retained state of each *feed*: one entity on one channel.

A feed has a slot. When its entity leaves, the slot is kept until none of its publications waits and
everybody who refers to the feed by its slot has learned that it has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from struct import Struct as Packing
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.earth_json import altitude_outline
from nearcast.columns import SlotAllocator, grow
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Floats, Integers
from nearcast.model.rates import has_centre
from nearcast.model.subscription import Formula, Subscription, Value
from nearcast.service.client_state import NO_SLOT, AcceptedPublication, LazyPublications
from nearcast.space.motion import FOREVER, SECOND, Moving, Time
from nearcast.space.outlines import Outline
from nearcast.space.shapes import EVERYWHERE, LARGEST, ShapeKind
from nearcast.trace.recorder import Recorder

# A pair of a subscription's slot and a feed is one number: these low bits are the feed.
FEED_BITS = 32
FEED_MASK = (1 << FEED_BITS) - 1

ALL_PLACES = replace(EVERYWHERE, rx=LARGEST, ry=LARGEST)  # no place lies outside of it
NO_FEED = -1
DIGESTS = 2**53  # possible totals of a digest
ANSWER_BYTES = 1_048_576  # of payloads that `inside` or `nearby` lists

# A publication as a row of a numpy table: the publisher; the client that publishes for it, as an
# entity and by its slot; the feed; the payload's bytes; is it retained; its shape; and if it is
# plain, where its payload is among those that are flushed (`plain_publications`).
PUBLICATION_DTYPE = np.dtype(
    [
        ("entity", np.int64), ("client", np.int64), ("client_slot", np.int64), ("feed", np.int64),
        ("size", np.int64), ("retain", np.int64), ("kind", np.int64),
        ("centre", np.float64, 3), ("extent", np.float64, 3), ("payload", np.int64),
    ]
)  # fmt: skip
NOT_PLAIN = -1  # as the place of a payload
PublicationTable: TypeAlias = NDArray[np.void]
_pack_row = Packing("=7q6dq").pack


def pack_publication(*fields: float) -> bytes:
    """A row of PUBLICATION_DTYPE for a publication that is not plain."""
    return _pack_row(*fields, NOT_PLAIN)


def clear_retain(rows: bytearray, place: int) -> None:
    """In packed rows of PUBLICATION_DTYPE: this publication is no state."""
    np.frombuffer(rows, PUBLICATION_DTYPE)["retain"][place] = 0


class RetainedState(Struct, frozen=True):
    """What was last retained, and when."""

    t: Time
    accepted: AcceptedPublication

    def entity(self, form: messages.Encoding) -> messages.EntityState:
        request, client = self.accepted.request, self.accepted.client
        return messages.EntityState(
            client.entity, self.t, request.x, request.y, request.z,
            client.name, request.attributes, self.accepted.payload(form),
            request.lon, request.lat, request.alt,
        )  # fmt: skip


class StatesMade(NamedTuple):
    """States that feeds have from now on, in the order in which they were made."""

    t: Integers
    accepted: Sequence[AcceptedPublication]
    table: PublicationTable


class FeedEnded(NamedTuple):
    """A feed has no state any more."""

    feed: int


class RetainedStates:
    """The feeds that a node knows, with their retained states as columns."""

    def __init__(self) -> None:
        self.positions: Floats = np.zeros((64, 3))  # by feed, of its last publication
        self._states: dict[int, RetainedState] = {}
        self._table: PublicationTable = np.zeros(64, PUBLICATION_DTYPE)  # of the states
        # Changes of states are numbered: the last one of all, and of each feed.
        self.seq = 0
        self._changed: Integers = np.zeros(64, np.int64)
        # When each state was made, and by which publication. FOREVER: there is none.
        self._made: Integers = np.full(64, FOREVER, np.int64)
        self._publications: Integers = np.zeros(64, np.int64)
        self._all: tuple[Time, int, Integers, Batch] | None = None  # at a time, after a change
        self._queries = MATCHERS["keyed"]()  # for subscriptions that are asked once
        # All changes in their order, for whoever takes them away; None: nobody does.
        self.changes: list[StatesMade | FeedEnded] | None = None
        # Entity and publication of own states that have ended, for whoever takes them away.
        self.ended: list[tuple[int, int]] | None = None
        self._expiries: list[tuple[Time, int, int]] = []  # when, feed, publication; some void
        self._slots = SlotAllocator()
        # By client slot: the feed of its plain publications, NO_FEED if there is none; and by feed,
        # whose it is.
        self.plain_feeds: Integers = np.full(64, NO_FEED, np.int64)
        self._plain_clients: dict[int, int] = {}
        self._left: list[tuple[int, int]] = []  # ended, with `before` of `remove`
        self._settled: list[int] = []

    def new_feed(self) -> int:
        feed = self._slots.take()
        if feed == len(self.positions):
            self.positions = grow(self.positions, len(self.positions) + 1)
            self._table = grow(self._table, len(self._table) + 1)
            self._changed = grow(self._changed, len(self._changed) + 1)
            self._made = grow(self._made, len(self._made) + 1, FOREVER)
            self._publications = grow(self._publications, len(self._publications) + 1)
        return feed

    def set_plain_feed(self, client: int, feed: int) -> None:
        """The plain publications of the client in this slot are of this feed, until that ends."""
        if self.plain_feeds[client] != feed:
            self.plain_feeds[client] = feed
            self._plain_clients[feed] = client

    def clear_plain_feed(self, client: int) -> None:
        """The client in this slot is new, or has left."""
        self.plain_feeds = grow(self.plain_feeds, client + 1, NO_FEED)
        self._plain_clients.pop(int(self.plain_feeds[client]), None)
        self.plain_feeds[client] = NO_FEED

    @property
    def used(self) -> int:
        """All feeds have slots below this."""
        return self._slots.used

    def update(
        self, t: Time, accepted: Sequence[AcceptedPublication], table: PublicationTable
    ) -> None:
        """Takes over positions and retained states of published rows, the last of a feed last.

        Publications of other nodes may be older than what is known.
        """
        self.positions[table["feed"]] = table["centre"]
        retained = np.flatnonzero(table["retain"])
        if len(retained):
            newer, times, numbers, states = [], [], [], self._states
            feeds = table["feed"][retained].tolist()
            for feed, i in zip(feeds, retained.tolist(), strict=True):
                one, known = accepted[i], states.get(feed)
                made = one.t or t
                ttl = one.request.ttl
                if not one.is_state:
                    continue
                if known is None or known.t <= made:
                    states[feed] = RetainedState(made, one)
                    if ttl is not None:
                        expires = made + round(ttl * SECOND)
                        heappush(self._expiries, (expires, feed, one.id))
                    newer.append(i)
                    times.append(made)
                    numbers.append(one.id)
            changed = table["feed"][newer]
            self._table[changed] = table[newer]
            self._made[changed], self._publications[changed] = times, numbers
            self._changed[changed] = self.seq + 1 + np.arange(len(newer))
            self.seq += len(newer)
            if self.changes is not None and newer:
                made_by = [accepted[i] for i in newer]
                self.changes.append(StatesMade(np.array(times, np.int64), made_by, table[newer]))

    def remove(self, feed: int, before: int = 0) -> None:
        """The feed ends. Its publications have numbers below `before`, and may still wait; 0: it is
        a feed of another node."""
        state = self._states.pop(feed, None)
        if feed in self._plain_clients:
            self.clear_plain_feed(self._plain_clients[feed])
        if state is not None and self.changes is not None:
            self.changes.append(FeedEnded(feed))
        if state is not None and self.ended is not None and before:
            client = state.accepted.client
            if client.slot != NO_SLOT:
                self.ended.append((client.entity, state.accepted.id))
        self._made[feed] = FOREVER
        self._left.append((feed, before))
        self.seq += 1
        self._changed[feed] = self.seq

    @property
    def next_expiry(self) -> Time:
        """A state may expire then, and none before."""
        return self._expiries[0][0] if self._expiries else FOREVER

    def take_expired(self, until: Time) -> list[int]:
        """Feeds whose states expire until then. They are to be removed, or replaced."""
        expired = []
        while self._expiries and self._expiries[0][0] <= until:
            _, feed, publication = heappop(self._expiries)
            if feed in self._states and self._states[feed].accepted.id == publication:
                expired.append(feed)
        return expired

    def release_before(self, oldest: int) -> None:
        """No publication with a lower number than this waits any more."""
        self._settled += [feed for feed, before in self._left if before <= oldest]
        self._left = [one for one in self._left if one[1] > oldest]

    @property
    def left(self) -> Integers:
        return np.array([feed for feed, _ in self._left] + self._settled, np.int64)

    @property
    def settled(self) -> Integers:
        return np.array(self._settled, np.int64)

    def forget(self) -> None:
        """Everybody knows which feeds have ended: their slots may be used again, if none of their
        publications waits."""
        for feed in self._settled:
            self._slots.give(feed)
        self._settled.clear()

    def entity(self, feed: int) -> int:
        """The entity of a feed that has, or had, a state."""
        return int(self._table[feed]["entity"])

    def retains(self, feed: int) -> bool:
        return feed in self._states

    def state(self, feed: int) -> RetainedState:
        return self._states[feed]

    def __len__(self) -> int:
        """How many states there are."""
        return len(self._states)

    def digest(self, until: Time) -> tuple[int, int]:
        """How many states were made until then, and the sum of their publications' numbers."""
        which = np.flatnonzero(self._made <= until)
        return len(which), int(self._publications[which].sum()) % DIGESTS

    def feeds(self) -> Iterable[int]:
        """All that have states."""
        return self._states.keys()

    def extended(self) -> list[int]:
        """Feeds whose states have an extent."""
        kinds = self._table["kind"]
        return [feed for feed in self._states if kinds[feed] != ShapeKind.POINT]

    def inside(
        self, t: Time, subscription: Subscription, feeds: Integers | None = None
    ) -> Integers:
        """Feeds whose states this subscription would match at `t`, of these or of all."""
        found, states = self._all_at(t) if feeds is None else self.batch_of(t, feeds)
        self._queries.put(query_subscription(subscription, 0))
        matches = self._queries.match_many(states)
        self._queries.drop(0)
        inside: Integers = found[np.sort(matches.publication)]
        return inside

    def _all_at(self, t: Time) -> tuple[Integers, Batch]:
        """All states as if published at `t`, and their feeds, in order."""
        if self._all is None or self._all[:2] != (t, self.seq):
            feeds = np.fromiter(self._states, np.int64, len(self._states))
            self._all = t, self.seq, *self.batch_of(t, np.sort(feeds))
        return self._all[2:]

    def changed_since(self, seq: int) -> Integers:
        """Feeds whose states changed after that change."""
        return np.flatnonzero(self._changed > seq)

    def batch_of(self, t: Time, feeds: Integers) -> tuple[Integers, Batch]:
        """Those of the feeds that have states, and these as if published at `t`."""
        found = [feed for feed in feeds.tolist() if feed in self._states]
        feeds = np.array(found, np.int64)
        accepted = [self._states[feed].accepted for feed in found]
        channels = [one.request.channel for one in accepted]
        return feeds, publication_batch(
            t, self._table[feeds], accepted, channels if any(channels) else None,
            outlines=altitude_outlines(accepted),
        )  # fmt: skip

    def all_made(self, channel: str) -> StatesMade:
        """All states on this channel as if they were made just now, the oldest first."""
        states = [
            (state.t, feed, state.accepted)
            for feed, state in self._states.items()
            if state.accepted.request.channel == channel
        ]
        states.sort(key=lambda one: one[:2])
        feeds = np.array([feed for _, feed, _ in states], np.int64)
        times = np.array([t for t, _, _ in states], np.int64)
        return StatesMade(times, [accepted for _, _, accepted in states], self._table[feeds])

    def feeds_of(self, channel: str, entity: messages.EntityKey) -> list[int]:
        """Feeds with a state on this channel, of the entity of this number or name."""
        found = [
            (feed, state.accepted)
            for feed, state in self._states.items()
            if state.accepted.request.channel == channel
        ]
        return [feed for feed, one in found if entity in (one.client.entity, one.client.name)]

    def age(self, feed: int) -> tuple[Time, int]:
        """When its state was made, and by which publication: a later one is greater."""
        state = self._states[feed]
        return state.t, state.accepted.id

    def place(self, feed: int) -> tuple[float, float, float]:
        """The centre of its state, on Earth in ECEF metres."""
        x, y, z = self._table["centre"][feed].tolist()
        return x, y, z

    def places_of_states(self, feeds: Integers) -> tuple[Floats, Integers]:
        """Of these feeds: the positions of their states, and their entities."""
        return self._table["centre"][feeds], self._table["entity"][feeds]


def publication_batch(
    t: Time, table: PublicationTable, accepted: Sequence[AcceptedPublication],
    channels: Sequence[str] | None,
    attributes: Sequence[Mapping[str, Value]] | None = None,
    outlines: Sequence[Outline | None] | None = None,
) -> Batch:  # fmt: skip
    """As a matcher takes it: kernels are compiled for contiguous columns."""
    return Batch(
        np.full(len(table), t, np.int64),
        np.ascontiguousarray(table["entity"]),
        np.ascontiguousarray(table["kind"]),
        np.ascontiguousarray(table["centre"]),
        np.ascontiguousarray(table["extent"]),
        channels,
        LazyPublications(t, accepted),
        attributes,
        outlines,
    )


def altitude_outlines(
    accepted: Sequence[AcceptedPublication],
) -> Sequence[Outline | None] | None:
    """The outlines of those that have an altitude; None if there are none."""
    if all(one.request.alt is None for one in accepted):
        return None
    return [altitude_outline(one.request.alt) for one in accepted]


def query_subscription(subscription: Subscription, number: int) -> Subscription:
    """As a matcher takes it to find states: without the client's own.

    Engines find boxes in compiled loops, and look at what has no bounds one by one in Python. So
    everywhere becomes a box that no place lies outside of.
    """
    region = subscription.region
    if isinstance(region, Moving) and region.shape == EVERYWHERE and not region.moves:
        region = replace(region, shape=ALL_PLACES)
    return replace(subscription, id=number, echo=False, region=region)


def is_among(pairs: Integers, others: Integers) -> NDArray[np.bool_]:
    """Which of these are among the others, which are sorted?"""
    if not len(others):
        return np.zeros(len(pairs), np.bool_)
    positions = np.searchsorted(others, pairs)
    positions[positions == len(others)] = 0
    found: NDArray[np.bool_] = others[positions] == pairs
    return found


def closest_first(
    states: RetainedStates, feeds: Integers, subscription: Subscription, now: Time
) -> Integers:
    """By distance from the region's centre, then by entity."""
    centre, entity = states.places_of_states(feeds)
    region = subscription.region
    if isinstance(region, Formula) or not has_centre(region):
        return feeds[np.argsort(entity, kind="stable")]
    away = centre - region.centre(now)
    return feeds[np.lexsort((entity, np.sqrt((away * away).sum(axis=1))))]


def list_states(
    states: RetainedStates, feeds: Integers, most: int, form: messages.Encoding
) -> tuple[list[int], list[messages.EntityState]]:
    """The first feeds and their states, as many as one answer may have."""
    found: list[int] = []
    entities: list[messages.EntityState] = []
    left = ANSWER_BYTES
    for feed in feeds[:most].tolist():
        entity = states.state(feed).entity(form)
        left -= len(entity.payload)
        if left < 0:
            break
        found.append(feed)
        entities.append(entity)
    return found, entities


def record_states(
    recorder: Recorder, t: Time, accepted: Sequence[AcceptedPublication], table: PublicationTable
) -> None:
    """Which of these publications are states now, and for how long."""
    retained = (accepted[i] for i in np.flatnonzero(table["retain"]).tolist())
    made = [one for one in retained if one.is_state]
    if made:
        lives = [one.request.ttl for one in made]
        recorder.states_made(
            t, [one.client.entity for one in made], [one.id for one in made],
            [None if ttl is None else round(ttl * SECOND) for ttl in lives],
        )  # fmt: skip


def record_ended_states(recorder: Recorder, now: Time, states: RetainedStates) -> bool:
    """States that were withdrawn have ended now. Whether there were any."""
    ended, states.ended = states.ended or [], []
    for entity, publication in ended:
        recorder.state_ended(now, entity, publication)
    return bool(ended)
