"""Each table of delivery against plain Python, over many little runs in one query."""

from collections import Counter, defaultdict
from random import Random
from statistics import fmean, pstdev

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nearcast.pipeline.jobs import delivery
from support.dataframes import Row, assert_same, frame, over

TABLES = ("publications", "interests", "deliveries", "messages", "notes", "expected")
STILL = {first + axis: 0.0 for first in ("", "r", "v", "g") for axis in "xyz"}
Trace = dict[str, list[Row]]


def a_run(name: str, chance: Random) -> Trace:
    """A few publishers and subscribers, and deliveries that go wrong in every way."""
    trace: Trace = {table: [] for table in TABLES}
    begin = chance.choice([0, 1_700_000_000_000_123])
    owner = {s: chance.randrange(10, 14) for s in range(chance.randrange(1, 7))}
    for s, node in owner.items():
        for t in chance.sample(range(1000), chance.randrange(1, 3)):
            row = {"t": t, "node": node, "subscription": s, "shape": "disc", **STILL}
            trace["interests"].append({**row, "channel": "", "echo": False, "ended": False})
    for p in range(chance.randrange(1, 9)):
        made = begin + chance.choice([0, 999_999, 1_000_000, chance.randrange(4_000_000)])
        place = {axis: chance.uniform(-9, 9) for axis in "xyz"}
        row = {"t": made, "node": chance.randrange(3), "publication": p, "shape": "point"}
        row |= {**dict.fromkeys(("rx", "ry", "rz"), 0.0), **place, "bytes": 9}
        trace["publications"].append({**row, "channel": chance.choice(["", "chat"])})
        for s in owner:
            due = chance.random() < 0.7
            if due:
                trace["expected"].append({"publication": p, "subscription": s})
            for _ in range(chance.choice([0, 1, 1, 1, 2, 3] if due else [0, 0, 0, 1, 2])):
                late = chance.choice([0, 50_000, chance.randrange(3_000_000)])
                row = {"t": made + late, "node": owner[s], "publication": p, "subscription": s}
                trace["deliveries"].append({**row, "hops": chance.randrange(4)})
    trace["deliveries"] += [  # of a publication, and to a subscription, that nobody recorded
        {"t": begin + 5, "node": 77, "publication": 99, "subscription": s, "hops": 1}
        for s in (0, 55)
        if chance.random() < 0.3
    ]
    trace["messages"] = [a_message(chance) for _ in range(chance.randrange(30))]
    trace["notes"] = [a_note(chance) for _ in range(chance.randrange(20))]
    return {table: [{"run": name, **row} for row in rows] for table, rows in trace.items()}


def a_message(chance: Random) -> Row:
    row = {"t": chance.randrange(99), "node": 1, "to": chance.randrange(10, 15), "kind": "Notify"}
    row["publication"] = chance.choice([None, *range(8)])
    return {**row, "bytes": 70, "lost": chance.random() < 0.2, "copies": chance.choice([1, 1, 3])}


def a_note(chance: Random) -> Row:
    row: Row = {"t": chance.randrange(5), "node": chance.randrange(10, 14)}
    row["fact"] = chance.choice(["level", "withheld", "joined"])
    row["about"] = chance.randrange(9)
    subscriber = chance.choice([None, float(chance.randrange(10, 14))])
    values = {"level": float(chance.randrange(3)), "withheld": subscriber}
    return {**row, "value": values.get(row["fact"])}


def traces() -> dict[str, Trace]:
    chance = Random(3)
    runs = {f"run{i}": a_run(f"run{i}", chance) for i in range(40)}
    # What is absent: nothing due and nothing heard; nothing but notes; nothing published.
    for name, kept in (
        ("silent", ["publications", "notes"]),
        ("noted", ["notes"]),
        ("strange", ["deliveries"]),
        ("deaf", ["publications", "interests", "expected"]),
    ):
        whole = a_run(name, Random(8))
        runs[name] = {table: whole[table] if table in kept else [] for table in TABLES}
        assert all(runs[name][table] for table in kept)
    return runs


RUNS = traces()


def judged(trace: Trace) -> list[Row]:
    """What `pairs` should say of one run."""
    published = {row["publication"]: row for row in trace["publications"]}
    owner = {row["subscription"]: row["node"] for row in trace["interests"]}
    due = {(row["publication"], row["subscription"]) for row in trace["expected"]}
    withheld = {
        (row["about"], int(row["value"]))
        for row in trace["notes"]
        if row["fact"] == "withheld" and row["value"] is not None
    }
    rows = defaultdict(list)
    for row in trace["deliveries"]:
        rows[row["publication"], row["subscription"]].append((row["t"], row["hops"], row["node"]))
    answer = []
    for p, s in sorted(due | rows.keys()):
        made, came = published.get(p), sorted(rows[p, s])
        if not came and (p, owner.get(s)) in withheld:
            continue
        outcome = "spurious" if (p, s) not in due else "correct" if came else "missed"
        answer.append(
            {
                "publication": p,
                "subscription": s,
                "publisher": made and made["node"],
                "node": owner.get(s, came[0][2] if came else None),
                "channel": made and made["channel"],
                "t": made and made["t"],
                "outcome": outcome,
                "first": came[0][0] if came else None,
                "latency_ms": (came[0][0] - made["t"]) / 1000 if came and made else None,
                "hops": came[0][1] if came else None,
                "duplicates": max(len(came) - 1, 0),
            }
        )
    return [{**p, "overtaken": any(overtook(q, p) for q in answer)} for p in answer]


def overtook(later: Row, earlier: Row) -> bool:
    """Was the later publication of the same publisher heard before the earlier one?"""
    alike = all(later[key] == earlier[key] for key in ("subscription", "publisher"))
    known = None not in (later["t"], earlier["t"], later["first"], earlier["first"])
    return alike and known and later["t"] > earlier["t"] and later["first"] < earlier["first"]


def counts(rows: list[Row]) -> Row:
    found = Counter(row["outcome"] for row in rows)
    return {
        "expected": found["correct"] + found["missed"],
        "correct": found["correct"],
        "missed": found["missed"],
        "spurious": found["spurious"],
        "duplicates": sum(row["duplicates"] for row in rows),
    }


def latencies(rows: list[Row]) -> list[float]:
    return [row["latency_ms"] for row in rows if row["outcome"] == "correct"]


def percent(values: list[float], p: int) -> float | None:
    return float(np.percentile(values, p)) if values else None


def groups(rows: list[Row], *keys: str) -> dict[tuple, list[Row]]:
    answer = defaultdict(list)
    for row in rows:
        answer[tuple(row[key] for key in keys)].append(row)
    return answer


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    frames = {
        table: frame(spark, table, [row for trace in RUNS.values() for row in trace[table]])
        for table in TABLES
    }
    names = ("expected", "publications", "interests", "deliveries", "notes")
    frames["pairs"] = delivery.pairs(**{name: frames[name] for name in names}).persist()
    return frames


def test_each_pair_is_counted_once(tables: dict[str, DataFrame]) -> None:
    wanted = [{"run": run, **row} for run, trace in RUNS.items() for row in judged(trace)]
    assert {row["outcome"] for row in wanted} == {"correct", "missed", "spurious"}
    assert_same(tables["pairs"], wanted, ["run", "publication", "subscription"])


def test_totals_are_those_of_plain_python(tables: dict[str, DataFrame]) -> None:
    wanted = [total(run, trace) for run, trace in RUNS.items()]
    assert sum(row["order_violations"] for row in wanted) > 20
    found = delivery.delivery_totals(tables["pairs"], tables["publications"], tables["notes"])
    assert_same(found, wanted, ["run"])


def total(run: str, trace: Trace) -> Row:
    rows = judged(trace)
    late, n = latencies(rows), counts(rows)
    hops = [row["hops"] for row in rows if row["outcome"] == "correct"]
    return {
        "run": run,
        "expected": n["expected"],
        "delivered": len(trace["deliveries"]),
        **{name: n[name] for name in ("correct", "missed", "spurious", "duplicates")},
        "precision": over(n["correct"], n["correct"] + n["spurious"]),
        "recall": over(n["correct"], n["expected"]),
        "latency_mean_ms": fmean(late) if late else None,
        **{f"latency_p{p}_ms": percent(late, p) for p in (50, 90, 99)},
        "latency_max_ms": max(late, default=None),
        "hops_mean": fmean(hops) if hops else None,
        "order_violations": sum(row["overtaken"] for row in rows),
        "withheld": sum(row["fact"] == "withheld" for row in trace["notes"]),
    }


def test_seconds_count_from_the_first_publication(tables: dict[str, DataFrame]) -> None:
    wanted = []
    for run, trace in RUNS.items():
        begin = min((row["t"] for row in trace["publications"]), default=None)

        def second(row: Row, begin: int | None = begin) -> int | None:
            return None if begin is None or row["t"] is None else (row["t"] - begin) // 1_000_000

        rows, made = judged(trace), Counter(map(second, trace["publications"]))
        for at in {second(row) for row in rows} | made.keys():
            those = [row for row in rows if second(row) == at]
            late, n = latencies(those), counts(those)
            wanted.append(
                {
                    "run": run,
                    "second": at,
                    "publications": made[at],
                    **n,
                    "recall": over(n["correct"], n["expected"]),
                    "precision": over(n["correct"], n["correct"] + n["spurious"]),
                    "latency_p50_ms": percent(late, 50),
                    "latency_p99_ms": percent(late, 99),
                }
            )
    found = delivery.delivery_by_second(
        tables["pairs"], tables["publications"], delivery.first_moments(tables["publications"])
    )
    assert_same(found, wanted, ["run", "second"])


def test_each_subscriber_has_its_own_quality(tables: dict[str, DataFrame]) -> None:
    wanted = []
    for run, trace in RUNS.items():
        for (node,), rows in groups(judged(trace), "node").items():
            late = latencies(rows)
            mean = fmean(late) if late else None
            wanted.append({"run": run, "node": node, **counts(rows), "latency_mean_ms": mean})
    assert_same(delivery.delivery_by_node(tables["pairs"]), wanted, ["run", "node"])


def test_each_channel_has_its_own_quality(tables: dict[str, DataFrame]) -> None:
    wanted = []
    for run, trace in RUNS.items():
        rows, made = groups(judged(trace), "channel"), groups(trace["publications"], "channel")
        for key in rows.keys() | made.keys():
            those = rows.get(key, [])
            row = {"run": run, "channel": key[0], "publications": len(made.get(key, []))}
            wanted.append({**row, **counts(those), "latency_p50_ms": percent(latencies(those), 50)})
    found = delivery.delivery_by_channel(tables["pairs"], tables["publications"])
    assert_same(found, wanted, ["run", "channel"])


def test_quantiles_are_those_of_all_correct_pairs(tables: dict[str, DataFrame]) -> None:
    wanted = []
    for run, trace in RUNS.items():
        correct = [row for row in judged(trace) if row["outcome"] == "correct"]
        for p in range(101 if correct else 0):
            late, hops = (percent([row[c] for row in correct], p) for c in ("latency_ms", "hops"))
            wanted.append({"run": run, "quantile": p / 100, "latency_ms": late, "hops": hops})
    assert_same(delivery.latency_quantiles(tables["pairs"]), wanted, ["run", "quantile"])


def test_a_publication_is_complete_when_all_that_should_receive_it_did(
    tables: dict[str, DataFrame],
) -> None:
    wanted = []
    for run, trace in RUNS.items():
        rows, fates = judged(trace), defaultdict(list)
        for made in trace["publications"]:
            due = [
                row
                for row in rows
                if row["publication"] == made["publication"] and row["outcome"] != "spurious"
            ]
            late = latencies(due)
            fates[len(due)].append((len(late) == len(due), max(late, default=None)))
        for interested, those in fates.items():
            times = [time for complete, time in those if complete and time is not None]
            wanted.append(
                {
                    "run": run,
                    "interested": interested,
                    "publications": len(those),
                    "complete": sum(complete for complete, _ in those),
                    "total_time_mean_ms": fmean(times) if times else None,
                    "total_time_p90_ms": percent(times, 90),
                }
            )
    found = delivery.popularity(tables["pairs"], tables["publications"])
    assert_same(found, wanted, ["run", "interested"])


def test_an_unwanted_publication_is_counted_at_the_last_level_of_its_node(
    tables: dict[str, DataFrame],
) -> None:
    wanted = []
    for run, trace in RUNS.items():
        wants = {
            (row["publication"], row["node"])
            for row in judged(trace)
            if row["outcome"] != "spurious"
        }
        level = {}
        for row in sorted(
            (row for row in trace["notes"] if row["fact"] == "level"),
            key=lambda row: (row["t"], row["value"]),
        ):
            level[row["node"]] = row["value"]
        carried, unwanted = Counter(), Counter()
        for row in trace["messages"]:
            if row["publication"] is not None and not row["lost"]:
                carried[row["to"]] += row["copies"]
                if (row["publication"], row["to"]) not in wants:
                    unwanted[row["to"]] += row["copies"]
        for at in {level.get(node) for node in carried}:
            nodes = [node for node in carried if level.get(node) == at]
            rates = [unwanted[node] / carried[node] for node in nodes]
            wanted.append(
                {
                    "run": run,
                    "level": at,
                    "nodes": len(nodes),
                    "carried": sum(carried[node] for node in nodes),
                    "unwanted": sum(unwanted[node] for node in nodes),
                    "rate_mean": fmean(rates),
                    "rate_std": pstdev(rates),
                }
            )
    assert {row["level"] for row in wanted} == {None, 0.0, 1.0, 2.0}
    found = delivery.false_positives_by_level(tables["messages"], tables["pairs"], tables["notes"])
    assert_same(found, wanted, ["run", "level"])


def test_every_miss_has_the_place_of_its_publication(tables: dict[str, DataFrame]) -> None:
    wanted = misses()
    found = delivery.missed_places(tables["pairs"], tables["publications"])
    assert_same(found, wanted, ["run", "publication", "subscription"])


def misses() -> list[Row]:
    wanted = []
    for run, trace in RUNS.items():
        made = {row["publication"]: row for row in trace["publications"]}
        begin = min((row["t"] for row in made.values()), default=0)
        for row in judged(trace):
            if row["outcome"] == "missed":
                pair = {key: row[key] for key in ("publication", "subscription", "node", "t")}
                pair["second"] = (row["t"] - begin) // 1_000_000
                place = {axis: made[row["publication"]][axis] for axis in "xyz"}
                wanted.append({"run": run, **pair, **place})
    return wanted


def test_of_too_many_misses_those_with_the_lowest_hashes_stay(
    tables: dict[str, DataFrame], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MISSED_PLACES", 3)
    keys = ["run", "publication", "subscription"]
    hashed = {
        (row["run"], row["publication"], row["subscription"]): row["hash"]
        for row in frame(spark, "expected", [{k: row[k] for k in keys} for row in misses()])
        .withColumn("hash", f.xxhash64("publication", "subscription"))
        .collect()
    }
    wanted = []
    for _, rows in groups(misses(), "run").items():
        rows.sort(key=lambda row: hashed[row["run"], row["publication"], row["subscription"]])
        wanted += rows[:3]
    assert len(wanted) < len(misses())
    shuffled = tables["pairs"].repartition(7, "subscription")
    assert_same(delivery.missed_places(shuffled, tables["publications"]), wanted, keys)


def test_percentiles_are_exact_for_groups_of_any_size(spark: SparkSession) -> None:
    chance = Random(5)
    late = {
        n: [chance.choice([0, 50_000, 60_000, chance.randrange(90_000)]) for _ in range(n)]
        for n in (*range(1, 12), 99, 100, 101, 102, 201, 500)
    }
    rows = [
        (f"run{n}", outcome, 7, 7 + each, each % 5)
        for n, those in late.items()
        for outcome, each in (*(("correct", each) for each in those), ("spurious", 99_000))
    ]
    found = delivery.latency_quantiles(
        spark.createDataFrame(rows, "run string, outcome string, t long, first long, hops long")
    )
    wanted = [
        {
            "run": f"run{n}",
            "quantile": p / 100,
            "latency_ms": percent([each / 1000 for each in those], p),
            "hops": percent([each % 5 for each in those], p),
        }
        for n, those in late.items()
        for p in range(101)
    ]
    assert_same(found, wanted, ["run", "quantile"])


def test_a_run_begins_with_the_first_table_that_has_rows_of_it(spark: SparkSession) -> None:
    first = spark.createDataFrame([("a", 50), ("a", 40)], "run string, t long")
    second = spark.createDataFrame([("a", 10), ("b", 20)], "run string, t long")
    found = delivery.first_moments(first, second)
    assert_same(found, [{"run": "a", "origin": 40}, {"run": "b", "origin": 20}], ["run"])


def test_pairs_that_were_persisted_are_not_computed_again(tables: dict[str, DataFrame]) -> None:
    for _ in range(2):  # asking once must not make Spark forget them, either
        found = delivery.delivery_totals(tables["pairs"], tables["publications"], tables["notes"])
        leaves = found._jdf.queryExecution().withCachedData().collectLeaves()
        read = [leaves.apply(i).output().mkString() for i in range(leaves.size())]
        assert any("overtaken" in columns for columns in read)
        assert not any("ended" in columns for columns in read)
