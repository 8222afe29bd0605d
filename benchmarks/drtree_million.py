"""A DR-tree of a million peers, on Spark: the publications of a tree that is cut into parts.

For each number of peers, in a process of its own: all interests are made, a tree grows of them in
one process, and is cut; then the same publications go through it by each strategy. Peers are the
overlay's own nodes; a world keeps its density ("warm", side 32 √n), so that a publication concerns
as many however many peers there are. `analyse` judges who received what by its exact join: nobody
may be missed, and nobody receive in vain or twice.

Up to --simulated peers the simulator plays the same scenario first, from the first join on. Its
tree, as it stands when the workload begins, is cut too, and the trace of the parts must have the
same publications, messages and deliveries: sender, receiver, kind, size, times to the microsecond.

CPU and memory are those of this process, of Java and of all workers together; seconds of a strategy
include its trace on disk, not the analysis. Steps: until the last receiver has it, in delays, mean
over publications with two or more receivers.

Run: python benchmarks/drtree_million.py [--peers 1000 10000 100000 1000000] [--publications 10000]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from math import log, sqrt
from pathlib import Path
from time import monotonic, sleep

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from join import family, memory

from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.jobs import delivery
from nearcast.pipeline.spark import session, storage
from nearcast.protocols.drtree.invariants import members_of
from nearcast.scenario import Scenario, Setting
from nearcast.sim.world import SimulatedWorld
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast_papers.drtree.dissemination import disseminate
from nearcast_papers.drtree.measures import STRATEGIES
from nearcast_papers.drtree.prepared_tree import prepare_tree
from nearcast_papers.drtree.tree_columns import read_tree

LATENCY_MS, RATE = 50.0, 0.5
COMPARED = ("publications", "messages", "deliveries")


class Cost(msgspec.Struct, frozen=True):
    """Of one step of the work, or of one strategy."""

    what: str
    wall: float
    cpu: float
    messages: int = 0
    between: int = 0  # of them, between parts
    busiest: int = 0  # messages that one peer sent and received
    received: int = 0  # deliveries
    steps: float = 0.0
    same: bool | None = None  # as the simulator; None: not simulated


class Asked(msgspec.Struct, frozen=True):
    peers: int
    publications: int
    simulated: bool
    settings: dict[str, Setting]


def scenario(asked: Asked, strategy: str) -> Scenario:
    return Scenario(
        protocol="drtree", workload="hotspots", nodes=asked.peers,
        seconds=asked.publications / (RATE * asked.peers),
        settings={
            "strategy": strategy, "hotspots": "warm", "size": 32 * sqrt(asked.peers),
            "rate": RATE, "latency_ms": LATENCY_MS, "sample_ms": 0.0, "payload": 0,
            **asked.settings,
        },
    )  # fmt: skip


class Watch:
    """Wall and CPU seconds since it was asked last, of this process and its descendants. They are
    looked at often, because nobody counts a worker that Spark has ended."""

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        threading.Thread(target=self._look_often, daemon=True).start()
        self._wall, self._cpu = monotonic(), self._look()

    def lap(self) -> tuple[float, float]:
        wall, used = monotonic(), self._look()
        took = wall - self._wall, used - self._cpu
        self._wall, self._cpu = wall, used
        return took

    def _look_often(self) -> None:
        while True:
            sleep(0.5)
            self._look()

    def _look(self) -> float:
        for process in family(os.getpid()):
            with suppress(OSError):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                self._used[process] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        return sum(list(self._used.values()))


def measure(asked: Asked, folder: Path) -> Iterable[Cost]:
    """In this process, which should be a fresh one."""
    spark = session.start()
    spark.range(1).count()
    watch, laps = Watch(), list[tuple[float, float]]()
    if not asked.simulated:
        what = scenario(asked, STRATEGIES[0])
        tree = prepare_tree(spark, what, folder / "tree", show=lambda _: laps.append(watch.lap()))
        yield Cost("interests", *laps[1])
        yield Cost(f"tree of height {tree.height}, {tree.parts} parts", *watch.lap())
    found = {}
    for strategy in STRATEGIES:
        what, begins, whole = scenario(asked, strategy), 0, None
        if asked.simulated:
            world, whole = simulate(what)
            yield Cost(f"simulator, {strategy}", *watch.lap())
            place, begins = folder / f"tree-{strategy}", world.begins
            grown = read_tree(members_of(world.simulation.nodes))
            tree = prepare_tree(spark, what, place, tree=grown)
            watch.lap()
        out = folder / "traces" / strategy
        done = disseminate(spark, what, tree, out, begins=begins)
        wall, used = watch.lap()
        found[done.summary.run] = Cost(
            strategy, wall, used, done.summary.messages, sum(done.left), busiest(out),
            done.summary.rows["deliveries"], same=None if whole is None else is_same(whole, out),
        )  # fmt: skip
    watch.lap()
    traces = storage.open_traces([folder / "traces"])
    jobs = (delivery.delivery_totals, delivery.popularity)
    for judged in analyse(spark, traces, folder / "results", jobs=jobs):
        if judged.missed or judged.spurious or judged.duplicates or judged.rejected:
            raise SystemExit(f"not exact: {judged}")
    for run, cost in found.items():
        yield msgspec.structs.replace(cost, steps=mean_steps(folder / "results", run))
    yield Cost("analysis of all", *watch.lap())


def mean_steps(results: Path, run: str) -> float:
    """Until the last receiver has a publication, over those with two or more."""
    curve = storage.read_result(results, "popularity", run)
    wanted = [row for row in curve if row["interested"] > 1]
    number = sum(row["publications"] for row in wanted)
    whole_ms = sum(row["publications"] * row["total_time_mean_ms"] for row in wanted)
    return float(whole_ms / number / LATENCY_MS)


def simulate(what: Scenario) -> tuple[SimulatedWorld, MemoryTrace]:
    trace = MemoryTrace()
    world = SimulatedWorld(what, lambda _: Recorder(trace))
    world.run()
    world.recorder.close()
    return world, trace


def is_same(whole: MemoryTrace, out: Path) -> bool:
    """Are the rows those of the simulator, but for the upkeep of a tree that only it has?"""
    for name in COMPARED:
        table = whole.table(name)
        if name == "messages":
            table = table.filter(pc.is_valid(table["publication"]))
        if not in_order(table).equals(in_order(ds.dataset(out / name).to_table())):
            return False
    return True


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def busiest(out: Path) -> int:
    messages = ds.dataset(out / "messages").to_table(columns=["node", "to"])
    ends = pa.chunked_array([*messages["node"].chunks, *messages["to"].chunks])
    return int(pc.max(pc.value_counts(ends).field("counts")).as_py())


def alone() -> None:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    with tempfile.TemporaryDirectory() as folder:
        for cost in measure(asked, Path(folder)):
            sys.stdout.buffer.write(msgspec.json.encode(cost) + b"\n")
            sys.stdout.buffer.flush()


def in_a_process(asked: Asked) -> tuple[list[Cost], float]:
    """The costs, and the most memory in MiB of all processes together."""
    most, ended = [0.0], threading.Event()
    command = [sys.executable, __file__, "--alone"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def look() -> None:
            while not ended.wait(0.5):
                most[0] = max(most[0], memory(process.pid))

        looks = threading.Thread(target=look)
        looks.start()
        told, _ = process.communicate(msgspec.json.encode(asked))
        ended.set()
        looks.join()
    if process.returncode:
        raise SystemExit(f"{asked.peers:,} peers: not measured")
    return [msgspec.json.decode(line, type=Cost) for line in told.splitlines()], most[0]


def compare(
    sizes: list[int], publications: int, simulated: int, settings: dict[str, Setting]
) -> None:
    print(f"{'peers':>9}  {'':32}{'wall s':>8}{'CPU s':>8}{'messages':>11}{'between':>9}"
          f"{'µs each':>9}{'busiest':>9}{'received':>10}{'steps':>7}", flush=True)  # fmt: skip
    trees: dict[int, tuple[list[Cost], float]] = {}
    for peers in sizes:
        runs = [Asked(peers, publications, both, settings) for both in (True, False)]
        if peers > simulated:
            runs = runs[1:]
        for asked in runs:
            costs, peak = trees[peers] = in_a_process(asked)
            for cost in costs:
                print(row(peers, cost), flush=True)
            print(f"{peers:>9,}  all, {peak:,.0f} MiB at the peak", flush=True)
            if any(cost.same is False for cost in costs):
                raise SystemExit("the parts have not left the simulator's trace")
    tell_growth(trees)


def row(peers: int, cost: Cost) -> str:
    line = f"{peers:>9,}  {cost.what:32}{cost.wall:>8.1f}{cost.cpu:>8.1f}"
    if cost.messages:
        line += (
            f"{cost.messages:>11,}{cost.between:>9,}{1e6 * cost.cpu / cost.messages:>9.0f}"
            f"{cost.busiest:>9,}{cost.received:>10,}{cost.steps:>7.2f}"
            f"  {'same rows' if cost.same else ''}"
        )
    return line


def tell_growth(trees: dict[int, tuple[list[Cost], float]]) -> None:
    """Each cost of a grown tree at the most peers against that at the fewest."""
    few, many = min(trees), max(trees)
    if few == many:
        return
    print(f"\nFrom {few:,} to {many:,} peers ({many / few:g} times as many), all strategies:")
    for name, before, after in zip(
        ("CPU s of interests and tree", "CPU s of publications", "messages", "MiB at the peak"),
        *(sums(*trees[peers]) for peers in (few, many)), strict=True,
    ):  # fmt: skip
        power = log(after / before) / log(many / few)
        print(f"  {name:28}{before:>12,.4g} → {after:<12,.4g} n^{power:.2f}")


def sums(costs: list[Cost], peak: float) -> tuple[float, float, float, float]:
    sent = [cost for cost in costs if cost.messages]
    carried = sum(cost.messages for cost in sent)
    made = sum(cost.cpu for cost in costs[:2])
    return made, sum(cost.cpu for cost in sent), carried, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [1_000, 10_000, 100_000, 1_000_000]
    parser.add_argument("--peers", type=int, nargs="+", default=sizes)
    parser.add_argument("--publications", type=int, default=10_000)
    parser.add_argument("--simulated", type=int, default=10_000, help="peers, at most")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of the tree")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        alone()
    else:
        settings: dict[str, Setting] = dict(one.split("=", 1) for one in arguments.set)
        compare(arguments.peers, arguments.publications, arguments.simulated, settings)


if __name__ == "__main__":
    main()
