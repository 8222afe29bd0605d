"""A reproduction from end to end, small, and what its claims are made of."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from nearcast.cli.reproduce import paper_names, selected_figures
from nearcast_papers import PAPERS
from nearcast_papers.drtree.measures import frequent_popularities, slope
from nearcast_papers.drtree.paper import ALL_CLAIMS, scenario
from nearcast_papers.paper import ClaimResult, NotMeasuredError, PaperClaim
from nearcast_papers.run import gather, reproduce


def test_every_claim_of_the_papers_list_is_there_once_and_in_order() -> None:
    assert [statement.item for statement in ALL_CLAIMS] == list(range(1, 39))


def test_what_was_not_run_is_not_measured_and_says_what_was_missing() -> None:
    def rule(_: object) -> tuple[str, bool]:
        raise NotMeasuredError("nodes=10000")

    claim = PaperClaim(7, "so it is", "so", rule, note="Really.").evaluate("p", "000", None)
    assert (claim.claim, claim.holds, claim.measured) == ("000.7", None, "")
    assert claim.note == "No run with nodes=10000. Really."


def test_papers_and_figures_are_selected_by_name() -> None:
    known = {"drtree": ("2", "6"), "vso": ("1",)}
    assert selected_figures([], known) == {"drtree": ("2", "6"), "vso": ("1",)}
    assert selected_figures(["drtree:6", "drtree:2", "drtree:6"], known) == {"drtree": ("6", "2")}
    for wrong in ("dtree", "drtree:7"):
        with pytest.raises(ValueError, match=wrong.split(":")[-1]):
            selected_figures([wrong], known)


def test_help_lists_every_paper_without_importing_it() -> None:
    assert paper_names() == sorted(PAPERS)


def test_slopes_are_those_of_straight_lines_and_rare_popularities_are_left_out() -> None:
    curve = {k: (k * 10, 3.0 + 0.5 * k) for k in range(1, 9)}
    assert slope(curve, 2, 8) == pytest.approx(0.5)
    assert list(frequent_popularities(curve)) == [2, 3, 4, 5, 6, 7, 8]
    assert list(frequent_popularities({**curve, 3: (19, 1.0)})) == [2, 4, 5, 6, 7, 8]


def test_a_small_reproduction_leaves_claims_figures_and_a_page(
    spark: SparkSession, tmp_path: Path
) -> None:
    few = [
        scenario(strategy, "hot", nodes=40, cycles=10) for strategy in ("double-wave", "brothers")
    ]
    paper = replace(PAPERS["drtree"], scenarios=lambda _figure, _full: few)
    claims = reproduce(spark, paper, ("2",), tmp_path)
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["claim"] for claim in written] == [claim.claim for claim in claims]
    assert set(written[0]) == {
        "paper", "claim", "says", "expected", "measured", "holds", "soft", "note",
        "reading", "seeds", "spread", "others",
    }  # fmt: skip
    by_name = {claim.claim: claim for claim in claims}
    assert by_name["000.4"].holds is True  # nothing is missed, and it was counted
    assert "0 of" in by_name["000.4"].measured
    assert by_name["000.12"].holds is None  # nobody ran the burning distribution
    assert by_name["000.4"].seeds == (1,)
    assert by_name["000.4"].spread == ()  # of a single seed
    assert by_name["000.12"].seeds == ()
    text = (tmp_path / "report.html").read_text()
    assert "000.4" in text
    assert "one tree for all strategies" in text


def test_papers_checked_at_different_times_come_into_one_list(tmp_path: Path) -> None:
    for paper in ("first", "second"):
        claim = ClaimResult(paper=paper, claim="1", says="", expected="", measured="", holds=True)
        (tmp_path / paper).mkdir()
        (tmp_path / paper / "claims.json").write_bytes(msgspec.json.encode([claim]))
        gather(tmp_path, ["first", "absent", "second"])
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["paper"] for claim in written] == ["first", "second"]
