"""One Spark session for all tests of the pipeline."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.session import start


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start(
        "local[2]", lean=True, spark_driver_memory="1g", spark_sql_shuffle_partitions="2"
    )
    yield session
    session.stop()
