"""Which fences does each fix enter, leave or cross? Against shapely's STRtree and a plain loop.

Fences are polygons of 8 to 64 vertices. Entities move by about a twentieth of a fence's size from
fix to fix. In the uniform world fences and entities are everywhere, at the same density whatever
their number; in the crowded one both are in log2(n) crowds. Each is given the new fixes of all
entities at once. Printed: microseconds of CPU per fix, and how many times longer the others take.

`engine` reports events: who enters, leaves and crosses on the way from the last fix, where and
when. `STRtree` does the same: the tree finds candidates by the box of each way, prepared polygons
say which ways touch them and do not stay inside, and for those the intersection says where. It has
as many events, which is compared. `places` (STRtree) and `loop` (over all fences) with prepared
polygons only say which fences contain each new place, so they do less: there are neither events nor
times, and who comes in and out between two fixes is missed. Their hits are compared with who is
inside by the engine's events.

The same worlds are also put on Earth, ten metres for a unit. The engine is given ECEF places there
and finds degrees itself; the others are given degrees.

Run: python benchmarks/fences.py [--large]
"""

import resource
import sys
from contextlib import redirect_stdout
from itertools import pairwise
from math import log2
from time import process_time
from typing import Any

import numpy as np
import shapely
from figures import draw_bars
from numpy.typing import NDArray

from nearcast.fences.areas import FenceColumns, polygon_columns
from nearcast.fences.events import CROSS, ENTER, LEAVE, fixes_of
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.sound_polygons import GivenPolygon, Position, sound_polygons
from nearcast.space.motion import SECOND
from nearcast.trace.earth_columns import ecef_columns

Floats = NDArray[np.float64]
ENTITIES, ROUNDS = 50_000, 4
LOOP_FIXES = 50  # a plain loop answers no more in reasonable time
RADIUS = 10.0
DENSITY = 1.5  # fences over each place, about
KINDS = 1 << ENTER | 1 << LEAVE | 1 << CROSS


def make_fences(
    n: int, crowded: bool, rng: np.random.Generator
) -> tuple[FenceColumns, list[Floats]]:
    """Polygons around their centres, with a radius that varies from vertex to vertex."""
    side = (n * np.pi * RADIUS**2 / DENSITY) ** 0.5
    centres = rng.uniform(0, side, (n, 2))
    if crowded:
        spots = rng.uniform(0, side, (max(1, round(log2(n))), 2))
        spread = side / len(spots) ** 0.5 / 8
        centres = spots[rng.integers(len(spots), size=n)] + rng.normal(0, spread, (n, 2))
    counts = rng.integers(8, 65, n)
    first = np.cumsum(counts) - counts
    turn = (
        2 * np.pi * (np.arange(counts.sum()) - np.repeat(first, counts)) / np.repeat(counts, counts)
    )
    radius = RADIUS * rng.uniform(0.6, 1.2, len(turn))
    vertices = (
        np.repeat(centres, counts, axis=0) + radius[:, None] * np.c_[np.cos(turn), np.sin(turn)]
    )
    columns = polygon_columns(np.arange(n), vertices, first, np.ones(n, int), KINDS)
    return columns, np.split(vertices, first[1:])


def make_places(columns: FenceColumns, crowded: bool, rng: np.random.Generator) -> list[Floats]:
    """Where entities are in each round."""
    areas = columns.areas
    if crowded:
        some = areas[rng.integers(len(areas), size=ENTITIES)]
        places = np.c_[some["x"], some["y"]] + rng.normal(0, RADIUS, (ENTITIES, 2))
    else:
        places = rng.uniform(0, areas["x"].max(), (ENTITIES, 2))
    rounds = [places]
    for _ in range(ROUNDS):
        rounds.append(rounds[-1] + rng.normal(0, RADIUS / 10, (ENTITIES, 2)))
    return rounds


def in_degrees(places: Floats) -> Floats:
    """A unit is ten metres or so, 40° north."""
    return np.array([8.0, 40.0]) + places * np.array([1.2e-4, 0.9e-4])


def polygons_on_earth(polygons: list[Floats]) -> FenceColumns:
    """As they are read from GeoJSON."""
    given = []
    for vertices in polygons:
        ring = [Position(*vertex) for vertex in vertices.tolist()]
        given.append(GivenPolygon([[[*ring, ring[0]]]]))
    sound, columns = sound_polygons(given, True)
    assert sound.all()
    columns.areas["number"], columns.areas["kinds"] = np.arange(len(given)), KINDS
    return columns


def resident_mb() -> float:
    """The memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def time_engine(
    columns: FenceColumns, rounds: list[Floats], earth: bool = False
) -> tuple[float, int, int]:
    """Seconds per fix, events, and who is inside at the end, by counting."""
    if earth:
        rounds = [np.stack(ecef_columns(*places.T), axis=1) for places in rounds]
    engine, entities = FenceEngine(earth), np.arange(ENTITIES)
    before, begin = resident_mb(), process_time()
    engine.put_fences(columns, 0)
    engine.fixes(fixes_of(entities[:1], [0], -rounds[0][:1] - 1e9))  # sorts all fences in
    engine.withdraw([0], 0)
    built = process_time() - begin
    held = resident_mb() - before
    inside = events = 0
    for number, places in enumerate(rounds):
        fixes = fixes_of(entities, np.full(ENTITIES, number * SECOND), places)
        if number == 1:
            begin = process_time()
        kinds = np.bincount(engine.fixes(fixes)["kind"], minlength=6)
        inside += kinds[ENTER] - kinds[LEAVE]
        events += int(kinds.sum()) if number else 0
    per_fence = 1e6 * built / len(columns.areas)
    print(f"  put and built {per_fence:.2f} µs per fence, {built:.1f} s; {held:,.0f} MB")
    return (process_time() - begin) / (ROUNDS * ENTITIES), events, int(inside)


def prepared_tree(polygons: list[Floats]) -> tuple[Any, shapely.STRtree]:
    shapes = np.array([shapely.Polygon(vertices) for vertices in polygons])
    shapely.prepare(shapes)
    tree = shapely.STRtree(shapes)
    tree.query(shapely.Point(0, 0))  # builds it
    return shapes, tree


def count_events(shapes: Any, tree: shapely.STRtree, places: Floats, new: Floats) -> int:
    """Find the events of all ways from places to new ones, with the fractions of the ways."""
    ways = shapely.linestrings(np.stack((places, new), axis=1))
    which, found = tree.query(ways)
    touched = shapely.intersects(shapes[found], ways[which])
    which, found = which[touched], found[touched]
    changes = ~shapely.contains_properly(shapes[found], ways[which])
    which, found = which[changes], found[changes]
    begin, end = shapely.points(places[which]), shapely.points(new[which])
    stays = shapely.intersects(shapes[found], begin) & shapely.intersects(shapes[found], end)
    inside = shapely.intersection(ways[which], shapes[found])
    where, of = shapely.get_coordinates(inside, return_index=True)
    step = (new - places)[which[of]]
    fractions = ((where - places[which[of]]) * step).sum(axis=1) / (step * step).sum(axis=1)
    assert len(fractions) >= len(which)
    parts = shapely.get_num_geometries(inside)
    return int(parts.sum() - (stays & (parts == 1)).sum())


def time_strtree(shapes: Any, tree: shapely.STRtree, rounds: list[Floats]) -> tuple[float, int]:
    """Seconds per fix, and events."""
    begin = process_time()
    events = sum(count_events(shapes, tree, *ways) for ways in pairwise(rounds))
    return (process_time() - begin) / (ROUNDS * ENTITIES), events


def time_places(shapes: Any, tree: shapely.STRtree, rounds: list[Floats]) -> tuple[float, int]:
    """The tree finds candidates by boxes, prepared polygons decide, or it asks them itself, if that
    is faster; the last round's hits."""
    begin = process_time()
    for places in rounds[1:]:
        points = shapely.points(places)
        which, found = tree.query(points)
        hits = int(shapely.intersects(shapes[found], points[which]).sum())
    taken = process_time() - begin
    begin = process_time()
    for places in rounds[1:]:
        tree.query(shapely.points(places), predicate="intersects")
    return min(taken, process_time() - begin) / (ROUNDS * ENTITIES), hits


def time_loop(shapes: Any, places: Floats) -> float:
    """Every prepared polygon is asked about every place."""
    begin = process_time()
    for x, y in places[:LOOP_FIXES]:
        shapely.intersects_xy(shapes, x, y)
    return (process_time() - begin) / LOOP_FIXES


def compare(n: int, crowded: bool, earth: bool, first_cost: dict[tuple[bool, bool], float]) -> None:
    """One world; `first_cost` has what a fix cost the engine among the fewest fences."""
    rng = np.random.default_rng(n)
    columns, polygons = make_fences(n, crowded, rng)
    rounds = make_places(columns, crowded, rng)
    if earth:
        polygons, rounds = list(map(in_degrees, polygons)), list(map(in_degrees, rounds))
        columns = polygons_on_earth(polygons)
    where = "on Earth" if earth else "in the plane"
    print(f"{n:,} fences {where}, {'crowded' if crowded else 'uniform'}")
    cost, events, inside = time_engine(columns, rounds, earth)
    first = first_cost.setdefault((crowded, earth), cost)
    often = events / ROUNDS / ENTITIES
    print(
        f"  engine  {1e6 * cost:8.2f} µs per fix, {often:.2f} events, {1 / cost:,.0f}"
        f" fixes/s; {cost / first:.1f} times that of 1,000 fences"
    )
    shapes, tree = prepared_tree(polygons)
    same, told = time_strtree(shapes, tree, rounds)
    assert told == events, (told, events)
    print(f"  STRtree {1e6 * same:8.2f} µs per fix: {same / cost:.1f} times longer")
    less, hits = time_places(shapes, tree, rounds)
    assert hits == inside, (hits, inside)
    print(f"  places  {1e6 * less:8.2f} µs per fix: {less / cost:.1f} times longer")
    times = {"Nearcast": cost, "STRtree, same events": same, "STRtree, inside only": less}
    world = f"{'crowded' if crowded else 'uniform'} {where}"
    draw_bars(
        f"fences-{n:07}-{world.replace(' ', '-')}",
        f"CPU µs per fix among {n:,} fences, {world}",
        {name: 1e6 * found for name, found in times.items()}, "{:,.2f} µs",
    )  # fmt: skip
    if n <= 100_000:
        loop = time_loop(shapes, rounds[-1])
        print(f"  loop    {1e6 * loop:8.2f} µs per fix: {loop / cost:,.0f} times longer")


def main() -> None:
    # What is compiled is loaded, so that nobody's time has it.
    rng = np.random.default_rng(0)
    columns, polygons = make_fences(100, False, rng)
    rounds = make_places(columns, False, rng)
    with redirect_stdout(None):
        time_engine(columns, rounds)
        on_earth = polygons_on_earth(list(map(in_degrees, polygons)))
        time_engine(on_earth, list(map(in_degrees, rounds)), earth=True)
    first_cost: dict[tuple[bool, bool], float] = {}
    for n in (1_000, 100_000, *((1_000_000,) if "--large" in sys.argv else ())):
        for crowded in (False, True):
            for earth in (False, True):
                if n <= 100_000 or not earth:
                    compare(n, crowded, earth, first_cost)


if __name__ == "__main__":
    main()
