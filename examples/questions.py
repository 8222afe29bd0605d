"""Three questions to a trace, asked with Spark through the data source `nearcast`.

    python examples/questions.py --trace walk

Who hears most? Does a message take longer to those who are far away? Which second was the busiest,
and with what? Each answer is a function from a session and a trace to a small table.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from nearcast.errors import TraceError
from nearcast.pipeline.source import NearcastSource
from nearcast.pipeline.spark.session import start
from nearcast.pipeline.spark.storage import open_traces

RINGS = 8  # distances are told in so many steps of equal width


def table(spark: SparkSession, trace: str, name: str) -> DataFrame:
    spark.dataSource.register(NearcastSource)
    return spark.read.format("nearcast").option("table", name).load(trace)


def who_hears_most(spark: SparkSession, trace: str) -> DataFrame:
    """The ten nodes with most deliveries, and from how many others they come."""
    deliveries = table(spark, trace, "deliveries")
    publishers = table(spark, trace, "publications").select(
        "run", "publication", f.col("node").alias("publisher")
    )
    return (
        deliveries.join(publishers, on=["run", "publication"], how="inner")
        .groupBy("run", "node")
        .agg(
            f.count("publication").alias("deliveries"),
            f.count_distinct("publisher").alias("publishers"),
        )
        .select("run", "node", "deliveries", "publishers")
        .orderBy(f.desc("deliveries"), "run", "node")
        .limit(10)
    )


def latency_by_distance(spark: SparkSession, trace: str) -> DataFrame:
    """Latency by how far the subscriber was from the publication's place when it was made.

    Where a node was at a moment is where it was last sampled; of one not yet sampled nothing is
    known, and it is left out.
    """
    made = table(spark, trace, "publications").select(
        "run", "publication", f.col("t").alias("made"), "x", "y", "z"
    )
    heard = table(spark, trace, "deliveries").join(made, on=["run", "publication"], how="inner")
    question = heard.select(
        "run",
        "node",
        f.col("made").alias("moment"),
        f.lit(True).alias("asked"),
        f.struct("x", "y", "z").alias("spoken"),
        f.lit(None).cast("struct<x: double, y: double, z: double>").alias("listening"),
        ((f.col("t") - f.col("made")) / 1000).alias("latency_ms"),
    )
    sample = table(spark, trace, "positions").select(
        "run",
        "node",
        f.col("t").alias("moment"),
        f.lit(False).alias("asked"),
        f.lit(None).cast("struct<x: double, y: double, z: double>").alias("spoken"),
        f.struct("x", "y", "z").alias("listening"),
        f.lit(None).cast("double").alias("latency_ms"),
    )
    so_far = (
        Window.partitionBy("run", "node")
        .orderBy("moment", "asked")  # a sample of the same moment comes first
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    squares = [(f.col(f"spoken.{axis}") - f.col(f"listening.{axis}")) ** 2 for axis in "xyz"]
    distance = f.sqrt(squares[0] + squares[1] + squares[2])
    answers = (
        question.unionByName(sample)
        .withColumn("listening", f.last("listening", ignorenulls=True).over(so_far))
        .where(f.col("asked") & f.col("listening").isNotNull())
        .select("run", distance.alias("distance"), "latency_ms")
    )
    farthest = answers.groupBy("run").agg(f.max("distance").alias("farthest"))
    width = f.when(f.col("farthest") > 0, f.col("farthest") / RINGS).otherwise(1.0)
    ring = f.least(f.floor(f.col("distance") / width), f.lit(RINGS - 1))
    return (
        answers.join(farthest, on="run", how="inner")
        .groupBy("run", (ring * width).alias("from"), ((ring + 1) * width).alias("to"))
        .agg(
            f.count("latency_ms").alias("deliveries"),
            f.mean("latency_ms").alias("mean_ms"),
            f.percentile_approx("latency_ms", 0.99).alias("p99_ms"),
        )
        .select("run", "from", "to", "deliveries", "mean_ms", "p99_ms")
        .orderBy("run", "from")
    )


def busiest_second(spark: SparkSession, trace: str) -> DataFrame:
    """The kinds of messages in the second with most bytes, of each run."""
    by_kind = (
        table(spark, trace, "messages")
        .groupBy("run", f.floor(f.col("t") / 1_000_000).alias("second"), "kind")
        .agg(f.sum("copies").alias("messages"), f.sum("bytes").alias("bytes"))
    )
    of_second = Window.partitionBy("run", "second").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    busiest_first = (
        Window.partitionBy("run")
        .orderBy(f.desc("total"), "second")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        by_kind.withColumn("total", f.sum("bytes").over(of_second))
        .withColumn("place", f.dense_rank().over(busiest_first))
        .where(f.col("place") == 1)
        .select("run", "second", "kind", "messages", "bytes")
        .orderBy("run", f.desc("bytes"), "kind")
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", required=True, help="a trace, or a folder of traces")
    trace = parser.parse_args(arguments).trace
    try:
        open_traces([trace])
    except TraceError as error:
        parser.error(str(error))
    spark = start()
    for question, answer in (
        ("Who hears most?", who_hears_most),
        ("Does it take longer to those far away?", latency_by_distance),
        ("Which second was the busiest, and with what?", busiest_second),
    ):
        sys.stdout.write(f"\n{question}\n")
        answer(spark, trace).show(truncate=False)


if __name__ == "__main__":
    main()
