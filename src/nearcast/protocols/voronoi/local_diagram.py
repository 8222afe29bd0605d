"""The part of the Voronoi diagram that one site knows: itself and its neighbours.

`Mesh` updates it; the other parts of a site query it. Results are cached until a site comes, goes
or moves. Owners of points are exact (`space.voronoi` defines what that means and how ties are
broken). Which regions an area touches is conservative (`compiled_cells`).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearcast.model.subscription import NodeId
from nearcast.protocols.voronoi import compiled_cells
from nearcast.space import voronoi
from nearcast.space.shapes import BOX, DISC, POINT
from nearcast.space.voronoi import Point, VoronoiRegion

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Identities = NDArray[np.int64]


class SiteColumns(NamedTuple):
    """All known sites as columns, ordered by id."""

    ids: Identities
    xs: Floats
    ys: Floats
    reaches: Floats
    row: dict[NodeId, int]


class LocalDiagram:
    """Places and reaches of the known sites, and queries about their regions."""

    def __init__(self) -> None:
        self.places: dict[NodeId, Point] = {}
        self._reaches: dict[NodeId, float] = {}
        self._columns: SiteColumns | None = None
        self._regions: dict[NodeId, VoronoiRegion] = {}

    def put(self, site: NodeId, place: Point, reach: float) -> None:
        is_new = site not in self.places
        if is_new or self.places[site] != place:
            self.places[site] = place
            self._regions.clear()
        self._reaches[site] = reach
        if is_new:
            self._columns = None
        elif self._columns is not None:  # sites move much more often than they come and go
            row = self._columns.row[site]
            self._columns.xs[row], self._columns.ys[row] = place
            self._columns.reaches[row] = reach

    def drop(self, site: NodeId) -> None:
        if self.places.pop(site, None) is not None:
            del self._reaches[site]
            self._columns = None
            self._regions.clear()

    def region(self, site: NodeId) -> VoronoiRegion:
        found = self._regions.get(site)
        if found is None:
            found = self._regions[site] = voronoi.region(self.places, site)
        return found

    def columns(self) -> SiteColumns:
        if self._columns is None:
            ids = sorted(self.places)
            xs = np.array([self.places[site][0] for site in ids], np.float64)
            ys = np.array([self.places[site][1] for site in ids], np.float64)
            reaches = np.array([self._reaches[site] for site in ids], np.float64)
            row = {site: at for at, site in enumerate(ids)}
            self._columns = SiteColumns(np.array(ids, np.int64), xs, ys, reaches, row)
        return self._columns

    def owners(self, points: ArrayLike) -> Identities:
        """The owner of each point, given by rows of x and y. Exact."""
        ids, xs, ys, _, _ = self.columns()
        at = np.asarray(points, np.float64).reshape(-1, 2)
        squares = (at[:, :1] - xs) ** 2 + (at[:, 1:] - ys) ** 2
        found: Identities = ids[squares.argmin(axis=1)]
        bound = squares.min(axis=1, keepdims=True) * (1 + voronoi.NOISE) + voronoi.FLOOR
        for row in np.flatnonzero((~(squares > bound)).sum(axis=1) > 1):
            found[row] = voronoi.nearest(self.places, *at[row].tolist())
        return found

    def touched(
        self, kinds: ArrayLike, x: ArrayLike, y: ArrayLike, rx: ArrayLike, ry: ArrayLike
    ) -> Flags:
        """Whether each area (a row) may touch the region of each site (a column, by id)."""
        columns = self.columns()
        kind = np.asarray(kinds, np.int64)
        kind = np.where(kind == POINT, DISC, kind)  # a point is a disc of no radius
        shape = [np.ascontiguousarray(column, np.float64) for column in (x, y, rx, ry)]
        return compiled_cells.touching(columns.xs, columns.ys, kind, *shape)

    def related(self, site: NodeId, room: float, touching: bool = True) -> list[NodeId]:
        """Known sites that must know this one; see `compiled_cells.related`."""
        ids, xs, ys, reaches, row = self.columns()
        found = compiled_cells.related(xs, ys, reaches, row[site], room, touching)
        return list(ids[found].tolist())

    def related_with(
        self, others: Mapping[NodeId, tuple[float, float, float]], site: NodeId, room: float
    ) -> list[NodeId]:
        """The same if `others` (x, y and reach of each) were known too."""
        ids, xs, ys, reaches, _ = self.columns()
        new = np.array(list(others.values()), np.float64).reshape(-1, 3)
        names = np.array(list(others), np.int64)
        kept = np.array([site not in others for site in ids.tolist()], np.bool_)
        ids = np.concatenate((ids[kept], names))
        xs = np.concatenate((xs[kept], new[:, 0]))
        ys = np.concatenate((ys[kept], new[:, 1]))
        reaches = np.concatenate((reaches[kept], new[:, 2]))
        at = int(np.flatnonzero(ids == site)[0])
        return list(ids[compiled_cells.related(xs, ys, reaches, at, room, True)].tolist())

    def bordering(self, site: NodeId, reach: float) -> list[NodeId]:
        """Boundary neighbours; see `compiled_cells.bordering`."""
        ids, xs, ys, _, row = self.columns()
        return list(ids[compiled_cells.bordering(xs, ys, row[site], reach)].tolist())


def warm_up() -> None:
    """Loads or compiles the kernels of sites: later this would make the node seem dead."""
    diagram = LocalDiagram()
    for site, place in enumerate(((0.0, 0.0), (10.0, 0.0), (0.0, 10.0))):
        diagram.put(site, place, 5.0)
    diagram.owners([[1.0, 2.0]])
    diagram.touched([DISC, BOX], [0.0, 1.0], [0.0, 1.0], [1.0, 2.0], [1.0, 2.0])
    diagram.related(0, 1.0)
    diagram.related_with({3: (5.0, 5.0, 1.0)}, 3, 1.0)
    diagram.bordering(0, 5.0)
