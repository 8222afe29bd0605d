"""Snapshots of the world for the page: columns of numbers, with motion.

A snapshot has the position, velocity and duration of every motion, so that the page can compute
what is between two snapshots. It has these parts, all little-endian (`static/snapshots.js` decodes
them): five doubles (the time in microseconds; the numbers of entities, areas, deliveries and
vertices), identifiers and places as doubles, then everything else as floats, column by column.

On Earth a place is a longitude and a latitude, velocities are degrees per second, and the radius of
a disc is in metres. Areas of other forms have vertices, relative to the place of the area.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf, remainder

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.space.earth import lon_lat
from nearcast.space.motion import FOREVER, SECOND, Moving, Time
from nearcast.space.outline_drawing import drawing_rings
from nearcast.space.outlines import BALL, WHOLE, Outline
from nearcast.space.shapes import BOX, Shape, ShapeKind

Rows = NDArray[np.float64]
Row = tuple[float, ...]

ENTITY = ("entity", "x", "y", "vx", "vy", "left")
AREA = ("owner", "kind", "x", "y", "rx", "ry", "vx", "vy", "gx", "gy", "left")
DELIVERY = ("publisher", "listener")
VERTEX = ("area", "ring", "dx", "dy")  # the number of the area in its table, of the ring in it

MOST_VERTICES = 20_000  # in one snapshot; of further areas the page draws the boxes


def table(width: tuple[str, ...], values: Sequence[Row] | None = None) -> Rows:
    """A table with these columns."""
    return np.array(values or [], np.float64).reshape(-1, len(width))


def encode_snapshot(
    t: Time,
    entities: Rows,
    areas: Rows,
    deliveries: Rows | None = None,
    vertices: Rows | None = None,
) -> bytes:
    pairs = table(DELIVERY) if deliveries is None else deliveries
    corners = table(VERTEX) if vertices is None else vertices
    head = [t, len(entities), len(areas), len(pairs), len(corners)]
    exact = (head, entities[:, 0], areas[:, 0], pairs, entities[:, 1:3], areas[:, 2:4])
    rest = (entities[:, 3:], areas[:, 1], areas[:, 4:], corners)
    return b"".join(
        np.asarray(part, kind).tobytes(order="F")
        for kind, parts in (("<f8", exact), ("<f4", rest))
        for part in parts
    )


class DrawnOutline(Struct, frozen=True):
    """The rings of an outline, relative to a place: the middle of its box on Earth, else (0, 0)."""

    x: float
    y: float
    rx: float
    ry: float
    vertices: list[tuple[int, float, float]]  # ring, dx, dy


@lru_cache(4_096)
def drawn_outline(outline: Outline | None) -> DrawnOutline | None:
    """How an outline is drawn; None if it is drawn as what has it: a disc, a box or a point."""
    if outline is None or outline.form in (WHOLE, BALL):
        return None
    rings = drawing_rings(Shape(ShapeKind.BOX, 0.0, 0.0, outline=outline))
    flat = np.array([(n, x, y) for n, ring in enumerate(rings) for x, y in ring])
    if not outline.earth:
        rx, ry = np.abs(flat[:, 1:]).max(axis=0)
        return DrawnOutline(0.0, 0.0, rx, ry, flat.tolist())
    # Parts on both sides of the antimeridian are drawn side by side.
    begins = np.searchsorted(flat[:, 0], flat[:, 0])
    flat[:, 1] += 360 * np.round((flat[0, 1] - flat[begins, 1]) / 360)
    low, high = flat[:, 1:].min(axis=0), flat[:, 1:].max(axis=0)
    (x, y), (rx, ry) = (low + high) / 2, (high - low) / 2
    flat[:, 1:] -= x, y
    return DrawnOutline(float(x), float(y), float(rx), float(ry), flat.tolist())


def vertex_rows(outlines: Iterable[tuple[int, Outline | None]]) -> Rows:
    """The table `VERTEX` of these areas, by their numbers in `AREA`; as many as it may have."""
    rows: list[Row] = []
    for number, outline in outlines:
        drawn = drawn_outline(outline)
        if drawn is not None and len(rows) + len(drawn.vertices) <= MOST_VERTICES:
            rows += [(number, *vertex) for vertex in drawn.vertices]
    return table(VERTEX, rows)


def area_row(owner: int, leg: Moving, t: Time, earth: bool = False) -> Row | None:
    """One area at `t`, for `AREA`; None if it is unbounded, and so nowhere in particular."""
    s = leg.at(t)
    if s.rx == inf or s.ry == inf:
        return None
    left = seconds_left(leg.until, t) if leg.moves else 0.0
    (vx, vy, vz), (gx, gy, _) = leg.velocity, leg.growth
    x, y, rx, ry = s.x, s.y, s.rx, s.ry or s.rx
    if earth and s.kind == BOX:
        drawn = drawn_outline(s.outline)
        if drawn is None:
            return None
        x, y, rx, ry = drawn.x, drawn.y, drawn.rx, drawn.ry
    elif earth:
        x, y = lon_lat(s.x, s.y, s.z)
        soon_x, soon_y = lon_lat(s.x + vx, s.y + vy, s.z + vz)
        vx, vy = remainder(soon_x - x, 360.0), soon_y - y
    return (owner, s.kind, x, y, rx, ry, vx, vy, gx, gy or gx, left)


def seconds_left(until: Time, t: Time) -> float:
    return inf if until == FOREVER else max(0, until - t) / SECOND
