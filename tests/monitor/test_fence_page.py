"""Fences in a real browser: drawn, dragged and removed by a person, and told to whoever listens."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import dist
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import nearcast
from nearcast.space.earth import chord_of, ecef
from support.monitor_processes import started
from support.patience import PATIENCE_S

TRUCK = (8.54, 47.37)
KNOWN = "window.nearcast.world.fences.sets.fences"


def ask(page: str, method: str, path: str, body: Any = None, token: str = "") -> Any:
    """What the node answers; None for 404."""
    address, _, _ = page.partition("#")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(address + path, data, headers, method=method)) as answer:
            text = answer.read()
    except HTTPError as error:
        assert error.code == 404
        return None
    return json.loads(text) if text else None


def circle(which: Any, x: float, y: float, radius: float) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [x, y]}
    return {"type": "Feature", "id": which, "geometry": geometry, "properties": {"radius": radius}}


def collection(*features: dict[str, Any]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": features}


class FencePage:
    """A page on which fences are edited."""

    def __init__(self, browser: Any, address: str, touch: bool = False) -> None:
        self.address, self.complaints = address, list[str]()
        size = {"width": 1300, "height": 800}
        self.page = browser.new_page(viewport=size, has_touch=touch)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_function("window.nearcast?.world.snapshot?.entities.count > 0")
        self.until_drawn()  # with everybody in view
        self.page.locator("#fence-mode").click()
        self.box = self.page.locator("#world").bounding_box()
        self.until_drawn()

    def until_drawn(self) -> None:
        """Twice more, of which the second begins after what was done before."""
        drawn = self.page.evaluate("window.nearcast.world.drawn")
        self.page.wait_for_function(f"window.nearcast.world.drawn > {drawn + 1}")

    def name(self, in_set: str, fence: str) -> None:
        self.page.locator("#fence-set").fill(in_set)
        self.page.locator("#fence-name").fill(fence)

    def pixel(self, place: Sequence[float], dx: float = 0, dy: float = 0) -> tuple[float, float]:
        """Of the page."""
        px, py = self.page.evaluate(f"window.nearcast.world.toScreen({place[0]}, {place[1]})")
        return self.box["x"] + px + dx, self.box["y"] + py + dy

    def place(self, px: float, py: float) -> tuple[float, float]:
        x, y = px - self.box["x"], py - self.box["y"]
        found = self.page.evaluate(f"window.nearcast.world.placeAt({x}, {y})")
        return found[0], found[1]

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=4)
        self.page.mouse.up()

    def drag_by_touch(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        finger = self.page.context.new_cdp_session(self.page)
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        for kind, place in (("Start", start), ("Move", middle), ("Move", end), ("End", None)):
            points = [] if place is None else [{"x": place[0], "y": place[1]}]
            finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
        finger.detach()

    def click_all(self, corners: list[tuple[float, float]]) -> None:
        for corner in corners:
            self.page.mouse.click(*corner)

    def feature(self, in_set: str, fence: str, token: str = "") -> Any:
        """As the node has it."""
        found = ask(self.address, "GET", f"fences/{in_set}", token=token) or collection()
        return next((one for one in found["features"] if one["id"] == fence), None)

    def until_changed(self, in_set: str, fence: str, before: Any, token: str = "") -> Any:
        """The feature as the page knows it, which has it from the node, after a change that was
        made on this page: another page may still show an earlier one."""
        find = f"{KNOWN}.find((one) => one.set === '{in_set}' && one.id === '{fence}')?.feature"
        self.page.wait_for_function(
            "(before) => !window.nearcast.world.fences.sending"
            f" && JSON.stringify({find} ?? null) !== before",
            arg=to_json(before),
        )
        found = self.page.evaluate(f"{find} ?? null")
        assert found == self.feature(in_set, fence, token)
        return found

    def until_removed(self, in_set: str, fence: str) -> None:
        """As the page knows it, which may have missed earlier changes until now."""
        known = f"{KNOWN}.some((one) => one.set === '{in_set}' && one.id === '{fence}')"
        self.page.wait_for_function(f"!{known}")
        assert self.feature(in_set, fence) is None

    def until_said(self, words: str) -> None:
        self.page.wait_for_function(
            "(words) => document.getElementById('fence-message').textContent.includes(words)",
            arg=words,
        )


def to_json(value: Any) -> str:
    """As a page writes it."""
    return json.dumps(value, separators=(",", ":"))


@contextmanager
def listening(page: str, in_set: str) -> Iterator[Callable[[], tuple[str, str, str, str]]]:
    """A client that hears of the set: its next event, as kind, entity, fence and reason."""
    events: Queue[tuple[str, str, str, str]] = Queue()
    begun: Queue[asyncio.Task[None] | None] = Queue()
    address = page.replace("http", "ws")

    async def listen() -> None:
        async with nearcast.connect(address, name="office") as office:
            fences = await office.subscribe(fences=in_set, events=["enter", "leave"])
            begun.put(asyncio.current_task())
            async for one in fences.events():
                events.put((one.event, one.name, str(one.fence), one.reason))

    def run() -> None:
        loop = asyncio.new_event_loop()
        loops.append(loop)
        try:
            loop.run_until_complete(listen())
        except asyncio.CancelledError:
            pass
        finally:
            begun.put(None)
            loop.close()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = Thread(target=run)
    thread.start()
    task = begun.get(timeout=PATIENCE_S)
    assert task is not None, "it could not listen"
    try:
        yield lambda: events.get(timeout=PATIENCE_S)
    finally:
        loops[0].call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE_S)


def test_a_person_draws_drags_and_removes_fences_on_a_map(browser: Any, tmp_path: Path) -> None:
    settings = tmp_path / "earth.toml"
    settings.write_text('geometry = "earth"\n')
    with started("node", "--port", "0", "--no-record", "--config", settings) as node:
        lon, lat = TRUCK
        fix = {"lon": lon, "lat": lat, "retain": True, "name": "truck"}
        ask(node.page, "POST", "publish", fix)
        ask(node.page, "PUT", "fences/depots", collection(circle("far", 100, 0, 1_000)))
        with listening(node.page, "depots") as next_event:
            visit = FencePage(browser, node.page)
            other = FencePage(browser, node.page)
            tell_the_story(visit, other, next_event)
        assert visit.complaints == other.complaints == []
        visit.page.close()
        other.page.close()


def tell_the_story(
    visit: FencePage, other: FencePage, next_event: Callable[[], tuple[str, str, str, str]]
) -> None:
    page = visit.page

    visit.name("depots", "yard")
    page.locator("#draw-polygon").click()
    corners = [visit.pixel(TRUCK, *by) for by in ((-90, -60), (80, -70), (60, 50), (-70, 60))]
    places = [visit.place(*corner) for corner in corners]
    visit.click_all(corners)
    page.keyboard.press("Enter")
    assert next_event() == ("enter", "truck", "yard", "")
    yard = visit.until_changed("depots", "yard", None)
    (ring,) = yard["geometry"]["coordinates"]
    assert ring[0] == ring[-1]
    assert ring[:-1] == [pytest.approx(place, abs=1e-9) for place in places]
    assert other.until_changed("depots", "yard", None) == yard, "other pages see it"

    start, end = visit.pixel(TRUCK, 20, 10), visit.pixel(TRUCK, 170, -90)
    visit.drag(start, end)
    assert next_event() == ("leave", "truck", "yard", "left")
    away = visit.until_changed("depots", "yard", yard)
    by = [b - a for a, b in zip(visit.place(*start), visit.place(*end), strict=True)]
    (moved,) = away["geometry"]["coordinates"]
    assert moved == [pytest.approx((x + by[0], y + by[1]), abs=1e-9) for x, y in ring]

    visit.drag(visit.pixel(moved[3]), visit.pixel(TRUCK, -60, 40))
    assert next_event() == ("enter", "truck", "yard", "")
    back = visit.until_changed("depots", "yard", away)
    (stretched,) = back["geometry"]["coordinates"]
    assert stretched[:3] == moved[:3]
    assert stretched[3] == pytest.approx(visit.place(*visit.pixel(TRUCK, -60, 40)), abs=1e-9)

    # A corner beyond the opposite edge: the ring would cross itself.
    visit.drag(visit.pixel(stretched[1]), visit.pixel(TRUCK, 100, 60))
    visit.until_said("'yard'")
    assert "cross" in page.locator("#fence-message.wrong").text_content()
    assert visit.feature("depots", "yard") == back
    assert page.evaluate("window.nearcast.world.fences.shown('depots', 'yard')") == back

    visit.name("depots", "circle")
    page.locator("#draw-circle").click()
    visit.drag(visit.pixel(TRUCK), visit.pixel(TRUCK, 60, 0))
    drawn = visit.until_changed("depots", "circle", None)
    radius = drawn["properties"]["radius"]
    rim = visit.place(*visit.pixel(TRUCK, 60, 0))
    middle = drawn["geometry"]["coordinates"]
    assert middle == pytest.approx(TRUCK, abs=1e-9)
    assert chord_of(radius, middle[1]) == pytest.approx(dist(ecef(*TRUCK), ecef(*rim)), rel=1e-5)
    assert next_event() == ("enter", "truck", "circle", "")

    page.keyboard.press("Delete")
    assert next_event() == ("leave", "truck", "circle", "removed")
    assert visit.until_changed("depots", "circle", drawn) is None
    page.locator("#fence-list").select_option(to_json({"set": "depots", "id": "yard"}))
    page.locator("#remove-fence").click()
    other.until_removed("depots", "yard")
    assert visit.feature("depots", "far") is not None


def test_what_a_token_does_not_allow_is_said_and_not_done(browser: Any, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        '[boss]\ntoken = "boss-secret"\nrole = "admin"\n'
        '[fleet]\ntoken = "fleet-secret"\nrole = "publish"\nfences = ["fleet.*"]\n'
        '[guest]\ntoken = "guest-secret"\nrole = "publish"\n'
    )
    with started("node", "--port", "0", "--no-record", "--token-file", tokens) as node:
        depot = circle("depot", 300, 300, 100)
        ask(node.page, "PUT", "fences/depots", collection(depot), "boss-secret")

        guest = FencePage(browser, f"{node.page}#token=guest-secret")
        guest.until_said("does not allow")
        assert guest.until_changed("depots", "depot", None, "guest-secret") == depot
        assert guest.page.locator("#draw-polygon").is_disabled()
        before = guest.page.evaluate("window.nearcast.world.centre.x")
        guest.page.mouse.click(*guest.pixel((300, 300)))
        guest.drag(guest.pixel((300, 300)), guest.pixel((300, 300), 120, 0))
        assert guest.page.evaluate("window.nearcast.world.centre.x") < before, "the view moves"
        assert guest.feature("depots", "depot", "guest-secret") == depot
        guest.page.close()

        fleet = FencePage(browser, f"{node.page}#token=fleet-secret")
        fleet.until_changed("depots", "depot", None, "fleet-secret")
        fleet.page.mouse.click(*fleet.pixel((300, 300)))
        fleet.page.keyboard.press("ArrowUp")
        fleet.until_said("your token does not allow you to change the fences 'depots'")
        assert fleet.page.evaluate("window.nearcast.world.fences.shown('depots', 'depot')") == depot
        fleet.name("fleet.1", "zone")
        fleet.page.locator("#draw-polygon").click()
        fleet.click_all([fleet.pixel(place) for place in ((500, 500), (700, 500), (600, 700))])
        fleet.page.mouse.dblclick(*fleet.pixel((500, 650)))
        zone = fleet.until_changed("fleet.1", "zone", None, "fleet-secret")
        assert zone["geometry"]["coordinates"][0] == [
            pytest.approx(place, abs=1e-3)
            for place in ((500, 500), (700, 500), (600, 700), (500, 650), (500, 500))
        ]
        fleet.page.keyboard.press("ArrowRight")
        moved = fleet.until_changed("fleet.1", "zone", zone, "fleet-secret")
        assert moved["geometry"]["coordinates"][0][0][0] > 500
        assert guest.complaints == fleet.complaints == []
        fleet.page.close()


SQUARE = [[200, 200], [600, 200], [600, 600], [200, 600], [200, 200]]
TRIANGLE = [[700, 200], [900, 200], [800, 400], [700, 200]]


def polygon(which: str, ring: list[list[float]]) -> dict[str, Any]:
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "id": which, "geometry": geometry, "properties": {"floor": 3}}


@pytest.mark.parametrize("touch", [False, True])
def test_corners_are_added_to_a_polygon_and_removed(browser: Any, touch: bool) -> None:
    with started("node", "--port", "0", "--no-record") as node:
        square, triangle = polygon("yard", SQUARE), polygon("ramp", TRIANGLE)
        ask(node.page, "PUT", "fences/depots", collection(square, triangle))
        visit = FencePage(browser, node.page, touch)
        tap = visit.page.touchscreen.tap if touch else visit.page.mouse.click
        drag = visit.drag_by_touch if touch else visit.drag
        visit.until_changed("depots", "yard", None)

        tap(*visit.pixel((400, 400)))
        visit.until_said("middle of an edge")
        drag(visit.pixel((600, 400)), visit.pixel((500, 420)))
        dented = visit.until_changed("depots", "yard", square)
        (ring,) = dented["geometry"]["coordinates"]
        corner = pytest.approx(visit.place(*visit.pixel((500, 420))), abs=1e-3)
        assert ring == [SQUARE[0], SQUARE[1], corner, *SQUARE[2:]]
        assert dented["properties"] == square["properties"]

        tap(*visit.pixel(ring[2]))
        visit.until_said("once more")
        tap(*visit.pixel(ring[2]))
        assert visit.until_changed("depots", "yard", dented) == square

        for _ in range(2):  # the corner at which the ring begins and ends
            tap(*visit.pixel((200, 200)))
        cut = visit.until_changed("depots", "yard", square)
        assert cut["geometry"]["coordinates"] == [[SQUARE[3], *SQUARE[1:4]]]

        tap(*visit.pixel((800, 260)))
        for _ in range(2):
            tap(*visit.pixel((800, 400)))
        visit.until_said("three corners or more")
        assert visit.feature("depots", "ramp") == triangle
        assert visit.complaints == []
        visit.page.close()


def test_a_corner_can_be_removed_by_a_key_and_nothing_else_is(browser: Any) -> None:
    with started("node", "--port", "0", "--no-record") as node:
        square = polygon("yard", SQUARE)
        ask(node.page, "PUT", "fences/depots", collection(square))
        visit = FencePage(browser, node.page)
        visit.until_changed("depots", "yard", None)
        visit.page.mouse.click(*visit.pixel((400, 400)))
        visit.page.mouse.click(*visit.pixel((600, 600)))
        visit.until_said("once more")
        visit.page.keyboard.press("Delete")
        cut = visit.until_changed("depots", "yard", square)
        assert cut["geometry"]["coordinates"] == [[*SQUARE[:2], *SQUARE[3:]]]
        visit.page.keyboard.press("Delete")
        assert visit.until_changed("depots", "yard", cut) is None
        assert visit.complaints == []
        visit.page.close()
