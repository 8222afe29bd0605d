"""Long pieces of work, one Spark task each."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.extras import keep_pandas_out
from nearcast.pipeline.spark.sql import query_sql


def map_each(
    spark: SparkSession,
    texts: Sequence[bytes],
    work: Callable[[bytes], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The rows that `work` makes from each text, in a task of its own.

    A range has as many partitions as it is told. The texts are joined to it and not sent with the
    function, because every task would get all of them, and a sweep has up to 100,000.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from work(text)

    given = spark.createDataFrame(pa.table({"id": range(len(texts)), "text": texts}))
    numbers = spark.range(0, len(texts), 1, len(texts))
    rows = query_sql(
        "SELECT /*+ BROADCAST(given) */ text FROM {numbers} numbers JOIN {given} given USING (id)",
        numbers=numbers,
        given=given,
    )
    return rows.mapInArrow(run, from_arrow_schema(schema))
