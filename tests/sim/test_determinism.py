"""Same seed, same trace: whatever the hash seed, and for every fault at once."""

import os
import subprocess
import sys

from support.patience import PATIENCE_S

PROGRAM = """
import sys
from nearcast.scenario import Scenario
from nearcast.sim.world import SimulatedWorld
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
settings = {"matcher": "grid", "loss": 0.05, "jitter_ms": 20, "duplicate": 0.05, "reorder": 0.05,
            "crash": 0.05, "restart_s": 1, "partition": 0.2, "slow": 0.1, "churn_rate": 3,
            "rate": 8}
for workload, seed in zip(sys.argv[1::2], sys.argv[2::2]):
    memory = MemoryTrace()
    scenario = Scenario(protocol="client-server", workload=workload, nodes=60, seconds=3,
                        seed=int(seed), settings=settings)
    world = SimulatedWorld(scenario, lambda _: Recorder(memory))
    world.run()
    world.recorder.close()
    assert world.recorder.counts["deliveries"] > 100
    print(digest(memory))
"""


def trace_digests(hash_seed: str, *runs: tuple[str, int]) -> list[str]:
    """One process for all runs, because it takes longer to start than to run them."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *(str(word) for run in runs for word in run)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    ).stdout.split()  # fmt: skip


def test_two_processes_with_different_hash_seeds_leave_the_same_trace() -> None:
    runs = ("waypoint", 7), ("hotspots", 7)
    first = trace_digests("1", *runs, ("waypoint", 8), ("hotspots", 8))
    assert trace_digests("2", *runs) == first[:2]
    assert len(set(first)) == 4, "another seed leaves another trace"
