"""What the commands share: the parser, and how they write their results.

Command modules import what they need when they run, so that `--help` answers at once.
"""

import argparse
import sys
from typing import Any, NoReturn

MASTER = "a Spark master (default: local[*], all cores of this machine)"


class Parser(argparse.ArgumentParser):
    """Reports wrong use in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


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
