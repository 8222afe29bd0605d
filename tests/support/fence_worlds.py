"""Random fences and fixes with small whole numbers, so that ways often touch borders exactly."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from nearcast.fences.areas import NEVER, Fence, FenceColumns, columns_of, polygon_columns
from nearcast.fences.crossings import contains, find_visits, spans_room
from nearcast.fences.events import FenceEvents, FixColumns, fixes_of
from nearcast.fences.fence_index import FenceIndex
from nearcast.space.motion import Moving
from nearcast.space.shapes import disc
from support.fence_oracle import Disc, Fix, Polygon, Told

# A power of two: fractions of ways that are whole microseconds or lie between two are exact floats.
STEP = 2**20
ALL_KINDS = 63
whole = st.integers(-4, 4)
places = st.tuples(whole, whole)
rings = st.lists(places, min_size=3, max_size=6)
polygons = st.lists(rings, min_size=1, max_size=2).map(Polygon)
rectangles = st.tuples(whole, whole, st.integers(0, 3), st.integers(0, 3)).map(
    lambda box: Polygon(
        [[(box[0] - box[2], box[1] - box[3]), (box[0] + box[2], box[1] - box[3]),
          (box[0] + box[2], box[1] + box[3]), (box[0] - box[2], box[1] + box[3])]]
    )
)  # fmt: skip
discs = st.tuples(whole, whole, st.integers(0, 4)).map(lambda disc: Disc(*disc))
areas = st.one_of(polygons, rectangles, discs)
durations = st.sampled_from([0, STEP // 4, STEP // 2, STEP, 3 * STEP // 2, 4 * STEP])


@st.composite
def histories(draw: st.DrawFn) -> list[Fix]:
    """The fixes of one entity."""
    fixes, t = [], draw(st.integers(0, 3)) * STEP
    for _ in range(draw(st.integers(1, 8))):
        ttl = draw(st.sampled_from([NEVER, NEVER, NEVER, STEP // 2, STEP, 2 * STEP]))
        fixes.append(Fix(t, draw(places), ttl))
        t += draw(st.sampled_from([0, 1, 1, 2, 4])) * STEP
    return fixes


def put_area(
    number: int, area: Polygon | Disc, dwell: int | None = None, linger: int = 0,
    kinds: int = ALL_KINDS,
) -> FenceColumns:  # fmt: skip
    """The columns of one fence."""
    if isinstance(area, Disc):
        region = Moving(disc(area.x, area.y, area.r))
        return columns_of([Fence(number, region, kinds, dwell, linger)], 0)
    vertices = [vertex for ring in area.rings for vertex in ring]
    starts = np.cumsum([0, *map(len, area.rings)])[:-1]
    columns = polygon_columns([number], vertices, starts, [len(area.rings)], kinds)
    columns.areas["dwell"] = NEVER if dwell is None else dwell
    columns.areas["linger"] = linger
    return columns


def join_columns(some: Sequence[FenceColumns]) -> FenceColumns:
    """Of several fences, as one request has them."""
    areas = np.concatenate([one.areas for one in some])
    doubles, starts = [len(one.coordinates) for one in some], [len(one.starts) for one in some]
    areas["first"] += np.cumsum([0, *doubles])[:-1]
    areas["ring"] += np.cumsum([0, *starts])[:-1]
    return FenceColumns(
        areas, np.concatenate([one.coordinates for one in some]),
        np.concatenate([one.starts for one in some]),
    )  # fmt: skip


def columns_of_fixes(rows: Sequence[tuple[int, Fix]]) -> FixColumns:
    """Of rows of entity and fix."""
    return fixes_of(
        [entity for entity, _ in rows], [fix.t for _, fix in rows],
        np.array([fix.place for _, fix in rows], float).reshape(-1, 2),
        ttl=[fix.ttl for _, fix in rows],
    )  # fmt: skip


def told(events: FenceEvents, entity: int, fence: int) -> list[Told]:
    """The events of one pair, as the oracle tells them."""
    some: Any = events[(events["entity"] == entity) & (events["fence"] == fence)]
    names = ("fix_t", "t", "kind", "reason", "t_out")
    return [Told(*row) for row in zip(*(some[name].tolist() for name in names), strict=True)]


# Visits: the row of the way, the number of the fence, and where on the way it begins and ends.
Visits: TypeAlias = set[tuple[int, int, float, float]]


def visits_found(index: FenceIndex, rows: Any) -> Visits:
    numbers = index.areas["number"]
    found = index.find(rows)[["row", "slot", "s_in", "s_out"]].tolist()
    assert len(set(found)) == len(found), "none is found twice"
    return {
        (row, int(numbers[slot]), round(begins, 9), round(ends, 9))
        for row, slot, begins, ends in found
    }


def visits_alone(fences: FenceColumns, rows: Any, only_changes: bool = False) -> Visits:
    """Each pair by itself, with neither grid nor slabs. `only_changes`: without those who stay."""
    spans = np.empty((spans_room(fences.areas), 2))
    visits: Visits = set()
    for i, row in enumerate(rows):
        p0, p1 = tuple(row["p0"].tolist()), tuple(row["p1"].tolist())
        for area in fences.areas:
            inside = [contains(area, *fences[1:], p) for p in (p0, p1)]
            count = find_visits(area, *fences[1:], p0, p1, *inside, spans)
            if only_changes and count == 1 and all(inside):
                continue
            visits |= {(i, int(area["number"]), *span) for span in spans[:count].round(9).tolist()}
    return visits
