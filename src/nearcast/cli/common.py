"""What the commands share: the parser, and how they write their results.

Command modules import what they need when they run, so that `--help` answers at once.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nearcast.storage import AnyPath

MASTER = (
    "a Spark master: local[N], spark://HOST:PORT, yarn, k8s://… (default: all cores of this"
    " machine, or what spark-submit says)"
)
REMOTE = "a Spark Connect server, sc://HOST:PORT, instead of a master (default: $SPARK_REMOTE)"
CONF = "a setting of Spark, as spark-submit takes it; may be repeated"

A_TRACE = "a trace: a folder, or a URI like s3://bucket/walk"
FOR_A_TRACE = "where to leave the trace: a folder, or a URI like s3://bucket/walk"
SETTINGS_FILE = Path("nearcast.toml")


class _HelpFormatter(argparse.HelpFormatter):
    """Examples, which begin with a line that ends with a colon, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.partition("\n")[0].endswith(":"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Reports wrong use in one line, with exit code 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **options)

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


def port_argument(text: str) -> int:
    """An argument that is a port; 0: any."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is from 0 to 65535, not {text!r}")
    return int(text)


def add_spark_options(command: Parser) -> None:
    """Where Spark runs; `start_spark` obeys."""
    where = command.add_mutually_exclusive_group()
    where.add_argument("--master", metavar="URL", help=MASTER)
    where.add_argument("--remote", metavar="URL", help=REMOTE)
    command.add_argument("--conf", metavar="NAME=VALUE", action="append", default=[], help=CONF)


def start_spark(arguments: argparse.Namespace, *, lean: bool = False) -> "SparkSession":
    """The session that the options of `add_spark_options` ask for.

    On a cluster, the address of Spark's page is told on standard error.
    """
    from nearcast.pipeline.spark.session import start, ui_address

    conf = dict(split_setting(text, "--conf") for text in arguments.conf)
    spark = start(arguments.master, remote=arguments.remote, lean=lean, conf=conf)
    if address := ui_address(spark):
        sys.stderr.write(f"nearcast: Spark shows its work at {address}\n")
        sys.stderr.flush()
    return spark


def write_lines(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))


def write_json(value: Any) -> None:
    import msgspec

    write_lines(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def split_setting(text: str, option: str = "--set") -> tuple[str, str]:
    """KEY=VALUE of `--set` as a pair."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{option} needs KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()
