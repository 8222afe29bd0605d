"""A client of VSO: sends interests to their owners, and delivers each publication once.

Each subscription has an owner of its own. The client learns of a new owner from the old one, or
from the new one if the old one has died; the higher epoch wins. When an owner is silent or does not
know a subscription any more, the client subscribes again, through any known matcher or the gateway.
It subscribes to a little more than it wants (`buffer`), so that it knows entities that are about to
enter. It decides by its own clock what it wants, so nothing unwanted is delivered. A client that
only publishes sends to the gateway.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from nearcast.model.commands import Command, Leave, Move, Publish, Unsubscribe
from nearcast.model.interests import ActiveInterests, InterestCommand, InterestVersion, version_at
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, NodeId, Region, Subscription, SubscriptionId
from nearcast.node import Message, Outbox, Timer
from nearcast.protocols.voronoi.vso.client_columns import ClientColumns, History
from nearcast.protocols.voronoi.vso.messages import (
    Alive,
    Cancel,
    Candidate,
    Epoch,
    Interest,
    Notify,
    OwnedSubscriptions,
    OwnerChanged,
    OwnerConfirmed,
    Post,
    RegionUpdate,
    Version,
)
from nearcast.protocols.voronoi.vso.parameters import Parameters, microseconds
from nearcast.space.motion import SECOND, Path, Time
from nearcast.space.shapes import BOX, Shape, ShapeKind, Vector

CHANGES_REMEMBERED = (
    64  # versions of one interest: publications under way may be older than the latest
)
REMEMBERED_PUBLICATIONS = 32  # sent again if an owner has died meanwhile
QUIET: Time = SECOND  # after this, an interest has arrived everywhere
VOLUNTEERS = 5  # heartbeats between two offers of a candidate


def widened(region: Region, by: float) -> Region:
    """The same region, reaching so much farther to all sides. A formula says what it says."""
    if not by or isinstance(region, Formula):
        return region
    if isinstance(region, Path):
        return Path(tuple(replace(one, shape=_wide(one.shape, by)) for one in region.legs))
    return replace(region, shape=_wide(region.shape, by))


def _wide(shape: Shape, by: float) -> Shape:
    if shape.kind == BOX:
        return replace(shape, rx=shape.rx + by, ry=shape.ry + by, rz=shape.rz + by)
    return replace(shape, kind=ShapeKind.DISC, rx=shape.rx + by)


class RetrySubscriptions(Timer, frozen=True):
    """Send interests again that have no owner yet."""


class VsoClient:
    """The client part of a node; `send` also reaches the matcher part of the same node."""

    def __init__(
        self,
        node_id: NodeId,
        out: Outbox,
        clock: Callable[[], Time],
        parameters: Parameters,
        columns: ClientColumns,
        gateway: Callable[[], NodeId],
        send: Callable[[NodeId, Message], None],
    ) -> None:
        self.id, self.out = node_id, out
        self.parameters = parameters
        self.interests = ActiveInterests()
        self.subscriptions = self.interests.current
        self.version: dict[SubscriptionId, Version] = {}
        self.owner: dict[SubscriptionId, NodeId] = {}
        self.epoch: dict[SubscriptionId, Epoch] = {}
        self.history: dict[SubscriptionId, History] = {}
        self._owners: dict[NodeId, Time] = {}  # when each last sent something but a Notify
        self._columns, self._client_slot = columns, -1  # the slot is assigned in `begin`
        self._subscription_slots: dict[SubscriptionId, int] = {}
        self._clock, self._gateway, self._send = clock, gateway, send
        self._last: Version = 0
        self._served: Time = 0  # when a subscription last found an owner
        self._recent_publications: deque[Publication] = deque(maxlen=REMEMBERED_PUBLICATIONS)
        self._silent: Time = 0  # when an owner that was given up last sent something
        self._patience: Time = 0  # until the next attempt; 0: there was none
        self._checked: dict[NodeId, Time] = {}  # when owners were asked whether they live
        self._heartbeats = 0
        self._version_at_heartbeat: Version = 0  # the last version at the time of the last beat
        self.contact: NodeId | None = None

    @property
    def ready(self) -> bool:
        unserved = any(subscription not in self.owner for subscription in self.subscriptions)
        return not self.subscriptions or (not unserved and self._clock() - self._served > QUIET)

    @property
    def home(self) -> NodeId:
        """A matcher for messages that any matcher can forward."""
        return next(iter(self.owner.values()), None) or self.contact or self._gateway()

    def begin(self) -> None:
        self._client_slot = self._columns.add_client(self.id, self._clock())

    # The application.

    def command(self, command: Command) -> None:
        match command:
            case Publish():
                self._check_silent_owners()
                publication = command.stamped(self.id, self._clock())
                self._recent_publications.append(publication)
                self._send(self.home, Post(publication))
            case Leave():
                for subscription in list(self.subscriptions):
                    self._change(Unsubscribe(subscription))
            case _:
                self._change(command)

    def _change(self, command: InterestCommand) -> None:
        """Carry out a command about a subscription, and tell its owner."""
        number = command.subscription
        before = self.subscriptions.get(number)
        why = self.interests.apply(command, self.id, self._clock())
        if why is not None:
            self.out.note(why, number)
        elif isinstance(command, Unsubscribe):
            self._cancel(number)
        else:
            subscription = self.subscriptions[number]
            self.version[number] = self._next_version()
            self._append_version(number, subscription)
            owner = self.owner.get(number)
            same_filter = before is not None and subscription.filter is before.filter
            if isinstance(command, Move) and owner is not None and same_filter:
                wide = widened(subscription.region, self.parameters.buffer)
                self._send(owner, RegionUpdate(number, self.version[number], wide))
            else:
                self._send_interest(
                    number
                )  # all of it: a filter's clock begins anew with a formula's

    def _cancel(self, subscription: SubscriptionId) -> None:
        self._append_version(subscription, None)
        to = self.owner.pop(subscription, None) or self.home
        version = self.version[subscription] = self._next_version()
        self._send(to, Cancel(self.id, subscription, version))

    def _append_version(self, name: SubscriptionId, wanted: Subscription | None) -> None:
        now = self._clock()
        if name not in self.history:
            history = self.history[name] = deque(maxlen=CHANGES_REMEMBERED)
            self._subscription_slots[name] = self._columns.add_subscription(
                self._client_slot, history, now
            )
        self.history[name].append(InterestVersion(now, wanted))
        self._columns.update_subscription(self._subscription_slots[name], self.id, name, now)

    def _next_version(self) -> Version:
        """Higher than all before, also before a restart."""
        self._last = max(self._last + 1, self._clock())
        return self._last

    def _send_interest(self, subscription: SubscriptionId) -> None:
        """[VSO] IV-D, 1: send the whole interest to the owner, or to a matcher that forwards it."""
        wanted = self.subscriptions[subscription]
        wide = replace(wanted, region=widened(wanted.region, self.parameters.buffer))
        epoch = self.epoch.get(subscription, 0)
        to = self.owner.get(subscription) or self.home
        self._send(to, Interest(wide, self.version[subscription], epoch))
        if subscription not in self.owner and not self._patience:
            self._retry_after(microseconds(self.parameters.retry_ms))

    def _retry_after(self, patience: Time) -> None:
        self._patience = min(patience, self.parameters.heartbeat)
        self.out.set_timer(RetrySubscriptions(), self._patience)

    def retry_unserved(self) -> None:
        """Send unserved interests again: the matcher that got them may have died."""
        unserved = [s for s in self.subscriptions if s not in self.owner]
        for subscription in unserved:
            self.version[subscription] = self._next_version()
            self._send_interest(subscription)
        if unserved:
            self._retry_after(2 * self._patience)
        else:
            self._patience = 0

    # Matchers.

    def send_alive(self) -> None:
        """Send Alive to each owner; give up owners that do not answer."""
        now, p = self._clock(), self.parameters
        limit = now - p.misses * p.heartbeat
        for site in dict.fromkeys(self.owner.values()):
            if self._last_received(site, now) < limit:
                self._give_up_owner(site)
            else:
                self._owners.setdefault(site, now)
                self._send(site, Alive())
        self._owners = {s: t for s, t in self._owners.items() if s in self.owner.values()}
        if self.contact is not None and self.contact not in self._owners:
            self.contact = next(iter(self._owners), None)
        if self._heartbeats % VOLUNTEERS == 0:
            self._volunteer(self.home)
        self._heartbeats += 1
        self._version_at_heartbeat = self._last

    def _volunteer(self, to: NodeId) -> None:
        if self.parameters.candidates != "servers" and self.parameters.partitioning == "dynamic":
            self._send(to, Candidate(self.id, self.parameters.limit))

    def gateway_changed(self, since: Time) -> None:
        """There is another gateway; what was sent to the one before since then may be lost."""
        self._volunteer(self._gateway())
        if not self.owner:
            self.retry_unserved()
            self._publish_again(since)

    def _last_received(self, site: NodeId, now: Time) -> Time:
        """When the matcher last sent us anything."""
        return max(
            self._owners.get(site, now), self._columns.last_notified_at(self._client_slot, site)
        )

    def _give_up_owner(self, site: NodeId) -> None:
        """[VSO] III-C, 2: an owner has died; subscribe again at the site that has its region."""
        self.out.note("unlinked", site)
        self._silent = self._last_received(site, self._clock())
        del self._owners[site]
        lost = [s for s, owner in self.owner.items() if owner == site]
        for subscription in lost:
            del self.owner[subscription]
        if self.contact == site:
            self.contact = next(iter(self._owners), None)
        for subscription in lost:
            self.version[subscription] = self._next_version()
            self._send_interest(subscription)

    def _check_silent_owners(self) -> None:
        """Ask silent owners whether they are alive, before publishing to a dead one for long."""
        now, p = self._clock(), self.parameters
        interval = microseconds(p.doubt_ms)
        for site in list(self._owners):
            received = self._last_received(site, now)
            if now - received < interval:
                continue
            checked = self._checked.get(site, -interval)
            if checked > received and now - received >= p.misses * interval:
                self._give_up_owner(site)
            elif now - checked >= interval:
                self._checked[site] = now
                self._send(site, Alive())

    def on(self, message: Message, sender: NodeId) -> bool:
        """Handle a message for a client; False: it is none."""
        match message:
            case OwnerConfirmed(subscription, epoch):
                self._learn(subscription, sender, epoch, sender)
            case OwnerChanged(subscription, owner, epoch):
                self._learn(subscription, owner, epoch, sender)
            case OwnedSubscriptions(held):
                self._compare(held, sender)
            case _:
                return False
        if sender in self._owners:
            self._owners[sender] = self._clock()
        return True

    def _learn(
        self, subscription: SubscriptionId, owner: NodeId, epoch: Epoch, sender: NodeId
    ) -> None:
        if subscription not in self.subscriptions:
            if owner == sender:  # it has ended in the meantime, or was of an earlier life
                version = self.version.get(subscription) or self._next_version()
                self._send(owner, Cancel(self.id, subscription, version))
            return
        if epoch < self.epoch.get(subscription, 0):
            self.out.note("ignored", subscription)  # somebody owns it since
            return
        now, before = self._clock(), self.owner.get(subscription)
        if before != owner:
            self.owner[subscription] = self.contact = owner
            self._served = now
            received = self._silent if before is None else self._last_received(before, now)
            if now - received >= microseconds(self.parameters.doubt_ms):
                self._publish_again(received)
        self.epoch[subscription] = epoch
        self._owners[owner] = now

    def _publish_again(self, since: Time) -> None:
        """Publish again what was sent to a dead matcher; receivers drop duplicates."""
        for publication in self._recent_publications:
            if publication.t >= since:
                self._send(self.home, Post(publication))

    def _compare(
        self, held: Iterable[tuple[SubscriptionId, Version, Epoch]], sender: NodeId
    ) -> None:
        there = {}
        for subscription, version, epoch in held:
            there[subscription] = version
            if self.owner.get(subscription) != sender:
                self._learn(subscription, sender, epoch, sender)
        for subscription, owner in list(self.owner.items()):
            if owner != sender:
                continue
            if subscription not in there:
                # It was dropped, or is under way to somebody else: a higher version outlives both.
                self.version[subscription] = self._next_version()
                self._send_interest(subscription)
            elif there[subscription] < self.version[subscription] <= self._version_at_heartbeat:
                self._send_interest(
                    subscription
                )  # what was sent after the heartbeat is still under way

    # Publications.

    def receive(self, message: Notify, sender: NodeId) -> None:
        """[VSO] IV-E, 5: deliver what is wanted and new; as `ClientColumns.receive` for many."""
        publication, now = message.publication, self._clock()
        t, publisher = publication.t, publication.node
        if sender in self._owners:
            self._owners[sender] = now
        self._columns.note_publisher(self._client_slot, publisher, publication.shape, now)
        mine = []
        for subscription, history in self.history.items():
            since, wanted = history[-1]
            if since > t:
                wanted = version_at(history, t)
            if (
                wanted is not None
                and wants(wanted, publication, t)
                and self._columns.is_new(
                    self._subscription_slots[subscription], publication.id, now
                )
            ):
                mine.append(subscription)
        if mine:
            self.out.deliver(publication, tuple(mine), message.hops)

    def known(self, now: Time) -> Sequence[tuple[NodeId, Vector]]:
        """Recent publishers, and where they were."""
        known = self._columns.known(self._client_slot, now)
        return [(other, where) for other, where in known.items() if other != self.id]
