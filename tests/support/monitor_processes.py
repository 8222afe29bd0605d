"""`nearcast up` and `nearcast monitor` as a person starts them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Started(NamedTuple):
    process: subprocess.Popen[str]
    said: dict[str, Any]

    @property
    def page(self) -> str:
        return str(self.said["page"])


@contextmanager
def started(*arguments: str | Path) -> Iterator[Started]:
    """With --json it says in one document where it is; it is interrupted in the end."""
    command = [sys.executable, "-m", "nearcast.cli", *map(str, arguments), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
        process.wait(180)
        process.stdout.close()
