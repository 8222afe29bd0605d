"""One matcher's share of the world: its region, its records, its load, its part in the whole.

A Site decides all that VSO decides without looking at a client or a publication's content. Its
host is a `Matcher` of the simulator and of peers, or a live node with its realm of connections:

* the host tells it: `hold`, `moved`, `dropped`, `activity`, `volunteer`;
* it is handed messages (`on`) and time (`tick`, some ten times a second), and speaks through the
  outbox that it shares with its host;
* what changed is drained by `drain`: Took, Gave, Changed, Dropped (records), Came, Went (sites),
  Reshaped (my region), Reigns (a new gateway), Resigned (I am no matcher any more);
* it answers: `next_hop`, `heir`, `entry`, `cast`, `elders`, `owner`.

A record is (subscription, client, region, version, epoch, owner, body). The body is the host's own;
it travels with whole copies. The diagram is of x and y. An area of three dimensions is owned and
copied by its shadow on that plane, and z is one more condition when it is matched.

A region moves by itself: the owner computes when its centre leaves, and hands it over without a
word from the client.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from nearcast.model.subscription import NodeId, Region, SubscriptionId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.balance import Capacity, LoadTrend, apart, towards
from nearcast.protocols.voronoi.gateway import GatewayRole
from nearcast.protocols.voronoi.mesh import Mesh
from nearcast.protocols.voronoi.ownership import (
    LONG_AGO,
    Ownership,
    OwnershipEvent,
    OwnershipGiven,
    OwnershipTaken,
    RecordChanged,
    RecordDropped,
    nearest,
)
from nearcast.protocols.voronoi.records import Floats, Slots
from nearcast.protocols.voronoi.vso_messages import MoveCloser, Place, Record, Version, sound
from nearcast.protocols.voronoi.vso_parameters import Parameters, microseconds
from nearcast.space import voronoi
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import BOX, POINT, Shape

LAG: Time = SECOND  # after this, sites have heard where others went and have copied what they own
REACHES = 32.0  # reaches are multiples of this: small changes are nobody's concern


class NeighbourAdded(Struct, frozen=True):
    """A neighbour in the diagram."""

    site: NodeId


class NeighbourRemoved(Struct, frozen=True):
    """It is one no longer; `lost`: it was silent, so it may have crashed."""

    site: NodeId
    lost: bool


class RegionsChanged(Struct, frozen=True):
    """My region, or one next to it, has changed."""


class GatewayChanged(Struct, frozen=True):
    """This is the gateway now."""

    site: NodeId


class MatcherResigned(Struct, frozen=True):
    """I was idle and have left, and may be called again. The successor has most of my region."""

    successor: NodeId | None


SiteEvent: TypeAlias = (
    OwnershipEvent
    | NeighbourAdded
    | NeighbourRemoved
    | RegionsChanged
    | GatewayChanged
    | MatcherResigned
)


class Site:
    """`out` and `clock` are the host's; call `found` or `join` first, then `tick` regularly."""

    def __init__(
        self,
        site_id: NodeId,
        out: Outbox,
        rng: Random,
        clock: Callable[[], Time],
        parameters: Parameters,
        capacity: Capacity | None = None,
    ) -> None:
        self.id = site_id
        self.parameters = parameters
        self.capacity = capacity or parameters.capacity
        self.mesh = Mesh(site_id, out, rng, clock, parameters.mesh)
        self.ownership = Ownership(out, self.mesh, clock, parameters)
        self.gateway = GatewayRole(out, self.mesh, clock, parameters)
        self.resigned = False
        self._out, self._clock = out, clock
        self._moves = parameters.partitioning == "dynamic"
        self._burden = LoadTrend(
            microseconds(parameters.overload_ms),
            parameters.insertion_trigger,
            parameters.departure_trigger,
        )
        self._adjust = microseconds(parameters.adjust_ms)
        self._adjusted: Time = clock()
        self._calls: dict[NodeId, Place] = {}  # who is overloaded, and where
        self._active, self._rate = 0.0, 0.0
        self._news: list[SiteEvent] = []
        self._speakers: dict[NodeId, Place] = {}  # for me, before I am in the mesh and after it
        self._reign: NodeId | None = None
        # The sites as they were some time ago, and since when they are so.
        self._before: dict[NodeId, Place] = {}
        self._lately: dict[NodeId, Place] = {}
        self._looked: Time = clock()

    # Coming and going.

    def found(self, place: Place) -> None:
        """The first matcher, and so the gateway (IV-A)."""
        self.mesh.join_at(place, None)
        self.gateway.found()

    def join(self, place: Place, contact: NodeId, gateway: NodeId) -> None:
        """F, 5: by greedy forwarding from the contact, to whoever is nearest to the place."""
        self._speakers = {contact: place}
        self.mesh.join_at(place, contact)
        self.gateway.enter(gateway)

    def resign(self) -> None:
        """IV-C: hand over what is mine, then go; ticks bring it about."""
        self.ownership.leaving = True

    # What the host tells.

    def hold(self, record: Record) -> Record | None:
        """A client subscribed here, or said its whole interest again. I own it from now on.

        `record.epoch` is the last that the client knows of (0: none); `record.owner` is ignored.
        Returned is the record as it stands now; None if a later word has overtaken this one.
        """
        return self.ownership.hold(record)

    def moved(
        self,
        ids: Sequence[SubscriptionId],
        regions: Sequence[Region],
        versions: Sequence[Version],
    ) -> None:
        """Clients have moved these; one call per tick. Copies learn of it at the next tick."""
        self.ownership.moved(ids, regions, versions)

    def dropped(self, subscription: SubscriptionId, version: Version) -> None:
        """The client has ended it, or is gone itself. Later words of a lower version are void."""
        self.ownership.dropped(subscription, version)

    def heard(self, client: NodeId) -> None:
        """A sign of life of a client; the next owner of what is its will know of it."""
        self.ownership.heard[client] = self._clock()

    def silent(self, clients: Iterable[NodeId], since: Time) -> list[NodeId]:
        """Who of them was not heard, here or at earlier owners, since then?"""
        last, now = self.ownership.heard, self._clock()
        return [client for client in clients if last.setdefault(client, now) < since]

    def activity(self, units: float) -> None:
        """So much was done here (publications handled, say): it counts against the capacity."""
        self._active += units

    def volunteer(self, node: NodeId) -> None:
        """This node could be a matcher: the gateway shall know."""
        self.gateway.volunteer(node)

    def silence(self, site: NodeId) -> None:
        """It cannot be reached any more: unless it speaks before the next beat, it is lost."""
        neighbour = self.mesh.known.get(site)
        if neighbour is not None:
            neighbour.heard = LONG_AGO

    def abandon(self) -> None:
        """Go at once: what is mine is offered and known to others, and nobody waits for answers."""
        self.ownership.leaving = True
        self.ownership.tick(self._clock())
        self._go()

    # Messages and time.

    def on(self, message: Message, sender: NodeId) -> bool:
        """Was it a site's message? Then it has been heard."""
        if not sound(message):
            self._out.note("refused", sender)
            return True
        if self.mesh.on(message, sender):
            self._mind_sites()
            return True
        if isinstance(message, MoveCloser):
            if self._moves and sender in self.mesh.enclosing():
                self._calls[sender] = message.place
            return True
        return self.ownership.on(message, sender) or self.gateway.on(message, sender)

    def tick(self, now: Time) -> None:
        if self.resigned:
            return
        self.mesh.tick(now)
        self._mind_sites()
        if not self.mesh.joined:
            return
        if now - self._looked >= LAG:
            self._before, self._lately = self._lately, dict(self.mesh.diagram.places)
            self._looked = now
        self.ownership.tick(now)
        self.gateway.tick(now)
        if self.ownership.leaving:
            self._go_when_free()
        else:
            self._balance(now)

    def drain(self) -> list[SiteEvent]:
        """What has changed since the last time, in order."""
        if self.gateway.gateway != self._reign and self.gateway.gateway is not None:
            self._reign = self.gateway.gateway
            self._news.append(GatewayChanged(self._reign))
        changes, self.ownership.changes = self.ownership.changes, []
        news, self._news = self._news, []
        return [*changes, *news]

    # What the host may ask.

    @property
    def ready(self) -> bool:
        """Is it in the mesh?"""
        return self.mesh.joined

    @property
    def place(self) -> Place:
        return (0.0, 0.0) if self.mesh.me is None else self.mesh.me.place

    @property
    def load(self) -> float:
        """Above 1: overloaded."""
        return self.capacity.level(len(self.ownership.records.owned_by(self.id)), self._rate)

    def owner(self, subscription: SubscriptionId) -> NodeId | None:
        record = self.ownership.records.get(subscription)
        return None if record is None else record.owner

    def record(self, subscription: SubscriptionId) -> Record | None:
        return self.ownership.records.get(subscription)

    def next_hop(self, point: Place) -> NodeId | None:
        """Greedily towards a point; None: it is mine."""
        at_work = self.ready and not self.ownership.leaving
        return self.mesh.next_hop(point) if at_work else self.heir(point)

    def heir(self, point: Place) -> NodeId | None:
        """Whose it would be without me, or who speaks for me while I am in no mesh."""
        others = self.mesh.neighbours() or self._speakers
        return voronoi.nearest(others, *point) if others else None

    def entry(self, area: Shape) -> NodeId | None:
        """Where a publication for this area goes from here; None: its cast may begin here.

        It begins at the owner of the area's centre, so that all casts for one area have one root.
        """
        return self.next_hop((_bounded(area.x), _bounded(area.y)))

    def cast(self, area: Shape, sender: NodeId) -> list[NodeId]:
        """To whom a publication heard from `sender` is passed on (VoroCast); its root is the
        area's centre. Sites move: in doubt one is told twice rather than not at all."""
        if area.kind == POINT:
            return []
        doubt = self.parameters.margin if self._moves else 0.0
        return self.mesh.forward((_bounded(area.x), _bounded(area.y)), area, sender, doubt)

    def elders(self, area: Shape) -> list[NodeId]:
        """Sites that had the area some time ago and have no part of it now.

        While borders move, they may have copies which those who have the area now still wait for;
        so they are asked as well, and whatever is found twice is notified once.
        """
        then, now = self._before, self.mesh.diagram.places
        if not then or then == now:
            return []
        x, y = _bounded(area.x), _bounded(area.y)
        if area.kind == POINT:
            found = [voronoi.nearest(then, x, y)]
            has = [voronoi.nearest(now, x, y)]
        else:
            found = [site for site in then if _touches(then, site, area)]
            has = [site for site in found if site in now and _touches(now, site, area)]
        return [site for site in found if site not in has and site != self.id]

    def owners_before(self, points: Floats) -> Slots | None:
        """Whose these points were some time ago; None: borders are where they were."""
        then = self._before
        if not then or then == self.mesh.diagram.places:
            return None
        sites = np.array(list(then), np.int64)
        return sites[nearest(points, list(then.values()))]

    # Inside.

    def _mind_sites(self) -> None:
        notices = self.mesh.drain()
        for notice in notices:
            if notice.what == "joined":
                # A newcomer's region was its neighbours' a moment ago.
                self._before = self._lately = self.mesh.neighbours()
                self._looked = self._clock()
            elif notice.what == "came":
                self._news.append(NeighbourAdded(notice.site))
            else:
                lost = notice.what == "lost"
                self._news.append(NeighbourRemoved(notice.site, lost))
                if notice.what != "parted":
                    self.ownership.went(notice.site)
                    self.gateway.went(notice.site)
        if notices:
            self._news.append(RegionsChanged())

    def _balance(self, now: Time) -> None:
        """F: overload is told to neighbours, then to the gateway; idleness ends in leaving."""
        records = self.ownership.records
        mine = records.owned_by(self.id)
        areas = records.areas(mine, now)
        adjusts = now - self._adjusted >= self._adjust
        if adjusts:
            self._rate = self._active * SECOND / (now - self._adjusted)
            self._active, self._adjusted = 0.0, now
            if self._moves:
                self._shift(areas[:, :2])
        self._reach(areas, shrinks=adjusts)
        if not self._moves:
            return
        level = self.capacity.level(len(mine), self._rate)
        idle = level <= self.parameters.idle and not self.gateway.is_mine
        if self.gateway.lacks_matchers:
            x, y = self._load_centre(areas[:, :2])
            self.gateway.insert((x + self.parameters.spacing, y), level)
        match self._burden.step(now, overloaded=level > 1, idle=idle and bool(self.mesh.known)):
            case "closer":
                self._out.send_many(self.mesh.enclosing(), MoveCloser(self.place))
            case "insert":
                self.gateway.insert(self._load_centre(areas[:, :2]), level)
            case "leave":
                self.resign()

    def _load_centre(self, centres: Floats) -> Place:
        if not len(centres):
            return self.place
        x, y = centres.mean(axis=0).tolist()
        return _bounded(x), _bounded(y)

    def _shift(self, centres: Floats) -> None:
        """Formulas (1) and (2), one after the other, unless that brings sites too close."""
        place, others = self.place, list(self.mesh.neighbours().values())
        calls, self._calls = self._calls, {}
        pulls = [(overloaded, self.parameters.f_move) for overloaded in calls.values()]
        if len(centres):
            pulls.insert(0, (self._load_centre(centres), self.parameters.f_adjust))
        for to, fraction in pulls:
            wanted = towards(place, to, fraction)
            if apart(wanted, others, self.parameters.spacing):
                place = wanted
        if place != self.place and self.mesh.me is not None:
            self.mesh.move_to(place, self.mesh.me.reach)
            self._news.append(RegionsChanged())

    def _reach(self, areas: Floats, *, shrinks: bool) -> None:
        """As far as the farthest area that I own: all whom it touches must be known, at once."""
        me = self.mesh.me
        if me is None:
            return
        farthest = 0.0
        if len(areas):
            x, y = me.place
            gaps = np.hypot(areas[:, 0] - x, areas[:, 1] - y)
            farthest = float((gaps + np.hypot(areas[:, 2], areas[:, 3])).max())
        reach = inf if farthest > 1e29 else REACHES * np.ceil(farthest / REACHES)
        if reach > me.reach or (shrinks and reach < me.reach):
            self.mesh.move_to(me.place, float(reach))

    def _go_when_free(self) -> None:
        """IV-C: nothing is mine, nothing under way: others know all that I know, and I go."""
        ownership = self.ownership
        if len(ownership.records.owned_by(self.id)) or ownership.offered:
            return
        self._go()

    def _go(self) -> None:
        others = self.mesh.neighbours()
        successor = voronoi.nearest(others, *self.place) if others else None
        self._speakers = others
        self.ownership.bequeath(self.mesh.enclosing())
        self.gateway.retire()
        self.mesh.leave()
        self.resigned = True
        self._news.append(MatcherResigned(successor))


def _bounded(x: float) -> float:
    return min(max(x, -1e29), 1e29)


def _touches(sites: dict[NodeId, Place], site: NodeId, area: Shape) -> bool:
    if area.kind == BOX:
        return voronoi.touches_box(sites, site, area.x, area.y, area.rx, area.ry)
    return voronoi.touches_disc(sites, site, area.x, area.y, area.rx)


__all__ = [
    "GatewayChanged",
    "MatcherResigned",
    "NeighbourAdded",
    "NeighbourRemoved",
    "OwnershipGiven",
    "OwnershipTaken",
    "Record",
    "RecordChanged",
    "RecordDropped",
    "RegionsChanged",
    "Site",
    "SiteEvent",
]
