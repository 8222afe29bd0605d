"""What must be true of all VSO sites together: every subscription has one owner and its replicas.

An epoch of a subscription names its owner, so two sites cannot own the same epoch. What can go
wrong is that a site goes back to an older epoch. `SingleOwners` checks that whenever ownership has
changed. Whether every subscription has one owner, at the right site, with all replicas, can only be
asked when nothing is under way: see `find_violations`.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import Node
from nearcast.protocols.overlay import Invariant
from nearcast.protocols.voronoi.site import Record, Site
from nearcast.protocols.voronoi.vso.overlay import VsoNode
from nearcast.space import voronoi
from nearcast.space.motion import Time


class SingleOwners:
    """No site goes back to an older epoch of a subscription.

    `calm`: no message is lost and no node leaves. Then ownership is never with two sites at once.
    """

    def __init__(self, *, calm: bool = False) -> None:
        self._calm = calm
        self._seen: dict[NodeId, tuple[Site, int, dict[SubscriptionId, Record]]] = {}

    def violations(self, nodes: Mapping[NodeId, Node], now: Time) -> list[str]:  # noqa: ARG002
        found: list[str] = []
        changed = False
        for site in sites_of(nodes):
            life, revision, before = self._seen.get(site.id, (None, -1, {}))
            if life is site and revision == site.ownership.records.revision:
                continue
            changed = True
            records = {record.id: record for record in _records(site)}
            if life is site:  # a site that has restarted begins with nothing
                found += _epochs_gone_back(site, before, records)
            self._seen[site.id] = site, site.ownership.records.revision, records
        if changed and self._calm:
            found += self._owned_twice(nodes)
        return found

    def _owned_twice(self, nodes: Mapping[NodeId, Node]) -> Iterator[str]:
        owners: dict[SubscriptionId, NodeId] = {}
        for site in sites_of(nodes):
            for subscription, record in self._seen[site.id][2].items():
                if record.owner == site.id:
                    other = owners.setdefault(subscription, site.id)
                    if other != site.id:
                        yield f"sites {other} and {site.id} own subscription {subscription}"


def _epochs_gone_back(
    site: Site,
    before: Mapping[SubscriptionId, Record],
    records: Mapping[SubscriptionId, Record],
) -> Iterator[str]:
    for record in records.values():
        old = before.get(record.id)
        if old is None or old is record:
            continue
        then, since = (old.epoch, old.owner), (record.epoch, record.owner)
        if since < then:
            yield f"site {site.id} goes back from {then} to {since} for subscription {record.id}"


def invariants(*, calm: bool) -> list[Invariant]:
    return [SingleOwners(calm=calm)]


def sites_of(nodes: Mapping[NodeId, Node]) -> Iterator[Site]:
    """The sites of all nodes that are ready."""
    for node in nodes.values():
        if isinstance(node, VsoNode) and node.matcher is not None and node.matcher.site.ready:
            yield node.matcher.site


def _records(site: Site) -> Iterator[Record]:
    for record in site.ownership.records.at:
        if record is not None:
            yield record


def find_violations(nodes: Mapping[NodeId, Node], now: Time) -> list[str]:
    """What is wrong when nothing is under way: owners by centre, replicas by area."""
    sites = {site.id: site for site in sites_of(nodes)}
    places = {site.id: site.place for site in sites.values()}
    regions = {number: voronoi.region(places, number) for number in places}
    found: list[str] = []
    for client in nodes.values():
        if not isinstance(client, VsoNode):
            continue
        for subscription in client.client.subscriptions:
            owners = [s for s in sites.values() if s.owner(subscription) == s.id]
            if len(owners) != 1:
                names = [site.id for site in owners]
                found.append(f"subscription {subscription} has the owners {names}")
                continue
            (owner,) = owners
            if client.client.owner.get(subscription) != owner.id:
                found.append(f"node {client.id} does not know the owner of {subscription}")
            found += _misplaced(subscription, owner, sites, regions, now)
    wanted = {s for n in nodes.values() if isinstance(n, VsoNode) for s in n.client.subscriptions}
    for site in sites.values():
        left = sorted(record.id for record in _records(site) if record.id not in wanted)
        if left:
            found.append(f"site {site.id} knows {left}, which nobody wants")
    return found


def _misplaced(
    subscription: SubscriptionId,
    owner: Site,
    sites: Mapping[NodeId, Site],
    regions: Mapping[NodeId, voronoi.VoronoiRegion],
    now: Time,
) -> Iterator[str]:
    records = owner.ownership.records
    slots = np.array([records.slot[subscription]], np.int64)
    x, y, rx, ry = records.areas(slots, now)[0].tolist()
    is_round = bool(records.round(slots)[0])
    places = {site.id: site.place for site in sites.values()}
    centre = voronoi.nearest(places, x, y)
    if centre != owner.id:
        yield f"subscription {subscription} is owned by {owner.id}, its centre by {centre}"
    copies = 0
    for number, site in sites.items():
        if number == owner.id:
            continue
        record = site.record(subscription)
        copies += record is not None
        region = regions[number]
        touches = region.touches_disc(x, y, rx) if is_round else region.touches_box(x, y, rx, ry)
        if touches and record is None:
            yield f"site {number} has no replica of {subscription}, which reaches its region"
        if record is not None and record.owner != owner.id:
            yield f"site {number} believes that {record.owner} owns {subscription}, not {owner.id}"
    if not copies and len(sites) > 1:
        yield f"subscription {subscription} has no backup"
