"""Is this machine fit to run Nearcast? Every check says what it found and, if bad, what to do."""

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct


class Finding(Struct, frozen=True):
    """The result of one check, and what to do if it is bad."""

    check: str
    good: bool
    found: str
    remedy: str = ""


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _packages() -> Finding:
    missing, found = [], []
    for name in ("msgspec", "numpy", "numba", "pyarrow"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"no {name}")
    remedy = "a client needs no more; for a node: pip install 'nearcast[node]' (or: make setup)"
    return Finding("packages", not missing, ", ".join((*found, *missing)), remedy)


def _machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    remedy = "a world of thousands of entities wants about 1 GiB of memory"
    return Finding("machine", memory >= 1, f"{cores} cores, {memory:.0f} GiB of memory", remedy)


def _disk() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / 2**30
    remedy = f"free some space in {folder}, or set TMPDIR"
    return Finding("disk", free >= 1, f"{free:.0f} GiB free in {folder}", remedy)


def _kernels() -> Finding:
    from nearcast.matching.grid import GridMatcher
    from nearcast.model.publication import Publication
    from nearcast.model.subscription import Subscription
    from nearcast.space.motion import Moving
    from nearcast.space.shapes import disc, point

    grid = GridMatcher()
    for k in range(100):
        grid.put(Subscription(k, k, Moving(disc(k, 0, 1.5))))
    answer = grid.match(Publication(1, 1000, 0, point(50, 0)), 0)
    return Finding(
        "compiled kernels", answer == [49, 50, 51], "the grid answers",
        "remove the __pycache__ folders of nearcast and try again",
    )  # fmt: skip


def _round_trip() -> Finding:
    from nearcast.scenario import Scenario
    from nearcast.sim.run import simulate
    from nearcast.trace.validate import validate

    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        scenario = Scenario(protocol="client-server", workload="waypoint", nodes=50, seconds=2)
        summary = simulate(scenario, trace)
        problems = validate(trace).problems
    found = f"{summary.messages:,} messages simulated, {sum(summary.rows.values()):,} rows valid"
    return Finding("a small world", not problems, found, "please report this with the lines above")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python, _packages, _machine, _disk, _kernels, _round_trip,
)  # fmt: skip


def run_checks() -> list[Finding]:
    findings = []
    for check in CHECKS:
        try:
            findings.append(check())
        except Exception as why:  # a doctor reports what fails, whatever it is
            name = check.__name__.strip("_").replace("_", " ")
            findings.append(Finding(name, False, f"{type(why).__name__}: {why}", "see above"))
    return findings
