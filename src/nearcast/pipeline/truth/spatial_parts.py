"""Cuts space and time into parts with about equally much work, so that no part has most of it.

The parts are the leaves of a tree of cuts along x, y, z or t, found from a sample of both sides of
a join. Each cut halves the work along the axis that fewest areas cross. A point is in one part, an
area in every part that it touches, so each pair is found once. Where no cut helps, because
everything is at one place or touches everything, the rows of one side are dealt to several parts,
and all rows of the other side go to each of these.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.pipeline.truth import join
from nearcast.space.motion import FOREVER
from nearcast.space.shapes import DISC
from nearcast.trace.schema import SHAPES

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

AREAS, POINTS = 0, 1  # the sides of a join
AXES = 4  # x, y, z and t
PAIRS_PER_ROW = 4.0  # finding so many pairs takes as long as moving a row
CHANCE_HITS = 4  # so few hits in a sample say nothing about a place
MARGIN = 1e-9  # relative; far more than any rounding error


class Part(Struct, frozen=True):
    """A part, or `shares` parts numbered from `number` on to which the rows of one side are dealt,
    while all rows of the other side are in each."""

    number: int
    shares: int = 1
    dealt: int = POINTS


class Cut(Struct, frozen=True):
    """What lies below an edge along an axis is in other parts than the rest."""

    axis: int
    edge: float
    below: "Cut | Part"
    above: "Cut | Part"


PartTree: TypeAlias = Cut | Part


class Bounds(Struct, frozen=True):
    """The lowest and highest coordinates of rows, an array of four rows (`AXES`) each."""

    low: Floats
    high: Floats

    def take(self, rows: Integers | NDArray[np.bool_]) -> "Bounds":
        return Bounds(self.low[:, rows], self.high[:, rows])


def point_bounds(points: pa.Table) -> Bounds:
    place = np.array([join.column_or_zeros(points, name) for name in ("x", "y", "z", "t")], float)
    return Bounds(place, place)


def area_bounds(areas: pa.Table, last: int = FOREVER) -> Bounds:
    """Boxes around all that the areas touch until the moment `last`; they must have an `end`."""
    t = join.column_or_zeros(areas, "t")
    end = np.minimum(join.column_or_zeros(areas, "end") - 1, last)
    seconds = np.maximum(end - t, 0) / 1e6
    disc = join.text_codes(areas, "shape", pa.array(SHAPES)) == DISC
    radius = join.column_or_zeros(areas, "rx")
    low, high = [], []
    for axis in "xyz":
        begin = join.column_or_zeros(areas, axis)
        stop = begin + join.column_or_zeros(areas, f"v{axis}") * seconds
        half = np.where(disc, radius, join.column_or_zeros(areas, f"r{axis}"))
        half = half + MARGIN * (half + np.abs(begin) + np.abs(stop)) + 1e-150
        low.append(np.minimum(begin, stop) - half)
        high.append(np.maximum(begin, stop) + half)
    return Bounds(np.array([*low, t.astype(float)]), np.array([*high, end.astype(float)]))


def estimate_parts(points: Bounds, areas: Bounds, rows: tuple[int, int], rows_per_part: int) -> int:
    """How many parts the work needs, given samples and the numbers of areas and points."""
    work = _point_work(points, areas, rows).sum() + rows[AREAS]
    return max(1, int(np.ceil(work / rows_per_part)))


def cut_parts(points: Bounds, areas: Bounds, rows: tuple[int, int], parts: int) -> PartTree:
    """A tree with so many parts, from samples of areas and points and the numbers of both."""
    work = _point_work(points, areas, rows)
    per_area = rows[AREAS] / max(1, areas.low.shape[1])
    return _cut(points, work, areas, per_area, parts, 0)


def _point_work(points: Bounds, areas: Bounds, rows: tuple[int, int]) -> Floats:
    """What each point of the sample stands for, in rows: its like, and the pairs of these."""
    count, sampled = points.low.shape[1], areas.low.shape[1]
    hits = np.zeros(count)
    for first in range(0, count, 512):
        some = slice(first, first + 512)
        inside = np.ones((len(hits[some]), sampled), np.bool_)
        for axis in range(AXES):
            at = points.low[axis, some, None]
            inside &= (areas.low[axis] <= at) & (at <= areas.high[axis])
        hits[some] = inside.sum(axis=1)
    pairs = np.maximum(hits - CHANCE_HITS, 0) * (rows[AREAS] / max(1, sampled))
    work: Floats = (1 + pairs / PAIRS_PER_ROW) * (rows[POINTS] / max(1, count))
    return work


def _cut(
    points: Bounds, work: Floats, areas: Bounds, per_area: float, parts: int, number: int
) -> PartTree:
    if parts < 2:
        return Part(number)
    share = parts // 2 / parts
    of_points, of_areas = float(work.sum()), areas.low.shape[1] * per_area
    dealt = POINTS if of_points >= of_areas else AREAS
    best, cost = None, of_points + of_areas + min(of_points, of_areas)  # of dealing to two parts
    for axis in range(AXES):
        edge = _edge(points.low[axis], work, areas, per_area, axis, share)
        if edge is None:
            continue
        below = work[points.low[axis] < edge].sum() + per_area * (areas.low[axis] < edge).sum()
        above = work[points.low[axis] >= edge].sum() + per_area * (areas.high[axis] >= edge).sum()
        if max(below / share, above / (1 - share)) < cost:
            best, cost = (axis, edge), max(below / share, above / (1 - share))
    if best is None:
        return Part(number, parts, dealt)
    axis, edge = best
    left, low, high = points.low[axis] < edge, areas.low[axis] < edge, areas.high[axis] >= edge
    half = parts // 2
    return Cut(
        axis,
        edge,
        _cut(points.take(left), work[left], areas.take(low), per_area, half, number),
        _cut(
            points.take(~left), work[~left], areas.take(high), per_area, parts - half, number + half
        ),
    )


def _edge(
    place: Floats, work: Floats, areas: Bounds, per_area: float, axis: int, share: float
) -> float | None:
    """Where to cut so that about this share of the work is below; None if all is at one place."""
    bounded = np.isfinite(areas.low[axis]) & np.isfinite(areas.high[axis])
    middle = areas.low[axis, bounded] / 2 + areas.high[axis, bounded] / 2
    places = np.concatenate([place, middle])
    weights = np.concatenate([work, np.full(len(middle), per_area)])
    order = np.argsort(places, kind="stable")
    places, reached = places[order], np.cumsum(weights[order])
    if not len(places) or places[0] == places[-1]:
        return None
    edge = places[min(int(np.searchsorted(reached, share * reached[-1])), len(places) - 1)]
    if edge == places[0]:  # nothing is below it
        edge = places[np.searchsorted(places, edge, "right")]
    return float(edge)


def is_dealt(tree: PartTree) -> bool:
    """Whether some rows are dealt to several parts."""
    if isinstance(tree, Part):
        return tree.shares > 1
    return is_dealt(tree.below) or is_dealt(tree.above)


def assign_rows(
    tree: PartTree, bounds: Bounds, side: int, chance: Integers
) -> Iterator[tuple[int, Integers]]:
    """For each part: its number, and which of these rows are in it. `chance`: by which a row is
    dealt; the same whenever the row is read."""
    yield from _assign(tree, bounds, side, chance, np.arange(bounds.low.shape[1]))


def _assign(
    tree: PartTree, bounds: Bounds, side: int, chance: Integers, rows: Integers
) -> Iterator[tuple[int, Integers]]:
    if not len(rows):
        return
    if isinstance(tree, Cut):
        below = bounds.low[tree.axis, rows] < tree.edge
        above = bounds.high[tree.axis, rows] >= tree.edge
        yield from _assign(tree.below, bounds, side, chance, rows[below])
        yield from _assign(tree.above, bounds, side, chance, rows[above])
        return
    for share in range(tree.shares):
        mine = tree.shares > 1 and tree.dealt == side
        yield tree.number + share, rows[chance[rows] % tree.shares == share] if mine else rows
