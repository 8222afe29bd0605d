"""Rows of little runs as the DataFrames that jobs take, and results back as plain values."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from nearcast.trace.schema import TABLES

Row = dict[str, Any]

PAIR = pa.schema([("publication", pa.int64()), ("subscription", pa.int64())])


def frame(spark: SparkSession, table: str, rows: Iterable[Row]) -> DataFrame:
    """Rows of a table; each needs its `run`, and may leave out whatever it does not care for."""
    columns = PAIR if table == "expected" else TABLES[table]
    defaults = {field.name: _default(field) for field in columns}
    schema = pa.schema([("run", pa.string()), *(field.with_nullable(True) for field in columns)])
    return spark.createDataFrame(
        pa.Table.from_pylist([defaults | row for row in rows], schema=schema)
    )


def _default(field: pa.Field) -> Any:
    if field.name == "copies":
        return 1
    if field.nullable:
        return None
    return {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}.get(field.type, 0)


def told(result: DataFrame, keys: Sequence[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """A result by its keys; a key told twice is a mistake."""
    rows = [row.asDict() for row in result.collect()]
    values = [name for name in result.columns if name not in keys]
    found = {tuple(row[key] for key in keys): tuple(row[name] for name in values) for row in rows}
    assert len(found) == len(rows)
    return found
