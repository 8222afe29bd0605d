"""`nearcast explain` as a person meets it."""

import json
from pathlib import Path

import pytest

from nearcast.cli.main import main
from nearcast.pipeline.explain import stories
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.trace import reader


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain") / "lossy"
    scenario = Scenario(
        protocol="client-server", workload="waypoint", nodes=20, seconds=3,
        settings={"loss": 0.1, "radius": 200.0, "size": 1000.0},
    )  # fmt: skip
    simulate(scenario, folder)
    return folder


def run_explain(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["explain", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_without_a_publication_misses_are_counted_by_cause(
    lossy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_explain(capsys, lossy)
    misses = stories.find_misses(lossy)
    assert (code, err) == (0, "")
    assert out.startswith(f"{len(misses.publications)} misses\n") and "lost: a message that" in out
    code, out, err = run_explain(capsys, lossy, "--json")
    (lost,) = json.loads(out)
    assert (code, err, lost["cause"]) == (0, "", "lost")
    assert lost["misses"] == len(misses.publications)
    pairs = set(zip(misses.publications, misses.subscriptions, strict=True))
    assert {(one["publication"], one["subscription"]) for one in lost["examples"]} <= pairs


def test_the_story_is_text_or_one_json_document(
    lossy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    misses = stories.find_misses(lossy)
    pair = misses.publications[0], misses.subscriptions[0]
    code, out, err = run_explain(capsys, lossy, *pair)
    assert (code, err) == (0, "")
    assert f"subscription {pair[1]} of node" in out and "missed" in out
    assert "inside its region" in out and "cause: lost" in out
    code, out, err = run_explain(capsys, lossy, *pair, "--json")
    story = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["subscription"] for one in story["pairs"]] == [pair[1]]
    assert story["pairs"][0]["cause"] == "lost"


def test_a_delivered_pair_has_its_way_and_times(
    lossy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = reader.read(lossy, "deliveries").to_pylist()[0]
    code, out, _ = run_explain(capsys, lossy, row["publication"], row["subscription"])
    assert code == 0
    assert ": correct\n" in out and "after 100.0 ms and 2 hops" in out
    assert f"→ {row['node']}\n" in out and "Notify" in out


def test_what_is_not_there_is_said_in_one_line(
    lossy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = reader.read(lossy, "publications").column("publication").to_pylist()
    code, out, err = run_explain(capsys, lossy, 77)
    assert (code, out) == (1, "")
    assert err == (
        f"nearcast: {lossy} has no publication 77; it has {len(ids)}, numbered from {min(ids)} to"
        f" {max(ids)}\n"
    )
    code, out, err = run_explain(capsys, lossy, ids[0], 77)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "has no subscription 77" in err and "numbered from" in err
    code, out, err = run_explain(capsys, tmp_path / "nowhere", 1)
    assert (code, out, err.count("\n")) == (1, "", 1) and "no trace" in err
    monkeypatch.setattr(stories, "SMALL_ROWS", 10)
    code, out, err = run_explain(capsys, lossy)
    assert (code, out, err.count("\n")) == (1, "", 1) and "nearcast analyse" in err
