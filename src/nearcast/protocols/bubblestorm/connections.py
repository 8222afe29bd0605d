"""Direct connections, and when they are closed ([Lucas2011] 3.3.4, 4.3.2).

    outside the area ─▶ soft: still used ─▶ after a while hard ─▶ closed at the next check
    back inside ─▶ not marked any more

A connection that is silent for long or sends invalid packets is hard at once. A connection serves
both peers: it is kept as long as one is in the other's area.
"""

from collections.abc import Callable
from math import inf

from nearcast.model.subscription import NodeId
from nearcast.protocols.bubblestorm.layouts import PeerPosition, is_newer
from nearcast.protocols.interests import Ball
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector

MOST = 10_000  # connections, and attempts under way


class DirectConnection:
    """One direct connection: where the other peer is, and whether it is to be closed."""

    __slots__ = ("hard", "last_received", "place", "published", "radius", "soft", "stamp")

    def __init__(self, position: PeerPosition, now: Time) -> None:
        self.place: Vector = position.place
        self.radius = position.radius  # its vision radius
        self.stamp = position.stamp
        self.published: Time = 0  # when the newest publication was made that told a place
        self.last_received = now
        self.soft: Time | None = None  # since when it has been outside
        self.hard = False

    def monitor(self, inside: bool, now: Time) -> None:
        """Outside: soft; back inside: not (onMessage)."""
        if inside:
            self.soft = None
        elif self.soft is None:
            self.soft = now


class DirectConnections:
    """All direct connections of a peer, and attempts to open one."""

    def __init__(
        self, linger: Time, silent: Time, attempts: Time, note: Callable[[str, NodeId], None]
    ) -> None:
        self._linger, self._silent, self._attempts, self._note = linger, silent, attempts, note
        self.open: dict[NodeId, DirectConnection] = {}
        self.to: tuple[NodeId, ...] = ()  # all of them, as receivers of a message
        self.attempted: dict[NodeId, Time] = {}  # the thesis' address cache (contactPeer)

    def attempt(self, node: NodeId, now: Time) -> bool:
        """May it be contacted? If so, not again for a while."""
        if node in self.open or node in self.attempted or len(self.attempted) >= MOST:
            return False
        self.attempted[node] = now
        return True

    def connect(self, position: PeerPosition, now: Time) -> None:
        """Open a connection; if it is open, unmark it."""
        self.attempted.pop(position.node, None)
        connection = self.open.get(position.node)
        if connection is not None:
            connection.soft, connection.hard = None, False
            self.see(position, now)
        elif len(self.open) < MOST:
            self.open[position.node] = DirectConnection(position, now)
            self.to = tuple(self.open)
            self._note("met", position.node)

    def close(self, node: NodeId) -> bool:
        if self.open.pop(node, None) is None:
            return False
        self.to = tuple(self.open)
        self._note("parted", node)
        return True

    def see(self, position: PeerPosition, now: Time) -> None:
        """A low-frequency update of a connection."""
        connection = self.open[position.node]
        connection.last_received = now
        if not is_newer(connection.stamp, position.stamp):
            connection.stamp = position.stamp
            connection.place, connection.radius = position.place, position.radius

    def check(self, area: Ball | None, now: Time) -> list[NodeId]:
        """Mark what is to be removed, and remove what was marked before (purgeConnections)."""
        over = [node for node, connection in self.open.items() if connection.hard]
        for node in over:
            self.close(node)
        for connection in self.open.values():
            away = inf if area is None else area.away(*connection.place)
            connection.monitor(area is not None and away <= area.radius, now)
            expired = connection.soft is not None and now - connection.soft >= self._linger
            watches = area is not None and away <= connection.radius
            silent = now - connection.last_received >= self._silent
            connection.hard = silent or (expired and not watches)
        since = now - self._attempts
        self.attempted = {node: t for node, t in self.attempted.items() if t > since}
        return over

    def seen(self, now: Time) -> list[tuple[NodeId, Vector]]:
        """Peers in this peer's own area, with their last known positions."""
        return [
            (node, connection.place)
            for node, connection in self.open.items()
            # Outside for long and not hard: open only because we are in the other's area.
            if connection.soft is None or connection.hard or now - connection.soft < self._linger
        ]
