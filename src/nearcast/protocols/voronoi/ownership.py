"""Owners and replicas of subscriptions, and transfer of ownership ([VSO] III-B and IV-G).

The owner is the site whose region has the centre. When the centre has been in another region for a
while, the owner offers the record to that site, in a higher epoch. Without an acknowledgement it
reclaims the record, in a still higher epoch. When an owner dies, the site that gets the centre
claims the record from its copy: every record is copied to each site that its area touches, and to
the site next nearest to its centre, which would inherit it. Sites compare digests of copies and
send again what differs. So sites agree in the end, whatever messages are lost: the newest version
of the content wins, and the largest (epoch, owner).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.subscription import NodeId, Region, SubscriptionId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.mesh import Mesh
from nearcast.protocols.voronoi.records import NEVER, Flags, Floats, Records, Slots, in_messages
from nearcast.protocols.voronoi.replicas import Replicas
from nearcast.protocols.voronoi.vso.messages import (
    CopiesReleased,
    Digest,
    Epoch,
    Inventory,
    Place,
    Record,
    RecordCopies,
    RecordsEnded,
    RegionUpdates,
    Transfer,
    TransferAck,
    Version,
)
from nearcast.protocols.voronoi.vso.parameters import Parameters, microseconds
from nearcast.space.motion import Time
from nearcast.space.shapes import BOX, DISC

AHEAD: Time = 500_000  # areas are copied so long before they arrive in a region
MEMORY = 100_000  # ended subscriptions that are remembered
LONG_AGO: Time = -(2**62)


class OwnershipTaken(Struct, frozen=True):
    """This site owns the record now (or again, in a later epoch)."""

    record: Record
    claimed: bool = False  # its owner had died


class OwnershipGiven(Struct, frozen=True):
    """`record.owner` owns it now, and this site did before: tell the client."""

    record: Record


class RecordChanged(Struct, frozen=True):
    """A copy of another site's record is new or different."""

    record: Record


class RecordDropped(Struct, frozen=True):
    """This site has no record of this subscription any more."""

    subscription: SubscriptionId
    client: NodeId


OwnershipEvent: TypeAlias = OwnershipTaken | OwnershipGiven | RecordChanged | RecordDropped


class Ownership:
    """Records of one site: owned ones, copies of others', and the protocol between them."""

    def __init__(
        self, out: Outbox, mesh: Mesh, clock: Callable[[], Time], parameters: Parameters
    ) -> None:
        self.me, self.out, self.mesh = mesh.id, out, mesh
        self._clock = clock
        self.records = Records()
        self.holders = Replicas()
        self.changes: list[OwnershipEvent] = []
        self.leaving = False  # this site gives all its records away
        self.last_received: dict[NodeId, Time] = {}  # from each client, by any owner
        self.offered: dict[SubscriptionId, Time] = {}
        self._ended: dict[SubscriptionId, Version] = {}
        self._confirmed: dict[NodeId, Time] = {}  # when an owner last confirmed
        self._moved: dict[SubscriptionId, None] = {}
        self._digested: Time = 0
        self._margin = parameters.margin
        self._transfer = microseconds(parameters.transfer_ms)
        self._reclaim = microseconds(parameters.reclaim_ms)
        self._digest = microseconds(parameters.digest_ms)
        self._silence = microseconds(parameters.silence_ms)

    @property
    def now(self) -> Time:
        return self._clock()

    # Reports of the user.

    def hold(self, record: Record) -> Record | None:
        """A client subscribes here: this site owns it, in a higher epoch than any known.

        None: it has ended, or a later message of its client was faster.
        """
        if self._ended.get(record.id, -1) >= record.version:
            return None
        known = self.records.get(record.id)
        if known is not None and known.owner == self.me:
            if known.version >= record.version:
                return known
            held = replace(record, epoch=known.epoch, owner=self.me)
        else:
            epoch = max(record.epoch, known.epoch if known else 0) + 1
            if known is not None and known.version > record.version:
                record = known
            held = replace(record, epoch=epoch, owner=self.me)
        self.last_received[held.client] = self.now
        self._own(held)
        return held

    def moved(
        self,
        ids: Sequence[SubscriptionId],
        regions: Sequence[Region],
        versions: Sequence[Version],
    ) -> None:
        for subscription, region, version in zip(ids, regions, versions, strict=True):
            known = self.records.get(subscription)
            if known is not None and version > known.version:
                self.records.put(replace(known, region=region, version=version), self.now)
                self._moved[subscription] = None

    def dropped(self, subscription: SubscriptionId, version: Version) -> None:
        """It has ended: all replicas forget it."""
        slot = self.records.slot.get(subscription)
        if slot is not None:
            version = max(version, self._record(slot).version)
            self.out.send_many(self.holders.of(slot), RecordsEnded(((subscription, version),)))
        self._forget_record(subscription, version)

    # Time.

    def tick(self, now: Time) -> None:
        self.records.advance(now)
        for subscription, since in list(self.offered.items()):
            if now - since >= self._reclaim:
                self._reclaim_record(subscription)
        self._hand_over()
        mine = self.records.owned_by(self.me)
        self._replicate(mine)
        self._claim_orphans()
        if now - self._digested >= self._digest:
            self._digested = now
            self._send_digests(mine)

    def went(self, site: NodeId) -> None:
        """A site is dead or has left: its records may be claimed at once ([VSO] III-C)."""
        self.holders.forget(site)
        self._confirmed[site] = LONG_AGO
        for subscription in list(self.offered):
            record = self.records.get(subscription)
            if record is not None and record.owner == site:
                self._reclaim_record(subscription)

    def bequeath(self, heirs: Sequence[NodeId]) -> None:
        """Before leaving: send all records to the sites that inherit the region."""
        everything = self.records.of(np.array(sorted(self.records.slot.values()), np.int64))
        for some in in_messages(everything):
            self.out.send_many(heirs, RecordCopies(some))

    def _hand_over(self) -> None:
        """[VSO] IV-G, 1: offer records whose centre has been outside for a while."""
        mine = self.records.owned_by(self.me)
        if not len(mine):
            return
        now, outside = self.now, self.records.outside
        owners = self._owners_of(self.records.centres(mine, now))
        away = owners != self.me
        outside[mine[~away]] = NEVER
        left = mine[away]
        outside[left[outside[left] == NEVER]] = now
        due = away & (now - outside[mine] >= (0 if self.leaving else self._transfer))
        for owner in np.unique(owners[due]).tolist():
            offered = [
                replace(
                    record,
                    epoch=record.epoch + 1,
                    owner=owner,
                    last_received=self.last_received.get(record.client, now),
                )
                for record in self.records.of(mine[due & (owners == owner)])
            ]
            self._confirmed[owner] = now
            for record in offered:
                self.records.outside[self.records.put(record, now)] = NEVER
                self.offered[record.id] = now
            for some in in_messages(offered):
                self.out.send(owner, Transfer(some))

    def _owners_of(self, centres: Floats) -> Slots:
        if not self.leaving:
            return self.mesh.owners(centres)
        others = self.mesh.neighbours()
        if not others:
            return np.full(len(centres), self.me, np.int64)
        sites = np.array(list(others), np.int64)
        return sites[nearest(centres, list(others.values()))]

    def _replicate(self, mine: Slots) -> None:
        """[VSO] III-B, 2 and III-C, 1: copies at every touched site and at the next nearest one."""
        moved, self._moved = self._moved, {}
        others = self.mesh.neighbours()
        if not len(mine) or not others:
            return
        sites = sorted(others)
        areas = self.records.areas(mine, self.now, AHEAD)
        areas[:, 2:] += self._margin
        kinds = np.where(self.records.round(mine), DISC, BOX)
        touched = self.mesh.touched(kinds, *areas.T)
        wanted = touched[:, self.mesh.ids() != self.me]  # both are in order of ids
        next_one = nearest(areas[:, :2], [others[site] for site in sites])
        wanted[np.arange(len(mine)), next_one] = True
        held = self.holders.among(mine, sites)
        added = wanted & ~held
        for k in np.flatnonzero(added.any(axis=0)).tolist():
            for some in in_messages(self.records.of(mine[added[:, k]])):
                self.out.send(sites[k], RecordCopies(some))
        if moved:
            self._send_region_updates(moved, mine, sites, held)
        if self.now - self._digested >= self._digest:  # not sooner: borders move back and forth
            past = held & ~wanted
            for k in np.flatnonzero(past.any(axis=0)).tolist():
                released = tuple(record.id for record in self.records.of(mine[past[:, k]]))
                self.out.send(sites[k], CopiesReleased(released))
            held = wanted
        self.holders.put(mine, sites, held | wanted)

    def _send_region_updates(
        self, moved: Iterable[SubscriptionId], mine: Slots, sites: list[NodeId], held: Flags
    ) -> None:
        row = {slot: k for k, slot in enumerate(mine.tolist())}
        by_site: dict[int, list[tuple[SubscriptionId, Version, Region]]] = {}
        for subscription in moved:
            slot = self.records.slot.get(subscription)
            if slot is None or slot not in row:
                continue
            record = self._record(slot)
            for k in np.flatnonzero(held[row[slot]]).tolist():
                by_site.setdefault(k, []).append((record.id, record.version, record.region))
        for k, changes in by_site.items():
            for some in in_messages(changes):
                self.out.send(sites[k], RegionUpdates(some))

    def _claim_orphans(self) -> None:
        """Records of silent owners: claim them, send them to their new site, or drop them."""
        slots = self.records.owned_by_others(self.me)
        if not len(slots):
            return
        owner = self.records.owner[slots]
        dead = [
            site
            for site in np.unique(owner).tolist()
            if self.now - self._confirmed.get(site, LONG_AGO) > self._silence
        ]
        if not dead:
            return
        slots = slots[np.isin(owner, dead)]
        heirs = self._owners_of(self.records.centres(slots, self.now))
        for record in self.records.of(slots[heirs == self.me]):
            self.last_received[record.client] = self.now
            self._own(replace(record, epoch=record.epoch + 1, owner=self.me), claimed=True)
            self.out.note("claimed", record.id)
        outside = self.records.outside
        for heir in np.unique(heirs[heirs != self.me]).tolist():
            theirs = slots[heirs == heir]
            unsent = theirs[outside[theirs] == NEVER]
            for some in in_messages(self.records.of(unsent)):
                self.out.send(heir, RecordCopies(some))
            outside[unsent] = self.now
            for record in self.records.of(theirs[self.now - outside[theirs] > self._silence]):
                self._drop(record.id)

    def _send_digests(self, mine: Slots) -> None:
        sites = self.holders.sites()
        if not sites:
            return
        held = self.holders.among(mine, sites)
        totals, counts = self.records.totals(mine, held).tolist(), held.sum(axis=0).tolist()
        for site, total, count in zip(sites, totals, counts, strict=True):
            self.out.send(site, Digest(count, total))
            if not count:
                self.holders.forget(site)  # the empty digest has cancelled its copies

    # Messages of other sites.

    def on(self, message: Message, sender: NodeId) -> bool:
        match message:
            case RecordCopies(records):
                for record in records:
                    self._merge(record, sender)
            case RegionUpdates(changes):
                self._confirmed[sender] = self.now
                self._apply_region_updates(changes, sender)
            case Transfer(records):
                for record in records:
                    self._merge(record, sender)
                taken = [self.records.get(record.id) for record in records]
                epochs = tuple((r.id, r.epoch) for r in taken if r and r.owner == self.me)
                self.out.send(sender, TransferAck(epochs))
            case TransferAck(epochs):
                self._confirmed[sender] = self.now
                self._on_transfer_ack(epochs, sender)
            case Digest(count, total):
                self._confirmed[sender] = self.now
                slots = self.records.owned_by(sender)
                if len(slots) != count or self.records.total(slots) != total:
                    items = [(r.id, r.epoch, r.version) for r in self.records.of(slots)]
                    self.out.send(sender, Inventory(tuple(items)))
            case Inventory(items):
                self._answer_inventory(items, sender)
            case CopiesReleased(ids):
                for subscription in ids:
                    known = self.records.get(subscription)
                    if known is not None and known.owner == sender:
                        self._drop(subscription)
            case RecordsEnded(ended):
                for subscription, version in ended:
                    self._on_record_ended(subscription, version)
            case _:
                return False
        return True

    def _merge(self, record: Record, sender: NodeId) -> None:
        """Newest content by version, newest owner by epoch; an outdated sender gets the result."""
        end = self._ended.get(record.id, -1)
        if end >= record.version:
            self.out.send(sender, RecordsEnded(((record.id, end),)))
            return
        if sender == record.owner:
            self._confirmed[sender] = self.now
        known = self.records.get(record.id)
        if known is None:
            merged = record
        else:
            content = record if record.version > known.version else known
            later = (record.epoch, record.owner) > (known.epoch, known.owner)
            standing = record if later else known
            merged = replace(content, epoch=standing.epoch, owner=standing.owner)
            behind = (record.epoch, record.owner, record.version)
            if sender != self.me and behind != (merged.epoch, merged.owner, merged.version):
                self.out.send(sender, RecordCopies((merged,)))
            if merged == known:
                return
        is_mine = known is not None and known.owner == self.me
        was_mine = is_mine or record.id in self.offered
        if merged.owner != self.me:
            self._put(merged)
            self.changes.append(OwnershipGiven(merged) if was_mine else RecordChanged(merged))
        elif is_mine and known is not None and merged.epoch == known.epoch:
            self._put(merged)
            self.changes.append(RecordChanged(merged))
            self.holders.clear(self.records.slot[merged.id])
        else:
            self.last_received[merged.client] = max(
                record.last_received, self.last_received.get(merged.client, 0)
            )
            self._own(merged)
            slot = np.array([self.records.slot[merged.id]], np.int64)
            self.holders.put(slot, [sender], np.ones((1, 1), np.bool_))

    def _apply_region_updates(
        self, changes: Iterable[tuple[SubscriptionId, Version, Region]], sender: NodeId
    ) -> None:
        lacking = False
        for subscription, version, region in changes:
            known = self.records.get(subscription)
            if known is None or known.owner != sender:
                lacking = True
            elif version > known.version:
                moved = replace(known, region=region, version=version)
                self._put(moved)
                self.changes.append(RecordChanged(moved))
        if lacking:
            slots = self.records.owned_by(sender)
            items = [(r.id, r.epoch, r.version) for r in self.records.of(slots)]
            self.out.send(sender, Inventory(tuple(items)))

    def _on_transfer_ack(
        self, epochs: Iterable[tuple[SubscriptionId, Epoch]], sender: NodeId
    ) -> None:
        """[VSO] IV-G, 3: the transfer is acknowledged; the client must know."""
        for subscription, epoch in epochs:
            known = self.records.get(subscription)
            if (
                known is not None
                and subscription in self.offered
                and (known.epoch, known.owner) == (epoch, sender)
            ):
                del self.offered[subscription]
                self.changes.append(OwnershipGiven(known))

    def _answer_inventory(
        self, items: Iterable[tuple[SubscriptionId, Epoch, Version]], sender: NodeId
    ) -> None:
        """Send what differs between the copies that the sender has and those it should have."""
        if sender == self.me:
            return
        mine = self.records.owned_by(self.me)
        held = self.holders.among(mine, [sender])[:, 0] if len(mine) else mine.astype(np.bool_)
        should = {record.id: record for record in self.records.of(mine[held])}
        to_send: list[Record] = []
        release: list[SubscriptionId] = []
        for subscription, epoch, version in items:
            record = should.pop(subscription, None)
            if record is not None:
                if (record.epoch, record.version) != (epoch, version):
                    to_send.append(record)
                continue
            known, end = self.records.get(subscription), self._ended.get(subscription, -1)
            if end >= version:
                self.out.send(sender, RecordsEnded(((subscription, end),)))
            elif known is not None and known.owner != self.me:
                to_send.append(known)  # it has changed hands
            else:
                release.append(subscription)
        for some in in_messages([*to_send, *should.values()]):
            self.out.send(sender, RecordCopies(some))
        if release:
            self.out.send(sender, CopiesReleased(tuple(release)))

    def _on_record_ended(self, subscription: SubscriptionId, version: Version) -> None:
        known = self.records.get(subscription)
        if known is None:
            self._forget_record(subscription, version)
        elif known.version <= version:
            if known.owner == self.me:
                self.dropped(subscription, version)
            else:
                self._forget_record(subscription, version)

    # Records.

    def _record(self, slot: int) -> Record:
        record = self.records.at[slot]
        assert record is not None, f"slot {slot} is in use"
        return record

    def _put(self, record: Record) -> int:
        slot = self.records.put(record, self.now)
        self.records.outside[slot] = NEVER
        self.offered.pop(record.id, None)
        return slot

    def _own(self, record: Record, *, claimed: bool = False) -> None:
        """Own a record; all replicas get it again."""
        self.holders.clear(self._put(record))
        self.changes.append(OwnershipTaken(record, claimed))

    def _reclaim_record(self, subscription: SubscriptionId) -> None:
        """[VSO] IV-G, 4: the offer was not acknowledged."""
        del self.offered[subscription]
        record = self.records.get(subscription)
        if record is not None and record.owner != self.me:
            self.out.note("reclaimed", subscription)
            self._own(replace(record, epoch=record.epoch + 1, owner=self.me))

    def _drop(self, subscription: SubscriptionId) -> None:
        slot = self.records.slot.get(subscription)
        if slot is not None:
            client = self._record(slot).client
            self.holders.clear(slot)
            self.records.drop(subscription)
            self.offered.pop(subscription, None)
            self.changes.append(RecordDropped(subscription, client))

    def _forget_record(self, subscription: SubscriptionId, version: Version) -> None:
        self._ended[subscription] = max(version, self._ended.pop(subscription, version))
        if len(self._ended) > MEMORY:
            del self._ended[next(iter(self._ended))]
        self._drop(subscription)


def nearest(centres: Floats, places: list[Place]) -> Slots:
    """Which of the places is nearest to each centre?"""
    sites = np.array(places, np.float64)
    gaps = centres[:, None, :] - sites[None, :, :]
    found: Slots = np.einsum("nkd,nkd->nk", gaps, gaps).argmin(axis=1)
    return found
