"""Maps: the density of entities with missed publications, and the busiest links.

Both change with time, so each is a plot with several frames; the page shows the chosen one.
"""

from collections.abc import Sequence
from math import ceil, cos, pi, sin

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from nearcast.pipeline.report.charts import Axis, scale
from nearcast.pipeline.report.formatting import clean, count
from nearcast.pipeline.report.land import land_between, signed_area
from nearcast.pipeline.report.plots import (
    HEATS,
    Lines,
    Mark,
    Plot,
    PlotFrame,
    PlotRings,
    PlotText,
    Point,
)
from nearcast.pipeline.report.results import complete_rows, numbers, top_rows
from nearcast.trace.earth_columns import lon_lat_columns, short_way

CELLS = 64  # of a map, along either side
SIDE = 512  # of a map: 8 per cell
LEFT, TOP, RIGHT, BOTTOM = 62, 52, 86, 44
SMALLEST_CELL = 0.0002  # degrees, some 20 m: of a world on Earth that is a single place
MAX_MISSES = 6000  # drawn in all frames together
MAX_LINKS = 500
THICKNESSES = (0.6, 1.0, 1.6, 2.6)


def chosen_seconds(seconds: Sequence[int], plots: int) -> list[int]:
    """At most 48 seconds, evenly spread; fewer if more plots share a page."""
    known = sorted(set(seconds))
    most = max(6, 96 // max(2, plots))
    if len(known) <= most:
        return known
    return [known[round(i * (len(known) - 1) / (most - 1))] for i in range(most)]


# The world.


class GridLayout(Struct, frozen=True):
    """Where the world's grid is in the plot: integers per cell, so that edges are sharp.

    On Earth x and y are longitude and latitude, and both have the same scale in the middle.
    """

    x_low: float
    y_low: float
    cell_width: float
    cell_height: float
    across: int
    up: int
    earth: bool = False

    @property
    def x_high(self) -> float:
        return self.x_low + CELLS * self.cell_width

    @property
    def y_high(self) -> float:
        return self.y_low + CELLS * self.cell_height

    @property
    def bottom(self) -> float:
        return TOP + CELLS * self.up

    def at(self, x: float, y: float) -> Point:
        return (
            LEFT + (x - self.x_low) / self.cell_width * self.across,
            self.bottom - (y - self.y_low) / self.cell_height * self.up,
        )


def grid_layout(density: pa.Table, earth: bool = False) -> GridLayout:
    """The layout for a table of densities. A world without extent has cells of one unit."""
    x_low, y_low, width, height = (
        float(numbers(density, name)[0]) for name in ("x_low", "y_low", "cell_width", "cell_height")
    )
    unit = (max(width, height) or SMALLEST_CELL) if earth else 1.0
    width, height = (side if side > 0 else unit for side in (width, height))
    sides = width * (cos((y_low + CELLS / 2 * height) * pi / 180) if earth else 1.0), height
    across, up = (max(2, round(SIDE // CELLS * side / max(sides))) for side in sides)
    return GridLayout(x_low, y_low, width, height, across, up, earth)


def heat_steps(most: float) -> list[int]:
    """From how many entities on a cell is drawn one step darker: logarithmic steps."""
    return [int(n) for n in np.unique(np.geomspace(1, max(most, 1), HEATS + 1).round())[:HEATS]]


def heat_style(step: int, steps: Sequence[int]) -> str:
    """The style of a step; few steps are spread over all styles."""
    return f"h{round((step + 1) * HEATS / len(steps)) - 1}"


def density_lines(cells: pa.Table, place: GridLayout, steps: Sequence[int]) -> list[Lines]:
    """The occupied cells of one second; equal neighbours in a row are one stroke."""
    strokes: list[list[list[Point]]] = [[] for _ in steps]
    if not len(cells):
        return [
            Lines([], heat_style(step, steps), place.up, blunt=True) for step in range(len(steps))
        ]
    ordered = cells.sort_by([("cell_y", "ascending"), ("cell_x", "ascending")])
    columns, rows = numbers(ordered, "cell_x"), numbers(ordered, "cell_y")
    level = np.searchsorted(steps, numbers(ordered, "entities"), side="right") - 1
    joined = (rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1] + 1) & (level[1:] == level[:-1])
    begins = np.flatnonzero(np.concatenate([[True], ~joined]))
    for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
        y = place.bottom - (rows[begin] + 0.5) * place.up
        left, right = (LEFT + c * place.across for c in (columns[begin], columns[end - 1] + 1))
        strokes[level[begin]].append([(left, y), (right, y)])
    return [
        Lines(of_step, heat_style(step, steps), place.up, blunt=True)
        for step, of_step in enumerate(strokes)
    ]


def world_map(
    name: str,
    title: str,
    density: pa.Table,
    missed: pa.Table | None,
    seconds: Sequence[int],
    most: float,
    earth: bool = False,
) -> Plot:
    """The density at each of these seconds (or at the last one known before), and on top the
    publications missed from then until the next of them.

    `most` is the highest density of all maps that share their colours. If `missed` is None, misses
    were not counted. On Earth there is land below; densities are in degrees, misses in ECEF metres.
    """
    place, steps = grid_layout(density, earth), heat_steps(most)
    known = np.unique(numbers(density, "second"))
    dots, note = missed_marks(missed, place, seconds)
    frames = []
    for second, above in zip(seconds, dots, strict=True):
        before = known[known <= second]
        now = before[-1] if len(before) else None
        cells = density.filter(pc.equal(density.column("second"), now))
        frames.append(PlotFrame(f"{second:,} s", density_lines(cells, place, steps), above))
    return Plot(
        name=name,
        title=title,
        width=LEFT + CELLS * place.across + RIGHT,
        height=place.bottom + BOTTOM,
        marks=[
            PlotText(10, 20, clean(title, 75), bold=True, size=14),
            PlotText(10, 38, f"Entities per cell at a time; {note}", "soft"),
            *land_marks(place),
            *map_frame(place),
            *heat_legend(place, steps),
        ],
        frames=frames,
        shown=len(frames) // 2,
    )


def missed_marks(
    missed: pa.Table | None, place: GridLayout, seconds: Sequence[int]
) -> tuple[list[list[Lines]], str]:
    """Dots where publications were made that a subscriber missed, for each of these seconds.

    Each frame shows the misses from its second to the next; the first also those before it. The
    table is a random sample.
    """
    if missed is None:
        return [[] for _ in seconds], "misses are not known"
    if not len(missed):
        return [[] for _ in seconds], "nothing was missed"
    missed = complete_rows(missed, "x", "y", "second")
    if place.earth:
        missed = in_degrees(missed, (place.x_low + place.x_high) / 2)
    rows = missed.take(np.linspace(0, len(missed) - 1, min(len(missed), MAX_MISSES)).astype(int))
    moment = np.searchsorted(seconds, numbers(rows, "second"), "right") - 1
    spots: list[dict[Point, None]] = [{} for _ in seconds]
    for which, x, y in zip(moment, numbers(rows, "x"), numbers(rows, "y"), strict=True):
        px, py = place.at(x, y)
        if LEFT <= px <= LEFT + CELLS * place.across and TOP <= py <= place.bottom:
            spots[max(which, 0)][round(px, 1), round(py, 1)] = None
    dots = [[Lines([[spot] for spot in here], "alarm", 3.2, opacity=0.75)] for here in spots]
    sample = "a sample of the " if len(rows) < len(missed) else ""
    return dots, f"dots: {sample}misses until the next time ({count(len(missed))} in all)"


def in_degrees(places: pa.Table, near: float | None = None) -> pa.Table:
    """Longitude and latitude instead of ECEF x and y; longitudes within half a turn of `near`, by
    default of the first place."""
    if not len(places):
        return places
    lon, lat = lon_lat_columns(*(numbers(places, axis) for axis in "xyz"))
    middle = lon[0] if near is None else near
    lon = middle + short_way(lon - middle)
    names = places.column_names
    placed = places.set_column(names.index("x"), "x", pa.array(lon))
    return placed.set_column(names.index("y"), "y", pa.array(lat))


def land_marks(place: GridLayout) -> list[Mark]:
    """Land in the part of the Earth that a map shows."""
    if not place.earth:
        return []
    rings = list(land_between(place.x_low, place.y_low, place.x_high, place.y_high, place.at))
    return [PlotRings(rings, [signed_area(ring) < 0 for ring in rings], "land")] if rings else []


def degrees_east(lon: float) -> str:
    lon = float(short_way(lon))
    return f"{abs(lon):.6g}°{'' if lon % 180 == 0 else ' E' if lon > 0 else ' W'}"


def degrees_north(lat: float) -> str:
    return f"{abs(lat):.6g}°{' N' if lat > 0 else ' S' if lat < 0 else ''}"


def map_frame(place: GridLayout) -> list[Mark]:
    """The border of a map, with ticks and labels."""
    right, top_ = LEFT + CELLS * place.across, TOP
    across = scale(Axis("", low=place.x_low, high=place.x_high), (), LEFT, right)
    up = scale(Axis("", low=place.y_low, high=place.y_high), (), place.bottom, top_)
    corners = [(LEFT, place.bottom), (LEFT, top_), (right, top_), (right, place.bottom)]
    ticks = [[(across.place(v), place.bottom), (across.place(v), place.bottom + 4)]
             for v in across.ticks]  # fmt: skip
    ticks += [[(LEFT - 4, up.place(v)), (LEFT, up.place(v))] for v in up.ticks]
    label = Axis("").format
    label_x, label_y = (degrees_east, degrees_north) if place.earth else (label, label)
    axes = "longitude and latitude" if place.earth else "x, and y upwards"
    return [
        Lines([[*corners, corners[0]], *ticks], "soft", 1, blunt=True),
        *(PlotText(across.place(v), place.bottom + 18, label_x(v), "soft", 11, "middle")
          for v in across.ticks),
        *(PlotText(LEFT - 8, up.place(v) + 4, label_y(v), "soft", 11, "end") for v in up.ticks),
        PlotText((LEFT + right) / 2, place.bottom + 36, axes, "soft", 12, "middle"),
    ]  # fmt: skip


def heat_legend(place: GridLayout, steps: Sequence[int]) -> list[Mark]:
    """The colours of a map, and how many entities each stands for."""
    x = LEFT + CELLS * place.across + 14
    marks: list[Mark] = []
    for step, least in enumerate(steps):
        y = TOP + 8 + 17 * step
        last = steps[step + 1] - 1 if step + 1 < len(steps) else None
        label = f"{least:,} +" if last is None else f"{least:,}" if last == least else (
            f"{least:,}-{last:,}"
        )  # fmt: skip
        marks.append(Lines([[(x, y), (x + 14, y)]], heat_style(step, steps), 14, blunt=True))
        marks.append(PlotText(x + 19, y + 4, label, "soft", 10.5))
    return marks


# Links.


def strongest_links(links: pa.Table) -> tuple[pa.Table, int]:
    """The pairs that exchanged the most bytes in both directions, and the number of all pairs."""
    ends = links.column("node"), links.column("to")
    pairs = (
        links.append_column("low", pc.min_element_wise(*ends))
        .append_column("high", pc.max_element_wise(*ends))
        .group_by(["low", "high"])
        .aggregate([("bytes", "sum"), ("first_s", "min"), ("last_s", "max")])
    )
    apart = pairs.filter(pc.not_equal(pairs.column("low"), pairs.column("high")))
    return top_rows(apart, MAX_LINKS, "bytes_sum"), len(apart)


def node_positions(
    pairs: Sequence[tuple[int, int]], positions: pa.Table, seconds: Sequence[int]
) -> list[dict[int, Point]]:
    """The position of each node at each second: in the world, or else on circles.

    A node that never had a position (a server, a broker) is in the middle of its neighbours.
    """
    peers: dict[int, list[int]] = {}
    for a, b in pairs:
        peers.setdefault(a, []).append(b)
        peers.setdefault(b, []).append(a)
    nodes = sorted(peers)
    if not len(positions):
        return [circle_layout(peers) for _ in seconds]
    ours = positions.filter(pc.is_in(positions.column("node"), pa.array(nodes, pa.int64())))
    rows = ours.select(["second", "node", "x", "y"]).sort_by("second").to_pylist()
    moving = {row["node"] for row in rows}
    placeless = [node for node in nodes if node not in moving]
    found: list[dict[int, Point]] = []
    here: dict[int, Point] = {}
    read = 0
    for second in seconds:
        while read < len(rows) and rows[read]["second"] <= second:
            here[rows[read]["node"]] = (rows[read]["x"], rows[read]["y"])
            read += 1
        amid = {node: [here[peer] for peer in peers[node] if peer in here] for node in placeless}
        found.append(here | {node: centroid(spots) for node, spots in amid.items() if spots})
    return found


def circle_layout(peers: dict[int, list[int]]) -> dict[int, Point]:
    """All nodes on a circle; those with very many neighbours are inside."""
    many = max(8, len(peers) / 4)
    hubs = sorted(node for node in peers if len(peers[node]) >= many)
    others = sorted(node for node in peers if len(peers[node]) < many)
    found: dict[int, Point] = {}
    for nodes, radius in ((hubs, 0.3 if len(hubs) > 1 else 0.0), (others, 1.0)):
        for i, node in enumerate(nodes):
            angle = 2 * pi * i / len(nodes)
            found[node] = (radius * cos(angle), radius * sin(angle))
    return found


def centroid(spots: Sequence[Point]) -> Point:
    return sum(x for x, _ in spots) / len(spots), sum(y for _, y in spots) / len(spots)


def link_map(
    name: str, title: str, links: pa.Table, positions: pa.Table, seconds: Sequence[int]
) -> Plot:
    """The busiest links in use at each second: first used by then, and used again later."""
    pairs, number_of = strongest_links(links)
    rows = pairs.to_pylist()
    ends = [(row["low"], row["high"]) for row in rows]
    placed = node_positions(ends, positions, seconds)
    spots = [spot for here in placed for spot in here.values()] or [(0.0, 0.0)]
    (x_low, x_high), (y_low, y_high) = (
        (min(values), max(values)) for values in zip(*spots, strict=True)
    )
    longer = max(x_high - x_low, y_high - y_low) or 1.0

    def at(spot: Point) -> Point:
        return (20 + (spot[0] - x_low) / longer * SIDE, 60 + (y_high - spot[1]) / longer * SIDE)

    # The busiest first: the rank decides how thick, so that a few stand out in any run.
    rank = [min(3, ceil(4 * (1 - i / len(rows))) - 1) for i in range(len(rows))]
    frames = []
    for second, here in zip(seconds, placed, strict=True):
        paper = {node: at(spot) for node, spot in here.items()}
        strokes: list[list[list[Point]]] = [[] for _ in THICKNESSES]
        for row, (a, b), thick in zip(rows, ends, rank, strict=True):
            in_use = row["first_s_min"] < second + 1 and row["last_s_max"] >= second
            if in_use and a in paper and b in paper:
                strokes[thick].append([paper[a], paper[b]])
        lines = [Lines(each, "s0", width, opacity=0.45)
                 for each, width in zip(strokes, THICKNESSES, strict=True)]  # fmt: skip
        ends_in_use = dict.fromkeys(spot for each in strokes for pair in each for spot in pair)
        dots = Lines([[spot] for spot in ends_in_use], "s1", 4)
        frames.append(PlotFrame(f"{second:,} s", [*lines, dots]))
    shown = f"{count(number_of)} links"
    if len(rows) < number_of:
        shown = f"the {count(len(rows))} busiest of {shown}"
    return Plot(
        name=name,
        title=title,
        width=SIDE + 40,
        height=80 + (y_high - y_low) / longer * SIDE,
        marks=[
            PlotText(10, 20, clean(title, 70), bold=True, size=14),
            PlotText(10, 38, f"Of {shown}, those in use at a time; thicker: more bytes", "soft"),
        ],
        frames=frames,
        shown=len(frames) // 2,
    )
