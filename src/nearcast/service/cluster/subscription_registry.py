"""Announces subscriptions of this node's clients to the sites that own their places.

Sites own and copy records (`Site`). Homes announce what their clients want and learn who owns it.
An owner confirms from time to time what it holds. What it should not hold is ended, and what nobody
holds is announced again. So whatever is lost on the way, homes and sites agree in the end.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import Message
from nearcast.protocols.voronoi.records import in_messages, leg
from nearcast.protocols.voronoi.site import (
    OwnershipGiven,
    OwnershipTaken,
    RecordChanged,
    RecordDropped,
    Site,
    SiteEvent,
)
from nearcast.protocols.voronoi.vso.messages import Epoch, Record, Version
from nearcast.service.client_state import ActiveSubscription
from nearcast.service.cluster.messages import (
    SubscriptionEnded,
    SubscriptionHint,
    SubscriptionOwned,
    SubscriptionUpdate,
)
from nearcast.service.cluster.recent_history import SubscriptionVersion
from nearcast.service.cluster.remote_subscriptions import (
    HOMES_BITS,
    RemoteSubscriptions,
    home_of,
    record_of,
)
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import BOX, DISC

MOST_HOPS = 8
TELL_EVERY: Time = 2 * SECOND
UNANSWERED: Time = SECOND // 2  # after this a site that has not answered is asked again
UNCONFIRMED: Time = 6 * SECOND  # after this, nobody seems to hold it any more
MOST_HOMES = (1 << HOMES_BITS) - 1


class OwnSubscription(Struct):
    """One subscription of a client of this node, and the site that owns it.

    `epoch`: below that of whoever takes it next. Each time that it is announced again, another site
    may take it than the one whose answer is late: not in the same epoch.
    """

    active: ActiveSubscription
    owner: NodeId | None = None
    epoch: Epoch = 0
    told: Time = 0
    confirmed: Time = 0  # or when a version was first announced that nobody has confirmed yet


class SubscriptionRegistry:
    """As home: the subscriptions of own clients. As site: the records that others announce."""

    def __init__(
        self, me: NodeId, site: Callable[[], Site], remote_subscriptions: RemoteSubscriptions,
        send: Callable[[NodeId, Message], None], is_member: Callable[[NodeId], bool],
    ) -> None:  # fmt: skip
        self._me, self._site, self._remote_subscriptions = me, site, remote_subscriptions
        self._send, self._is_member = send, is_member
        self.mine: dict[SubscriptionId, OwnSubscription] = {}
        self._dead: dict[NodeId, None] = {}  # nodes whose clients are gone
        self._departed: dict[SubscriptionId, Time] = {}
        self._owned: dict[NodeId, list[tuple[SubscriptionId, Version]]] = {}  # by home, untold
        self._told: Time = 0
        self._absent_homes: dict[NodeId, Time] = {}  # no members; since when this is known

    # At home.

    def announce(
        self,
        now: Time,
        news: dict[SubscriptionId, ActiveSubscription | None],
        unannounced: Sequence[SubscriptionVersion],
    ) -> None:
        """Announces changed and ended subscriptions, and versions that were replaced already."""
        told: list[OwnSubscription] = []
        ended: dict[NodeId, list[tuple[SubscriptionId, Version]]] = {}
        for subscription, active in news.items():
            if active is not None:
                mine = self.mine.setdefault(subscription, OwnSubscription(active, confirmed=now))
                mine.active = active
                told.append(mine)
            elif subscription in self.mine:
                mine = self.mine.pop(subscription)
                version = self._record(mine).version
                target = mine.owner if mine.owner is not None else self._next_hop(now, mine)
                ended.setdefault(target, []).append((subscription, version))
        past = [record_of(self._me, was.subscription, was.since, 0) for was in unannounced]
        self._send_hints(now, [*past, *map(self._record, told)])
        self._send_updates(now, told)
        for target, several in ended.items():
            for some in in_messages(several):
                self._send_or_apply(target, SubscriptionEnded(some))

    def remove_departed(self, now: Time, subscription: SubscriptionId) -> None:
        """Its client goes to another node, which announces it from now on."""
        self.mine.pop(subscription, None)
        self._departed[subscription] = now

    def owned_elsewhere(self) -> set[NodeId]:
        """Clients of this node with a subscription that another site owns."""
        here = self._me, None
        return {
            mine.active.subscription.node for mine in self.mine.values() if mine.owner not in here
        }

    def owner(self, subscription: SubscriptionId) -> NodeId | None:
        mine = self.mine.get(subscription)
        return None if mine is None else mine.owner

    def _record(self, mine: OwnSubscription) -> Record:
        active = mine.active
        record = record_of(self._me, active.subscription, active.since, active.handovers)
        return replace(record, epoch=mine.epoch)

    def _next_hop(self, now: Time, mine: OwnSubscription) -> NodeId:
        x, y, *_ = leg(mine.active.subscription.region, now)[0]
        hop = self._site().next_hop((x, y))
        return self._me if hop is None else hop

    def _send_updates(self, now: Time, several: Iterable[OwnSubscription]) -> None:
        targets: dict[NodeId, list[Record]] = {}
        for mine in several:
            mine.told = now
            target = self._me if mine.owner is None else mine.owner  # this site may know the owner
            targets.setdefault(target, []).append(self._record(mine))
        for target, records in targets.items():
            for some in in_messages(records):
                self._send_or_apply(target, SubscriptionUpdate(some))

    def _send_hints(self, now: Time, several: list[Record]) -> None:
        """Hints to each site that an area touches, as far as this node knows them."""
        mesh = self._site().mesh
        if not several or mesh.me is None or not mesh.known:
            return
        legs = [leg(record.region, now) for record in several]
        areas = np.array([found[0][:4] for found in legs])
        kinds = np.where([found[4] for found in legs], DISC, BOX)
        touched = mesh.touched(kinds, *areas.T)
        for site, which in zip(mesh.ids().tolist(), touched.T, strict=True):
            if site != self._me and which.any():
                records = [several[k] for k in np.flatnonzero(which).tolist()]
                for some in in_messages(records):
                    self._send(site, SubscriptionHint(some))

    def _on_hint(self, records: Iterable[Record]) -> None:
        now = self._site().ownership.now
        for record in records:
            try:
                home = home_of(record)
                if home != self._me and home not in self._dead:
                    self._remote_subscriptions.add_hint(now, record, home)
            except (ValueError, msgspec.MsgspecError):
                continue

    def _send_or_apply(
        self, target: NodeId, message: SubscriptionUpdate | SubscriptionEnded
    ) -> None:
        if target == self._me:
            self.receive(message, self._me)
        else:
            self._send(target, message)

    def _on_held(self, held: Iterable[tuple[SubscriptionId, Version]], owner: NodeId) -> None:
        now = self._site().ownership.now
        unknown: list[tuple[SubscriptionId, Version]] = []
        behind: list[OwnSubscription] = []
        for subscription, version in held:
            mine = self.mine.get(subscription)
            if mine is not None:
                mine.owner, mine.confirmed = owner, now
                if version < self._record(mine).version and now - mine.told > UNANSWERED:
                    behind.append(mine)
            elif subscription not in self._departed:
                unknown.append((subscription, version))
        self._send_updates(now, behind)
        for some in in_messages(unknown):
            self._send_or_apply(owner, SubscriptionEnded(some))

    # As a site.

    def receive(
        self,
        message: SubscriptionUpdate | SubscriptionHint | SubscriptionEnded | SubscriptionOwned,
        sender: NodeId,
    ) -> None:
        match message:
            case SubscriptionHint(records):
                self._on_hint(records)
            case SubscriptionUpdate(records, hops):
                self._on_update(records, hops, sender)
            case SubscriptionEnded(ended, hops):
                self._on_ended(ended, hops)
            case SubscriptionOwned(held):
                self._on_held(held, sender)

    def _on_update(self, records: Iterable[Record], hops: int, sender: NodeId) -> None:
        """Takes what is new or this site's. What another site owns goes there, wherever its area
        is: only the owner gives a record away, else two would own it. An owner that sends it back
        does not own it."""
        site, now = self._site(), self._site().ownership.now
        elsewhere: dict[NodeId, list[Record]] = {}
        for record in records:
            try:
                home = home_of(record)
            except (ValueError, msgspec.MsgspecError):
                continue
            known = site.record(record.id)
            if known is not None and known.owner == self._me:
                if known.body == record.body and record.version > known.version:
                    site.moved([record.id], [record.region], [record.version])
                    self._index(now, record, home)
                    continue
                if site.hold(record) is known:  # nothing new: it was asked again
                    self._owned.setdefault(home, []).append((known.id, known.version))
                continue
            if known is not None and known.owner != sender and self._is_member(known.owner):
                hop: NodeId | None = known.owner
            else:
                x, y, *_ = leg(record.region, now)[0]
                hop = site.next_hop((x, y))
            if hop is None or hops >= MOST_HOPS:
                site.hold(record)
            else:
                elsewhere.setdefault(hop, []).append(record)
        for target, several in elsewhere.items():
            self._send(target, SubscriptionUpdate(tuple(several), hops + 1))

    def _on_ended(self, ended: Iterable[tuple[SubscriptionId, Version]], hops: int) -> None:
        site = self._site()
        for subscription, version in ended:
            known = site.record(subscription)
            if known is not None and known.version > version:
                continue
            if known is not None and known.owner != self._me and hops < MOST_HOPS:
                self._send(known.owner, SubscriptionEnded(((subscription, version),), hops + 1))
            else:
                site.dropped(subscription, version)

    def apply_site_change(self, now: Time, change: SiteEvent) -> None:
        """The site of this node has got, given, changed or dropped a record."""
        match change:
            case OwnershipTaken(record):
                home = self._home(now, record)
                if home in self._dead:
                    self._site().dropped(record.id, record.version)
                elif home is not None:
                    self._owned.setdefault(home, []).append((record.id, record.version))
            case OwnershipGiven(record) | RecordChanged(record):
                self._home(now, record)
            case RecordDropped(subscription, _):
                self._remote_subscriptions.drop(now, subscription)
            case _:
                pass

    def _home(self, now: Time, record: Record) -> NodeId | None:
        try:
            home = home_of(record)
            self._index(now, record, home)
        except (ValueError, msgspec.MsgspecError):
            return None
        return home

    def _index(self, now: Time, record: Record, home: NodeId) -> None:
        if home == self._me:
            self._remote_subscriptions.drop(now, record.id, arrived=True)
        elif home not in self._dead:
            self._remote_subscriptions.put(now, record, home)

    def on_node_lost(self, now: Time, node: NodeId) -> None:
        """A node is dead: its clients' subscriptions end; ours that it owned need a new owner."""
        self._dead[node] = None
        site = self._site()
        for record in site.ownership.records.of(site.ownership.records.owned_by(self._me)):
            if self._home_is(record, node):
                site.dropped(record.id, record.version)
        homeless = [mine for mine in self.mine.values() if mine.owner == node]
        for mine in homeless:
            mine.owner = None
        self._send_updates(now, homeless)

    def on_node_back(self, node: NodeId) -> None:
        """A node is a member, perhaps again: this site may have got records of its clients while it
        took it for dead."""
        if node in self._dead:
            del self._dead[node]
            ownership = self._site().ownership
            for record in ownership.records.at:
                if record is not None and self._home_is(record, node):
                    self._home(ownership.now, record)

    def _home_is(self, record: Record, node: NodeId) -> bool:
        try:
            return home_of(record) == node
        except (ValueError, msgspec.MsgspecError):
            return True

    def tick(self, now: Time) -> None:
        owned, self._owned = self._owned, {}
        if now - self._told >= TELL_EVERY:
            self._told = now
            owned = {}
            records = self._site().ownership.records
            absent: dict[NodeId, Time] = {}
            for record in records.of(records.owned_by(self._me)):
                home = self._home(now, record)
                if home is None:
                    continue
                if not self._is_member(home):  # it crashed, perhaps before this node joined
                    since = absent[home] = self._absent_homes.get(home, now)
                    if now - since > UNCONFIRMED:
                        self._site().dropped(record.id, record.version)
                        continue
                owned.setdefault(home, []).append((record.id, record.version))
            self._absent_homes = absent
            self._departed = {s: t for s, t in self._departed.items() if now - t < 5 * TELL_EVERY}
        for home, several in owned.items():
            if home == self._me:
                self._on_held(several, self._me)
            else:
                for some in in_messages(several):
                    self._send(home, SubscriptionOwned(some))
        self._resend_unconfirmed(now)

    def _resend_unconfirmed(self, now: Time) -> None:
        again = []
        for mine in self.mine.values():
            silent = mine.owner is None or now - mine.told > UNCONFIRMED
            if silent and now - mine.confirmed > UNCONFIRMED:
                # Perhaps it was believed to have ended; a later version says that it has not.
                mine.owner, mine.confirmed = None, now
                mine.active.handovers = min(mine.active.handovers + 1, MOST_HOMES)
            if mine.owner is None and now - mine.told > UNANSWERED:
                mine.epoch += 1
                again.append(mine)
        self._send_updates(now, again)
