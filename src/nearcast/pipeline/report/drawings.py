"""The plots of a report: a list of drawings in reading order, each from result tables to plots.

A drawing names the table that it needs. Another plot is one more function and one more line at the
end of this file.
"""

from collections.abc import Callable, Sequence
from math import ceil, floor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from nearcast.pipeline.report.charts import Axis, LegendKey, Series, chart, rounded_up
from nearcast.pipeline.report.formatting import clean, count, milliseconds, rate, share, size
from nearcast.pipeline.report.maps import chosen_seconds, in_degrees, link_map, world_map
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast.pipeline.report.results import Numbers, Results, complete_rows, numbers
from nearcast.pipeline.report.timelines import (
    Measure,
    last_value,
    mean,
    per_second,
    ratio,
    time_bins,
    total,
    worst,
)

COLOURED_KINDS = 7  # of messages that have a colour of their own


class Drawing(Struct, frozen=True):
    """One entry of the report: the section that it belongs to, and the function that draws it."""

    section: str
    table: str  # that must have rows
    draw: Callable[[Results], list[Plot]]


# Series of several runs and several measures.


def line_style(run: int, measure: int, runs: int) -> tuple[str, int]:
    """Colour and dash: runs differ by colour and measures by dash; in a single run, by colour."""
    return (series_style(run), measure) if runs > 1 else (series_style(measure), 0)


def legend(results: Results, measures: Sequence[str]) -> list[LegendKey]:
    if len(results.runs) == 1:
        keys = [LegendKey(name, series_style(i)) for i, name in enumerate(measures)]
        return keys if len(keys) > 1 else []
    runs = [LegendKey(results.labels[run], series_style(i)) for i, run in enumerate(results.runs)]
    named = [LegendKey(name, "soft", i) for i, name in enumerate(measures)]
    return runs + (named if len(named) > 1 else [])


def run_title(results: Results, title: str, run: str) -> str:
    """The title of a plot that shows one run."""
    return f"{title}: {clean(results.labels[run], 50)}" if len(results.runs) > 1 else title


def series_name(results: Results, run: str, measure: str, measures: int) -> str:
    if len(results.runs) == 1:
        return measure
    return f"{results.labels[run]}: {measure}" if measures > 1 else results.labels[run]


def series(
    results: Results,
    table: str,
    measures: Sequence[str],
    values: Callable[[pa.Table, int], tuple[Sequence[float], Numbers]],
    shape: str = "line",
) -> list[Series]:
    """For each run with rows and each measure, the x and y that `values` finds in its table."""
    found = []
    for run, rows in results.with_rows(table).items():
        for number_of, measure in enumerate(measures):
            x, y = values(rows, number_of)
            if np.isfinite(y).any():
                colour, dash = line_style(results.runs.index(run), number_of, len(results.runs))
                found.append(
                    Series(
                        name=series_name(results, run, measure, len(measures)),
                        x=x,
                        y=y.tolist(),
                        style=colour,
                        dash=dash,
                        shape=shape,
                    )
                )
    return found


def over_time(
    name: str,
    title: str,
    table: str,
    y: Axis,
    measures: dict[str, Measure],
    shape: str = "line",
) -> Callable[[Results], list[Plot]]:
    """A drawing of these measures of a table by second, as one chart."""

    def draw(results: Results) -> list[Plot]:
        time = time_bins(list(results.with_rows(table).values()))
        each = list(measures.values())
        found = series(
            results, table, list(measures), lambda rows, i: (time.x, each[i](rows, time)), shape
        )
        axis = zoom_shares(y, found) if y.format is share else y
        if not found:
            return []
        return [chart(name, title, time.axis, axis, found, legend(results, list(measures)))]

    return draw


def zoom_shares(axis: Axis, found: Sequence[Series]) -> Axis:
    """The axis from just below the lowest share to 1, if all shares are above one half."""
    lowest = min((y for one in found for y in one.y if np.isfinite(y)), default=0.0)
    if not 0.5 < lowest < 1:
        return Axis(axis.label, share, 0.0, 1.0)
    step = 10.0 ** floor(np.log10(1 - lowest))
    return Axis(axis.label, share, 1 - ceil((1 - lowest) / step) * step, 1.0)


# The drawings.


DENSITY_COLUMNS = (
    "second", "cell_x", "cell_y", "entities", "x_low", "y_low", "cell_width", "cell_height",
)  # fmt: skip
LINK_COLUMNS = ("node", "to", "bytes", "first_s", "last_s")


def drawable_rows(results: Results, table: str, *names: str) -> dict[str, pa.Table]:
    """The complete rows of the runs that have any."""
    found = {run: complete_rows(rows, *names) for run, rows in results.with_rows(table).items()}
    return {run: rows for run, rows in found.items() if len(rows)}


def world_maps(results: Results) -> list[Plot]:
    """A map of each run: density of entities, and where publications were missed."""
    worlds = drawable_rows(results, "world_density", *DENSITY_COLUMNS)
    if not worlds:
        return []
    every = [int(s) for rows in worlds.values() for s in rows.column("second").unique().to_pylist()]
    shown = chosen_seconds(every, len(worlds))
    most = max(float(numbers(rows, "entities").max()) for rows in worlds.values())
    return [
        world_map(
            f"map {run}",
            run_title(results, "Where entities are", run),
            rows,
            results.table("missed_places", run) if results.was_counted("missed_places") else None,
            shown,
            most,
            results.on_earth(run),
        )
        for run, rows in worlds.items()
    ]


def latency_curve(results: Results) -> list[Plot]:
    """The cumulative distribution of latencies."""
    found = series(
        results,
        "latency_quantiles",
        ["latency"],
        lambda rows, _: (numbers(rows, "latency_ms").tolist(), numbers(rows, "quantile")),
    )
    return [
        chart(
            "latency", "Latency of deliveries",
            Axis("latency", milliseconds, low=0.0),
            Axis("share of correct deliveries with at most this latency", share, 0.0, 1.0),
            found, legend(results, ["latency"]), read_along="y",
        )
    ]  # fmt: skip


def fence_lateness(results: Results) -> list[Plot]:
    """The cumulative distributions of how late fence events were told."""
    columns = {"since it happened": "late_ms", "since it was decided": "delay_ms"}
    names = list(columns.values())
    found = series(
        results,
        "fence_lateness",
        list(columns),
        lambda rows, i: (numbers(rows, names[i]).tolist(), numbers(rows, "quantile")),
    )
    return [
        chart(
            "fence-lateness", "How late fence events were told",
            Axis("time until it was told", milliseconds, low=0.0),
            Axis("share of events told at most so late", share, 0.0, 1.0),
            found, legend(results, list(columns)), read_along="y",
        )
    ]  # fmt: skip


def popularity(results: Results) -> list[Plot]:
    """The time until all subscribers of a publication have it, by their number."""
    columns = ["total_time_mean_ms", "total_time_p90_ms"]
    found = series(
        results,
        "popularity",
        ["mean", "p90"],
        lambda rows, i: (numbers(rows, "interested").tolist(), numbers(rows, columns[i])),
    )
    if not found:
        return []
    return [
        chart(
            "popularity", "Time until all subscribers have a publication",
            Axis("number of subscribers that should receive a publication", count),
            Axis("time until the last of them has it", milliseconds, low=0.0),
            found, legend(results, ["mean", "p90"]),
        )
    ]  # fmt: skip


def hops(results: Results) -> list[Plot]:
    """The hops of deliveries and, if direct latencies are known, their latency stretch."""

    def portions(rows: pa.Table, _: int) -> tuple[Sequence[float], Numbers]:
        deliveries = numbers(rows, "deliveries")
        return numbers(rows, "hops").tolist(), deliveries / (np.nansum(deliveries) or 1.0)

    def stretch(rows: pa.Table, _: int) -> tuple[Sequence[float], Numbers]:
        return numbers(rows, "hops").tolist(), numbers(rows, "stretch_mean")

    x = bar_axis(results, "overlay_paths", "hops", "hops from publisher to subscriber")
    far = series(results, "overlay_paths", ["deliveries"], portions, "bar")
    long = series(results, "overlay_paths", ["stretch"], stretch, "bar")
    keys = legend(results, ["deliveries"])
    plots = [
        chart("hops", "Hops of deliveries", x,
              Axis("share of deliveries", share, 0.0, 1.0), far, keys)
    ]  # fmt: skip
    if long:
        y = Axis("latency relative to the direct connection, mean", low=0.0)
        plots.append(chart("stretch", "Latency stretch", x, y, long, keys))
    return plots


def bar_axis(results: Results, table: str, name: str, label: str) -> Axis:
    """An axis of whole numbers with room for bars at its ends."""
    values = np.concatenate([numbers(rows, name) for rows in results.with_rows(table).values()])
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    return Axis(label, count, float(low) - 0.8, float(high) + 0.8)


def false_positives(results: Results) -> list[Plot]:
    """The share of publications that reached nodes without interest in them, by level."""
    found = series(
        results,
        "false_positives_by_level",
        ["unwanted"],
        lambda rows, _: values_by_level(rows, "rate_mean"),
        "bar",
    )
    if not found:
        return []
    x = bar_axis(results, "false_positives_by_level", "level", "level of the receiving node")
    y = Axis(
        "share of received publications that the node had no interest in, mean", share, low=0.0
    )
    return [chart("unwanted", "False positives by level", x, y, found,
                  legend(results, ["unwanted"]))]  # fmt: skip


def values_by_level(rows: pa.Table, name: str) -> tuple[Sequence[float], Numbers]:
    known = rows.filter(pc.is_valid(rows.column("level")))
    return numbers(known, "level").tolist(), numbers(known, name)


def traffic_by_kind(results: Results) -> list[Plot]:
    """One plot for each run, with the same colours and the same height."""
    tables = results.with_rows("traffic_by_second")
    time = time_bins(list(tables.values()))
    every = pa.concat_tables([rows.select(["kind", "bytes"]) for rows in tables.values()])
    by_kind = every.group_by("kind").aggregate([("bytes", "sum")])
    heaviest = [("bytes_sum", "descending"), ("kind", "ascending")]
    kinds = by_kind.sort_by(heaviest).column("kind").to_pylist()
    groups = {clean(kind): [kind] for kind in kinds[:COLOURED_KINDS]}
    if len(kinds) > COLOURED_KINDS:
        groups[f"{len(kinds) - COLOURED_KINDS} other kinds"] = kinds[COLOURED_KINDS:]
    sent = per_second("bytes")
    if not time.number:
        return []
    highest = max(float(np.nanmax(sent(rows, time))) for rows in tables.values()) or 1.0
    y = Axis("bytes sent per second", rate, 0.0, rounded_up(highest))
    keys = [LegendKey(name, series_style(i)) for i, name in enumerate(groups)]
    plots = []
    for run, rows in tables.items():
        title = run_title(results, "Traffic by kind", run)
        found = [
            Series(name=name, x=time.x, y=np.nan_to_num(each).tolist(), style=series_style(i))
            for i, (name, kinds) in enumerate(groups.items())
            for each in [sent(rows_of_kinds(rows, kinds), time)]
        ]
        plots.append(chart(f"kinds {run}", title, time.axis, y, found, keys, stacked=True))
    return plots


def rows_of_kinds(rows: pa.Table, kinds: Sequence[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows.column("kind"), pa.array(kinds, pa.string())))


def load_distribution(measure: str, name: str, title: str) -> Callable[[Results], list[Plot]]:
    """A drawing of the distribution of load over nodes, on a logarithmic axis."""
    directions = ["sent", "received"]

    def values(rows: pa.Table, number_of: int) -> tuple[Sequence[float], Numbers]:
        same = pc.equal(rows.column("measure"), measure)
        here = pc.equal(rows.column("direction"), directions[number_of])
        ours = rows.filter(pc.and_(same, here)).sort_by("quantile")
        return numbers(ours, "bytes_per_s").tolist(), numbers(ours, "quantile")

    def draw(results: Results) -> list[Plot]:
        found = series(results, "traffic_quantiles", directions, values)
        x = Axis("bytes per second, logarithmic; 0 is at the left", rate, log=True)
        y = Axis("share of nodes with at most this load", share, 0.0, 1.0)
        keys = legend(results, directions)
        return [chart(name, title, x, y, found, keys, read_along="y")] if found else []

    return draw


def ranked_load(results: Results) -> list[Plot]:
    """The bytes of each node, from the busiest to the idlest."""
    columns = ["sent_bytes", "received_bytes"]

    def values(rows: pa.Table, number_of: int) -> tuple[Sequence[float], Numbers]:
        heaviest = np.sort(numbers(rows, columns[number_of]))[::-1]
        ranks = np.unique(np.geomspace(1, len(heaviest), 200).round().astype(np.intp))
        return ranks.astype(float).tolist(), heaviest[ranks - 1]

    measures = ["sent", "received"]
    nodes = float(max(len(rows) for rows in results.with_rows("traffic_by_node").values()))
    return [
        chart(
            "ranks", "Load of nodes by rank",
            Axis("rank of the node, logarithmic", count, low=1.0, high=nodes, log=True),
            Axis("bytes in the whole run, logarithmic", size, log=True),
            series(results, "traffic_by_node", measures, values), legend(results, measures),
        )
    ]  # fmt: skip


def link_maps(results: Results) -> list[Plot]:
    """A map of each run with the links that carried the most bytes."""
    tables = drawable_rows(results, "overlay_links", *LINK_COLUMNS)
    places = {run: complete_rows(results.table("world_positions", run), "second", "node", "x", "y")
              for run in tables}  # fmt: skip
    for run in filter(results.on_earth, tables):
        places[run] = in_degrees(places[run])
    every: list[int] = []
    for run, rows in tables.items():
        if len(places[run]):
            every += places[run].column("second").unique().to_pylist()
        else:
            first, last = numbers(rows, "first_s").min(), numbers(rows, "last_s").max()
            every += np.linspace(floor(first), floor(last), 49).astype(int).tolist()
    shown = chosen_seconds(every, len(tables))
    return [
        link_map(f"links {run}", run_title(results, "Busiest links", run), rows, places[run], shown)
        for run, rows in tables.items()
    ]


def ownership_changes(results: Results) -> list[Plot]:
    time = time_bins(list(results.with_rows("ownership").values()))
    changes = total("changes")
    found = series(results, "ownership", ["changes"], lambda rows, _: (time.x, changes(rows, time)))
    if not found:
        return []
    y = Axis("subscriptions that changed owner", count, low=0.0)
    keys = legend(results, ["changes"])
    return [chart("owners", "Changes of ownership", time.axis, y, found, keys)]


SHARE_AXIS = Axis("share", share)

DRAWINGS: tuple[Drawing, ...] = (
    Drawing("World", "world_density", world_maps),
    Drawing("Delivery", "latency_quantiles", latency_curve),
    Drawing("Delivery", "delivery_by_second", over_time(
        "quality", "Recall and precision", "delivery_by_second", SHARE_AXIS,
        {"recall": ratio("correct", "expected"),
         "precision": ratio("correct", "correct", "spurious")})),
    Drawing("Delivery", "delivery_by_second", over_time(
        "expected", "Expected and missed deliveries", "delivery_by_second",
        Axis("deliveries per second", count, low=0.0),
        {"expected": per_second("expected"), "missed": per_second("missed")})),
    Drawing("Delivery", "delivery_by_second", over_time(
        "lateness", "Latency over time", "delivery_by_second",
        Axis("latency (worst second of each point)", milliseconds, low=0.0),
        {"p50": worst("latency_p50_ms"), "p99": worst("latency_p99_ms")})),
    Drawing("Delivery", "popularity", popularity),
    Drawing("Delivery", "overlay_paths", hops),
    Drawing("Delivery", "false_positives_by_level", false_positives),
    Drawing("Fences", "fence_lateness", fence_lateness),
    Drawing("Traffic", "traffic_by_second", traffic_by_kind),
    Drawing("Traffic", "traffic_quantiles", load_distribution(
        "mean", "load", "Load of nodes, on average")),
    Drawing("Traffic", "traffic_quantiles", load_distribution(
        "peak", "peaks", "Load of nodes, busiest second")),
    Drawing("Traffic", "traffic_by_node", ranked_load),
    Drawing("Awareness", "awareness_by_second", over_time(
        "awareness", "Awareness: recall and precision", "awareness_by_second", SHARE_AXIS,
        {"recall (consistency)": ratio("true_positives", "true_positives", "false_negatives"),
         "precision": ratio("true_positives", "true_positives", "false_positives")})),
    Drawing("Awareness", "awareness_by_second", over_time(
        "known", "Entities known to a node", "awareness_by_second",
        Axis("other entities per node, mean", low=0.0),
        {"known": mean("known", "nodes"), "should be known": mean("should", "nodes")})),
    Drawing("Awareness", "awareness_by_second", over_time(
        "difference", "Position error of known entities", "awareness_by_second",
        Axis("distance from the true position (worst second of each point)", low=0.0),
        {"mean": worst("position_difference_mean"),
         "p90": worst("position_difference_p90")})),
    Drawing("Overlay", "overlay_by_second", over_time(
        "linked", "Links", "overlay_by_second", Axis("at the end of each second", count, low=0.0),
        {"links": last_value("links"), "nodes": last_value("nodes")}, "step")),
    Drawing("Overlay", "overlay_by_second", over_time(
        "degree", "Neighbours of a node", "overlay_by_second", Axis("links per node", low=0.0),
        {"mean": last_value("degree_mean"), "maximum": last_value("degree_max")}, "step")),
    Drawing("Overlay", "overlay_by_second", over_time(
        "height", "Height of the tree", "overlay_by_second", Axis("levels", count, low=0.0),
        {"height": last_value("height")}, "step")),
    Drawing("Overlay", "overlay_by_second", over_time(
        "clustering", "Clustering", "overlay_by_second",
        Axis("share of neighbours that are neighbours", share),
        {"clustering": last_value("clustering")}, "step")),
    Drawing("Overlay", "ownership", ownership_changes),
    Drawing("Overlay", "overlay_links", link_maps),
)  # fmt: skip
