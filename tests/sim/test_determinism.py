"""Same seed, same trace: whatever the hash seed, and for every fault at once."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from nearcast.scenario import Scenario
from nearcast.sim.world import SimulatedWorld
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
memory = MemoryTrace()
settings = {"matcher": "grid", "loss": 0.05, "jitter_ms": 20, "duplicate": 0.05, "reorder": 0.05,
            "crash": 0.05, "restart_s": 1, "partition": 0.2, "slow": 0.1, "churn_rate": 3,
            "rate": 8}
scenario = Scenario(protocol="client-server", workload=sys.argv[1], nodes=60, seconds=3,
                    seed=int(sys.argv[2]), settings=settings)
world = SimulatedWorld(scenario, lambda _: Recorder(memory))
world.run()
world.recorder.close()
assert world.recorder.counts["deliveries"] > 100
print(digest(memory))
"""


def trace_digest(workload: str, seed: int, hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, workload, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("workload", ["waypoint", "hotspots"])
def test_two_processes_with_different_hash_seeds_leave_the_same_trace(workload: str) -> None:
    first = trace_digest(workload, 7, "1")
    assert trace_digest(workload, 7, "2") == first
    assert trace_digest(workload, 8, "1") != first
