"""The space around a peer in eight sectors, and the best sensor of each.

In the plane a part is a sector of 45 degrees, counted from the x axis against the clock; in space
it is an octant. Directions are compared, never angles: an angle jumps where the circle closes, and
a sector that ends there is easily lost.
"""

from itertools import product
from math import cos, dist, pi, sin, sqrt
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.space.shapes import Vector

SECTORS = 8
WIDER = 0.1  # of its angle, on either side, a sector may be widened
_NARROWEST = cos(pi / 8 + WIDER * pi / 4)  # of the angle to the bisector of a widened sector
_BEHIND = -sin(WIDER * pi / 2)  # how far behind an axis a widened octant reaches
_SIGNS = tuple(product((1.0, -1.0), repeat=3))  # an octant's number, bit by bit, is where it is < 0
_BISECTORS = {
    2: tuple((cos(pi / 8 + k * pi / 4), sin(pi / 8 + k * pi / 4), 0.0) for k in range(SECTORS)),
    3: tuple((x / sqrt(3), y / sqrt(3), z / sqrt(3)) for x, y, z in _SIGNS),
}


class PlacedNode(NamedTuple):
    """A node and its position."""

    node: NodeId
    place: Vector


def bisector(sector: int, dimensions: int) -> Vector:
    """The direction in its middle, of length 1."""
    return _BISECTORS[dimensions][sector]


def sector_of(direction: Vector, dimensions: int) -> int:
    """Every direction is in exactly one; a sector owns the border at which it begins."""
    x, y, z = direction
    if dimensions == 3:
        return 4 * (x < 0) + 2 * (y < 0) + (z < 0)
    if y >= 0 and x > 0:
        return 0 if y < x else 1
    if x <= 0 and y > 0:
        return 2 if -x < y else 3
    if y <= 0 and x < 0:
        return 4 if y > x else 5
    return 6 if x < -y else 7


def is_within_wider(sector: int, direction: Vector, dimensions: int) -> bool:
    """Is it in the sector widened by a fifth of its angle, half on each side?"""
    x, y, z = direction
    length = sqrt(x * x + y * y + z * z)
    if dimensions == 3:
        return all(
            sign * d >= _BEHIND * length for sign, d in zip(_SIGNS[sector], direction, strict=True)
        )
    bx, by, _ = _BISECTORS[2][sector]
    return x * bx + y * by >= _NARROWEST * length


def best_sensor(
    sector: int, here: Vector, radius: float, spots: list[PlacedNode], dimensions: int
) -> NodeId | None:
    """The best sensor of a sector for a peer with this radius; ties go to the smaller id.

    The nearest beyond the area of interest in the sector; else in the widened sector; else the
    node nearest to where the bisector leaves the area.
    """
    wanted = range(sector, sector + 1)
    nearest = _nearest_beyond(here, radius, spots, dimensions, wanted)[sector]
    if nearest is not None:
        return nearest[1]
    x, y, z = here
    beyond = [(away, spot) for spot in spots if (away := dist(here, spot.place)) > radius]
    wider = [
        (away, node)
        for away, (node, (px, py, pz)) in beyond
        if is_within_wider(sector, (px - x, py - y, pz - z), dimensions)
    ]
    if wider:
        return min(wider)[1]
    bx, by, bz = bisector(sector, dimensions)
    edge = (x + radius * bx, y + radius * by, z + radius * bz)
    return min(((dist(edge, place), node) for node, place in spots), default=(0.0, None))[1]


def _nearest_beyond(
    here: Vector, radius: float, spots: list[PlacedNode], dimensions: int, sectors: range
) -> list[tuple[float, NodeId] | None]:
    """By sector: who is nearest beyond the area of interest, of these sectors."""
    x, y, z = here
    first, last = sectors[0], sectors[-1]
    best: list[tuple[float, NodeId] | None] = [None] * SECTORS
    for node, place in spots:
        sector = sector_of((place[0] - x, place[1] - y, place[2] - z), dimensions)
        if first <= sector <= last and (away := dist(here, place)) > radius:
            rival = best[sector]
            if rival is None or (away, node) < rival:
                best[sector] = (away, node)
    return best


def best_sensors(
    here: Vector, radius: float, spots: list[PlacedNode], dimensions: int
) -> list[NodeId | None]:
    """`best_sensor` of every sector. Most are found in one pass; the others are asked for."""
    found = _nearest_beyond(here, radius, spots, dimensions, range(SECTORS))
    return [
        best_sensor(sector, here, radius, spots, dimensions) if one is None else one[1]
        for sector, one in enumerate(found)
    ]
