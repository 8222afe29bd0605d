"""VON as an overlay of its own: every peer is a site, with its interests around it ([VSO] II-C).

A peer stands at the centre of its first subscription; its area of interest is the disc around that
place which holds all of its subscriptions. The diagram is of x and y. In 3-D worlds z is a further
condition, which the receiver checks, so more messages are filtered away there.

publisher                    owner of the place              those whose area reaches the place
  │── Route ─▶ … greedily ────────▶│── PublicationMessage ───────▶│  cast=direct; or by relays
                                   │── Cast ─▶ … by VoroCast ────▶│  cast=vorocast
  a publication to an area: Cast to every site whose region it touches. Each of these sends it to
  the sites whose nearest point of the publication's area is in its own region

A peer that publishes at its own place is the owner of that place: no Route is needed. The owner of
a point knows all whose area of interest covers it (`compiled_cells.related`), so none is missed
while nothing moves. A peer without interests is outside the mesh and publishes through a contact.
"""

from collections.abc import Iterable
from math import hypot, inf
from random import Random
from typing import ClassVar, NamedTuple

from nearcast.field_checks import between, one_of
from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message, Node, Priority, Real, Timer
from nearcast.protocols.contacts import Contacts, peer_overlay
from nearcast.protocols.dedup import DeliveredPublications, is_outside_window, publication_key
from nearcast.protocols.interests import PeerInterests
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer
from nearcast.protocols.overlay import ProtocolKind
from nearcast.protocols.relays.layer import RelayLayerParameters, interest_of, relays_of
from nearcast.protocols.relays.messages import MESSAGES as OF_RELAYS
from nearcast.protocols.update_rates import RateLimits, UpdateRates
from nearcast.protocols.voronoi import mesh
from nearcast.protocols.voronoi.mesh import Mesh, MeshNeighbour
from nearcast.protocols.voronoi.mesh_messages import LARGEST, MESSAGES, MOST_HOPS, Hops, SiteInfo
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import BOX, POINT, Shape, Vector, disc
from nearcast.space.voronoi import Point
from nearcast.wire import Codec

CASTS = ("direct", "vorocast")
WRONG_BY = 1e-12  # relative: distances are rounded
# Places are multiples of this, a power of two, so that those which differ by rounding alone are one
# place: borders between sites that are nearly at one place are lost in rounding (`vorocast`).
UNIT = 2.0**-20
CALM: Time = 2 * SECOND  # the place of a site that has not moved for so long is certain


class VonMessage(Message, frozen=True):
    """A message of VON that carries a publication."""

    protocol: ClassVar[str] = "von"


class Route(VonMessage, frozen=True, tag=1):
    """A publication on its way to the owner of its place."""

    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class PublicationMessage(VonMessage, frozen=True, tag=2):
    """A publication that may touch the receiver's area of interest."""

    ordered: ClassVar[bool] = False
    priority: ClassVar[Priority] = Priority.PUBLICATION
    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Cast(VonMessage, frozen=True, tag=3):
    """To all whose region touches `area`; `x` and `y`: the root of the tree."""

    publication: Publication
    x: Real
    y: Real
    area: Shape
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


MESSAGES_OF_VON = (*MESSAGES, Route, PublicationMessage, Cast, UpdateRates)
CODEC = Codec(*MESSAGES_OF_VON, *OF_RELAYS)


class Parameters(RelayLayerParameters, frozen=True, kw_only=True):
    """What can be set for VON."""

    # direct or vorocast: how a publication goes from the owner of its place to those around.
    cast: str = "direct"
    # Milliseconds between two position messages of a moving peer; traffic shrinks and
    # neighbours are found later as it grows.
    step_ms: float = 200.0
    # Units around an area of interest in which neighbours are known already, above what two of
    # them walk in a step and a round trip; traffic grows with it.
    room: float = 20.0
    # The mesh's own: see `mesh.Parameters`.
    beat_s: float = 1.0
    misses: int = 3
    linger_s: float = 2.0
    probe_s: float = 10.0
    shortcuts: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("cast", self.cast, CASTS)
        between("step_ms", self.step_ms, 1, 1e6)
        self.mesh  # noqa: B018  it checks the rest

    @property
    def mesh(self) -> mesh.Parameters:
        return mesh.Parameters(
            room=self.room,
            beat_s=self.beat_s,
            misses=self.misses,
            linger_s=self.linger_s,
            probe_s=self.probe_s,
            shortcuts=self.shortcuts,
        )


class Extent(NamedTuple):
    """Where a peer's interests are in x and y: a disc around its site. z is for the receiver."""

    x: float
    y: float
    reach: float


def extent_of(interests: PeerInterests, now: Time) -> Extent | None:
    area = interests.area(now, flat=True)
    if area is None:
        return None
    x, y = (round(coordinate / UNIT) * UNIT for coordinate in _bounded(area.x, area.y))
    reach = area.radius + hypot(x - area.x, y - area.y)
    return Extent(x, y, reach if reach <= LARGEST else inf)


class MoveSite(Timer, frozen=True):
    """Move the site to the interests, and maintain the mesh."""


class VonPeer(Node):
    """A peer of VON: a site at the centre of its first subscription."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, contacts: Contacts
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters = parameters
        self.contacts = contacts
        self.mesh = Mesh(node_id, self.out, rng, lambda: self.now, parameters.mesh)
        self.relays = relays_of(
            self, parameters, lambda node: node in self.mesh.known, for_others=True
        )
        self.interests = PeerInterests()
        self.rates = RateLimits(self, self.interests, self.out.send, flat=True)
        self.delivered = DeliveredPublications()
        self.passed_on = DeliveredPublications()  # casts
        self._step = round(parameters.step_ms * 1000)
        self._stepping = False
        self._contact: NodeId | None = None
        self._join_started: Time = 0
        self._last_new_neighbour: Time = 0  # when the latest neighbour did

    @property
    def ready(self) -> bool:
        """In the mesh, without a new neighbour for a beat; or outside, without interests."""
        if self.mesh.me is None:
            return not self.interests.present()
        return (
            self.mesh.joined
            and self.now - self._last_new_neighbour >= self.parameters.beat_s * SECOND
        )

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        """Neighbours in the area of interest, at their extrapolated places."""
        extent = extent_of(self.interests, now)
        if extent is None:
            return []
        found = [(node, self.mesh.expected(node, now)) for node in self.mesh.known]
        return [
            (node, (x, y, 0.0))
            for node, (x, y) in found
            if hypot(x - extent.x, y - extent.y) <= extent.reach
        ]

    # Doors.

    def on_start(self) -> None:
        if self.relays is not None:
            self.out.note("uplink", value=round(self.relays.uplink.capacity * 8))

    def on_command(self, command: Command) -> None:
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Subscribe() | Move() | Tune() | Unsubscribe():
                why = self.interests.obey(command, self.id, self.now)
                if why is not None:
                    self.out.note(why, command.subscription)
                else:
                    self.rates.obey(command)
                    self._place_site()
            case Leave():
                if self.relays is not None:
                    self.relays.leave()
                self._leave_mesh()
                self.out.stop()

    def on_message(self, sender: NodeId, message: Message) -> None:
        if self.mesh.on(message, sender):
            self._handle_mesh_events()
            return
        if self.relays is not None and self.relays.on(message, sender):
            for publication, hops in self.relays.drain():
                self._deliver(publication, hops)
            return
        match message:
            case PublicationMessage(publication) | Cast(publication) | Route(publication) if (
                is_outside_window(publication, self.now)
            ):
                self.out.note("refused", sender)
            case PublicationMessage(publication, hops):
                self._deliver(publication, hops)
            case Cast():
                self._pass_on(sender, message)
            case UpdateRates() if sender in self.mesh.known:
                self.rates.learn(sender, message)
            case Route(publication, hops):
                self._route(publication, hops, sender)

    def on_timer(self, timer: Timer) -> None:
        if self.relays is not None and self.relays.wake(timer):
            return
        self._stepping = False
        self._place_site()
        self.mesh.tick(self.now)
        self.interests.forget(self.now)
        self._handle_mesh_events()

    # The site.

    def _place_site(self) -> None:
        """Join or move the site to the interests; leave the mesh without them."""
        extent = extent_of(self.interests, self.now)
        if extent is None:
            self._leave_mesh()
            if not self.interests.present():
                return
        elif self.mesh.me is None:
            self._join_mesh(extent)
        else:
            self.mesh.move_to((extent.x, extent.y), extent.reach)
            patience = self.parameters.misses * self.parameters.beat_s * SECOND
            if not self.mesh.joined and self.now - self._join_started > patience:
                if self._contact is not None:
                    self.contacts.remove(self._contact)  # it does not answer
                self._join_mesh(extent)
        if not self._stepping:
            self._stepping = True
            self.out.set_timer(MoveSite(), self._step)

    def _join_mesh(self, extent: Extent) -> None:
        self._join_started = self._last_new_neighbour = self.now
        self._contact = self.contacts.any(self.rng, self.id)
        self.mesh.join_at((extent.x, extent.y), self._contact, extent.reach)
        self._handle_mesh_events()

    def _leave_mesh(self) -> None:
        self.contacts.remove(self.id)
        self.mesh.leave()

    def _handle_mesh_events(self) -> None:
        for what, site in self.mesh.drain():
            if what == "joined":
                self.contacts.add(self.id)
            elif what == "came":
                self._last_new_neighbour = self.now
                self.out.note("linked", site)
            else:
                self.out.note("unlinked", site)
                if what == "lost":
                    self.contacts.remove(site)

    # Publications.

    def _publish(self, publication: Publication) -> None:
        self._deliver(publication, 0)  # its own echo needs no way
        if self.mesh.me is not None and (self.mesh.joined or self.mesh.known):
            self._route(publication, 0, None)
            return
        contact = self.contacts.any(self.rng, self.id)
        if contact is not None:
            self.out.send(contact, Route(publication, 1))

    def _route(self, publication: Publication, hops: int, sender: NodeId | None) -> None:
        if self.mesh.me is None:
            self.out.note("ignored", publication.id)  # has left the mesh since
            return
        root = _bounded(publication.shape.x, publication.shape.y)
        hop = self.mesh.next_hop(root)
        # Two sites that each believe the other to be nearer would forward it forever.
        if hop is None or hop in (sender, publication.node) or hops >= MOST_HOPS:
            self._spread(publication, root, hops)
        else:
            self.out.send(hop, Route(publication, hops + 1))

    def _spread(self, publication: Publication, root: Point, hops: int) -> None:
        """At the owner of the place: send it to all sites that may want it."""
        shape = publication.shape
        if shape.kind != POINT:
            self._pass_on(None, Cast(publication, *root, shape, hops))
            return
        concerned = [n.site for n in self.mesh.known.values() if self._concerns(n, root)]
        if self.parameters.cast == "direct":
            self._deliver(publication, hops)
            self._send_to_sites(publication, concerned, root, hops)
        else:
            reach = max((_away(site, root) for site in concerned), default=0.0)
            reach += 2 * self.mesh.position_error(self.now)  # they walk on while it is under way
            self._pass_on(None, Cast(publication, *root, disc(*root, reach), hops))

    def _pass_on(self, sender: NodeId | None, cast: Cast) -> None:
        publication, root = cast.publication, (cast.x, cast.y)
        self._deliver(publication, cast.hops)
        if self.mesh.me is None or not self.passed_on.is_new(
            publication_key(publication), self.now
        ):
            return
        further = self.mesh.forward(root, cast.area, sender, self.mesh.position_error(self.now))
        if further and cast.hops < MOST_HOPS:
            self.out.send_many(further, Cast(publication, cast.x, cast.y, cast.area, cast.hops + 1))
        shape = publication.shape
        if shape.kind != POINT:
            near = [(n, _nearest(shape, n.site)) for n in self.mesh.known.values()]
            concerned = [
                neighbour.site
                for neighbour, point in near
                # Sites in the area receive it by the tree.
                if point != neighbour.site.place
                and self._concerns(neighbour, point)
                and self.mesh.owner_of(point) == self.id
            ]
            self._send_to_sites(publication, concerned, root, cast.hops)

    def _send_to_sites(
        self, publication: Publication, sites: list[SiteInfo], root: Point, hops: int
    ) -> None:
        to = [site for site in sites if site.id != publication.node]
        if publication.node == self.id:
            to = self._wanting(publication, to)
        if to and self.relays is not None:
            audience = {site.id: interest_of(_away(site, root), site.reach) for site in to}
            self.relays.disseminate(publication, audience, hops)
        elif to:
            self.out.send_many([site.id for site in to], PublicationMessage(publication, hops + 1))

    def _wanting(self, publication: Publication, sites: list[SiteInfo]) -> list[SiteInfo]:
        """The sites that want this publication of ours now, by their update rates."""
        by_id = {site.id: site for site in sites}
        wanting = self.rates.receivers(
            publication, list(by_id), lambda node: (*by_id[node].place, 0.0)
        )
        return [by_id[node] for node in wanting]

    def _concerns(self, neighbour: MeshNeighbour, point: Point) -> bool:
        """May its area of interest cover a point? A moving site may be elsewhere by now."""
        site = neighbour.site
        room = self.parameters.room if self.now - neighbour.changed < CALM else 0.0
        rounding = WRONG_BY * (site.reach + abs(point[0]) + abs(point[1]))
        return _away(site, point) <= site.reach + room + rounding

    def _deliver(self, publication: Publication, hops: int) -> None:
        wanting = self.interests.wanting(publication)
        if wanting and self.delivered.is_new(publication_key(publication), self.now):
            admitted = self.rates.admit(publication, wanting)
            if admitted:
                self.out.deliver(publication, tuple(admitted), hops)


def _bounded(x: float, y: float) -> Point:
    return min(max(x, -LARGEST), LARGEST), min(max(y, -LARGEST), LARGEST)


def _away(site: SiteInfo, point: Point) -> float:
    return hypot(site.x - point[0], site.y - point[1])


def _nearest(shape: Shape, site: SiteInfo) -> Point:
    """The point of an area that is nearest to a site: if any is in its disc, this one is."""
    dx, dy = site.x - shape.x, site.y - shape.y
    if shape.kind == BOX:
        dx, dy = min(max(dx, -shape.rx), shape.rx), min(max(dy, -shape.ry), shape.ry)
    elif (away := hypot(dx, dy)) > shape.rx:
        dx, dy = dx * shape.rx / away, dy * shape.rx / away
    else:
        return site.place
    return shape.x + dx, shape.y + dy


KIND = ProtocolKind(
    Parameters, CODEC, peer_overlay(VonPeer), settles=True, workload="clustering", spatial=None,
    heights=False, offers=PEER_OFFERS | {OverlayOffer.RATES},
)  # fmt: skip
