"""Which fences does each fix enter, leave or cross? Against shapely's STRtree and a plain loop.

Fences are polygons of 8 to 64 vertices. Entities move by about a twentieth of a fence's size from fix
to fix. In the uniform world fences and entities are everywhere at the same density whatever their
number; in the crowded one both are in log2(n) crowds. Printed: microseconds of CPU per fix, and how
many times longer the others take. `engine` reports events: both ends of each way, what lies
between, and times. STRtree with prepared polygons, and the loop over all fences with prepared
polygons, only say which fences contain each new place: they do less. Their hits are compared with
who is inside by the engine's events.

Run: python benchmarks/fences.py [--large]
"""

import sys
from math import log2
from time import process_time

import numpy as np
import shapely
from numpy.typing import NDArray

from nearcast.fences.areas import FenceColumns, polygon_columns
from nearcast.fences.events import CROSS, ENTER, LEAVE, fixes_of
from nearcast.fences.fence_state import FenceEngine
from nearcast.space.motion import SECOND

Floats = NDArray[np.float64]
ENTITIES, ROUNDS = 50_000, 4
LOOP_FIXES = 200  # a plain loop answers no more in reasonable time
RADIUS = 10.0
DENSITY = 1.5  # fences over each place, about
KINDS = 1 << ENTER | 1 << LEAVE | 1 << CROSS


def make_fences(n: int, crowded: bool, rng: np.random.Generator) -> tuple[FenceColumns, list[Floats]]:
    """Polygons around their centres, with a radius that varies from vertex to vertex."""
    side = (n * np.pi * RADIUS**2 / DENSITY) ** 0.5
    centres = rng.uniform(0, side, (n, 2))
    if crowded:
        spots = rng.uniform(0, side, (max(1, round(log2(n))), 2))
        spread = side / len(spots) ** 0.5 / 8
        centres = spots[rng.integers(len(spots), size=n)] + rng.normal(0, spread, (n, 2))
    counts = rng.integers(8, 65, n)
    first = np.cumsum(counts) - counts
    turn = 2 * np.pi * (np.arange(counts.sum()) - np.repeat(first, counts)) / np.repeat(counts, counts)
    radius = RADIUS * rng.uniform(0.6, 1.2, len(turn))
    vertices = np.repeat(centres, counts, axis=0) + radius[:, None] * np.c_[np.cos(turn), np.sin(turn)]
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


def time_engine(columns: FenceColumns, rounds: list[Floats]) -> tuple[float, int, int]:
    """Seconds per fix, events, and who is inside at the end, by counting."""
    engine, entities = FenceEngine(), np.arange(ENTITIES)
    begin = process_time()
    engine.put_fences(columns, 0)
    engine.fixes(fixes_of(entities[:1], [0], rounds[0][:1] * 0 - 1e9))  # sorts all fences in
    engine.withdraw([0], 0)
    built = process_time() - begin
    inside = events = 0
    for number, places in enumerate(rounds):
        fixes = fixes_of(entities, np.full(ENTITIES, number * SECOND), places)
        if number == 1:
            begin = process_time()
        kinds = np.bincount(engine.fixes(fixes)["kind"], minlength=6)
        inside += kinds[ENTER] - kinds[LEAVE]
        events += int(kinds.sum()) if number else 0
    print(f"  put and built {1e6 * built / len(columns.areas):.2f} µs per fence")
    return (process_time() - begin) / (ROUNDS * ENTITIES), events, int(inside)


def time_strtree(polygons: list[Floats], rounds: list[Floats]) -> tuple[float, int]:
    """The tree finds candidates by boxes, prepared polygons decide; the last round's hits."""
    shapes = np.array([shapely.Polygon(vertices) for vertices in polygons])
    shapely.prepare(shapes)
    tree = shapely.STRtree(shapes)
    tree.query(shapely.points(rounds[0][:1]))
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


def time_loop(polygons: list[Floats], places: Floats) -> float:
    """Every prepared polygon is asked about every place."""
    shapes = np.array([shapely.Polygon(vertices) for vertices in polygons])
    shapely.prepare(shapes)
    begin = process_time()
    for x, y in places[:LOOP_FIXES]:
        shapely.intersects_xy(shapes, x, y)
    return (process_time() - begin) / LOOP_FIXES


def main() -> None:
    first_cost = {}
    for n in (1_000, 100_000, *((1_000_000,) if "--large" in sys.argv else ())):
        for crowded in (False, True):
            rng = np.random.default_rng(n)
            columns, polygons = make_fences(n, crowded, rng)
            rounds = make_places(columns, crowded, rng)
            print(f"{n:,} fences, {'crowded' if crowded else 'uniform'}")
            cost, events, inside = time_engine(columns, rounds)
            first = first_cost.setdefault(crowded, cost)
            print(f"  engine  {1e6 * cost:8.2f} µs per fix, {events / ROUNDS / ENTITIES:.2f} events,"
                  f" {1 / cost:,.0f} fixes/s; {cost / first:.1f} times that of 1,000 fences")  # fmt: skip
            tree, hits = time_strtree(polygons, rounds)
            assert hits == inside, (hits, inside)
            print(f"  STRtree {1e6 * tree:8.2f} µs per fix: {tree / cost:.1f} times longer")
            if n <= 100_000:
                loop = time_loop(polygons, rounds[-1])
                print(f"  loop    {1e6 * loop:8.2f} µs per fix: {loop / cost:,.0f} times longer")


if __name__ == "__main__":
    main()
