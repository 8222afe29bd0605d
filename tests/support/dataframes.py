"""Rows to DataFrames and back, for tests that compare a job with plain Python."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.trace.schema import TABLES

Row = dict[str, Any]
RUN = pa.field("run", pa.string())
PAIRS = pa.schema([("publication", pa.int64()), ("subscription", pa.int64())])


def frame(spark: SparkSession, table: str, rows: Iterable[Row]) -> DataFrame:
    """Rows of a trace's table, or of `expected`, as the pipeline hands them to jobs."""
    schema = PAIRS if table == "expected" else TABLES[table]
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), pa.schema([RUN, *schema])))


def assert_same(found: DataFrame, wanted: Sequence[Row], keys: Sequence[str]) -> None:
    """The very rows in any order, in the very columns; doubles to eleven digits."""
    assert wanted, "an empty table would prove nothing"
    assert found.columns == list(wanted[0])
    rows = [row.asDict() for row in found.collect()]
    got, due = ({tuple(row[k] for k in keys): row for row in those} for those in (rows, wanted))
    assert len(got) == len(rows), "two rows have the same keys"
    assert got.keys() == due.keys()
    for key, row in due.items():
        assert got[key] == {name: _nearly(value) for name, value in row.items()}, key


def _nearly(value: Any) -> Any:
    return pytest.approx(value, rel=1e-11, abs=1e-11) if isinstance(value, float) else value


def over(part: float, whole: float) -> float | None:
    return part / whole if whole else None
