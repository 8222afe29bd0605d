"""Planted causes are found: each of them in at least 95 of 100 pairs."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.pipeline.explain.causes import CAUSES
from nearcast.pipeline.explain.stories import (
    Misses,
    explain,
    find_misses,
    judge_misses,
    tell_misses,
)
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.space.motion import SECOND
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder
from support.planted_causes import Pair, plant_causes
from support.realm_histories import RealmHarness

EACH = 100


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Pair, str]]:
    folder = tmp_path_factory.mktemp("planted") / "trace"
    return folder, plant_causes(folder, 7, EACH)


def judged(trace: Path) -> dict[Pair, str]:
    misses = find_misses(trace)
    causes = judge_misses(trace, misses)
    pairs = zip(misses.publications, misses.subscriptions, strict=True)
    return {pair: one.cause for pair, one in zip(pairs, causes, strict=True)}


@pytest.fixture(scope="module")
def found(planted: tuple[Path, dict[Pair, str]]) -> dict[Pair, str]:
    return judged(planted[0])


def test_planted_causes_are_found(
    planted: tuple[Path, dict[Pair, str]], found: dict[Pair, str]
) -> None:
    _, plan = planted
    missed = {pair: cause for pair, cause in plan.items() if cause != "filtered"}
    assert found.keys() == missed.keys(), "a plant did nothing, or something else was missed"
    for cause, count in Counter(missed.values()).items():
        answers = Counter(found[pair] for pair, planted in missed.items() if planted == cause)
        sys.stdout.write(f"{cause}: {answers[cause]} of {count}; {dict(answers)}\n")
        assert count >= 100
        assert answers[cause] >= 0.95 * count, (cause, answers)


def test_what_a_filter_refuses_is_not_a_miss(planted: tuple[Path, dict[Pair, str]]) -> None:
    trace, plan = planted
    pairs = [pair for pair, cause in plan.items() if cause == "filtered"]
    assert len(pairs) >= 100
    stories = tell_misses(trace, Misses([p for p, _ in pairs], [s for _, s in pairs]))
    for story in stories:
        (pair,) = story.pairs
        assert (pair.outcome, pair.cause) == ("not wanted", None)
        assert [one.name for one in pair.conditions if not one.holds] == ["filter"]
        assert f"has {story.attributes['price']}" in pair.conditions[-1].detail


def test_one_pair_is_explained_as_all_misses_are(
    planted: tuple[Path, dict[Pair, str]], found: dict[Pair, str]
) -> None:
    """Whatever else is read at the same time changes nothing."""
    trace, _ = planted
    some = {cause: pair for pair, cause in found.items()}
    assert len(some) >= 6
    for cause, (publication, subscription) in some.items():
        (story,) = explain(trace, publication, subscription).pairs
        assert (story.outcome, story.cause) == ("missed", cause)
        whole = explain(trace, publication)
        assert story in whole.pairs


def write_harness(harness: RealmHarness, folder: Path) -> Path:
    TraceFolder(folder, b'{"schema": 1}').write({name: harness.table(name) for name in TABLES})
    return folder


def test_what_throttling_withholds_was_withheld(tmp_path: Path) -> None:
    harness = RealmHarness()
    for client in range(6):
        request = messages.SubscribeRequest(0, Area(x=0.0, y=0.0, r=50.0), rates=[(0.0, 2.0)])
        harness.ask(client, request)
    for _ in range(12):
        harness.now += SECOND // 10
        harness.ask(9, messages.PublishRequest(5.0, 0.0, Raw(b"1")))
        harness.ask(8, messages.PublishRequest(7.0, 0.0, Raw(b"1")))
        delivered = harness.realm.flush(harness.now)
        harness.realm.record_deliveries(delivered.t, delivered)
    trace = write_harness(harness, tmp_path / "trace")
    assert judged(trace) == {}  # nobody misses what it did not want
    notes = [row for row in harness.table("notes").to_pylist() if row["fact"] == "withheld"]
    assert len(notes) >= 100
    asked = {(row["about"], row["node"]) for row in notes}
    for number in {number for number, _ in asked}:
        pairs = explain(trace, number).pairs
        found = {(number, pair.node) for pair in pairs if pair.outcome == "withheld"}
        assert found == {pair for pair in asked if pair[0] == number}
        assert {pair.cause for pair in pairs} <= {"withheld", None}


def test_without_ways_nothing_is_guessed(tmp_path: Path) -> None:
    lossy = Scenario(
        protocol="client-server", workload="waypoint", nodes=20, seconds=3, record="sums",
        settings={"loss": 0.1, "radius": 300.0},
    )  # fmt: skip
    simulate(lossy, tmp_path / "trace")
    found = judged(tmp_path / "trace")
    assert set(found.values()) == {"unknown"}
    (publication, subscription), *_ = found
    story = explain(tmp_path / "trace", publication, subscription)
    assert not story.way_is_recorded and story.messages == []


@pytest.mark.parametrize(
    ("protocol", "settings", "cause"),
    [
        ("client-server", {"loss": 0.05}, "lost"),
        ("vso", {"loss": 0.05}, "lost"),
        ("von", {"loss": 0.05}, "lost"),
        ("drtree", {"loss": 0.05}, "lost"),
        ("client-server", {"partition": 0.5, "partition_s": 1.0}, "partitioned"),
        ("brokers", {"partition": 0.5, "partition_s": 1.0}, "partitioned"),
        ("vso", {"partition": 0.5, "partition_s": 1.0}, "partitioned"),
    ],
)
def test_the_only_fault_of_a_run_is_the_cause_of_its_misses(
    protocol: str, settings: dict[str, float], cause: str, tmp_path: Path
) -> None:
    found: Counter[str] = Counter()
    for seed in (1, 2):
        scenario = Scenario(
            protocol=protocol, workload="waypoint", nodes=25, seconds=4, seed=seed,
            settings={"radius": 200.0, "size": 1000.0, "sample_ms": 0, **settings},
        )  # fmt: skip
        simulate(scenario, tmp_path / f"trace{seed}")
        found.update(judged(tmp_path / f"trace{seed}").values())
    sys.stdout.write(f"{protocol}, {settings}: {dict(found)}\n")
    assert found.total() >= 50
    assert found[cause] >= 0.95 * found.total()
    assert found.keys() <= CAUSES.keys()
