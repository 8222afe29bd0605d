"""What the commands share: the parser, and how they write their results.

Command modules import what they need when they run, so that `--help` answers at once.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from nearcast.storage import AnyPath

MASTER = "a Spark master (default: local[*], all cores of this machine)"


A_TRACE = "a trace: a folder, or a URI like s3://bucket/walk"
FOR_A_TRACE = "where to leave the trace: a folder, or a URI like s3://bucket/walk"
SETTINGS_FILE = Path("nearcast.toml")


class Parser(argparse.ArgumentParser):
    """Reports wrong use in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def path_argument(text: str) -> "AnyPath":
    """An argument that is a path or a URI. For a URI, nearcast.toml may say how to reach it."""
    from nearcast.storage import RemotePath, locate

    try:
        found = locate(text)
        if isinstance(found, RemotePath) and SETTINGS_FILE.exists():
            from nearcast.server.config import load_settings

            load_settings(SETTINGS_FILE).storage.use()
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from None
    return found


def write_lines(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))


def write_json(value: Any) -> None:
    import msgspec

    write_lines(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def split_setting(text: str) -> tuple[str, str]:
    """KEY=VALUE of `--set` as a pair."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--set needs KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()
