"""The benchmark of hostile clients runs, with few of them: each attack has its row."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "hostile.py"
ATTACKS = (
    "silent", "deaf", "large", "limits", "formulas", "watchers", "refused", "tokens", "slow-http",
)  # fmt: skip


def test_every_attack_has_its_row() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--seconds", "1", "--scale", "0.01"],
        capture_output=True, text=True, timeout=1_200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    rows = [line.split()[0] for line in done.stdout.splitlines()[2:]]
    assert rows == list(ATTACKS)
