"""How the cost of a DR-tree grows with its peers, next to a server that knows everybody.

Each run is a process of its own that does what `nearcast simulate` does, with its trace on disk:
peers join, and when all sit in the tree, each publishes twice within its own area (the paper's
workload, "hot", in a world that keeps the density). The naive opponent, client-server, has the same
peers, areas and publications. Counted in the trace: messages before the workload per peer (joins
and upkeep of the growing tree), messages with a publication, what the busiest node sent and
received of these, and how high the tree is. CPU of building ends with the first half percent of
the workload. Both must have delivered the same.

Run: python benchmarks/drtree.py [--peers 1000 3000 10000 30000 100000] [--promotes latency]
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from math import sqrt
from pathlib import Path
from time import process_time
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from nearcast.scenario import Scenario
from nearcast.sim.run import Progress, simulate

DENSITY = 1024 / 1024.0**2  # peers per unit of area, as in seed 000


class Cost(NamedTuple):
    joining: float  # messages per peer before the workload
    build: float  # CPU seconds
    publish: float
    peak: float  # MiB
    carrying: float  # messages per publication
    busiest: int  # messages with a publication that one node sent and received
    height: int
    deliveries: int


def measure(protocol: str, peers: int, settings: dict[str, str]) -> Cost:
    """In this process, which should be a fresh one."""
    built: list[float] = []

    def show(_: Progress) -> None:
        if not built:
            built.append(process_time())

    scenario = Scenario(
        protocol=protocol, workload="hotspots", nodes=peers, seconds=4.0,
        settings={
            "hotspots": "hot", "size": sqrt(peers / DENSITY), "sample_ms": 0.0, "payload": 0,
            **settings,
        },
    )  # fmt: skip
    began = process_time()
    with tempfile.TemporaryDirectory() as folder:
        summary = simulate(scenario, Path(folder) / "trace", show)
        ended = process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Cost(
            *counted(Path(summary.trace), peers, built[0] - began, ended - built[0], peak),
            summary.rows["deliveries"],
        )


def counted(
    trace: Path, peers: int, build: float, publish: float, peak: float
) -> tuple[float, float, float, float, float, int, int]:
    tables = {
        name: ds.dataset(trace / name).to_table(columns=columns)
        for name, columns in (
            ("messages", ["t", "node", "to", "publication"]),
            ("publications", ["t"]),
            ("notes", ["fact", "value"]),
        )
    }
    messages, published = tables["messages"], tables["publications"]
    before = pc.sum(pc.less(messages["t"], pc.min(published["t"]))).as_py()
    carrying = messages.filter(pc.is_valid(messages["publication"]))
    ends = pc.value_counts(
        ds.dataset([]) if False else pc.concat_tables([])  # replaced below
    )
    return before, build, publish, peak, carrying.num_rows, ends, peers
