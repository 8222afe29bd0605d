"""What a mesh is set to, and what it keeps of each neighbour."""

from math import hypot
from typing import NamedTuple

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.protocols.voronoi.mesh_messages import LARGEST, SiteInfo
from nearcast.space.motion import Time
from nearcast.space.voronoi import Point


class Parameters(Struct, frozen=True, kw_only=True):
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
        if not 0 <= self.room <= LARGEST:
            raise ValueError(f"room must be 0 or more, not {self.room}")
        if not 2 <= self.misses <= 100:
            raise ValueError(f"misses must be between 2 and 100, not {self.misses}")
        if not 0 <= self.shortcuts <= 100:
            raise ValueError(f"shortcuts must be between 0 and 100, not {self.shortcuts}")
        for name in ("beat_s", "linger_s", "probe_s"):
            if not 0.001 <= getattr(self, name) <= 1e5:
                raise ValueError(f"{name} must be from 0.001 to 1e5, not {getattr(self, name)}")


class MeshEvent(NamedTuple):
    """To the mesh's user. joined: I am in. came: a neighbour. left: it said goodbye. lost: it is
    silent. parted: it lives, but is no neighbour any longer."""

    what: str
    site: NodeId


class MeshNeighbour:
    __slots__ = ("apart", "before", "changed", "heard", "ring", "site", "told")

    def __init__(self, site: SiteInfo, heard: Time) -> None:
        self.site = site
        self.before: SiteInfo | None = None  # its site before the last word
        self.heard = self.changed = heard  # when it was last heard, and when with something new
        self.ring: dict[NodeId, SiteInfo] = {}  # who encloses it, as it says
        self.told: dict[NodeId, Time] = {}  # of whom it was told here, and when
        self.apart: Time | None = None  # since when it is no longer needed

    def stride(self, since: Time) -> float:
        """How far it went with its last step, if that was heard of after `since`."""
        if self.before is None or self.changed < since:
            return 0.0
        return hypot(self.site.x - self.before.x, self.site.y - self.before.y)

    def expected(self, now: Time, longest: Time) -> Point:
        """Where it must be if it walks on as it did between its last two words."""
        site, before = self.site, self.before
        if before is None or site.since - before.since > longest:
            return site.place
        share = min(max(now - site.since, 0), longest) / (site.since - before.since)
        return site.x + share * (site.x - before.x), site.y + share * (site.y - before.y)
