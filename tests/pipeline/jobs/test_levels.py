"""Each table about levels against plain Python, over many little trees in one query."""

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from statistics import fmean, pstdev

import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.pipeline.jobs import levels
from support.dataframes import Row, assert_same, frame


def notes_of(chance: Random) -> list[Row]:
    """Peers that note levels and links more than once, and two that note none."""
    rows = []
    for node in range(chance.randrange(1, 9)):
        for t in sorted(chance.sample(range(100), chance.randrange(3))):
            rows.append(
                {"t": t, "node": node, "fact": "level", "value": float(chance.randrange(3))}
            )
            parent = chance.randrange(4)
            rows.append({"t": t, "node": node, "fact": "linked", "about": parent})
            if chance.random() < 0.3:
                rows.append({"t": t + 1, "node": node, "fact": "unlinked", "about": parent})
    return [{"about": None, "value": None, **row} for row in rows]


def messages_of(chance: Random) -> list[Row]:
    return [
        {
            "t": chance.randrange(100), "node": chance.randrange(9), "to": chance.randrange(9),
            "kind": "Down", "bytes": 9, "publication": chance.choice([None, 1, 2, 3]),
            "arrived": None, "lost": chance.random() < 0.2, "copies": chance.choice([1, 1, 4]),
        }
        for _ in range(chance.randrange(40))
    ]  # fmt: skip


def traces() -> dict[str, tuple[list[Row], list[Row]]]:
    chance = Random(7)
    runs = {f"run{i}": (messages_of(chance), notes_of(chance)) for i in range(40)}
    return {
        run: tuple([{"run": run, **row} for row in rows] for rows in both)
        for run, both in runs.items()
    }


TRACES = traces()


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    return frame(spark, "messages", [row for both in TRACES.values() for row in both[0]])


@pytest.fixture(scope="module")
def notes(spark: SparkSession) -> DataFrame:
    return frame(spark, "notes", [row for both in TRACES.values() for row in both[1]])


def of_each_run(plain: Callable[[list[Row], list[Row]], list[Row]]) -> list[Row]:
    return [{"run": run, **row} for run, both in TRACES.items() for row in plain(*both)]


def latest(notes: list[Row], fact: str, value: str) -> dict[int, tuple[int, float]]:
    found: dict[int, tuple[int, float]] = {}
    for row in notes:
        if row["fact"] == fact:
            found[row["node"]] = max(found.get(row["node"], (-1, 0.0)), (row["t"], row[value]))
    return found


def test_loads_are_those_of_all_nodes_of_a_level(messages: DataFrame, notes: DataFrame) -> None:
    def plain(messages: list[Row], notes: list[Row]) -> list[Row]:
        sent: Counter[int] = Counter()
        received: Counter[int] = Counter()
        for row in messages:
            if row["publication"] is not None:
                sent[row["node"]] += row["copies"]
                received[row["to"]] += 0 if row["lost"] else row["copies"]
        by_level = defaultdict(list)
        for node, (_, level) in latest(notes, "level", "value").items():
            by_level[level].append(node)
        return [
            {
                "level": level, "nodes": len(nodes),
                "received_mean": fmean(received[n] for n in nodes),
                "received_std": pstdev(received[n] for n in nodes),
                "sent_mean": fmean(sent[n] for n in nodes),
                "sent_std": pstdev(sent[n] for n in nodes),
                "load_max": max(sent[n] + received[n] for n in nodes),
            }
            for level, nodes in by_level.items()
        ]  # fmt: skip

    assert_same(levels.traffic_by_level(messages, notes), of_each_run(plain), ["run", "level"])


def test_publications_that_return_over_a_link_are_counted_once_each_way(
    messages: DataFrame,
) -> None:
    def plain(messages: list[Row], _: list[Row]) -> list[Row]:
        went: Counter[tuple[int, int, int]] = Counter()
        for row in messages:
            if row["publication"] is not None:
                went[row["publication"], row["node"], row["to"]] += row["copies"]
        back = sum(
            min(copies, went[p, to, node]) for (p, node, to), copies in went.items() if node < to
        )
        return [{"carried": went.total(), "returned": back}] if went else []

    assert_same(levels.returned(messages), of_each_run(plain), ["run"])


def test_children_are_the_linked_peers_and_the_owner_itself(notes: DataFrame) -> None:
    def plain(_: list[Row], notes: list[Row]) -> list[Row]:
        stands, linked = latest(notes, "level", "value"), latest(notes, "linked", "about")
        unlinked = latest(notes, "unlinked", "about")
        children: Counter[tuple[float, float]] = Counter()
        for node, (t, parent) in linked.items():
            gone = unlinked.get(node)
            if gone is None or gone[1] != parent or gone[0] < t:
                children[parent, stands[node][1] + 1] += 1
        by_level = defaultdict(list)
        for (_, level), number in children.items():
            by_level[level].append(number + 1)
        return [
            {
                "level": level, "nodes": len(found), "least": min(found), "most": max(found),
                "mean": fmean(found),
            }
            for level, found in by_level.items()
        ]  # fmt: skip

    assert_same(levels.fanout_by_level(notes), of_each_run(plain), ["run", "level"])


def test_a_tree_has_a_node_on_each_level_below_a_peers_own(spark: SparkSession) -> None:
    chance = Random(5)
    noted, judged = [], []
    for run in ("a", "b", "c"):
        tops = [chance.randrange(3) for _ in range(8)]
        noted += [
            {"run": run, "t": 1, "node": n, "fact": "level", "about": None, "value": float(top)}
            for n, top in enumerate(tops)
        ]
        for _ in range(30):
            node = chance.randrange(8)
            noted.append(
                {
                    "run": run, "t": 2, "node": node, "about": chance.randrange(4),
                    "fact": chance.choice(["leaves", "arrives"]),
                    "value": float(chance.randrange(3)),
                }
            )  # fmt: skip
        outcomes = ("correct", "missed", "spurious")
        judged += [(run, p, n, chance.choice(outcomes)) for p in range(4) for n in range(0, 8, 2)]
    wanted = []
    for run in ("a", "b", "c"):
        rows = [row for row in noted if row["run"] == run]
        tops = [row["value"] for row in rows if row["fact"] == "level"]
        due = {(p, n) for r, p, n, outcome in judged if r == run and outcome != "spurious"}
        for level in range(int(max(tops)) + 1):
            arrived = [r for r in rows if r["fact"] == "arrives" and r["value"] == level]
            left = [r for r in rows if r["fact"] == "leaves" and r["value"] == level]
            wanted.append(
                {
                    "run": run, "level": level, "nodes": sum(top >= level for top in tops),
                    "received": len(arrived), "sent": len(left),
                    "unwanted": sum((r["about"], r["node"]) not in due for r in arrived),
                }
            )  # fmt: skip
    pairs = spark.createDataFrame(judged, "run string, publication long, node long, outcome string")
    found = levels.traffic_by_tree_level(frame(spark, "notes", noted), pairs)
    assert_same(found, wanted, ["run", "level"])
