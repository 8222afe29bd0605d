"""One client's connection: frames in, notices and messages out, and a queue for slow readers.

While the transport takes all that is written, nothing waits here. Once its buffer is full, notices
and messages queue. Notices are always kept; of messages a bounded number is: states that a newer
one of the same publisher and channel has replaced go first, then the oldest. The client is told
how many. A client that makes no progress for long, or for whom even notices pile up, is let go.

A frame that waits for many clients exists once: queues refer to it, and only what is handed to a
transport is copied. So a transport is handed little at a time.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from socket import SO_SNDBUF, SOL_SOCKET
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from picows import WSCloseCode, WSTransport

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode, close_reason
from nearcast.client_protocol.websocket_framing import CLOSE_GRACE_S, WebSocketEndpoint
from nearcast.matching.matcher import Integers
from nearcast.server.http.addresses import remote_address
from nearcast.service.client_state import ClientState, FlushDeliveries
from nearcast.service.connection import Connection
from nearcast.service.frames import websocket_frame
from nearcast.space.motion import SECOND

if TYPE_CHECKING:
    from nearcast.server.gateway import Gateway

HIGH_WATER = 32_768  # bytes that a transport buffers before messages queue
WRITE_PIECE = 32_768  # bytes written at once when a queue drains
DIRECT_WRITE = 65_536  # bytes that a client is handed at once; more goes by its queue
KERNEL_BUFFER = 131_072  # bytes that the kernel buffers for a connection
ENTRY_BYTES = 64  # bytes of memory that a frame in a queue takes besides itself
QUEUE_SLACK = 8  # a queue may exceed its limit by this fraction (1/8), so trimming it is rare
LONGEST_MESSAGE = 4  # times the limit `frame`: a longer message ends the connection


class QueuedFrame(Struct, eq=False, gc=False):
    """A frame that could not be written yet; with `message` it is a message, else a notice."""

    frame: bytes
    message: "QueuedMessage | None" = None


class QueuedMessage(Struct, frozen=True, gc=False):
    """What a queued message is: needed to replace states, and for the trace."""

    publisher: int
    channel: str
    retain: bool
    publication: int
    subscriptions: tuple[int, ...]
    direct: bool = False  # a direct message, which is for no subscription


def trim_queue(
    waiting: Iterable[QueuedFrame], excess: int, excess_bytes: int = 0
) -> tuple[list[QueuedFrame], list[QueuedMessage], int]:
    """Drop at least `excess` messages and `excess_bytes` bytes of them, as far as there are any.

    The oldest superseded states go first, then the oldest of all. Gives what stays, what was
    dropped, and how much of that was superseded.
    """
    kept = list(waiting)
    newest: dict[tuple[int, str], int] = {}
    for place, one in enumerate(kept):
        if one.message is not None and one.message.retain:
            newest[one.message.publisher, one.message.channel] = place
    superseded: list[int] = []
    others: list[int] = []
    for place, one in enumerate(kept):
        message = one.message
        if message is not None:
            old = message.retain and newest[message.publisher, message.channel] > place
            (superseded if old else others).append(place)
    gone: set[int] = set()
    for place in superseded + others:
        if len(gone) >= excess and excess_bytes <= 0:
            break
        gone.add(place)
        excess_bytes -= len(kept[place].frame) + ENTRY_BYTES
    dropped = [message for place in sorted(gone) if (message := kept[place].message) is not None]
    stays = [one for place, one in enumerate(kept) if place not in gone]
    return stays, dropped, min(len(gone), len(superseded))


def fair_level(sizes: Sequence[int], most: int) -> int:
    """The level to which the largest of these must be cut, so that all together are `most`."""
    left = most
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count >= left:
            return left // count
        left -= size
    return max(sizes, default=most)


def with_traced_subscriptions(
    queued: list[QueuedMessage],
    publications: list[int],
    flushed: FlushDeliveries,
    place: int,
    numbers: Integers,
) -> list[QueuedMessage]:
    """The same, with the subscriptions for which the trace knows them.

    `publications` are places in what was flushed, `numbers` the trace's numbers of subscriptions.
    """
    first, last = np.searchsorted(flushed.client, (place, place + 1))
    wanted: dict[int, list[int]] = {}
    traced_by = numbers[flushed.subscription[first:last]].tolist()
    for where, number in zip(flushed.publication[first:last].tolist(), traced_by, strict=True):
        wanted.setdefault(where, []).append(number)
    return [
        replace(message, subscriptions=tuple(wanted[where]))
        for where, message in zip(publications, queued, strict=True)
    ]


class Session(WebSocketEndpoint, Connection):
    """A WebSocket connection of a client, with its token, its counters and its queue."""

    def __init__(self, gateway: "Gateway", token: str = "") -> None:
        WebSocketEndpoint.__init__(self, LONGEST_MESSAGE * gateway.limits.frame, gateway.read)
        Connection.__init__(self, gateway.limits.requests, gateway.now() / SECOND)
        self.gateway = gateway
        self.token = token  # as the connection brought it; that of the join counts before it
        self.served: ClientState | None = None  # the client that it serves, or served last
        # Recorded once a second: number and bytes of requests other than publications, and of all
        # that was written but for deliveries, which the gateway counts.
        self.asked = self.asked_bytes = 0
        self.sent = self.sent_bytes = 0
        self.bytes_in = self.bytes_out = 0  # since it joined, up to the last second
        # While the transport is full.
        self.waiting: deque[QueuedFrame] = deque()
        self.messages = self.bytes = 0  # of what waits: messages, and bytes of everything
        # While its reading is paused: frames that had arrived, whether each is binary.
        self.unread_frames: list[tuple[bytes, bool]] | None = None
        self.paused_reading = 0  # how often that was so
        self.streak = 0  # publications in a row
        self.refused = 0  # requests, since it connected
        self.refused_before = 0  # of them, those before the present window of time
        self.dropped = self.superseded = 0  # not told to the client yet
        self.stuck_since = 0.0

    def expired(self, now: float) -> bool:
        """Is its token out of date at this Unix time in seconds?"""
        grant = self.grant
        return grant is not None and grant.expires is not None and now >= grant.expires

    # Events of picows.

    def on_ws_connected(self, transport: WSTransport) -> None:
        super().on_ws_connected(transport)
        self.raw: asyncio.Transport = transport.underlying_transport
        self.remote = remote_address(self.raw)
        self.raw.set_write_buffer_limits(high=HIGH_WATER, low=HIGH_WATER // 4)
        # What is in the kernel's buffer cannot be replaced by something newer, so it is small.
        self.raw.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, KERNEL_BUFFER)
        self._timer = self.gateway.loop.call_later(self.gateway.limits.join_s, self._require_join)
        self.gateway.connected(self)

    def pong(self, payload: bytes) -> None:
        self.send_frames([bytes((0x8A, len(payload))) + payload])

    def closed(self, code: int, reason: str) -> None:  # noqa: ARG002
        self.gateway.stop_deliveries(self)

    def fail(self, code: int, reason: str) -> None:
        self.end(reason, CloseCode(code))

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002
        self.closing = True
        self._timer.cancel()
        self.gateway.disconnected(self)

    def pause_writing(self) -> None:
        self.paused = True
        self.stuck_since = monotonic()
        self.gateway.paused(self)

    def resume_writing(self) -> None:
        self.paused = False
        self.drain()
        if not self.paused:
            self.gateway.resumed(self)

    # Sending.

    def send(self, notice: messages.Notice) -> None:
        encoding = self.encoding or messages.JSON
        self.send_frames([websocket_frame(encoding, encoding.encode(notice))])

    def send_frames(self, frames: list[bytes]) -> None:
        """Frames that are never dropped: notices, and pongs."""
        if self.closing:
            return
        self.sent += len(frames)
        size = sum(map(len, frames))
        if not self.paused and size <= DIRECT_WRITE:
            self.write(frames[0] if len(frames) == 1 else b"".join(frames))
            return
        self._keep(map(QueuedFrame, frames), size + ENTRY_BYTES * len(frames))
        if not self.paused:
            self.drain()
        if self.bytes > 2 * self.gateway.limits.queue_bytes:
            self.cut("you do not read what you are told")

    def write(self, frames: bytes) -> None:
        self.sent_bytes += len(frames)
        self.raw.write(frames)

    def queue(self, frames: list[bytes], queued: list[QueuedMessage]) -> list[QueuedMessage]:
        """Queue messages until the transport takes them. Gives the messages dropped for them."""
        self.messages += len(frames)
        self._keep(
            map(QueuedFrame, frames, queued), sum(map(len, frames)) + ENTRY_BYTES * len(frames)
        )
        if not self.paused:
            self.drain()
        most, most_bytes = self.gateway.limits.queue, self.gateway.limits.queue_bytes
        if (
            self.messages > most + most // QUEUE_SLACK
            or self.bytes > most_bytes + most_bytes // QUEUE_SLACK
        ):  # fmt: skip
            return self.shed(self.messages - most, self.bytes - most_bytes)
        return []

    def shed(self, messages: int, size: int) -> list[QueuedMessage]:
        """Drop so many messages and bytes of the queue. Gives the dropped messages."""
        stays, dropped, superseded = trim_queue(self.waiting, messages, size)
        self.clear_queue()
        self.messages = sum(one.message is not None for one in stays)
        self._keep(stays, sum(len(one.frame) + ENTRY_BYTES for one in stays))
        self.dropped += len(dropped)
        self.superseded += superseded
        return dropped

    def _keep(self, waiting: Iterable[QueuedFrame], size: int) -> None:
        self.waiting.extend(waiting)
        self.bytes += size
        self.gateway.queued += size

    def clear_queue(self) -> list[QueuedMessage]:
        """Drop everything that waits; gives the messages among it."""
        dropped = [one.message for one in self.waiting if one.message is not None]
        self.waiting.clear()
        self.gateway.queued -= self.bytes
        self.messages = self.bytes = 0
        return dropped

    def drain(self) -> None:
        """Write what waits, until the transport is full again."""
        while self.waiting and not self.paused and not self.closing:
            piece: list[QueuedFrame] = []
            size = 0
            while self.waiting and size < WRITE_PIECE:
                piece.append(self.waiting.popleft())
                size += len(piece[-1].frame)
            queued = [one.message for one in piece if one.message is not None]
            self.messages -= len(queued)
            self.bytes -= size + ENTRY_BYTES * len(piece)
            self.gateway.queued -= size + ENTRY_BYTES * len(piece)
            self.write(b"".join([one.frame for one in piece]))
            self.gateway.record_drained(self, queued)
        if not self.paused:
            self.send_dropped()

    def send_dropped(self) -> None:
        if self.dropped:
            notice = messages.DroppedNotice(self.dropped, self.superseded)
            self.dropped = self.superseded = 0
            self.send(notice)

    # The end.

    def cut(self, reason: str) -> None:
        """Close the connection of a client that does not read."""
        if not self.closing:
            self.gateway.metrics.cut += 1
            self.end(reason)

    def end(self, reason: str, code: CloseCode = CloseCode.POLICY) -> None:
        """End the connection: its client leaves, and is told why."""
        if not self.closing:
            self.gateway.end(self, reason, code)

    def finish(self, reason: str, code: CloseCode) -> None:
        """Send a bye notice and a close frame; abort the connection if it is not closed soon."""
        if self.closing:
            return
        self.send_bye(reason)
        self.transport.send_close(WSCloseCode(code), close_reason(reason))
        self.closing = True
        self._timer.cancel()
        self._timer = self.gateway.loop.call_later(CLOSE_GRACE_S, self.raw.abort)

    def send_bye(self, reason: str) -> None:
        encoding = self.encoding or messages.JSON
        self.write(websocket_frame(encoding, encoding.encode(messages.ByeNotice(reason))))

    def _require_join(self) -> None:
        if self.client is None and not self.joining:
            self.end(f"join within {self.gateway.limits.join_s:g} seconds")

    def joined(self, client: ClientState) -> None:
        self.served = client
        self.token = ""
        self._timer.cancel()

    def counts(self) -> tuple[int, int, int, int]:
        """Counts since the last call, which resets them."""
        counts = self.asked, self.asked_bytes, self.sent, self.sent_bytes
        self.asked = self.asked_bytes = 0
        self.sent = self.sent_bytes = 0
        return counts
