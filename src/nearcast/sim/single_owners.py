"""Watching VSO from outside: does every subscription have one owner, and its copies?

An epoch belongs to the one owner that it names, so two owners of one epoch cannot be told apart
from one; what can go wrong is that a site goes back to an older epoch, or owns one that names
another. That is checked at every step at which something changed hands. Whether in the end there is
one owner, where it should be, with all copies, is a question for quiet times: `wrong` answers it.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from nearcast.errors import InvariantError
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import Node
from nearcast.protocols.voronoi.site import Record, Site
from nearcast.protocols.voronoi.vso import VsoNode
from nearcast.sim.checkers import Checker
from nearcast.space import voronoi
from nearcast.space.motion import Time


class SingleOwners(Checker):
    """`calm`: nothing is lost, so ownership is passed on whole and never lies with two at once."""

    def __init__(self, nodes: Mapping[NodeId, Node], *, calm: bool = False) -> None:
        self._nodes, self._calm = nodes, calm
        self._seen: dict[NodeId, tuple[Site, int, dict[SubscriptionId, Record]]] = {}

    def passed(self, now: Time) -> None:
        changed = False
        for site in sites_of(self._nodes):
            life, revision, before = self._seen.get(site.id, (None, -1, {}))
            if life is site and revision == site.ownership.records.revision:
                continue
            changed = True
            records = {record.id: record for record in _records(site)}
            if life is site:  # an earlier life knew other things
                for record in records.values():
                    self._check(now, site, record, before.get(record.id))
            self._seen[site.id] = site, site.ownership.records.revision, records
        if changed and self._calm:
            self._check_owners(now)

    def _check_owners(self, now: Time) -> None:
        owners: dict[SubscriptionId, NodeId] = {}
        for site in sites_of(self._nodes):
            for subscription, record in self._seen[site.id][2].items():
                if record.owner == site.id:
                    other = owners.setdefault(subscription, site.id)
                    if other != site.id:
                        raise InvariantError(
                            f"at {now} sites {other} and {site.id} own subscription {subscription}"
                        )

    def _check(self, now: Time, site: Site, record: Record, before: Record | None) -> None:
        if before is None or before is record:
            return
        then, since = (before.epoch, before.owner), (record.epoch, record.owner)
        if since < then:
            raise InvariantError(
                f"at {now} site {site.id} goes back from {then} to {since} "
                f"for subscription {record.id}"
            )


def sites_of(nodes: Mapping[NodeId, Node]) -> Iterator[Site]:
    for node in nodes.values():
        if isinstance(node, VsoNode) and node.matcher is not None and node.matcher.site.ready:
            yield node.matcher.site


def _records(site: Site) -> Iterator[Record]:
    for record in site.ownership.records.at:
        if record is not None:
            yield record


def wrong(nodes: Mapping[NodeId, Node], now: Time) -> list[str]:
    """What is not as it should be in a quiet network: owners by centre, copies by area."""
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
            yield f"site {number} has no copy of {subscription}, which reaches its region"
        if record is not None and record.owner != owner.id:
            yield f"site {number} believes that {record.owner} owns {subscription}, not {owner.id}"
    if not copies and len(sites) > 1:
        yield f"subscription {subscription} has no backup"
