"""The mesh of sites (VON): each site knows its neighbours and learns of new ones from them.

The mesh is a part of a node, without clock or timer of its own: it shares the node's outbox, gets
its messages through `on`, and `tick` is called regularly. Two sites are neighbours if one encloses
the other, or if the area of interest of one, widened by `room`, touches the region of the other
(`compiled_cells.related`). Neighbours discover others for each other:

* sites that border the area of interest of a mover tell it of new neighbours ([VSO] II-C);
* a site that gets a Hello tells the sender of further neighbours;
* each site sends its enclosing neighbours to all of them, at every change and with every beat. So
  when a site leaves or crashes, the sites around it know each other already;
* from time to time each site sends a NearestSiteQuery for its own place through a remembered site
  that is no neighbour. In this way separate parts of the mesh find each other.

A site that was introduced becomes a neighbour when it has answered, so crashed sites do not come
back through others' messages. A neighbour that is not needed any more stays for `linger_s` (VON's
hysteresis).
"""

from collections.abc import Callable, Iterable
from math import hypot, inf
from random import Random
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi import vorocast
from nearcast.protocols.voronoi.local_diagram import LocalDiagram
from nearcast.protocols.voronoi.mesh_messages import (
    MESSAGES,
    MOST_HOPS,
    Bye,
    DiscoveryScope,
    EnclosingNeighbours,
    Hello,
    Moved,
    NearestSiteQuery,
    NeighbourDropped,
    PointOwner,
    PointOwnerQuery,
    SiteInfo,
    SiteIntroduction,
    sound,
)
from nearcast.protocols.voronoi.neighbours import MeshEvent, MeshNeighbour, Parameters
from nearcast.protocols.voronoi.shortcuts import Shortcuts
from nearcast.space import voronoi
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Shape
from nearcast.space.voronoi import Point

ACQUAINTANCES = 32  # sites that are remembered for queries from elsewhere
REMEMBERED: Time = 60 * SECOND  # for which sites that have left are remembered
SOON = 0.4  # times room: after moving so far, a site asks for new neighbours
TURNS = 3  # with every beat one in so many neighbours searches thoroughly for a mover
LATER = 1.25  # times room: where a neighbour is dropped (VON)


class Mesh:
    """One site's view of the mesh, and its messages."""

    def __init__(
        self,
        node_id: NodeId,
        out: Outbox,
        rng: Random,
        clock: Callable[[], Time],
        parameters: Parameters | None = None,
    ) -> None:
        self.id = node_id
        self.parameters = parameters or Parameters()
        self.me: SiteInfo | None = None
        self.joined = False
        self.events: list[MeshEvent] = []
        self.diagram = LocalDiagram()
        self.known: dict[NodeId, MeshNeighbour] = {}
        self.shortcuts = Shortcuts(self.parameters.shortcuts)
        self._out, self._rng, self._clock = out, rng, clock
        self._contact: NodeId | None = None
        self._awaited: dict[NodeId, None] = {}  # introduced on joining, without an answer yet
        self._greeted: dict[NodeId, Time] = {}
        # Sites that have left: `since` of their last message, and when it came.
        self._left: dict[NodeId, tuple[Time, Time]] = {}
        self._acquaintances: dict[NodeId, None] = {}
        self._ring: tuple[NodeId, ...] = ()  # as last sent
        self._discovered_at: Point = (inf, inf)  # where it last discovered neighbours
        self._turn = self._discovered = self._sought = self._last_beat = self._probed = (
            self._last_sent
        ) = 0
        self._beat = round(self.parameters.beat_s * SECOND)
        self._handlers: dict[type[Message], Callable[[NodeId, Any], None]] = {
            Moved: self._on_moved,
            SiteIntroduction: self._on_site_introduction,
            Hello: self._on_hello,
            EnclosingNeighbours: self._on_enclosing_neighbours,
            NearestSiteQuery: self._on_nearest_site_query,
            NeighbourDropped: self._on_neighbour_dropped,
            Bye: self._on_bye,
            PointOwnerQuery: self._on_point_owner_query,
            PointOwner: self._on_point_owner,
        }

    # Called by its user.

    def join_at(self, place: Point, contact: NodeId | None, reach: float = 0.0) -> None:
        """Join at a place, through a contact in the mesh; without one, be the first site."""
        self._set_place(place, reach)
        self._contact = contact
        if contact is None or contact == self.id:
            self._join()
        else:
            self.remember(contact)
            self._query_nearest_site(contact)

    def move_to(self, place: Point, reach: float) -> None:
        """Move the site, or change the radius of its interest."""
        me = self.me
        if me is None or (me.place == place and me.reach == reach):
            return
        self._set_place(place, reach)
        assert self.me is not None
        self._last_sent = now = self._clock()
        soon = SOON * self.parameters.room
        if reach > me.reach + soon:
            self._discovered_at = place
            self._out.send_many(list(self.known), Moved(self.me, DiscoveryScope.ALL))
            return
        if now - self._discovered >= self._beat:
            self._discovered, self._turn = now, (self._turn + 1) % TURNS
            queried = [n for n in self.known if n % TURNS == self._turn]
            self._out.send_many(queried, Moved(self.me, DiscoveryScope.ALL))
            others = [n for n in self.known if n % TURNS != self._turn]
            self._out.send_many(others, Moved(self.me))
            return
        border: dict[NodeId, None] = {}
        went = hypot(place[0] - self._discovered_at[0], place[1] - self._discovered_at[1])
        if went > soon:
            self._discovered_at = place
            wide = reach + self.parameters.room
            border = dict.fromkeys([*self.diagram.bordering(self.id, wide), *self.enclosing()])
        self._out.send_many(
            [n for n in self.known if n in border], Moved(self.me, DiscoveryScope.NEAR)
        )
        self._out.send_many([n for n in self.known if n not in border], Moved(self.me))

    def leave(self) -> None:
        if self.me is not None:
            ring = tuple(self.known[n].site for n in self.enclosing())
            self._out.send_many(list(self.known), Bye(self.me.since, ring))
        for site in self.known:
            self.diagram.drop(site)
        self.diagram.drop(self.id)
        self.known.clear()
        self.me, self.joined = None, False

    def on(self, message: Message, sender: NodeId) -> bool:
        """Handle a message of the mesh; False: it is none."""
        handler = self._handlers.get(type(message))
        if handler is not None and self.me is not None and sender != self.id:
            if sound(message):
                handler(sender, message)
            else:
                self._out.note("refused", sender)
        return handler is not None

    def tick(self, now: Time) -> None:
        """Maintain neighbours; called at least once in a beat."""
        if self.me is None:
            return
        if not self.joined:
            self._rejoin(now)
        if now - self._last_beat >= self._beat:
            self._last_beat = now
            self._drop_silent_neighbours(now)
            self._drop_distant_neighbours(now)
            self._forget(now)
            self._send_enclosing(self.enclosing())
            if now - self._last_sent >= self._beat:
                others = [n for n in self.known if n not in self._ring]
                self._out.send_many(others, Moved(self.me))
        elif (ring := self.enclosing()) != list(self._ring):
            self._send_enclosing(ring)
        if self.joined and now - self._probed >= round(self.parameters.probe_s * SECOND):
            self._probed = now
            self._probe()

    def drain(self) -> list[MeshEvent]:
        """Events since the last call."""
        events, self.events = self.events, []
        return events

    # Queries of its user.

    def neighbours(self) -> dict[NodeId, Point]:
        return {node: neighbour.site.place for node, neighbour in self.known.items()}

    def enclosing(self) -> list[NodeId]:
        """Those whose regions touch this site's region, as far as is known; by id."""
        return list(self.diagram.region(self.id).enclosing) if self.me is not None else []

    def expected(self, node: NodeId, now: Time) -> Point:
        """Where a neighbour is now if it moves on as before."""
        return self.known[node].expected(now, self._beat)

    def position_error(self, now: Time) -> float:
        """How wrong the places of enclosing neighbours may be: twice the longest of their last
        steps within two beats."""
        recently = now - 2 * self._beat
        return 2 * max((self.known[n].stride(recently) for n in self.enclosing()), default=0.0)

    def forward(
        self, root: Point, area: Shape, sender: NodeId | None = None, position_error: float = 0.0
    ) -> list[NodeId]:
        """Receivers to which this site forwards a cast; see `vorocast.forward`."""
        if self.me is None:
            return []
        places = self.diagram.places
        around = {node: places[node] for node in self.enclosing()}
        rings = {node: ring for node in around if (ring := self._ring_of(node))}
        return vorocast.forward(
            self.id, self.me.place, around, rings, root, area, sender, position_error
        )

    def owner_of(self, point: Point) -> NodeId:
        """The nearest site known, which may be this one."""
        return voronoi.nearest(self.diagram.places, *point)

    def next_hop(self, point: Point) -> NodeId | None:
        """Nearer to the point than this site is; None: the point is this site's own."""
        owner = self.owner_of(point)
        if owner == self.id or not self.shortcuts.places:
            return None if owner == self.id else owner
        return voronoi.nearest({**self.shortcuts.places, **self.diagram.places}, *point)

    def ids(self) -> NDArray[np.int64]:
        """This site and all it knows, in order: the columns of `touched`."""
        return self.diagram.columns().ids

    def owners(self, points: ArrayLike) -> NDArray[np.int64]:
        """The nearest known site of each point, given by rows of x and y."""
        return self.diagram.owners(points)

    def touched(
        self, kinds: ArrayLike, x: ArrayLike, y: ArrayLike, rx: ArrayLike, ry: ArrayLike
    ) -> NDArray[np.bool_]:
        """Which regions (columns, see `ids`) each area (row) may touch; a sliver too much."""
        return self.diagram.touched(kinds, x, y, rx, ry)

    # Coming in.

    def _join(self) -> None:
        if not self.joined:
            self.joined = True
            self._probed = self._clock()
            self.events.append(MeshEvent("joined", self.id))

    def _query_nearest_site(self, through: NodeId) -> None:
        assert self.me is not None
        self._sought = self._clock()
        self._out.send(through, NearestSiteQuery(self.me))

    def _rejoin(self, now: Time) -> None:
        if now - self._sought < self._beat:
            return
        if self.known:  # some do not answer; the others will introduce more
            self._join()
        elif self._contact is not None:
            self._query_nearest_site(self._contact)

    def _probe(self) -> None:
        unknown = [n for n in self._acquaintances if n not in self.known]
        if unknown:
            self._query_nearest_site(self._rng.choice(unknown))
        target = self.me and self.shortcuts.target(self.me.place, self.neighbours(), self._rng)
        if self.parameters.shortcuts and self.me and target:
            hop = self.next_hop(target)
            if hop is not None:
                self._out.send(hop, PointOwnerQuery(self.me, *target, 1))

    def _on_nearest_site_query(self, sender: NodeId, message: NearestSiteQuery) -> None:
        site, places = message.site, self.diagram.places
        if (message.hops == 0 and site.id != sender) or self._is_old(site):
            self._out.note("refused", sender)
            return
        if not self.joined or site.id == self.id or message.hops >= MOST_HOPS:
            return
        self.remember(site.id)
        others = {node: place for node, place in places.items() if node != site.id}
        nearest = voronoi.nearest(others, *site.place)
        if nearest != self.id:
            self._out.send(nearest, NearestSiteQuery(site, message.hops + 1))
        elif (neighbour := self.known.get(site.id)) is not None and neighbour.site == site:
            self._introduce(site.id)
        else:  # this is the acceptor
            assert self.me is not None
            around = self._around([site], site.id)
            self._out.send(site.id, SiteIntroduction((self.me, *around), accepted=True))

    def _around(self, unknown: Iterable[SiteInfo], of: NodeId) -> list[SiteInfo]:
        """Sites that `of` should know, among known and new ones, without this site."""
        found = {site.id: site for site in unknown}
        tried = {site.id: (site.x, site.y, site.reach) for site in found.values()}
        related = self.diagram.related_with(tried, of, self.parameters.room)
        return [found.get(n) or self.known[n].site for n in related if n != self.id]

    def _on_site_introduction(self, sender: NodeId, message: SiteIntroduction) -> None:
        if message.accepted and (not message.sites or message.sites[0].id != sender):
            self._out.note("refused", sender)  # the acceptor names itself first
            return
        accepted = message.accepted and not self.joined
        self._greet_related(message.sites, all_of_them=accepted)
        if accepted:
            self._awaited = {
                site.id: None
                for site in message.sites
                if site.id != self.id and site.id not in self.known
            }
            if not self._awaited:
                self._join()

    def _greet_related(self, sites: Iterable[SiteInfo], all_of_them: bool = False) -> None:
        """Send Hello to those that should be neighbours."""
        now = self._clock()
        unknown = [
            site
            for site in sites
            if site.id != self.id
            and site.id not in self.known
            and now - self._greeted.get(site.id, -self._beat) >= self._beat
            and site.since > self._left.get(site.id, (-1, 0))[0]
        ]
        if unknown and not all_of_them:
            related = {site.id: None for site in self._around(unknown, self.id)}
            unknown = [site for site in unknown if site.id in related]
        for site in unknown:
            assert self.me is not None
            self.remember(site.id)
            self._greeted[site.id] = now
            self._out.send(site.id, Hello(self.me, asks=True))

    # Messages of neighbours.

    def _update_neighbour(self, sender: NodeId, site: SiteInfo) -> bool:
        """Store a neighbour's site; False: it is forged or old."""
        if site.id != sender:
            self._out.note("refused", sender)  # not the sender's own site
            return False
        neighbour = self.known.get(sender)
        now = self._clock()
        if neighbour is None:
            if site.since <= self._left.get(sender, (-1, 0))[0]:
                return False  # it has left since
            self.known[sender] = MeshNeighbour(site, now)
            self.remember(sender)
            self.events.append(MeshEvent("came", sender))
        else:
            neighbour.last_received = now
            if site.since <= neighbour.site.since:
                return site == neighbour.site  # else a newer one is known
            neighbour.before, neighbour.site, neighbour.changed = neighbour.site, site, now
        self.diagram.put(sender, site.place, site.reach)
        return True

    def _is_old(self, site: SiteInfo) -> bool:
        """Is it so much older than the newest known that it must be a replay?"""
        known = self.known.get(site.id)
        newest = self._left.get(site.id, (0, 0))[0] if known is None else known.site.since
        return site.since < newest - REMEMBERED

    def _on_hello(self, sender: NodeId, message: Hello) -> None:
        if not self._update_neighbour(sender, message.site):
            return
        assert self.me is not None
        if message.asks:
            self._out.send(sender, Hello(self.me, asks=False))
            self.known[sender].introduced.clear()  # it may have restarted
            self._introduce(sender)
        if sender in self._awaited:
            del self._awaited[sender]
            if not self._awaited:
                self._join()

    def _on_moved(self, sender: NodeId, message: Moved) -> None:
        if self._update_neighbour(sender, message.site) and message.discover:
            self._introduce(sender, touching=message.discover == DiscoveryScope.ALL)

    def _on_enclosing_neighbours(self, sender: NodeId, message: EnclosingNeighbours) -> None:
        if self._update_neighbour(sender, message.site):
            self.known[sender].ring = {site.id: site for site in message.ring}
            self._greet_related(message.ring)
            self._introduce(sender, touching=False)

    def _introduce(self, node: NodeId, touching: bool = True) -> None:
        """Introduce new neighbours to a neighbour, unless this was done recently."""
        neighbour = self.known[node]
        introduced, ring = neighbour.introduced, neighbour.ring
        related = self.diagram.related(node, self.parameters.room, touching)
        unknown = [n for n in related if n not in introduced and n not in ring and n != self.id]
        if unknown:
            now = self._clock()
            self._out.send(node, SiteIntroduction(tuple(self.known[n].site for n in unknown)))
            introduced.update(dict.fromkeys(unknown, now))
            for other in unknown:
                self.known[other].introduced[node] = now  # it will get a Hello
        if touching and introduced:
            # Sites may come back and messages may be lost, so introductions expire.
            again = self._clock() - round(self.parameters.probe_s * SECOND)
            still = dict.fromkeys(related)
            neighbour.introduced = {n: t for n, t in introduced.items() if n in still and t > again}

    # Going.

    def _on_neighbour_dropped(self, sender: NodeId, message: NeighbourDropped) -> None:
        if sender in self.known and message.since >= self.known[sender].site.since:
            self._remove(sender, "parted")

    def _on_bye(self, sender: NodeId, message: Bye) -> None:
        self._left[sender] = message.since, self._clock()
        self._acquaintances.pop(sender, None)
        self.shortcuts.drop(sender)
        if sender in self.known and message.since >= self.known[sender].site.since:
            ring = self._remove(sender, "left").ring.values()
            self._greet_related([*ring, *message.ring])

    def _remove(self, node: NodeId, why: str) -> MeshNeighbour:
        neighbour = self.known.pop(node)
        self.diagram.drop(node)
        self._greeted.pop(node, None)
        self.events.append(MeshEvent(why, node))
        return neighbour

    def _drop_silent_neighbours(self, now: Time) -> None:
        limit = now - self.parameters.misses * self._beat
        for node in [n for n, neighbour in self.known.items() if neighbour.last_received < limit]:
            neighbour = self._remove(node, "lost")
            self._greet_related(neighbour.ring.values())

    def _drop_distant_neighbours(self, now: Time) -> None:
        assert self.me is not None
        related = dict.fromkeys(self.diagram.related(self.id, LATER * self.parameters.room))
        linger = round(self.parameters.linger_s * SECOND)
        for node, neighbour in list(self.known.items()):
            if node in related:
                neighbour.apart = None
            elif neighbour.apart is None:
                neighbour.apart = now
            elif now - neighbour.apart > linger:
                self._introduce(node)  # if it disagrees, it lacks sites in between
                self._out.send(node, NeighbourDropped(self.me.since))
                self._remove(node, "parted")

    def _forget(self, now: Time) -> None:
        self._left = {n: g for n, g in self._left.items() if now - g[1] < REMEMBERED}
        self._greeted = {n: t for n, t in self._greeted.items() if now - t < self._beat}
        turns = 2 * self.shortcuts.most  # one is searched with every probe
        self.shortcuts.forget(now - turns * round(self.parameters.probe_s * SECOND))

    # Its own place, and what it tells of it.

    def _set_place(self, place: Point, reach: float) -> None:
        since = self._clock()
        if self.me is not None:
            since = max(since, self.me.since + 1)  # two at one moment must differ
        self.me = SiteInfo(self.id, *place, reach, since)
        self.diagram.put(self.id, place, reach)

    def _send_enclosing(self, ring: list[NodeId]) -> None:
        assert self.me is not None
        self._ring = tuple(ring)
        sites = tuple(self.known[node].site for node in ring)
        self._out.send_many(ring, EnclosingNeighbours(self.me, sites))

    def _ring_of(self, node: NodeId) -> dict[NodeId, Point]:
        ring = {n: site.place for n, site in self.known[node].ring.items()}
        ring.update({n: self.diagram.places[n] for n in ring if n in self.diagram.places})
        return ring

    def remember(self, node: NodeId) -> None:
        """Ask this site now and then who is nearest to this one: it may be in another mesh."""
        self._acquaintances.pop(node, None)
        self._acquaintances[node] = None
        if len(self._acquaintances) > ACQUAINTANCES:
            del self._acquaintances[next(iter(self._acquaintances))]

    def _on_point_owner_query(self, sender: NodeId, message: PointOwnerQuery) -> None:
        if (message.hops <= 1 and message.site.id != sender) or self._is_old(message.site):
            self._out.note("refused", sender)
            return
        if not self.joined or message.site.id == self.id or message.hops >= MOST_HOPS:
            return
        hop = self.next_hop((message.x, message.y))
        assert self.me is not None
        if hop is None:
            self._out.send(message.site.id, PointOwner(self.me))
        elif hop != message.site.id:
            self._out.send(
                hop, PointOwnerQuery(message.site, message.x, message.y, message.hops + 1)
            )

    def _on_point_owner(self, sender: NodeId, message: PointOwner) -> None:
        if message.site.id != sender:
            self._out.note("refused", sender)
        elif sender not in self.known:
            self.shortcuts.put(sender, message.site.place, self._clock())


__all__ = ["MESSAGES", "Mesh", "MeshEvent", "MeshNeighbour", "Parameters", "SiteInfo"]
