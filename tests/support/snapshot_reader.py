"""A picture read back, as the page does it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.monitor.snapshots import AREA, ENTITY

Rows = list[tuple[float, ...]]


def read(picture: bytes) -> tuple[float, Rows, Rows, Rows]:
    """The moment, and the rows of entities, areas and deliveries, sorted."""
    t, *counts = np.frombuffer(picture, "<f8", 4)
    entities, areas, deliveries = (int(count) for count in counts)
    names = np.frombuffer(picture, "<f8", entities + areas + 2 * deliveries, 32)
    rest: NDArray[Any] = np.frombuffer(picture, "<f4", -1, 32 + names.nbytes)
    of_entities, of_areas = np.split(rest, [entities * (len(ENTITY) - 1)])
    owners = names[entities : entities + areas]
    pairs = names[entities + areas :].reshape(2, deliveries)
    return (
        float(t),
        _rows(names[:entities], of_entities.reshape(len(ENTITY) - 1, entities)),
        _rows(owners, of_areas.reshape(len(AREA) - 1, areas)),
        sorted(zip(*pairs.tolist(), strict=True)),
    )


def _rows(names: NDArray[Any], columns: NDArray[Any]) -> Rows:
    return sorted(zip(names.tolist(), *columns.tolist(), strict=True))


def same(found: Rows, wanted: Rows) -> bool:
    """But for what single precision loses."""
    return len(found) == len(wanted) and np.allclose(found, wanted, rtol=1e-5, atol=1e-3)
