"""Recent publishers and their places, for many clients at once, as columns.

A publication that reaches many clients is one entry. Who knows whom is asked rarely and then for
all clients, so it is computed then.
"""

from array import array
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape, Vector

FIRST_ROOM = 4096  # receivers, before old entries are removed

ClientSlots = NDArray[np.int32]


@njit(cache=True)
def _latest(
    receivers: Any, counts: Any, publisher: Any, publishers: int, slots: Any, wanted: Any
) -> Any:
    """For each wanted slot, the latest entry of every publisher: indices into `wanted`, entries."""
    begins = np.zeros(slots + 1, np.int64)
    for slot in receivers:
        begins[slot + 1] += 1
    for slot in range(slots):
        begins[slot + 1] += begins[slot]
    ends = begins[:-1].copy()
    entries = np.empty(len(receivers), np.int64)
    k = 0
    for entry in range(len(counts)):
        for _ in range(counts[entry]):
            entries[ends[receivers[k]]] = entry
            ends[receivers[k]] += 1
            k += 1
    seen = np.full(publishers, -1, np.int64)
    who, what = np.empty(len(receivers), np.int64), np.empty(len(receivers), np.int64)
    n = 0
    for i in range(len(wanted)):
        slot = wanted[i]
        for k in range(begins[slot + 1] - 1, begins[slot] - 1, -1):
            entry = entries[k]
            if seen[publisher[entry]] != i:
                seen[publisher[entry]] = i
                who[n], what[n] = i, entry
                n += 1
    return who[:n], what[:n]


class RecentSenders:
    """For each client slot: the publishers of the last seconds, and where they were."""

    def __init__(self, memory: Time) -> None:
        self._memory = memory
        self._room = FIRST_ROOM
        self._receivers = array("i")  # client slots, entry after entry
        # Of each entry: number of receivers, time, publisher and place.
        self._counts, self._when, self._publisher = array("q"), array("q"), array("q")
        self._places = array("d")

    def note_publisher(
        self, now: Time, publisher: NodeId, where: Shape, slots: ClientSlots | int
    ) -> None:
        if isinstance(slots, int):
            self._receivers.append(slots)
            self._counts.append(1)
        else:
            self._receivers.frombytes(slots.tobytes())
            self._counts.append(len(slots))
        self._when.append(now)
        self._publisher.append(publisher)
        self._places.extend((where.x, where.y, where.z))
        if len(self._receivers) > self._room:
            self._forget(now)
            self._room = max(FIRST_ROOM, 2 * len(self._receivers))

    def of(self, slot: int, now: Time) -> dict[NodeId, Vector]:
        """Publishers from which this client has received recently, and where they were."""
        self._forget(now)
        places, found = self._places, {}
        places_in_column = np.flatnonzero(np.frombuffer(self._receivers, np.int32) == slot)
        ends = np.cumsum(np.frombuffer(self._counts, np.int64))
        for entry in np.searchsorted(ends, places_in_column, "right").tolist():
            x, y, z = places[3 * entry : 3 * entry + 3]
            found[self._publisher[entry]] = (x, y, z)
        return found

    def of_many(self, slots: ClientSlots, now: Time) -> tuple[NDArray[Any], ...]:
        """The same for many: columns of indices into `slots`, publishers and places."""
        self._forget(now)
        receivers = np.frombuffer(self._receivers, np.int32)
        publishers, publisher = np.unique(
            np.frombuffer(self._publisher, np.int64), return_inverse=True
        )
        highest = int(max(receivers.max(initial=0), slots.max(initial=0)))
        who, what = _latest(
            receivers,
            np.frombuffer(self._counts, np.int64),
            publisher,
            len(publishers),
            highest + 1,
            slots,
        )
        places = np.frombuffer(self._places, np.float64).reshape(-1, 3)
        return who, publishers[publisher[what]], places[what]

    def _forget(self, now: Time) -> None:
        """Remove old entries; entries are in order of time."""
        when = np.frombuffer(self._when, np.int64)
        old = int(np.searchsorted(when, now - self._memory))
        del when
        if old:
            del self._receivers[: sum(self._counts[:old])]
            del self._places[: 3 * old]
            for column in (self._counts, self._when, self._publisher):
                del column[:old]
