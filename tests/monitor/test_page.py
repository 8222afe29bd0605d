"""The page in a real browser: a live world, and a trace."""

import json
import shutil
from collections.abc import Callable, Iterator
from math import hypot
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import pytest

from nearcast.space.motion import SECOND
from support.monitor_processes import Started, started
from support.patience import PATIENCE_S
from support.ports import free_port

BOTS = 40

POSITIONS = """() => {
  const { world, clock } = window.nearcast;
  const t = clock.now(), { count, id, x, y, vx, vy, left } = world.snapshot.entities;
  const at = (i) => Math.min((t - world.snapshot.t) / 1e6, left[i]);
  return Object.fromEntries(Array.from({ length: count }, (_, i) =>
    [id[i], [x[i] + vx[i] * at(i), y[i] + vy[i] * at(i)]]));
}"""
ME = "() => { const { person } = window.nearcast; return person.place(person.now()); }"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    trace = tmp_path_factory.mktemp("page") / "run"
    with started("up", "--port", "0", "--bots", str(BOTS), "--trace", trace) as open_world:
        yield open_world


class Visit:
    """A page, and all that its console or its requests complain about."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda one: self._ours(one.url, address.partition("#")[0]))
        self.page.goto(address)
        self.page.wait_for_function("window.nearcast?.world.snapshot?.entities.count > 0")

    def _ours(self, url: str, address: str) -> None:
        if not url.startswith(address):
            self.complaints.append(f"from elsewhere: {url}")

    def until(self, known: Callable[[], Any]) -> Any:
        end = monotonic() + PATIENCE_S
        while not (answer := known()):
            assert monotonic() < end, "it never came to be"
            sleep(0.1)
        return answer

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).text_content())

    def order(self, text: str) -> None:
        self.page.locator("#line").fill(text)
        self.page.locator("#line").press("Enter")

    def on_screen(self, x: float, y: float) -> dict[str, float]:
        px, py = self.page.evaluate(f"window.nearcast.world.toScreen({x}, {y})")
        return {"x": px, "y": py}


@pytest.fixture
def live(browser: Any, world: Started) -> Iterator[Visit]:
    visit = Visit(browser, world.page, viewport={"width": 1300, "height": 850})
    visit.until(lambda: visit.text("#status span") == "live")
    yield visit
    assert visit.complaints == []
    visit.page.close()


# Where the person was in the last minutes, by the area that its node has accepted.
WALK = """(() => {
    const person = window.nearcast.person, now = person.now();
    return Array.from({ length: 6000 }, (_, k) => person.place(now - k * 50_000));
})()"""


def test_it_connects_and_everybody_moves(live: Visit) -> None:
    live.until(lambda: len(live.page.evaluate(POSITIONS)) > BOTS)
    before = live.page.evaluate(POSITIONS)
    drawn = live.page.evaluate("window.nearcast.world.drawn")

    def moved() -> bool:
        now = live.page.evaluate(POSITIONS)
        return sum(now.get(one, place) != place for one, place in before.items()) > BOTS / 2

    live.until(moved)
    live.until(lambda: live.page.evaluate("window.nearcast.world.drawn") > drawn)
    assert "others" in live.until(lambda: live.text("#summary"))


def test_the_character_walks_where_was_clicked_with_one_request(live: Visit) -> None:
    start = live.page.evaluate(ME)
    goal = (start["x"] + 90, start["y"] + 60)
    live.page.locator("#world").click(position=live.on_screen(*goal))

    def distance(here: Any) -> float:
        return hypot(here["x"] - goal[0], here["y"] - goal[1])

    live.until(lambda: distance(live.page.evaluate(ME)) < 2)
    walk = list(map(distance, live.page.evaluate(WALK)))
    assert any(20 < left < 60 for left in walk), "it walks, it does not jump"
    assert live.page.evaluate("window.nearcast.person.requests") == 1
    me = str(live.page.evaluate("window.nearcast.person.entity"))
    x, y = live.until(lambda: live.page.evaluate(POSITIONS).get(me))
    assert hypot(x - goal[0], y - goal[1]) < 2, "the node knows it too"


STANDS = """() => {
    const { person } = window.nearcast;
    const [now, later] = [0, 1e6].map((us) => person.place(person.now() + us));
    return now.x === later.x && now.y === later.y;
}"""


def test_keys_walk_for_as_long_as_they_are_held(live: Visit) -> None:
    start = live.page.evaluate(ME)
    live.page.locator("#world").focus()
    live.page.keyboard.down("ArrowRight")
    live.until(lambda: live.page.evaluate(ME)["x"] > start["x"] + 15)
    live.page.keyboard.up("ArrowRight")
    live.until(lambda: live.page.evaluate("window.nearcast.person.target") is None)
    # The node's answer sets it back to where it was when the key was let go, and there it stands.
    live.until(lambda: live.page.evaluate(STANDS))
    here = live.page.evaluate(ME)
    assert here["x"] > start["x"]
    assert here["y"] == pytest.approx(start["y"])
    live.page.keyboard.press("/")
    assert live.page.evaluate("document.activeElement.id") == "line"


def test_the_charts_advance(live: Visit) -> None:
    charts = "() => [...document.querySelectorAll('#charts canvas')].map(c => c.ariaLabel)"
    first = live.until(lambda: all(live.page.evaluate(charts)) and live.page.evaluate(charts))
    assert len(first) == 4
    live.until(lambda: live.page.evaluate(charts) != first)
    painted = """() => [...document.querySelectorAll('#charts canvas')].map(c =>
        c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0))"""
    assert live.page.evaluate(painted) == [True] * 4
    assert "127.0.0.1" in live.text("#nodes tbody")


RATES = """async (answers) => {
    const { Cluster } = await import(`${location.origin}/monitor/cluster.js`);
    window.fetch = async () => new Response(JSON.stringify(answers.shift()));
    const cluster = new Cluster(), rates = [];
    while (answers.length) {
        const node = await cluster.fetchNumbers();
        rates.push(Math.round(node.rate("bytes_out")));
    }
    return rates;
}"""


def test_rates_are_taken_over_more_than_one_update_of_the_counters(
    browser: Any, world: Started
) -> None:
    """The node adds up bytes once a second, so two answers in a row may have the same count."""
    counted = [0, 1, 2, 2, 3, 4, 6, 6, 7]
    answers = [
        {"t": second * SECOND, "counters": {"requests": total, "bytes_out": 1000 * total}}
        for second, total in enumerate(counted)
    ]
    page = browser.new_page()
    page.goto(world.page.partition("#")[0] + "monitor/style.css")
    assert page.evaluate(RATES, answers) == [0, 0, 0, 667, 667, 667, 1333, 1000, 1000]
    page.close()


def test_seven_designs_are_compared_and_evolving_ones_send_less(live: Visit) -> None:
    live.order("storm")
    live.until(lambda: "everybody walks" in live.text("#log"))
    rows = live.page.locator("#engines tbody tr")
    live.until(lambda: rows.count() == 7)
    bars = """() => [...document.querySelectorAll('#engines tbody tr')].map(row =>
        parseFloat(row.cells[1].querySelector('i').style.width))"""

    def compared() -> list[float] | None:
        widths: list[float] = live.page.evaluate(bars)
        resubscribing, tiles, objects, *evolving = widths
        found = resubscribing > 2 * max(evolving) and min(tiles, objects) > 0
        return widths if found else None

    assert max(live.until(compared)) == 100
    assert live.text("#engines tbody tr:last-child td:last-child") == "exact"
    assert "%" in live.text("#saving b")


def test_commands_are_obeyed_or_explained(live: Visit) -> None:
    # The game takes orders before its characters join, but not earlier.
    live.until(lambda: len(live.page.evaluate(POSITIONS)) > BOTS)
    before = live.page.evaluate("window.nearcast.world.snapshot.entities.count")
    live.order("spawn 5")
    live.until(lambda: "5 characters come" in live.text("#log"))
    live.until(
        lambda: live.page.evaluate("window.nearcast.world.snapshot.entities.count") >= before + 5
    )
    live.order("fly 3")
    live.until(lambda: "there is no command fly" in live.text("#log .wrong"))
    live.order("help")
    live.until(lambda: "walk after an entity" in live.text("#log"))
    live.order("goto 480 510")
    live.until(lambda: "one request" in live.text("#log"))
    somebody = next(iter(live.page.evaluate(POSITIONS)))
    live.order(f"follow {somebody}")
    live.until(lambda: f"following {somebody}" in live.text("#log"))
    live.order("follow 999999")
    live.until(lambda: "there is no entity 999999 here" in live.text("#log"))
    live.page.locator("#line").press("ArrowUp")
    assert live.page.locator("#line").input_value() == "follow 999999"


def test_what_spark_counts_is_shown_when_it_is_there(live: Visit, world: Started) -> None:
    live.until(lambda: "nearcast analyse --follow" in live.text("#accuracy-note"))
    results = Path(f"{world.said['trace']}-analysis")
    results.mkdir()
    window = {"second": time() + 1, "expected": 1200, "delivered": 1200, "missed": 0, "spurious": 3}
    (results / "live.json").write_text(json.dumps({"windows": [window]}))
    live.until(lambda: "1,200 expected" in live.text("#accuracy-note"))
    assert "3 further deliveries were spurious" in live.text("#accuracy-note")
    shutil.rmtree(results)


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_nothing_is_wider_than_the_screen(browser: Any, world: Started, width: int) -> None:
    visit = Visit(browser, world.page, viewport={"width": width, "height": 740})
    visit.until(lambda: visit.page.locator("#engines tbody tr").count() == 7)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    box = visit.page.locator("#world").bounding_box()
    assert box["width"] > 250 and box["height"] > 200
    assert visit.complaints == []
    visit.page.close()


def test_it_follows_light_and_dark(browser: Any, world: Started) -> None:
    ground = "() => getComputedStyle(document.getElementById('stage')).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        visit = Visit(browser, world.page, color_scheme=scheme)
        red = visit.page.evaluate(ground).removeprefix("rgb(").split(",")[0]
        seen[scheme] = int(red)
        visit.page.close()
    assert seen["light"] > 200 and seen["dark"] < 60


def test_it_comes_back_when_the_node_has_started_anew(browser: Any, tmp_path: Path) -> None:
    def a_node(port: str, trace: str) -> Any:
        return started("up", "--port", port, "--bots", "3", "--trace", tmp_path / trace)

    port = str(free_port())
    with a_node(port, "first") as node:
        visit = Visit(browser, node.page)
        visit.until(lambda: visit.text("#status span") == "live")
    visit.until(lambda: "does not answer" in visit.text("#status span"))
    with a_node(port, "second"):
        visit.until(lambda: "connected again" in visit.text("#log"))
        visit.until(lambda: len(visit.page.evaluate(POSITIONS)) == 4)
        visit.order("goto 520 500")
        visit.until(lambda: visit.page.evaluate(ME)["x"] > 519)
    visit.page.close()


# A trace.


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    from nearcast.scenario import Scenario
    from nearcast.sim.run import simulate

    trace = tmp_path_factory.mktemp("replay") / "run"
    scenario = Scenario(protocol="client-server", workload="waypoint", nodes=50, seconds=60.0)
    simulate(scenario, trace)
    with started("monitor", trace, "--port", "0") as open_replay:
        yield open_replay


def test_a_trace_is_played_paused_and_sought(browser: Any, recording: Started) -> None:
    replay = Visit(browser, recording.page, viewport={"width": 1300, "height": 850})
    now = "(window.nearcast.replay.now() - window.nearcast.replay.first) / 1e6"
    replay.until(lambda: replay.page.evaluate(now) > 0.5)
    replay.page.locator("#world").focus()
    replay.page.keyboard.press(" ")
    paused = replay.page.evaluate(now)
    sleep(0.5)
    assert replay.page.evaluate(now) == paused
    before = replay.page.evaluate(POSITIONS)
    assert len(before) == 50
    replay.page.locator("#seek").fill("15")
    replay.until(lambda: replay.page.evaluate(now) == 15)
    replay.until(lambda: replay.page.evaluate(POSITIONS) != before)
    assert "15.0 /" in replay.until(
        lambda: "15.0 /" in replay.text("#moment") and replay.text("#moment")
    )
    replay.page.locator("#speed").select_option("16")
    replay.page.locator("#play").click()
    replay.until(lambda: replay.page.evaluate("window.nearcast.replay.playing") is False)
    assert replay.page.evaluate(now) > 59, "it stops where the trace ends"
    charts = "() => [...document.querySelectorAll('#charts canvas')].map(c => c.ariaLabel)"
    assert all(replay.until(lambda: replay.page.evaluate(charts)))
    assert "publications" in replay.text("#nodes tbody")
    assert replay.complaints == []
    replay.page.close()


def test_every_node_serves_the_page_to_those_who_know_the_token(
    browser: Any, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[anna]\ntoken = "open-sesame"\nrole = "admin"\n')
    with started("node", "--port", "0", "--no-record", "--token-file", tokens) as node:
        page = browser.new_page()
        page.goto(node.page)
        page.wait_for_function("document.querySelector('#status').className === 'bad'")
        assert "401" in page.locator("#status").text_content()
        page.close()
        visit = Visit(browser, f"{node.page}#token=open-sesame")
        visit.until(lambda: visit.text("#status span") == "live")
        assert visit.page.evaluate("window.nearcast.person.entity") == 1
        visit.page.close()
