"""As many random seeds of a simulated cluster with faults as fit a time box, others each time."""

import os
import secrets
import sys
import time

import pytest

from support.cluster_scenarios import mixed_scenario, run_cluster

pytestmark = pytest.mark.soak

MINUTES = float(os.environ.get("NEARCAST_SOAK_MINUTES", "20"))


def test_random_seeds_with_mixed_faults(capsys: pytest.CaptureFixture[str]) -> None:
    first = secrets.randbelow(10**9)
    with capsys.disabled():
        sys.stdout.write(f"\nseeds from {first} on, for {MINUTES:g} minutes\n")
    ends, seed = time.monotonic() + 60 * MINUTES, first
    while time.monotonic() < ends or seed == first:
        run_cluster(mixed_scenario(seed))
        seed += 1
    with capsys.disabled():
        sys.stdout.write(f"{seed - first} seeds, none failed\n")
