"""As many random seeds of a simulated cluster as fit a time box, others each time."""

import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.cluster_scenarios import (
    handover_scenario,
    mixed_scenario,
    run_cluster,
    standby_scenario,
)
from support.staying_crowd import check_staying_crowd

pytestmark = pytest.mark.soak

MINUTES = float(os.environ.get("NEARCAST_SOAK_MINUTES", "20"))
KINDS: dict[str, Callable[[int], Any]] = {
    "mixed faults": lambda seed: run_cluster(mixed_scenario(seed)),
    "servers that stand by": lambda seed: run_cluster(standby_scenario(seed)),
    "faults while clients are handed over": lambda seed: run_cluster(handover_scenario(seed)),
    "clients that stay, and no excuse": check_staying_crowd,
    "direct messages": lambda seed: run_cluster(mixed_scenario(seed, direct=0.5)),
}
# Seeds that once failed, and what was wrong.
FOUND = {
    ("mixed faults", 70002): "a state ended that was published right after a withdrawal",
    ("servers that stand by", 3001): "clients wanted for ever what servers that crashed had got",
    ("servers that stand by", 3023): "all who were in the mesh had crashed, and nobody founded it",
}


@pytest.mark.parametrize(("kind", "seed"), FOUND)
def test_what_a_long_run_has_found_stays_found(kind: str, seed: int) -> None:
    KINDS[kind](seed)


@pytest.mark.parametrize("kind", KINDS)
def test_random_seeds(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = secrets.randbelow(10**9)
    minutes = MINUTES / len(KINDS)
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: seeds from {first} on, for {minutes:g} minutes\n")
    ends, seed = time.monotonic() + 60 * minutes, first
    while time.monotonic() < ends or seed == first:
        try:
            KINDS[kind](seed)
        except Exception as why:
            done = f"{kind}: seed {seed} failed, after {seed - first} that did not"
            raise AssertionError(done) from why
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"{seed - first} seeds, none failed\n")
