"""Who should have heard what: the pipeline's join against polars, duckdb, sedonadb and geopandas.

Worlds are written as traces first (`join_worlds`); then one contestant after the other, each in a
process of its own, answers from those files with the number of pairs and a checksum over them
(`join_contestants`, which also says what each is told and what each has to keep). The files are in
the page cache and everyone runs warm: the best of a few runs counts, but for the slowest, which run
once. Memory is the greatest sum of proportional set sizes over all processes of a contestant, the
JVM and Python workers included; CPU is theirs as well, of the best run. No ratio is printed where
the answers differ.

`--growth` measures ours alone, at several sizes, and prints how wall time, CPU and memory grow: the
slope on logarithmic axes, 1 where twice the rows cost twice as much. Traces without order, which
have to be made in memory, are left out above 16 million rows.

Run: python benchmarks/join.py [--rows 8000000] [--quick] [--folder DIR]
     python benchmarks/join.py --growth 1000000 8000000 64000000
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from math import log
from pathlib import Path
from time import sleep
from typing import NamedTuple

from figures import draw_bars
from join_worlds import write_world

LIMIT = 1_800  # seconds that a contestant may take
MOST_WITHOUT_ORDER = 16_000_000
HERE = Path(__file__).parent


class Result(NamedTuple):
    wall: float
    cpu: float
    pairs: int
    checksum: int
    memory: float  # MiB


def family(root: int) -> Iterator[int]:
    """The process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root]
    for process in found:
        yield process
        found += [child for child, parent in parents.items() if parent == process]


def memory(root: int) -> float:
    total = 0
    for process in family(root):
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
    return total / 1024


def cpu(root: int) -> float:
    """Seconds of all that live, and of those that their parents have buried."""
    ticks = 0
    for process in family(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(contestant: str, trace: Path, times: int) -> Result | None:
    command = [
        sys.executable,
        str(HERE / "join_contestants.py"),
        contestant,
        str(trace),
        str(times),
    ]
    most, ended = [0.0], threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def watch() -> None:
            while not ended.wait(0.5):
                most[0] = max(most[0], memory(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        end_in_time = threading.Timer(LIMIT, process.kill)
        end_in_time.start()
        results, before = [], 0.0
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("begin"):
                before = cpu(process.pid)
            elif line.startswith("["):
                wall, pairs, checksum = json.loads(line)
                results.append((wall, cpu(process.pid) - before, pairs, checksum))
        ended.set()
        watcher.join()
        end_in_time.cancel()
    return Result(*min(results), most[0]) if process.returncode == 0 else None


class Table:
    def __init__(self) -> None:
        print(f"{'world':22}{'contestant':26}{'wall s':>8}{'CPU s':>8}{'pairs':>13}"
              f"{'checksum':>21}{'MiB':>7}{'times ours':>12}", flush=True)  # fmt: skip

    def row(self, world: str, name: str, found: Result | None, ours: Result | None) -> None:
        if found is None:
            print(f"{world:22}{name:26}{'failed':>8}", flush=True)
            return
        ratio = ""
        if ours is not None:
            same = found.pairs == ours.pairs and found.checksum == ours.checksum
            ratio = f"{found.wall / ours.wall:.2f}" if same else "differs"
        print(f"{world:22}{name:26}{found.wall:>8.2f}{found.cpu:>8.2f}{found.pairs:>13,}"
              f"{found.checksum:>21}{found.memory:>7.0f}{ratio:>12}", flush=True)  # fmt: skip


def large(folder: Path, rows: int, table: Table) -> list[str]:
    """Fixed boxes, as many as asked for: all but geopandas."""
    label = f"{rows:,}"
    for name, ordered, skewed in (
        ("time", True, False),
        ("none", False, False),
        ("skew", True, True),
    ):
        write_world(folder / name, rows, skewed=skewed, ordered=ordered)
    sleep(1)
    ours = run("ours", folder / "time", 4)
    table.row(label, "ours", ours, ours)
    found = {}
    for name, times in (("one core, no Spark", 2), ("polars", 2), ("duckdb", 2), ("sedonadb", 1)):
        found[name] = run(name, folder / "time", times)
        table.row(label, name, found[name], ours)
    shuffled = run("ours, shuffled", folder / "none", 4)
    table.row(f"{label}, no order", "ours, shuffled", shuffled, ours)
    skewed = run("ours", folder / "skew", 4)
    table.row(f"{label}, skewed", "ours", skewed, skewed)
    if ours is None or shuffled is None or skewed is None or None in found.values():
        return ["some contestant failed"]
    times = {"Nearcast": ours, "Nearcast, shuffled": shuffled, **found}
    draw_bars(
        "join-seconds", f"Seconds for {rows:,} publications and as many areas",
        {name: result.wall for name, result in times.items() if result}, "{:.1f} s",
    )  # fmt: skip
    alone = found["one core, no Spark"].wall / 2
    lines = [
        f"time-partitioned: {ours.wall / alone:.2f} of one core's wall halved (at most 1.3)",
        f"shuffled: {shuffled.wall / alone:.2f} of that (at most 3)",
        f"skewed: {skewed.wall / ours.wall:.2f} of uniform (at most 1.2)",
        f"memory: {ours.memory:.0f} MiB, shuffled {shuffled.memory:.0f} (under 3072)",
    ]
    for name, least, least_shuffled in (("polars", 4, 3), ("duckdb", 6, 4.5), ("sedonadb", 9, 7)):
        wall = found[name].wall
        lines.append(
            f"{name}: {wall / ours.wall:.1f} times ours (at least {least}),"
            f" {wall / shuffled.wall:.1f} times ours shuffled (at least {least_shuffled})"
        )
    return lines


def small(folder: Path, rows: int, table: Table) -> list[str]:
    """What is asked for at a smaller size: pairs emitted against geopandas, discs that move."""
    write_world(folder / "skew small", rows, skewed=True)
    write_world(folder / "discs", rows, moving=True)
    label = f"{rows:,}"
    ours = run("ours", folder / "skew small", 4)
    table.row(f"{label}, skewed", "ours", ours, ours)
    emitted = run("ours, pairs emitted", folder / "skew small", 4)
    table.row(f"{label}, skewed", "ours, pairs emitted", emitted, ours)
    any_frames = run("ours, any DataFrames", folder / "skew small", 4)
    table.row(f"{label}, skewed", "ours, any DataFrames", any_frames, ours)
    others = {}
    for name in ("duckdb", "sedonadb", "geopandas, pairs emitted"):
        others[name] = run(name, folder / "skew small", 1 if "geo" in name else 2)
        table.row(f"{label}, skewed", name, others[name], ours)
    geo = others["geopandas, pairs emitted"]
    discs = run("ours", folder / "discs", 4)
    table.row(f"{label}, moving discs", "ours", discs, discs)
    moved = run("ours, any DataFrames", folder / "discs", 3)
    table.row(f"{label}, moving discs", "ours, any DataFrames", moved, discs)
    if ours is None or emitted is None or geo is None or discs is None or any_frames is None:
        return ["some contestant failed"]
    if geo.checksum != emitted.checksum:
        return ["geopandas differs"]
    return [
        *(
            f"{name}: {found.wall / any_frames.wall:.1f} times ours on any DataFrames, skewed"
            for name, found in others.items()
            if found is not None and found.checksum == any_frames.checksum
        ),
        f"geopandas: {geo.wall / emitted.wall:.1f} times ours with pairs emitted (at least 15)",
        f"moving discs: {discs.pairs / discs.wall / 1e6:.1f} M pairs a second (at least 8)",
    ]


def growth(folder: Path, sizes: list[int], table: Table) -> list[str]:
    """How the cost of both strategies grows with the number of rows on each side."""
    found: dict[str, list[tuple[int, Result]]] = {}
    for rows in sizes:
        for contestant, ordered in (("ours", True), ("ours, shuffled", False)):
            if not ordered and rows > MOST_WITHOUT_ORDER:
                continue
            trace = folder / f"{rows} {ordered}"
            write_world(trace, rows, ordered=ordered)
            sleep(1)
            result = run(contestant, trace, 3)
            table.row(f"{rows:,}", contestant, result, None)
            shutil.rmtree(trace)
            if result is not None:
                found.setdefault(contestant, []).append((rows, result))
    lines = [f"load when it ended: {os.getloadavg()[1]:.1f} over five minutes"]
    for contestant, results in found.items():
        for (fewer, less), (rows, more) in pairwise(results):
            slopes = (
                f"{name} {log(getattr(more, name) / getattr(less, name), rows / fewer):.2f}"
                for name in ("wall", "cpu", "memory")
            )
            lines.append(f"{contestant}, {fewer:,} to {rows:,}: slopes {', '.join(slopes)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--quick", action="store_true", help="400,000 rows: does it work at all?")
    parser.add_argument("--growth", type=int, nargs="+", help="ours alone, at these sizes")
    parser.add_argument("--folder", type=Path, help="where to write the traces")
    asked = parser.parse_args()
    if asked.folder:
        asked.folder.mkdir(parents=True, exist_ok=True)
    rows = 400_000 if asked.quick else asked.rows
    folder = Path(tempfile.mkdtemp(prefix="nearcast-join-", dir=asked.folder))
    try:
        table = Table()
        if asked.growth:
            lines = growth(folder, sorted(asked.growth), table)
        else:
            lines = large(folder, rows, table) + small(folder, min(rows, 1_000_000), table)
    finally:
        shutil.rmtree(folder)
    print("\n".join(["", *lines]))


if __name__ == "__main__":
    main()
