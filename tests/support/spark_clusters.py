"""Analysing as a person would, on any Spark, and what comes out of it bit by bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PATIENCE_S = 300  # a machine at its limit takes long to start a cluster


def analysing(trace: Path, out: Path, master: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nearcast.cli", "analyse", str(trace), "--json"]
    return subprocess.Popen(
        [*command, "--out", str(out), "--master", master],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """What it printed, if it ended well."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


def contents(out: Path) -> dict[str, bytes]:
    """The rows of all result tables, bit by bit, by table and run.

    Not the files' own bytes: a Parquet footer lists a column's encodings in the order of a Java
    set, which is another in each JVM. Nor what the footer says of the program that wrote it.
    """
    found: dict[str, bytes] = {}
    for folder in sorted({file.parent for file in out.rglob("*.parquet")}):
        rows = pa.concat_tables(
            pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))
        )
        rows = rows.replace_schema_metadata()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows.combine_chunks())
        found[str(folder.relative_to(out))] = sink.getvalue().to_pybytes()
    return found


def executors(of: int) -> list[int]:
    """The executors among a process's descendants; Linux lists children by parent."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat, line = (folder / "stat").read_text(), (folder / "cmdline").read_text()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(folder.name)] = int(stat.rsplit(")", 1)[1].split()[1])
            lines[int(folder.name)] = line

    def descends(one: int) -> bool:
        while one in parents:
            if one == of:
                return True
            one = parents[one]
        return False

    # The shell script that starts a JVM has the same words on its line, but does not begin so.
    return [
        one
        for one, line in lines.items()
        if "CoarseGrainedExecutorBackend" in line
        and line.split("\0")[0].endswith("java")
        and descends(one)
    ]


def kill_an_executor(process: subprocess.Popen[str], out: Path) -> int:
    """Without a word, as soon as the first table is there; returns which one it was."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if out.is_dir() and any(out.glob("*/run=*")) and (found := executors(process.pid)):
            os.kill(found[0], signal.SIGKILL)
            return found[0]
        time.sleep(0.05)
    raise AssertionError("there was no executor to kill")
