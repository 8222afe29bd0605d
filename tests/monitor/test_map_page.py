"""A world on Earth in a real browser: where the map draws what, and how it is moved."""

import json
from collections.abc import Iterator
from math import asinh, atan, cos, degrees, dist, radians, sinh, tan
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.space.earth import chord_of, ecef
from nearcast.space.earth_shapes import earth_bounds, earth_disc, earth_point
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import Shape
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder
from support.monitor_processes import started

# On both sides of the antimeridian: each is found by its number.
FLEET = [(179.2, -17.0), (179.9, -17.5), (-179.9, -16.4), (-179.3, -18.1), (178.6, -16.9)]
FENCE = 90  # the number of who has it
SCENARIO = b'{"schema": 2, "protocol": "test", "settings": {"geometry": "earth"}}'

# A pen that remembers where it was: [x, y] of each stroke, in pixels.
TRACE = """(area) => {
  const { world } = window.nearcast, strokes = [];
  const pen = { beginPath() {}, closePath() {}, arc() {},
    moveTo: (x, y) => strokes.push([[x, y]]), lineTo: (x, y) => strokes.at(-1).push([x, y]) };
  return world.ground.trace(pen, world, area) ? strokes : null;
}"""


def northing(lat: float) -> float:
    return degrees(asinh(tan(radians(lat))))


def latitude(y: float) -> float:
    return degrees(atan(sinh(radians(y))))


class MapVisit:
    """The map of a trace, and all that its console complains about."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.page = browser.new_page(viewport={"width": 1500, "height": 700}, **options)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_function("window.nearcast?.world.snapshot?.entities.count > 0")
        self.page.evaluate("window.nearcast.world.ground.loaded")
        self.page.evaluate("window.nearcast.replay?.playing && window.nearcast.replay.toggle()")
        self.until_drawn()

    def until_drawn(self) -> None:
        """Twice more, of which the second begins after what was done before."""
        drawn = self.page.evaluate("window.nearcast.world.drawn")
        self.page.wait_for_function(f"window.nearcast.world.drawn > {drawn + 1}")

    def view(self) -> tuple[float, float, float, float, float]:
        """Longitude and northing in the middle, pixels for a degree, width and height."""
        x, y, *rest = self.page.evaluate(
            "(() => { const { centre, scale, width, height } = window.nearcast.world;"
            " return [centre.x, centre.y, scale, width, height]; })()"
        )
        return x, y, *rest

    def pixel(self, lon: float, lat: float) -> tuple[float, float]:
        """Where Mercator has it in this view, the short way round."""
        x, y, scale, width, height = self.view()
        east = (lon - x + 180) % 360 - 180
        return width / 2 + east * scale, height / 2 - (northing(lat) - y) * scale

    def place(self, px: float, py: float) -> tuple[float, float]:
        x, y, scale, width, height = self.view()
        return x + (px - width / 2) / scale, latitude(y - (py - height / 2) / scale)

    def colour(self, px: float, py: float) -> tuple[int, ...]:
        """Red, green and blue of a pixel."""
        return tuple(
            self.page.evaluate(
                """([x, y]) => {
                    const copy = new OffscreenCanvas(1, 1).getContext("2d");
                    copy.drawImage(document.getElementById("world"), -x, -y);
                    return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
                }""",
                [round(px), round(py)],
            )
        )

    def style(self, name: str) -> tuple[int, ...]:
        text = self.page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
        )
        return tuple(int(text[i : i + 2], 16) for i in (1, 3, 5))

    def trace(self, **area: Any) -> list[list[tuple[float, float]]] | None:
        strokes = self.page.evaluate(TRACE, area)
        return strokes and [[self.place(*spot) for spot in stroke] for stroke in strokes]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    trace = tmp_path_factory.mktemp("map") / "fleet"
    record(trace)
    with started("monitor", trace, "--port", "0") as replay:
        yield replay.page


def record(trace: Path) -> None:
    recorder = Recorder(TraceFolder(trace, SCENARIO))
    regions: dict[int, Shape] = {
        number: earth_disc(*place, 5_000.0) for number, place in enumerate(FLEET)
    }
    regions[FENCE] = earth_bounds(179.5, -18.5, -179.5, -17.9)
    for number, shape in regions.items():
        recorder.interest(SECOND, Subscription(number, number, Moving(shape, since=SECOND)))
    for number, place in enumerate(FLEET):
        recorder.published(Publication(number, number, SECOND, earth_point(*place)))
        recorder.delivered(SECOND + 1, (number + 1) % len(FLEET), number, [number], 1)
    recorder.close()


@pytest.fixture(scope="module")
def open_map(browser: Any, address: str) -> Iterator[MapVisit]:
    visit = MapVisit(browser, address)
    yield visit
    visit.page.close()


@pytest.fixture
def visit(open_map: MapVisit) -> Iterator[MapVisit]:
    """The same page for all tests, each time with all entities in view."""
    open_map.page.evaluate("window.nearcast.world.fit()")
    open_map.until_drawn()
    yield open_map
    assert open_map.complaints == []


def test_a_fleet_around_the_antimeridian_is_shown_together(visit: MapVisit) -> None:
    assert visit.page.evaluate("window.nearcast.world.snapshot.entities.count") == len(FLEET) + 1
    x, _, _, width, height = visit.view()
    assert 179.5 < x % 360 < 180.5
    for lon, lat in FLEET:
        px, py = visit.pixel(lon, lat)
        assert 0 < px < width and 0 < py < height
        assert visit.page.evaluate(f"window.nearcast.world.toScreen({lon}, {lat})") == (
            pytest.approx([px, py], abs=1e-6)
        )
        assert visit.colour(px, py) == visit.style("walking"), "an entity is drawn there"
    assert visit.colour(*visit.pixel(-179.13, -16.53)) == visit.style("sea")


def test_land_is_where_it_is(visit: MapVisit) -> None:
    visit.page.evaluate("window.nearcast.world.closer(0.3)")
    visit.until_drawn()
    assert visit.colour(*visit.pixel(178.05, -17.75)) == visit.style("land"), "Viti Levu"
    visit.page.evaluate("window.nearcast.world.closer(1e-9)")
    visit.until_drawn()
    places = {
        "land": [(-100.0, 41.0), (65.0, 63.0), (133.0, -24.0), (20.0, 3.0), (175.0, 67.0),
                 (-176.5, 66.75), (-58.0, -8.0)],
        "sea": [(-140.0, 33.0), (-33.0, 41.0), (80.0, -23.0), (51.0, 41.5), (-160.0, 7.0)],
    }  # fmt: skip
    for style, some in places.items():
        for lon, lat in some:
            assert visit.colour(*visit.pixel(lon, lat)) == visit.style(style), (lon, lat)


def test_the_wheel_zooms_at_the_pointer_and_a_drag_moves_the_map(visit: MapVisit) -> None:
    box = visit.page.locator("#world").bounding_box()
    px, py = 250.0, 180.0
    before, scale = visit.place(px, py), visit.view()[2]
    visit.page.mouse.move(box["x"] + px, box["y"] + py)
    visit.page.mouse.wheel(0, -400)
    visit.page.wait_for_function(f"window.nearcast.world.scale > {scale} * 1.01")
    assert visit.place(px, py) == pytest.approx(before, abs=1e-9)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + px + 120, box["y"] + py + 50, steps=4)
    visit.page.mouse.up()
    slipped = visit.pixel(*before)
    assert slipped == pytest.approx((px + 120, py + 50), abs=7), "but for what a click may slip"
    visit.until_drawn()
    lon, lat = FLEET[0]
    inside = visit.pixel(lon, lat)
    assert visit.colour(*inside) == visit.style("walking")
    visit.page.locator("#whole").click()
    assert visit.view()[2] == pytest.approx(scale)


def test_the_whole_earth_is_seen_once_and_has_no_end_but_the_poles(visit: MapVisit) -> None:
    visit.page.evaluate("window.nearcast.world.closer(1e-9)")
    _, y, scale, width, height = visit.view()
    assert scale == pytest.approx(max(width, height) / 360)
    assert abs(y) + height / 2 / scale <= 180 + 1e-9
    visit.page.evaluate("window.nearcast.world.closer(4)")
    box = visit.page.locator("#world").bounding_box()
    x = visit.view()[0]
    for _ in range(14):
        visit.page.mouse.move(box["x"] + 30, box["y"] + 300)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + 330, box["y"] + 500, steps=2)
        visit.page.mouse.up()
    now, y, scale, _, height = visit.view()
    assert -180 <= now <= 180 and now != x
    assert y + height / 2 / scale == pytest.approx(180), "the map ends in the north"


@pytest.mark.parametrize(
    ("lon", "lat", "metres"), [(8.5, 47.4, 50_000), (-179.9, 60.0, 300_000), (20.0, 0.0, 900_000)]
)
def test_a_disc_is_drawn_at_its_distance(
    visit: MapVisit, lon: float, lat: float, metres: float
) -> None:
    chord = chord_of(metres, lat)
    look_at(visit, lon, lat, chord)
    strokes = visit.trace(kind=1, x=lon, y=lat, rx=chord, ry=chord)
    assert strokes is not None and len(strokes) == 1
    away = [dist(ecef(lon, lat), ecef((x + 180) % 360 - 180, y)) for x, y in strokes[0]]
    assert away == pytest.approx([chord] * len(away), rel=0.005)
    assert len(away) > 60


def test_a_disc_around_a_pole_is_closed_along_the_edge_of_the_map(visit: MapVisit) -> None:
    visit.page.evaluate("window.nearcast.world.closer(1e-9)")
    strokes = visit.trace(kind=1, x=10.0, y=85.0, rx=2e6, ry=2e6)
    assert strokes is not None
    lons, lats = zip(*strokes[0], strict=True)
    assert max(lons) - min(lons) == pytest.approx(360)
    assert lats[-2:] == pytest.approx([85.0511] * 2, abs=1e-3)


def test_an_area_appears_at_both_ends_if_the_view_shows_them(visit: MapVisit) -> None:
    assert visit.trace(kind=2, x=0.0, y=50.0, rx=1.0, ry=1.0) is None, "it is elsewhere"
    visit.page.evaluate("window.nearcast.world.closer(1e-9)")
    x, _, scale, width, _ = visit.view()
    assert width / 2 / scale > 20
    strokes = visit.trace(kind=2, x=x + 180, y=0.0, rx=170.0, ry=5.0)
    assert strokes is not None
    ends = sorted(
        (min(lon for lon, _ in one) - x, max(lon for lon, _ in one) - x) for one in strokes
    )
    assert ends == [pytest.approx((-350, -10)), pytest.approx((10, 350))]


def test_long_edges_are_straight_in_degrees_and_long_lines_along_great_circles(
    visit: MapVisit,
) -> None:
    visit.page.evaluate("window.nearcast.world.closer(1e-9)")
    x = visit.view()[0]
    ring = [(-10, 6), (30, 6), (40, 60), (5, 60)]
    strokes = visit.trace(x=x, y=0, rings=[ring])
    assert strokes is not None and len(strokes) == 1
    sides = [(lon - x, lat) for lon, lat in strokes[0] if 6 + 1e-6 < lat < 60 - 1e-6]
    assert len(sides) > 100
    for lon, lat in sides:
        share = (lat - 6) / 54
        assert min(abs(lon - (30 + 10 * share)), abs(lon - (-10 + 15 * share))) < 1e-9

    ends = (140.0, 35.0), (-120.0, 40.0)
    way = visit.page.evaluate(f"window.nearcast.world.ground.way({[*map(list, ends)]})")
    normal = np.cross(*(ecef(*place) for place in ends))
    normal /= np.linalg.norm(normal)
    assert way[0] == [140, 35] and way[-1] == [240, 40] and len(way) > 60
    assert max(lat for _, lat in way) > 50, "it goes by the north"
    for lon, lat in way:
        assert abs(np.dot(normal, ecef((lon + 180) % 360 - 180, lat))) < 0.01, "metres"


def test_a_fence_across_the_antimeridian_is_one_ring(visit: MapVisit) -> None:
    assert visit.page.evaluate("window.nearcast.world.snapshot.areas.rings.size") == 1
    west, south = visit.pixel(179.5, -18.5)
    east, north = visit.pixel(-179.5, -17.9)
    assert east - west == pytest.approx(visit.view()[2])
    sea = visit.style("sea")
    for px, py in [(west, (south + north) / 2), ((west + east) / 2, south)]:
        near = [visit.colour(px + d, py + d) for d in (-1, 0, 1)]
        assert any(one != sea for one in near), "its border is drawn"


def test_pointing_at_an_entity_says_where_it_is(visit: MapVisit) -> None:
    box = visit.page.locator("#world").bounding_box()
    px, py = visit.pixel(*FLEET[2])
    visit.page.mouse.move(box["x"] + px + 2, box["y"] + py)
    visit.page.wait_for_function("!document.getElementById('tip').hidden")
    assert visit.page.locator("#tip").text_content() == "2 · 16.40000° S  179.90000° W"


def look_at(visit: MapVisit, lon: float, lat: float, metres: float) -> None:
    """So that a disc of so many metres fills the view."""
    scale = 300 * 111_319 * cos(radians(lat)) / metres
    visit.page.evaluate(
        f"(() => {{ const {{ world }} = window.nearcast; world.closer({scale} / world.scale);"
        f" world.centre = {{ x: {lon}, y: {northing(lat)} }}; }})()"
    )


def test_a_live_node_shows_its_fleet_as_it_comes(browser: Any, tmp_path: Path) -> None:
    """No character walks there; until somebody moves the map, all entities are in view."""
    settings = tmp_path / "earth.toml"
    settings.write_text('geometry = "earth"\n')
    with started("node", "--port", "0", "--no-record", "--config", settings) as node:
        publish(node.page, "first", 179.9, -17.0)
        visit = MapVisit(browser, node.page)
        assert visit.page.locator("#console").is_hidden()
        assert visit.view()[0] == pytest.approx(179.9, abs=1e-3)
        assert visit.colour(*visit.pixel(179.9, -17.0)) == visit.style("walking")
        publish(node.page, "second", -179.2, -17.2)
        visit.page.wait_for_function("window.nearcast.world.snapshot.entities.count === 2")
        visit.until_drawn()
        assert visit.view()[0] % 360 == pytest.approx(180.35, abs=1e-3)
        for place in [(179.9, -17.0), (-179.2, -17.2)]:
            assert visit.colour(*visit.pixel(*place)) == visit.style("walking")
        visit.page.evaluate("window.nearcast.world.closer(8)")
        looking = visit.view()
        publish(node.page, "third", 8.5, 47.4)
        visit.page.wait_for_function("window.nearcast.world.snapshot.entities.count === 3")
        visit.until_drawn()
        assert visit.view() == looking, "it stays where the user has put it"
        visit.page.locator("#whole").click()
        visit.until_drawn()
        assert visit.colour(*visit.pixel(8.5, 47.4)) == visit.style("walking")
        visit.page.wait_for_function(
            "document.getElementById('summary').textContent === '3 entities'"
        )
        assert visit.complaints == []
        visit.page.close()


def publish(page: str, name: str, lon: float, lat: float) -> None:
    """As an entity of this name, with a state that stays."""
    fix = {"lon": lon, "lat": lat, "retain": True, "name": name}
    with urlopen(Request(f"{page}publish", json.dumps(fix).encode(), method="POST")) as answer:
        assert answer.status == 202
