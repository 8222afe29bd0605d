"""The texts and tables of a report's page. All text from traces passes through `safe`."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from nearcast.pipeline.report.formatting import (
    clean,
    count,
    is_missing,
    milliseconds,
    number,
    rate,
    seconds,
    share,
    size,
    text,
)
from nearcast.pipeline.report.plots import Plot, css, frame_paths, series_style, svg
from nearcast.pipeline.report.results import (
    Results,
    column,
    differing_settings,
    first_row,
    format_setting,
    own_settings,
    top_rows,
)

MAX_ROWS = 50  # rows of a table that a page shows for each run
MAX_STORY = 20_000  # characters of a miss's story
Formatter = Callable[[Any], str]


class Column(Struct, frozen=True):
    """A column of a result table as the page shows it."""

    name: str
    head: str
    format: Formatter = count


class TopRowsTable(Struct, frozen=True):
    """A result table as a table of the page: its rows with the highest values in some columns."""

    section: str
    table: str
    title: str
    columns: list[Column]
    by: tuple[str, ...] = ()


class SummaryTable(Struct, frozen=True):
    """A result table with one row for each run."""

    section: str
    table: str
    title: str
    columns: list[Column]


OUTCOME_COLUMNS = [Column(name, name) for name in
            ("expected", "correct", "missed", "spurious", "duplicates")]  # fmt: skip
AWARENESS_COLUMNS = [
    Column("nodes", "nodes"), Column("known", "known, mean", number),
    Column("should", "should be known, mean", number),
    Column("true_positives", "true positives"), Column("false_positives", "false positives"),
    Column("false_negatives", "false negatives"), Column("precision", "precision", share),
    Column("recall", "recall", share), Column("accuracy", "accuracy", share),
    Column("specificity", "specificity", share), Column("consistency", "consistency", share),
    Column("position_difference_mean", "position error, mean", number),
    Column("position_difference_p90", "position error p90", number),
]  # fmt: skip

# The overview at the top, as (table, column): the main measures large, the others small.
MAIN_MEASURES = [
    ("delivery_totals", Column("recall", "recall", share)),
    ("delivery_totals", Column("precision", "precision", share)),
    ("delivery_totals", Column("latency_p50_ms", "latency p50", milliseconds)),
    ("delivery_totals", Column("latency_p99_ms", "latency p99", milliseconds)),
    *(("delivery_totals", one) for one in OUTCOME_COLUMNS),
    ("traffic_totals", Column("messages", "messages")),
    ("traffic_totals", Column("bytes", "bytes", size)),
    ("rejected", Column("rows", "rejected rows")),
]
OTHER_MEASURES = [
    ("delivery_totals", Column("delivered", "delivered")),
    ("delivery_totals", Column("latency_mean_ms", "latency, mean", milliseconds)),
    ("delivery_totals", Column("latency_p90_ms", "latency p90", milliseconds)),
    ("delivery_totals", Column("latency_max_ms", "latency, longest", milliseconds)),
    ("delivery_totals", Column("hops_mean", "hops, mean", number)),
    ("delivery_totals", Column("order_violations", "out of order")),
    ("delivery_totals", Column("withheld", "withheld on purpose")),
    ("traffic_totals", Column("lost", "messages lost")),
    ("traffic_totals", Column("subscription_bytes", "bytes without publications", size)),
    ("traffic_totals", Column("gini_sent", "Gini of bytes sent", number)),
    ("traffic_totals", Column("gini_received", "Gini of bytes received", number)),
    ("traffic_totals", Column("max_over_mean_sent", "busiest sender / mean", number)),
]
ALARMING = ("missed", "spurious", "duplicates", "rejected rows", "out of order")

SUMMARY_TABLES = [
    SummaryTable("World", "world_movement", "The world", [
        Column("entities", "entities"), Column("speed_mean", "speed, mean", number),
        Column("speed_p50", "speed p50", number),
        Column("speed_p90", "speed p90", number),
        Column("speed_max", "speed, highest", number),
        Column("still_share", "share of time without movement", share),
        Column("dwell_mean_s", "stay in a cell, mean", seconds),
        Column("dwell_p90_s", "stay in a cell p90", seconds),
        Column("area_mean", "area of interest, mean", number),
        Column("neighbours_mean", "receivers of a publication, mean", number),
        Column("neighbours_max", "receivers of a publication, maximum"),
        Column("clustering", "clustering of publishers and receivers", share),
        Column("crowding", "entities in the fullest tenth of cells", share)]),
    SummaryTable("Traffic", "traffic_totals", "Total traffic", [
        Column("messages", "messages"), Column("bytes", "bytes"), Column("lost", "messages lost"),
        Column("publication_messages", "messages with a publication"),
        Column("publication_bytes", "their bytes"),
        Column("subscription_messages", "messages without"),
        Column("subscription_bytes", "their bytes"),
        Column("gini_sent", "Gini of bytes sent (0: all equal, 1: one sends all)", number),
        Column("gini_received", "Gini of bytes received", number),
        Column("max_over_mean_sent", "busiest sender / mean", number),
        Column("max_over_mean_received", "busiest receiver / mean", number)]),
    SummaryTable("Awareness", "awareness_totals", "Total awareness", AWARENESS_COLUMNS),
]  # fmt: skip

TOP_ROWS_TABLES = [
    TopRowsTable("Delivery", "delivery_by_node", "Subscribers that missed the most", [
        Column("node", "node", text), *OUTCOME_COLUMNS,
        Column("latency_mean_ms", "latency, mean", milliseconds)], ("missed", "expected")),
    TopRowsTable("Delivery", "delivery_by_channel", "Channels", [
        Column("channel", "channel", text), Column("publications", "publications"),
        *OUTCOME_COLUMNS,
        Column("latency_p50_ms", "latency p50", milliseconds)], ("expected",)),
    TopRowsTable("Delivery", "false_positives_by_level", "Carried, by level of the receiver", [
        Column("level", "level", number), Column("nodes", "nodes"), Column("carried", "carried"),
        Column("unwanted", "unwanted"), Column("rate_mean", "of each node, mean", share),
        Column("rate_std", "standard deviation", share)], ("carried",)),
    TopRowsTable("Delivery", "miss_causes", "Why publications were missed", [
        Column("cause", "cause", text), Column("misses", "misses")], ("misses",)),
    TopRowsTable("Fences", "fence_totals", "Fence events", [
        Column("kind", "event", text), Column("expected", "expected"), Column("told", "told"),
        Column("missed", "missed"), Column("spurious", "spurious"),
        Column("unsettled", "unsettled"), Column("late_p50_ms", "late p50", milliseconds),
        Column("late_p99_ms", "late p99", milliseconds),
        Column("delay_p50_ms", "delay p50", milliseconds),
        Column("delay_p99_ms", "delay p99", milliseconds),
        Column("delay_max_ms", "delay, longest", milliseconds)], ("expected",)),
    TopRowsTable("Fences", "fence_examples", "Some that were missed or spurious", [
        Column("outcome", "outcome", text), Column("kind", "event", text),
        Column("reason", "reason", text), Column("subscription", "subscription", text),
        Column("node", "subscriber", text), Column("fence", "fence of a set", text),
        Column("entity", "entity", text), Column("event_t", "happened at (µs)", text),
        Column("decided", "decided at (µs)", text), Column("told", "told at (µs)", text)]),
    TopRowsTable("Traffic", "traffic_by_kind", "Kinds of messages", [
        Column("kind", "kind", text), Column("messages", "messages"), Column("bytes", "bytes"),
        Column("lost", "lost"), Column("carries", "with a publication", share)], ("bytes",)),
    TopRowsTable("Traffic", "traffic_by_node", "Busiest nodes", [
        Column("node", "node", text), Column("sent_messages", "messages sent"),
        Column("sent_bytes", "bytes sent"), Column("received_messages", "received"),
        Column("received_bytes", "bytes received"), Column("fan_out", "sends to"),
        Column("fan_in", "receives from"), Column("peak_sent_bytes_per_s", "peak sent", rate),
        Column("peak_received_bytes_per_s", "peak received", rate)],
        ("sent_bytes", "received_bytes")),
    TopRowsTable("Awareness", "awareness_by_node", "Nodes with the most false negatives", [
        Column("node", "node", text), Column("known", "known, mean", number),
        Column("should", "should be known, mean", number),
        Column("false_negatives", "false negatives"), Column("recall", "recall", share),
        Column("precision", "precision", share),
        Column("position_difference_mean", "position error, mean", number)],
        ("false_negatives",)),
    TopRowsTable("Overlay", "overlay_links", "Busiest links", [
        Column("node", "from", text), Column("to", "to", text), Column("messages", "messages"),
        Column("bytes", "bytes"), Column("first_s", "first used", seconds),
        Column("last_s", "last used", seconds)], ("bytes",)),
    TopRowsTable("Overlay", "ownership", "Owners with the most subscriptions", [
        Column("second", "at second"), Column("owner", "owner", text),
        Column("subscriptions", "subscriptions"), Column("changes", "taken over")],
        ("subscriptions",)),
]  # fmt: skip
REJECTED_TABLE = TopRowsTable("Rejected", "rejected", "", [
    Column("table", "table", text), Column("file", "file", text), Column("reason", "reason", text),
    Column("rows", "rows")], ("rows",))  # fmt: skip


def safe(value: object) -> str:
    return escape(clean(value))


def table_cell(column: Column, value: Any) -> str:
    """A formatted value; the exact one is there for sorting, and shown on hover."""
    exact = "" if is_missing(value) else safe(value)
    if column.format is text:
        shown_text = exact if value is None or exact else "(empty)"
        shown = shown_text or text(None)
        kind = "words" if isinstance(value, str) else "number"
        return f'<td class="{kind}" data-value="{exact}">{shown}</td>'
    return f'<td class="number" data-value="{exact}" title="{exact}">{column.format(value)}</td>'


def run_name(results: Results, run: str) -> str:
    colour = series_style(results.runs.index(run))
    return (
        f'<span class="plot"><span class="chip {colour}"></span></span>{safe(results.labels[run])}'
    )


def run_cell(results: Results, run: str) -> str:
    return f'<td data-value="{safe(results.labels[run])}">{run_name(results, run)}</td>'


def sortable_table(heads: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """A table from (class, head) of its columns and its finished rows."""
    top_row = "".join(
        f'<th scope="col" class="{kind}" aria-sort="none"><button>{safe(head)}</button></th>'
        for kind, head in heads
    )
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{top_row}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def top_rows_table(results: Results, one: TopRowsTable) -> str:
    """A result table as HTML: for each run the rows with the highest values."""
    several = len(results.runs) > 1
    rows, left_out = [], 0
    numeric: dict[str, bool] = {}
    for run, table in results.with_rows(one.table).items():
        left_out += max(0, len(table) - MAX_ROWS)
        for each in one.columns:
            numeric[each.name] = pa.types.is_primitive(column(table, each.name).type)
        whose = run_cell(results, run) if several else ""
        for row in top_rows(table, MAX_ROWS, *one.by).to_pylist():
            cells = "".join(table_cell(each, row[each.name]) for each in one.columns)
            rows.append(f"<tr>{whose}{cells}</tr>")
    heads = [("", "run")] if several else []
    heads += [("number" if numeric[each.name] else "", each.head) for each in one.columns]
    rest = f'<p class="note">{count(left_out)} more rows are in <code>{one.table}</code>.</p>'
    title = f"<h3>{safe(one.title)}</h3>" if one.title else ""
    broad = " broad" if several or len(one.columns) > 6 else ""
    more = rest if left_out else ""
    return f'<div class="card{broad}">{title}{sortable_table(heads, rows)}{more}</div>'


MISS_COLUMNS = [
    Column("cause", "cause", text), Column("publication", "publication", text),
    Column("subscription", "subscription", text), Column("node", "node", text),
]  # fmt: skip


def miss_stories(results: Results) -> str:
    """Some misses of each cause; a click on one shows its story."""
    several = len(results.runs) > 1
    rows: list[str] = []
    stories: list[str] = []
    for run, table in results.with_rows("miss_stories").items():
        whose = run_cell(results, run) if several else ""
        names = [*(each.name for each in MISS_COLUMNS), "story"]
        values = (column(table, name).to_pylist() for name in names)
        for *row, story in zip(*values, strict=True):
            cells = "".join(map(table_cell, MISS_COLUMNS, row))
            show = '<td data-value=""><button type="button">show</button></td>'
            rows.append(f'<tr data-story="{len(stories)}">{whose}{cells}{show}</tr>')
            stories.append(clean(story or "", MAX_STORY))
    heads = [("", "run")] if several else []
    heads += [("", "cause"), *(("number", each.head) for each in MISS_COLUMNS[1:]), ("", "story")]
    embedded = msgspec.json.encode(stories).decode().replace("<", "\\u003c")
    return (
        '<div class="card broad" data-stories><h3>Some misses, and why</h3>'
        f"{sortable_table(heads, rows)}<pre hidden></pre>"
        f'<script type="application/json">{embedded}</script></div>'
    )


def summary_table(results: Results, one: SummaryTable) -> str:
    """A result table with one row per run as HTML: one line per measure, one column per run."""
    found = {run: first_row(rows) for run, rows in results.with_rows(one.table).items()}
    lines = [
        f'<tr><th scope="row">{safe(each.head)}</th>'
        + "".join(table_cell(each, row.get(each.name)) for row in found.values())
        + "</tr>"
        for each in one.columns
    ]
    return (
        f'<div class="card{" broad" if len(found) > 2 else ""}"><h3>{safe(one.title)}</h3>'
        '<div class="scroll whole"><table>'
        f"{run_heads(results, list(found))}<tbody>{''.join(lines)}</tbody></table></div></div>"
    )


def run_heads(results: Results, runs: Sequence[str]) -> str:
    if len(results.runs) == 1:
        return ""
    heads = "".join(f'<th scope="col" class="number">{run_name(results, run)}</th>' for run in runs)
    return f"<thead><tr><th></th>{heads}</tr></thead>"


def scenario_table(results: Results) -> str:
    """All settings, those that differ between runs first and marked."""
    known = {run: one for run, one in results.scenarios.items() if one}
    if not known:
        return '<p class="note">No scenario is known: the trace was not made by a simulation.</p>'
    differ = differing_settings(results.scenarios)
    names = dict.fromkeys([*differ, *(name for one in known.values() for name in one)])
    lines = [
        f'<tr{" class=differs" if name in differ else ""}><th scope="row">{safe(name)}</th>'
        + "".join(
            f'<td class="number">{safe(format_setting(one.get(name, "")))}</td>'
            for one in known.values()
        )
        + "</tr>"
        for name in names
    ]
    return (
        '<div class="card"><div class="scroll whole"><table class="settings">'
        f"{run_heads(results, list(known))}<tbody>{''.join(lines)}</tbody></table></div></div>"
    )


# The overview.


def measure_value(results: Results, table: str, name: str, run: str) -> Any:
    """A value of the overview; rejected rows are summed, and 0 if the job found none."""
    rows = results.table(table, run)
    if table != "rejected":
        return first_row(rows).get(name)
    if len(rows):
        return pc.sum(column(rows, name)).as_py()
    return 0 if results.was_counted(table) else None


def measure_tile(one: Column, value: Any) -> str:
    """One value of the overview; a rounded size has the exact number of bytes below."""
    bad = " class=bad" if one.head in ALARMING and value else ""
    exact = "" if is_missing(value) else safe(value)
    below = f"<dd>{value:,} bytes</dd>" if one.format is size and value is not None else ""
    shown = f'<dd title="{exact}">{one.format(value)}</dd>{below}'
    return f"<div{bad}><dt>{safe(one.head)}</dt>{shown}</div>"


def measure_overview(results: Results) -> str:
    """The overview: tiles for one run, sortable tables for several."""
    if len(results.runs) == 1:
        (run,) = results.runs
        tiles = [
            "".join(
                measure_tile(one, measure_value(results, table, one.name, run))
                for table, one in group
            )
            for group in (MAIN_MEASURES, OTHER_MEASURES)
        ]
        return f'<dl class="tiles">{tiles[0]}</dl><dl class="tiles small">{tiles[1]}</dl>'
    return grid([measure_table(results, group) for group in (MAIN_MEASURES, OTHER_MEASURES)])


def measure_table(results: Results, group: Sequence[tuple[str, Column]]) -> str:
    rows = []
    for run in results.runs:
        values = [(one, measure_value(results, table, one.name, run)) for table, one in group]
        rows.append(
            f"<tr>{run_cell(results, run)}{''.join(table_cell(*pair) for pair in values)}</tr>"
        )
    heads = [("", "run"), *(("number", one.head) for _, one in group)]
    return f'<div class="card broad">{sortable_table(heads, rows)}</div>'


def page_head(results: Results) -> str:
    """The heading: the scenario of a single run, or the list of runs that are compared."""
    if len(results.runs) == 1:
        (run,) = results.runs
        one = results.scenarios[run]
        facts = [f"{one['nodes']:,} entities"] if isinstance(one.get("nodes"), int) else []
        facts += [
            f"{name} {format_setting(one[name])}"
            for name in ("seconds", "seed", "record")
            if name in one
        ]
        about = " · ".join(safe(part) for part in (*facts, f"run {run}"))
        return f"<h1>{safe(results.labels[run])}</h1><p>{about}</p>"
    runs = "".join(
        f"<li>{run_name(results, run)} "
        f'<span class="note">· {full_settings(results, run)}</span></li>'
        for run in results.runs
    )
    return f'<h1>{len(results.runs)} runs compared</h1><ul class="runs">{runs}</ul>'


def full_settings(results: Results, run: str) -> str:
    """The settings that a run's label leaves out, and its number."""
    own = ", ".join(own_settings(results.scenarios)[run])
    rest = "" if own in ("", results.labels[run]) else f"{escape(clean(own, 2000))} · "
    return f"{rest}run {safe(run)}"


# Plots, sections, the page.


def figure(plot: Plot) -> str:
    """A plot as HTML; one with frames has a slider."""
    drawn = svg(plot, alone=False)
    if not plot.frames:
        return f'<figure class="card">{drawn}</figure>'
    paths = msgspec.json.encode(frame_paths(plot)).decode().replace("<", "\\u003c")
    above = any(one.above for one in plot.frames)
    misses = '<label><input type="checkbox" checked> misses</label>' if above else ""
    group = safe(plot.name.split()[0])
    return (
        f'<figure class="card" data-group="{group}">{drawn}<div class="controls">'
        f'<button type="button">Play</button><input type="range" min="0"'
        f' max="{len(plot.frames) - 1}" value="{plot.shown}" aria-label="time">'
        f"<output>{safe(plot.frames[plot.shown].label)}</output>{misses}</div>"
        f'<script type="application/json">{paths}</script></figure>'
    )


def missing_table_note(results: Results, table: str) -> str:
    """A note that a table is absent or empty; nothing if every run has rows."""
    without = [results.labels[run] for run in results.runs if not len(results.table(table, run))]
    if not without:
        return ""
    why = "has no rows" if results.was_counted(table) else "is absent"
    whose = "" if len(without) == len(results.runs) else f" for {safe(', '.join(without))}"
    return f'<p class="note">The table <code>{safe(table)}</code> {why}{whose}.</p>'


def grid(cards: Sequence[str]) -> str:
    return f'<div class="grid">{"".join(cards)}</div>' if cards else ""


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def section(title: str, *parts: str) -> str:
    return f'<section id="{anchor(title)}"><h2>{title}</h2>{"".join(parts)}</section>'


def page(title: str, head: str, sections: Mapping[str, str]) -> str:
    """The whole page: the template with its parts, which may contain anything."""
    script = files("nearcast.pipeline.report").joinpath("report.js").read_text("utf-8")
    template = files("nearcast.pipeline.report").joinpath("report.html").read_text("utf-8")
    parts = {
        "title": safe(title),
        "script-hash": "sha256-" + b64encode(sha256(script.encode()).digest()).decode(),
        "plot-css": css(),
        "head": head,
        "nav": "".join(f'<a href="#{anchor(name)}">{name}</a>' for name in sections),
        "main": "\n".join(sections.values()),
        "script": script,
    }
    return re.sub(r"<!--([a-z-]+)-->", lambda found: parts[found[1]], template)
