"""Forms that a centre and half-extents cannot express: polygons, corridors, sectors, heights.

A `Shape` with an outline is the box around it, and the outline decides. So an index needs to know
nothing of outlines: it finds candidates by their boxes, and whoever decides about a candidate asks
`touches_outline` here. In the plane coordinates are relative to the shape's centre, so a shape that
moves takes its outline along. On Earth (`earth`) the outline of a polygon has degrees, longitude
first, and stays where it is; its edges are straight in longitude and latitude (RFC 7946).
"""

from enum import IntEnum
from math import inf

from msgspec import Struct


class Form(IntEnum):
    """What an outline is."""

    WHOLE = 0  # all of the box or ball: the outline only bounds heights
    POLYGON = 1  # with holes and several parts: what is inside an odd number of rings
    CORRIDOR = 2  # what is within `size` of a line
    SECTOR = 3  # a part of a disc: apex, direction, half-angle, range
    BALL = 4  # on Earth, in height too: chord² + difference of heights² <= size²


# Plain integers beside the enum: numba and tight loops compare these.
WHOLE, POLYGON, CORRIDOR, SECTOR, BALL = 0, 1, 2, 3, 4


class Outline(Struct, frozen=True, array_like=True):
    """The exact form of a shape inside its box, in plain numbers that kernels can read."""

    form: int
    earth: bool = False
    coordinates: bytes = b""  # doubles, as `memoryview(...).cast("d")` reads them
    starts: tuple[int, ...] = ()  # the first vertex of each ring or line
    size: float = 0.0
    low: float = -inf  # heights, in metres above the ellipsoid; only on Earth
    high: float = inf
