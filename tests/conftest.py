"""What all tests share: hypothesis' profile, one Spark session, a real browser."""

import gc
import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from xdist.scheduler import LoadFileScheduling

from nearcast.pipeline.spark.session import start
from support.compile_once import compile_once

ROOT = Path(__file__).parent.parent

# Keep bytecode whatever the environment says. The suite starts hundreds of processes, and each
# would compile all modules that it imports; pytest would rewrite all tests in every worker.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

compile_once()
settings.register_profile(
    "nearcast", deadline=None, max_examples=40,
    # How long drawing takes depends on what else this machine does, and on chance.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
settings.load_profile("nearcast")


# Seconds that the longest files take; they come first, so that nobody waits for them in the end.
# Their tests are shared out one by one, unless tests of a file share what a fixture has set up.
LONG_FILES: dict[str, int] = {}


class TestFile(NamedTuple):
    """What the scheduler must know of a file before anybody has imported it."""

    on_spark: frozenset[str]  # functions that need the Spark session, directly or by a fixture
    shares: bool  # a fixture is set up once for several tests


@cache
def read_test_file(file: str) -> TestFile:
    text = (ROOT / file).read_text(encoding="utf-8")
    functions = [
        (name, set(re.findall(r"\w+", parameters)))
        for name, parameters in re.findall(r"^def (\w+)\(([^)]*)\)", text, re.MULTILINE)
    ]
    names = {"spark"}
    for _ in functions:
        names |= {name for name, parameters in functions if parameters & names}
    shares = 'scope="module"' in text or any("browser" in parameters for _, parameters in functions)
    return TestFile(frozenset(names), shares)


def work_unit(nodeid: str) -> str:
    """Tests of one unit run one after the other in one process. One process has Spark."""
    file, _, test = nodeid.partition("::")
    found = read_test_file(file)
    needs_spark = test.partition("[")[0] in found.on_spark
    if needs_spark or (found.shares and len(found.on_spark) > 1):
        return "spark"
    return nodeid if file in LONG_FILES and not found.shares else file


class OneSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return work_unit(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    config.option.loadscopereorder = False  # ours is better
    return OneSpark(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first. Spark's process has enough to do from then on."""

    def rank(item: pytest.Item) -> tuple[bool, int]:
        seconds = LONG_FILES.get(item.nodeid.partition("::")[0], 0)
        return work_unit(item.nodeid) != "spark", -seconds

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests stay; the garbage collector need not look at them again


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start(
        "local[2]", lean=True, spark_driver_memory="1g", spark_sql_shuffle_partitions="2"
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("no chromium or chrome on this machine, so no page was opened")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed, so no page was opened")
    with sync_playwright() as play:
        open_browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield open_browser
        open_browser.close()
