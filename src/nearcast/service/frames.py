"""Publications as WebSocket frames: each is built once for all clients that get the same bytes.

Clients get the same bytes if they use the same encoding and the same subscription numbers, which is
nearly always so. No Python object is made for a delivery: columns of `FlushDeliveries` become
indices of frames, and a client's share is one slice.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.matching.matcher import Integers
from nearcast.service.client_state import AcceptedPublication, FlushDeliveries
from nearcast.space.motion import Time
from nearcast.space.shapes import POINT

BuildFrame: TypeAlias = Callable[[int, bool, list[int]], bytes]  # publication, packed?, numbers

_pack = msgspec.msgpack.Encoder().encode
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
    """The client in slot `clients[i]` is sent `frames[starts[i]:starts[i + 1]]`."""

    clients: Integers
    starts: Integers  # one more than there are clients: the last is the end
    sizes: Integers  # bytes for each client
    frames: list[bytes]
    publications: Integers  # of each frame: where in `FlushDeliveries.publications`


_NONE = np.zeros(0, np.int64)
NO_FRAMES = DeliveryFrames(_NONE, np.zeros(1, np.int64), _NONE, [], _NONE)


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
    build = frame_builder(deliveries.publications, deliveries.t)
    built, frame = _single_frames(what, packed[whose], number[begins], build)
    if len(begins) < len(client):
        _merge_subscriptions(
            np.append(begins, len(client)), number, what, packed[whose], build, built, frame
        )
    starts = np.flatnonzero(np.append(True, whose[1:] != whose[:-1]))
    lengths = np.fromiter(map(len, built), np.int64, len(built))
    return DeliveryFrames(
        whose[starts],
        np.append(starts, len(whose)),
        np.add.reduceat(lengths[frame], starts),
        np.array(built, object)[frame].tolist(),
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


def _single_frames(
    what: Integers, packed: NDArray[np.bool_], number: Integers, build: BuildFrame
) -> tuple[list[bytes], Integers]:
    """Frames with one subscription number each, and the frame of each delivery."""
    codes = what * 2 + packed
    if (number == number[0]).all():
        one = [int(number[0])]
        used = np.zeros(int(codes.max()) + 1, np.bool_)
        used[codes] = True
        distinct = np.flatnonzero(used)
        where = np.cumsum(used) - 1
        return [build(code >> 1, code & 1 == 1, one) for code in distinct.tolist()], where[codes]
    pairs, frame = np.unique(np.stack((codes, number), 1), axis=0, return_inverse=True)
    return [build(code >> 1, code & 1 == 1, [n]) for code, n in pairs.tolist()], frame


def _merge_subscriptions(
    bounds: Integers, number: Integers, what: Integers, packed: NDArray[np.bool_],
    build: BuildFrame, built: list[bytes], frame: Integers,
) -> None:  # fmt: skip
    """Where several subscriptions of a client match, one frame names them all."""
    known: dict[tuple[int, bool, tuple[int, ...]], int] = {}
    for delivery in np.flatnonzero(np.diff(bounds) > 1).tolist():
        several = tuple(number[bounds[delivery] : bounds[delivery + 1]].tolist())
        key = (int(what[delivery]), bool(packed[delivery]), several)
        if key not in known:
            known[key] = len(built)
            built.append(build(key[0], key[1], list(several)))
        frame[delivery] = known[key]


def frame_builder(accepted: Sequence[AcceptedPublication], t: Time) -> BuildFrame:
    forms = (messages.JSON, messages.MSGPACK)
    return lambda publication, packed, numbers: message_frame(
        accepted[publication], accepted[publication].t or t, forms[packed], numbers
    )
