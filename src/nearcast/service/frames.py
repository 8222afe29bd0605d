"""Publications as WebSocket frames: each is built once for all clients that get the same bytes.

Clients get the same bytes if they use the same encoding and the same subscription numbers, which is
nearly always so. No Python object is made for a delivery, nor for a plain publication: columns of
`FlushDeliveries` become indices of frames, and a client's share is one slice.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numba import njit
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.matching.matcher import Integers
from nearcast.service.client_state import AcceptedPublication, FlushDeliveries
from nearcast.service.retained_state import NOT_PLAIN
from nearcast.space.motion import Time
from nearcast.space.shapes import POINT

BuildFrame: TypeAlias = Callable[[int, bool, list[int]], bytes]  # publication, packed?, numbers

_pack = msgspec.msgpack.Encoder().encode
LONGEST_HEAD = 80  # bytes of a frame with a plain publication, besides its payload
_MESSAGE = messages.NOTICES.index(messages.MessageNotice) + 1


def websocket_frame(form: messages.Encoding, body: bytes) -> bytes:
    """A WebSocket frame from a server: final, not masked (RFC 6455, 5.2)."""
    size, kind = len(body), 0x82 if form.binary else 0x81
    if size < 126:
        return bytes((kind, size)) + body
    if size < 65_536:
        return bytes((kind, 126)) + size.to_bytes(2, "big") + body
    return bytes((kind, 127)) + size.to_bytes(8, "big") + body


def message_frame(
    accepted: AcceptedPublication, t: Time, form: messages.Encoding, numbers: list[int]
) -> bytes:
    """The frame that delivers this publication to these subscriptions of a client."""
    request = accepted.request
    content = request.payload if accepted.form is form else accepted.payload(form)
    if (
        form.binary
        and accepted.kind == POINT
        and request.lon is None
        and not (request.channel or request.attributes or request.z)
    ):
        # What `form.encode` would say of a plain point, which nearly all publications are.
        x, y, source, number = request.x, request.y, accepted.client.entity, accepted.id
        if request.retain:
            filled = content if len(content) else None
            body = _pack((_MESSAGE, numbers, source, number, t, x, y, filled, True))
        elif len(content):
            body = _pack((_MESSAGE, numbers, source, number, t, x, y, content))
        else:
            body = _pack((_MESSAGE, numbers, source, number, t, x, y))
        size = len(body)
        return (b"\x82%c" % size) + body if size < 126 else websocket_frame(form, body)
    word = messages.MessageNotice(
        numbers, accepted.client.entity, accepted.id, t, request.x, request.y, content,
        request.retain, request.attributes, request.channel, request.z,
        request.r, request.rx, request.ry, request.rz, request.lon, request.lat, request.alt,
    )  # fmt: skip
    return websocket_frame(form, form.encode(word))


class DeliveryFrames(Struct, frozen=True):
    """The client in slot `clients[i]` is sent the frames of deliveries `starts[i]` until
    `starts[i + 1]`. Delivery `k` has frame `which[k]`, which is `built[begins[which[k]]` until
    `begins[which[k] + 1]]`: each frame is there once, whoever gets it."""

    clients: Integers
    starts: Integers  # one more than there are clients: the last is the end
    sizes: Integers  # bytes for each client
    built: NDArray[np.uint8]
    begins: Integers  # one more than there are frames: the last is the end
    which: Integers
    publications: Integers  # of each delivery: where in `FlushDeliveries.publications`
    shared: dict[int, bytes] = {}  # frames that somebody has asked for

    def frames(self, first: int, last: int) -> list[bytes]:
        """The frames of these deliveries; those with the same bytes are one object."""
        return [self.frame(number) for number in self.which[first:last].tolist()]

    def frame(self, number: int) -> bytes:
        if number not in self.shared:
            begin, end = self.begins[number], self.begins[number + 1]
            self.shared[number] = self.built[begin:end].tobytes()
        return self.shared[number]


_NONE = np.zeros(0, np.int64)
NO_FRAMES = DeliveryFrames(
    _NONE, np.zeros(1, np.int64), _NONE, np.zeros(0, np.uint8), np.zeros(1, np.int64), _NONE, _NONE
)


def delivery_frames(
    deliveries: FlushDeliveries, numbers: Integers, packed: NDArray[np.bool_]
) -> DeliveryFrames:
    """Each publication once for each client, with the numbers of all its subscriptions that match.

    `numbers`: by subscription slot, the client's number. `packed`: by client slot, MessagePack?
    """
    if not len(deliveries):
        return NO_FRAMES
    client, publication = deliveries.client, deliveries.publication
    number = numbers[deliveries.subscription]
    first = np.ones(len(client), np.bool_)
    first[1:] = (client[1:] != client[:-1]) | (publication[1:] != publication[:-1])
    begins = np.flatnonzero(first)
    whose, what = client[begins], publication[begins]
    wanted, which = _wanted_frames(what, packed[whose], number[begins])
    merged: list[tuple[int, bool, tuple[int, ...]]] = []
    if len(begins) < len(client):
        bounds = np.append(begins, len(client))
        merged = _merge_subscriptions(bounds, number, what, packed[whose], len(wanted), which)
    built, begins = _build_frames(deliveries, wanted, merged)
    starts = np.flatnonzero(np.append(True, whose[1:] != whose[:-1]))
    return DeliveryFrames(
        whose[starts],
        np.append(starts, len(whose)),
        np.add.reduceat(np.diff(begins)[which], starts),
        built,
        begins,
        which,
        what,
    )


def only_buildable(
    deliveries: FlushDeliveries, packed: NDArray[np.bool_]
) -> tuple[FlushDeliveries, int]:
    """What can be told, after `delivery_frames` has failed, and how many publications cannot.

    Each is tried by itself in the forms that its listeners speak.
    """
    build = frame_builder(deliveries.publications, deliveries.t)
    codes = deliveries.publication * 2 + packed[deliveries.client]
    failed: set[int] = set()
    for code in np.unique(codes).tolist():
        try:
            build(code >> 1, code & 1 == 1, [0])
        except Exception:
            failed.add(code)
    kept = ~np.isin(codes, np.array(sorted(failed), np.int64))
    return deliveries.only(kept), len({code >> 1 for code in failed})


def _wanted_frames(
    what: Integers, packed: NDArray[np.bool_], number: Integers
) -> tuple[Integers, Integers]:
    """The frames that deliveries need: rows of publication, packed?, subscription number; and the
    frame of each delivery."""
    codes = what * 2 + packed
    if (number == number[0]).all():
        used = np.zeros(int(codes.max()) + 1, np.bool_)
        used[codes] = True
        distinct = np.flatnonzero(used)
        where = np.cumsum(used) - 1
        same = np.full(len(distinct), number[0])
        return np.stack((distinct >> 1, distinct & 1, same), 1), where[codes]
    pairs, which = np.unique(np.stack((codes, number), 1), axis=0, return_inverse=True)
    return np.stack((pairs[:, 0] >> 1, pairs[:, 0] & 1, pairs[:, 1]), 1), which


def _merge_subscriptions(
    bounds: Integers, number: Integers, what: Integers, packed: NDArray[np.bool_],
    others: int, which: Integers,
) -> list[tuple[int, bool, tuple[int, ...]]]:  # fmt: skip
    """Where several subscriptions of a client match, one frame names them all.

    Gives these frames; they are numbered from `others` on.
    """
    known: dict[tuple[int, bool, tuple[int, ...]], int] = {}
    for delivery in np.flatnonzero(np.diff(bounds) > 1).tolist():
        several = tuple(number[bounds[delivery] : bounds[delivery + 1]].tolist())
        key = (int(what[delivery]), bool(packed[delivery]), several)
        which[delivery] = known.setdefault(key, others + len(known))
    return list(known)


def _build_frames(
    deliveries: FlushDeliveries,
    wanted: Integers,
    merged: list[tuple[int, bool, tuple[int, ...]]],
) -> tuple[NDArray[np.uint8], Integers]:
    """Plain publications (`plain_publications`) are built by a compiled loop, others one by one.

    Gives all frames, one after the other, and where each begins.
    """
    table = deliveries.table
    plain = np.zeros(len(wanted), np.bool_)
    if table is not None:
        plain = (wanted[:, 1] == 1) & (table["payload"][wanted[:, 0]] != NOT_PLAIN)
    if table is not None and plain.all() and not merged:
        return _plain_frames(deliveries, table, wanted)
    build = frame_builder(deliveries.publications, deliveries.t)
    frames = [
        b"" if is_plain else build(one, binary == 1, [number])
        for is_plain, (one, binary, number) in zip(plain.tolist(), wanted.tolist(), strict=True)
    ]
    frames += [build(one, binary, list(several)) for one, binary, several in merged]
    if table is not None and plain.any():
        quick, ends = _plain_frames(deliveries, table, wanted[plain])
        data = quick.tobytes()
        for place, (first, last) in zip(
            np.flatnonzero(plain).tolist(), pairwise(ends.tolist()), strict=True
        ):
            frames[place] = data[first:last]
    begins = np.zeros(len(frames) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, frames), np.int64, len(frames)), out=begins[1:])
    return np.frombuffer(bytearray().join(frames), np.uint8), begins


def _plain_frames(
    deliveries: FlushDeliveries, table: NDArray[np.void], which: Integers
) -> tuple[NDArray[np.uint8], Integers]:
    sizes = table["size"][which[:, 0]]
    room = np.empty(int(sizes.sum()) + LONGEST_HEAD * len(which), np.uint8)
    came_in = np.frombuffer(deliveries.data, np.uint8)
    begins = _build_plain(table, deliveries.ids, deliveries.t, came_in, which, room)
    return room[: begins[-1]], begins


@njit(cache=True)
def _build_plain(table: Any, ids: Any, t: int, data: Any, which: Any, out: Any) -> Integers:
    """What `message_frame` makes of plain publications; where each frame begins, and the end."""
    begins = np.zeros(len(which) + 1, np.int64)
    number = np.zeros(1)
    bits = number.view(np.uint64)
    at = 0
    for k in range(len(which)):
        row = table[which[k, 0]]
        fields = 9 if row.retain else 8 if row.size else 7
        source, publication = row.entity, ids[which[k, 0]]
        size = 21 + row.size + (fields == 9) + (fields == 9 and row.size == 0)
        size += _int_size(which[k, 2]) + _int_size(source) + _int_size(publication) + _int_size(t)
        out[at] = 0x82
        if size < 126:
            out[at + 1] = size
            at += 2
        elif size < 65_536:
            out[at + 1], out[at + 2], out[at + 3] = 126, size >> 8, size & 0xFF
            at += 4
        else:
            out[at + 1] = 127
            for shift in range(8):
                out[at + 2 + shift] = (size >> (56 - 8 * shift)) & 0xFF
            at += 10
        out[at], out[at + 1], out[at + 2] = 0x90 | fields, _MESSAGE, 0x91
        at = _put_int(out, at + 3, which[k, 2])
        at = _put_int(out, at, source)
        at = _put_int(out, at, publication)
        at = _put_int(out, at, t)
        for axis in range(2):
            number[0] = row.centre[axis]
            out[at] = 0xCB
            for shift in range(8):
                out[at + 1 + shift] = (bits[0] >> np.uint64(56 - 8 * shift)) & np.uint64(0xFF)
            at += 9
        for byte in range(row.size):
            out[at + byte] = data[row.payload + byte]
        at += row.size
        if fields == 9:
            if not row.size:
                out[at] = 0xC0
                at += 1
            out[at] = 0xC3
            at += 1
        begins[k + 1] = at
    return begins


@njit(cache=True)
def _int_size(value: int) -> int:
    """The bytes of an integer in MessagePack that is not negative."""
    if value < 0x80:
        return 1
    if value < 0x100:
        return 2
    if value < 0x10000:
        return 3
    return 5 if value < 0x100000000 else 9


@njit(cache=True)
def _put_int(out: Any, at: int, value: int) -> int:
    """Writes an integer as MessagePack does, and gives where the next value begins."""
    size = _int_size(value)
    if size == 1:
        out[at] = value
        return at + 1
    out[at] = 0xCC if size == 2 else 0xCD if size == 3 else 0xCE if size == 5 else 0xCF
    for byte in range(size - 1):
        out[at + 1 + byte] = (value >> (8 * (size - 2 - byte))) & 0xFF
    return at + size


def frame_builder(accepted: Sequence[AcceptedPublication], t: Time) -> BuildFrame:
    forms = (messages.JSON, messages.MSGPACK)
    return lambda publication, packed, numbers: message_frame(
        accepted[publication], accepted[publication].t or t, forms[packed], numbers
    )
