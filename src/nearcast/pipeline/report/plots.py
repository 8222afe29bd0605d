"""A plot is a list of marks, written as SVG for pages and as PNG for other uses.

Marks have a style, and a style has two colours: for light and for dark mode. In SVG the reader's
preference decides, and the background is transparent. PNG has the light colours on white.

PNG is drawn with Pillow, which brings a font of its own. Renderers of SVG (resvg, cairo) leave out
all texts on a machine without fonts, as most containers are.
"""

from collections.abc import Iterable
from functools import lru_cache
from html import escape
from io import BytesIO
from itertools import pairwise
from math import hypot
from typing import Any

import msgspec
from msgspec import Struct
from PIL import Image, ImageDraw, ImageFont

from nearcast.pipeline.report.formatting import clean

Point = tuple[float, float]
# Style: its colour in light and in dark mode. s… are for series, h… for rising density.
COLOURS = {
    "ink": ("#1c2430", "#e8ebf0"),
    "soft": ("#5c6675", "#9aa4b2"),
    "grid": ("#e3e7ed", "#2c333d"),
    "land": ("#efebe1", "#2b2e2c"),
    "alarm": ("#d6204e", "#ff6f8b"),
    "s0": ("#2a78d6", "#4d9bf0"),
    "s1": ("#e2662f", "#f0824e"),
    "s2": ("#159a6b", "#2fbf8d"),
    "s3": ("#c98a00", "#e0aa33"),
    "s4": ("#5a48b8", "#a296f2"),
    "s5": ("#c2418b", "#e878b5"),
    "s6": ("#0b8ea6", "#3fbdd3"),
    "s7": ("#6f7a12", "#b3c04a"),
    "h0": ("#d9e8fb", "#16304d"),
    "h1": ("#b7d4f6", "#19416b"),
    "h2": ("#8fbcf0", "#1d568f"),
    "h3": ("#629fe7", "#2870b6"),
    "h4": ("#3b80d8", "#448fd8"),
    "h5": ("#2561b8", "#6eadec"),
    "h6": ("#184790", "#9ecbf7"),
    "h7": ("#0e2e64", "#d8eafe"),
}
SERIES, HEATS = 8, 8
DASHES = ((), (6, 4), (1.5, 3.5))  # solid, dashed, dotted
PNG_SCALE = 2  # pixels per unit of the plot
OVERSAMPLING = 2  # drawn larger, then shrunk: Pillow itself draws without antialiasing
FONTS = ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "Arial.ttf")


class Lines(Struct, frozen=True):
    """Strokes of one style. A single point is a dot; blunt strokes have no round caps."""

    strokes: list[list[Point]]
    style: str
    width: float = 1.6
    dash: int = 0
    opacity: float = 1.0
    blunt: bool = False


class PlotArea(Struct, frozen=True):
    """A filled polygon."""

    outline: list[Point]
    style: str
    opacity: float = 1.0


class PlotText(Struct, frozen=True):
    """A line of text. `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    style: str = "ink"
    size: float = 12
    anchor: str = "start"
    bold: bool = False


class PlotRings(Struct, frozen=True):
    """Filled polygons. Those in which `holes` says so are not filled, and come after what they
    are in."""

    rings: list[list[Point]]
    holes: list[bool]
    style: str


Mark = Lines | PlotArea | PlotRings | PlotText


class PlotFrame(Struct, frozen=True):
    """The marks of one time. All frames of a plot have as many lines, of the same styles."""

    label: str
    lines: list[Lines]
    above: list[Lines] = []  # which a reader of the page may hide


class HoverValues(Struct, frozen=True):
    """What a page shows at the pointer: the values of all series at positions of one axis."""

    axis: str
    frame: tuple[float, float, float, float]  # left, top, right, bottom
    at: list[float]
    labels: list[str]
    names: list[str]
    styles: list[str]
    values: list[list[str]]


class Plot(Struct, frozen=True, kw_only=True):
    """A drawing, perhaps with frames for several times."""

    name: str  # of its files
    title: str
    width: float
    height: float
    marks: list[Mark]
    frames: list[PlotFrame] = []
    shown: int = 0  # the frame that is drawn
    hover: HoverValues | None = None


def series_style(number: int) -> str:
    return f"s{number % SERIES}"


# SVG


def css() -> str:
    """The style sheet of plots, for a page and for each plot that is a file of its own."""

    def rules(dark: bool) -> str:
        return "".join(f".plot .{name}{{color:{pair[dark]}}}" for name, pair in COLOURS.items())

    return (
        ".plot{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
        f"{rules(False)}@media(prefers-color-scheme:dark){{{rules(True)}}}"
    )


def _n(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0: avoids -0


def path(strokes: Iterable[list[Point]]) -> str:
    """The strokes as the `d` of one path; short, since there may be thousands."""
    parts = []
    for stroke in strokes:
        (x, y), *rest = stroke
        parts.append(f"M{_n(x)} {_n(y)}")
        if not rest:
            parts.append("h0")
        elif len(rest) == 1 and rest[0][1] == y:
            parts.append(f"h{_n(rest[0][0] - x)}")
        else:
            parts.append("L" + " ".join(f"{_n(a)} {_n(b)}" for a, b in rest))
    return "".join(parts)


def _element(mark: Mark) -> str:
    style = f'class="{mark.style}"'
    if isinstance(mark, PlotText):
        bold = ' font-weight="600"' if mark.bold else ""
        return (
            f'<text {style} x="{_n(mark.x)}" y="{_n(mark.y)}" font-size="{_n(mark.size)}"{bold}'
            f' text-anchor="{mark.anchor}" fill="currentColor">{escape(clean(mark.text))}</text>'
        )
    if isinstance(mark, PlotRings):
        rings = "z".join(path([ring]) for ring in mark.rings)
        return f'<path {style} fill="currentColor" fill-rule="evenodd" d="{rings}z"/>'
    if mark.opacity < 1:
        style += f' opacity="{mark.opacity:.2f}"'
    if isinstance(mark, PlotArea):
        return f'<path {style} fill="currentColor" d="{path([mark.outline])}z"/>'
    if mark.dash:
        style += f' stroke-dasharray="{" ".join(map(str, DASHES[mark.dash]))}"'
    ends = "butt" if mark.blunt else "round"
    if mark.blunt:
        style += ' shape-rendering="crispEdges"'
    return (
        f'<path {style} fill="none" stroke="currentColor" stroke-width="{_n(mark.width)}"'
        f' stroke-linecap="{ends}" stroke-linejoin="round" d="{path(mark.strokes)}"/>'
    )


def svg(plot: Plot, alone: bool = True) -> str:
    """The plot as an element of a page that has `css()`, or as a file of its own."""
    now = plot.frames[plot.shown] if plot.frames else PlotFrame("", [])
    hover = ""
    if plot.hover and not alone:
        encoded = msgspec.json.encode(plot.hover).decode()
        hover = f' data-hover="{escape(encoded)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img"'
        f' viewBox="0 0 {_n(plot.width)} {_n(plot.height)}"'
        + (f' width="{_n(plot.width)}" height="{_n(plot.height)}"' if alone else "")
        + f' aria-label="{escape(clean(plot.title))}"{hover}>'
        + (f"<style>{css()}</style>" if alone else "")
        + "".join(map(_element, plot.marks))
        + f'<g class="now">{"".join(map(_element, now.lines))}</g>'
        + f'<g class="above">{"".join(map(_element, now.above))}</g></svg>'
    )


def frame_paths(plot: Plot) -> list[tuple[str, list[str]]]:
    """Each frame's label and the paths of its lines."""
    return [
        (one.label, [path(lines.strokes) for lines in (*one.lines, *one.above)])
        for one in plot.frames
    ]


# PNG


@lru_cache
def _font(size: float) -> Any:
    """A font with many characters, if the machine has one; Pillow's own has few beyond Latin."""
    for name in FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def dashed(stroke: list[Point], pattern: tuple[float, ...]) -> list[list[Point]]:
    """The parts of a stroke that a dash pattern draws."""
    pieces: list[list[Point]] = [[stroke[0]]]
    turn, left = 0, pattern[0]
    for (ax, ay), (bx, by) in pairwise(stroke):
        length, gone = hypot(bx - ax, by - ay), 0.0
        while length - gone > left:
            gone += left
            here = (ax + (bx - ax) * gone / length, ay + (by - ay) * gone / length)
            pieces[-1].append(here)
            pieces.append([here])
            turn += 1
            left = pattern[turn % len(pattern)]
        left -= length - gone
        pieces[-1].append((bx, by))
    return pieces[::2]


def _draw(canvas: ImageDraw.ImageDraw, mark: Mark) -> None:
    fine = PNG_SCALE * OVERSAMPLING
    red, green, blue = (int(COLOURS[mark.style][0][i : i + 2], 16) for i in (1, 3, 5))
    if isinstance(mark, PlotText):
        font = _font(mark.size * fine)
        place = (mark.x * fine, mark.y * fine)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[mark.anchor]
        weight = fine // 4 if mark.bold else 0
        canvas.text(place, clean(mark.text), (red, green, blue), font, anchor, stroke_width=weight)
        return
    if isinstance(mark, PlotRings):
        for ring, hole in zip(mark.rings, mark.holes, strict=True):
            inside = "white" if hole else (red, green, blue)
            canvas.polygon([(x * fine, y * fine) for x, y in ring], inside)
        return
    colour = (red, green, blue, round(255 * mark.opacity))
    if isinstance(mark, PlotArea):
        canvas.polygon([(x * fine, y * fine) for x, y in mark.outline], colour)
        return
    for stroke in mark.strokes:
        for piece in dashed(stroke, DASHES[mark.dash]) if mark.dash else [stroke]:
            points = [(x * fine, y * fine) for x, y in piece]
            if len(points) > 1:
                canvas.line(points, colour, round(mark.width * fine), "curve")
            elif not mark.blunt:
                canvas.circle(points[0], mark.width * fine / 2, colour)


def png(plot: Plot) -> bytes:
    fine = PNG_SCALE * OVERSAMPLING
    image = Image.new("RGB", (round(plot.width * fine), round(plot.height * fine)), "white")
    canvas = ImageDraw.Draw(image, "RGBA")  # the mode that blends what is half transparent
    now = plot.frames[plot.shown] if plot.frames else PlotFrame("", [])
    for mark in (*plot.marks, *now.lines, *now.above):
        _draw(canvas, mark)
    file = BytesIO()
    image.reduce(OVERSAMPLING).save(file, "PNG")
    return file.getvalue()
