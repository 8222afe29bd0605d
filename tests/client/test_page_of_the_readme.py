"""The page of the README, pasted into one that another web server serves, in a real browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from support.monitor_processes import started

README = Path(__file__).parents[2] / "README.md"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    files = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as web:
        serving = Thread(target=web.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            serving.join()


def test_the_page_of_the_readme_works_where_it_is_pasted(browser: Any, tmp_path: Path) -> None:
    (page,) = re.findall(r"^```html\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    with started("node", "--port", "0", "--no-record") as node, served(tmp_path) as address:
        port = str(urlsplit(node.said["url"]).port)
        (tmp_path / "page.html").write_text(page.replace("8470", port), "utf-8")
        visit = browser.new_page()
        complaints = list[str]()
        visit.on("pageerror", lambda error: complaints.append(str(error)))
        with visit.expect_console_message(lambda said: "hello" in said.text):
            visit.goto(f"{address}/page.html")
        assert complaints == []
        visit.close()
