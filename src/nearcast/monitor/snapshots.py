"""The world at one moment as the page wants it: columns of numbers, with motion.

A picture says where everybody is, how fast they go and for how long, so that the page can draw by
itself what lies between two pictures. It has these parts, all little-endian (`static/snapshots.js` reads
them): four doubles (the moment in microseconds; how many entities, areas and deliveries follow),
identifiers as doubles, then everything else as floats, column by column.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from nearcast.space.motion import FOREVER, SECOND, Moving, Time

Rows = NDArray[np.float64]

ENTITY = ("entity", "x", "y", "vx", "vy", "left")
AREA = ("owner", "kind", "x", "y", "rx", "ry", "vx", "vy", "gx", "gy", "left")
DELIVERY = ("publisher", "listener")


def table(width: tuple[str, ...], values: list[tuple[float, ...]] | None = None) -> Rows:
    """A table with these columns."""
    return np.array(values or [], np.float64).reshape(-1, len(width))


def encode_snapshot(t: Time, entities: Rows, areas: Rows, deliveries: Rows | None = None) -> bytes:
    pairs = table(DELIVERY) if deliveries is None else deliveries
    head = np.array([t, len(entities), len(areas), len(pairs)], "<f8")
    names = np.concatenate((entities[:, 0], areas[:, 0], pairs[:, 0], pairs[:, 1]))
    rest = np.concatenate((entities[:, 1:].ravel(order="F"), areas[:, 1:].ravel(order="F")))
    return head.tobytes() + names.astype("<f8").tobytes() + rest.astype("<f4").tobytes()


def area_row(owner: int, leg: Moving, t: Time) -> tuple[float, ...] | None:
    """One area at `t`, for `AREA`; None if it is unbounded, and so nowhere in particular."""
    s = leg.at(t)
    if s.rx == inf or s.ry == inf:
        return None
    left = seconds_left(leg.until, t) if leg.moves else 0.0
    (vx, vy, _), (gx, gy, _) = leg.velocity, leg.growth
    return (owner, s.kind, s.x, s.y, s.rx, s.ry or s.rx, vx, vy, gx, gy or gx, left)


def seconds_left(until: Time, t: Time) -> float:
    return inf if until == FOREVER else max(0, until - t) / SECOND
