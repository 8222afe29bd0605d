"""What is drawn is where it should be: scales, maps, links and time against plain Python."""

from collections import Counter, defaultdict
from io import BytesIO
from itertools import pairwise
from math import hypot, isclose, isnan
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nearcast.pipeline.report import maps, timelines
from nearcast.pipeline.report.charts import Axis, Series, chart, scale
from nearcast.pipeline.report.formatting import (
    NONE,
    clean,
    count,
    milliseconds,
    number,
    share,
    size,
)
from nearcast.pipeline.report.plots import (
    DASHES,
    Lines,
    Plot,
    PlotArea,
    Point,
    dashed,
    frame_paths,
    path,
    png,
    svg,
)
from nearcast.pipeline.report.results import run_labels
from support.examples import examples

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


# Words.


@given(st.floats(0, 1))
def test_only_everything_is_100_percent_and_only_nothing_is_0(value: float) -> None:
    assert (share(value) == "100 %") == (100 * value == 100)
    assert (float(share(value)[:-2]) == 0) == (100 * value < 1e-14)


def test_numbers_are_formatted_for_people() -> None:
    assert [size(v) for v in (0, 999, 1000, 53_442_695, 999_999)] == [
        "0 B", "999 B", "1 kB", "53.44 MB", "1 MB",
    ]  # fmt: skip
    assert [milliseconds(v) for v in (0.25, 103.5, 1250.0)] == ["0.25 ms", "103.5 ms", "1.25 s"]
    assert [number(v) for v in (1234567.8, 0.123456, 2.0)] == ["1,234,568", "0.1235", "2"]
    assert [count(v) for v in (2**53, 0)] == ["9,007,199,254,740,992", "0"]
    for words in (size, milliseconds, number, count, share):
        assert words(None) == words(float("nan")) == NONE


@given(st.text())
def test_any_text_can_be_drawn_in_a_plot(text: str) -> None:
    one = Series(name=text, x=[0.0], y=[1.0], style="s0")
    drawn = ElementTree.fromstring(svg(chart("a", text, Axis(text), Axis(text), [one])))
    assert drawn.get("aria-label", "").split() == clean(text).split()


def test_runs_are_labelled_by_what_differs() -> None:
    base = {"protocol": "p", "workload": "w", "seed": 1, "loss": 0.0}
    assert run_labels({"a": base}) == {"a": "p, w"}
    assert run_labels({"a": {}}) == {"a": "a"}
    assert run_labels({"a": base, "b": base | {"loss": 0.5}}) == {"a": "loss=0", "b": "loss=0.5"}
    assert run_labels({"a": base, "b": {}}) == {"a": "a", "b": "b"}
    assert run_labels({"a": base, "b": base}) == {"a": "a", "b": "b"}
    other = base | {"workload": "v", "only_v": 3}
    assert run_labels({"a": base, "b": other}) == {"a": "workload=w", "b": "workload=v"}


# Scales and charts.


@given(st.lists(FINITE, min_size=1, max_size=8), st.booleans())
@settings(deadline=None)
def test_every_value_and_tick_lies_within_its_axis(values: list[float], log: bool) -> None:
    axis = scale(Axis("", log=log), values, 100, 500)
    places = [axis.place(v) for v in sorted(values)]
    assert all(100 - 1e-6 <= p <= 500 + 1e-6 for p in places)
    assert places == sorted(places)
    assert 1 <= len(axis.ticks) <= 12
    assert all(100 - 1e-6 <= axis.place(t) <= 500 + 1e-6 for t in axis.ticks)


def test_a_logarithm_puts_equal_factors_at_equal_distances() -> None:
    axis = scale(Axis("", log=True), [1.0, 1000.0], 0, 300)
    assert [axis.place(v) for v in (0.0, 1.0, 10.0, 100.0, 1000.0)] == [0, 0, 100, 200, 300]
    assert axis.ticks == [1, 10, 100, 1000]


def test_whole_things_have_whole_ticks() -> None:
    assert scale(Axis("", count, 0.2, 3.8), [], 0, 1).ticks == [1, 2, 3]


def lines_of(plot: Plot, style: str) -> list[Lines]:
    return [mark for mark in plot.marks if isinstance(mark, Lines) and mark.style == style]


def test_a_line_breaks_where_there_is_no_value() -> None:
    nan = float("nan")
    one = Series(name="", x=[0.0, 1.0, 2.0, 3.0, 4.0], y=[1.0, 2.0, nan, 4.0, nan], style="s3")
    strokes = lines_of(chart("a", "b", Axis(""), Axis("", low=0.0), [one]), "s3")[0].strokes
    assert [len(stroke) for stroke in strokes] == [2, 1]


def test_steps_hold_their_value_until_the_next() -> None:
    one = Series(name="", x=[0.0, 1.0], y=[1.0, 2.0], style="s3", shape="step")
    (stroke,) = lines_of(chart("a", "b", Axis(""), Axis(""), [one]), "s3")[0].strokes
    (x0, y0), corner, (x1, y1) = stroke
    assert corner == (x1, y0) and x0 < x1 and y0 > y1


def test_stacked_areas_add_up() -> None:
    both = [Series(name="", x=[0.0, 1.0], y=[2.0, 1.0], style=name) for name in ("s0", "s1")]
    plot = chart("a", "b", Axis(""), Axis("", low=0.0, high=4.0), both, stacked=True)
    assert plot.hover is not None
    _, top, _, ground = plot.hover.frame
    heights = [
        [(ground - y) / (ground - top) * 4 for _, y in mark.outline]
        for mark in plot.marks
        if isinstance(mark, PlotArea)
    ]
    assert heights == [[2, 1, 0, 0], [4, 2, 1, 2]]


@given(
    st.lists(st.tuples(st.floats(0, 99), st.floats(0, 99)), min_size=2, max_size=6),
    st.sampled_from(DASHES[1:]),
)
def test_dashes_draw_their_share_of_a_stroke(
    stroke: list[Point], pattern: tuple[float, ...]
) -> None:
    def length(points: list[Point]) -> float:
        return sum(hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(points))

    whole, drawn = length(stroke), sum(map(length, dashed(stroke, pattern)))
    turns, rest = divmod(whole, sum(pattern))
    assert isclose(drawn, turns * pattern[0] + min(rest, pattern[0]), abs_tol=1e-6)


def test_paths_are_short_and_exact_to_a_tenth() -> None:
    assert path([[(1, 2)]]) == "M1 2h0"
    assert path([[(1, 2), (9.04, 2)]]) == "M1 2h8"
    assert path([[(1.26, 2), (3, 4), (-0.04, 5)]]) == "M1.3 2L3 4 0 5"


def test_a_picture_shows_what_the_plot_says() -> None:
    bar = Lines([[(0, 10), (20, 10)]], "s0", 20, blunt=True)
    plot = Plot(name="a", title="b", width=20, height=30, marks=[bar])
    picture = Image.open(BytesIO(png(plot)))
    assert picture.size == (40, 60)
    assert picture.getpixel((20, 20)) == (0x2A, 0x78, 0xD6)
    assert picture.getpixel((20, 50)) == (255, 255, 255)


# Time.


@st.composite
def seconds_and_counts(draw: st.DrawFn) -> dict[str, list[int | None]]:
    rows = draw(st.lists(st.tuples(st.integers(-50, 2000), st.integers(0, 9), st.integers(1, 9)),
                         min_size=1, max_size=30))  # fmt: skip
    return {
        "second": [*(second for second, _, _ in rows), None],
        "part": [*(part for _, part, _ in rows), 1000],
        "whole": [*(whole for _, _, whole in rows), 1000],
    }


@given(seconds_and_counts())
def test_stretches_of_seconds_sum_up_what_plain_python_does(rows: dict[str, list[int]]) -> None:
    table = pa.table(rows)
    time = timelines.time_bins([table])
    assert time.number <= timelines.MAX_BINS
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in table.to_pylist():
        if row["second"] is not None:
            place = (row["second"] - time.first) // time.width
            sums[place].update({"part": row["part"], "whole": row["whole"]})
    totals = timelines.total("part")(table, time)
    assert totals.tolist() == [sums[i]["part"] for i in range(time.number)]
    for i, found in enumerate(timelines.ratio("part", "whole")(table, time)):
        told = sums[i]
        assert isnan(found) if not told else isclose(found, told["part"] / told["whole"])


def test_a_state_lasts_until_another_and_no_longer_than_its_run() -> None:
    table = pa.table({"second": [6, 2], "links": [7, 5]})
    longer = pa.table({"second": [0, 8], "links": [1, 1]})
    time = timelines.time_bins([table, longer])
    found = timelines.last_value("links")(table, time).tolist()
    assert [None if isnan(v) else v for v in found] == [None, None, 5, 5, 5, 5, 7, None, None]


# Maps.

CELL = st.tuples(st.integers(0, 63), st.integers(0, 63))


@given(st.dictionaries(CELL, st.integers(1, 500), min_size=1, max_size=60), st.floats(0.2, 5))
def test_a_map_colours_exactly_the_occupied_cells_by_how_full_they_are(
    cells: dict[tuple[int, int], int], aspect: float
) -> None:
    table = pa.table({
        "second": [0] * len(cells),
        "cell_x": [x for x, _ in cells], "cell_y": [y for _, y in cells],
        "entities": list(cells.values()), "x_low": [5.0] * len(cells), "y_low": [-3.0] * len(cells),
        "cell_width": [1.0] * len(cells), "cell_height": [aspect] * len(cells),
    })  # fmt: skip
    place, steps = maps.grid_layout(table), maps.heat_steps(max(cells.values()))
    found = {}
    for step, lines in enumerate(maps.density_lines(table, place, steps)):
        for (left, y), (right, _) in lines.strokes:
            row = (place.bottom - y) / place.up - 0.5
            for column in range(round((left - maps.LEFT) / place.across),
                                round((right - maps.LEFT) / place.across)):  # fmt: skip
                assert (column, row) not in found
                found[column, row] = step
    assert found == {
        cell: max(i for i, least in enumerate(steps) if least <= held)
        for cell, held in cells.items()
    }
    assert len({maps.heat_style(i, steps) for i in range(len(steps))}) == len(steps) <= 8


def test_a_miss_lies_in_the_cell_of_its_place() -> None:
    place = maps.GridLayout(x_low=0, y_low=0, cell_width=2, cell_height=1, across=8, up=4)
    missed = pa.table({"second": [0, 0], "x": [3.0, 1000.0], "y": [63.5, 0.0]})
    ((dots,),), told = maps.missed_marks(missed, place, [0])
    assert dots.strokes == [[(maps.LEFT + 12, maps.TOP + 2)]], "one cell from the left, top row"
    assert told == "dots: misses until the next time (2 in all)"


@given(
    st.lists(st.integers(-3, 12), min_size=1, max_size=30),
    st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(sorted),
)
@examples(50)
def test_each_miss_is_shown_from_the_moment_before_it_to_the_next(
    missed_at: list[int], seconds: list[int]
) -> None:
    place = maps.GridLayout(x_low=0, y_low=0, cell_width=1, cell_height=1, across=8, up=8)
    x = [float(number) for number in range(len(missed_at))]
    missed = pa.table({"second": missed_at, "x": x, "y": x})
    dots, _ = maps.missed_marks(missed, place, seconds)
    shown = [[(px - maps.LEFT) / 8 for (line,) in [each] for ((px, _),) in line.strokes]
             for each in dots]  # fmt: skip
    assert shown == [
        [
            place
            for place, second in zip(x, missed_at, strict=True)
            if (number == 0 or seconds[number] <= second)
            and (number + 1 == len(seconds) or second < seconds[number + 1])
        ]
        for number in range(len(seconds))
    ]


def test_without_misses_there_is_nothing_above_the_map() -> None:
    place = maps.GridLayout(x_low=0, y_low=0, cell_width=1, cell_height=1, across=8, up=8)
    none = pa.table({"second": pa.array([], pa.int64()), "x": pa.array([], pa.float64()),
                     "y": pa.array([], pa.float64())})  # fmt: skip
    assert maps.missed_marks(none, place, [0, 1]) == ([[], []], "nothing was missed")
    assert maps.missed_marks(None, place, [0, 1]) == ([[], []], "misses are not known")


def test_a_world_without_extent_is_drawn_all_the_same() -> None:
    one = {"second": 0, "cell_x": 0, "cell_y": 0, "entities": 3, "x_low": 7.0, "y_low": 7.0,
           "cell_width": 0.0, "cell_height": 0.0}  # fmt: skip
    plot = maps.world_map("a", "b", pa.Table.from_pylist([one]), None, [0], 3)
    assert sum(len(lines.strokes) for lines in plot.frames[0].lines) == 1


def test_a_map_shows_the_last_moment_known_before() -> None:
    rows = [{"second": s, "cell_x": s, "cell_y": 0, "entities": 1, "x_low": 0.0, "y_low": 0.0,
             "cell_width": 1.0, "cell_height": 1.0} for s in (2, 4)]  # fmt: skip
    plot = maps.world_map("a", "b", pa.Table.from_pylist(rows), None, [1, 2, 3, 4], 1)
    drawn = [paths for _, paths in frame_paths(plot)]
    assert drawn[0] == [""] and drawn[1] == drawn[2] != drawn[3]


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 2, st.integers(1, 99)), min_size=1, max_size=40))
@examples(50)
def test_links_are_between_two_whoever_sends(rows: list[tuple[int, int, int]]) -> None:
    table = pa.table({
        "node": [a for a, _, _ in rows], "to": [b for _, b, _ in rows],
        "bytes": [sent for _, _, sent in rows], "first_s": [0.0] * len(rows),
        "last_s": [1.0] * len(rows),
    })  # fmt: skip
    sums: Counter[tuple[int, int]] = Counter()
    for a, b, sent in rows:
        if a != b:
            sums[min(a, b), max(a, b)] += sent
    found, number_of = maps.strongest_links(table)
    assert number_of == len(sums)
    pairs = {(row["low"], row["high"]): row["bytes_sum"] for row in found.to_pylist()}
    assert pairs == dict(sums)
    assert list(pairs.values()) == sorted(pairs.values(), reverse=True)


def test_at_most_500_links_are_drawn_and_only_while_in_use() -> None:
    many = pa.table({
        "node": np.arange(600), "to": np.arange(600) + 1000, "bytes": np.arange(600) + 1,
        "first_s": np.where(np.arange(600) % 2, 0.0, 5.5), "last_s": np.full(600, 9.0),
    })  # fmt: skip
    plot = maps.link_map("a", "b", many, pa.table({}), [4, 5, 9, 10])
    drawn = [sum(len(lines.strokes) for lines in one.lines[:-1]) for one in plot.frames]
    assert drawn == [250, 500, 500, 0]
    assert "500 busiest of 600 links" in svg(plot)


def test_a_node_without_a_place_is_amid_its_peers() -> None:
    positions = pa.table({
        "second": [0, 0, 3], "node": [1, 2, 1], "x": [0.0, 4.0, 2.0], "y": [0.0, 2.0, 0.0],
    })  # fmt: skip
    early, late = maps.node_positions([(1, 9), (2, 9)], positions, [2, 3])
    assert early == {1: (0, 0), 2: (4, 2), 9: (2, 1)}
    assert late == {1: (2, 0), 2: (4, 2), 9: (3, 1)}


def test_moments_are_few_and_reach_from_first_to_last() -> None:
    assert maps.chosen_seconds([3, 1, 1, 2], 1) == [1, 2, 3]
    many = maps.chosen_seconds(range(10_000), 1)
    assert (many[0], many[-1], len(many)) == (0, 9_999, 48)
    assert len(maps.chosen_seconds(range(10_000), 50)) == 6


def test_thickness_grows_with_bytes() -> None:
    table = pa.table({"node": [1, 2, 3, 4], "to": [9] * 4, "bytes": [1, 2, 3, 4],
                      "first_s": [0.0] * 4, "last_s": [1.0] * 4})  # fmt: skip
    positions = pa.table({"second": [0] * 5, "node": [1, 2, 3, 4, 9],
                          "x": [1.0, 2.0, 3.0, 4.0, 9.0], "y": [0.0] * 5})  # fmt: skip
    plot = maps.link_map("a", "b", table, positions, [0])
    thin_to_thick = sorted(plot.frames[0].lines[:-1], key=lambda lines: lines.width)
    starts = [x for lines in thin_to_thick for ((x, _), _) in lines.strokes]
    assert len(starts) == 4 and starts == sorted(starts), "the fourth node's is the thickest"
