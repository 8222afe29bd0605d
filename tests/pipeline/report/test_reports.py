"""A report says what was counted, whatever was counted, in a page that stands by itself."""

import re
import shutil
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from PIL import Image

from nearcast.errors import TraceError
from nearcast.pipeline.report.drawings import DRAWINGS
from nearcast.pipeline.report.plots import svg
from nearcast.pipeline.report.reports import compose, write_report
from nearcast.pipeline.report.results import Results
from support.examples import seeds
from support.result_tables import scenario, tables, write, write_all

VOID = ("meta", "link", "input", "br", "hr", "img")
EVIL = "<script>alert('x')</script>"
WORSE = '"><img src=x onerror=alert(1)>\x00\x1b</svg>'


class Page(HTMLParser):
    """The page's elements and texts; fails where a tag is closed that is not the open one."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], "a tag was never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def svgs(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall("<svg.*?</svg>", html, re.S)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on one run that has all tables."""
    folder = tmp_path_factory.mktemp("alone")
    write_all(folder / "results", "run1")
    return write_report(folder / "results", folder / "out", ["run1"], {"run1": scenario()})


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    write_all(folder / "results", "run1")
    write_all(folder / "results", "run2", missed=0)
    shutil.rmtree(folder / "results" / "awareness_by_second" / "run=run2")
    scenarios = {"run1": scenario(matcher="grid"), "run2": scenario(matcher="scan")}
    return write_report(folder / "results", folder / "out", ["run1", "run2"], scenarios)


def test_the_page_is_well_formed_and_so_is_every_plot_in_it(alone: Path, several: Path) -> None:
    for file in (alone, several):
        html = file.read_text()
        Page(html)
        assert len(svgs(html)) > 20
        assert html.count("<svg") == len(svgs(html))


def test_the_page_needs_nothing_but_itself(alone: Path) -> None:
    html = alone.read_text()
    page = Page(html)
    assert {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object"} == set()
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert set(re.findall(r"https?://[^\"'<> ]*", html)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in html and "@import" not in html


def test_every_headline_number_is_there_exactly(alone: Path) -> None:
    html = alone.read_text()
    tiles = dict(re.findall(r'<dt>([^<]*)</dt><dd title="([^"]*)">', html))
    known = tables(1234)
    of_deliveries, of_traffic = known["delivery_totals"], known["traffic_totals"]
    for head, column in {
        "expected": "expected", "delivered": "delivered", "correct": "correct", "missed": "missed",
        "spurious": "spurious", "duplicates": "duplicates", "precision": "precision",
        "recall": "recall", "latency p50": "latency_p50_ms", "latency p99": "latency_p99_ms",
        "latency, mean": "latency_mean_ms", "latency p90": "latency_p90_ms",
        "latency, longest": "latency_max_ms", "hops, mean": "hops_mean",
        "out of order": "order_violations", "withheld on purpose": "withheld",
    }.items():  # fmt: skip
        assert tiles.pop(head) == str(of_deliveries[column][0])
    assert tiles.pop("rejected rows") == "4242"
    for head, column in {
        "messages": "messages", "bytes": "bytes", "messages lost": "lost",
        "bytes without publications": "subscription_bytes", "Gini of bytes sent": "gini_sent",
        "Gini of bytes received": "gini_received", "busiest sender / mean": "max_over_mean_sent",
    }.items():  # fmt: skip
        assert tiles.pop(head) == str(of_traffic[column][0])
    assert tiles == {}
    words = Page(html).text
    for expected in ("124,690", "123,456", "1,234", "99.95 %", "99.01 %", "57.25 ms", "99.12 ms",
                 "1.25 s", "987,654", "53.44 MB", "53,442,695 bytes", "4,242"):  # fmt: skip
        assert expected in words, expected


def test_what_was_not_rejected_is_distinguished_from_what_was_not_counted(tmp_path: Path) -> None:
    write_all(tmp_path, "run1")
    shutil.rmtree(tmp_path / "rejected" / "run=run1")
    html, _ = compose(Results(tmp_path, ["run1"], {}))
    assert 'rejected rows</dt><dd title="0">0</dd>' in html
    assert "No row was rejected" in html
    shutil.rmtree(tmp_path / "rejected")
    html, _ = compose(Results(tmp_path, ["run1"], {}))
    assert 'rejected rows</dt><dd title="">–</dd>' in html
    assert "The table <code>rejected</code> is absent." in html


def test_all_plots_are_files_too_as_svg_and_as_png(alone: Path) -> None:
    files = {file.name for file in (alone.parent / "plots").iterdir()}
    names = {name.rsplit(".", 1)[0] for name in files}
    assert files == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    assert len(names) == len(svgs(alone.read_text()))
    assert {"map-run1", "links-run1", "latency", "quality", "kinds-run1", "load"} <= names
    for name in names:
        drawn = ElementTree.parse(alone.parent / "plots" / f"{name}.svg").getroot()
        style = drawn.find("{http://www.w3.org/2000/svg}style")
        assert style is not None and "prefers-color-scheme:dark" in (style.text or "")
        picture = Image.open(BytesIO((alone.parent / "plots" / f"{name}.png").read_bytes()))
        assert picture.width == 2 * float(drawn.attrib["width"])
        dark, light = picture.convert("L").getextrema()
        assert dark < 60 and light == 255, "the picture is blank"


def test_absent_and_empty_tables_are_named_in_their_place_and_the_rest_is_shown(
    tmp_path: Path,
) -> None:
    whole = tables(1)
    for name, columns in whole.items():
        write(tmp_path / "whole", name, "r", columns)
        write(tmp_path / "empty", name, "r", {column: [] for column in columns})
    everything, plots = compose(Results(tmp_path / "whole", ["r"], {}))
    assert "is absent" not in everything and "has no rows" not in everything
    for name in whole:
        (tmp_path / "whole" / name).rename(tmp_path / "aside")
        html, drawn = compose(Results(tmp_path / "whole", ["r"], {}))
        (tmp_path / "aside").rename(tmp_path / "whole" / name)
        Page(html)
        if name == "fence_totals":  # without it there is no section of fences
            assert "fence_lateness" not in html and len(drawn) < len(plots)
            continue
        needing = [drawing for drawing in DRAWINGS if drawing.table == name]
        assert len(plots) - 2 * len(needing) <= len(drawn) <= len(plots) - len(needing)
        if name == "missed_places":
            assert "misses are not known" in html
        elif name not in ("world_positions", "fence_examples"):  # which may be absent
            told = html.count(f"The table <code>{name}</code> is absent.")
            assert told == (2 if name == "traffic_totals" else 1)  # it has two places
    html, drawn = compose(Results(tmp_path / "empty", ["r"], {}))
    assert drawn == [] and svgs(html) == []
    fences = {name for name in whole if name.startswith("fence_")}
    for name in set(whole) - {"missed_places", "world_positions", "rejected"} - fences:
        assert f"The table <code>{name}</code> has no rows." in html
    assert "No row was rejected" in html


def bent(chance: Random, name: str, values: list[Any]) -> pa.Array:
    """The values, some of them replaced by what nobody expects there."""
    strange: list[Any] = [0, 1, 2**53 - 1, 10**9]
    if pa.types.is_string(kind := pa.array(values).type):
        strange = ["", "\u202e<b>", "x" * 1000, "漢字"]
    elif pa.types.is_floating(kind):
        strange = [0.0, 1e15, -1e15, 1e-15, float("nan"), float("inf"), 1.0]
    elif name == "second":
        strange = [0, -5, 10**9, 3]
    elif name in ("cell_x", "cell_y"):
        strange = [0, 5, 63]
    strange.append(None)
    return pa.array([chance.choice(strange) if chance.random() < 0.4 else v for v in values], kind)


@seeds(range(3), range(3, 8))
def test_no_value_in_a_table_breaks_the_page(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    for run in ("run1", "run2"):
        for name, columns in tables(1).items():
            changed = {one: bent(chance, one, values) for one, values in columns.items()}
            write(tmp_path, name, run, changed)
    for runs in (["run1"], ["run1", "run2"]):
        html, plots = compose(Results(tmp_path, runs, {"run1": scenario()}))
        Page(html)
        assert len(svgs(html)) == len(plots)
        for drawn in (path for plot in svgs(html) for path in plot.iter() if path.get("d")):
            assert re.fullmatch(r"[-MLhz\d. ]*", drawn.attrib["d"]), "a place is not a number"


def test_a_report_on_nothing_at_all_is_still_a_page(tmp_path: Path) -> None:
    page = Page(write_report(tmp_path, tmp_path / "out", ["run1"], {}).read_text())
    assert "run1" in page.text and "is absent" in page.text


def test_text_from_traces_stays_text(tmp_path: Path) -> None:
    for run in (EVIL.replace("/", ""), "run2"):
        known = tables(1)
        known["delivery_by_channel"]["channel"] = [EVIL, WORSE, "x" * 5000]
        known["traffic_by_kind"]["kind"] = [EVIL, WORSE]
        known["traffic_by_second"]["kind"] = [EVIL, WORSE, EVIL, "<!--main-->"]
        known["rejected"]["reason"], known["rejected"]["file"] = [EVIL], [WORSE]
        for name, columns in known.items():
            write(tmp_path, name, run, columns)
    runs = [EVIL.replace("/", ""), "run2"]
    scenarios = {runs[0]: scenario(file=EVIL), runs[1]: scenario(file=WORSE)}
    for chosen in (runs, runs[:1]):
        html, plots = compose(Results(tmp_path, chosen, scenarios))
        page = Page(html)
        for plot in plots:
            ElementTree.fromstring(svg(plot))
        assert len(svgs(html)) > 20
        assert page.all("img") == []
        scripts = page.all("script")
        assert [one for one in scripts if one != {"type": "application/json"}] == [{}]
        assert EVIL in page.text and WORSE.replace("\x00\x1b", "\ufffd\ufffd") in page.text
        assert page.text.count("#summary") == 0 and html.count('id="summary"') == 1


def test_several_runs_are_named_by_what_differs_between_them(several: Path) -> None:
    html = several.read_text()
    page = Page(html)
    for label in ("matcher=grid", "matcher=scan"):
        assert label in page.text
        assert sum(label in "".join(plot.itertext()) for plot in svgs(html)) > 15
    recalls = re.findall(r'data-value="([\d.]+)" title="\1">[\d.]+ %', html)[::2][:1]
    assert recalls == [str(123_456 / 124_690)]
    assert "The table <code>awareness_by_second</code> has no rows for matcher=scan." in html
    differing = re.findall(r"<tr class=differs><th[^>]*>(.*?)</th>", html)
    assert differing == ["matcher"]
    quality = next(plot for plot in svgs(html) if plot.get("aria-label") == "Recall and precision")
    styles = {path.get("class") for path in quality.iter() if path.get("stroke-width") == "2"}
    assert styles == {"s0", "s1"}


def test_many_differences_are_shortened_but_counted_in_full(tmp_path: Path) -> None:
    changes = [{f"setting{i}": i * j for i in range(1, 30)} for j in range(3)]
    scenarios = {f"run{j}": scenario(**changes[j]) for j in range(3)}
    for run in scenarios:
        write_all(tmp_path, run)
    text = Page(compose(Results(tmp_path, list(scenarios), scenarios))[0]).text
    for j in range(3):
        assert f"#{j + 1} setting1={j} " in text
        assert f"setting29={29 * j}" in text


def test_the_same_results_give_the_same_bytes(alone: Path, tmp_path: Path) -> None:
    again = write_report(alone.parent.parent / "results", tmp_path, ["run1"], {"run1": scenario()})
    for file in (alone, *(alone.parent / "plots").iterdir()):
        assert (tmp_path / file.relative_to(alone.parent)).read_bytes() == file.read_bytes()
    assert not list(again.parent.rglob(".*")), "nothing unfinished is left"


def test_the_order_of_rows_means_nothing(tmp_path: Path) -> None:
    for name, columns in tables(9).items():
        write(tmp_path / "one", name, "r", columns)
        turned = {column: values[::-1] for column, values in columns.items()}
        write(tmp_path / "other", name, "r", turned)
    one, other = (compose(Results(tmp_path / which, ["r"], {})) for which in ("one", "other"))
    assert one == other


def test_what_cannot_be_read_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"^there are no results at .*nowhere$"):
        write_report(tmp_path / "nowhere", tmp_path / "out", ["run1"], {})
    with pytest.raises(TraceError, match=r"^no run of .* is given"):
        write_report(tmp_path, tmp_path / "out", [], {})
    write(tmp_path, "popularity", "run1", {"interested": [1]})
    with pytest.raises(TraceError, match=r"^a result table has no column total_time_mean_ms"):
        write_report(tmp_path, tmp_path / "out", ["run1"], {})
    broken = tmp_path / "popularity" / "run=run1" / "part-00000.parquet"
    broken.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(TraceError, match=r"part-00000\.parquet cannot be read: [^\n]*$"):
        write_report(tmp_path, tmp_path / "out", ["run1"], {})


# In a real browser.


def opened(browser: Any, file: Path, scheme: str = "light") -> tuple[Any, list[str]]:
    """The page, and what its console complains about or its scripts throw, now and later."""
    page = browser.new_page(color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda one: complaints.extend(re.findall("^(?!file:).*", one.url)))
    page.goto(file.as_uri())
    return page, complaints


def test_in_a_browser_the_slider_moves_the_map(browser: Any, several: Path) -> None:
    page, complaints = opened(browser, several)
    drawn = "[...document.querySelectorAll('#world g.now')].map(g => g.innerHTML)"
    seen = []
    for second in range(3):
        page.locator("#world input[type=range]").first.fill(str(second))
        seen.append(page.evaluate(drawn))
        outputs = page.locator("#world output").all_text_contents()
        assert outputs == [f"{second} s"] * 2, "one slider moves the maps of all runs"
    assert len({maps[0] for maps in seen}) == 3 and len({maps[1] for maps in seen}) == 3
    assert complaints == []


def test_in_a_browser_a_click_on_a_miss_shows_its_story(browser: Any, alone: Path) -> None:
    page, complaints = opened(browser, alone)
    story = page.locator("[data-stories] pre")
    assert not story.is_visible()
    for publication, told in (("6", "six\nand why"), ("5", "five\nand why")):
        row = page.locator("[data-stories] tbody tr").filter(has_text=publication)
        row.get_by_role("button").click()
        assert (story.is_visible(), story.text_content()) == (True, told)
        assert page.locator("tr.chosen").count() == 1
    assert complaints == []


def test_in_a_browser_the_slider_shows_what_was_missed_then(browser: Any, several: Path) -> None:
    page, complaints = opened(browser, several)
    dots = "[...document.querySelectorAll('#world g.above > path')].map(p => p.getAttribute('d'))"
    seen = []
    for second in range(3):
        page.locator("#world input[type=range]").first.fill(str(second))
        seen.append(page.evaluate(dots))
    assert [[each.count("M") for each in maps] for maps in seen] == [[1, 1], [0, 0], [1, 1]]
    assert seen[0] != seen[2], "at another place"
    page.locator("#world input[type=checkbox]").first.uncheck()
    shown = "[...document.querySelectorAll('#world g.above')].map(g => getComputedStyle(g).display)"
    assert page.evaluate(shown) == ["none", "inline"]
    assert complaints == []


def test_in_a_browser_a_click_on_a_head_sorts_the_table(browser: Any, alone: Path) -> None:
    page, complaints = opened(browser, alone)
    table = page.locator("#delivery table").first
    column = "rows => rows.map(row => row.cells[%d].textContent)"

    def cells(number: int) -> Any:
        return table.locator("tbody tr").evaluate_all(column % number)

    assert cells(0) == ["3", "1", "2", "4"], "those that missed most come first"
    table.get_by_role("button", name="node").click()
    assert cells(0) == ["4", "3", "2", "1"]
    table.get_by_role("button", name="node").click()
    assert cells(0) == ["1", "2", "3", "4"]
    table.get_by_role("button", name="latency, mean").click()
    assert cells(6) == ["62 ms", "61 ms", "60 ms", "–"]
    table.get_by_role("button", name="latency, mean").click()
    assert cells(6) == ["60 ms", "61 ms", "62 ms", "–"], "what is not known stays last"
    channels = page.locator("#delivery table").nth(1)
    channels.get_by_role("button", name="channel").click()
    names = channels.locator("tbody tr").evaluate_all(column % 0)
    assert names[0] == "chat"
    assert complaints == []


def test_in_a_browser_a_chart_shows_its_values_where_the_pointer_is(
    browser: Any, alone: Path
) -> None:
    page, complaints = opened(browser, alone)
    chart = page.locator("svg[aria-label='Recall and precision']")
    chart.hover(position={"x": 20, "y": 100})
    assert page.locator("#tip").inner_text().split("\n") == [
        "0 s", "recall", "98 %", "precision", "100 %",
    ]  # fmt: skip
    page.locator("h1").hover()
    assert page.locator("#tip").is_hidden()
    assert complaints == []


def test_in_a_browser_dark_surroundings_have_light_ink(browser: Any, alone: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page, complaints = opened(browser, alone, scheme)
        colours[scheme] = page.evaluate(
            "['body', '.card', 'svg .ink', 'svg .s0', '.plot .h7'].map(what =>"
            " getComputedStyle(document.querySelector(what)))"
            ".map(style => style.backgroundColor + style.color)"
        )
        assert complaints == []
    assert all(a != b for a, b in zip(colours["light"], colours["dark"], strict=True))


def test_in_a_browser_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    known = tables(1)
    known["traffic_by_second"]["kind"] = [EVIL, WORSE, EVIL, WORSE]
    for name, columns in known.items():
        write(tmp_path, name, "run1", columns)
    html, _ = compose(Results(tmp_path, ["run1"], {"run1": scenario(file=WORSE)}))
    (tmp_path / "page.html").write_text(html)
    page, complaints = opened(browser, tmp_path / "page.html")
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.locator("svg[aria-label='Traffic by kind']").hover(position={"x": 300, "y": 120})
    assert EVIL in page.locator("#tip").inner_text()
    assert complaints == []
