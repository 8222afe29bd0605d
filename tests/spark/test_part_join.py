"""Blocks for parts, and the join of each part, without Spark: against brute force."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.truth.spatial_parts import (
    AREAS,
    POINTS,
    Bounds,
    Cut,
    Part,
    PartTree,
    area_bounds,
    assign_rows,
    cut_parts,
    estimate_parts,
    point_bounds,
)
from nearcast.space.motion import FOREVER
from nearcast.spark.part_join import (
    BLOCK,
    add_constants,
    emit_carried,
    encode_rows,
    join_blocks,
    join_merged,
    merge_blocks,
)
from support.examples import examples
from support.spatial_rows import Row, touching

# Few places, so that points lie on borders and many at the same place; and any others.
PLACES = st.integers(-6, 6).map(float) | st.floats(-8.0, 8.0).map(lambda x: round(x, 1))
EXTENTS = st.integers(0, 4).map(float) | st.floats(0.0, 5.0).map(lambda x: round(x, 1))
VELOCITIES = st.sampled_from([0.0, 0.0, 1.0, -2.5])


@st.composite
def area_rows(draw: st.DrawFn, number: int) -> Row:
    shape = draw(st.sampled_from(["disc", "box", "box", "point"]))
    extents = dict.fromkeys(("rx", "ry", "rz"), 0.0)
    if shape == "box":
        unbounded = EXTENTS | st.just(float("inf"))
        extents = {name: draw(unbounded) for name in extents}
    elif shape == "disc":
        extents["rx"] = draw(EXTENTS)
    begin = draw(st.integers(-4_000_000, 4_000_000))
    return {
        "area": number,
        "shape": shape,
        **{axis: draw(PLACES) for axis in "xyz"},
        **extents,
        **{f"v{axis}": draw(VELOCITIES) for axis in "xyz"},
        "t": begin,
        "end": draw(st.integers(begin + 1, 5_000_000) | st.just(FOREVER)),
        "channel": draw(st.sampled_from(["a", "b"])),
        "owner": draw(st.integers(0, 2)),
    }


@st.composite
def point_rows(draw: st.DrawFn, number: int) -> Row:
    return {
        "point": number,
        **{axis: draw(PLACES) for axis in "xyz"},
        "t": draw(st.integers(-5_000_000, 5_000_000)),
        "channel": draw(st.sampled_from(["a", "b"])),
        "owner": draw(st.integers(0, 2)),
    }


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Rows of both sides; some of them several times, at the same place and moment."""
    sides = []
    for rows, key in ((area_rows, "area"), (point_rows, "point")):
        some = [draw(rows(number)) for number in range(draw(st.integers(0, 12)))]
        copies = [row | {key: 100 + n} for n, row in enumerate(some[:1] * draw(st.integers(0, 20)))]
        sides.append([*some, *copies])
    return sides[0], sides[1]


def table(rows: list[Row], key: str, names: list[str]) -> pa.Table:
    """As `columns` selects them: keys are carried as `_0`."""
    columns = {name: [row[name] for row in rows] for name in names}
    return pa.table({"_0": pa.array([row[key] for row in rows], pa.int64()), **columns})


def plan(areas: pa.Table, points: pa.Table, parts: int) -> PartTree:
    boxes, places = area_bounds(add_constants(areas, AREAS, None)), point_bounds(points)
    return cut_parts(places, boxes, (len(areas), len(points)), parts)


def with_chance(rows: pa.Table) -> pa.Table:
    chance = rows.column("_0").to_numpy() * 7_919 - 500
    return rows.append_column("chance", pa.array(chance))


def in_parts(tree: PartTree, areas: pa.Table, points: pa.Table) -> dict[int, list[pa.RecordBatch]]:
    found = defaultdict(list)
    for side, rows in enumerate((areas, points)):
        encode = encode_rows(tree, side, None, FOREVER)
        for task in with_chance(rows).to_batches(max_chunksize=5):
            for batch in encode(iter([task])):
                assert batch.schema == BLOCK
                found[batch.column("part")[0].as_py()].append(batch)
    return found


def pairs_of(batches: Any) -> list[tuple[int, int]]:
    return [(row["area"], row["point"]) for batch in batches for row in batch.to_pylist()]


NAMES = ["shape", "x", "y", "z", "rx", "ry", "rz", "vx", "vy", "vz", "t", "end", "channel", "owner"]
POINT_NAMES = ["x", "y", "z", "t", "channel", "owner"]


@examples(120)
@given(world=worlds(), parts=st.integers(1, 9))
def test_parts_find_each_pair_of_brute_force_once(
    world: tuple[list[Row], list[Row]], parts: int
) -> None:
    areas, points = world
    due = touching(areas, points)
    if not areas or not points:
        assert due == []
        return
    held = table(areas, "area", NAMES).rename_columns({"owner": "node"})
    made = table(points, "point", POINT_NAMES).rename_columns({"owner": "node"})
    emit = emit_carried(["area"], ["point"])
    found, merged = [], []
    for blocks in in_parts(plan(held, made, parts), held, made).values():
        found += pairs_of(join_blocks(emit)(iter(blocks)))
        ours, theirs = (
            list(merge_blocks(b for b in blocks if b.column("side")[0].as_py() == side))
            for side in (AREAS, POINTS)
        )
        for area, point in zip(ours, theirs, strict=False):  # one of each, if there are any
            row = pa.record_batch({"areas": area["blocks"], "points": point["blocks"]})
            merged += pairs_of(join_merged(emit)(iter([row])))
    assert sorted(found) == due
    assert sorted(merged) == due  # as a stream joins them


# Parts of about equal work.

COUNT = 60_000


def places(rng: np.random.Generator, kind: str, count: int) -> Bounds:
    if kind == "one place":
        at = np.zeros((4, count))
    elif kind == "a line":
        at = np.array([np.zeros(count), rng.uniform(0, 1e4, count), *np.zeros((2, count))])
    elif kind == "a crowd":  # nine of ten
        at = np.array([*rng.uniform(0, 1e4, (2, count)), *np.zeros((2, count))])
        at[:2, : count * 9 // 10] = 5e3 + rng.normal(0, 100, (2, count * 9 // 10))
    else:
        at = np.array([*rng.uniform(0, 1e4, (2, count)), *np.zeros((2, count))])
    return Bounds(at, at)


def around(points: Bounds, half: float) -> Bounds:
    reach = np.array([half, half, 0.0, 0.0])[:, None]
    return Bounds(points.low - reach, points.high + reach)


@pytest.mark.parametrize("kind", ["one place", "a line", "a crowd", "anywhere"])
@pytest.mark.parametrize("half", [1.0, 1e5])
@pytest.mark.parametrize("few_areas", [False, True])
def test_no_part_has_much_more_than_its_share(kind: str, half: float, few_areas: bool) -> None:
    rng = np.random.default_rng(3)
    points = places(rng, kind, COUNT)
    areas = around(places(rng, kind, 100 if few_areas else COUNT), half)
    rows, parts = (areas.low.shape[1], COUNT), 16
    sample = [side.take(rng.permutation(side.low.shape[1])[:2_000]) for side in (points, areas)]
    tree = cut_parts(*sample, rows, parts)
    load = np.zeros((2, parts), np.int64)
    for side, bounds in ((AREAS, areas), (POINTS, points)):
        chance = rng.integers(0, 2**62, bounds.low.shape[1])
        for part, which in assign_rows(tree, bounds, side, chance):
            load[side, part] += len(which)
    # Every pair of rows that touch must meet, so where all touch all, one side is everywhere.
    everywhere = min(rows) if half == 1e5 or kind == "one place" else 0
    assert load.sum(axis=0).max() <= 1.5 * sum(rows) / parts + everywhere
    assert load.sum() <= 1.3 * (sum(rows) + parts * everywhere)


def test_work_counts_pairs_where_many_areas_overlap() -> None:
    rng = np.random.default_rng(3)
    apart, crowd = (places(rng, kind, 2_000) for kind in ("anywhere", "one place"))
    rows = (1_000_000, 1_000_000)
    assert estimate_parts(apart, around(apart, 1.0), rows, 250_000) == 8
    assert estimate_parts(crowd, around(crowd, 1.0), rows, 250_000) > 100_000


def test_areas_with_a_border_on_a_cut_are_on_both_sides_of_it() -> None:
    tree = Cut(0, 5.0, Part(0), Part(1))
    at = np.array([[4.0, 5.0, 6.0], *np.zeros((3, 3))])
    boxes = Bounds(at - 1.0, at + 1.0)
    nobody = np.zeros(3, np.int64)
    found = {part: rows.tolist() for part, rows in assign_rows(tree, boxes, AREAS, nobody)}
    assert found == {0: [0, 1], 1: [0, 1, 2]}
    place = Bounds(at, at)
    found = {part: rows.tolist() for part, rows in assign_rows(tree, place, POINTS, nobody)}
    assert found == {0: [0], 1: [1, 2]}
