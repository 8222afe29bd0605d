"""Reads many publications at once, if they are *plain*: a point of a plane, a payload, `retain`.

Nearly all frames are so. A compiled loop over all frames that have come makes rows of the table of
publications; what is not plain, or not valid, is left to `Encoding.decode_request`, which says what
is wrong.

The payload of a plain publication is a value that every decoder of MessagePack accepts: of its
texts only ASCII is read here, of its objects only those whose keys are texts.
"""

from typing import Any

import numpy as np
from numba import njit

from nearcast.client_protocol.messages import PUBLISH
from nearcast.matching.matcher import Integers
from nearcast.service.retained_state import NOT_PLAIN, PUBLICATION_DTYPE, PublicationTable
from nearcast.space.shapes import LARGEST, POINT

FEW = 8  # frames for which columns do not pay
LEVELS = 8  # of arrays and objects in a payload that is plain
PREPAID = 64  # requests that a client may make as plain publications before it is asked again


def read_plain(
    data: bytes, lengths: Integers, slots: Integers, *,
    entities: Integers, feeds: Integers, credit: Integers, longest_payload: int,
    may_retain: bool = True,
) -> PublicationTable:  # fmt: skip
    """The rows of these MessagePack frames, which are in `data` one after the other.

    `slots` are those of the clients that sent them. By client slot: `entities`, `feeds` (below 0:
    its publications are not plain), and `credit`, how many it may make. A row that is not plain
    has NOT_PLAIN as the place of its payload, and nothing else; others have taken of the credit.
    """
    rows = np.zeros(len(lengths), PUBLICATION_DTYPE)
    rows["payload"] = NOT_PLAIN
    _read_frames(
        np.frombuffer(data, np.uint8), lengths, slots, entities, feeds, credit, longest_payload,
        may_retain, rows,
    )  # fmt: skip
    return rows


@njit(cache=True)
def _read_frames(
    data: Any, lengths: Any, slots: Any, entities: Any, feeds: Any, credit: Any,
    longest_payload: int, may_retain: bool, rows: Any,
) -> None:  # fmt: skip
    bits = np.zeros(1, np.uint64)
    number = bits.view(np.float64)
    open_values, of_map = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.bool_)
    end = 0
    for i in range(len(lengths)):
        begin, slot = end, slots[i]
        end += lengths[i]
        elements = data[begin] & 0x0F if end - begin > 2 else 0
        if feeds[slot] < 0 or credit[slot] < 1 or not 3 <= elements <= 5:
            continue
        if data[begin] >> 4 != 9 or data[begin + 1] != PUBLISH:
            continue
        at = read_number(data, begin + 2, end, bits, number)
        x = number[0]
        at = read_number(data, at, end, bits, number) if at else 0
        y = number[0]
        if not at or not (-LARGEST <= x <= LARGEST and -LARGEST <= y <= LARGEST):
            continue
        payload, retain = at, False
        if elements > 3:
            at = payload_end(data, at, end, open_values, of_map)
            if not at or at - payload > longest_payload:
                continue
        size = at - payload
        if elements > 4:
            if at >= end or (data[at] != 0xC2 and data[at] != 0xC3):
                continue
            retain = data[at] == 0xC3
            at += 1
        if at != end or (retain and not may_retain):
            continue
        credit[slot] -= 1
        row = rows[i]
        row.entity = row.client = entities[slot]
        row.client_slot, row.feed, row.size, row.kind = slot, feeds[slot], size, POINT
        row.retain = 1 if retain else 0
        row.centre[0], row.centre[1] = x, y
        row.payload = payload


@njit(cache=True)
def read_number(data: Any, at: int, end: int, bits: Any, number: Any) -> int:
    """Reads a number into `number`; where it ends, or 0 if it is not one that is read here."""
    size = value_size(data, at, end) if at < end else 0
    head = data[at] if size else 0xC0
    if head < 0x80:
        number[0] = head
    elif head >= 0xE0:
        number[0] = int(head) - 0x100
    elif head == 0xCB or 0xCC <= head <= 0xCE or 0xD0 <= head <= 0xD2:
        whole = np.uint64(0)
        for k in range(at + 1, at + size):
            whole = (whole << np.uint64(8)) | np.uint64(data[k])
        if head == 0xCB:
            bits[0] = whole
        elif head >= 0xD0 and data[at + 1] >= 0x80:
            number[0] = float(np.int64(whole) - (np.int64(1) << (8 * (size - 1))))
        else:
            number[0] = float(np.int64(whole))
    else:
        return 0
    return at + size


@njit(cache=True)
def value_size(data: Any, at: int, end: int) -> int:
    """The bytes of a value that has no others inside; 0 if it is none that is read here."""
    head, size, text = int(data[at]), 0, 0
    if head < 0x80 or head >= 0xE0 or head == 0xC0 or head == 0xC2 or head == 0xC3:
        size = 1
    elif 0xA0 <= head < 0xC0:
        size, text = 1 + (head & 0x1F), 1
    elif head == 0xC4 and at + 1 < end:
        size = 2 + int(data[at + 1])
    elif head == 0xC5 and at + 2 < end:
        size = 3 + (int(data[at + 1]) << 8 | int(data[at + 2]))
    elif head == 0xD9 and at + 1 < end:
        size, text = 2 + int(data[at + 1]), 2
    elif head == 0xCA or head == 0xCE or head == 0xD2:
        size = 5
    elif head == 0xCB or head == 0xCF or head == 0xD3:
        size = 9
    elif head == 0xCC or head == 0xD0:
        size = 2
    elif head == 0xCD or head == 0xD1:
        size = 3
    if at + size > end:
        return 0
    if text:
        for k in range(at + text, at + size):
            if data[k] >= 0x80:
                return 0
    return size


@njit(cache=True)
def payload_end(data: Any, at: int, end: int, open_values: Any, of_map: Any) -> int:
    """Where the value ends that begins at `at`; 0 if it is not complete or not read here.

    `open_values` are the values that are still to come, at each level of arrays and objects.
    """
    level = -1
    while at < end:
        head = int(data[at])
        is_key = level >= 0 and of_map[level] and open_values[level] % 2 == 0
        if is_key and not (0xA0 <= head < 0xC0 or head == 0xD9):
            return 0
        inner = -1
        if 0x80 <= head < 0xA0:
            inner, size = head & 0x0F, 1
        elif (head == 0xDC or head == 0xDE) and at + 2 < end:
            inner, size = int(data[at + 1]) << 8 | int(data[at + 2]), 3
        else:
            size = value_size(data, at, end)
            if not size:
                return 0
        at += size
        if inner > 0:
            level += 1
            if level == LEVELS:
                return 0
            of_map[level] = head < 0x90 or head == 0xDE
            open_values[level] = 2 * inner if of_map[level] else inner
            continue
        while level >= 0:  # a value is complete, and so may be those that it is in
            open_values[level] -= 1
            if open_values[level]:
                break
            level -= 1
        if level < 0:
            return at
    return 0
