"""The routing table of a broker: PADRES routing on a tree of brokers.

Advertisements are flooded, and each keeps its last hop. An interest goes towards the last hops of
the advertisements that it intersects, once per neighbour, unless another covers it there.
Publications run the other way, from interest to last hop.

covering=off     every interest is forwarded
        =lazy    an interest that a forwarded one covers is not forwarded until that one ends
        =active  also, an interest that a newly forwarded one covers is cancelled there
"""

from itertools import islice
from typing import Protocol

from msgspec import Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription
from nearcast.node import Message
from nearcast.protocols.brokers.covering import conforms, covers, intersects
from nearcast.protocols.brokers.messages import (
    Adjust,
    Advertise,
    Advertisement,
    Cancel,
    EntryName,
    Interest,
    Inventory,
    Unadvertise,
    Version,
)
from nearcast.protocols.brokers.parametric import values_of
from nearcast.space.motion import Time

MAX_LISTED = 20_000  # names of each kind in an inventory: it must fit one message
MAX_REMEMBERED = 100_000  # ended interests and advertisements whose version is remembered


class RoutedAdvertisement(Struct, frozen=True):
    """An advertisement, and where it came from."""

    advertisement: Advertisement
    version: Version
    hop: NodeId


class RoutedInterest(Struct, frozen=True):
    """An interest, and where it came from: publications for it go there."""

    subscription: Subscription
    version: Version
    hop: NodeId
    sent: Time
    adjusted: bool = False  # by values alone: a neighbour that has the rest needs only these

    @property
    def name(self) -> EntryName:
        return self.subscription.node, self.subscription.id


class RoutingCallbacks(Protocol):
    """What the routing table calls on its broker."""

    def send(self, to: NodeId, message: Message) -> None: ...
    def add_interest(self, entry: RoutedInterest) -> None: ...
    def remove_interest(self, name: EntryName) -> None: ...


def digest(*tables: dict[EntryName, Version]) -> int:
    """One number for the tables, whatever the order of their entries. It is the same in every
    process: hashes of whole numbers are."""
    return sum(hash((*n, version)) for table in tables for n, version in table.items()) % 2**53


class RoutingTable:
    """Advertisements and interests by last hop, and what was forwarded to each neighbour."""

    def __init__(self, callbacks: RoutingCallbacks, covering: str) -> None:
        self._callbacks = callbacks
        self._covering = covering
        self.advertisements: dict[EntryName, RoutedAdvertisement] = {}
        self.entries: dict[EntryName, RoutedInterest] = {}
        # By linked broker: the interests forwarded to it, and those that are covered, and by which.
        self.forwarded: dict[NodeId, dict[EntryName, Version]] = {}
        self._covered: dict[NodeId, dict[EntryName, EntryName]] = {}
        # By last hop.
        self._advertised_by_hop: dict[NodeId, dict[EntryName, RoutedAdvertisement]] = {}
        self._wanted: dict[NodeId, dict[EntryName, RoutedInterest]] = {}
        self._ended: dict[EntryName, Version] = {}
        self._withdrawn: dict[EntryName, Version] = {}

    # Links.

    def open(self, link: NodeId) -> None:
        """A neighbour that knows nothing yet. It receives interests when it advertises."""
        self.forwarded[link], self._covered[link] = {}, {}
        for advertised in self.advertisements.values():
            if advertised.hop != link:
                self._callbacks.send(link, Advertise(advertised.advertisement, advertised.version))

    def close(self, hop: NodeId) -> None:
        """Remove a neighbour or a client, and all that came from it."""
        self.forwarded.pop(hop, None)
        self._covered.pop(hop, None)
        for name, entry in list(self._wanted.get(hop, {}).items()):
            self._remove(name, entry.version)
        for name, advertised in list(self._advertised_by_hop.get(hop, {}).items()):
            self._remove_advertisement(name, advertised.version)
        self._wanted.pop(hop, None)
        self._advertised_by_hop.pop(hop, None)

    # Both ends of a link must agree on what was sent over it; they compare digests.

    def digest_received_from(self, hop: NodeId) -> int:
        return digest(self._advertised_by(hop), self._wanted_by(hop))

    def digest_sent_to(self, link: NodeId) -> int:
        return digest(self._advertised_to(link), self.forwarded[link])

    def inventory(self, hop: NodeId) -> Inventory:
        """What does not fit is sent to us once more, needlessly; that does no harm."""
        advertised_versions, wanted = self._advertised_by(hop), self._wanted_by(hop)
        return Inventory(
            tuple(
                (*name, version)
                for name, version in islice(advertised_versions.items(), MAX_LISTED)
            ),
            tuple((*name, version) for name, version in islice(wanted.items(), MAX_LISTED)),
        )

    def complete(self, link: NodeId, inventory: Inventory) -> None:
        """A neighbour has this from us: send what is missing, and cancel what has ended."""
        has = {(node, number): version for node, number, version in inventory.advertisements}
        advertised_versions = self._advertised_to(link)
        for name, version in advertised_versions.items():
            if has.get(name) != version:
                self._callbacks.send(
                    link, Advertise(self.advertisements[name].advertisement, version)
                )
        for name, version in has.items():
            if name not in self.advertisements:
                self._callbacks.send(link, Unadvertise(*name, version))
        has = {(node, number): version for node, number, version in inventory.interests}
        for name, version in self.forwarded[link].items():
            if has.get(name) != version:
                entry = self.entries[name]
                self._callbacks.send(link, Interest(entry.subscription, version, entry.sent))
        for name, version in has.items():
            if name not in self.forwarded[link]:
                self._callbacks.send(link, Cancel(*name, version))

    def _advertised_by(self, hop: NodeId) -> dict[EntryName, Version]:
        return {name: known.version for name, known in self._advertised_by_hop.get(hop, {}).items()}

    def _advertised_to(self, link: NodeId) -> dict[EntryName, Version]:
        return {
            name: known.version for name, known in self.advertisements.items() if known.hop != link
        }

    def _wanted_by(self, hop: NodeId) -> dict[EntryName, Version]:
        return {name: known.version for name, known in self._wanted.get(hop, {}).items()}

    # Advertisements.

    def advertise(self, hop: NodeId, advertisement: Advertisement, version: Version) -> bool:
        """False: a newer version was here before."""
        name = (advertisement.node, advertisement.id)
        known = self.advertisements.get(name)
        if version < self._withdrawn.get(name, 0) or (known and version <= known.version):
            return False
        self.advertisements[name] = RoutedAdvertisement(advertisement, version, hop)
        if known and known.hop != hop:
            del self._advertised_by_hop[known.hop][name]
            self._review(known.hop)
        self._advertised_by_hop.setdefault(hop, {})[name] = self.advertisements[name]
        for link in self.forwarded:
            if link != hop:
                self._callbacks.send(link, Advertise(advertisement, version))
        self._review(hop)
        return True

    def unadvertise(self, name: EntryName, version: Version) -> bool:
        _remember(self._withdrawn, name, version)
        known = self.advertisements.get(name)
        if known is None or known.version > version:
            return False
        self._remove_advertisement(name, version)
        return True

    def _remove_advertisement(self, name: EntryName, version: Version) -> None:
        advertised = self.advertisements.pop(name)
        del self._advertised_by_hop[advertised.hop][name]
        for link in self.forwarded:
            if link != advertised.hop:
                self._callbacks.send(link, Unadvertise(*name, version))
        self._review(advertised.hop)

    def allows(self, client: NodeId, publication: Publication) -> bool:
        """The conformance check: did this client advertise what it now publishes?"""
        mine = self._advertised_by_hop.get(client, {}).values()
        return any(conforms(publication, advertised.advertisement) for advertised in mine)

    def _leads(self, link: NodeId, subscription: Subscription) -> bool:
        there = self._advertised_by_hop.get(link, {}).values()
        return any(intersects(advertised.advertisement, subscription) for advertised in there)

    def _review(self, hop: NodeId) -> None:
        """What is advertised there has changed, so other interests may belong there."""
        if hop in self.forwarded:
            for entry in list(self.entries.values()):
                self._update(hop, entry)

    # Interests.

    def has_known(self, name: EntryName) -> bool:
        """Is it known, or was it until it was cancelled?"""
        return name in self.entries or name in self._ended

    def put(self, entry: RoutedInterest) -> bool:
        """False: a newer version was here before."""
        name = entry.name
        known = self.entries.get(name)
        if entry.version < self._ended.get(name, 0) or (known and entry.version <= known.version):
            return False
        self.entries[name] = entry
        if known:
            del self._wanted[known.hop][name]
        self._wanted.setdefault(entry.hop, {})[name] = entry
        if entry.hop in self.forwarded:
            # The neighbour has what it sends us; it has replaced what we sent before.
            self.forwarded[entry.hop].pop(name, None)
            self._covered[entry.hop].pop(name, None)
        for link in self.forwarded:
            self._update(link, entry)
            self._uncover(link, name)
        self._callbacks.add_interest(entry)
        return True

    def cancel(self, name: EntryName, version: Version) -> bool:
        _remember(self._ended, name, version)
        known = self.entries.get(name)
        if known is None or known.version > version:
            return False
        self._remove(name, version)
        return True

    def _remove(self, name: EntryName, version: Version) -> None:
        del self._wanted[self.entries.pop(name).hop][name]
        self._callbacks.remove_interest(name)
        for link in self.forwarded:
            self._covered[link].pop(name, None)
            self._take_back(link, name, version)

    def _update(self, link: NodeId, entry: RoutedInterest) -> None:
        """Forward the interest to this neighbour, or cancel it there, if either is due."""
        name, forwarded = entry.name, self.forwarded[link]
        if entry.hop == link or not self._leads(link, entry.subscription):
            self._covered[link].pop(name, None)
            self._take_back(link, name, entry.version)
            return
        if forwarded.get(name) == entry.version:
            return
        covering = self._coverer(link, entry)
        if covering is not None:
            self._covered[link][name] = covering
            self._take_back(link, name, entry.version)
            return
        self._covered[link].pop(name, None)
        short = entry.adjusted and name in forwarded
        forwarded[name] = entry.version
        s = entry.subscription
        self._callbacks.send(
            link,
            Adjust(s.node, s.id, entry.version, values_of(s)) if short else
            Interest(s, entry.version, entry.sent),
        )  # fmt: skip
        if self._covering == "active":
            for other in list(forwarded):
                if (
                    other in forwarded
                    and other != name
                    and covers(s, self.entries[other].subscription)
                ):
                    self._covered[link][other] = name
                    self._take_back(link, other, forwarded[other])

    def _coverer(self, link: NodeId, entry: RoutedInterest) -> EntryName | None:
        if self._covering == "off":
            return None
        return next(
            (
                other
                for other in self.forwarded[link]
                if other != entry.name
                and covers(self.entries[other].subscription, entry.subscription)
            ),
            None,
        )

    def _take_back(self, link: NodeId, name: EntryName, version: Version) -> None:
        if self.forwarded[link].pop(name, None) is not None:
            self._uncover(link, name)  # first, so that no publication is missed in between
            self._callbacks.send(link, Cancel(*name, version))

    def _uncover(self, link: NodeId, name: EntryName) -> None:
        """Decide again about the interests that this one has covered there."""
        covered = self._covered[link]
        for other in [other for other, by in covered.items() if by == name]:
            if covered.get(other) == name:  # else another has taken it over meanwhile
                del covered[other]
                self._update(link, self.entries[other])


def _remember(moments: dict[EntryName, Version], name: EntryName, version: Version) -> None:
    moments[name] = max(version, moments.pop(name, version))
    if len(moments) > MAX_REMEMBERED:
        del moments[next(iter(moments))]
