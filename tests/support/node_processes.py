"""Real nodes of a cluster in processes of their own, as people start them."""

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from support.fork_server import PIPE, ForkedProcess
from support.patience import PATIENCE_S


class Running(NamedTuple):
    process: ForkedProcess
    said: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.said["url"])

    @property
    def page(self) -> str:
        return str(self.said["page"])

    def numbers(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.page}monitor/numbers", timeout=PATIENCE_S) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def site(self) -> tuple[float, float]:
        """Where it stands for its part of the world."""
        x, y = self.numbers()["cluster"]["site"]
        return x, y

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        """Wait until it has ended, and ask it to if it was not killed."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def start(key: Path | None, name: str, join: str | None, port: int = 0) -> Running:
    """A node of the cluster with this key; without one, a node by itself."""
    command = [
        "node", "--json", "--port", str(port), "--name", name,
        "--no-record", *(("--cluster-key", str(key)) if key else ()),
        *(("--join", join) if join else ()),
    ]  # fmt: skip
    process = ForkedProcess(command, stdout=PIPE)
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line, f"it ended: {text}"
        text += line
    return Running(process, json.loads(text))


@contextmanager
def cluster(folder: Path, *names: str) -> Iterator[list[Running]]:
    """The first is joined by all others; all know all."""
    nodes: list[Running] = []
    try:
        for name in names:
            nodes.append(start(folder / "key", name, nodes[0].said["cluster"] if nodes else None))
        deadline = monotonic() + PATIENCE_S
        while any(len(one.numbers()["cluster"]["others"]) < len(names) - 1 for one in nodes):
            assert monotonic() < deadline, "they never learned of each other"
            sleep(0.05)
        yield nodes
    finally:
        for one in nodes:
            if one.process.poll() is None:
                one.process.terminate()
        for one in nodes:
            one.stop()
