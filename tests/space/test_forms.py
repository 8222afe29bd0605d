"""A form of outlines has its home in `space`: engines, overlays, traces and the truth ask there."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast
from nearcast.matching import EXACT
from nearcast.protocols import PROTOCOLS

SOURCE = Path(nearcast.__file__).parent
FORMS = {"Form", "POLYGON", "CORRIDOR", "SECTOR"}
# Who tells forms apart nevertheless. A new form needs them only to be crossed and written, too:
# found by its box and decided by `contains_point` or `touches_outline`, it works everywhere else.
KNOWN = {
    "fences/areas.py": "the longitudes of a polygon on Earth",
    "fences/crossings.py": "where a way meets the border of each form",
    "fences/fence_index.py": "ways are straight in degrees to polygons on Earth",
    "fences/coarse_rings.py": "polygons with few edges are kept in small numbers",
    "fences/slabs.py": "polygons with many edges are cut into slabs",
    "fences/sound_polygons.py": "polygons are checked in bulk",
    "client_protocol/earth_json.py": "an area as a client wrote it",
    "client_protocol/geometry_json.py": "an area as a client wrote it",
}


def test_only_space_and_these_modules_tell_forms_apart() -> None:
    found = set()
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        nodes = ast.walk(ast.parse(file.read_text()))
        imported = {
            alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nearcast.space")
            for alias in node.names
        }
        if imported & FORMS and not name.startswith("space/"):
            found.add(name)
    assert found == set(KNOWN)


@pytest.mark.soak
def test_a_new_form_is_a_change_of_space_alone(tmp_path: Path) -> None:
    """Every exact engine, the truth and every overlay decide rightly about a form that only two
    functions of `space` know. In soak, because all kernels that ask them are compiled anew."""
    tests = Path(__file__).parents[1]
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(tests)}
    done = subprocess.run(
        [sys.executable, "-m", "support.new_form"], env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == len(EXACT) + 1 + len(PROTOCOLS)
    for name, found in answers.items():
        assert found["wanted"] > 20, name
        assert (found["right"], found["wrong"]) == (found["wanted"], 0), name
