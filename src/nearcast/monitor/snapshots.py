"""Snapshots of the world for the page: columns of numbers, with motion.

A snapshot has the position, velocity and duration of every motion, so that the page can compute
what is between two snapshots. It has these parts, all little-endian (`static/snapshots.js` decodes
them): four doubles (the time in microseconds; the numbers of entities, areas and deliveries),
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
