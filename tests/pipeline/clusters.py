"""Analysing as a person would, on any Spark, and what comes out of it byte by byte."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def contents(out: Path) -> dict[str, list[bytes]]:
    """The bytes of all result files, by table and run; their names are drawn anew each time."""
    found: dict[str, list[bytes]] = {}
    for file in sorted(out.rglob("*.parquet")):
        found.setdefault(str(file.parent.relative_to(out)), []).append(file.read_bytes())
    return {where: sorted(files) for where, files in found.items()}


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
