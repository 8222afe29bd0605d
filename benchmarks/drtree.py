"""How the cost of a DR-tree grows with its peers, next to a server that knows everybody.

Each run is a process of its own that does what `nearcast simulate` does, with its trace on disk:
peers join, and when all sit in the tree, each publishes once within its own area (the paper's
workload, "warm", in a world that keeps the density, so that a publication concerns as many however
many peers there are). The naive opponent, client-server, has the same peers, areas and
publications, and must deliver the same.

Counted in the trace: messages per peer before the workload (joins, and upkeep of the growing tree),
messages with a publication, and how many of these the busiest node sent and received. The CPU of
building ends with the first half percent of the workload. After the last row stands how each cost
grew: how many times as much for how many times the peers, and the power of n that this is.

Run: python benchmarks/drtree.py [--peers 1000 10000 100000] [--set promotes=latency …]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import log, sqrt
from pathlib import Path
from time import process_time

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from nearcast.scenario import Scenario, Setting
from nearcast.sim.run import SimulationProgress, simulate


class Cost(msgspec.Struct, frozen=True):
    joining: float  # messages per peer before the workload
    build: float  # CPU seconds
    publish: float
    peak: float  # MiB
    carrying: float  # messages per publication
    busiest: int  # messages with a publication that one node sent and received
    height: int
    publications: int
    deliveries: int


def scenario(protocol: str, peers: int, settings: dict[str, Setting]) -> Scenario:
    return Scenario(
        protocol=protocol, workload="hotspots", nodes=peers, seconds=2.0,
        settings={
            "hotspots": "warm", "size": 32 * sqrt(peers), "sample_ms": 0.0, "payload": 0,
            **settings,
        },
    )  # fmt: skip


def measure(what: Scenario, folder: Path) -> Cost:
    """In this process, which should be a fresh one: memory is counted from its beginning."""
    built: list[float] = []

    def show(_: SimulationProgress) -> None:
        if not built:
            built.append(process_time())

    began = process_time()
    simulate(what, folder, show)
    ended = process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    messages = read(folder, "messages", ["t", "node", "to", "publication"])
    published = read(folder, "publications", ["t"])
    levels = read(folder, "notes", ["value"], ds.field("fact") == "level")
    deliveries = read(folder, "deliveries", ["t"])
    before = pc.sum(pc.less(messages["t"], pc.min(published["t"]))).as_py()
    carrying = messages.filter(pc.is_valid(messages["publication"]))
    ends = pa.chunked_array([*carrying["node"].chunks, *carrying["to"].chunks])
    return Cost(
        joining=before / what.nodes,
        build=built[0] - began,
        publish=ended - built[0],
        peak=peak,
        carrying=carrying.num_rows / published.num_rows,
        busiest=pc.max(pc.value_counts(ends).field("counts")).as_py(),
        height=round(pc.max(levels["value"]).as_py() or 0),
        publications=published.num_rows,
        deliveries=deliveries.num_rows,
    )


def read(
    folder: Path, table: str, columns: list[str], only: ds.Expression | None = None
) -> pa.Table:
    return ds.dataset(folder / table).to_table(columns=columns, filter=only)


def in_a_process(what: Scenario) -> Cost:
    """Measured by this very file, which finds the scenario on its standard input."""
    answer = subprocess.run(
        [sys.executable, __file__, "--alone"],
        input=msgspec.json.encode(what),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(answer.stdout, type=Cost)


def alone() -> None:
    what = msgspec.json.decode(sys.stdin.buffer.read(), type=Scenario)
    with tempfile.TemporaryDirectory() as folder:
        cost = measure(what, Path(folder) / "trace")
    sys.stdout.buffer.write(msgspec.json.encode(cost))


def compare(sizes: list[int], settings: dict[str, Setting]) -> None:
    titles = ("join", "build s", "publish s", "MiB", "per publ.", "busiest", "height", "delivered")
    widths = (8, 9, 11, 8, 11, 10, 8, 11)
    print(
        f"{'peers':>8}  {'':14}" + "".join(f"{t:>{w}}" for t, w in zip(titles, widths, strict=True))
    )
    trees: dict[int, Cost] = {}
    for peers in sizes:
        tree = trees[peers] = in_a_process(scenario("drtree", peers, settings))
        server = in_a_process(scenario("client-server", peers, {}))
        for name, cost in (("DR-tree", tree), ("client-server", server)):
            print(
                f"{peers:>8,}  {name:14}{cost.joining:>8.1f}{cost.build:>9.1f}"
                f"{cost.publish:>11.1f}{cost.peak:>8,.0f}{cost.carrying:>11.2f}"
                f"{cost.busiest:>10,}{cost.height or '':>8}{cost.deliveries:>11,}",
                flush=True,
            )
        if tree.deliveries != server.deliveries:
            raise SystemExit("they have not delivered the same")
    tell_growth(trees)


def tell_growth(trees: dict[int, Cost]) -> None:
    """Of the tree: each cost at its largest number of peers against that at its smallest."""
    few, many = min(trees), max(trees)
    if few == many:
        return
    print(f"\nDR-tree, from {few:,} to {many:,} peers ({many / few:g} times as many):")
    for cost, measure in GROWS.items():
        before, after = measure(trees[few], few), measure(trees[many], many)
        power = log(after / before) / log(many / few)
        grown = f"{after / before:.2f} times, n^{power:.2f}"
        print(f"  {cost:44}{before:>12,.4g} → {after:<12,.4g}{grown:>22}")


GROWS: dict[str, Callable[[Cost, int], float]] = {
    "messages per peer until the tree stands": lambda cost, _: cost.joining,
    "CPU ms per peer to build": lambda cost, peers: 1000 * cost.build / peers,
    "CPU ms per publication": lambda cost, _: 1000 * cost.publish / cost.publications,
    "KiB per peer at the peak": lambda cost, peers: 1024 * cost.peak / peers,
    "messages per publication": lambda cost, _: cost.carrying,
    "messages with publications, of the busiest": lambda cost, _: cost.busiest,
    "levels above the leaves": lambda cost, _: cost.height,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="of the tree")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        alone()
    else:
        compare(arguments.peers, dict(one.split("=", 1) for one in arguments.set))


if __name__ == "__main__":
    main()
