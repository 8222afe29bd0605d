"""Fences that move or grow: when does the area reach somebody who stands, and leave them behind?

The moments are solved for, not polled. Where a border may pass over the place is computed from the
motion; the region itself then decides about the microseconds around, so a transition is the first
microsecond at which `touches` says something else than before.

There are few such fences compared with those that stand: each is compared with all rows of a batch
by the box that it sweeps meanwhile.
"""

import itertools
from collections.abc import Iterator, Sequence
from math import isnan, sqrt
from typing import Any, NamedTuple

import numpy as np

from nearcast.fences.areas import NEVER, Fence, FenceColumns, columns_of
from nearcast.fences.crossings import spans_between, spans_room
from nearcast.fences.events import LEFT, NONE
from nearcast.fences.fence_index import COMES, DISAPPEARS, MOVE, MOVES, VISIT, visit_area
from nearcast.space.boxes import Margin, swept_box
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.outlines import WHOLE, Outline
from nearcast.space.shapes import BOX, DISC, Shape, ShapeKind

AROUND = Margin(1e-12, 1e-6)
_NO_SLABS = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int16)


class PairVisit(NamedTuple):
    """A visit of a row to an area that is of this moment alone."""

    row: Any
    area: Any
    visit: Any


def legs_between(
    region: Moving | Path, begin: Time, end: Time
) -> Iterator[tuple[Moving, Time, Time]]:
    """The legs that hold between these moments, and when each does."""
    if isinstance(region, Moving):
        yield region, begin, end
        return
    starts = [begin, *(leg.since for leg in region.legs[1:])]
    ends = [*(since - 1 for since in starts[1:]), end]
    for leg, since, until in zip(region.legs, starts, ends, strict=True):
        first, last = max(since, begin), min(until, end)
        if first <= last:
            yield leg, first, last


def stands_still(region: Moving | Path, begin: Time, end: Time) -> bool:
    """Is the area the same at all these moments?"""
    legs = list(legs_between(region, begin, end))
    same = all(leg.at(first) == legs[0][0].at(begin) for leg, first, _ in legs)
    return same and all(not leg.moves or leg.at(first) == leg.at(last) for leg, first, last in legs)


def place_shape(place: Sequence[float]) -> Shape:
    """An entity at (x, y, z, height), as regions take it."""
    x, y, z, height = map(float, place)
    outline = None if isnan(height) else Outline(WHOLE, True, low=height, high=height)
    return Shape(ShapeKind.POINT, x, y, z, outline=outline)


def border_moments(leg: Moving, place: Sequence[float], begin: Time, end: Time) -> list[float]:
    """When the border of the leg's area may pass over the place, and some moments more."""
    if not leg.moves:
        return []
    if not any(leg.growth):
        return relative_crossings(leg, place, begin, end)
    shape, moments = leg.shape, []
    offset = [c - p for c, p in zip((shape.x, shape.y, shape.z), place, strict=False)]
    if shape.kind == DISC:
        radius, growth = shape.rx, leg.growth[0]
        a = sum(v * v for v in leg.velocity) - growth * growth
        b = sum(v * d for v, d in zip(leg.velocity, offset, strict=True)) - growth * radius
        c = sum(d * d for d in offset) - radius * radius
        under = b * b - a * c
        if a and under >= 0.0:
            moments += [(-b - sqrt(under)) / a, -b / a, (-b + sqrt(under)) / a]
        elif a:
            moments.append(-b / a)
        elif b:
            moments.append(-c / (2 * b))
        moments.append(-radius / growth)
    else:
        extents = (shape.rx, shape.ry, shape.rz)
        for d, v, r, g in zip(offset, leg.velocity, extents, leg.growth, strict=True):
            moments += [(r - d) / (v - g)] if v != g else []
            moments += [(-r - d) / (v + g)] if v != -g else []
            moments += [-r / g] if g else []
            moments += [-d / v] if v else []
    return [leg.since + moment * SECOND for moment in moments]


def relative_crossings(leg: Moving, place: Sequence[float], begin: Time, end: Time) -> list[float]:
    """An area that only moves is crossed by the place on a straight way the other way round."""
    first, last = max(begin, leg.since), min(end, leg.until)
    if first >= last:
        return []
    columns = columns_of([Fence(0, leg)], first)
    here, there = leg.centre(first), leg.centre(last)
    d = (here[0] - there[0], here[1] - there[1], here[2] - there[2], 0.0)
    spans = np.empty((spans_room(columns.areas), 2))
    way = tuple(map(float, place)), d
    count = spans_between(columns.areas[0], columns.coordinates, columns.starts, way, spans)
    return [first + s * (last - first) for s in spans[:count].ravel().tolist()]


def transitions(
    region: Moving | Path, place: Sequence[float], begin: Time, end: Time
) -> list[tuple[Time, bool]]:
    """The moments after `begin`, up to `end`, at which the place is inside or outside anew."""
    shape = place_shape(place)
    samples = {begin, end}
    for leg, first, last in legs_between(region, begin, end):
        samples |= {first, last}
        for moment in (leg.since, leg.until, *border_moments(leg, place, first, last)):
            if first - 2 < moment < last + 2:
                near = int(moment)
                samples.update(t for t in range(near - 1, near + 3) if first <= t <= last)
    order = sorted(samples)
    found, inside = [], region.touches(shape, begin)
    for before, after in itertools.pairwise(order):
        now = region.touches(shape, after)
        if now != inside:
            low, high = before, after  # inside at low as before, otherwise at high
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (
                    (low, middle) if region.touches(shape, middle) == now else (middle, high)
                )
            found.append((high, now))
            inside = now
    return found


def may_change(region: Moving | Path, p0: Any, p1: Any, begin: Time, end: Time) -> Any:
    """For which entities something may change: they stand at p0 from `begin` to `end` and then go
    to p1. Not for those that are well inside of a disc or box, or well outside of a disc, all the
    time: it moves straight and has no corners that point inwards."""
    some = np.ones(len(p0), np.bool_)
    if isinstance(region, Path) or any(region.growth) or region.shape.outline is not None:
        return some
    shape = region.shape
    here, there = np.array(region.centre(begin)), np.array(region.centre(end))
    slack = 1e-9 * (np.abs(here).max() + np.abs(there).max() + shape.rx)
    places = p0[:, :3] - here, p0[:, :3] - there, p1[:, :3] - there
    if shape.kind == BOX:
        extents = np.array((shape.rx, shape.ry, shape.rz)) - slack
        return ~np.logical_and.reduce([(np.abs(place) < extents).all(axis=1) for place in places])
    if shape.kind == DISC:
        inside = [np.sqrt((place * place).sum(axis=1)) < shape.rx - slack for place in places]
        near = [distance_to_way(*way) <= shape.rx + slack for way in itertools.pairwise(places)]
        return ~np.logical_and.reduce(inside) & np.logical_or.reduce(near)
    return some


def distance_to_way(p0: Any, p1: Any) -> Any:
    """How far the origin is from each way from p0 to p1."""
    way = p1 - p0
    length = np.maximum((way * way).sum(axis=1), 1e-300)
    part = np.clip(-(p0 * way).sum(axis=1) / length, 0.0, 1.0)
    nearest = p0 + part[:, None] * way
    return np.sqrt((nearest * nearest).sum(axis=1))


class MovingFences:
    """Fences that are not the same at all times, by number."""

    def __init__(self, earth: bool = False) -> None:
        self._earth = earth
        self.fences: dict[int, Fence] = {}
        self.told_until: Time = -NEVER  # transitions of those who stand are known up to this moment
        self._since: dict[int, Time] = {}
        self._until: dict[int, Time] = {}  # from when on each stays as it is

    def put(self, fence: Fence, now: Time) -> None:
        number, region = fence.number, fence.region
        last = region.legs[-1] if isinstance(region, Path) else region
        self.fences[number], self._since[number] = fence, now
        standing = last.since if isinstance(region, Path) else -NEVER
        self._until[number] = last.until if last.moves else standing

    def remove(self, number: int) -> None:
        del self.fences[number], self._since[number], self._until[number]

    @property
    def in_motion(self) -> bool:
        """Is there one whose area changes after what is known?"""
        return self.told_until < max(self._until.values(), default=-NEVER)

    def area_at(self, fence: Fence, now: Time) -> Any:
        """As kernels take it: a table of the one area that the fence has then."""
        columns = columns_of([fence], now)
        columns.areas["since"], columns.areas["earth"] = now, self._earth
        return columns.areas, columns.coordinates, columns.starts, *_NO_SLABS

    def find(self, rows: Any, numbers: Sequence[int] | None = None) -> list[PairVisit]:
        """What happens between rows and fences, in the order of rows for each pair: first while
        the entity stands at p0 from t0 to t1, then what the row does, with the area as at t1."""
        found: list[PairVisit] = []
        if not self.fences or not len(rows):
            return found
        begin, end = max(int(rows["t0"].min()), 0), max(int(rows["t1"].max()), self.told_until)
        low = np.minimum(rows["p0"], rows["p1"])[:, :3]
        high = np.maximum(rows["p0"], rows["p1"])[:, :3]
        alike = bool((rows["what"] == MOVES).all() and (rows["t1"] == end).all())
        for number in self.fences if numbers is None else numbers:
            fence = self.fences[number]
            box = swept_box(fence.region, begin, end, AROUND)
            near = (low <= np.array(box.high)).all(axis=1) & (high >= np.array(box.low)).all(axis=1)
            some = np.flatnonzero(near)
            if alike:
                p0, p1 = rows["p0"][some], rows["p1"][some]
                some = some[may_change(fence.region, p0, p1, begin, end)]
            for i in some.tolist():
                found += self._meet(fence, rows[i : i + 1])
        return found

    def _meet(self, fence: Fence, rows: Any) -> list[PairVisit]:
        row = rows[0]
        t0, t1 = int(row["t0"]), max(int(row["t1"]), self.told_until)
        region = fence.region
        found: list[PairVisit] = []
        begin = max(t0, self.told_until, self._since[fence.number])
        columns = columns_of([fence], t1)
        columns.areas["since"], columns.areas["earth"] = self._since[fence.number], self._earth
        if row["what"] != COMES and begin < t1:
            for t, inside in transitions(region, row["p0"].tolist(), begin, t1):
                found.append(stand(row, columns, t, inside))
        spans = np.empty((spans_room(columns.areas), 2))
        visits = np.zeros(len(spans), VISIT)
        if not stands_still(region, t0, t1):
            rows = rows.copy()
            rows["t0"] = rows["t1"] = t1
        table = columns.areas, columns.coordinates, columns.starts, *_NO_SLABS
        count = visit_area(rows[0], 0, 0, table, spans, visits, 0)
        return found + [PairVisit(rows[0], columns.areas[0], visit) for visit in visits[:count]]

    def find_standing(self, rows: Any, numbers: Sequence[int] | None = None) -> list[PairVisit]:
        """Only what happens while entities stand at p0 from t0 to t1."""
        found: list[PairVisit] = []
        if not self.fences or not len(rows):
            return found
        end = int(rows["t1"].max())
        places = rows["p0"][:, :3]
        for number in self.fences if numbers is None else numbers:
            fence = self.fences[number]
            begin = max(self.told_until, self._since[number], int(rows["t0"].min()))
            if begin >= end:
                continue
            box = swept_box(fence.region, begin, end, AROUND)
            near = (places <= np.array(box.high)).all(axis=1)
            near &= (places >= np.array(box.low)).all(axis=1)
            columns = columns_of([fence], end)
            some = np.flatnonzero(near)
            at = rows["p0"][some]
            for i in some[may_change(fence.region, at, at, begin, end)].tolist():
                row = rows[i]
                first, last = max(begin, int(row["t0"])), int(row["t1"])
                if first < last:
                    found += [
                        stand(row, columns, t, inside)
                        for t, inside in transitions(fence.region, row["p0"].tolist(), first, last)
                    ]
        return found


def stand(row: Any, columns: FenceColumns, t: Time, inside: bool) -> PairVisit:
    """The area comes over an entity that stands, or leaves it behind."""
    rows, visits = np.zeros(1, MOVE), np.zeros(1, VISIT)
    rows["entity"], rows["t0"], rows["t1"] = row["entity"], t, t
    rows["p0"] = rows["p1"] = row["p0"]
    rows["what"], rows["reason"] = (COMES, NONE) if inside else (DISAPPEARS, LEFT)
    visits["t_in"] = visits["t_out"] = t
    visits["begins"], visits["ends"] = inside, not inside
    return PairVisit(rows[0], columns.areas[0], visits[0])
