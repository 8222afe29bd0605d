"""Every example of the documents is typed and run, and prints what the document says.

A page is played from top to bottom, in a folder of its own and against a node of its own, which is
in this process unless the page starts one. Shell lines are typed into the first terminal that is
not busy, so `nearcast listen` keeps one to itself; Python and JavaScript are saved and started from
there too. What a ```text block shows must have been printed since the one before it (… stands for
anything).
"""

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from nearcast.cli.main import main
from nearcast.server.config import Settings
from nearcast.server.server import Server
from support.fork_server import fork_server
from support.patience import PATIENCE_S
from support.ports import free_port

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in (
        ROOT / "docs" / "tutorial.md",
        ROOT / "docs" / "reference" / "wire.md",
        ROOT / "README.md",
        ROOT / "clients" / "js" / "README.md",
        *(ROOT / "docs" / "how-to").glob("*.md"),
    )
)
RUN = {"shell", "python", "js", "text"}
SHOWN = {"toml", "html", "session", "ebnf", "text"}  # read by people, or by tests of their own
DONE = "@done@"


class Terminal:
    """A shell into which lines are typed. What it prints, `printed` gets."""

    def __init__(self, folder: Path, environment: dict[str, str], printed: list[str]) -> None:
        self.printed = printed
        self.busy = False
        self._process = subprocess.Popen(
            ["bash"], cwd=folder, env=environment, stdin=subprocess.PIPE, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._codes: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.rstrip("\n")
            if text.startswith(DONE):
                self._codes.append(text.removeprefix(DONE))
            else:
                self.printed.append(text)

    def type(self, line: str) -> None:
        """Until it is done; or, if it goes on, until it has said something."""
        assert self._process.stdin is not None
        before, codes = len(self.printed), len(self._codes)
        self._process.stdin.write(f"{line}\necho {DONE}$?\n")
        self._process.stdin.flush()
        if line.startswith("nearcast listen"):
            wait_for(lambda: len(self.printed) > before, line, self.printed)
            self.busy = True
            return
        wait_for(lambda: len(self._codes) > codes, line, self.printed)
        assert self._codes[-1] == "0", f"{line} failed:\n" + "\n".join(self.printed[before:])
        if line.endswith("&"):
            wait_for(lambda: len(self.printed) > before, line, self.printed)

    def close(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(PATIENCE_S)
            self._reader.join(20)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)


def wait_for(met: Callable[[], bool], what: str, printed: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, f"waited too long for {what}:\n" + "\n".join(printed)
        time.sleep(0.01)


class Play:
    """One page being played."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.printed: list[str] = []
        self.terminals: list[Terminal] = []
        self.files = 0
        binaries = os.pathsep.join((str(fork_server().parent), str(Path(sys.executable).parent)))
        ours = {name: text for name, text in os.environ.items() if not name.startswith("NEARCAST_")}
        self.environment = {
            **ours,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "NEARCAST_PORT": str(port),
            "PYTHONUNBUFFERED": "1",
        }

    def terminal(self) -> Terminal:
        for terminal in self.terminals:
            if not terminal.busy:
                return terminal
        self.terminals.append(Terminal(self.folder, self.environment, self.printed))
        return self.terminals[-1]

    def run(self, language: str, text: str) -> None:
        text = text.replace("8470", str(self.port))
        if language == "shell":
            for line in text.splitlines():
                self.shell(line)
        elif language == "python" and "SparkSession" in text:
            self.with_spark(text)
        elif language in ("python", "js"):
            self.files += 1
            name = f"example{self.files}.{'py' if language == 'python' else 'mjs'}"
            (self.folder / name).write_text(text)
            node = "node --experimental-websocket --no-warnings"
            self.terminal().type(f"{'python' if language == 'python' else node} {name}")
        else:
            self.expect(text.splitlines())

    def shell(self, line: str) -> None:
        if line.startswith("nearcast analyse "):
            self.analyse(shlex.split(line)[1:])
        elif line.startswith(("nearcast advise ", "nearcast geofence ")):
            self.in_this_process(shlex.split(line)[1:])
        else:
            self.terminal().type(line)

    def analyse(self, arguments: list[str]) -> None:
        """In this process, with the Spark that all tests share: starting one takes long."""
        printed = StringIO()
        with redirect_stdout(printed):
            assert main([arguments[0], *(str(self.folder / name) for name in arguments[1:])]) == 0
        self.printed += printed.getvalue().replace(f"{self.folder}/", "").splitlines()

    def with_spark(self, text: str) -> None:
        """In this process as well."""
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(text, "example", "exec"), {})
        self.printed += printed.getvalue().splitlines()

    def in_this_process(self, arguments: list[str]) -> None:
        """As `analyse`, but in the folder of the page."""
        printed = StringIO()
        with redirect_stdout(printed), chdir(self.folder):
            assert main(arguments) == 0
        self.printed += printed.getvalue().splitlines()

    def expect(self, lines: list[str]) -> None:
        """Each of these lines has been printed, or soon will be."""
        for line in lines:
            pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
            wait_for(partial(self._says, pattern), line, self.printed)
        self.printed.clear()

    def _says(self, pattern: re.Pattern[str]) -> bool:
        return any(map(pattern.fullmatch, self.printed))


def blocks(page: str) -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@contextmanager
def played(folder: Path) -> Iterator[Play]:
    play = Play(folder, free_port())
    try:
        yield play
    finally:
        for terminal in play.terminals:
            terminal.close()


@contextmanager
def a_node(port: int) -> Iterator[None]:
    """In this process, for pages that need one and do not say how it is started."""
    ready, over = Event(), Event()

    async def serve() -> None:
        async with Server(Settings(port=port, record=False)):
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield
    finally:
        over.set()
        thread.join()


def runs_spark(page: str) -> bool:
    return any(
        (language == "shell" and re.search("nearcast (analyse|advise|geofence)", text))
        or (language == "python" and "SparkSession" in text)
        for language, text in blocks(page)
    )


def play_page(page: str, folder: Path) -> None:
    if "js" in dict(blocks(page)) and shutil.which("node") is None:
        pytest.skip("there is no Node.js on this machine")
    shutil.copy(ROOT / "clients" / "js" / "nearcast.js", folder)
    with played(folder) as play:
        starts_one = any("nearcast node" in text for _, text in blocks(page))
        with nullcontext() if starts_one else a_node(play.port):
            for language, text in blocks(page):
                if language in RUN:
                    play.run(language, text)


@pytest.mark.parametrize("page", [page for page in PAGES if not runs_spark(page)])
def test_every_example_does_what_the_page_says(page: str, tmp_path: Path) -> None:
    play_page(page, tmp_path)


@pytest.mark.parametrize("page", list(filter(runs_spark, PAGES)))
def test_every_example_that_analyses_does_what_the_page_says(
    page: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcast.pipeline.spark.session.start", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    play_page(page, tmp_path)


def test_every_example_is_run_or_read_by_a_test() -> None:
    for page in PAGES:
        languages = {language for language, _ in blocks(page)}
        assert languages <= RUN | SHOWN, page
        assert languages & RUN - {"text"}, f"{page} has no example"


def test_every_promise_of_the_security_page_names_tests_that_there_are() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    promises = [line for line in page.splitlines() if re.match(r"\| (?!promise )[^-]", line)]
    assert len(promises) > 30
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise)
        assert named, f"no test shows this: {promise}"
        for file, name in named:
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
