"""`nearcast up` and `nearcast monitor` as a person starts them."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support.fork_server import PIPE, ForkedProcess
from support.patience import PATIENCE_S


class Started(NamedTuple):
    process: ForkedProcess
    said: dict[str, Any]

    @property
    def page(self) -> str:
        return str(self.said["page"])


@contextmanager
def started(*arguments: str | Path) -> Iterator[Started]:
    """With --json it says in one document where it is; it is interrupted in the end."""
    process = ForkedProcess([*arguments, "--json"], stdout=PIPE)
    assert process.stdout is not None
    try:
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, f"it ended: {text}"
            text += line
        yield Started(process, json.loads(text))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        process.stdout.close()
