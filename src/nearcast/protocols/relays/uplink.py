"""An uplink of limited rate: what goes first, what waits, and what is withheld.

All that is for one receiver goes in one packet, so what comes while a packet waits saves a header
(seed 004, II-A). Where the uplink cannot carry everything, the greater interest goes first, and
what is newer of a source takes the place of what still waits (footnote 2: "prioritizing
high-interest neighbors and reducing update frequency"). A receiver of little interest is not
starved, as its claim grows while it waits; it hears less often.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.relays.messages import CODEC, TICK, PeerStatus, RelayedPublication, Update
from nearcast.space.motion import SECOND, Time

HEADERS = 28  # bytes of UDP and IPv4 around each packet (V)
BURST: Time = SECOND // 5  # so much time's worth of bytes may be sent at once
STALE: Time = SECOND  # what has waited for so long is withheld
MILLISECOND: Time = 1_000
MOST_TICKS = 2**32 - 1


def size_of(message: Message) -> int:
    return CODEC.size(message) + HEADERS


def size_of_piece(piece: RelayedPublication) -> int:
    return len(CODEC.encode(Update((piece,)))) - len(CODEC.encode(Update(())))


class QueuedPublication(NamedTuple):
    piece: RelayedPublication
    interest: float
    since: Time
    due: Time  # until then it waits for company


class Uplink:
    def __init__(self, capacity: float) -> None:
        self.capacity = capacity  # bytes per second
        self.demand = 0.0  # bytes that were sent, or should have been, since it was last asked
        self.packets = 0
        self._room = self._burst = capacity * BURST / SECOND
        self._filled: Time = 0
        self._queues: dict[NodeId, list[QueuedPublication]] = {}
        self._blocked: dict[NodeId, Time] = {}  # for whom there has been no room, and since when

    def put(
        self, to: NodeId, piece: RelayedPublication, interest: float, now: Time, hold: Time
    ) -> list[RelayedPublication]:
        """From now on it waits for its packet. Returned: what is withheld in its favour."""
        queue, withheld = self._queues.setdefault(to, []), []
        if to in self._blocked:
            withheld = [one.piece for one in queue if one.piece.source == piece.source]
            queue[:] = [one for one in queue if one.piece.source != piece.source]
            self.demand += sum(map(size_of_piece, withheld))
            said = next((one.audience for one in reversed(withheld) if one.audience), b"")
            piece = replace(piece, audience=piece.audience or said)  # that must not get lost
        queue.append(QueuedPublication(piece, interest, now, now + hold))
        return withheld

    def take(self, message: Message, now: Time) -> None:
        """Something is sent besides, whatever room there is."""
        self._fill(now)
        size = size_of(message)
        self._room -= size
        self.demand += size
        self.packets += 1

    def _fill(self, now: Time) -> None:
        gained = self.capacity * (now - self._filled) / SECOND
        self._room, self._filled = min(self._room + gained, self._burst), now

    def serve(
        self, now: Time, word_for: Callable[[NodeId], PeerStatus | None]
    ) -> tuple[list[tuple[NodeId, Update]], list[tuple[NodeId, RelayedPublication]]]:
        """Packets to send now, and what has waited for too long."""
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
        packets: list[tuple[NodeId, Update]] = []
        for _, to in sorted(claims):
            self._fill(now)
            if self._room <= 0:
                self._blocked.setdefault(to, now)
                continue
            self._blocked.pop(to, None)
            pieces = tuple(_aged(one, now) for one in self._queues.pop(to))
            packets.append((to, Update(pieces, word_for(to))))
            self.take(packets[-1][1], now)
        return packets, withheld

    def due(self, now: Time) -> Time | None:
        """When there is something to serve next; None: nothing waits."""
        if not self._queues:
            return None
        self._fill(now)
        free = now if self._room > 0 else now + round(-self._room / self.capacity * SECOND) + 1
        return max(min(one.due for queue in self._queues.values() for one in queue), free)


def _aged(waiting: QueuedPublication, now: Time) -> RelayedPublication:
    """A piece knows how long it has been on its way, and so for how long it waited."""
    waited = (now - waiting.since) // TICK
    return replace(waiting.piece, age=min(waiting.piece.age + waited, MOST_TICKS))
