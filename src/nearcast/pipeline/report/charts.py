"""Charts: series of values along two axes, as lines, steps, bars or stacked areas."""

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, isfinite, log10
from typing import Any

from msgspec import Struct

from nearcast.pipeline.report.formatting import NONE, clean, count, number, seconds
from nearcast.pipeline.report.plots import HoverValues, Lines, Mark, Plot, PlotArea, PlotText, Point

WIDTH, DEPTH = 620, 190  # width of a plot, and height of the part inside its axes
LEFT, RIGHT, BOTTOM = 66, 30, 44
LINE = 17  # height of a line of text
LEGEND_LENGTH = 56  # characters of a name in a legend
SMALLEST = 1e-300  # of a value, or of a range, for which ticks can be computed
MAX_DOTS = 40  # a series with more values is drawn without dots


class Series(Struct, frozen=True, kw_only=True):
    """Values of one style; no value where y is not finite. Shapes: line, step, bar."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: str
    dash: int = 0
    shape: str = "line"


class LegendKey(Struct, frozen=True):
    """One entry of a legend."""

    name: str
    style: str
    dash: int = 0


class Axis(Struct, frozen=True):
    """An axis: what it measures, how its values are formatted, and its ends if they are fixed."""

    label: str
    format: Callable[[Any], str] = number
    low: float | None = None
    high: float | None = None
    log: bool = False


class Scale(Struct, frozen=True):
    """An axis with coordinates: where values are in the plot, and which ticks it has."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: list[float]

    def place(self, value: float) -> float:
        """The coordinate of a value; on a logarithmic axis 0 is where the axis begins."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def scale(axis: Axis, values: Iterable[float], start: float, end: float) -> Scale:
    """The axis from its lowest to its highest value, widened to round numbers."""
    known = [value for value in values if isfinite(value) and (value > SMALLEST or not axis.log)]
    low = min(known, default=1.0) if axis.low is None else axis.low
    high = max(known, default=low) if axis.high is None else axis.high
    if axis.log:
        low = 10.0 ** floor(log10(low)) if axis.low is None else low
        high = 10.0 ** ceil(log10(max(high, low))) if axis.high is None else high
        high = high if high > 1.001 * low else 10 * low
        return Scale(low, high, start, end, True, powers_of_ten(low, high))
    if high - low <= max(SMALLEST, 1e-9 * abs(low)):
        high = low + max(1.0, 1e-3 * abs(low))
    step = round_step((high - low) / 5)
    if axis.format in (count, seconds):
        step = max(step, 1.0)  # counts and seconds are integers
    if axis.low is None:
        low = floor(low / step + 1e-9) * step
    if axis.high is None:
        high = max(ceil(high / step - 1e-9) * step, low + step)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return Scale(low, high, start, end, False, [i * step for i in range(first, last + 1)])


def round_step(least: float) -> float:
    """The next of … 1, 2, 5, 10, 20, 50 …"""
    power = 10.0 ** floor(log10(least))
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9)))


def rounded_up(high: float) -> float:
    """The end of an axis from 0 to at least `high`, for plots that share it."""
    step = round_step(high / 5)
    return ceil(high / step - 1e-9) * step


def powers_of_ten(low: float, high: float) -> list[float]:
    """At most seven powers of ten as ticks."""
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    return [10.0**i for i in range(first, last + 1, ceil((last - first + 1) / 7))]


def chart(
    name: str,
    title: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    legend: Sequence[LegendKey] = (),
    *,
    stacked: bool = False,
    read_along: str = "x",
) -> Plot:
    """The series with axes, and a legend above. Stacked series must have the same x."""
    marks: list[Mark] = [PlotText(10, 20, title, bold=True, size=14)]
    keys, below = legend_marks(legend, 58)
    top = below - 2
    marks += [PlotText(10, 38, y.label, "soft"), *keys]
    heights = stack_values(series) if stacked else [list(one.y) for one in series]
    across = scale(x, (v for one in series for v in one.x), LEFT, WIDTH - RIGHT)
    up = scale(y, (v for values in heights for v in values), top + DEPTH, top)
    marks += frame_marks(across, up, x, y)
    floors: list[list[float]] = [[0.0] * len(one.x) for one in series[:1]] + heights[:-1]
    for place, one in enumerate(series):
        points = [(across.place(a), up.place(b)) for a, b in zip(one.x, heights[place], strict=True)
                  if isfinite(a) and isfinite(b)]  # fmt: skip
        if stacked:
            under = [(across.place(a), up.place(b))
                     for a, b in zip(one.x, floors[place], strict=True)]  # fmt: skip
            marks.append(PlotArea(points + under[::-1], one.style, 0.82))
        elif one.shape == "bar":
            marks.append(bar_marks(one, points, place, len(series), across, up))
        else:
            marks += curve_marks(one, across, up)
    return Plot(
        name=name,
        title=title,
        width=WIDTH,
        height=top + DEPTH + BOTTOM,
        marks=marks,
        hover=hover_values(series, x, y, across, up, read_along),
    )


def stack_values(series: Sequence[Series]) -> list[list[float]]:
    sums, total = [], [0.0] * len(series[0].x)
    for one in series:
        total = [a + b for a, b in zip(total, one.y, strict=True)]
        sums.append(total)
    return sums


def curve_marks(one: Series, across: Scale, up: Scale) -> list[Mark]:
    """A line for each unbroken sequence of values, with dots if there are few values."""
    strokes: list[list[Point]] = [[]]
    dots: list[list[Point]] = []
    for a, b in zip(one.x, one.y, strict=True):
        if not (isfinite(a) and isfinite(b)):
            strokes.append([])
            continue
        point = (across.place(a), up.place(b))
        if one.shape == "step" and strokes[-1]:
            strokes[-1].append((point[0], strokes[-1][-1][1]))
        strokes[-1].append(point)
        dots.append([point])
    whole = [stroke for stroke in strokes if stroke]
    lines: list[Mark] = [Lines(whole, one.style, 2, one.dash)]
    return [*lines, Lines(dots, one.style, 4.5)] if len(dots) <= MAX_DOTS else lines


def bar_marks(
    one: Series, points: list[Point], place: int, number_of: int, across: Scale, up: Scale
) -> Lines:
    """Bars of several series, side by side around their x."""
    room = abs(across.place(across.low + 1) - across.place(across.low)) * 0.7
    wide = min(48.0, max(1.0, room / number_of))
    aside = (place - (number_of - 1) / 2) * wide
    ground = up.place(up.low)
    strokes = [[(x + aside, ground), (x + aside, y)] for x, y in points]
    return Lines(strokes, one.style, max(1.0, wide - 1), blunt=True)


def frame_marks(across: Scale, up: Scale, x: Axis, y: Axis) -> list[Mark]:
    """Grid lines, ticks and labels of both axes."""
    left, right, ground = across.start, across.end, up.start
    rungs = [[(left, up.place(v)), (right, up.place(v))] for v in up.ticks]
    marks: list[Mark] = [Lines(rungs, "grid", 1, blunt=True)]
    marks += [
        PlotText(left - 8, up.place(v) + 4, y.format(v), "soft", 11, "end") for v in up.ticks
    ]  # fmt: skip
    feet = [[(across.place(v), ground), (across.place(v), ground + 4)] for v in across.ticks]
    marks.append(Lines([[(left, ground), (right, ground)], *feet], "soft", 1, blunt=True))
    marks += [
        PlotText(across.place(v), ground + 18, x.format(v), "soft", 11, "middle")
        for v in across.ticks
    ]
    return [*marks, PlotText((left + right) / 2, ground + 36, x.label, "soft", 12, "middle")]


def legend_marks(keys: Sequence[LegendKey], y: float) -> tuple[list[Mark], float]:
    """A legend in as many lines as it needs, and where the next line of text would be."""
    marks: list[Mark] = []
    x = 10.0
    for key in keys:
        name = clean(key.name, LEGEND_LENGTH)
        room = 26 + 7 * len(name) + 14
        if x > 10 and x + room > WIDTH:
            x, y = 10.0, y + LINE
        marks.append(Lines([[(x, y - 4), (x + 20, y - 4)]], key.style, 3, key.dash))
        marks.append(PlotText(x + 26, y, name))
        x += room
    return marks, y + LINE if keys else y


def hover_values(
    series: Sequence[Series], x: Axis, y: Axis, across: Scale, up: Scale, along: str
) -> HoverValues:
    """The values of all series, for each position on the axis `along` that any of them has."""
    pairs = [
        [(a, b) if along == "x" else (b, a) for a, b in zip(one.x, one.y, strict=True)
         if isfinite(a) and isfinite(b)]
        for one in series
    ]  # fmt: skip
    here, there, ruler = (x, y, across) if along == "x" else (y, x, up)
    values = [dict(one) for one in pairs]
    at = sorted({key for one in values for key in one})
    return HoverValues(
        axis=along,
        frame=(across.start, up.end, across.end, up.start),
        at=[round(ruler.place(v), 1) for v in at],
        labels=[here.format(v) for v in at],
        names=[clean(one.name) for one in series],
        styles=[one.style for one in series],
        values=[[there.format(one[v]) if v in one else NONE for v in at] for one in values],
    )
