"""The realm of a node in a cluster: other nodes' publications, recent history, moving clients."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, PLANE, Geometry
from nearcast.client_protocol.limits import Limits
from nearcast.columns import grow
from nearcast.matching.filters import count_steps
from nearcast.matching.matcher import Batch, Integers, Matcher, Matches
from nearcast.model import commands
from nearcast.model.subscription import NodeId, Subscription
from nearcast.service.client_state import (
    NO_SLOT,
    AcceptedPublication,
    ActiveSubscription,
    ClientState,
    FlushDeliveries,
    sort_deliveries,
)
from nearcast.service.cluster.fence_replication import ReplicatedFences, check_features
from nearcast.service.cluster.messages import FenceRecord
from nearcast.service.cluster.recent_history import (
    EarlierDeliveries,
    FlushReaders,
    PastFlush,
    RecentHistory,
    SubscriptionVersion,
)
from nearcast.service.cluster.remote_entities import RemoteEntities
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS
from nearcast.service.fences.sets import PreparedFences, read_features
from nearcast.service.flush_input import FlushInput
from nearcast.service.realm import Realm
from nearcast.service.retained_state import (
    PUBLICATION_DTYPE,
    PublicationTable,
    RetainedState,
    altitude_outlines,
    pack_publication,
    publication_batch,
)
from nearcast.service.state_expiry import LATEST, Age
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder

OVERDUE: Time = SECOND
MOST_FENCES = 2**53  # a node takes over what others have accepted


class ClusterRealm(Realm):
    """A realm that also delivers other nodes' publications, and whose clients change nodes."""

    def __init__(
        self,
        matcher: Matcher,
        limits: Limits,
        recorder: Recorder | None,
        entities_from: int,
        geometry: Geometry = PLANE,
    ) -> None:
        super().__init__(matcher, limits, recorder, entities_from, geometry)
        self.history = RecentHistory()
        self.remote_entities = RemoteEntities(
            self._states, self._expiry, lambda: [one for one, _ in self._remote]
        )
        self.replicated_fences = ReplicatedFences(entities_from >> COUNT_BITS)
        self.changed_fences: list[FenceRecord] = []  # which other nodes do not know yet
        self._arrived: dict[int, ClientState] = {}  # by entity: who has come from another node
        # By client slot, of those who came from other nodes.
        self.earlier_deliveries: dict[int, EarlierDeliveries] = {}
        self._remote: list[tuple[AcceptedPublication, bytes]] = []
        # States that other nodes' entities have withdrawn: entity, channel, when. They end after
        # the next flush, because a later state of the same entity may wait for it.
        self._withdrawn: list[tuple[int, str, Time]] = []
        self._since: Integers = np.zeros(64, np.int64)  # by subscription slot: when it changed
        # By client slot: when the client left the node before this one; -1 if it joined here.
        self._departed: Integers = np.full(64, -1, np.int64)

    @property
    def waiting(self) -> int:
        return super().waiting + len(self._remote)

    @property
    def has_remote_waiting(self) -> bool:
        """Do publications of other nodes wait? The next flush always takes all of them."""
        return bool(self._remote)

    def states_named(self, name: str) -> list[RetainedState]:
        elsewhere = map(self.retained_states, self.remote_entities.named(name))
        return [*super().states_named(name), *(one for some in elsewhere for one in some)]

    # Changes that other nodes must learn.

    def leave(self, now: Time, client: ClientState, ends_all: bool = False) -> None:
        if not client.left:
            if ends_all:
                for channel in client.feeds:
                    self._tell_withdrawn(client, channel, max(now, self.now))
            super().leave(now, client, ends_all)
            self.history.left_entities.append(client.entity)
            # What it published on another node may wait here still: its states have ended, too.
            for waiting, _ in self._remote:
                if waiting.client.entity == client.entity:
                    waiting.client.left = True

    def _withdraw(self, client: ClientState, channel: str) -> None:
        super()._withdraw(client, channel)
        self._tell_withdrawn(client, channel, self.now)
        self._advance_to(self.now + 1)  # what is published next is later, and stays

    def _tell_withdrawn(self, client: ClientState, channel: str, t: Time) -> None:
        """All nodes must know: what the client published before, here or on another node, may come
        later."""
        self.history.withdrawn_states.append((client.entity, channel, t))
        self.remote_entities.withdraw(self.now, client.entity, channel, t)

    def _waiting_of(self, client: ClientState) -> list[AcceptedPublication]:
        return [*super()._waiting_of(client), *(one for one, _ in self._remote)]

    def _retaining(self, flushed: Iterable[AcceptedPublication]) -> list[AcceptedPublication]:
        remote = [one for one, _ in self._remote if one.request.retain]
        return [*super()._retaining(flushed), *remote]

    def _add_client(self, entity: int, name: str, form: messages.Encoding) -> ClientState:
        client = super()._add_client(entity, name, form)
        if client.slot == len(self._departed):
            self._departed = np.concatenate((self._departed, np.full_like(self._departed, -1)))
        return client

    def _free_client(self, client: ClientState) -> None:
        self.earlier_deliveries.pop(client.slot, None)
        if self._arrived.pop(client.entity, None) is not None:
            self._departed[client.slot] = -1
        super()._free_client(client)

    def _before_change(self, t: Time, active: ActiveSubscription) -> None:
        """Keeps the old version, for publications that arrive late."""
        if active.fence_options.lacks_area:
            return
        was, since = active.subscription, active.since
        self.history.versions.add(self.now, active.slot, was, since, t)
        if since < t and self.history.changed_subscriptions.get(was.id) is active:
            self.history.unannounced.append(SubscriptionVersion(was, since, t))

    def _apply_change(
        self,
        t: Time,
        active: ActiveSubscription,
        wanted: commands.Subscribe,
        subscription: Subscription,
    ) -> None:
        if not active.fence_options.lacks_area:
            self._note_change(t, active)
        super()._apply_change(t, active, wanted, subscription)

    def _note_change(self, t: Time, active: ActiveSubscription) -> None:
        slot = active.slot
        self._since = grow(self._since, slot + 1)
        self._since[slot] = t
        self.history.changed_subscriptions[active.subscription.id] = active

    def _end_subscription(self, active: ActiveSubscription) -> None:
        self.history.changed_subscriptions[active.subscription.id] = None
        super()._end_subscription(active)

    def _end_area(self, t: Time, active: ActiveSubscription) -> None:
        self.history.changed_subscriptions[active.subscription.id] = None
        super()._end_area(t, active)

    def _remove_subscription(self, active: ActiveSubscription) -> None:
        self.history.versions.drop(active.slot)  # slots are used again
        super()._remove_subscription(active)

    # Publications.

    def receive_remote(
        self, entity: int, name: str, number: int, request: messages.PublishRequest,
        form: messages.Encoding, t: Time, departed: bool = False,
    ) -> bool:  # fmt: skip
        """Accepts another node's publication for the next flush. `departed`: its publisher had left
        when it was made.

        False if it is overdue and a later one of its publisher was delivered here. While no link
        or node is slower than `OVERDUE`, that does not happen (`ordering`).
        """
        where = self._publication_shape(request, self.limits)
        if len(request.payload):
            form.check_payload(request.payload)
        client, overdue = self._arrived.get(entity), t < self.now - OVERDUE
        if overdue and (client is not None or self.remote_entities.has_newer(entity, t)):
            return False
        if client is None:
            client = self.remote_entities.on_publication(
                self.now, entity, name, form, number, t, departed
            )
        feed = self.remote_entities.feed(client, request, t)
        row = pack_publication(
            client.entity, NO_SLOT, NO_SLOT, feed, len(request.payload), request.retain, *where
        )
        self._remote.append((AcceptedPublication(client, number, where[0], request, form, t), row))
        return True

    def take_flush(self) -> FlushInput:
        taken = super().take_flush()
        taken.remote, self._remote = self._remote, []
        return taken

    def publish_flush(self, now: Time, taken: FlushInput) -> FlushDeliveries:
        if taken.remote:  # other clocks may be ahead
            now = max(now, *(one.t for one, _ in taken.remote))
        return super().publish_flush(now, taken)

    def _release_feeds(self) -> None:
        if not self._remote:
            super()._release_feeds()

    def _match_flush(
        self, t: Time, taken: FlushInput, publications: Batch
    ) -> tuple[FlushDeliveries, PublicationTable]:
        accepted, table = taken.accepted, taken.table
        own = len(accepted)
        if taken.remote:
            # In the order of publication.
            remote = sorted(taken.remote, key=lambda one: (one[0].t, one[0].id))
            rows = np.frombuffer(b"".join([row for _, row in remote]), PUBLICATION_DTYPE)
            table = np.concatenate((table, rows))
            for slot in np.flatnonzero(rows["retain"]).tolist():
                one = remote[slot][0]
                entity, channel = one.client.entity, one.request.channel
                if self.remote_entities.has_withdrawn(entity, channel, one.t):
                    table["retain"][own + slot] = 0
                elif len(self._expiry):
                    self._replace_departed(one.client, channel, (one.t, one.id))
            accepted = accepted.with_others(one for one, _ in remote)
            channels, others = None, [one.request.channel for one, _ in remote]
            if taken.channels is not None or any(others):
                channels = [*(taken.channels or [""] * own), *others]
            outlines = altitude_outlines(accepted) if self.geometry == EARTH else None
            publications = publication_batch(t, table, accepted, channels, outlines=outlines)
            publications.t[own:] = [one.t for one, _ in remote]
        self._states.update(t, accepted, table)
        self._end_withdrawn()
        matches = self._matcher.match_many(publications)
        publication, active = self._match_versions(publications, matches)
        # Publications of other nodes come first: they are older, perhaps of a client now here.
        turned = np.where(publication < own, publication + len(accepted), publication) - own
        deliveries = sort_deliveries(t, accepted, self._subscribers, turned, active)
        back = deliveries.publication + own
        back[back >= len(accepted)] -= len(accepted)
        deliveries = replace(deliveries, publication=back)
        self._charge(deliveries, table, matches.cost)
        retained = np.flatnonzero(table["retain"][:own])
        return self._remember_flush(deliveries, publications, own, retained), table

    def _match_versions(self, publications: Batch, matches: Matches) -> tuple[Integers, Integers]:
        """Pairs by the subscriptions that were in force when the publication was made."""
        publication, active = matches.publication, matches.subscription
        now = self._since[active] <= publications.t[publication]
        earlier, slot = self.history.versions.match(publications)
        return (
            np.concatenate((publication[now], earlier)),
            np.concatenate((active[now], slot)),
        )

    def _remember_flush(
        self, deliveries: FlushDeliveries, publications: Batch, own: int, retained: Integers
    ) -> FlushDeliveries:
        """Removes what a client received on its last node, and adds the flush to the history."""
        deliveries = replace(deliveries, own=own)
        if self._arrived:
            deliveries = deliveries.only(self._not_delivered_before(deliveries, publications))
        client, accepted, ids = deliveries.client, deliveries.publications, deliveries.ids
        first = np.ones(len(client), np.bool_)
        first[1:] = client[1:] != client[:-1]
        starts = np.flatnonzero(first)
        readers = FlushReaders(
            self.entities[client[starts]], np.append(starts, len(client)), deliveries.publication
        )
        self.history.add(PastFlush(deliveries.t, accepted, ids, publications, retained, readers))
        return deliveries

    def _not_delivered_before(
        self, deliveries: FlushDeliveries, publications: Batch
    ) -> NDArray[np.bool_]:
        """What was published before a client came is delivered while it is known what the client
        received on its last node, and while it is not overdue: later ones may have come there."""
        unheard, overdue = np.ones(len(deliveries), np.bool_), deliveries.t - OVERDUE
        early = publications.t[deliveries.publication] <= self._departed[deliveries.client]
        for pair in np.flatnonzero(early).tolist():
            earlier = self.earlier_deliveries.get(int(deliveries.client[pair]))
            index = int(deliveries.publication[pair])
            t, number = int(publications.t[index]), deliveries.publications[index].id
            unheard[pair] = (
                earlier is not None
                and t >= max(earlier.since, overdue)
                and number not in earlier.publications
            )
        return unheard

    # Handover.

    def release_client(self, now: Time, client: ClientState, home: NodeId) -> None:
        """The client continues on another node: nothing ends, and it is a remote entity now.

        Other entities for which it publishes leave.
        """
        for entity in list(client.entities.values()):
            self.leave(now, entity)
        self._advance_to(now)
        for active in client.subscriptions.values():
            self._remove_subscription(active)
            self.history.changed_subscriptions.pop(active.subscription.id, None)
        elsewhere = self.remote_entities.set_home(
            self.now, client.entity, client.name, client.form, home, self.now
        )
        elsewhere.feeds = client.feeds
        self._free_client(client)
        if self._recorder:
            self._recorder.note(self.now, client.entity, "departed")

    def add_transferred(
        self, now: Time, entity: int, name: str, form: messages.Encoding,
        subscriptions: Sequence[ActiveSubscription],
        earlier: Sequence[Sequence[SubscriptionVersion]], departed: Time,
        retained: Collection[str],
    ) -> ClientState:  # fmt: skip
        """Adds a client of another node with its subscriptions; nothing begins anew. `retained`:
        the channels on which it had a state there. It may have withdrawn others that are known
        here still."""
        self._advance_to(max(now, departed + 1, *(active.since for active in subscriptions)))
        client = self._arrived[entity] = self._add_client(entity, name, form)
        self._departed[client.slot] = departed
        self.remote_entities.withdraw_others(self.now, entity, retained, departed)
        client.feeds = self.remote_entities.remove(entity)
        for came, versions in zip(subscriptions, earlier, strict=True):
            wanted = came.subscription
            slot = self._add_subscription_slot(client, came.number, wanted.id)
            active = replace(
                came, slot=slot, throttle=None, handovers=came.handovers + 1,
                steps=sum(count_steps(wanted)),
            )  # fmt: skip
            client.subscriptions[came.number] = active
            for was in versions:
                self.history.versions.add(self.now, slot, was.subscription, was.since, was.until)
            if active.fence_options.lacks_area:
                continue
            self._note_change(came.since, active)
            self._matcher.put(replace(wanted, id=slot))
            self._start_throttling(client, active)
            if active.follow:
                self._following.begin(active)
            if self._recorder:
                self._path_legs.put(wanted, departed)
        if self._recorder:
            self._recorder.note(self.now, client.entity, "arrived")
        return client

    def restore_state(
        self,
        client: ClientState,
        request: messages.PublishRequest,
        form: messages.Encoding,
        number: int,
        t: Time,
    ) -> None:
        """Takes over a state that it retained on another node."""
        where = self._publication_shape(request, self.limits)
        if len(request.payload):
            form.check_payload(request.payload)
        if request.ttl is not None:
            self._ttl_used = True
        feed = self.remote_entities.feed(client, request, t)
        row = pack_publication(
            client.entity, NO_SLOT, NO_SLOT, feed, len(request.payload), request.retain, *where
        )
        accepted = [AcceptedPublication(client, number, where[0], request, form, t)]
        self._states.update(t, accepted, np.frombuffer(bytearray(row), PUBLICATION_DTYPE))

    def learn_state(
        self, since: Time, home: NodeId, entity: int, name: str, request: messages.PublishRequest,
        form: messages.Encoding, number: int, t: Time,
    ) -> None:  # fmt: skip
        """A retained state of another node's client, reported by that node."""
        over = self.remote_entities.has_withdrawn(entity, request.channel, t)
        gone = self.remote_entities.has_left(entity, since)
        if entity not in self._arrived and not gone and not over:
            client = self.remote_entities.set_home(self.now, entity, name, form, home, since)
            self.restore_state(client, request, form, number, t)
            self._replace_departed(client, request.channel, (t, number))

    def learn_departed_state(
        self, entity: int, name: str, request: messages.PublishRequest,
        form: messages.Encoding, number: int, t: Time,
    ) -> None:  # fmt: skip
        """A state with a ttl whose client has left."""
        over = self.remote_entities.has_withdrawn(entity, request.channel, t)
        expired = request.ttl is None or t + round(request.ttl * SECOND) <= self.now
        if over or expired or self.remote_entities.knows(entity) or self._serves(entity):
            return
        client = self._expiry.find(entity) or ClientState(NO_SLOT, entity, name, form, left=True)
        self.restore_state(client, request, form, number, t)

    def _serves(self, entity: int) -> bool:
        return any(client is not None and client.entity == entity for client in self.clients)

    def _replace_departed(self, client: ClientState, channel: str, age: Age = LATEST) -> None:
        """Also remembers it: other nodes may report the states that have ended."""
        for gone in self._expiry.replace(client, channel, self._next_publication, age):
            self._unretain(gone, channel)
            t = self.now if age == LATEST else age[0]
            self.remote_entities.withdraw(self.now, gone.entity, channel, t)

    def on_entity_left(self, now: Time, entity: int, node: NodeId) -> None:
        """This node says that it has left. If it is a client here, it left only that node."""
        if entity not in self._arrived:
            self.remote_entities.on_entity_left(now, entity, node)

    def on_states_withdrawn(self, states: Sequence[tuple[int, str, Time]]) -> None:
        """Entities of another node have withdrawn these states."""
        self._withdrawn += states
        if not self._remote:
            self._end_withdrawn()

    def _end_withdrawn(self) -> None:
        for entity, channel, t in self._withdrawn:
            self.remote_entities.withdraw(self.now, entity, channel, t)
        self._withdrawn.clear()

    def states_digest(self, until: Time) -> tuple[int, int]:
        """How many retained states were made until then, and the sum of their numbers."""
        return self._states.digest(until)

    def restart_fences(self, client: ClientState, numbers: Sequence[int]) -> list[messages.Notice]:
        """Restarts these fences and watches; returns the notices of who is inside."""
        return [self._start_fence(client, client.subscriptions[number]) for number in numbers]

    # Sets of fences.

    def change_fences(
        self, now: Time, name: str, prepared: PreparedFences,
        remove: Sequence[messages.FeatureId] = (), replace_all: bool = False,
    ) -> int:  # fmt: skip
        check_features(prepared.texts)
        count = super().change_fences(now, name, prepared, remove, replace_all)
        texts = dict(zip(prepared.ids, prepared.texts, strict=True))
        self.changed_fences += self.replicated_fences.change(
            self.now, name, texts, remove, replace_all
        )
        return count

    def merge_fences(self, records: Sequence[FenceRecord]) -> None:
        """Features of sets that other nodes have changed. Those that cannot be read here, because
        the limits of the nodes differ, are known and do nothing."""
        self._advance_to(self._fences.set_change_time(self._change_time(self.now, None)))
        for name, change in self.replicated_fences.merge(records).items():
            prepared = read_features(change.texts, self.limits, self.geometry)
            removed = [*{*change.removed, *change.texts} - {*prepared.ids}]
            self._fences.change_set(self.now, name, prepared, removed, False, MOST_FENCES)

    def _end_replaced(self) -> None:
        """Who left lately may have been replaced before. Clients of one name on several nodes come
        and go in different orders, and all nodes must know the same states."""
        for client, channel in self._expiry.replaced_states():
            t = self._states.state(client.feeds[channel]).t
            self.remote_entities.withdraw(self.now, client.entity, channel, t)

    def tick(self, now: Time) -> list[tuple[ClientState, messages.Notice]]:
        self._end_replaced()
        notices = super().tick(now)
        self.history.forget(self.now)
        self.remote_entities.forget(self.now)
        if not self.waiting:
            self._expiry.end_stateless()
        self.earlier_deliveries = {
            slot: earlier_deliveries
            for slot, earlier_deliveries in self.earlier_deliveries.items()
            if earlier_deliveries.until > self.now
        }
        return notices
