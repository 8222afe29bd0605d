"""Fences as columns: one row for each area as it stands, and all vertices in one array.

The vertices of a row are `coordinates[first : first + length]`, its rings or lines begin at the
vertices `starts[ring : ring + rings]`, counted from its own first one. `slab` and `slabs` are of
`slabs`, where a polygon has them.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from nearcast.fences.events import ENTER, LEAVE, Floats, Integers
from nearcast.space.motion import Moving, Path, Time
from nearcast.space.outlines import POLYGON
from nearcast.space.shapes import BOX, Shape

AREA = np.dtype(
    [(name, np.int64) for name in ("number", "since", "dwell", "linger", "first", "ring", "slab")]
    + [(name, np.float64) for name in ("x", "y", "z", "rx", "ry", "rz")]
    + [(name, np.float64) for name in ("size", "low", "high", "west", "east")]
    + [(name, np.int32) for name in ("kind", "form", "earth", "length", "rings", "slabs")]
    + [(name, np.int32) for name in ("kinds", "alive")]
)
NO_FORM = -1  # of an area that is just a point, disc or box
ENTER_AND_LEAVE = 1 << ENTER | 1 << LEAVE


class Fence(Struct, frozen=True):
    """An area whose visitors are of interest, and what is asked about them."""

    number: int
    region: Moving | Path  # stamped
    kinds: int = ENTER_AND_LEAVE  # bits: 1 << kind
    dwell: Time | None = None  # microseconds inside after which `dwell` is reported
    linger: Time = 0  # microseconds outside after which `leave` is reported

    def __post_init__(self) -> None:
        if not 0 < self.kinds < 64:
            raise ValueError(f"a fence asks for kinds of events by bits 0 to 5, not {self.kinds}")
        if self.linger < 0 or (self.dwell is not None and self.dwell < 0):
            raise ValueError("dwell and linger of a fence must be 0 or more")


class FenceColumns(NamedTuple):
    """Many fences that do not move."""

    areas: Any  # an array of AREA
    coordinates: Floats
    starts: Integers


NEVER = 2**62  # the `dwell` of a fence that does not ask for it


def describe_area(area: Any, shape: Shape) -> None:
    """Write what the shape is into a row; its vertices are the caller's."""
    outline = shape.outline
    area["kind"], area["form"], area["low"], area["high"] = shape.kind, NO_FORM, -inf, inf
    for name in ("x", "y", "z", "rx", "ry", "rz"):
        area[name] = getattr(shape, name)
    if outline is not None:
        area["form"], area["earth"], area["size"] = outline.form, outline.earth, outline.size
        area["low"], area["high"] = outline.low, outline.high
        area["length"], area["rings"] = len(outline.coordinates) // 8, len(outline.starts)
        if outline.earth and outline.form == POLYGON:
            longitudes = np.frombuffer(outline.coordinates)[::2]
            area["west"], area["east"] = longitudes.min(), longitudes.max()


def columns_of(fences: Sequence[Fence], now: Time) -> FenceColumns:
    """The fences as they are at that moment, in columns."""
    areas = np.zeros(len(fences), AREA)
    vertices: list[Any] = [np.empty(0)]
    starts: list[int] = []
    for area, fence in zip(areas, fences, strict=True):
        shape = fence.region.at(now)
        outline = shape.outline
        describe_area(area, shape)
        area["number"], area["kinds"], area["linger"] = fence.number, fence.kinds, fence.linger
        area["dwell"] = NEVER if fence.dwell is None else fence.dwell
        if outline is not None:
            vertices.append(np.frombuffer(outline.coordinates))
            area["ring"] = len(starts)
            starts += outline.starts
    areas["first"] = np.cumsum(areas["length"]) - areas["length"]
    return FenceColumns(areas, np.concatenate(vertices), np.array(starts, np.int64))


def polygon_columns(
    number: Any, vertices: Any, ring_starts: Any, rings: Any, kinds: int = ENTER_AND_LEAVE
) -> FenceColumns:
    """Polygons of the plane from columns, without an object for each.

    `vertices` (n, 2) of all rings one after the other, `ring_starts` the first vertex of each ring,
    `rings` how many rings each polygon has.
    """
    areas = np.zeros(len(number), AREA)
    vertices = np.asarray(vertices, np.float64).reshape(-1, 2)
    starts, rings = np.asarray(ring_starts, np.int64), np.asarray(rings, np.int64)
    if not len(areas):
        return FenceColumns(areas, np.empty(0), np.empty(0, np.int64))
    areas["ring"] = np.cumsum(rings) - rings
    first = starts[areas["ring"]]
    low, high = np.minimum.reduceat(vertices, first), np.maximum.reduceat(vertices, first)
    centre = low + (high - low) * 0.5
    counts = np.diff(first, append=len(vertices))
    relative = vertices - np.repeat(centre, counts, axis=0)
    half = np.maximum.reduceat(np.abs(relative), first)
    areas["number"], areas["kinds"], areas["dwell"] = number, kinds, NEVER
    areas["kind"], areas["form"], areas["low"], areas["high"] = BOX, POLYGON, -inf, inf
    areas["x"], areas["y"] = centre.T
    areas["rx"], areas["ry"] = half.T
    areas["first"], areas["length"], areas["rings"] = 2 * first, 2 * counts, rings
    return FenceColumns(areas, relative.reshape(-1), starts - np.repeat(first, rings))
