"""Figures of what a benchmark has measured, for the page that `make bench` writes."""

import os
from collections.abc import Mapping
from pathlib import Path

from nearcast.pipeline.report.plots import Mark, Plot, PlotArea, PlotText, svg

FOLDER = "BENCHMARK_FIGURES"  # names the folder for figures; without it none is drawn
WIDTH, NAMES, ROW, HEAD = 640.0, 190.0, 26.0, 34.0


def draw_bars(name: str, title: str, values: Mapping[str, float], form: str = "{:,.0f}") -> None:
    """One bar for each value; ours have a colour of their own. `form` writes the value."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    most, room = max(values.values()), WIDTH - NAMES - 90
    marks: list[Mark] = [PlotText(0, 16, title, size=13, bold=True)]
    for number, (label, value) in enumerate(values.items()):
        style = "s0" if label.startswith("Nearcast") else "s7"
        top, end = HEAD + number * ROW, NAMES + room * value / most
        low, high = top + 3, top + ROW - 5
        marks += [
            PlotText(NAMES - 8, top + 15, label, anchor="end"),
            PlotArea([(NAMES, low), (end, low), (end, high), (NAMES, high)], style),
            PlotText(end + 6, top + 15, form.format(value), "soft"),
        ]
    plot = Plot(
        name=name, title=title, width=WIDTH, height=HEAD + len(values) * ROW + 6, marks=marks
    )
    Path(folder, f"{name}.svg").write_text(svg(plot))
