"""A site: one matcher's region, records and load ([VSO] III and IV).

A Site decides all that VSO decides without looking at clients or at the content of publications.
Its user is a `VsoMatcher` (simulator, peers) or a node of a cluster (`service.cluster`):

* the user reports changes of subscriptions: `hold`, `moved`, `dropped`, `activity`, `volunteer`;
* it hands over messages (`on`) and time (`tick`, about ten times a second); the site sends through
  the outbox that both share;
* `drain` returns events: OwnershipTaken, OwnershipGiven, RecordChanged, RecordDropped (records),
  NeighbourAdded, NeighbourRemoved (sites), RegionsChanged, GatewayChanged, MatcherResigned;
* it answers queries: `next_hop`, `heir`, `entry`, `cast`, `previous_sites`, `owner`.

A record is (subscription, client, region, version, epoch, owner, body). The body is opaque and
travels with whole copies. The diagram is of x and y: a 3-D area is owned and copied by its
projection on that plane, and matching checks z.

A region may move by itself: the owner computes when its centre leaves, and hands the record over
without a message from the client.
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
from nearcast.protocols.voronoi.vso.gateway import GatewayRole
from nearcast.protocols.voronoi.vso.messages import MoveCloser, Place, Record, Version, sound
from nearcast.protocols.voronoi.vso.parameters import Parameters, microseconds
from nearcast.space import voronoi
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import BOX, POINT, Shape

LAG: Time = SECOND  # after this, sites know where others moved, and copies have arrived
REACHES = 32.0  # reaches are multiples of this, so that small changes need no message


class NeighbourAdded(Struct, frozen=True):
    """A new neighbour in the diagram."""

    site: NodeId


class NeighbourRemoved(Struct, frozen=True):
    """A site is no neighbour any more; `lost`: it was silent and may have crashed."""

    site: NodeId
    lost: bool


class RegionsChanged(Struct, frozen=True):
    """The region of this site, or one next to it, has changed."""


class GatewayChanged(Struct, frozen=True):
    """There is a new gateway."""

    site: NodeId


class MatcherResigned(Struct, frozen=True):
    """This site was idle and has left; it may be promoted again. `successor` has most of its
    region."""

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
    """`out` and `clock` are the user's; call `found` or `join` first, then `tick` regularly."""

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
        self._load_trend = LoadTrend(
            microseconds(parameters.overload_ms),
            parameters.insertion_trigger,
            parameters.departure_trigger,
        )
        self._adjust = microseconds(parameters.adjust_ms)
        self._adjusted: Time = clock()
        self._overloaded: dict[NodeId, Place] = {}  # overloaded neighbours, and their places
        self._active, self._rate = 0.0, 0.0
        self._events: list[SiteEvent] = []
        self.representatives: dict[
            NodeId, Place
        ] = {}  # forward for this site while it is not in the mesh
        self._reported_gateway: NodeId | None = None
        # Places of the sites some time ago, to find who had an area then.
        self._former_places: dict[NodeId, Place] = {}
        self._recent_places: dict[NodeId, Place] = {}
        self._noted_places_at: Time = clock()

    # Joining and leaving.

    def found(self, place: Place) -> None:
        """The first matcher, and so the gateway ([VSO] IV-A)."""
        self.mesh.join_at(place, None)
        self.gateway.found()

    def join(self, place: Place, contact: NodeId, gateway: NodeId) -> None:
        """[VSO] IV-F, 5: join through the contact, by greedy forwarding to the nearest site."""
        self.representatives = {contact: place}
        self.mesh.join_at(place, contact)
        self.gateway.enter(gateway)

    def set_representatives(self, sites: dict[NodeId, Place]) -> None:
        """While this site is not in the mesh, these forward for it."""
        self.representatives = sites

    def resign(self) -> None:
        """Hand over all owned records, then leave ([VSO] IV-C); `tick` does both."""
        self.ownership.leaving = True

    # Reports of the user.

    def hold(self, record: Record) -> Record | None:
        """A client subscribed here, or sent its whole interest again: this site owns it now.

        `record.epoch` is the last that the client knows of (0: none); `record.owner` is ignored.
        Returns the record as it is now; None: a later message has overtaken this one.
        """
        return self.ownership.hold(record)

    def moved(
        self,
        ids: Sequence[SubscriptionId],
        regions: Sequence[Region],
        versions: Sequence[Version],
    ) -> None:
        """Clients have moved these; one call per tick. Replicas get it at the next tick."""
        self.ownership.moved(ids, regions, versions)

    def dropped(self, subscription: SubscriptionId, version: Version) -> None:
        """The client has ended it, or is gone. Later messages of a lower version are void."""
        self.ownership.dropped(subscription, version)

    def client_is_alive(self, client: NodeId) -> None:
        """Note that a client is alive; the next owner of its subscriptions receives the time."""
        self.ownership.last_received[client] = self._clock()

    def silent_clients(self, clients: Iterable[NodeId], since: Time) -> list[NodeId]:
        """Clients from which nothing has come since then, here or at earlier owners."""
        last, now = self.ownership.last_received, self._clock()
        return [client for client in clients if last.setdefault(client, now) < since]

    def activity(self, units: float) -> None:
        """Count activity (publications handled) against the capacity."""
        self._active += units

    def merge(self, gateway: NodeId) -> None:
        """This gateway has met another: one of them gives way, and the two meshes become one."""
        self.mesh.remember(gateway)
        self.gateway.challenge(gateway)

    def silence(self, site: NodeId) -> None:
        """A site cannot be reached: unless it sends before the next beat, it is lost."""
        neighbour = self.mesh.known.get(site)
        if neighbour is not None:
            neighbour.last_received = LONG_AGO

    def abandon(self) -> None:
        """Leave at once: owned records are offered to others, without waiting for answers."""
        self.ownership.leaving = True
        self.ownership.tick(self._clock())
        self._leave_mesh()

    # Messages and time.

    def on(self, message: Message, sender: NodeId) -> bool:
        """Handle a message of a site; False: it is none."""
        if not sound(message):
            self._out.note("refused", sender)
            return True
        if self.mesh.on(message, sender):
            self._handle_mesh_events()
            return True
        if isinstance(message, MoveCloser):
            if self._moves and sender in self.mesh.enclosing():
                self._overloaded[sender] = message.place
            return True
        return self.ownership.on(message, sender) or self.gateway.on(message, sender)

    def tick(self, now: Time) -> None:
        """Maintain the mesh, ownership and the gateway's role, and balance the load."""
        if self.resigned:
            return
        self.mesh.tick(now)
        self._handle_mesh_events()
        if not self.mesh.joined:
            return
        if now - self._noted_places_at >= LAG:
            self._former_places, self._recent_places = (
                self._recent_places,
                dict(self.mesh.diagram.places),
            )
            self._noted_places_at = now
        self.ownership.tick(now)
        self.gateway.tick(now)
        if self.ownership.leaving:
            self._leave_mesh_when_free()
        else:
            self._balance(now)

    def drain(self) -> list[SiteEvent]:
        """Events since the last call, in order."""
        if self.gateway.gateway != self._reported_gateway and self.gateway.gateway is not None:
            self._reported_gateway = self.gateway.gateway
            self._events.append(GatewayChanged(self._reported_gateway))
        changes, self.ownership.changes = self.ownership.changes, []
        events, self._events = self._events, []
        return [*changes, *events]

    # Queries of the user.

    @property
    def ready(self) -> bool:
        """Has this site joined the mesh?"""
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
        """The next site greedily towards a point; None: this site owns it."""
        at_work = self.ready and not self.ownership.leaving
        return self.mesh.next_hop(point) if at_work else self.heir(point)

    def heir(self, point: Place) -> NodeId | None:
        """The owner of a point without this site; outside the mesh, its representative."""
        others = self.mesh.neighbours() or self.representatives
        return voronoi.nearest(others, *point) if others else None

    def entry(self, area: Shape) -> NodeId | None:
        """The next site for a publication to this area; None: its cast begins here.

        It begins at the owner of the area's centre, so that all casts for one area have one root.
        """
        return self.next_hop((_bounded(area.x), _bounded(area.y)))

    def cast(self, area: Shape, sender: NodeId) -> list[NodeId]:
        """Receivers of a publication that came from `sender` (VoroCast); its root is the area's
        centre. Sites move, so a site may get it twice rather than not at all."""
        if area.kind == POINT:
            return []
        position_error = self.parameters.margin if self._moves else 0.0
        return self.mesh.forward((_bounded(area.x), _bounded(area.y)), area, sender, position_error)

    def previous_sites(self, area: Shape) -> list[NodeId]:
        """Sites that had the area some time ago and have no part of it now.

        While borders move, they may have copies that the present sites still wait for. So they
        match too; what is found twice is notified once.
        """
        then, now = self._former_places, self.mesh.diagram.places
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
        """Owners of these points some time ago; None: borders have not changed."""
        then = self._former_places
        if not then or then == self.mesh.diagram.places:
            return None
        sites = np.array(list(then), np.int64)
        return sites[nearest(points, list(then.values()))]

    # Inside.

    def _handle_mesh_events(self) -> None:
        notices = self.mesh.drain()
        for notice in notices:
            if notice.what == "joined":
                # A newcomer's region was its neighbours' a moment ago.
                self._former_places = self._recent_places = self.mesh.neighbours()
                self._noted_places_at = self._clock()
            elif notice.what == "came":
                self._events.append(NeighbourAdded(notice.site))
            else:
                lost = notice.what == "lost"
                self._events.append(NeighbourRemoved(notice.site, lost))
                if notice.what != "parted":
                    self.ownership.went(notice.site)
                    self.gateway.went(notice.site)
        if notices:
            self._events.append(RegionsChanged())

    def _balance(self, now: Time) -> None:
        """[VSO] IV-F: report overload to neighbours, then to the gateway; leave if idle."""
        records = self.ownership.records
        mine = records.owned_by(self.id)
        areas = records.areas(mine, now)
        adjusts = now - self._adjusted >= self._adjust
        if adjusts:
            self._rate = self._active * SECOND / (now - self._adjusted)
            self._active, self._adjusted = 0.0, now
            if self._moves:
                self._move_site(areas[:, :2])
        self._update_reach(areas, shrinks=adjusts)
        if not self._moves:
            return
        level = self.capacity.level(len(mine), self._rate)
        may_leave = not self.gateway.is_mine and not self.gateway.needs_all_matchers
        idle = may_leave and level <= self.parameters.idle
        if self.gateway.lacks_matchers:
            x, y = self._load_centre(areas[:, :2])
            self.gateway.insert((x + self.parameters.spacing, y), level)
        match self._load_trend.step(now, overloaded=level > 1, idle=idle and bool(self.mesh.known)):
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

    def _move_site(self, centres: Floats) -> None:
        """Move by formulas (1) and (2) of [VSO] III-A, unless that brings sites too close."""
        place, others = self.place, list(self.mesh.neighbours().values())
        calls, self._overloaded = self._overloaded, {}
        pulls = [(overloaded, self.parameters.f_move) for overloaded in calls.values()]
        if len(centres):
            pulls.insert(0, (self._load_centre(centres), self.parameters.f_adjust))
        for to, fraction in pulls:
            wanted = towards(place, to, fraction)
            if apart(wanted, others, self.parameters.spacing):
                place = wanted
        if place != self.place and self.mesh.me is not None:
            self.mesh.move_to(place, self.mesh.me.reach)
            self._events.append(RegionsChanged())

    def _update_reach(self, areas: Floats, *, shrinks: bool) -> None:
        """The reach covers all owned areas: every site that they touch must be known at once."""
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

    def _leave_mesh_when_free(self) -> None:
        """Leave when no record is owned or offered ([VSO] IV-C)."""
        ownership = self.ownership
        if len(ownership.records.owned_by(self.id)) or ownership.offered:
            return
        self._leave_mesh()

    def _leave_mesh(self) -> None:
        others = self.mesh.neighbours()
        successor = voronoi.nearest(others, *self.place) if others else None
        self.representatives = others
        self.ownership.bequeath(self.mesh.enclosing())
        self.gateway.retire()
        self.mesh.leave()
        self.resigned = True
        self._events.append(MatcherResigned(successor))


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
