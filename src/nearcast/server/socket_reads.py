"""Reads publications from many sockets at once, in one compiled loop.

A frame that comes by its transport and picows takes 3 µs of Python besides its system call; here it
takes a tenth of that. A client that has published several times in a row, on a plain TCP socket, is
read here as long as it sends whole short frames of MessagePack. Other requests are fed to picows as
if the transport had read them. What is anything else is, too, and then the transport reads again.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numba import njit, types

from nearcast.client_protocol.messages import PUBLISH
from nearcast.matching.matcher import Integers
from nearcast.server.http.upgrade import feed
from nearcast.server.request_cost import LARGE_FRAME
from nearcast.server.socket_writes import FLAGS, NO_SOCKET, socket_number
from nearcast.server.workers import Workers

LOG = logging.getLogger(__name__)
STREAK = 8  # publications in a row, after which a client is read here
AT_ONCE = 2_048  # sockets that are read in one turn of the loop
READ = 8_192  # bytes that are read of one of them
FRAMES = 64  # of each of them, on average
LEAST_REST_S = 0.002  # a timer is no finer

_recv: Any = types.ExternalFunction(
    "recv", types.int64(types.int32, types.uintp, types.uintp, types.int32)
)


class SocketReads:
    """The clients that are read here, by their slots."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, publish: Callable[[list[int], list[bytes]], None],
        workers: Workers,
    ) -> None:  # fmt: skip
        self._loop, self._publish = loop, publish  # slots of clients, and their frames
        self._transports: dict[int, asyncio.Transport] = {}  # by slot
        self._slots: dict[int, int] = {}  # by socket
        self._numbers: dict[int, int] = {}  # sockets, by slot
        self._heard: set[int] = set()  # who has sent something lately
        self._poll: Any = None  # of the sockets
        self._timer: asyncio.TimerHandle | None = None  # of the end of a rest
        self._room = SocketRoom(workers)

    def take(self, slot: int, transport: asyncio.Transport) -> None:
        """Read this client here, if its socket is a plain one. picows holds none of its bytes."""
        number = socket_number(transport)
        if number == NO_SOCKET or slot in self._transports:
            return
        if self._poll is None:
            self._poll = select.epoll()
            self._loop.add_reader(self._poll.fileno(), self.read)
        transport.pause_reading()
        self._transports[slot], self._slots[number] = transport, slot
        self._numbers[slot] = number
        self._poll.register(number, select.EPOLLIN)

    def give_back(self, slot: int) -> None:
        """Let the transport read this client again, if it does not."""
        transport = self._transports.pop(slot, None)
        if transport is None:
            return
        number = self._numbers.pop(slot)
        del self._slots[number]
        with suppress(OSError):  # it is closed already
            self._poll.unregister(number)
        if not transport.is_closing():
            transport.resume_reading()

    def are_alive(self) -> None:
        """Called every ten seconds: picows pings whoever sends it nothing for longer than 25, and
        whoever has been read here is not silent."""
        heard, self._heard = self._heard, set()
        for slot in heard:
            transport = self._transports.get(slot)
            if transport is not None and not transport.is_closing():
                protocol: Any = transport.get_protocol()
                protocol.buffer_updated(0)

    def close(self) -> None:
        for slot in list(self._transports):
            self.give_back(slot)
        if self._poll is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None

    def rest(self, seconds: float) -> None:
        """Read nothing for so long, unless asked to: many sockets in a turn are cheaper."""
        if self._transports and self._timer is None and seconds >= LEAST_REST_S:
            self._loop.remove_reader(self._poll.fileno())
            self._timer = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._loop.add_reader(self._poll.fileno(), self.read)

    def read(self) -> None:
        """Read all sockets that have something."""
        if not self._transports:
            return
        ready = [number for number, _ in self._poll.poll(0, AT_ONCE)]
        slots = [self._slots[number] for number in ready]
        self._heard.update(slots)
        whose, frames, rest = self._room.read(ready)
        if frames:
            self._publish([slots[which] for which in whose], frames)
        for which, unread in rest.items():
            transport = self._transports.get(slots[which])
            if transport is None:  # it has ended by what another one sent
                continue
            try:
                self._read_other(slots[which], transport, unread)
            except Exception:
                LOG.exception("a client could not be read")
                transport.abort()

    def _read_other(self, slot: int, transport: asyncio.Transport, unread: bytes) -> None:
        """Go on where something else than a whole short publication begins."""
        protocol = transport.get_protocol()
        while size := request_size(unread):
            feed(protocol, unread[:size], transport)
            unread = unread[size:]
            if slot not in self._transports:
                break  # its reading is paused, or it has ended
            frames, unread = self._room.split(unread)
            if frames:
                self._publish([slot] * len(frames), frames)
            if not unread:
                return
        self.give_back(slot)
        feed(protocol, unread, transport)


def request_size(data: bytes) -> int:
    """The size of the WebSocket frame with which this begins, if it is whole and has MessagePack
    that is not long; else 0."""
    if len(data) < 8 or data[0] != 0x82 or data[1] < 0x80 or data[1] == 0xFF:
        return 0
    size = data[1] + 6 - 0x80 if data[1] < 0xFE else int.from_bytes(data[2:4]) + 8
    return size if size <= len(data) else 0


class SocketRoom:
    """The room into which sockets are read."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._room = np.empty(READ * AT_ONCE, np.uint8)
        self._frames = np.empty((FRAMES * AT_ONCE, 3), np.int64)

    def read(self, sockets: list[int]) -> tuple[list[int], list[bytes], dict[int, bytes]]:
        """Publications: from which of these sockets each came, and its MessagePack. And what else
        came by some of them, after their publications; nothing by those that have ended."""
        numbers, read = np.array(sockets, np.int64), np.zeros((len(sockets), 3), np.int64)
        counts: dict[tuple[int, int], int] = {}  # of publications, by part: parts end in any order

        def read_part(first: int, last: int) -> None:
            room = self._room[first * READ : last * READ]
            counts[first, last] = _read_sockets(
                numbers[first:last], room, room.ctypes.data,
                self._frames[first * FRAMES : last * FRAMES], read[first:last],
            )  # fmt: skip

        self._workers.share(len(sockets), read_part)
        whose: list[int] = []
        frames: list[bytes] = []
        rest: dict[int, bytes] = {}
        for (first, last), count in sorted(counts.items()):
            begins, ends, ended = read[first:last].T
            data = self._room[first * READ : first * READ + ends.max(initial=0)].tobytes()
            found = self._frames[first * FRAMES : first * FRAMES + count]
            whose += (found[:, 0] + first).tolist()
            frames += _cut(data, found)
            for which in np.flatnonzero((begins < ends) | (ended == 1)).tolist():
                rest[first + which] = data[begins[which] : ends[which]]
        return whose, frames, rest

    def split(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The publications with which this begins, and what follows them."""
        room = np.frombuffer(bytearray(data), np.uint8)
        count, at = _find_publications(room, 0, len(data), self._frames, 0, 0)
        return _cut(room.tobytes(), self._frames[:count]), data[at:]


def _cut(data: bytes, found: Integers) -> list[bytes]:
    return [data[begin:end] for _, begin, end in found.tolist()]


@njit(cache=True, nogil=True)
def _read_sockets(sockets: Integers, room: Any, address: int, frames: Any, read: Any) -> int:
    """Reads each socket into `room`, one after the other, and finds publications at its beginning.

    Fills `frames`: which socket, where each publication begins and ends in `room`. And `read`: for
    each socket, where the rest of its bytes begins, where they end, and 1 if it has ended. Gives
    the number of publications.
    """
    count = end = 0
    for which in range(len(sockets)):
        if count == len(frames):
            break
        at = end
        size = _recv(
            np.int32(sockets[which]), np.uintp(address + at), np.uintp(READ), np.int32(FLAGS)
        )
        end += max(size, 0)
        count, at = _find_publications(room, at, end, frames, which, count)
        read[which, 0], read[which, 1], read[which, 2] = at, end, size <= 0
    return count


@njit(cache=True, nogil=True)
def _find_publications(
    room: Any, at: int, end: int, frames: Any, which: int, count: int
) -> tuple[int, int]:
    """Adds publications until something else comes: how many there are then, and where that is."""
    while count < len(frames):
        begin, after = _publication(room, at, end)
        if not after:
            break
        frames[count, 0], frames[count, 1], frames[count, 2] = which, begin, after
        count += 1
        at = after
    return count, at


@njit(cache=True, nogil=True)
def _publication(room: Any, at: int, end: int) -> tuple[int, int]:
    """Where the payload of the WebSocket frame at this place begins and ends, unmasked; 0 and 0 if
    it is not a whole frame of a short publication."""
    if end - at < 8 or room[at] != 0x82 or room[at + 1] < 0x80:
        return 0, 0
    size, begin = int(room[at + 1] & 0x7F), at + 6
    if size == 126:
        size, begin = int(room[at + 2]) * 256 + int(room[at + 3]), at + 8
    if not 2 <= size <= LARGE_FRAME or begin + size > end:
        return 0, 0
    mask = begin - 4
    if (room[begin] ^ room[mask]) >> 4 != 9 or room[begin + 1] ^ room[mask + 1] != PUBLISH:
        return 0, 0
    for k in range(size):
        room[begin + k] ^= room[mask + (k & 3)]
    return begin, begin + size
