"""An advice as a page: the recommendation first, then charts, tables, and what was not tried."""

from collections.abc import Callable, Sequence
from html import escape
from math import nan
from typing import Any

from nearcast.pipeline.advise.advise import Advice
from nearcast.pipeline.advise.deployment import Deployment
from nearcast.pipeline.advise.measures import Measures
from nearcast.pipeline.advise.recommendation import KBIT, MBIT, Growth, Recommendation, RunRecord
from nearcast.pipeline.advise.texts import (
    end_of,
    limits_line,
    notes,
    shown_crowd,
    world_line,
)
from nearcast.pipeline.report import page
from nearcast.pipeline.report.charts import Axis, LegendKey, Series, chart
from nearcast.pipeline.report.formatting import (
    clean,
    count,
    milliseconds,
    number,
    rate,
    share,
)
from nearcast.pipeline.report.plots import SERIES, Plot

Value = Callable[[Measures], float | None]
WRAPPED = 'style="white-space: pre-wrap; overflow-wrap: anywhere"'


def safe(text: object) -> str:
    return escape(clean(text, 2000))


def advice_page(advice: Advice) -> str:
    """The whole page, in one file."""
    sections = {
        "Recommendation": page.section("Recommendation", *recommendations(advice)),
        "Overlays": page.section("Overlays", overlay_table(advice.growths)),
        "Crowd": page.section("Crowd", page.grid([page.figure(plot) for plot in charts(advice)])),
        "Runs": page.section("Runs", run_table(advice.records)),
        "Notes": page.section("Notes", note_list(notes(advice))),
    }
    title = f"Nearcast advice: {advice.facts.source.rsplit('/', 1)[-1]}"
    head = (
        f"<h1>{safe(title)}</h1><p>{safe(world_line(advice))}</p><p>{safe(limits_line(advice))}</p>"
        f"<p>{len([r for r in advice.records if r.measures]):,} runs measured in"
        f" {advice.took_s / 60:.1f} of {advice.options.budget_s / 60:g} minutes"
        f"{', then interrupted' if advice.interrupted else ''}</p>"
    )
    return page.page(title, head, sections)


def recommendations(advice: Advice) -> list[str]:
    cards = [recommendation_card("Run", advice.recommendation, advice.deployment)]
    if advice.without_server is not None:
        cards.append(
            recommendation_card(
                "Without a server", advice.without_server, advice.without_server_deployment
            )
        )
    return [page.grid(cards)]


def recommendation_card(head: str, what: Recommendation, how: Deployment | None) -> str:
    name = what.candidate.name if what.candidate else "nothing that was tried"
    about = f'<p class="note">{safe(what.candidate.about)}</p>' if what.candidate else ""
    reasons = "".join(f"<li>{safe(reason)}</li>" for reason in what.reasons)
    return (
        f'<div class="card"><h3>{safe(head)}: {safe(name)}</h3>{about}<ul>{reasons}</ul>'
        f"{commands(how) if how else ''}</div>"
    )


def commands(how: Deployment) -> str:
    file = (
        '<p class="note">nearcast.toml</p>'
        f"<pre {WRAPPED}><code>{safe(how.settings_file)}</code></pre>"
        if how.settings_file
        else ""
    )
    lines = "\n".join(how.commands)
    remarks = "".join(f'<p class="note">{safe(note)}</p>' for note in how.notes)
    return f"{file}<pre {WRAPPED}><code>{safe(lines)}</code></pre>{remarks}"


def note_list(texts: Sequence[str]) -> str:
    return f'<div class="card"><ul>{"".join(f"<li>{safe(text)}</li>" for text in texts)}</ul></div>'


# Tables.


def cell(value: Any, shown: str, kind: str = "number") -> str:
    return (
        f'<td class="{kind}" data-value="{safe("" if value is None else value)}">{safe(shown)}</td>'
    )


def whole_table(heads: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """A table that is shown in its full length."""
    table = page.sortable_table(heads, rows).replace('class="scroll"', 'class="scroll whole"', 1)
    return f'<div class="card broad">{table}</div>'


def overlay_table(growths: Sequence[Growth]) -> str:
    """Each one at the recorded crowd, how far it holds, and what breaks first."""
    heads = [("", "overlay"), ("", "what it is"), ("number", "crowd")]
    heads += [("number", head) for head, _, _ in OVERLAY_COLUMNS]
    heads += [("number", "holds to"), ("", "what breaks first")]
    rows = []
    for each in growths:
        crowd = shown_crowd(each)
        m = each.at.get(crowd)
        found = [None if m is None else value(m) for _, value, _ in OVERLAY_COLUMNS]
        rows.append(
            f"<tr>{cell(each.candidate.name, each.candidate.name, '')}"
            f"{cell(each.candidate.about, each.candidate.about, 'words')}"
            f"{cell(crowd, f'{crowd:.4g}×')}"
            + "".join(
                cell(value, form(value))
                for value, (_, _, form) in zip(found, OVERLAY_COLUMNS, strict=True)
            )
            + cell(each.holds_to, f"{each.holds_to:.4g}×" if each.holds_to else "–")
            + f"{cell(end_of(each), end_of(each), 'words')}</tr>"
        )
    return whole_table(heads, rows)


OVERLAY_COLUMNS: tuple[tuple[str, Value, Callable[[Any], str]], ...] = (
    ("recall", lambda m: m.recall, share),
    ("latency p99", lambda m: m.p99_ms, milliseconds),
    ("busiest peer", lambda m: m.peer_max_bytes_s, rate),
    ("busiest server", lambda m: m.server_max_bytes_s or None, rate),
)
RUN_COLUMNS: tuple[tuple[str, Value, Callable[[Any], str]], ...] = (
    ("recall", lambda m: m.recall, share),
    ("precision", lambda m: m.precision, share),
    ("duplicates", lambda m: m.duplicates, count),
    ("latency p50", lambda m: m.p50_ms, milliseconds),
    ("latency p99", lambda m: m.p99_ms, milliseconds),
    ("peer sends, mean", lambda m: m.peer_bytes_s, rate),
    ("p99 of peers", lambda m: m.peer_p99_bytes_s, rate),
    ("busiest peer", lambda m: m.peer_max_bytes_s, rate),
    ("peer receives, mean", lambda m: m.peer_received_bytes_s, rate),
    ("busiest server", lambda m: m.server_max_bytes_s or None, rate),
    ("simulation's CPU per node and second", lambda m: m.cpu_ms_per_node_s, milliseconds),
)


def run_table(records: Sequence[RunRecord]) -> str:
    heads = [("", "overlay"), ("number", "crowd"), ("number", "entities")]
    heads += [("number", head) for head, _, _ in RUN_COLUMNS] + [("", "run")]
    rows = []
    for each in records:
        m = each.measures
        if m is None:
            continue
        cells = "".join(cell(value(m), form(value(m))) for _, value, form in RUN_COLUMNS)
        rows.append(
            f"<tr>{cell(each.candidate, each.candidate, '')}"
            f"{cell(each.crowd, f'{each.crowd:.4g}×')}{cell(each.nodes, count(each.nodes))}"
            f"{cells}{cell(each.run, each.run, '')}</tr>"
        )
    return whole_table(heads, rows)


# Charts.


def charts(advice: Advice) -> list[Plot]:
    """The main measures against the crowd, a line for each overlay's main form, and the limits."""
    main = [each for each in advice.growths if each.at and not each.candidate.is_variant]
    limits = advice.options.limits
    bytes_ = Axis("bytes per second", rate, log=True)
    return [
        crowd_chart("recall", "Recall", Axis("share of what was wanted", share, high=1.0), main,
                    lambda m: m.recall, limits.recall),
        crowd_chart("latency", "Latency p99", Axis("milliseconds", number, low=0.0), main,
                    lambda m: m.p99_ms, limits.latency_ms),
        crowd_chart("busiest", "What the busiest peer sends", bytes_, main,
                    lambda m: m.peer_max_bytes_s, limits.uplink_kbit * KBIT),
        crowd_chart("mean", "What a peer sends on average", bytes_, main,
                    lambda m: m.peer_bytes_s),
        crowd_chart("server", "What the busiest server sends", bytes_, main,
                    lambda m: m.server_max_bytes_s or None, limits.server_mbit * MBIT),
        crowd_chart("cpu", "CPU of the simulation per node and second", Axis("milliseconds",
                    number, log=True), main, lambda m: m.cpu_ms_per_node_s),
    ]  # fmt: skip


def crowd_chart(
    name: str, title: str, y: Axis, growths: Sequence[Growth], value: Value,
    limit: float | None = None,
) -> Plot:  # fmt: skip
    """Each overlay has the same style in all charts; those without values are left out."""
    series, legend = [], []
    ends = [crowd for growth in growths for crowd in growth.at] or [1.0]
    for place, growth in enumerate(growths):
        crowds = sorted(growth.at)
        found = [value(growth.at[crowd]) for crowd in crowds]
        values = [nan if one is None else one for one in found]
        if all(one is None for one in found):
            continue
        label, style, dash = growth.candidate.name, f"s{place % SERIES}", place // SERIES
        series.append(Series(name=label, x=crowds, y=values, style=style, dash=dash))
        legend.append(LegendKey(label, style, dash))
    if limit is not None:
        span = [min(ends), max(ends)]
        series.append(Series(name="limit", x=span, y=[limit] * 2, style="alarm", dash=1))
        legend.append(LegendKey("limit", "alarm", 1))
    return chart(name, title, Axis("times the recorded crowd", number), y, series, legend)
