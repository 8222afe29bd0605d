"""How long a person waits for the analysis of a small trace, against a Spark session alone.

Three processes take turns on this machine, and each is started anew every time:

- plain: pyspark as it comes, a session on all cores and one `mapInArrow`;
- session: the same with the session of the pipeline (its settings, and the archive of classes that
  set-up leaves);
- analyse: `nearcast analyse` of a simulated world: all result tables and the report.

CPU is that of the whole tree of processes: Java and its Python workers included. The ratios that
count are those of the same turn, because a busy machine slows all three down.

Run: python benchmarks/cold_start.py [--nodes 150] [--seconds 10] [--turns 3] [--only NAME,...]
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from nearcast.scenario import Scenario
from nearcast.sim.run import simulate

MAP = """
def same(batches):
    yield from batches
assert session.range(1000).mapInArrow(same, "id long").count() == 1000
session.stop()
"""
PLAIN = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[*]").getOrCreate()
"""
OURS = """
from nearcast.pipeline.spark.session import start
session = start(lean=True)
"""
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: Java outlives the Python that started it


def run(command: list[str]) -> tuple[float, float]:
    """Wall time until the command ends, and CPU time until all that it started has ended."""
    began, spent = perf_counter(), os.times()
    workers = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # else: python3 of the PATH
    quiet = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=workers
    )
    _, said = quiet.communicate()
    wall = perf_counter() - began
    if quiet.returncode:
        sys.exit(said.decode())
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    now = os.times()
    used = now.children_user + now.children_system
    return wall, used - spent.children_user - spent.children_system


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", help="as `nearcast analyse --only`")
    asked = parser.parse_args()
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    only = ["--only", asked.only] if asked.only else []
    with tempfile.TemporaryDirectory(prefix="nearcast-cold-") as folder:
        trace = Path(folder, "world")
        world = Scenario(
            protocol="client-server", workload="waypoint", nodes=asked.nodes, seconds=asked.seconds
        )
        simulate(world, trace)
        commands = {
            "plain": ["-c", PLAIN + MAP],
            "session": ["-c", OURS + MAP],
            "analyse": ["-m", "nearcast.cli", "analyse", str(trace), *only],
        }
        head = "".join(f"{name + ' s':>12}{'CPU s':>8}" for name in commands)
        print(f"{'turn':5}{head}{'analyse/plain':>16}{'CPU':>6}{'analyse/session':>18}{'CPU':>6}")
        ratios: list[list[float]] = []
        for turn in range(1, asked.turns + 1):
            took = {name: run([sys.executable, *line]) for name, line in commands.items()}
            times = "".join(f"{wall:>12.1f}{cpu:>8.1f}" for wall, cpu in took.values())
            ratios.append([took["analyse"][i] / took[name][i]
                           for name in ("plain", "session") for i in (0, 1)])  # fmt: skip
            print(f"{turn:<5}{times}" + line_of(ratios[-1]), flush=True)
        print(f"{'median':65}" + line_of([median(column) for column in zip(*ratios, strict=True)]))


def line_of(ratios: list[float]) -> str:
    plain, plain_cpu, session, session_cpu = ratios
    return f"{plain:>16.2f}{plain_cpu:>6.2f}{session:>18.2f}{session_cpu:>6.2f}"


if __name__ == "__main__":
    main()
