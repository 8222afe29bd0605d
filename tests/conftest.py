"""What all tests share: hypothesis' profile, and one Spark session for the whole suite."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from nearcast.pipeline.session import start

settings.register_profile("nearcast", deadline=None, max_examples=100)
settings.load_profile("nearcast")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start(
        "local[2]", lean=True, spark_driver_memory="1g", spark_sql_shuffle_partitions="2"
    )
    yield session
    session.stop()
