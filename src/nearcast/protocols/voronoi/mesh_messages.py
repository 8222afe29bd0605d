"""What sites of a mesh say to each other (VON, as told in VSO II-C and IV).

joiner                   contact … acceptor                     the acceptor's neighbours
  │── Seek ─────────────────▶│── Seek ──▶│ nearest to the place         │
  │◀──────────────────────────── Meet ───│ itself, and whom to greet    │
  │── Hello ────────────────────────────▶│                              │
  │── Hello ───────────────────────────────────────────────────────────▶│
  │◀─ Hello ─────────────────────────────│◀──── and whom else to Meet ──│

mover ── Moved ──▶ neighbours; whoever borders its area of interest answers with a Meet
site ── Ring ──▶ those who enclose it, when they change and with every beat
site ── Part ──▶ who is no neighbour any longer          leaver ── Bye ──▶ all neighbours
site ── Find ──▶ … owner of a far point ── Found ──▶ site: a shortcut
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
MOST_HOPS = 4096  # a request that has come so far goes round in circles
Hops: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class SiteInfo(Struct, frozen=True, array_like=True):
    """Who is where since when, and how far around it its interest reaches (which may be inf)."""

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
        """Could a site in its right mind have said it?"""
        near = -LARGEST <= self.x <= LARGEST and -LARGEST <= self.y <= LARGEST
        return near and (0 <= self.reach <= LARGEST or self.reach == inf)

    @property
    def place(self) -> Point:
        return self.x, self.y


class MeshMessage(Message, frozen=True):
    """A message between the sites of a mesh."""

    protocol: ClassVar[str] = "mesh"


class NearestSiteQuery(MeshMessage, frozen=True, tag=201):
    """Who is nearest to this site? Let them tell it whom to greet."""

    site: SiteInfo
    hops: Hops = 0


class SiteIntroduction(MeshMessage, frozen=True, tag=202):
    """You should know these. `accepted`: in answer to your Seek."""

    sites: tuple[SiteInfo, ...]
    accepted: bool = False


class Hello(MeshMessage, frozen=True, tag=203):
    """Let us be neighbours; `asks` for the same from you."""

    site: SiteInfo
    asks: bool


class DiscoveryScope(IntEnum):
    """Whom should I know now? Nobody new, those near me, or all whose regions my area touches."""

    NOT = 0
    NEAR = 1
    ALL = 2


class Moved(MeshMessage, frozen=True, tag=204):
    """I am here; with every beat, also if I have not moved."""

    site: SiteInfo
    look: DiscoveryScope = DiscoveryScope.NOT


class EnclosingNeighbours(MeshMessage, frozen=True, tag=205):
    """These enclose me, and you are one of them."""

    site: SiteInfo
    ring: tuple[SiteInfo, ...]


class NeighbourDropped(MeshMessage, frozen=True, tag=206):
    """We are no neighbours any longer."""

    since: Time


class Bye(MeshMessage, frozen=True, tag=207):
    """I leave; these enclosed me."""

    since: Time
    ring: tuple[SiteInfo, ...]


class PointOwnerQuery(MeshMessage, frozen=True, tag=208):
    """Who owns this point? Let them tell me of themselves."""

    site: SiteInfo
    x: Real
    y: Real
    hops: Hops = 0


class PointOwner(MeshMessage, frozen=True, tag=209):
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
