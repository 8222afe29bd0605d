"""Coverage-guided fuzzing of every parser of bytes from outside, for a while each."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[2]
SECONDS = 60


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_is_found_that_fails(target: str, tmp_path: Path) -> None:
    """One that fails is in the message, and belongs into tests/fuzz/corpus once it is repaired."""
    command = [sys.executable, "-m", "tests.fuzz", target, f"--seconds={SECONDS}"]
    command.append(f"--crashes={tmp_path}/")
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20 * SECONDS)
    crashes = [file.read_bytes() for file in tmp_path.iterdir()]
    assert (ran.returncode, crashes) == (0, []), ran.stderr[-3_000:]
    assert "Done " in ran.stderr, "it has run for as long as it should"
