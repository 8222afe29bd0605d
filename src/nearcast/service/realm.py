"""What a node decides for its clients, without clock or socket.

The service passes on what clients request and flushes every few milliseconds: `flush` returns who
receives what was published since. Subscriptions take effect at once, each at a time after all
earlier publications. Publications get their time when they are flushed, all of a flush the same
one. So deliveries are exactly what the trace says they should be, and matching is done in columns.

What `flush` returns refers to slots, which are used again: read it before the next request.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, PLANE, Geometry
from nearcast.client_protocol.limits import (
    Limits,
    as_refusal,
    check_name,
    check_payload,
    check_subscription_number,
    check_ttl,
    checked_region,
    earth_publication_shape,
    publication_shape,
    refuse_value_errors,
    relative_region,
    subscribe_command,
)
from nearcast.columns import SlotAllocator, grow
from nearcast.errors import Busy, Refused
from nearcast.matching.matcher import Batch, EvaluationCost, Integers, Matcher
from nearcast.model import commands
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import Formula, Region, Subscription
from nearcast.model.variables import bind
from nearcast.service.client_state import (
    AcceptedPublication,
    ActiveSubscription,
    ClientState,
    FlushDeliveries,
    ThrottleOptions,
    sort_deliveries,
)
from nearcast.service.fair_queueing import Accounts, Backlog
from nearcast.service.fences.groups import fence_options
from nearcast.service.fences.live_fences import LiveFences
from nearcast.service.fences.sets import FenceSet, PreparedFences
from nearcast.service.flush_input import FlushInput, WaitingPublications
from nearcast.service.following import Following, follow_options
from nearcast.service.path_legs import PathLegs
from nearcast.service.plain_publications import read_plain
from nearcast.service.recipients import AcceptedDirect, Recipients, check_recipient
from nearcast.service.retained_state import (
    NOT_PLAIN,
    PublicationTable,
    RetainedState,
    RetainedStates,
    altitude_outlines,
    closest_first,
    list_states,
    pack_publication,
    publication_batch,
    record_ended_states,
    record_states,
)  # fmt: skip
from nearcast.service.state_expiry import LATEST, Age, StateExpiry
from nearcast.service.subscription_cost import check_cost
from nearcast.service.throttling import KEPT, Throttle, check_throttle_options
from nearcast.space.motion import Time
from nearcast.trace.recorder import Recorder

INITIAL_SLOTS = 64  # of columns at first; they double
HOPS = 2  # from the publisher to the node, and from there to the subscriber
NOBODY = -1  # as publisher: nobody's own publication
# What `nearby` and a subscription that watches cost besides one request: another one, and one more
# for every so many states that there are, and for every so many that are listed.
LOOKED_AT, LISTED = 500, 50


class Realm:
    """All clients of one node, their subscriptions, publications and retained states."""

    def __init__(
        self,
        matcher: Matcher,
        limits: Limits,
        recorder: Recorder | None,
        entities_from: int = 1,
        geometry: Geometry = PLANE,
    ) -> None:
        self.now: Time = 0  # time of the last event
        self.limits, self.geometry = limits, geometry
        self._publication_shape = (
            earth_publication_shape if geometry == EARTH else publication_shape
        )
        self.clients: list[ClientState | None] = []  # by slot
        self.recipients = Recipients()
        self.entities: Integers = np.zeros(INITIAL_SLOTS, np.int64)  # by client slot
        # By subscription slot: the client's number of it, its number in the trace, its client's
        # slot, and its slot in `Throttle`.
        self.numbers: Integers = np.zeros(INITIAL_SLOTS, np.int64)
        self.subscriptions: Integers = np.zeros(INITIAL_SLOTS, np.int64)
        self._subscribers: Integers = np.zeros(INITIAL_SLOTS, np.int64)
        self._throttles: Integers = np.zeros(INITIAL_SLOTS, np.int64)
        self._matcher = matcher
        self._recorder = recorder
        self._flushed: Time = -1
        self._client_slots, self._subscription_slots = SlotAllocator(), SlotAllocator()
        self._next_entity = self._next_subscription = self._next_publication = entities_from
        self._waiting = WaitingPublications()
        self._on_channels = False  # are some of them on another channel than the default one?
        self._attributed = False  # have some of them attributes?
        self._path_legs = PathLegs()
        self._states = RetainedStates()
        if recorder:
            self._states.ended = []
        self._fences = LiveFences(self._states, geometry, limits, recorder)
        self._following = Following(self._states, geometry)
        self._expiry = StateExpiry(self._states)
        self._ttl_used = False  # has any state had a ttl?
        self._throttle = Throttle()
        self._throttled: dict[int, tuple[ClientState, ActiveSubscription]] = {}
        self.accounts = Accounts()
        self._backlog = Backlog()

    @property
    def waiting(self) -> int:
        """How many publications wait for the next flush."""
        return len(self._waiting.accepted) + len(self._backlog)

    @property
    def is_behind(self) -> bool:
        """Have flushes left publications waiting?"""
        return bool(self._backlog)

    def publications_waiting(self, client: ClientState) -> int:
        """How many of its publications earlier flushes have left waiting."""
        return self._backlog.waits(client)

    # Clients.

    def join(self, now: Time, name: str, form: messages.Encoding = messages.JSON) -> ClientState:
        with refuse_value_errors():
            check_name("a name", name, self.limits)
        self._advance_to(now)
        client = self._add_client(self._next_entity, name, form)
        self._next_entity += 1
        if self._recorder:
            self._recorder.note(self.now, client.entity, "joined")
        return client

    def _add_client(self, entity: int, name: str, form: messages.Encoding) -> ClientState:
        client = ClientState(self._client_slots.take(), entity, name, form)
        if client.slot == len(self.clients):
            self.clients.append(None)
        if client.slot == len(self.entities):
            self.entities = grow(self.entities, len(self.entities) + 1)
        self.clients[client.slot], self.entities[client.slot] = client, client.entity
        self._states.clear_plain_feed(client.slot)
        self.recipients.add(client)
        self.accounts.open(client.slot)
        return client

    def _free_client(self, client: ClientState) -> None:
        self.recipients.remove(client)
        self.clients[client.slot] = None
        self._states.clear_plain_feed(client.slot)
        self._client_slots.give(client.slot)

    def leave(self, now: Time, client: ClientState, ends_all: bool = False) -> None:
        """Its subscriptions and states end. Publications that still wait are delivered.

        States with a ttl stay until they expire, unless it `ends_all`.
        """
        if client.left:
            return
        for entity in list(client.entities.values()):
            self.leave(now, entity, ends_all)
        if client.owner is not None:
            del client.owner.entities[client.name]
        for active in client.subscriptions.values():
            self._advance_to(self._change_time(now, active))
            self._end_subscription(active)
        kept: set[str] = set()
        if not ends_all and self._ttl_used:
            kept = self._expiry.channels_to_keep(client, self._waiting_of(client))
        for channel in [channel for channel in client.feeds if channel not in kept]:
            self._states.remove(client.feeds.pop(channel), self._next_publication)
            if self._ttl_used:
                self._unretain(client, channel)
        self._advance_to(now)
        self._fences.advance(self.now)
        self._move_followers()
        client.subscriptions.clear()
        client.left = True
        if client.feeds:
            self._expiry.add(client)
        self._free_client(client)
        if self._recorder:
            self._recorder.note(self.now, client.entity, "left")

    # Interests.

    def subscribe(
        self, now: Time, client: ClientState, request: messages.SubscribeRequest
    ) -> list[messages.Notice]:
        """The subscription is in force from now on. Returns who is inside, if it wants to know."""
        mine = client.subscriptions
        before = mine.get(request.subscription)
        with refuse_value_errors():
            check_subscription_number(request.subscription)
            if before is None and len(mine) >= self.limits.subscriptions:
                raise Refused(f"a client has at most {self.limits.subscriptions} subscriptions")
            number = before.subscription.id if before else self._next_subscription
            wanted = subscribe_command(request, number, self.limits, self.geometry)
            throttle_options = ThrottleOptions(request.rates, request.closest, request.budget)
            check_throttle_options(throttle_options, wanted.region)
            t = self._change_time(now, before)
            subscription = wanted.stamped(client.entity, t)
            cost = check_cost(client, before, subscription, self.limits, self.geometry)
            options, linger = fence_options(request)
            if request.events:
                self._fences.check(subscription, options, linger)
            follow = follow_options(request)
        if before is None:
            self._next_subscription += 1
            slot = self._add_subscription_slot(client, request.subscription, number)
        else:
            slot = before.slot
            self._stop_fence_and_throttle(before, t)
            self._before_change(t, before)
            if options.lacks_area and not before.fence_options.lacks_area:
                self._end_area(t, before)
        active = ActiveSubscription(
            slot, request.subscription, t, wanted, subscription, throttle_options,
            linger=linger, handovers=before.handovers if before else 0, steps=cost,
            fence_options=options, follow=follow,
        )  # fmt: skip
        mine[request.subscription] = active
        if follow:
            self._following.begin(active)
            subscription = subscription.moved(self._following.region(active), t)
        self._apply_change(t, active, wanted, subscription)
        self._start_throttling(client, active)
        return [self._start_fence(client, active)] if options else []

    def _start_throttling(self, client: ClientState, active: ActiveSubscription) -> None:
        if active.throttle_options:
            region = active.subscription.region
            active.throttle = self._throttle.begin(self.now, active.throttle_options, region)
            self._throttled[active.throttle] = client, active
            self._throttles[active.slot] = active.throttle

    def move(self, now: Time, client: ClientState, request: messages.MoveRequest) -> None:
        try:
            active = _find_subscription(client, request.subscription)
            wanted, follow = active.asked, active.follow
            if follow:
                follow = replace(follow, area=replace(request.area, geometry=None))
                region: Region | str = relative_region(request.area, self.limits, self.geometry)
            else:
                region = checked_region(request.area, self.limits, self.geometry)
            if active.throttle is not None:
                check_throttle_options(active.throttle_options, region)
            if wanted.variables or follow:  # only then it matters what was asked for
                wanted = replace(wanted, region=region)
            if isinstance(region, str):
                region = Formula(bind(region, wanted.variables))
            t = self._change_time(now, active)
            subscription = active.subscription.moved(region, t)
            if active.fence_options.lacks_area:
                raise Refused("a subscription to a set of fences or to pairs has no area")
            if active.fence_options and not active.fence_options.watch:
                self._fences.check(subscription, active.fence_options, active.linger)
            cost = check_cost(client, active, subscription, self.limits, self.geometry)
        except ValueError as why:
            raise as_refusal(why) from None
        active.steps = cost
        if follow:
            active.asked, active.follow = wanted, follow
            subscription = subscription.moved(self._following.region(active), t)
        self._before_change(t, active)
        self._apply_change(t, active, wanted, subscription)

    def _move_followers(self) -> None:
        """Areas go where the entities are that they follow, right after what was published."""
        for active, region in self._following.moves() if len(self._following) else ():
            t = self._change_time(self.now, active)
            self._before_change(t, active)
            moved = active.subscription.moved(region, t)
            self._apply_change(t, active, active.asked, moved)

    def tune(self, now: Time, client: ClientState, request: messages.TuneRequest) -> None:
        with refuse_value_errors():
            active = _find_subscription(client, request.subscription)
            if not request.variables:
                raise Refused("to tune is to name a variable")
            for name in request.variables:
                if name not in active.asked.variables:
                    raise Refused(f"subscription {active.number} has no variable {name[:64]!a}")
            t = self._change_time(now, active)
            wanted = active.asked.tuned(request.variables)
            subscription = wanted.rebound(active.subscription, t)
            cost = check_cost(client, active, subscription, self.limits, self.geometry)
        active.steps = cost
        self._before_change(t, active)
        self._apply_change(t, active, wanted, subscription)

    def unsubscribe(
        self, now: Time, client: ClientState, request: messages.UnsubscribeRequest
    ) -> None:
        active = _find_subscription(client, request.subscription)
        self._advance_to(self._change_time(now, active))
        self._end_subscription(active)
        del client.subscriptions[active.number]

    def _before_change(self, t: Time, active: ActiveSubscription) -> None:
        """The subscription changes at `t`. A cluster keeps the old version for a while."""

    def _apply_change(
        self,
        t: Time,
        active: ActiveSubscription,
        wanted: commands.Subscribe,
        subscription: Subscription,
    ) -> None:
        self._advance_to(t)
        active.since, active.asked, active.subscription = t, wanted, subscription
        if active.fence_options.lacks_area:
            return  # it receives no messages
        self._matcher.put(replace(subscription, id=active.slot))
        if active.slot in self._fences:
            self._fences.change(t, active)
        if active.throttle is not None:
            self._throttle.move(t, active.throttle, subscription.region)
        if self._recorder:
            self._recorder.interest(t, subscription)
            self._path_legs.put(subscription, t)

    def _end_subscription(self, active: ActiveSubscription) -> None:
        wanted = active.subscription
        self._remove_subscription(active)
        if self._recorder and not active.fence_options.lacks_area:
            self._recorder.ended(self.now, wanted.node, wanted.id)

    def _end_area(self, t: Time, active: ActiveSubscription) -> None:
        """It becomes one without an area, and receives no messages any more."""
        self._matcher.drop(active.slot)
        self._path_legs.drop(active.subscription.id)
        if self._recorder:
            self._recorder.ended(t, active.subscription.node, active.subscription.id)

    def _remove_subscription(self, active: ActiveSubscription) -> None:
        self._matcher.drop(active.slot)
        self._stop_fence_and_throttle(active, self.now)
        self._subscription_slots.give(active.slot)
        self._path_legs.drop(active.subscription.id)

    def _stop_fence_and_throttle(self, active: ActiveSubscription, t: Time) -> None:
        """From then on without fence events and throttling."""
        self._fences.end(active.slot, t)
        if active.follow:
            self._following.end(active)
        if active.throttle is not None:
            self._throttle.end(active.throttle)
            del self._throttled[active.throttle]
            self._throttles[active.slot] = NOBODY

    def _add_subscription_slot(self, client: ClientState, number: int, subscription: int) -> int:
        slot = self._subscription_slots.take()
        if slot == len(self.numbers):
            self.numbers = grow(self.numbers, slot + 1)
            self.subscriptions = grow(self.subscriptions, slot + 1)
            self._subscribers = grow(self._subscribers, slot + 1)
            self._throttles = grow(self._throttles, slot + 1)
        self.numbers[slot], self.subscriptions[slot] = number, subscription
        self._subscribers[slot], self._throttles[slot] = client.slot, NOBODY
        return slot

    # Publications.

    def publish(
        self, client: ClientState, request: messages.PublishRequest, form: messages.Encoding
    ) -> int:
        """Accepts a publication and returns its number. It is delivered at the next flush.

        If the node is busy, at a later one; Refused if too many of the client's already wait.
        """
        try:
            if client.backlog:
                self.accounts.refused += 1
                raise Busy(
                    f"{messages.BUSY}: {client.backlog} of your publications wait to be delivered;"
                    " publish again later"
                )
            where = self._publication_shape(request, self.limits)
            payload, attributes = request.payload, request.attributes
            size = len(payload)
            check_payload(payload, form, self.limits)
            if attributes:
                check_attributes(attributes)
            if request.ttl is not None:
                check_ttl(request)
                self._ttl_used = True
            name, channel = request.name, request.channel
            publisher = self._represented_entity(client, name) if name else client
            feed = publisher.feeds.get(channel)
            if feed is None:
                feed = self._new_feed(publisher, channel)
            if publisher is client and not channel:
                self._states.set_plain_feed(client.slot, feed)
        except ValueError as why:
            raise as_refusal(why) from None
        if channel:
            self._on_channels = True
        if attributes:
            self._attributed = True
        if len(self._expiry) and request.retain:
            self._replace_departed(publisher, channel)
            self._record_ended_states()
            self._fences.advance(self.now)
        number = self._next_publication
        self._next_publication += 1
        self._waiting.add(
            AcceptedPublication(publisher, number, where[0], request, form),
            pack_publication(
                publisher.entity, client.entity, client.slot, feed, size, request.retain, *where
            ),
        )
        return number

    def publish_plain(
        self, slots: Integers, frames: Sequence[bytes], credit: Integers,
        otherwise: Callable[[int], None],
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Accepts many publications of the clients in these slots, as far as they are plain.

        `credit` is by client slot: how many it may make. `otherwise` is called for each that is
        not plain, with its place among the frames, in their order. Gives which were plain.
        """
        clients = [self.clients[slot] for slot in slots.tolist()]
        data = b"".join(frames)
        rows = read_plain(
            data, np.fromiter(map(len, frames), np.int64, len(frames)), slots,
            entities=self.entities, feeds=self._states.plain_feeds, credit=credit,
            longest_payload=self.limits.payload, may_retain=not len(self._expiry),
        )  # fmt: skip
        plain: NDArray[np.bool_] = rows["payload"] != NOT_PLAIN
        rows["payload"][plain] += len(self._waiting.data)
        self._waiting.data += data
        first = 0
        for other in [*np.flatnonzero(~plain).tolist(), len(frames)]:
            if first < other:
                whose: Any = clients[first:other]  # all have a client: they have published before
                number = self._next_publication
                self._waiting.add_plain(whose, frames[first:other], rows[first:other], number)
                self._next_publication += other - first
            if other < len(frames):
                otherwise(other)
            first = other + 1
        return plain

    def send(
        self, now: Time, client: ClientState, request: messages.SendRequest, form: messages.Encoding
    ) -> AcceptedDirect:
        """Accepts a direct message; the service delivers it at once."""
        with refuse_value_errors():
            check_recipient(request.to, self.limits)
            check_payload(request.payload, form, self.limits)
        sender = client.entities.get(request.name) if request.name else client
        if sender is None:
            raise Refused(f"you do not speak for {request.name[:64]!a}")
        self._advance_to(now)
        number = self._next_publication
        self._next_publication += 1
        return AcceptedDirect(
            number, sender.entity, sender.name, self.now, request.to, request.payload, form
        )

    def record_direct(self, message: AcceptedDirect, recipients: Iterable[int]) -> None:
        """Records which entities a direct message is for."""
        if self._recorder:
            for entity in recipients:
                self._recorder.direct_sent(
                    message.t, message.source, message.number, entity, len(message.payload)
                )

    def _replace_departed(self, client: ClientState, channel: str, age: Age = LATEST) -> None:
        """What those of the same name who have left retain there ends, if it is older."""
        for gone in self._expiry.replace(client, channel, self._next_publication, age):
            self._unretain(gone, channel)

    def _represented_entity(self, client: ClientState, name: str) -> ClientState:
        """The entity of this name for which the client publishes."""
        entity = client.entities.get(name)
        if entity is None:
            if len(client.entities) >= self.limits.entities:
                raise Refused(
                    f"a client speaks for at most {self.limits.entities} entities beside itself:"
                    " withdraw one"
                )
            entity = client.entities[name] = self.join(self.now, name, client.form)
            entity.owner = client
        return entity

    def withdraw(self, now: Time, client: ClientState, request: messages.WithdrawRequest) -> None:
        """Ends retained states, after all that this client has published so far."""
        if request.name:
            if request.name not in client.entities:
                raise Refused(f"you do not speak for {request.name[:64]!a}")
            client = client.entities[request.name]
            if request.channel is None:
                self.leave(now, client, ends_all=True)
                return
        channels = list(client.feeds) if request.channel is None else [request.channel]
        self._advance_to(self._change_time(now, None))
        for channel in channels:
            if channel in client.feeds:
                self._withdraw(client, channel)
        self._record_ended_states()
        self._fences.advance(self.now)
        self._move_followers()

    def _withdraw(self, client: ClientState, channel: str) -> None:
        self._states.remove(client.feeds.pop(channel), self._next_publication)
        self._unretain(client, channel)

    def _unretain(self, client: ClientState, channel: str) -> None:
        """What still waits is published later: it is delivered, but not retained."""
        self._waiting.unretain(client, channel)
        self._backlog.unretain(client, channel)

    def _new_feed(self, client: ClientState, channel: str) -> int:
        check_name("a channel", channel, self.limits)
        if len(client.feeds) >= self.limits.channels:
            raise Refused(f"a client publishes on at most {self.limits.channels} channels")
        feed = client.feeds[channel] = self._states.new_feed()
        return feed

    def flush(self, now: Time) -> FlushDeliveries:
        """Publishes what waits and returns its deliveries.

        If that is more than one flush should do (`fair_queueing`), some of it stays in `waiting`.
        """
        return self.publish_flush(now, self.take_flush())

    def take_flush(self) -> FlushInput:
        """Takes what the next flush publishes; the rest stays."""
        accepted, table = self._waiting.accepted, self._waiting.table()
        if self._backlog or not self.accounts.fits(table):
            accepted, table = self._backlog.exchange(accepted, table, self.accounts)
        channels = [one.request.channel for one in accepted] if self._on_channels else None
        attributes = [one.request.attributes for one in accepted] if self._attributed else None
        outlines = altitude_outlines(accepted) if self.geometry == EARTH else None
        if not self._backlog:
            self._on_channels = self._attributed = False
        data, self._waiting = bytes(self._waiting.data), WaitingPublications()
        return FlushInput(accepted, table, channels, attributes, outlines, data=data)

    def publish_flush(self, now: Time, taken: FlushInput) -> FlushDeliveries:
        """Publishes these, all at one time, and returns their deliveries."""
        self._advance_to(now, chain(taken.accepted, (one for one, _ in taken.remote)))
        t = self._flushed = self.now
        if not taken:
            return FlushDeliveries(t, (), *np.empty((4, 0), np.int64))
        accepted = taken.accepted
        publications = publication_batch(
            t, taken.table, accepted, taken.channels, taken.attributes, taken.outlines
        )
        deliveries, table = self._match_flush(t, taken, publications)
        deliveries = replace(deliveries, table=table, data=taken.data)
        if len(self._throttle):
            deliveries = self._apply_throttling(deliveries, table)
        # Last: if something failed before, nothing is in the trace and it can be tried again.
        if self._recorder and accepted:
            self._recorder.published_many(
                publications,
                np.array(accepted.ids, np.int64),
                taken.attributes,
                taken.table["size"],
            )
            record_states(self._recorder, t, accepted, taken.table)
        self._release_feeds()
        self._move_followers()
        return deliveries

    def _record_ended_states(self) -> None:
        if self._recorder and record_ended_states(self._recorder, self.now, self._states):
            self._flushed = self.now  # fences that change next do so later, as the trace has it

    def _release_feeds(self) -> None:
        """Slots of feeds that have ended are used again once none of their publications waits."""
        ids = self._waiting.accepted.ids
        next_one = ids[0] if ids else self._next_publication
        self._states.release_before(self._backlog.oldest(next_one))

    def _match_flush(
        self, t: Time, taken: FlushInput, publications: Batch
    ) -> tuple[FlushDeliveries, PublicationTable]:
        """Matches a flush: its deliveries, and the table of its publications."""
        accepted, table = taken.accepted, taken.table
        self._states.update(t, accepted, table)
        matches = self._matcher.match_many(publications)
        deliveries = sort_deliveries(
            t, accepted, self._subscribers, matches.publication, matches.subscription
        )
        self._charge(deliveries, table, matches.cost)
        return deliveries, table

    def _charge(
        self, deliveries: FlushDeliveries, table: PublicationTable, effort: EvaluationCost | None
    ) -> None:
        askers = self._subscribers[effort.subscription] if effort is not None else None
        self.accounts.charge(
            table, self.entities, deliveries.publication, deliveries.client, effort, askers
        )

    def _apply_throttling(
        self, deliveries: FlushDeliveries, table: PublicationTable
    ) -> FlushDeliveries:
        """Without the deliveries that throttling withholds."""
        throttle = self._throttles[deliveries.subscription]
        spares = np.flatnonzero(throttle >= 0)
        decision = self._throttle.decide(
            deliveries.t, throttle[spares], deliveries.publication[spares], table, self._states
        )
        withheld = spares[decision != KEPT]
        if self._recorder:
            subscribers = self.entities[deliveries.client[withheld]]
            # With the subscriber as its value: it asked for that, so it misses nothing.
            self._recorder.noted_many(
                deliveries.t, subscribers, "withheld", deliveries.numbers(withheld),
                subscribers.astype(np.float64),
            )  # fmt: skip
        kept = np.ones(len(deliveries), np.bool_)
        kept[withheld] = False
        return deliveries.only(kept)

    def record_deliveries(
        self, t: Time, deliveries: FlushDeliveries, which: Any = slice(None)
    ) -> None:
        """Records that these pairs were delivered. `which` is any index of a numpy column."""
        if self._recorder and len(deliveries):
            self._recorder.delivered_many(
                t, self.entities[deliveries.client[which]], deliveries.numbers(which),
                self.subscriptions[deliveries.subscription[which]], HOPS,
            )  # fmt: skip

    # States and fences.

    def nearby(
        self, now: Time, request: messages.NearbyRequest, form: messages.Encoding = messages.JSON
    ) -> list[messages.EntityState]:
        """Entities whose retained state is in this area now, the closest to its centre first."""
        with refuse_value_errors():
            check_name("a channel", request.channel, self.limits)
            if not 0 <= request.limit <= self.limits.nearby:
                raise Refused(f"from 0 to {self.limits.nearby} entities are listed")
            wanted = commands.Subscribe(
                0, checked_region(request.area, self.limits, self.geometry), channel=request.channel
            )
            subscription = wanted.stamped(NOBODY, max(now, self.now))
        self._advance_to(now)
        inside = self._states.inside(self.now, subscription)
        found = closest_first(self._states, inside, subscription, self.now)
        return list_states(self._states, found, request.limit, form)[1]

    def query_cost(self, listed: int) -> int:
        """The cost of matching all states and listing so many, in requests beyond the one."""
        return 1 + len(self._states) // LOOKED_AT + listed // LISTED

    def positions(self) -> Iterator[tuple[int, float, float, float]]:
        """Entities of this node with a retained state, and where the newest one is."""
        for client in self.clients:
            if client is not None and client.feeds:
                feeds = [feed for feed in client.feeds.values() if self._states.retains(feed)]
                if feeds:
                    newest = max(feeds, key=self._states.age)
                    yield client.entity, *self._states.place(newest)

    def retained_states(self, client: ClientState) -> list[RetainedState]:
        """The retained states of a client, at most one for each channel."""
        return [self._states.state(f) for f in client.feeds.values() if self._states.retains(f)]

    def _start_fence(self, client: ClientState, active: ActiveSubscription) -> messages.Notice:
        """The notice of who is inside. Those that do not fit follow as notices of their own."""
        inside = self._fences.begin(self.now, client, active)
        if active.fence_options.near is not None:
            self._fences.tell_inside(self.now, client, active, inside, 0)
            return messages.InsideNotice(active.number, [])
        feeds = np.array([one.feed for one in inside], np.int64)
        found, entities = list_states(self._states, feeds, self.limits.nearby, client.form)
        self._fences.tell_inside(self.now, client, active, inside, len(found))
        features = [one.fence for one in inside[: len(found)] if one.fence is not None]
        return messages.InsideNotice(active.number, entities, features)

    def change_fences(
        self, now: Time, name: str, prepared: PreparedFences,
        remove: Sequence[messages.FeatureId] = (), replace_all: bool = False,
    ) -> int:  # fmt: skip
        """Change a set of fences. How many it has then; a set without fences does not exist."""
        with refuse_value_errors():
            check_name("a set of fences", name, self.limits)
        if not name:
            raise Refused("a set of fences has a name")
        self._advance_to(self._fences.set_change_time(self._change_time(now, None)))
        return self._fences.change_set(
            self.now, name, prepared, remove, replace_all, self.limits.fences
        )

    def departed_clients(self) -> list[ClientState]:
        """Those who have left and have states with a ttl."""
        return list(self._expiry)

    def states_named(self, name: str) -> list[RetainedState]:
        """Of entities of this name, also of those whose connections have ended."""
        known = map(self.retained_states, self.recipients.find(name))
        return [*self._expiry.states_of(name), *(one for some in known for one in some)]

    def _waiting_of(self, client: ClientState) -> list[AcceptedPublication]:
        """Publications that wait, at least all of this client."""
        return [*self._backlog.publications(client), *self._waiting.accepted]

    def _retaining(self, flushed: Iterable[AcceptedPublication]) -> list[AcceptedPublication]:
        """Publications that become states: of a flush that has begun, and those that wait."""
        waiting = [*flushed, *self._backlog.publications(), *self._waiting.accepted]
        return [one for one in waiting if one.request.retain]

    def fence_set(self, name: str) -> FenceSet | None:
        return self._fences.find_set(name)

    def fence_sets(self) -> list[tuple[str, FenceSet]]:
        return self._fences.list_sets()

    def fence_notices(self) -> list[tuple[ClientState, messages.Notice]]:
        """What has happened at fences until the time of the last event."""
        notices = self._fences.take_notices(self.now) if len(self._fences) else []
        if notices:
            self.accounts.charge_notices(notices, self.entities, self.clients)
        return notices

    def tick(self, now: Time) -> list[tuple[ClientState, messages.Notice]]:
        """Notices of fences and watches, and once a second of what was withheld.

        Called ten times a second.
        """
        self._advance_to(now)
        self._move_followers()
        if len(self._fences):
            self._fences.tick(self.now)
        notices = self.fence_notices()
        self._release_feeds()
        if len(self._throttle):
            notices += self._withheld_notices()
            self._throttle.forget(self.now, self._states.settled)
        self._states.forget()
        return notices

    def _withheld_notices(self) -> Iterator[tuple[ClientState, messages.Notice]]:
        for throttle, rate, closest, budget in self._throttle.take_counts(self.now):
            client, active = self._throttled[throttle]
            yield client, messages.WithheldNotice(active.number, rate, closest, budget)

    # Time.

    def _change_time(self, now: Time, before: ActiveSubscription | None) -> Time:
        """When a subscription changes: after all publications so far and after its last change."""
        return max(now, self.now, self._flushed + 1, before.since + 1 if before else 0)

    def _advance_to(self, now: Time, flushed: Iterable[AcceptedPublication] = ()) -> None:
        """Time never goes back. Ends what has expired before, and records the legs of paths that
        begin meanwhile."""
        self.now = max(now, self.now)
        if self._states.next_expiry < self.now:
            self._expiry.expire(self.now - 1, self._retaining(flushed), self._next_publication)
        if self._recorder:
            self._record_ended_states()
            for begins, subscription in self._path_legs.begun(self.now):
                self._recorder.interest(begins, subscription)


def _find_subscription(client: ClientState, number: int) -> ActiveSubscription:
    active = client.subscriptions.get(number)
    if active is None:
        raise Refused(f"there is no subscription {number}")
    return active
