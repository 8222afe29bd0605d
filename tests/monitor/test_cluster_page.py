"""The page of a cluster: it draws all nodes' worlds as one, and outlives its own node."""

import random
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from support.fork_server import ForkedProcess
from support.monitor_processes import Started, started
from support.patience import PATIENCE_S

NAMES = ("north", "south", "west")
SITES = "() => window.nearcast?.world.sites ?? []"


def until(known: Callable[[], Any]) -> Any:
    end = monotonic() + PATIENCE_S
    while not (answer := known()):
        assert monotonic() < end, "it never came to be"
        sleep(0.1)
    return answer


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Started]]:
    nodes: list[Started] = []
    with ExitStack() as stack:
        for name in NAMES:
            join = ("--join", nodes[0].said["cluster"]) if nodes else ()
            flags = ("--port", "0", "--no-record", "--name", name, "--cluster-key")
            nodes.append(stack.enter_context(started("node", *flags, tmp_path / "key", *join)))
        yield nodes


@pytest.fixture
def listeners(cluster: list[Started]) -> Iterator[None]:
    """One on each node: whoever listens somewhere is drawn there."""
    running = [
        ForkedProcess(["listen", node.said["url"], "--x", "300", "--y", "200", "--r", "50"])
        for node in cluster
    ]
    yield
    for one in running:
        one.terminate()
    for one in running:
        one.wait(PATIENCE_S)


@pytest.mark.usefixtures("listeners")
def test_a_page_on_any_node_shows_all_nodes_and_goes_on_when_its_own_node_stops(
    browser: Any, cluster: list[Started]
) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 850})
    page.goto(cluster[1].page)
    sites = until(lambda: len(page.evaluate(SITES)) == 3 and page.evaluate(SITES))
    assert {site["name"] for site in sites} == set(NAMES)
    assert [site["name"] for site in sites if site["own"]] == ["south"]
    assert len({site["mark"] for site in sites}) == 3

    marks = {site["mark"] for site in sites}
    # In one look: the next snapshot may lack a client that is being handed over.
    homes = "window.nearcast.world.snapshot.home"
    until(lambda: len(home := page.evaluate(homes)) == 4 and set(home) <= marks)

    rows = page.locator("#nodes tbody tr")
    until(lambda: rows.count() == 3)
    assert "(this page)" in rows.nth(0).text_content()
    links = {a.get_attribute("href") for a in page.locator("#nodes a").all()}
    assert links == {cluster[0].page, cluster[2].page}
    clients = (
        "() => [...document.querySelectorAll('#nodes tbody tr')].map(r => +r.cells[1].innerText)"
    )
    until(lambda: sum(page.evaluate(clients)) == 4)

    cluster[1].process.send_signal(signal.SIGKILL)
    until(lambda: len(page.evaluate(SITES)) == 2)
    until(lambda: "live" in page.locator("#status span").text_content())
    until(lambda: rows.count() == 2)
    until(lambda: page.evaluate("window.nearcast.world.snapshot.entities.count") > 0)

    page.locator("#nodes a").first.click()
    until(lambda: len(page.evaluate(SITES)) == 2 and any(s["own"] for s in page.evaluate(SITES)))
    page.close()


def test_everything_is_in_the_region_of_the_site_that_is_nearest(
    browser: Any, tmp_path: Path
) -> None:
    with started("node", "--port", "0", "--trace", tmp_path / "run") as node:
        page = browser.new_page()
        page.goto(node.page)
        draw = random.Random(5)
        for count in (1, 2, 3, 8):
            sites = [
                {"x": draw.uniform(-20, 120), "y": draw.uniform(-20, 120)} for _ in range(count)
            ]
            cells = page.evaluate(
                """async (sites) => (await import("/monitor/voronoi.js"))
                    .cells(sites, [[0, 0], [100, 100]])""",
                sites,
            )
            for _ in range(200):
                x, y = draw.uniform(0, 100), draw.uniform(0, 100)
                nearest = min(
                    range(count),
                    key=lambda k: (sites[k]["x"] - x) ** 2 + (sites[k]["y"] - y) ** 2,
                )
                assert [k for k, cell in enumerate(cells) if inside(cell, x, y)] == [nearest]
        page.close()


def inside(cell: list[list[float]], x: float, y: float) -> bool:
    """Is the point to the left of every side?"""
    turns = [
        (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        for (ax, ay), (bx, by) in zip(cell, cell[1:] + cell[:1], strict=True)
    ]
    return bool(cell) and min(turns) > 0


def test_pages_of_other_nodes_may_request_and_other_pages_may_not(tmp_path: Path) -> None:
    def asked(address: str, origin: str) -> tuple[int, str | None]:
        request = urllib.request.Request(address, headers={"Origin": origin})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers["Access-Control-Allow-Origin"]
        except urllib.error.HTTPError as why:
            return why.code, why.headers["Access-Control-Allow-Origin"]

    ours, strange = "http://127.0.0.1:8471", "http://elsewhere.example"
    with started("node", "--port", "0", "--no-record") as node:
        for path in ("world", "numbers"):
            assert asked(f"{node.page}monitor/{path}", ours) == (200, ours)
            assert asked(f"{node.page}monitor/{path}", strange) == (403, None)
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[anna]\ntoken = "open-sesame"\nrole = "read"\n')
    with started("node", "--port", "0", "--no-record", "--token-file", tokens) as node:
        world = f"{node.page}monitor/world"
        assert asked(f"{world}?token=open-sesame", strange) == (200, strange)
        assert asked(world, ours) == (401, None)
