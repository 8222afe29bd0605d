"""A picture read back, as the page does it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.monitor.snapshots import AREA, ENTITY, VERTEX

Rows = list[tuple[float, ...]]


def read(picture: bytes) -> tuple[float, Rows, Rows, Rows]:
    """The moment, and the rows of entities, areas and deliveries, sorted."""
    t, entities, areas, deliveries, _ = read_all(picture)
    return t, sorted(entities), sorted(areas), sorted(deliveries)


def read_all(picture: bytes) -> tuple[float, Rows, Rows, Rows, Rows]:
    """The moment, and the rows of entities, areas, deliveries and vertices, as they are."""
    t, *counts = np.frombuffer(picture, "<f8", 5)
    entities, areas, deliveries, vertices = (int(count) for count in counts)
    offset = 40

    def take(kind: str, rows: int, columns: int) -> NDArray[Any]:
        nonlocal offset
        flat = np.frombuffer(picture, kind, rows * columns, offset)
        offset += flat.nbytes
        return flat.astype(np.float64).reshape(columns, rows)

    names, owners = take("<f8", entities, 1), take("<f8", areas, 1)
    pairs = take("<f8", deliveries, 2)
    places, centres = take("<f8", entities, 2), take("<f8", areas, 2)
    motions, kinds = take("<f4", entities, len(ENTITY) - 3), take("<f4", areas, 1)
    extents = take("<f4", areas, len(AREA) - 4)
    corners = take("<f4", vertices, len(VERTEX))
    assert offset == len(picture)
    return (
        float(t),
        _rows(names, places, motions),
        _rows(owners, kinds, centres, extents),
        _rows(pairs),
        _rows(corners),
    )


def _rows(*columns: NDArray[Any]) -> Rows:
    return [tuple(row) for row in np.concatenate(columns).T.tolist()]


def same(found: Rows, wanted: Rows) -> bool:
    """But for what single precision loses."""
    return len(found) == len(wanted) and np.allclose(found, wanted, rtol=1e-5, atol=1e-3)
