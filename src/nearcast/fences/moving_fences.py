"""Fences that move or grow: when does the area reach somebody who stands, and leave them behind?

The moments are solved for, not polled. Where a border may pass over the place is computed from the
motion; the region itself then decides about the microseconds around, so a transition is the first
microsecond at which `touches` says something else than before. What is found depends on the motion
and the place alone, not on the moments at which somebody asks: where a border just touches the
place, rounding decides, and it decides the same for a live node and for its history.

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
from nearcast.space.motion import FOREVER, SECOND, Moving, Path, Time
from nearcast.space.outlines import BALL, WHOLE, Outline
from nearcast.space.shapes import BOX, DISC, Shape, ShapeKind

AROUND = Margin(1e-12, 1e-6)
_NO_SLABS = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int16)


class PairVisit(NamedTuple):
    """A visit of a row to an area that is of this moment alone."""

    row: Any
    area: Any
    visit: Any


def legs_since(region: Moving | Path, since: Time) -> Iterator[tuple[Moving, Time, Time]]:
    """The legs that hold from this moment on, and when each does; the last one does FOREVER."""
    legs = region.legs if isinstance(region, Path) else (region,)
    for k, leg in enumerate(legs):
        first = max(leg.since, since) if k else since  # before it begins, the first one stands
        last = legs[k + 1].since - 1 if k + 1 < len(legs) else FOREVER
        if first <= last:
            yield leg, first, last


def stands_still(region: Moving | Path, begin: Time, end: Time) -> bool:
    """Is the area the same at all these moments?"""
    legs = [leg for leg in legs_since(region, begin) if leg[1] <= end]
    same = all(leg.at(first) == legs[0][0].at(begin) for leg, first, _ in legs)
    return same and all(
        not leg.moves or leg.at(first) == leg.at(min(last, end)) for leg, first, last in legs
    )


def place_shape(place: Sequence[float]) -> Shape:
    """An entity at (x, y, z, height), as regions take it."""
    x, y, z, height = map(float, place)
    outline = None if isnan(height) else Outline(WHOLE, True, low=height, high=height)
    return Shape(ShapeKind.POINT, x, y, z, outline=outline)


def border_moments(leg: Moving, place: Sequence[float]) -> list[float]:
    """When the border of the leg's area may pass over the place or just touches it, and some
    moments more. Whether anything happens then is not said."""
    if not leg.moves:
        return []
    outline = leg.shape.outline
    if outline is not None and outline.form not in (WHOLE, BALL):
        return relative_crossings(leg, place)
    seconds = disc_moments(leg, place) if leg.shape.kind == DISC else box_moments(leg, place)
    return [leg.since + moment * SECOND for moment in seconds]


def disc_moments(leg: Moving, place: Sequence[float]) -> list[float]:
    """The roots of a quadratic equation, and the moment between them, at which it is nearest."""
    shape, outline = leg.shape, leg.shape.outline
    offset = [c - p for c, p in zip((shape.x, shape.y, shape.z), place, strict=False)]
    radius, growth = shape.rx, leg.growth[0]
    a = sum(v * v for v in leg.velocity) - growth * growth
    b = sum(v * d for v, d in zip(leg.velocity, offset, strict=True)) - growth * radius
    c = sum(d * d for d in offset) - radius * radius
    if outline is not None and outline.form == BALL:
        c += (place[3] - outline.low) ** 2
    moments = [-radius / growth] if growth else []
    under = b * b - a * c
    if a and under >= 0.0:
        moments += [(-b - sqrt(under)) / a, -b / a, (-b + sqrt(under)) / a]
    elif a:
        moments.append(-b / a)
    elif b:
        moments.append(-c / (2 * b))
    return moments


def box_moments(leg: Moving, place: Sequence[float]) -> list[float]:
    """When the place is on the plane of a side, or of the middle."""
    shape, moments = leg.shape, []
    offset = [c - p for c, p in zip((shape.x, shape.y, shape.z), place, strict=False)]
    extents = (shape.rx, shape.ry, shape.rz)
    for d, v, r, g in zip(offset, leg.velocity, extents, leg.growth, strict=True):
        moments += [(r - d) / (v - g)] if v != g else []
        moments += [(-r - d) / (v + g)] if v != -g else []
        moments += [-r / g] if g else []
        moments += [-d / v] if v else []
    return moments


def relative_crossings(leg: Moving, place: Sequence[float]) -> list[float]:
    """An area that only moves is crossed by the place on a straight way the other way round: from
    before its box comes there until after it has left."""
    in_box = [leg.since + moment * SECOND for moment in box_moments(leg, place)]
    first = int(max(leg.since, min(in_box) - 1))
    last = int(min(leg.until, max(in_box) + 2))
    if first >= last:
        return []
    columns = columns_of([Fence(0, leg)], first)
    here, there = leg.centre(first), leg.centre(last)
    d = (here[0] - there[0], here[1] - there[1], here[2] - there[2], 0.0)
    spans = np.empty((spans_room(columns.areas), 2))
    way = tuple(map(float, place)), d
    count = spans_between(columns.areas[0], columns.coordinates, columns.starts, way, spans)
    return [first + s * (last - first) for s in spans[:count].ravel().tolist()]


def leg_transitions(
    leg: Moving, shape: Shape, place: Sequence[float], first: Time, last: Time
) -> Iterator[tuple[Time, bool]]:
    """At `first` and whenever it is otherwise than before: is the place inside?"""
    samples = {first, last} - {FOREVER}
    for moment in (leg.since, leg.until, *border_moments(leg, place)):
        if first - 2 < moment < last + 2 and moment < FOREVER:
            near = int(moment)
            samples.update(t for t in range(near - 1, near + 3) if first <= t <= last)
    inside = leg.touches(shape, first)
    yield first, inside
    for before, after in itertools.pairwise(sorted(samples)):
        now = leg.touches(shape, after)
        if now != inside:
            low, high = before, after  # inside at low as before, otherwise at high
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if leg.touches(shape, middle) == now else (middle, high)
            inside = now
            yield high, inside


def transitions(
    region: Moving | Path, place: Sequence[float], since: Time, begin: Time, end: Time
) -> tuple[list[tuple[Time, bool]], bool]:
    """When the place is inside or outside anew, after `begin` and up to `end`, for somebody who
    stands there since `since`; and whether it is inside at `end`.

    Moments are found for each leg as a whole, so they are the same for all `begin` and `end`.
    """
    shape = place_shape(place)
    found: list[tuple[Time, bool]] = []
    inside: bool | None = None
    for leg, first, last in legs_since(region, since):
        if first > end:
            break
        if last >= begin:
            for t, now in leg_transitions(leg, shape, place, first, last):
                if t > end:
                    break
                if begin < t and now != inside and inside is not None:
                    found.append((t, now))
                inside = now
    assert inside is not None, "somebody is there before the end"
    return found, inside


def may_change(region: Moving | Path, p0: Any, p1: Any, begin: Time, end: Time) -> Any:
    """For which entities something may change: they stand at p0 from `begin` to `end` and then go
    to p1. Not for those that are well inside of a disc or box, or well outside of a disc, all the
    time: it moves straight and has no corners that point inwards."""
    some = np.ones(len(p0), np.bool_)
    if not len(p0):
        return some
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
        columns = columns_of([fence], t1)
        columns.areas["since"], columns.areas["earth"] = self._since[fence.number], self._earth
        if row["what"] != COMES:
            found += self._stand(fence, row, columns, t1, settles=True)
        spans = np.empty((spans_room(columns.areas), 2))
        visits = np.zeros(len(spans), VISIT)
        if not stands_still(region, t0, t1):
            rows = rows.copy()
            rows["t0"] = rows["t1"] = t1
        table = columns.areas, columns.coordinates, columns.starts, *_NO_SLABS
        count = visit_area(rows[0], 0, 0, table, spans, visits, 0)
        return found + [PairVisit(rows[0], columns.areas[0], visit) for visit in visits[:count]]

    def find_standing(
        self, rows: Any, numbers: Sequence[int] | None = None, settles: bool = False
    ) -> list[PairVisit]:
        """Only what happens while entities stand at p0 from t0 to t1."""
        found: list[PairVisit] = []
        if not self.fences or not len(rows):
            return found
        earliest, end = max(int(rows["t0"].min()), self.told_until), int(rows["t1"].max())
        places = rows["p0"][:, :3]
        for number in self.fences if numbers is None else numbers:
            fence = self.fences[number]
            begin = max(earliest, self._since[number])
            if begin > end or (begin == end and not settles):
                continue
            box = swept_box(fence.region, begin, end, AROUND)
            near = (places <= np.array(box.high)).all(axis=1)
            near &= (places >= np.array(box.low)).all(axis=1)
            some = np.flatnonzero(near)
            at = rows["p0"][some]
            some = some[may_change(fence.region, at, at, begin, end)]
            if not len(some):
                continue
            columns = columns_of([fence], end)
            for i in some.tolist():
                found += self._stand(fence, rows[i], columns, int(rows[i]["t1"]), settles)
        return found

    def _stand(
        self, fence: Fence, row: Any, columns: FenceColumns, end: Time, settles: bool
    ) -> list[PairVisit]:
        """What happens while one entity stands at p0 until `end`, of which nobody knows yet.

        `settles`: something else is decided at `end`, by where the area is then. Rounding may say
        something else about this moment than about those around it; then that happens there.
        """
        place, since = row["p0"].tolist(), max(int(row["t0"]), self._since[fence.number])
        if since > end:
            return []
        found, inside = transitions(fence.region, place, since, max(self.told_until, since), end)
        if settles and fence.region.touches(place_shape(place), end) != inside:
            found.append((end, not inside))
        return [stand(row, columns, t, inside) for t, inside in found]


def stand(row: Any, columns: FenceColumns, t: Time, inside: bool) -> PairVisit:
    """The area comes over an entity that stands, or leaves it behind."""
    rows, visits = np.zeros(1, MOVE), np.zeros(1, VISIT)
    rows["entity"], rows["t0"], rows["t1"] = row["entity"], t, t
    rows["p0"] = rows["p1"] = row["p0"]
    rows["what"], rows["reason"] = (COMES, NONE) if inside else (DISAPPEARS, LEFT)
    visits["t_in"] = visits["t_out"] = t
    visits["begins"], visits["ends"] = inside, not inside
    return PairVisit(rows[0], columns.areas[0], visits[0])
