"""What all tests share: hypothesis' profile, one Spark session, a real browser."""

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from xdist.scheduler import LoadFileScheduling

from nearcast.pipeline.spark.session import start
from nearcast.storage import RemotePath
from support.compile_once import Kernels, alone, compile_once, prepare_hypothesis
from support.examples import examples
from support.object_store import KEYS, in_bucket, s3_endpoint
from support.schedule import rank, work_unit

# Keep bytecode whatever the environment says. The suite starts hundreds of processes, and each
# would compile all modules that it imports; pytest would rewrite all tests in every worker.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.update(KEYS)  # before Spark starts, whose workers read what tests wrote

SOAK = Path(__file__).parent / "soak"

gc.disable()  # until all tests are collected
compile_once()
settings.register_profile(
    "nearcast", deadline=None, max_examples=examples(40).max_examples,
    # How long drawing takes depends on what else this machine does, and on chance.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
settings.load_profile("nearcast")


class OneSpark(LoadFileScheduling):
    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._kernels = Kernels()  # while the processes collect their tests

    def schedule(self) -> None:
        if self.collection is None:
            self._kernels.wait()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return work_unit(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    config.option.loadscopereorder = False  # ours is better
    return OneSpark(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Thousands of tests that would only be deselected."""
    return True if collection_path == SOAK and config.option.markexpr == "not soak" else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    with alone(str(collector.path)) if isinstance(collector, pytest.Module) else nullcontext():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        prepare_hypothesis()
    items.sort(key=lambda item: rank(item.nodeid))


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests stay; the garbage collector need not look at them again
    gc.set_threshold(20_000)  # few cycles are made; looking for them takes time
    gc.enable()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start(
        "local[2]", lean=True, spark_driver_memory="1g", spark_sql_shuffle_partitions="2"
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """An S3 server."""
    with s3_endpoint() as address:
        yield address


@pytest.fixture
def remote(endpoint: str) -> RemotePath:
    """An empty folder in S3."""
    return in_bucket(endpoint, uuid4().hex)


class SlowScreen(NamedTuple):
    """A browser whose pages draw ten times in a second, because nobody looks.

    More often, they would take more of the machine than all else that their tests do.
    """

    browser: Any

    def new_page(self, **options: Any) -> Any:
        page = self.browser.new_page(**options)
        page.set_default_timeout(180_000)
        page.add_init_script(
            "const soon = requestAnimationFrame;"
            "window.requestAnimationFrame = (draw) => setTimeout(() => soon(draw), 90);"
        )
        return page


@pytest.fixture(scope="module")
def browser() -> Iterator[SlowScreen]:
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("no chromium or chrome on this machine, so no page was opened")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed, so no page was opened")
    with sync_playwright() as play:
        open_browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield SlowScreen(open_browser)
        open_browser.close()
