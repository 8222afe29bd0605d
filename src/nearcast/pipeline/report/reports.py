"""One self-contained page about a run, or about several side by side, and its plots as files."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nearcast.pipeline.report import page
from nearcast.pipeline.report.drawings import DRAWINGS
from nearcast.pipeline.report.plots import Plot, png, svg
from nearcast.pipeline.report.results import Results
from nearcast.storage import AnyPath, write_whole

SECTIONS = ("World", "Delivery", "Fences", "Traffic", "Awareness", "Overlay")
# Sections that only some traces have anything to say in, with the table that shows it.
OPTIONAL_SECTIONS = {"Fences": "fence_totals"}


def write_report(
    results: AnyPath, out: AnyPath, runs: Sequence[str], scenarios: Mapping[str, dict[str, Any]]
) -> AnyPath:
    """Write `report.html` into `out`, and each of its plots as SVG and PNG into `out`/plots.

    The page notes which tables are absent or empty, and shows the rest. It needs no other file.
    """
    html, plots = compose(Results(results, runs, scenarios))
    folder = out / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        name = re.sub(r"[^\w.-]", "-", plot.name)
        write_whole(folder / f"{name}.svg", svg(plot).encode())
        write_whole(folder / f"{name}.png", png(plot))
    report = out / "report.html"
    write_whole(report, html.encode())
    return report


def compose(results: Results) -> tuple[str, list[Plot]]:
    """The page, and all its plots."""
    sections = {"Summary": page.section("Summary", *summary(results))}
    plots: list[Plot] = []
    for title in SECTIONS:
        if title in OPTIONAL_SECTIONS and not results.with_rows(OPTIONAL_SECTIONS[title]):
            continue
        sections[title], drawn = section(results, title)
        plots += drawn
    sections["Scenario"] = page.section("Scenario", page.scenario_table(results))
    sections["Rejected"] = page.section("Rejected", rejected(results))
    title = f"Nearcast: {', '.join(results.labels.values())}"
    return page.page(title, page.page_head(results), sections), plots


def summary(results: Results) -> list[str]:
    needed = dict.fromkeys(table for table, _ in page.MAIN_MEASURES if table != "rejected")
    return [
        page.measure_overview(results),
        *(page.missing_table_note(results, table) for table in needed),
    ]


def section(results: Results, title: str) -> tuple[str, list[Plot]]:
    """A section: plots, then tables, then notes about missing tables."""
    plots: list[Plot] = []
    tables: list[str] = []
    needed: dict[str, None] = {}
    for drawing in DRAWINGS:
        if drawing.section == title:
            needed[drawing.table] = None
            if results.with_rows(drawing.table):
                plots += drawing.draw(results)
    for facts in page.SUMMARY_TABLES:
        if facts.section == title:
            needed[facts.table] = None
            if results.with_rows(facts.table):
                tables.append(page.summary_table(results, facts))
    for listing in page.TOP_ROWS_TABLES:
        if listing.section == title:
            needed[listing.table] = None
            if results.with_rows(listing.table):
                tables.append(page.top_rows_table(results, listing))
    if title == "Fences" and not results.with_rows("fence_examples"):
        needed.pop("fence_examples")  # nothing was missed, and nothing spurious
    if title == "Delivery":
        needed["miss_stories"] = None
        if results.with_rows("miss_stories"):
            tables.append(page.miss_stories(results))
    html = page.section(
        title,
        page.grid([page.figure(plot) for plot in plots if not plot.frames]),
        page.grid([page.figure(plot) for plot in plots if plot.frames] + tables),
        *(page.missing_table_note(results, table) for table in needed),
    )
    return html, plots


def rejected(results: Results) -> str:
    if results.with_rows("rejected"):
        return page.top_rows_table(results, page.REJECTED_TABLE)
    if results.was_counted("rejected"):
        return '<p class="note">No row was rejected: all rows of the traces were counted.</p>'
    return page.missing_table_note(results, "rejected")
