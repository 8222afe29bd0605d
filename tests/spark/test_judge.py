"""The quality of a log of deliveries, against counting in plain Python."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.spark import AreaColumns, ColumnsError, PointColumns, judge
from support.spatial_rows import Row, touching, with_ends

INTERESTS = AreaColumns(keys="area", radius="r", t="t", owner="who")
PUBLICATIONS = PointColumns(keys="point", t="t", owner="who")


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows))


def world(rng: np.random.Generator) -> tuple[list[Row], list[Row], list[Row]]:
    """Interests, publications, and a log of deliveries with every kind of fault."""
    interests = [
        {"area": n // 2, "shape": "disc", "x": float(rng.integers(9)), "y": float(rng.integers(9)),
         "rx": 2.0, "t": n % 2 * 1_000_000, "who": n // 2, "owner": n // 2}
        for n in range(40)
    ]  # fmt: skip
    publications = [
        {"point": n, "x": float(rng.integers(9)), "y": float(rng.integers(9)),
         "t": int(rng.integers(2_000_000)), "who": n % 20, "owner": n % 20}
        for n in range(60)
    ]  # fmt: skip
    due = touching(with_ends(interests), publications)
    made = {row["point"]: row["t"] for row in publications}
    log = [
        {"to": area, "of": point, "at": made[point] + 1_000 * (1 + number)}
        for area, point in due
        for number in range(int(rng.choice([0, 1, 1, 2, 3])))
    ]
    log += [{"to": 77, "of": 3, "at": 5}, {"to": 1, "of": 999, "at": 6}]  # spurious
    log += [{"to": None, "of": 3, "at": 5}, {"to": 1, "of": None, "at": 6}]  # of nobody
    return interests, publications, [log[n] for n in rng.permutation(len(log))]


def test_a_log_is_judged_pair_by_pair_and_in_total(spark: SparkSession) -> None:
    interests, publications, log = world(np.random.default_rng(2))
    due = set(touching(with_ends(interests), publications))
    heard = Counter((row["to"], row["of"]) for row in log if None not in row.values())
    outcomes = {
        pair: (
            "correct" if pair in due and heard[pair] else "missed" if pair in due else "spurious"
        )
        for pair in due | set(heard)
    }
    count = Counter(outcomes.values())
    assert min(count.values()) >= 2
    found = judge(
        frame(spark, log), frame(spark, publications),
        frame(spark, [row | {"r": row["rx"]} for row in interests]),
        PUBLICATIONS, INTERESTS, publication_keys="of", interest_keys="to", t="at",
    )  # fmt: skip
    rows = found.pairs.collect()
    assert found.pairs.columns == ["point", "area", "outcome", "duplicates", "latency_ms"]
    assert {(row.area, row.point): row.outcome for row in rows} == outcomes
    assert len(rows) == len(outcomes)
    extra = {pair: max(heard[pair] - 1, 0) for pair in outcomes}
    assert {(row.area, row.point): row.duplicates for row in rows} == extra
    assert {row.latency_ms for row in rows if row.outcome == "correct"} == {1.0}
    (totals,) = found.totals.collect()
    assert totals.expected == len(due)
    assert totals.delivered == heard.total()
    assert totals.duplicates == sum(extra.values())
    for outcome in ("correct", "missed", "spurious"):
        assert totals[outcome] == count[outcome]
    assert totals.recall == pytest.approx(count["correct"] / len(due))
    assert totals.precision == pytest.approx(
        count["correct"] / (count["correct"] + count["spurious"])
    )
    assert totals.latency_max_ms == 1.0


def test_without_times_and_without_deliveries_all_is_missed(spark: SparkSession) -> None:
    interests = frame(spark, [{"area": "a", "x": 0.0, "y": 0.0}])
    publications = frame(spark, [{"point": n, "x": float(n), "y": 0.0} for n in range(3)])
    log = spark.createDataFrame([], "area string, point bigint")
    columns = PointColumns(keys="point"), AreaColumns(keys="area", radius=1)
    found = judge(log, publications, interests, *columns)
    assert sorted(map(tuple, found.pairs.collect())) == [
        (0, "a", "missed", 0, None),
        (1, "a", "missed", 0, None),
    ]
    (totals,) = found.totals.collect()
    assert (totals.expected, totals.missed, totals.recall) == (2, 2, 0.0)
    assert (totals.delivered, totals.precision, totals.latency_p50_ms) == (0, None, None)


def test_logs_with_wrong_columns_are_one_clear_line(spark: SparkSession) -> None:
    interests = spark.createDataFrame([], "area string, x double, y double")
    publications = spark.createDataFrame([], "point bigint, x double, y double")
    log = spark.createDataFrame([], "area bigint, point bigint, at double")
    columns = PointColumns(keys="point"), AreaColumns(keys="area", radius=1)
    for more, said in (
        ({}, "deliveries.area is bigint, area string: they must be alike"),
        ({"interest_keys": "nope"}, "deliveries have no column 'nope'; there are: area, point, at"),
        ({"publication_keys": ("point", "at")}, "publication_keys must be 1 columns, as point"),
    ):
        with pytest.raises(ColumnsError, match=said):
            judge(log, publications, interests, *columns, **more)
    with pytest.raises(ColumnsError, match="column 'at' of deliveries must be integral"):
        judge(log, publications, interests.selectExpr("CAST(area AS BIGINT) AS area", "x", "y"),
              *columns, t="at")  # fmt: skip
