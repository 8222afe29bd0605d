"""Messages between the sites of a mesh (VON, as described in [VSO] II-C and IV).

joiner                   contact … acceptor                     the acceptor's neighbours
  │── NearestSiteQuery ─────▶│──────────▶│ nearest to the place         │
  │◀──────────────── SiteIntroduction ───│ itself, and whom to greet    │
  │── Hello ────────────────────────────▶│                              │
  │── Hello ───────────────────────────────────────────────────────────▶│
  │◀─ Hello ─────────────────────────────│◀── Hello, SiteIntroduction ──│

mover ── Moved ──▶ neighbours; those that border its area of interest answer with a SiteIntroduction
site ── EnclosingNeighbours ──▶ its enclosing neighbours, when they change and with every beat
site ── NeighbourDropped ──▶ a site that is no neighbour any more
leaver ── Bye ──▶ all neighbours
site ── PointOwnerQuery ──▶ … owner of a distant point ── PointOwner ──▶ site: a shortcut

The class of a running site is `site.Site`; a `SiteInfo` is what messages tell of one.
"""

from enum import IntEnum
from math import inf
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Real
from nearcast.space.motion import Time
from nearcast.space.voronoi import Point

LARGEST = 1e30  # of coordinates and bounded reaches: `space.voronoi` is exact up to here
MOST_HOPS = 4096  # a request with so many hops goes in circles
Hops: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class SiteInfo(Struct, frozen=True, array_like=True):
    """Place of a site and radius of its interest (may be inf), valid from `since` on."""

    id: NodeId
    x: float
    y: float
    reach: float
    since: Time

    def __post_init__(self) -> None:
        if self.x != self.x or self.y != self.y or self.reach != self.reach:
            raise ValueError("a site has a number that is not a number")

    @property
    def sound(self) -> bool:
        """Are its numbers in the range where geometry is exact?"""
        near = -LARGEST <= self.x <= LARGEST and -LARGEST <= self.y <= LARGEST
        return near and (0 <= self.reach <= LARGEST or self.reach == inf)

    @property
    def place(self) -> Point:
        return self.x, self.y


class MeshMessage(Message, frozen=True):
    """A message between the sites of a mesh."""

    protocol: ClassVar[str] = "mesh"


class NearestSiteQuery(MeshMessage, frozen=True, tag=201):
    """Find the site nearest to this one; it answers with a SiteIntroduction."""

    site: SiteInfo
    hops: Hops = 0


class SiteIntroduction(MeshMessage, frozen=True, tag=202):
    """Sites that the receiver should know. `accepted`: the answer to its NearestSiteQuery."""

    sites: tuple[SiteInfo, ...]
    accepted: bool = False


class Hello(MeshMessage, frozen=True, tag=203):
    """Become neighbours; `asks`: answer with a Hello."""

    site: SiteInfo
    asks: bool


class DiscoveryScope(IntEnum):
    """Which new neighbours a mover asks for: none, near ones, or all that its area touches."""

    NOT = 0
    NEAR = 1
    ALL = 2


class Moved(MeshMessage, frozen=True, tag=204):
    """The sender's place; with every beat, even if it has not moved."""

    site: SiteInfo
    discover: DiscoveryScope = DiscoveryScope.NOT


class EnclosingNeighbours(MeshMessage, frozen=True, tag=205):
    """The enclosing neighbours of the sender; the receiver is one of them."""

    site: SiteInfo
    ring: tuple[SiteInfo, ...]


class NeighbourDropped(MeshMessage, frozen=True, tag=206):
    """The receiver is no neighbour of the sender any more."""

    since: Time


class Bye(MeshMessage, frozen=True, tag=207):
    """The sender leaves; `ring` are its enclosing neighbours."""

    since: Time
    ring: tuple[SiteInfo, ...]


class PointOwnerQuery(MeshMessage, frozen=True, tag=208):
    """Find the owner of a point; it answers with a PointOwner."""

    site: SiteInfo
    x: Real
    y: Real
    hops: Hops = 0


class PointOwner(MeshMessage, frozen=True, tag=209):
    """The sender owns the point that was asked for."""

    site: SiteInfo


def sound(message: Message) -> bool:
    """Are all sites in a message sound?"""
    if isinstance(message, Moved):  # nearly all are; a class pattern would cost three times as much
        return message.site.sound
    match message:
        case Hello(site) | NearestSiteQuery(site) | PointOwner(site):
            return site.sound
        case EnclosingNeighbours(site, ring):
            return site.sound and all(other.sound for other in ring)
        case SiteIntroduction(sites) | Bye(_, sites):
            return all(other.sound for other in sites)
        case PointOwnerQuery(site, x, y):
            return site.sound and abs(x) <= LARGEST and abs(y) <= LARGEST
    return True


MESSAGES = (
    NearestSiteQuery,
    SiteIntroduction,
    Hello,
    Moved,
    EnclosingNeighbours,
    NeighbourDropped,
    Bye,
    PointOwnerQuery,
    PointOwner,
)
