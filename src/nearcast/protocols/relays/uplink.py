"""An uplink of limited rate: a token bucket, with a queue for each receiver.

All publications for one receiver go in one packet, which saves headers ([Lehn] II-A). Where the
uplink cannot carry everything, receivers of greater interest are served first, and a newer
publication of a source replaces an older one that still waits ([Lehn] footnote 2: "prioritizing
high-interest neighbors and reducing update frequency"). The claim of a waiting receiver grows with
time, so a receiver of little interest does not starve; it is served less often.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.relays.compression import CompressedUpdate, compress
from nearcast.protocols.relays.messages import CODEC, TICK, PeerStatus, RelayedPublication, Update
from nearcast.space.motion import SECOND, Time

HEADERS = 28  # bytes of UDP and IPv4 around each packet ([Lehn] V)
BURST: Time = SECOND // 5  # the bytes of so much time may be sent at once
STALE: Time = SECOND  # a publication that has waited for so long is withheld
MILLISECOND: Time = 1_000
SMOOTH = 0.01  # weight of the latest packet in the ratio of compression
MOST_TICKS = 2**32 - 1


def size_of(message: Message) -> int:
    return CODEC.size(message) + HEADERS


def size_of_piece(piece: RelayedPublication) -> int:
    return len(CODEC.encode(Update((piece,)))) - len(CODEC.encode(Update(())))


class QueuedPublication(NamedTuple):
    """A publication in the queue of one receiver."""

    piece: RelayedPublication
    interest: float
    since: Time
    due: Time  # until then it waits for others to share its packet


class Uplink:
    """The queues and the token bucket of one peer's uplink."""

    def __init__(self, capacity: float, *, compresses: bool = False) -> None:
        self.capacity = capacity  # bytes per second
        self._compresses = compresses
        self.ratio = 1.0  # of the bytes of updates as they are sent to what they were
        self.demand = 0.0  # bytes that were sent, or should have been, since it was last asked
        self.packets = 0
        self._room = self._burst = capacity * BURST / SECOND
        self._filled: Time = 0
        self._queues: dict[NodeId, list[QueuedPublication]] = {}
        self._blocked: dict[NodeId, Time] = {}  # receivers that could not be served, and since when

    def put(
        self, to: NodeId, piece: RelayedPublication, interest: float, now: Time, hold: Time
    ) -> list[RelayedPublication]:
        """Queue a publication; returns those that it replaces."""
        queue, withheld = self._queues.setdefault(to, []), []
        if to in self._blocked:
            withheld = [one.piece for one in queue if one.piece.source == piece.source]
            queue[:] = [one for one in queue if one.piece.source != piece.source]
            self.demand += sum(map(size_of_piece, withheld))
            audience = next((one.audience for one in reversed(withheld) if one.audience), b"")
            piece = replace(
                piece, audience=piece.audience or audience
            )  # a filter must not get lost
        queue.append(QueuedPublication(piece, interest, now, now + hold))
        return withheld

    def charge(self, message: Message, now: Time) -> None:
        """Count a message that is sent at once, whatever room there is."""
        self._fill(now)
        size = size_of(message)
        self._room -= size
        self.demand += size
        self.packets += 1

    def _fill(self, now: Time) -> None:
        gained = self.capacity * (now - self._filled) / SECOND
        self._room, self._filled = min(self._room + gained, self._burst), now

    def serve(
        self, now: Time, status_for: Callable[[NodeId], PeerStatus | None]
    ) -> tuple[
        list[tuple[NodeId, Update | CompressedUpdate]], list[tuple[NodeId, RelayedPublication]]
    ]:
        """Packets to send now, and publications that have waited for too long."""
        withheld: list[tuple[NodeId, RelayedPublication]] = []
        claims: list[tuple[float, NodeId]] = []
        for to, queue in list(self._queues.items()):
            late = [one for one in queue if now - one.since > STALE]
            if late:
                withheld += [(to, one.piece) for one in late]
                self.demand += sum(size_of_piece(one.piece) for one in late)
                queue[:] = [one for one in queue if now - one.since <= STALE]
            if queue and any(one.due <= now for one in queue):
                interest = max(one.interest for one in queue)
                since = min(one.since for one in queue)
                waited = now - min(since, self._blocked.get(to, since)) + MILLISECOND
                claims.append((-interest * waited, to))
            elif not queue:
                del self._queues[to]
                self._blocked.pop(to, None)
        packets: list[tuple[NodeId, Update | CompressedUpdate]] = []
        for _, to in sorted(claims):
            self._fill(now)
            if self._room <= 0:
                self._blocked.setdefault(to, now)
                continue
            self._blocked.pop(to, None)
            pieces = tuple(_aged(one, now) for one in self._queues.pop(to))
            packets.append((to, self._packet(Update(pieces, status_for(to)))))
            self.charge(packets[-1][1], now)
        return packets, withheld

    def _packet(self, update: Update) -> Update | CompressedUpdate:
        if not self._compresses:
            return update
        packet = compress(update)
        ratio = CODEC.size(packet) / CODEC.size(update)
        self.ratio += SMOOTH * (ratio - self.ratio)
        return packet

    def due(self, now: Time) -> Time | None:
        """When to call `serve` next; None: nothing waits."""
        if not self._queues:
            return None
        self._fill(now)
        free = now if self._room > 0 else now + round(-self._room / self.capacity * SECOND) + 1
        return max(min(one.due for queue in self._queues.values() for one in queue), free)


def _aged(waiting: QueuedPublication, now: Time) -> RelayedPublication:
    """The time in the queue is part of the latency of the path."""
    waited = (now - waiting.since) // TICK
    return replace(waiting.piece, age=min(waiting.piece.age + waited, MOST_TICKS))
