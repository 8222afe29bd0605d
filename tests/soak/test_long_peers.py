"""Thirty-two live peers for ten minutes: as accurate as the simulation, and nothing leaks.

NEARCAST_SOAK_S says for how long instead.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nearcast.trace.validate import validate
from support.peer_bots import counted, simulated

pytestmark = pytest.mark.soak

BOTS = 32
SECONDS = float(os.environ.get("NEARCAST_SOAK_S", "600"))
POINTS = 0.05


def resident(process: int) -> float:
    """Megabytes."""
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def played(trace: Path) -> list[dict[str, Any]]:
    """What the bots tell every ten seconds, with the memory that they use by then."""
    words = ["--overlay", "bubblestorm", "--bots", str(BOTS), "--seconds", str(SECONDS), "--json"]
    command = [sys.executable, "-m", "nearcast.cli", "peer", *words, "--trace", str(trace)]
    tallies = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tally = json.loads(line)
            if "seconds" in tally and process.poll() is None:
                tallies.append(tally | {"megabytes": resident(process.pid)})
                print(tallies[-1])  # noqa: T201  who waits for ten minutes wants to see it
    assert process.returncode == 0
    return tallies


def test_thirty_two_peers_are_as_accurate_as_the_simulation_and_leak_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    tallies = played(tmp_path / "live")
    assert all(tally["peers"] == BOTS for tally in tallies)
    warm, end = tallies[len(tallies) // 3], tallies[-2]
    # Every pair has a link when all have met, and two if both have called at once: that is all.
    assert end["files"] <= 2 * BOTS * (BOTS - 1) + 100
    assert end["files"] <= warm["files"] + 100
    assert end["megabytes"] <= warm["megabytes"] + 40
    report = validate(tmp_path / "live")
    assert report.finished and not report.problems
    simulated(tmp_path / "sim", "bubblestorm", BOTS, SECONDS)
    (live, knew), (sim, should) = (
        counted(spark, tmp_path / name, tmp_path / f"{name}-counted") for name in ("live", "sim")
    )
    measured = {
        "heard": (live.recall, sim.recall),
        "truly heard": (live.precision, sim.precision),
        **{name: (knew[name], should[name]) for name in ("accuracy", "recall", "precision")},
    }
    print({name: f"{a:.4f} live, {b:.4f} simulated" for name, (a, b) in measured.items()})  # noqa: T201
    for name, (a, b) in measured.items():
        late = max(tally["late_ms"] for tally in tallies)
        assert abs(a - b) <= POINTS, f"{name}, on a machine that was late by up to {late:.0f} ms"
