"""The package that executors get: imported from files, with the kernels that are compiled here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.pipeline.spark.package_archive import leave_out_of_path, write_package_archive

IMPORTED = """
import json, sys
sys.path.insert(1, sys.argv[1])
import nearcast
from nearcast.pipeline.truth import kernels
if len(sys.argv) > 2:
    import numpy as np
    starts = np.array([1, 3, 5], np.int64)
    kernels.find_ends(starts, starts)
stats = kernels.find_ends.stats
print(json.dumps({
    "files": [nearcast.__file__, kernels.__file__],
    "version": nearcast.__version__,
    "hits": sum(stats.cache_hits.values()),
    "misses": sum(stats.cache_misses.values()),
}))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package_archive(tmp_path_factory.mktemp("archive"))


def started(archive: Path, home: Path, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTED, str(archive), *more],
        stdout=subprocess.PIPE, text=True, env={"HOME": str(home)},
    )  # fmt: skip


def test_processes_that_import_it_at_once_run_the_kernels_that_came_along(
    archive: Path, tmp_path: Path
) -> None:
    for process in [started(archive, tmp_path, "kernels") for _ in range(2)]:
        printed, _ = process.communicate()
        assert process.returncode == 0
        found = json.loads(printed)
        folder = f"{archive}.unpacked"
        assert all(file.startswith(folder) for file in found["files"])
        assert (found["hits"], found["misses"]) == (1, 0)
    assert sorted(file.name for file in archive.parent.iterdir()) == [
        "nearcast.zip", "nearcast.zip.unpacked",
    ]  # fmt: skip


def test_it_is_imported_as_it_is_where_nothing_can_be_unpacked(tmp_path: Path) -> None:
    archive = write_package_archive(tmp_path)
    Path(f"{archive}.unpacked").write_text("in the way")
    process = started(archive, tmp_path)
    printed, _ = process.communicate()
    assert process.returncode == 0
    assert all(file.startswith(f"{archive}/files/") for file in json.loads(printed)["files"])


def test_it_is_not_on_the_path_of_the_driver(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", [*before, f"/tmp/spark-1/{archive.name}"])
    leave_out_of_path(archive)
    assert sys.path == before
