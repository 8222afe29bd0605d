"""Who heard whom, and where, of the last seconds: for many listeners at once, as columns.

What was said once and heard by many is one entry. Who knows whom is asked rarely and then for all,
so it is worked out when it is asked.
"""

from array import array
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape, Vector

FIRST_ROOM = 4096  # of hearings, before old ones are looked for

Seats = NDArray[np.int32]


@njit(cache=True)
def _latest(heard: Any, counts: Any, speaker: Any, speakers: int, seats: Any, wanted: Any) -> Any:
    """For each wanted seat, the latest entry of every speaker: indices into `wanted`, entries."""
    begins = np.zeros(seats + 1, np.int64)
    for seat in heard:
        begins[seat + 1] += 1
    for seat in range(seats):
        begins[seat + 1] += begins[seat]
    ends = begins[:-1].copy()
    entries = np.empty(len(heard), np.int64)
    k = 0
    for entry in range(len(counts)):
        for _ in range(counts[entry]):
            entries[ends[heard[k]]] = entry
            ends[heard[k]] += 1
            k += 1
    seen = np.full(speakers, -1, np.int64)
    who, what = np.empty(len(heard), np.int64), np.empty(len(heard), np.int64)
    n = 0
    for i in range(len(wanted)):
        seat = wanted[i]
        for k in range(begins[seat + 1] - 1, begins[seat] - 1, -1):
            entry = entries[k]
            if seen[speaker[entry]] != i:
                seen[speaker[entry]] = i
                who[n], what[n] = i, entry
                n += 1
    return who[:n], what[:n]


class RecentSenders:
    def __init__(self, memory: Time) -> None:
        self._memory = memory
        self._room = FIRST_ROOM
        self._heard = array("i")  # seats, entry after entry
        # Of each entry: how many heard it, when, of whom, and where that was.
        self._counts, self._when, self._speaker = array("q"), array("q"), array("q")
        self._places = array("d")

    def note(self, now: Time, speaker: NodeId, where: Shape, seats: Seats | int) -> None:
        if isinstance(seats, int):
            self._heard.append(seats)
            self._counts.append(1)
        else:
            self._heard.frombytes(seats.tobytes())
            self._counts.append(len(seats))
        self._when.append(now)
        self._speaker.append(speaker)
        self._places.extend((where.x, where.y, where.z))
        if len(self._heard) > self._room:
            self._forget(now)
            self._room = max(FIRST_ROOM, 2 * len(self._heard))

    def of(self, seat: int, now: Time) -> dict[NodeId, Vector]:
        """Who was heard there lately, and where they were then."""
        self._forget(now)
        places, found = self._places, {}
        hearings = np.flatnonzero(np.frombuffer(self._heard, np.int32) == seat)
        ends = np.cumsum(np.frombuffer(self._counts, np.int64))
        for entry in np.searchsorted(ends, hearings, "right").tolist():
            x, y, z = places[3 * entry : 3 * entry + 3]
            found[self._speaker[entry]] = (x, y, z)
        return found

    def of_many(self, seats: Seats, now: Time) -> tuple[NDArray[Any], ...]:
        """The same for each of these: columns of indices into `seats`, speakers and places."""
        self._forget(now)
        heard = np.frombuffer(self._heard, np.int32)
        speakers, speaker = np.unique(np.frombuffer(self._speaker, np.int64), return_inverse=True)
        highest = int(max(heard.max(initial=0), seats.max(initial=0)))
        who, what = _latest(
            heard, np.frombuffer(self._counts, np.int64), speaker, len(speakers), highest + 1, seats
        )
        places = np.frombuffer(self._places, np.float64).reshape(-1, 3)
        return who, speakers[speaker[what]], places[what]

    def _forget(self, now: Time) -> None:
        """Moments do not run back, so what is too old stands at the beginning."""
        when = np.frombuffer(self._when, np.int64)
        old = int(np.searchsorted(when, now - self._memory))
        del when
        if old:
            del self._heard[: sum(self._counts[:old])]
            del self._places[: 3 * old]
            for column in (self._counts, self._when, self._speaker):
                del column[:old]
