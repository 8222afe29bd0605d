"""Events from visits: in compiled columns, or one by one for fences that need a memory."""

from math import nan
from typing import Any

import numpy as np
from numba import njit

from nearcast.fences.areas import NEVER
from nearcast.fences.crossings import contains, place_on_way, way_direction
from nearcast.fences.events import (
    CROSS,
    ENTER,
    EVENT,
    FENCE_ADDED,
    INSIDE,
    LEAVE,
    LEFT,
    NONE,
    OUTSIDE,
    FenceEvents,
    no_events,
)
from nearcast.fences.fence_index import COMES, DISAPPEARS
from nearcast.fences.visits import NO_PLACE, Report, Spot
from nearcast.space.motion import Time


class EventLog:
    """Collects events of one input."""

    def __init__(self) -> None:
        self._columns: list[Any] = []
        self._rows: list[tuple[Any, ...]] = []

    def add(self, events: FenceEvents) -> None:
        if len(events):
            self._columns.append(events)

    def reporter(self, number: int, kinds: int, entity: int, added: bool = False) -> Report:
        """Takes the events of one entity and one fence, and keeps those that are asked for."""

        def report(
            kind: int, t: Time, fix_t: Time, reason: int, spot: Spot, t_out: Time, spot_out: Any
        ) -> None:
            if kind == CROSS and not kinds & 1 << CROSS:
                report(ENTER, t, fix_t, NONE, spot, 0, NO_PLACE)
                report(LEAVE, t_out, fix_t, LEFT, spot_out, 0, NO_PLACE)
                return
            if kind == ENTER and added:
                kind, reason = INSIDE, FENCE_ADDED
            elif not kinds & 1 << kind:
                return
            self._rows.append((t, fix_t, entity, number, kind, reason, *spot, t_out, *spot_out[:3]))

        return report

    def events(self) -> FenceEvents:
        """All of them, in no order."""
        if self._rows:
            self._columns.append(np.array(self._rows, EVENT))
            self._rows = []
        return np.concatenate(self._columns) if self._columns else no_events()


@njit(cache=True)
def numbers_of(place: Any) -> Any:
    return place[0], place[1], place[2], place[3]


@njit(cache=True)
def place_in_row(area: Any, row: Any, s: float) -> Any:
    """x, y, z at this fraction of the way, and the direction of the way."""
    p0, p1 = numbers_of(row.p0), numbers_of(row.p1)
    if row.what == COMES:
        return p1[0], p1[1], p1[2], nan
    if row.what == DISAPPEARS:
        return p0[0], p0[1], p0[2], nan
    x, y, z = place_on_way(area, p0, p1, s)
    return x, y, z, way_direction(area.earth != 0, p0, p1)


@njit(cache=True)
def fill_event(event: Any, kind: int, t: int, row: Any, area: Any, spot: Any) -> None:
    event.kind, event.t, event.fix_t, event.reason = kind, t, row.t1, NONE
    event.entity, event.fence, event.t_out = row.entity, area.number, 0
    event.x, event.y, event.z, event.direction = spot
    event.x_out = event.y_out = event.z_out = 0.0


@njit(cache=True)
def write_events(rows: Any, visits: Any, areas: Any) -> Any:
    """The events of visits to fences without dwell, and `inside` at every fix. What fences with
    linger report is decided later: this is what happens."""
    events = np.empty(3 * len(visits), EVENT)
    n = 0
    for k in range(len(visits)):
        visit = visits[k]
        row, area = rows[visit.row], areas[visit.slot]
        asked = area.kinds
        added = row.reason == FENCE_ADDED
        if area.dwell >= NEVER:
            if area.linger:
                asked |= 1 << ENTER | 1 << LEAVE | 1 << CROSS
            crossed = visit.begins and visit.ends and asked & 1 << CROSS
            if crossed:
                out = place_in_row(area, row, visit.s_out)
                spot = place_in_row(area, row, visit.s_in)
                fill_event(events[n], CROSS, visit.t_in, row, area, spot)
                events[n].t_out = visit.t_out
                events[n].x_out, events[n].y_out, events[n].z_out = out[0], out[1], out[2]
                n += 1
            elif visit.begins and (asked & 1 << ENTER or added):
                spot = place_in_row(area, row, visit.s_in)
                fill_event(events[n], INSIDE if added else ENTER, visit.t_in, row, area, spot)
                events[n].reason = FENCE_ADDED if added else NONE
                n += 1
            if visit.ends and not crossed and asked & 1 << LEAVE:
                spot = place_in_row(area, row, visit.s_out)
                fill_event(events[n], LEAVE, visit.t_out, row, area, spot)
                events[n].reason = row.reason if row.what == DISAPPEARS else LEFT
                n += 1
        if not visit.ends and asked & 1 << INSIDE and not added:
            fill_event(events[n], INSIDE, row.t1, row, area, place_in_row(area, row, 1.0))
            n += 1
    return events[:n]


@njit(cache=True)
def spots_of(row: Any, area: Any, visit: Any) -> Any:
    """Where a visit begins and ends, and the direction of its way, twice."""
    return place_in_row(area, row, visit.s_in), place_in_row(area, row, visit.s_out)


@njit(cache=True)
def outside_events(rows: Any, slots: Any, table: Any) -> Any:
    """`outside` for every fix and each of these fences that does not contain it."""
    areas, coordinates, starts, _, _, _ = table
    events = np.empty(len(rows) * len(slots), EVENT)
    n = 0
    for i in range(len(rows)):
        row = rows[i]
        if row.what == DISAPPEARS:
            continue
        for slot in slots:
            area = areas[slot]
            if not contains(area, coordinates, starts, numbers_of(row.p1)):
                fill_event(events[n], OUTSIDE, row.t1, row, area, place_in_row(area, row, 1.0))
                n += 1
    return events[:n]
