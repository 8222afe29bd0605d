"""Rows of small runs with only the columns that a test needs, and results by their keys."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from nearcast.trace.schema import TABLES
from support.dataframes import PAIRS, Row, frame


def rows_of(spark: SparkSession, table: str, rows: Iterable[Row]) -> DataFrame:
    """Each row needs its `run`, and may leave out whatever it does not care for."""
    columns = PAIRS if table == "expected" else TABLES[table]
    defaults = {field.name: _default(field) for field in columns}
    return frame(spark, table, [defaults | row for row in rows])


def _default(field: pa.Field) -> Any:
    if field.nullable:
        return None
    if field.name == "copies":
        return 1
    return {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}.get(field.type, 0)


def by_keys(result: DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """A result by its keys; a key that occurs twice is a mistake."""
    rows = [row.asDict() for row in result.collect()]
    values = [name for name in result.columns if name not in keys]
    found = {tuple(row[key] for key in keys): tuple(row[name] for name in values) for row in rows}
    assert len(found) == len(rows)
    return found
