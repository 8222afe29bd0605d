"""Which sites have a copy of which owned record: a matrix of slots and sites."""

from collections.abc import Sequence

import numpy as np

from nearcast.model.subscription import NodeId
from nearcast.protocols.voronoi.records import FIRST_ROOM, Flags, Slots


class Replicas:
    """A bit for each slot of an owned record and each site: the site has a copy."""

    def __init__(self) -> None:
        self._column: dict[NodeId, int] = {}
        self._free = list(range(7, -1, -1))
        self._held: Flags = np.zeros((FIRST_ROOM, 8), np.bool_)

    def sites(self) -> list[NodeId]:
        return list(self._column)

    def of(self, slot: int) -> list[NodeId]:
        if slot >= len(self._held):
            return []
        row = self._held[slot]
        return [site for site, column in self._column.items() if row[column]]

    def among(self, slots: Slots, sites: Sequence[NodeId]) -> Flags:
        """One row for each slot, one column for each site."""
        self._make_room(slots, sites)
        return self._held[np.ix_(slots, self._columns(sites))]

    def put(self, slots: Slots, sites: Sequence[NodeId], held: Flags) -> None:
        self._make_room(slots, sites)
        self._held[np.ix_(slots, self._columns(sites))] = held

    def clear(self, slot: int) -> None:
        if slot < len(self._held):
            self._held[slot] = False

    def forget(self, site: NodeId) -> None:
        column = self._column.pop(site, None)
        if column is not None:
            self._held[:, column] = False
            self._free.append(column)

    def _columns(self, sites: Sequence[NodeId]) -> Slots:
        return np.array([self._column[site] for site in sites], np.int64)

    def _make_room(self, slots: Slots, sites: Sequence[NodeId]) -> None:
        rows, columns = self._held.shape
        need = int(slots.max()) + 1 if len(slots) else 0
        if need > rows:
            self._held = np.pad(self._held, ((0, max(need, 2 * rows) - rows), (0, 0)))
        for site in sites:
            if site not in self._column:
                if not self._free:
                    self._held = np.pad(self._held, ((0, 0), (0, columns)))
                    self._free = list(range(2 * columns - 1, columns - 1, -1))
                    columns *= 2
                self._column[site] = self._free.pop()
