"""Settings of a mesh, and its state for each neighbour."""

from math import hypot
from typing import NamedTuple

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.model.subscription import NodeId
from nearcast.protocols.voronoi.mesh_messages import LARGEST, SiteInfo
from nearcast.space.motion import Time
from nearcast.space.voronoi import Point


class Parameters(Struct, frozen=True, kw_only=True):
    """Settings of a mesh."""

    # Units added to each area of interest; neighbours are known earlier, and more of them.
    room: float = 10.0
    # Seconds between two signs of life, above the slowest message's way; upkeep shrinks with it.
    beat_s: float = 1.0
    # Beats of silence after which a neighbour is given up, 2 to 100.
    misses: int = 3
    # Seconds for which a neighbour that is none any longer stays.
    linger_s: float = 2.0
    # Seconds between two times that a site seeks itself; islands find each other sooner.
    probe_s: float = 10.0
    # Far sites to forward through; 0: none. With log N of them, ways have O(log N) hops.
    shortcuts: int = 0

    def __post_init__(self) -> None:
        between("room", self.room, 0, LARGEST)
        between("misses", self.misses, 2, 100)
        between("shortcuts", self.shortcuts, 0, 100)
        for name in ("beat_s", "linger_s", "probe_s"):
            between(name, getattr(self, name), 0.001, 1e5)


class MeshEvent(NamedTuple):
    """To the mesh's user. joined: this site is in. came: a new neighbour. left: it sent Bye. lost:
    it is silent. parted: it is alive, but no neighbour any more."""

    what: str
    site: NodeId


class MeshNeighbour:
    """A neighbour: its site, and what it has sent and been sent."""

    __slots__ = ("apart", "before", "changed", "introduced", "last_received", "ring", "site")

    def __init__(self, site: SiteInfo, last_received: Time) -> None:
        self.site = site
        self.before: SiteInfo | None = None  # its site before the last message
        self.last_received = self.changed = last_received  # a message, and a change of its site
        self.ring: dict[NodeId, SiteInfo] = {}  # its enclosing neighbours, as it reported
        self.introduced: dict[NodeId, Time] = {}  # sites introduced to it, and when
        self.apart: Time | None = None  # since when it is no longer needed

    def stride(self, since: Time) -> float:
        """Length of its last step, if its message came after `since`."""
        if self.before is None or self.changed < since:
            return 0.0
        return hypot(self.site.x - self.before.x, self.site.y - self.before.y)

    def expected(self, now: Time, longest: Time) -> Point:
        """Its place if it moves on as between its last two messages."""
        site, before = self.site, self.before
        if before is None or site.since - before.since > longest:
            return site.place
        share = min(max(now - site.since, 0), longest) / (site.since - before.since)
        return site.x + share * (site.x - before.x), site.y + share * (site.y - before.y)
