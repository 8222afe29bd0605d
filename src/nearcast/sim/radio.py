"""A mobile ad-hoc network: nodes with radios that all who are within range share.

An entity's radio is where the entity is in the world; a server stands in the middle. A message goes
hop by hop on a shortest path through others, without their overlay knowing of it, and is lost where
there is none. Each hop takes air time: its bits, and what a medium access protocol adds to a frame.
While it lasts, nobody who hears the sender or the receiver sends or receives anything else, as if
everybody had sensed the carrier and had heard both ends ask for silence: air is never wasted by
collisions. What would have to wait too long for its turn is lost.

Routes are always right and cost nothing, so this is the best that a routing protocol could do. A
frame has one receiver: overlays here send to peers, and do not know who else could have heard it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast.model.subscription import NodeId
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector

Places: TypeAlias = Callable[[Time], Mapping[NodeId, Vector]]
LOOK: Time = SECOND // 10  # between two looks at where everybody is


class AirTime:
    """When the air around one node is taken: spans that do not touch, in order."""

    def __init__(self) -> None:
        self._begins: list[Time] = []
        self._ends: list[Time] = []

    def free_from(self, t: Time, length: Time) -> Time:
        """The first moment from `t` on that begins a free span of this length."""
        i = bisect_right(self._ends, t)
        while i < len(self._begins) and self._begins[i] < t + length:
            t = self._ends[i]
            i += 1
        return t

    def take(self, begin: Time, end: Time, now: Time) -> None:
        """Add a span; what is over by `now` is forgotten."""
        past = bisect_left(self._ends, now)
        del self._begins[:past], self._ends[:past]
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]


class RadioNetwork:
    """Radios of one range on one channel, and messages that go from radio to radio.

    `places`: where all nodes are at a moment, which is asked in order of time.
    """

    def __init__(
        self, places: Places, reach: float, bits_per_second: float, frame: Time, queue: Time
    ) -> None:
        self._places, self._reach, self._rate = places, reach, bits_per_second
        self._frame, self._queue = frame, queue
        self._looked: Time = -LOOK
        self._nodes: list[NodeId] = []
        self._rows: dict[NodeId, int] = {}
        self._near: list[NDArray[np.int64]] = []  # by row: those in range, and itself
        self._towards: dict[int, NDArray[np.int64]] = {}  # by target's row: the next hop of each
        self._air: dict[NodeId, AirTime] = {}

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        """The delay of a message after all its hops; none if it does not get there."""
        known = source in self._rows and target in self._rows
        if now - self._looked >= LOOK or (not known and now > self._looked):
            self._look(now)
        path = self.path(source, target)
        length = self._frame + round(size * 8 / self._rate * SECOND)
        arrived = now
        for here, there in pairwise(path):
            begin = self._turn(here, there, arrived, length)
            if begin - arrived > self._queue:
                return []  # the hops before it have taken their air all the same
            arrived = begin + length
            for row in set(self._near[here].tolist()) | set(self._near[there].tolist()):
                air = self._air.setdefault(self._nodes[row], AirTime())
                air.take(begin, arrived, now)
        return [arrived - now] if path else []

    def path(self, source: NodeId, target: NodeId) -> list[int]:
        """Rows of the nodes on a shortest path; none if the two are not connected."""
        row, end = self._rows.get(source), self._rows.get(target)
        if row is None or end is None:
            return []
        if end not in self._towards:
            self._towards[end] = self._next_hops(end)
        following, rows = self._towards[end], [row]
        while rows[-1] != end:
            hop = int(following[rows[-1]])
            if hop < 0:
                return []
            rows.append(hop)
        return rows

    def _look(self, now: Time) -> None:
        """Find anew who is where, and within range of whom."""
        places = self._places(now)
        self._looked, self._nodes = now, list(places)
        self._rows = {node: row for row, node in enumerate(self._nodes)}
        self._towards.clear()
        spots = np.array([places[node] for node in self._nodes], float).reshape(-1, 3)
        away = np.sqrt(((spots[:, None] - spots[None]) ** 2).sum(axis=2))
        self._near = [np.flatnonzero(row <= self._reach) for row in away]

    def _next_hops(self, target: int) -> NDArray[np.int64]:
        """By breadth-first search from the target; −1: no path. Of several the first found."""
        following = np.full(len(self._nodes), -1)
        following[target] = target
        border = [target]
        while border:
            reached = []
            for row in border:
                fresh = self._near[row][following[self._near[row]] < 0]
                following[fresh] = row
                reached += fresh.tolist()
            border = reached
        return following

    def _turn(self, here: int, there: int, t: Time, length: Time) -> Time:
        """When both ends have the air for themselves."""
        ends = [self._air.get(self._nodes[row]) for row in (here, there)]
        begin = -1
        while begin != t:
            begin = t
            for air in ends:
                t = t if air is None else air.free_from(t, length)
        return begin
