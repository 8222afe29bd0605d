"""The architecture, checked: imports go downwards, and protocols reach for no clock or socket."""

import subprocess
import sys
from pathlib import Path


def test_every_import_contract_is_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    ended = subprocess.run(
        [linter], cwd=Path(__file__).parent.parent, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout
