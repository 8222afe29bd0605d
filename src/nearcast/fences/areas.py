"""Fences as columns: one row for each area as it stands, and all vertices in one array.

The vertices of a row are `coordinates[first : first + length]`, its rings or lines begin at the
vertices `starts[ring : ring + rings]`, counted from its own first one. `coarse` and `edges` are of
`coarse_rings`, `slab` and `slabs` of `slabs`, where a polygon has them.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from nearcast.fences.events import ENTER, LEAVE, Floats, Integers
from nearcast.space.motion import Moving, Path, Time
from nearcast.space.outlines import POLYGON, Outline
from nearcast.space.shapes import BOX, Shape, ShapeKind

# First what is read for every way that is near.
AREA = np.dtype(
    [(name, np.float64) for name in ("x", "y", "z", "rx", "ry", "rz")]
    + [("coarse", np.int64), ("edges", np.int32), ("kinds", np.int32)]
    + [(name, np.int64) for name in ("number", "since", "dwell", "linger", "first", "ring", "slab")]
    + [(name, np.float64) for name in ("size", "low", "high", "west", "east", "south", "north")]
    + [(name, np.int32) for name in ("kind", "form", "earth", "length", "rings", "slabs")]
    + [("alive", np.int64)]
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


def area_row(fence: Fence, shape: Shape, ring: int) -> tuple[float, ...]:
    """The row of a fence with this area; its vertices are the caller's."""
    form, earth, length, rings = NO_FORM, False, 0, 0
    size, low, high = 0.0, -inf, inf
    bounds = (0.0, 0.0, 0.0, 0.0)
    outline = shape.outline
    if outline is not None:
        form, earth, size = outline.form, outline.earth, outline.size
        low, high = outline.low, outline.high
        length, rings = len(outline.coordinates) // 8, len(outline.starts)
        if earth and form == POLYGON:
            places = np.frombuffer(outline.coordinates).reshape(-1, 2)
            (west, south), (east, north) = places.min(axis=0), places.max(axis=0)
            bounds = (west, east, south, north)
    return (
        shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz, 0, 0, fence.kinds,
        fence.number, 0, NEVER if fence.dwell is None else fence.dwell, fence.linger, 0, ring, 0,
        size, low, high, *bounds, shape.kind, form, earth, length, rings, 0, 0,
    )  # fmt: skip


def columns_of(fences: Sequence[Fence], now: Time) -> FenceColumns:
    """The fences as they are at that moment, in columns."""
    vertices: list[Any] = [np.empty(0)]
    starts: list[int] = []
    rows = []
    for fence in fences:
        shape = fence.region.at(now)
        outline = shape.outline
        rows.append(area_row(fence, shape, 0 if outline is None else len(starts)))
        if outline is not None:
            vertices.append(np.frombuffer(outline.coordinates))
            starts += outline.starts
    areas = np.array(rows, AREA)
    areas["first"] = np.cumsum(areas["length"]) - areas["length"]
    return FenceColumns(areas, np.concatenate(vertices), np.array(starts, np.int64))


def shapes_of(columns: FenceColumns) -> list[Shape]:
    """The areas as `columns_of` was given them, of fences that stand still."""
    shapes = []
    for area in columns.areas:
        outline = None
        if area["form"] != NO_FORM:
            first, ring = int(area["first"]), int(area["ring"])
            outline = Outline(
                int(area["form"]), bool(area["earth"]),
                columns.coordinates[first:first + int(area["length"])].tobytes(),
                tuple(columns.starts[ring:ring + int(area["rings"])].tolist()),
                float(area["size"]), float(area["low"]), float(area["high"]),
            )  # fmt: skip
        x, y, z, rx, ry, rz = (float(area[name]) for name in ("x", "y", "z", "rx", "ry", "rz"))
        shapes.append(Shape(ShapeKind(int(area["kind"])), x, y, z, rx, ry, rz, outline))
    return shapes


def join_columns(blocks: Sequence[FenceColumns]) -> FenceColumns:
    """The columns of several blocks of fences, one after the other."""
    blocks = [columns_of([], 0), *blocks]
    areas = np.concatenate([block.areas for block in blocks])
    counts = [len(block.areas) for block in blocks]
    for name, columns in (("first", "coordinates"), ("ring", "starts")):
        lengths = np.array([len(getattr(block, columns)) for block in blocks])
        areas[name] += np.repeat(np.cumsum(lengths) - lengths, counts)
    return FenceColumns(
        areas,
        np.concatenate([block.coordinates for block in blocks]),
        np.concatenate([block.starts for block in blocks]),
    )


def select_columns(columns: FenceColumns, rows: Integers) -> FenceColumns:
    """Only these rows, with their vertices alone."""
    areas = columns.areas[rows]
    kept = []
    for first, length, column in (
        ("first", "length", columns.coordinates), ("ring", "rings", columns.starts)
    ):  # fmt: skip
        lengths = areas[length].astype(np.int64)
        begin = np.cumsum(lengths) - lengths
        kept.append(column[np.arange(lengths.sum()) + np.repeat(areas[first] - begin, lengths)])
        areas[first] = begin
    return FenceColumns(areas, *kept)


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
