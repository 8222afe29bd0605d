"""The quality of a log of deliveries: compared with what there should have been, pair by pair."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame

from nearcast.errors import ColumnsError
from nearcast.pipeline.jobs import delivery
from nearcast.spark.columns import (
    AreaColumns,
    ColumnReader,
    Columns,
    PointColumns,
    check_alike,
    column_names,
    quote_name,
)
from nearcast.spark.spatial_join import spatial_join


class Judgement(NamedTuple):
    """What `judge` found.

    `pairs` has a row for each publication and interest that were due to each other or delivered:
    the keys of both, `outcome` ('correct', 'missed' or 'spurious'), `duplicates` (deliveries after
    the first) and `latency_ms` (of the first delivery). `totals` has one row, or none if there are
    neither publications nor deliveries: `expected`, `delivered`, `correct`, `missed`, `spurious`,
    `duplicates`, `precision`, `recall` and quantiles of the latency of correct pairs. Latencies are
    null unless publications and deliveries have times.
    """

    pairs: DataFrame
    totals: DataFrame


TOTALS = (
    "expected", "delivered", "correct", "missed", "spurious", "duplicates", "precision", "recall",
    "latency_mean_ms", "latency_p50_ms", "latency_p90_ms", "latency_p99_ms", "latency_max_ms",
)  # fmt: skip


def judge(
    deliveries: DataFrame,
    publications: DataFrame,
    interests: DataFrame,
    of_publications: PointColumns,
    of_interests: AreaColumns,
    *,
    publication_keys: Columns | None = None,
    interest_keys: Columns | None = None,
    t: str | None = None,
) -> Judgement:
    """Compare deliveries with those that `spatial_join` of interests and publications expects.

    A delivery has the keys of a publication and of an interest, in columns of the same names unless
    `publication_keys` and `interest_keys` say otherwise, and may have a time `t`. One without a key
    (null) is left out; one of a publication that is not among `publications` is spurious. No frame
    may be a stream. The frames are read several times: persist what is expensive to compute.
    """
    named = {"deliveries": deliveries, "publications": publications, "interests": interests}
    for name, frame in named.items():
        if getattr(frame, "isStreaming", False):
            raise ColumnsError(f"{name} must not be a stream")
    keys = column_names(of_publications.keys), column_names(of_interests.keys)
    logged = (
        column_names(publication_keys or of_publications.keys),
        column_names(interest_keys or of_interests.keys),
    )
    read = ColumnReader(deliveries, "deliveries")
    _check_keys(read, "publication", logged[0], ColumnReader(publications, "points"), keys[0])
    _check_keys(read, "interest", logged[1], ColumnReader(interests, "areas"), keys[1])
    found = spatial_join(interests, publications, of_interests, of_publications).selectExpr(
        "'' AS run", _packed(keys[0], "publication"), _packed(keys[1], "subscription")
    )
    at = "CAST(NULL AS BIGINT)" if t is None else read.time(t)
    arrived = deliveries.where(_all_known((*logged[0], *logged[1]))).selectExpr(
        "'' AS run",
        _packed(logged[0], "publication"),
        _packed(logged[1], "subscription"),
        f"{at} AS t",
        "CAST(NULL AS BIGINT) AS hops",
        "CAST(NULL AS BIGINT) AS node",
    )
    point_t = of_publications.t
    moment = ColumnReader(publications, "points").time(point_t) if point_t and t else "NULL"
    made = publications.selectExpr(
        "'' AS run",
        _packed(keys[0], "publication"),
        f"CAST({moment} AS BIGINT) AS t",
        "CAST(NULL AS BIGINT) AS node",
        "'' AS channel",
    )
    nobody = arrived.select("run", "subscription", "node").where("FALSE")
    nothing = made.selectExpr(
        "run", "'' AS fact", "publication AS about", "CAST(NULL AS DOUBLE) AS value"
    ).where("FALSE")
    pairs = delivery.pairs(found, made, nobody, arrived, nothing)
    totals = delivery.delivery_totals(pairs, made, nothing)
    shown = [
        *_unpacked(keys[0], "publication"),
        *_unpacked(keys[1], "subscription"),
        *("outcome", "duplicates", "latency_ms"),
    ]
    return Judgement(pairs.selectExpr(*shown), totals.select(*TOTALS))


def _check_keys(
    log: ColumnReader, what: str, logged: Sequence[str], side: ColumnReader, keys: Sequence[str]
) -> None:
    if len(logged) != len(keys):
        raise ColumnsError(f"{what}_keys must be {len(keys)} columns, as {', '.join(keys)} are")
    for theirs, ours in zip(logged, keys, strict=True):
        check_alike(f"deliveries.{theirs}", log.kind(theirs), ours, side.kind(ours))


def _packed(names: Sequence[str], name: str) -> str:
    fields = (f"{quote_name(each)} AS _{number}" for number, each in enumerate(names))
    return f"struct({', '.join(fields)}) AS {name}"


def _unpacked(names: Sequence[str], name: str) -> list[str]:
    return [f"{name}._{number} AS {quote_name(each)}" for number, each in enumerate(names)]


def _all_known(names: Sequence[str]) -> str:
    return " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in names)
