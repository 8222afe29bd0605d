"""Worlds described, against plain Python on little runs that are all counted in one query."""

from collections import Counter, defaultdict
from itertools import combinations
from math import ceil, floor, inf, sqrt
from random import Random
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.jobs import hotspots
from nearcast.pipeline.jobs.delivery import first_moments
from nearcast.pipeline.jobs.hotspots import world_density, world_movement, world_positions
from nearcast.pipeline.spark.storage import OpenedTrace
from nearcast.scenario import Scenario
from nearcast.space.earth import ecef
from support.dataframes import Row
from support.small_runs import by_keys, rows_of

SECOND = 1_000_000
RUNS = [f"world-{number}" for number in range(24)]
NAMES = ("speed_mean", "speed_p50", "speed_p90", "speed_max", "still_share", "dwell_mean_s",
         "dwell_p90_s", "area_mean", "neighbours_mean", "neighbours_max", "clustering",
         "crowding")  # fmt: skip

World = dict[str, list[Row]]


def world(run: str) -> World:
    """Few entities on few places, so that some stand still, meet in a cell, go and come back."""
    rng = Random(run)
    deep = rng.random() < 0.4
    tall = deep and rng.random() < 0.5  # or flat boxes at different heights
    span = rng.choice([0.0, 1.0, 1e6])
    began = rng.choice([0, 1_700_000_000 * SECOND + 123_456])
    everyone = range(rng.randrange(1, 7))

    def place() -> Row:
        axes = dict.fromkeys("xyz", 0.0)
        for axis in "xyz" if deep else "xy":
            axes[axis] = span * rng.choice([-1.0, 0.0, 0.5, 0.51, rng.random()])
        return axes

    instants = [began + k * rng.choice([300_000, SECOND]) for k in range(rng.randrange(7))]
    positions = [
        {"run": run, "t": t, "node": node, **place()}
        for t in sorted(set(instants))
        for node in everyone
        if rng.random() < 0.8
    ]
    notes = [
        {"run": run, "t": t + rng.choice([0, 1000]), "node": rng.choice(everyone),
         "fact": rng.choice(["left", "crashed", "joined"])}
        for t in instants if rng.random() < 0.4
    ]  # fmt: skip
    publications = [
        {"run": run, "t": began + rng.randrange(5 * SECOND), "node": rng.choice(everyone),
         "publication": number}
        for number in range(rng.choice([0, 5]))
    ]  # fmt: skip
    interests = []
    for number in range(rng.choice([0, 2 * len(everyone)])):
        radius = rng.choice([0.0, 1.5, 3.0])
        extents = rng.choice(
            [
                {"shape": "disc", "rx": radius},
                {"shape": "box", "rx": radius, "ry": 2.0, "rz": 3.0 if tall else 0.0},
                {"shape": "point"},
                {"shape": "box", "rx": inf, "ry": 1.0},
                {"shape": "box", "rx": 1.0, "formula": "x < 3"},
                {"shape": "point", "ended": True},
            ]
        )
        interests.append(
            {"run": run, "t": began, "node": number % len(everyone), "subscription": number,
             **place(), **extents}
        )  # fmt: skip
    expected = [
        {"run": run, "publication": made["publication"], "subscription": wanted["subscription"]}
        for made in publications for wanted in interests if rng.random() < 0.3
    ]  # fmt: skip
    return {"positions": positions, "notes": notes, "publications": publications,
            "interests": interests, "expected": expected, "messages": []}  # fmt: skip


WORLDS = {run: world(run) for run in RUNS}


def frames(spark: SparkSession, *tables: str) -> list[Any]:
    return [rows_of(spark, t, [row for run in RUNS for row in WORLDS[run][t]]) for t in tables]


def cells(positions: list[Row], where: Row) -> tuple[int, int]:
    numbers = []
    for axis in "xy":
        low, high = (end(row[axis] for row in positions) for end in (min, max))
        share = (where[axis] - low) / (high - low) if high > low else 0.0
        numbers.append(min(63, floor(share * 64)))
    return numbers[0], numbers[1]


def origin_of(rows: World) -> int:
    return min((row["t"] for row in rows["publications"] or rows["positions"]), default=0)


def density(positions: list[Row], origin: int) -> dict[int, Counter[tuple[int, int]]]:
    last = {}
    for row in sorted(positions, key=lambda row: row["t"]):
        last[(row["t"] - origin) // SECOND, row["node"]] = row
    found: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for (second, _), row in last.items():
        found[second][cells(positions, row)] += 1
    return found


def test_density_counts_each_entity_once_a_second_where_it_was_last(spark: SparkSession) -> None:
    positions, *others = frames(spark, "positions", "publications", "messages")
    result = world_density(positions, first_moments(*others, positions), [])
    assert result.columns == ["run", "second", "cell_x", "cell_y", "entities", "x_low", "y_low",
                              "cell_width", "cell_height"]  # fmt: skip
    wanted = {}
    for run, rows in WORLDS.items():
        seen = rows["positions"]
        for second, count in density(seen, origin_of(rows)).items():
            (xs, ys) = ([row[axis] for row in seen] for axis in "xy")
            grid = min(xs), min(ys), (max(xs) - min(xs)) / 64, (max(ys) - min(ys)) / 64
            for cell, entities in count.items():
                wanted[run, second, *cell] = (entities, *grid)
    found = by_keys(result, ["run", "second", "cell_x", "cell_y"])
    assert found == wanted
    assert max(row[0] for row in found.values()) > 1
    assert {63, 0} < {key[2] for key in found}


@pytest.mark.parametrize("followed", [3, 2_000])
def test_some_nodes_are_followed_from_where_each_second_first_saw_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, followed: int
) -> None:
    monkeypatch.setattr(hotspots, "MAX_TRACKED_NODES", followed)
    positions, *others = frames(spark, "positions", "publications", "messages")
    result = world_positions(positions, first_moments(*others, positions))
    assert result.columns == ["run", "second", "node", "x", "y", "z"]
    wanted: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for run, rows in WORLDS.items():
        nodes = sorted({row["node"] for row in rows["positions"]})[:followed]
        for row in sorted(rows["positions"], key=lambda row: row["t"]):
            if row["node"] in nodes:
                second = (row["t"] - origin_of(rows)) // SECOND
                wanted.setdefault((run, second, row["node"]), (row["x"], row["y"], row["z"]))
    found = by_keys(result, ["run", "second", "node"])
    assert found == wanted
    seen = [row for rows in WORLDS.values() for row in rows["positions"]]
    assert len(found) < len(seen)
    assert any(second < 0 for _, second, _ in found)
    assert (max(node for *_, node in found) == max(row["node"] for row in seen)) == (followed > 6)


def steps(rows: World) -> tuple[list[float], list[float]]:
    """Speeds and dwells, entity by entity."""
    speeds, dwells = [], []
    seen = rows["positions"]
    for node in {row["node"] for row in seen}:
        life = [(row["t"], 0, row) for row in seen if row["node"] == node]
        life += [
            (note["t"], 1, note)
            for note in rows["notes"]
            if note["node"] == node and note["fact"] in ("left", "crashed")
        ]
        life.sort(key=lambda moment: moment[:2])
        since = None
        for (t, gone, here), after in zip(life, [*life[1:], None], strict=True):
            if gone:
                continue
            since = t if since is None else since
            if after is None:
                dwells.append((t - since) / 1e6)
            elif after[1] or cells(seen, after[2]) != cells(seen, here):
                dwells.append((after[0] - since) / 1e6)
                since = None
            if after is not None and not after[1] and after[0] > t:
                way = sqrt(sum((after[2][axis] - here[axis]) ** 2 for axis in "xyz"))
                speeds.append(way / ((after[0] - t) / 1e6))
    return speeds, dwells


def area(rows: World) -> float | None:
    bounded = [
        row for row in rows["interests"]
        if not row.get("ended") and "formula" not in row and row.get("rx", 0.0) < inf
    ]  # fmt: skip
    deep = any(row["z"] != 0 or row.get("rz", 0.0) != 0 for row in bounded)
    found = []
    for row in bounded:
        rx = row.get("rx", 0.0)
        ry, rz = (rx, rx) if row["shape"] == "disc" else (row.get("ry", 0.0), row.get("rz", 0.0))
        found.append(8 * rx * ry * rz if deep else 4 * rx * ry)
    return sum(found) / len(found) if found else None


def hearing(rows: World) -> tuple[list[int], float | None]:
    """How many others hear each publication, and the transitivity of who hears whom."""
    publisher = {row["publication"]: row["node"] for row in rows["publications"]}
    subscriber = {row["subscription"]: row["node"] for row in rows["interests"]}
    received = {number: set() for number in publisher}
    for pair in rows["expected"]:
        received[pair["publication"]].add(subscriber[pair["subscription"]])
    others = {number: nodes - {publisher[number]} for number, nodes in received.items()}
    links = {frozenset((publisher[number], node)) for number in others for node in others[number]}
    degree = Counter(node for link in links for node in link)
    triples = sum(many * (many - 1) // 2 for many in degree.values())
    triangles = sum(
        all(frozenset(two) in links for two in combinations(three, 2))
        for three in combinations(sorted(degree), 3)
    )
    clustering = 3 * triangles / triples if triples else None
    return [len(nodes) for nodes in others.values()], clustering


def crowding(rows: World) -> float | None:
    inside = total = 0
    for count in density(rows["positions"], 0).values():
        fullest = sorted(count.values(), reverse=True)
        inside += sum(fullest[: ceil(len(fullest) / 10)])
        total += sum(fullest)
    return inside / total if total else None


def mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None


def test_a_world_is_described_as_its_entities_lived(spark: SparkSession) -> None:
    tables = frames(spark, "positions", "interests", "publications", "notes", "expected")
    result = world_movement(*tables, traces=[])
    assert result.columns == ["run", "entities", *NAMES]
    wanted = {}
    for run, rows in WORLDS.items():
        present = [r["node"] for t in ("positions", "interests", "publications") for r in rows[t]]
        if not present:
            continue
        speeds, dwells = steps(rows)
        receivers, clustering = hearing(rows)

        def at(share: float, values: list[float]) -> float | None:
            return float(np.quantile(values, share)) if values else None

        values = (
            mean(speeds), at(0.5, speeds), at(0.9, speeds), max(speeds, default=None),
            mean([speed == 0 for speed in speeds]), mean(dwells), at(0.9, dwells), area(rows),
            mean(receivers), max(receivers, default=None), clustering, crowding(rows),
        )  # fmt: skip
        wanted[run,] = (
            len(set(present)),
            *(None if value is None else pytest.approx(value) for value in values),
        )
    found = by_keys(result, ["run"])
    assert found == wanted
    for place, name in enumerate(NAMES, 1):
        kinds = {row[place] for row in found.values()}
        assert len(kinds) > 2, f"{name} is hardly put to the test"


def test_on_earth_cells_are_of_degrees_also_across_the_antimeridian(spark: SparkSession) -> None:
    """A fleet on both sides of longitude 180, one elsewhere, and the same numbers in a plane."""
    rng = Random(4)
    centres = {"fiji": (180.0, -17.0), "dover": (1.4, 51.0), "plane": (180.0, -17.0)}
    places: dict[tuple[str, int], tuple[float, float]] = {}
    rows, interests = [], []
    for run, (lon, lat) in centres.items():
        for node in range(60):
            place = lon + rng.uniform(-2, 2), lat + rng.uniform(-1, 1)
            places[run, node] = place
            x, y, z = (*place, 0.0) if run == "plane" else ecef(*place)
            rows.append({"run": run, "t": 0, "node": node, "x": x, "y": y, "z": z})
        interests.append({"run": run, "t": 0, "node": 0, "subscription": 0, "shape": "disc",
                          "x": x, "y": y, "z": z, "rx": 1.5})  # fmt: skip
    traces = [
        OpenedTrace(run, run, Scenario(protocol="imported", workload="fleet", nodes=60, seconds=1,
                                       settings={} if run == "plane" else {"geometry": "earth"}))
        for run in centres
    ]  # fmt: skip
    positions = rows_of(spark, "positions", rows)
    others = [rows_of(spark, table, []) for table in ("publications", "notes", "expected")]
    found = by_keys(
        world_density(positions, first_moments(positions), traces), ["run", "cell_x", "cell_y"]
    )
    fullest: dict[str, Counter[tuple[int, int]]] = {}
    for run in centres:
        mine = [place for (whose, _), place in places.items() if whose == run]
        grid = [(min(side), (max(side) - min(side)) / 64) for side in zip(*mine, strict=True)]
        (x_low, width), (y_low, height) = grid
        wanted = fullest[run] = Counter(
            (min(63, floor((lon - x_low) / width)), min(63, floor((lat - y_low) / height)))
            for lon, lat in mine
        )
        counted = {key[1:]: row[1] for key, row in found.items() if key[0] == run}
        assert counted == wanted
        for row in (row for key, row in found.items() if key[0] == run):
            assert row[2:] == pytest.approx((x_low, y_low, width, height), abs=1e-9)
    movement = world_movement(
        positions, rows_of(spark, "interests", interests), *others, traces=traces
    )
    for run, area_mean, crowding in movement.select("run", "area_mean", "crowding").collect():
        assert area_mean == 9.0, "a disc on Earth is flat"
        most = sorted(fullest[run].values(), reverse=True)
        assert crowding == pytest.approx(sum(most[: ceil(len(most) / 10)]) / 60)
