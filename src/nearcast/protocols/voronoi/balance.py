"""Load balancing: where a matcher moves, when it asks for help or leaves ([VSO] III-A, IV-F).

Pure functions of places and loads, and `LoadTrend`, which counts periods of overload or idleness.
Both fractions are 0.1 in the authors' VAST; the site's position is a composite of both formulas.
"""

from math import hypot

from msgspec import Struct

from nearcast.protocols.voronoi.vso.messages import Place
from nearcast.space.motion import Time


def towards(place: Place, to: Place, fraction: float) -> Place:
    """Both formulas: a fraction of the gap.

    (1) a neighbour of an overloaded matcher moves towards it, by F_move;
    (2) a matcher moves towards the average centre of what it owns, by F_adjust.
    """
    (x, y), (to_x, to_y) = place, to
    return x + (to_x - x) * fraction, y + (to_y - y) * fraction


def apart(place: Place, others: list[Place], least: float) -> bool:
    """Is the place far enough from other sites? Else regions are small and crossed often."""
    return all(hypot(place[0] - x, place[1] - y) >= least for x, y in others)


class Capacity(Struct, frozen=True):
    """What one matcher can carry: owned subscriptions, and units of activity per second."""

    subscriptions: float = 20.0
    activity: float = float("inf")

    def level(self, subscriptions: int, activity: float) -> float:
        """Above 1: overloaded, by the one or the other (IV-F, 1)."""
        return max(subscriptions / self.subscriptions, activity / self.activity)


class LoadTrend:
    """How long a matcher has been overloaded or idle, and what it does about it."""

    def __init__(self, period: Time, trigger: int, patience: int) -> None:
        self._period, self._trigger, self._patience = period, trigger, patience
        self._since: Time | None = None  # of the state that lasts
        self._over = False
        self._count = 0

    def step(self, now: Time, *, overloaded: bool, idle: bool) -> str:
        """What to do now: nothing, ask neighbours `closer`, `insert` somebody, or `leave`.

        Overload that lasts a period counts one; below the trigger neighbours are asked, at the
        trigger the gateway is, and counting begins anew (VSO_INSERTION_TRIGGER). A trigger of 0
        never calls the gateway. A time without overload clears the count (VAST lets separate
        episodes add up; we do not, as nothing in the paper asks for it).
        """
        if not (overloaded or idle):
            self._since, self._count = None, 0
            return ""
        if self._since is None or self._over != overloaded:
            self._since, self._over, self._count = now, overloaded, 0
        if now - self._since < self._period:
            return ""
        self._since = now
        self._count += 1
        if overloaded:
            if self._trigger and self._count >= self._trigger:
                self._count = 0
                return "insert"
            return "closer"
        return "leave" if self._count >= self._patience else ""
