"""What all tests share: hypothesis' profile, and one Spark session for the whole suite."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from nearcast.pipeline.session import start

settings.register_profile("nearcast", deadline=None, max_examples=100)
settings.load_profile("nearcast")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Where several processes share the work, one has Spark; others get whole files.

    A file's tests share what its fixtures have set up, and the suite has one Spark session.
    """
    counting = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    for item in items:
        group = "spark" if item.path in counting else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start(
        "local[2]", lean=True, spark_driver_memory="1g", spark_sql_shuffle_partitions="2"
    )
    yield session
    session.stop()
