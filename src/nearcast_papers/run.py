"""`nearcast reproduce`: simulate, count, compare, and leave claims.json and a page with figures."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import msgspec
from msgspec import to_builtins
from pyspark.sql import SparkSession

from nearcast.pipeline import sweeps
from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.report import page
from nearcast.pipeline.report.plots import png, svg
from nearcast.pipeline.report.results import Results
from nearcast.pipeline.spark import storage
from nearcast.sim.world import resolve
from nearcast.storage import write_whole
from nearcast_papers.paper import ClaimResult, CountedRuns, Figure, Paper

Show = Callable[[str, int, int], None]


def reproduce(
    spark: SparkSession,
    paper: Paper,
    figures: Sequence[str],
    out: Path,
    *,
    full: bool = False,
    show: Show | None = None,
) -> list[ClaimResult]:
    """Run what these figures need, unless it is there already, and judge the paper's claims."""
    wanted = (scenario for figure in figures for scenario in paper.scenarios(figure, full))
    resolved = (resolve(scenario)[0] for scenario in wanted)
    members = {
        scenario.run: sweeps.SweepMember(scenario.run, {}, scenario) for scenario in resolved
    }

    def shown(progress: sweeps.SweepProgress) -> None:
        if show is not None:
            ended = progress.skipped + progress.done + progress.failed
            left = "" if progress.left_s is None else f", {progress.left_s:.0f} s left"
            show(f"simulation {ended} of {progress.total}{left}", ended, progress.total)

    ordered = sorted(members.values(), key=expected_work, reverse=True)
    done = sweeps.run_members(spark, ordered, paper.name, out, shown)
    if not done.runs:
        raise RuntimeError(f"every simulation failed; {out / 'failures'} tells why")
    runs = [run for run in members if run in set(done.runs)]
    scenarios = [members[run].scenario for run in runs]
    traces = storage.open_traces([out / "traces" / run for run in runs])
    analyse(spark, traces, out / "results", show, paper.jobs)
    results = Results(out / "results", runs, {s.run: to_builtins(s) for s in scenarios})
    counted = CountedRuns(results, scenarios)
    claims, drawn = paper.claims(counted), paper.draw(counted)
    write_whole(out / "claims.json", msgspec.json.format(msgspec.json.encode(claims), indent=2))
    shortest = min(scenario.seconds for scenario in scenarios)
    write_whole(out / "report.html", _page(paper, drawn, claims, shortest).encode())
    (out / "figures").mkdir(exist_ok=True)
    for figure in drawn:
        for plot in figure.plots:
            write_whole(out / "figures" / f"{plot.name}.svg", svg(plot).encode())
            write_whole(out / "figures" / f"{plot.name}.png", png(plot))
    return claims


def expected_work(member: sweeps.SweepMember) -> float:
    """Roughly, for an order: the longest run begins first, so that none is left alone at the end.

    Areas are as large in small worlds as in large ones, so deliveries grow with pairs of nodes.
    """
    return member.scenario.nodes**2 * member.scenario.seconds


def gather(out: Path, papers: Sequence[str]) -> None:
    """One list of the claims of all papers that have a folder here, judged now or earlier."""
    lists = [out / paper / "claims.json" for paper in papers]
    claims = [claim for file in lists if file.exists() for claim in _claims(file)]
    write_whole(out / "claims.json", msgspec.json.format(msgspec.json.encode(claims), indent=2))


def _claims(file: Path) -> list[ClaimResult]:
    return msgspec.json.decode(file.read_bytes(), type=list[ClaimResult])


def counts(claims: Sequence[ClaimResult]) -> tuple[int, int, int]:
    """How many hold, how many do not, and how many were not measured."""
    answers = [claim.holds for claim in claims]
    return answers.count(True), answers.count(False), answers.count(None)


def summary(claims: Sequence[ClaimResult]) -> str:
    """How many hold, and how many of those that are not soft."""
    held, failed, unknown = counts(claims)
    firm, firmly_failed, _ = counts([claim for claim in claims if not claim.soft])
    others = sum(
        claim.holds is False and not claim.soft and any(one.holds for one in claim.others)
        for claim in claims
    )
    return (
        f"{held} claims hold, {failed} do not, {unknown} were not measured; soft ones aside"
        f" {firm} of {firm + firmly_failed} that were measured hold, and {others} more hold by"
        " another reading alone"
    )


OUTCOMES = {True: "holds", False: "does not hold", None: "not measured"}


def _page(
    paper: Paper, figures: Sequence[Figure], claims: Sequence[ClaimResult], seconds: float
) -> str:
    by_name = {claim.claim: claim for claim in claims}
    sections = {
        figure.number: page.section(
            figure.number,
            f'<p class="note">{escape(figure.caption)}</p>',
            page.grid([page.figure(plot) for plot in figure.plots]),
            _listed([by_name[name] for name in figure.claims]),
        )
        for figure in figures
    }
    sections["Claims"] = page.section("Claims", _listed(claims))
    head = (
        f"<h1>{escape(paper.title)}</h1><p>{summary(claims)}. Runs of {seconds:g} simulated seconds"
        " and more.</p>"
    )
    return page.page(f"Nearcast: {paper.title}", head, sections)


def _listed(claims: Sequence[ClaimResult]) -> str:
    rows = [
        f'<tr><td>{escape(c.claim)}</td><td class="words">{escape(c.says)}</td>'
        f'<td class="words">{escape(c.expected)}</td><td class="words">{escape(c.measured)}</td>'
        f'<td class="words">{OUTCOMES[c.holds]}{" (soft)" if c.soft else ""}</td>'
        f'<td class="words">{escape(_read(c))}</td>'
        f'<td class="words">{escape(c.note)}</td></tr>'
        for c in claims
    ]
    heads = (
        "claim",
        "the paper says",
        "we expect",
        "we measured",
        "so it",
        "read, on seeds",
        "note",
    )
    table = page.sortable_table([("", head) for head in heads], rows)
    return f'<div class="card broad">{table}</div>' if rows else ""


def _read(claim: ClaimResult) -> str:
    """How the paper was read, on which seeds, and on how many of them alone the claim holds."""
    parts = [claim.reading] if claim.reading else []
    if claim.seeds:
        parts.append(f"seeds {_spans(claim.seeds)}")
    if claim.spread:
        held = sum(one.holds for one in claim.spread)
        parts.append(f"holds on {held} of {len(claim.spread)} alone")
    return "; ".join(parts)


def _spans(seeds: Sequence[int]) -> str:
    """Three and more in a row are told by the first and the last."""
    first, last = seeds[0], seeds[-1]
    whole = len(seeds) > 2 and list(seeds) == list(range(first, last + 1))
    return f"{first} to {last}" if whole else ", ".join(map(str, seeds))
