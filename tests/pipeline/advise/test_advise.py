"""`nearcast advise` as a person meets it: a small recording, two overlays, on Spark."""

import json
from pathlib import Path
from time import time

import pytest
from pyspark.sql import SparkSession

from nearcast.cli import advise as command
from nearcast.cli.main import main, parser
from nearcast.pipeline.advise.advise import Advice, AdviceOptions, Adviser
from nearcast.pipeline.advise.page import advice_page
from nearcast.pipeline.advise.runs import SparkRuns
from nearcast.pipeline.advise.world import WorldOptions, prepare_world
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.trace import reader
from support.brute_force import delivered, expected

WALK = "t,entity,x,y\n" + "".join(
    f"{t / 2},{who},{(3 * t + 11 * who) % 40},{7 * who % 30}\n"
    for t in range(41)
    for who in range(6)
)


def run(spark: SparkSession, folder: Path, only: tuple[str, ...]) -> tuple[Advice, list[str]]:
    file = folder / "walk.csv"
    file.write_text(WALK)
    options = AdviceOptions(
        budget_s=600.0, crowds=(2.0,), only=only, world=WorldOptions(seconds=6.0, radius=15.0)
    )
    out = folder / "out"
    facts, world = prepare_world(file, out, options.world)
    told: list[str] = []
    adviser = Adviser(SparkRuns(spark, out), facts, world, options, 600.0, told.append)
    advice = adviser.run(lambda found: command.write_advice(found, out))
    return advice, told


def test_two_overlays_are_simulated_measured_and_compared(
    spark: SparkSession, tmp_path: Path
) -> None:
    advice, _ = run(spark, tmp_path, ("client-server", "drtree"))
    at = {each.candidate.name: each.at for each in advice.growths}
    assert {name: sorted(crowds) for name, crowds in at.items()} == {
        "client-server": [1.0, 2.0],
        "drtree": [1.0, 2.0],
    }
    for record in advice.records:
        measures, trace = record.measures, tmp_path / "out" / "traces" / record.run
        assert measures is not None
        made = reader.read(trace, "publications")
        begins = min(made["t"].to_pylist()) + 2_000_000  # a third of the window is not judged
        judged = {row["publication"] for row in made.to_pylist() if row["t"] >= begins}
        due = {pair for pair in expected(reader.read(trace, "interests"), made)
               if pair[0] in judged}  # fmt: skip
        got = set(delivered(reader.read(trace, "deliveries")))
        assert (measures.expected, measures.missed) == (len(due), len(due - got))
        assert measures.recall == len(due & got) / len(due)
        sent: dict[int, int] = {}
        last = max(made["t"].to_pylist())
        for row in reader.read(trace, "messages").to_pylist():
            if begins <= row["t"] <= last and row["node"] < 2**40:
                sent[row["node"]] = sent.get(row["node"], 0) + row["bytes"]
        seconds = (last - begins) / 1e6
        assert measures.peer_max_bytes_s == pytest.approx(max(sent.values()) / seconds)
        assert measures.peer_bytes_s == pytest.approx(sum(sent.values()) / seconds / record.nodes)
    assert at["client-server"][1.0].recall == 1
    written = json.loads((tmp_path / "out" / "advice.json").read_text())
    assert written["recommendation"]["candidate"]["name"] == "client-server"
    page = (tmp_path / "out" / "advice.html").read_text()
    assert "nearcast peer --overlay drtree" in page
    assert "src=" not in page and 'href="http' not in page  # it needs no other file
    assert page == advice_page(advice)

    began = time()
    again, told = run(spark, tmp_path, ("client-server", "drtree"))
    assert [each.measures for each in again.records] == [each.measures for each in advice.records]
    traces = tmp_path / "out" / "traces"
    assert all(path.stat().st_mtime < began for path in traces.iterdir()), told


@pytest.mark.parametrize("deep", [False, True])
def test_every_candidate_is_a_scenario_that_can_be_run(tmp_path: Path, deep: bool) -> None:
    for each in scenarios(tmp_path, deep):
        assert each.workload == "replayed"


@pytest.mark.soak
@pytest.mark.parametrize("deep", [False, True])
def test_every_candidate_delivers_most_of_a_small_world(tmp_path: Path, deep: bool) -> None:
    for each in scenarios(tmp_path, deep):
        trace = tmp_path / each.run
        simulate(each, trace, check=True)
        due = expected(reader.read(trace, "interests"), reader.read(trace, "publications"))
        got = delivered(reader.read(trace, "deliveries"))
        assert len(due & set(got)) > 0.5 * len(due) > 50, each.protocol
        assert len(got) == len(set(got)), each.protocol


def scenarios(folder: Path, deep: bool) -> list[Scenario]:
    """Of all candidates, with twice the crowd."""
    file = folder / "walk.csv"
    lines = WALK.splitlines()
    file.write_text("\n".join([f"{lines[0]},z", *(f"{x},{n % 5}" for n, x in enumerate(lines[1:]))])
                    if deep else WALK)  # fmt: skip
    facts, world = prepare_world(file, folder / "out", WorldOptions(seconds=8.0, radius=20.0))
    assert facts.is_deep == deep
    adviser = Adviser(NoRuns(), facts, world, AdviceOptions(), 600.0, lambda _: None)
    return [adviser.scenario(each, 2.0) for each in adviser.candidates]


class NoRuns(SparkRuns):
    """Where nothing is run."""

    def __init__(self) -> None:
        self.slots = 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["none.csv"], "there is no"),
        (["walk.csv", "--budget", "0"], "--budget must be above 0"),
        (["walk.csv", "--budget", "nan"], "--budget must be above 0"),
        (["walk.csv", "--crowds", "2,many"], "--crowds takes numbers with commas"),
        (["walk.csv", "--crowds", "0.5"], "--crowds takes numbers above 1"),
        (["walk.csv", "--only", "drtee"], "no overlay 'drtee'"),
        (["walk.csv", "--radius", "-1"], "radius must be between"),
        (["walk.csv", "--payload", "-1"], "payload must be between"),
        (["walk.csv", "--faster", "0"], "faster must be between"),
        (["walk.csv", "--seconds", "1000"], "does not fit"),
        (["walk.csv", "--recall", "2"], "recall must be between"),
        (["walk.csv", "--latency-ms", "-1"], "latency_ms must be between"),
    ],
)
def test_wrong_use_is_one_line_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: list[str], why: str,
) -> None:  # fmt: skip
    (tmp_path / "walk.csv").write_text(WALK)
    monkeypatch.chdir(tmp_path)
    assert main(["advise", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert why in err


def test_the_help_names_the_limits() -> None:
    arguments = parser().parse_args(["advise", "walk.csv"])
    assert command.read_options(arguments).limits.latency_ms == 150
