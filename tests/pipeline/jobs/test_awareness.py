"""Awareness against plain Python, over many little worlds in one query.

The worlds have small integer coordinates, so that entities lie exactly on borders, and some far
places and sizes, so that the grid must not lose anyone; the oracle compares all with all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from math import dist, inf
from random import Random
from statistics import fmean

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.model.subscription import Formula
from nearcast.pipeline.jobs import awareness
from nearcast.pipeline.jobs.delivery import first_moments
from nearcast.space.shapes import Shape, ShapeKind, point
from support.dataframes import Row, assert_same, frame, over

SECOND = 1_000_000
TABLES = ("positions", "views", "interests", "publications", "messages")
KINDS = {"point": ShapeKind.POINT, "disc": ShapeKind.DISC, "box": ShapeKind.BOX}
Trace = dict[str, list[Row]]


def coordinate(chance: Random, scale: float) -> float:
    near = float(chance.randrange(-4, 5))
    return chance.choice([near] * 6 + [near * scale, chance.uniform(-4, 4) * scale])


def place(chance: Random, scale: float, flat: bool) -> Row:
    return {axis: 0.0 if flat and axis == "z" else coordinate(chance, scale) for axis in "xyz"}


def an_interest(chance: Random, scale: float, flat: bool) -> Row:
    shape = chance.choice(["point", "disc", "disc", "box", "box"])
    row: Row = {"shape": shape, **place(chance, scale, flat)}
    sides = {"point": "", "disc": "x", "box": "xy" if flat else "xyz"}[shape]
    moves = chance.random() < 0.6
    for axis in "xyz":
        far = [0.0, 1.0, 3.0, 5.0, 2.5 * scale] + [inf] * (shape == "box")
        row[f"r{axis}"] = chance.choice(far) if axis in sides else 0.0
        row[f"v{axis}"] = float(moves and chance.randrange(-2, 3))
        row[f"g{axis}"] = float(moves and axis in sides and chance.randrange(-2, 3))
    row["formula"] = chance.choice([None] * 8 + ["x > 0, y < 3", "x >= t - 2, x < 3"])
    return {**row, "channel": chance.choice(["", "chat"]), "echo": chance.random() < 0.5}


def a_run(name: str, chance: Random) -> Trace:
    trace: Trace = {table: [] for table in TABLES}
    scale, flat = chance.choice([1.0, 1.0, 1.0, 40.0, 1e9, 1e-7]), chance.random() < 0.5
    begin = chance.choice([0, 1_700_000_000_000_000])
    gaps = [chance.choice([1, SECOND // 2, SECOND, 7 * SECOND]) for _ in range(5)]
    instants = [begin + sum(gaps[:i]) for i in range(chance.randrange(1, 6))]
    nodes = range(chance.randrange(1, 10))
    moments = [*instants, *(t + d for t in instants for d in (-1, 1, -SECOND // 4)), begin]
    for subscription in range(chance.randrange(25)):
        node = chance.randrange(9)
        for t in {max(chance.choice(moments), 0) for _ in range(chance.randrange(1, 5))}:
            row = {"t": t, "node": node, "subscription": subscription}
            row |= an_interest(chance, scale, flat) | {"ended": chance.random() < 0.15}
            row["until"] = chance.choice([None, None, t, t + SECOND // 2, t + 9 * SECOND])
            row["since"] = None if row["formula"] is None else max(t - SECOND, 0)
            row["filter"] = chance.choice([None, "weight > 3"])
            trace["interests"].append(row)
    for t in instants:
        present = [node for node in nodes if chance.random() < 0.9]
        for node in present:
            trace["positions"].append({"t": t, "node": node, **place(chance, scale, flat)})
        for node in nodes:  # now and then a node that is not there, an other that is not, itself
            for other in range(10):
                if chance.random() < 0.35:
                    row = {"t": t, "node": node, "other": other}
                    trace["views"].append({**row, **place(chance, scale, flat)})
    if chance.random() < 0.5:
        trace["publications"].append(a_publication(max(begin - chance.randrange(SECOND), 0)))
    if chance.random() < 0.5:
        sent = {"t": begin, "node": 1, "to": 2, "kind": "Ping", "lost": False, "copies": 1}
        trace["messages"].append({**sent, "bytes": 0, "publication": None, "arrived": None})
    return {table: [{"run": name, **row} for row in rows] for table, rows in trace.items()}


def a_publication(t: int) -> Row:
    row = {"t": t, "node": 0, "publication": t, "shape": "point", "channel": "", "bytes": 0}
    return row | dict.fromkeys(("x", "y", "z", "rx", "ry", "rz"), 0.0)


@cache  # not when the tests are collected: every process does that
def traces() -> dict[str, Trace]:
    chance = Random(4)
    runs = {f"run{i}": a_run(f"run{i}", chance) for i in range(120)}
    runs["unseen"] = {**a_run("unseen", Random(8)), "views": []}
    return runs


def regions_at(trace: Trace, now: int) -> dict[int, list[Shape | Formula]]:
    """The regions of each node's subscriptions in force."""
    answer = defaultdict(list)
    rows_of = defaultdict(list)
    for row in sorted(trace["interests"], key=lambda row: row["t"]):
        rows_of[row["subscription"]].append(row)
    for rows in rows_of.values():
        for row, following in pairwise([*rows, {"t": inf}]):
            if not row["t"] <= now < following["t"] or row["ended"]:
                continue
            if row["formula"] is not None:
                answer[row["node"]].append(Formula(row["formula"], row["since"]))
            else:
                moved = (now if row["until"] is None else min(now, row["until"])) - row["t"]
                centre = [row[a] + row[f"v{a}"] * (moved / 1e6) for a in "xyz"]
                extents = [max(row[f"r{a}"] + row[f"g{a}"] * (moved / 1e6), 0.0) for a in "xyz"]
                answer[row["node"]].append(Shape(KINDS[row["shape"]], *centre, *extents))
    return answer


def has(region: Shape | Formula, place: tuple[float, ...], now: int) -> bool:
    if isinstance(region, Formula):
        return region.touches(point(*place), now)
    return region.touches(point(*place))


def samples(trace: Trace) -> list[Row]:
    """One for each node with a position at each instant."""
    answer = []
    for now in sorted({row["t"] for row in trace["positions"]}) if trace["views"] else []:
        truly = {
            row["node"]: tuple(row[a] for a in "xyz")
            for row in trace["positions"]
            if row["t"] == now
        }
        regions = regions_at(trace, now)
        for node in truly:
            others = truly.keys() - {node}
            should = {o for o in others if any(has(r, truly[o], now) for r in regions[node])}
            believed = {
                row["other"]: tuple(row[a] for a in "xyz")
                for row in trace["views"]
                if (row["t"], row["node"]) == (now, node) and row["other"] != node
            }
            known = set(believed)
            answer.append(
                {
                    "t": now,
                    "node": node,
                    "known": len(known),
                    "should": len(should),
                    "true_positives": len(known & should),
                    "false_positives": len(known - should),
                    "false_negatives": len(should - known),
                    "true_negatives": len(others - should - known),
                    "differences": [dist(believed[o], truly[o]) for o in known & others],
                }
            )
    return answer


@cache
def all_samples() -> dict[str, list[Row]]:
    return {run: samples(trace) for run, trace in traces().items()}


def measures(rows: list[Row]) -> Row:
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update({name: count for name, count in row.items() if name != "differences"})
    hit, wrong = totals["true_positives"], totals["false_positives"]
    miss, rest = totals["false_negatives"], totals["true_negatives"]
    away = [value for row in rows for value in row["differences"]]
    return {
        "known": totals["known"] / len(rows),
        "should": totals["should"] / len(rows),
        "true_positives": hit,
        "false_positives": wrong,
        "false_negatives": miss,
        "true_negatives": rest,
        "precision": over(hit, hit + wrong),
        "recall": over(hit, hit + miss),
        "accuracy": over(hit + rest, hit + wrong + miss + rest),
        "specificity": over(rest, rest + wrong),
        "consistency": over(hit, hit + miss),
        "position_difference_mean": fmean(away) if away else None,
        "position_difference_p90": float(np.percentile(away, 90)) if away else None,
    }


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    frames = {
        table: frame(spark, table, [row for trace in traces().values() for row in trace[table]])
        for table in TABLES
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(awareness, "ROWS_PER_SLICE", 60)  # so that most runs are cut
        seen = [frames[table] for table in ("positions", "views", "interests")]
        frames["awareness_pairs"] = awareness.awareness_pairs(*seen).persist()
        yield frames


def test_the_sample_worlds_have_hits_and_errors_of_every_kind() -> None:
    rows = [row for those in all_samples().values() for row in those]
    for fate in ("true_positives", "false_positives", "false_negatives", "true_negatives"):
        assert sum(row[fate] for row in rows) > 300, fate


def test_totals_are_those_of_the_naive_comparison(tables: dict[str, DataFrame]) -> None:
    wanted = [
        {"run": run, "nodes": len({row["node"] for row in rows}), **measures(rows)}
        for run, rows in all_samples().items()
        if rows
    ]
    assert "unseen" not in {row["run"] for row in wanted}
    assert_same(awareness.awareness_totals(tables["awareness_pairs"]), wanted, ["run"])


def test_each_node_has_its_own_awareness(tables: dict[str, DataFrame]) -> None:
    wanted = []
    for run, rows in all_samples().items():
        for node in {row["node"] for row in rows}:
            mine = [row for row in rows if row["node"] == node]
            wanted.append({"run": run, "node": node, **measures(mine)})
    assert_same(awareness.awareness_by_node(tables["awareness_pairs"]), wanted, ["run", "node"])


def test_seconds_count_from_publication_message_or_position(tables: dict[str, DataFrame]) -> None:
    wanted = []
    for run, rows in all_samples().items():
        trace = traces()[run]
        first = trace["publications"] or trace["messages"] or trace["positions"]
        begin = min((row["t"] for row in first), default=0)
        for second in {(row["t"] - begin) // SECOND for row in rows}:
            those = [row for row in rows if (row["t"] - begin) // SECOND == second]
            nodes = len({row["node"] for row in those})
            wanted.append({"run": run, "second": second, "nodes": nodes, **measures(those)})
    begins = first_moments(tables["publications"], tables["messages"], tables["awareness_pairs"])
    found = awareness.awareness_by_second(tables["awareness_pairs"], begins)
    assert_same(found, wanted, ["run", "second"])


def test_what_was_persisted_is_not_computed_again(tables: dict[str, DataFrame]) -> None:
    plan = (
        awareness.awareness_totals(tables["awareness_pairs"])._jdf.queryExecution().withCachedData()
    )
    leaves = plan.collectLeaves()
    read = [leaves.apply(i).output().mkString() for i in range(leaves.size())]
    assert any("knew" in columns for columns in read)
    assert not any("formula" in columns for columns in read)


def test_percents_of_differences_are_exact_in_groups_of_any_size(spark: SparkSession) -> None:
    chance = Random(5)
    away = {
        n: [chance.choice([0.0, 1.5, 7.0, chance.uniform(0, 9)]) for _ in range(n)]
        for n in (*range(1, 12), 99, 100, 101, 102, 201, 500)
    }
    rows = [
        (f"run{n}", 0, 1, other, True, True, True, difference, None)
        for n, differences in away.items()
        for other, difference in enumerate([*differences, None])
    ]
    rows += [(f"run{n}", 0, 1, None, None, None, None, None, n + 1) for n in away]
    chance.shuffle(rows)
    found = awareness.awareness_totals(spark.createDataFrame(rows, awareness.AWARENESS_PAIRS))
    columns = ("position_difference_mean", "position_difference_p90")
    wanted = [
        {"run": f"run{n}", columns[0]: fmean(those), columns[1]: float(np.percentile(those, 90))}
        for n, those in away.items()
    ]
    assert_same(found.select("run", *columns), wanted, ["run"])
