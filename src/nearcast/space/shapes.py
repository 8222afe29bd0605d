"""Where something is: a point, a disc (a ball in 3-D), a box, or a form inside of a box.

Every shape is a centre and half-extents in three dimensions; a 2-D world leaves z and rz at 0.
Other forms have an outline besides (`outlines`), which decides about what touches their box.
All shapes are closed: touching is overlapping. `overlap` and `outlines` are the one definition of
"touches" in Nearcast. They take plain numbers, so that the very same functions serve Python objects
here, numba kernels in `matching`, and the truth that the pipeline computes; nothing else may decide
a border.
"""

from enum import IntEnum
from math import inf, sqrt
from typing import TypeAlias

from msgspec import Struct

from nearcast.space.outline_pairs import touches_outline
from nearcast.space.outlines import Outline

Vector: TypeAlias = tuple[float, float, float]


class ShapeKind(IntEnum):
    """What a shape is."""

    POINT = 0
    DISC = 1
    BOX = 2


LARGEST = 1e150  # of coordinates and bounded extents: their squares are still numbers

# Plain integers beside the enum: numba and tight loops compare these.
POINT, DISC, BOX = 0, 1, 2


class Shape(Struct, frozen=True, array_like=True):
    """A closed region. A disc's radius is `rx` alone; only a box may be unbounded (+inf).

    With an outline, the region is the part of this box, disc or point that the outline allows.
    """

    kind: ShapeKind
    x: float
    y: float
    z: float = 0.0
    rx: float = 0.0
    ry: float = 0.0
    rz: float = 0.0
    outline: Outline | None = None

    def __post_init__(self) -> None:
        if not (abs(self.x) <= LARGEST and abs(self.y) <= LARGEST and abs(self.z) <= LARGEST):
            raise ValueError(f"a centre must be within ±{LARGEST}, not {self.x, self.y, self.z}")
        if not (self.rx or self.ry or self.rz):
            return  # a point, or as good as one
        if not (self.rx >= 0 and self.ry >= 0 and self.rz >= 0):
            raise ValueError(f"extents must be 0 or more, not ({self.rx}, {self.ry}, {self.rz})")
        if any(LARGEST < r < inf for r in (self.rx, self.ry, self.rz)):
            raise ValueError(f"extents must be infinite or at most {LARGEST}")
        if self.kind == POINT and (self.rx or self.ry or self.rz):
            raise ValueError("a point has no extents")
        if self.kind == DISC and (self.ry or self.rz or self.rx == inf):
            raise ValueError("a disc has one finite radius, rx")

    def touches(self, other: "Shape") -> bool:
        """Do they share a point? If `other` has no height, it touches no area with heights."""
        near = overlap(
            self.kind, self.x, self.y, self.z, self.rx, self.ry, self.rz,
            other.kind, other.x, other.y, other.z, other.rx, other.ry, other.rz,
        )  # fmt: skip
        if not near or (self.outline is None and other.outline is None):
            return near
        return touches_outline(self, other)


def half_extents(shape: Shape) -> Vector:
    """Along each axis; those of a disc are its radius."""
    return (shape.rx,) * 3 if shape.kind == DISC else (shape.rx, shape.ry, shape.rz)


def point(x: float, y: float, z: float = 0.0) -> Shape:
    """A point, in 2-D or 3-D."""
    return Shape(ShapeKind.POINT, float(x), float(y), float(z))


def disc(x: float, y: float, r: float) -> Shape:
    """A disc, by its centre and radius."""
    return Shape(ShapeKind.DISC, float(x), float(y), 0.0, float(r))


def ball(x: float, y: float, z: float, r: float) -> Shape:
    """A disc in 3-D."""
    return Shape(ShapeKind.DISC, float(x), float(y), float(z), float(r))


def box(x: float, y: float, rx: float, ry: float) -> Shape:
    """A rectangle, by its centre and half-extents."""
    return Shape(ShapeKind.BOX, float(x), float(y), 0.0, float(rx), float(ry))


def cuboid(x: float, y: float, z: float, rx: float, ry: float, rz: float) -> Shape:
    """A box in 3-D, by its centre and half-extents."""
    return Shape(ShapeKind.BOX, float(x), float(y), float(z), float(rx), float(ry), float(rz))


EVERYWHERE = Shape(ShapeKind.BOX, 0.0, 0.0, 0.0, inf, inf, inf)


def overlap(
    a: int, ax: float, ay: float, az: float, arx: float, ary: float, arz: float,
    b: int, bx: float, by: float, bz: float, brx: float, bry: float, brz: float,
) -> bool:  # fmt: skip
    """Do two closed shapes share a point? Kind, centre and half-extents of each.

    Boxes and points compare |d| <= ra + rb on each axis, discs and points sqrt(Σd²) <= ra + rb,
    a disc and a box the distance from the disc's centre to the box. An infinite half-extent needs
    no case of its own: no comparison below can meet inf - inf.
    """
    dx, dy, dz = abs(ax - bx), abs(ay - by), abs(az - bz)
    if a != DISC and b != DISC:
        return dx <= arx + brx and dy <= ary + bry and dz <= arz + brz
    if a != BOX and b != BOX:
        return sqrt(dx * dx + dy * dy + dz * dz) <= arx + brx
    if a == BOX:
        r, hx, hy, hz = brx, arx, ary, arz
    else:
        r, hx, hy, hz = arx, brx, bry, brz
    dx = dx - hx if dx > hx else 0.0
    dy = dy - hy if dy > hy else 0.0
    dz = dz - hz if dz > hz else 0.0
    return sqrt(dx * dx + dy * dy + dz * dz) <= r
