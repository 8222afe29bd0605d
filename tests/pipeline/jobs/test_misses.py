"""The causes of all misses on Spark are those that `explain` finds one by one."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.explain.stories import explain, find_misses, judge_misses
from nearcast.pipeline.explain.texts import story_lines
from nearcast.pipeline.jobs import misses
from nearcast.pipeline.spark.storage import open_traces, read_result
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate


def test_causes_and_stories_are_those_of_each_pair(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misses, "STORIES", 2)
    for name, settings in {
        "lossy": {"loss": 0.04},
        "cut": {"partition": 0.6, "partition_s": 1.0, "loss": 0.01},
        "exact": {},
    }.items():
        scenario = Scenario(
            protocol="client-server", workload="waypoint", nodes=20, seconds=13,
            settings={"radius": 150.0, "size": 1000.0, "rate": 1.0, "sample_ms": 0, **settings},
        )  # fmt: skip
        simulate(scenario, tmp_path / name)
    traces = open_traces([tmp_path / name for name in ("lossy", "cut", "exact")])
    analyse(spark, traces, tmp_path / "out", jobs=(misses.miss_causes, misses.miss_stories))
    for trace in traces:
        missed = find_misses(trace.path)
        pairs = list(zip(missed.publications, missed.subscriptions, strict=True))
        by_cause = defaultdict(list)
        for pair, one in zip(pairs, judge_misses(Path(trace.path), missed), strict=True):
            by_cause[one.cause].append(pair)
        counted = read_result(tmp_path / "out", "miss_causes", trace.run)
        assert {row["cause"]: row["misses"] for row in counted} == {
            cause: len(some) for cause, some in by_cause.items()
        }
        stories = read_result(tmp_path / "out", "miss_stories", trace.run)
        assert Counter(row["cause"] for row in stories) == {
            cause: min(2, len(some)) for cause, some in by_cause.items()
        }
        for row in stories:
            assert (row["publication"], row["subscription"]) in by_cause[row["cause"]]
            story = explain(trace.path, row["publication"], row["subscription"])
            assert row["story"].splitlines() == list(story_lines(story))
        assert bool(pairs) == (trace.path != str(tmp_path / "exact"))
