"""Each table of traffic against plain Python, over many little runs in one query."""

from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.pipeline.jobs import traffic
from nearcast.pipeline.jobs.delivery import first_moments
from support.dataframes import Row, assert_same, frame, over

SECOND = 1_000_000
KINDS = ("Notify", "Interest", "Ping")


def messages_of(chance: Random) -> list[Row]:
    begin = chance.choice([0, 1_700_000_000_000_123])
    rows = []
    for _ in range(chance.randrange(1, 25)):
        sent = begin + chance.choice([0, SECOND, SECOND - 1, chance.randrange(4 * SECOND)])
        lost = chance.random() < 0.2
        arrived = None if lost or chance.random() < 0.2 else sent + chance.randrange(2 * SECOND)
        row = {"t": sent, "node": chance.randrange(6), "to": chance.randrange(4, 9)}
        row |= {"kind": chance.choice(KINDS), "bytes": chance.choice([0, 7, chance.randrange(999)])}
        row |= {"publication": chance.choice([None, 3]), "arrived": arrived, "lost": lost}
        rows.append({**row, "copies": chance.choice([1, 1, 5])})
    return rows


def traces() -> dict[str, tuple[list[Row], list[Row]]]:
    """Messages and publications of each run."""
    chance, runs = Random(11), {}
    for i in range(40):
        messages = messages_of(chance)
        first = min(row["t"] for row in messages)
        made = [first + chance.randrange(-SECOND, SECOND) for _ in range(i % 3)]
        runs[f"run{i}"] = messages, [a_publication(max(t, 0)) for t in made]
    alone = {"t": 5, "node": 1, "to": 2, "kind": "Ping", "lost": True, "copies": 1}
    runs["empty"] = [{**alone, "bytes": 0, "publication": None, "arrived": None}], []
    # Sums of a very large run: what is added up here does not fit into 64 bits.
    huge = {"t": 0, "kind": "Notify", "publication": None, "arrived": None, "lost": False}
    runs["huge"] = (
        [
            {**huge, "node": n, "to": n + 1, "bytes": 10**17 + n, "copies": 10**12}
            for n in range(60)
        ],
        [],
    )
    return {
        run: tuple([{"run": run, **row} for row in rows] for rows in both)
        for run, both in runs.items()
    }


def a_publication(t: int) -> Row:
    row = {"t": t, "node": 0, "publication": t, "shape": "point", "channel": "", "bytes": 0}
    return row | dict.fromkeys(("x", "y", "z", "rx", "ry", "rz"), 0.0)


RUNS = traces()


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    return frame(spark, "messages", [row for both in RUNS.values() for row in both[0]])


@pytest.fixture(scope="module")
def publications(spark: SparkSession) -> DataFrame:
    return frame(spark, "publications", [row for both in RUNS.values() for row in both[1]])


def second(run: str, t: int) -> int:
    sent, made = RUNS[run]
    return (t - min(row["t"] for row in made or sent)) // SECOND


def ends(run: str) -> list[tuple[str, int, int, int, Row]]:
    """Direction, node, the other, second, message: for each message sent and received."""
    found = []
    for row in RUNS[run][0]:
        arrived = row["t"] if row["arrived"] is None else row["arrived"]
        found.append(("sent", row["node"], row["to"], second(run, row["t"]), row))
        if not row["lost"]:
            found.append(("received", row["to"], row["node"], second(run, arrived), row))
    return found


def loads(run: str, direction: str) -> dict[int, int]:
    """Bytes of each node that sent or received anything."""
    answer = {node: 0 for _, node, *_ in ends(run)}
    for way, node, _, _, row in ends(run):
        answer[node] += row["bytes"] * (way == direction)
    return answer


def peaks(run: str, direction: str) -> dict[int, int]:
    answer = {node: 0 for _, node, *_ in ends(run)}
    sums: Counter[tuple[int, int]] = Counter()
    for way, node, _, at, row in ends(run):
        sums[node, at] += row["bytes"] * (way == direction)
    for (node, _), total in sums.items():
        answer[node] = max(answer[node], total)
    return answer


def gini(values: list[int]) -> float | None:
    """Half the mean difference of any two, over the mean: the definition, not the short cut."""
    differences = sum(abs(a - b) for a in values for b in values)
    return over(differences, 2 * len(values) * sum(values))


def test_totals_are_those_of_plain_python(messages: DataFrame) -> None:
    wanted = []
    for run, (rows, _) in RUNS.items():
        carrying = [row for row in rows if row["publication"] is not None]
        other = [row for row in rows if row["publication"] is None]
        sent, received = (list(loads(run, way).values()) for way in ("sent", "received"))
        wanted.append(
            {
                "run": run,
                "messages": sum(row["copies"] for row in rows),
                "bytes": sum(row["bytes"] for row in rows),
                "lost": sum(row["copies"] for row in rows if row["lost"]),
                "publication_messages": sum(row["copies"] for row in carrying),
                "publication_bytes": sum(row["bytes"] for row in carrying),
                "subscription_messages": sum(row["copies"] for row in other),
                "subscription_bytes": sum(row["bytes"] for row in other),
                "gini_sent": gini(sent),
                "gini_received": gini(received),
                "max_over_mean_sent": over(max(sent) * len(sent), sum(sent)),
                "max_over_mean_received": over(max(received) * len(received), sum(received)),
            }
        )
    assert_same(traffic.traffic_totals(messages), wanted, ["run"])


def test_each_kind_has_its_share(messages: DataFrame) -> None:
    wanted = []
    for run, (rows, _) in RUNS.items():
        for kind in {row["kind"] for row in rows}:
            those = [row for row in rows if row["kind"] == kind]
            copies = sum(row["copies"] for row in those)
            carrying = sum(row["copies"] for row in those if row["publication"] is not None)
            wanted.append(
                {
                    "run": run,
                    "kind": kind,
                    "messages": copies,
                    "bytes": sum(row["bytes"] for row in those),
                    "lost": sum(row["copies"] for row in those if row["lost"]),
                    "carries": carrying / copies,
                }
            )
    assert_same(traffic.traffic_by_kind(messages), wanted, ["run", "kind"])


def test_seconds_are_those_of_sending(messages: DataFrame, publications: DataFrame) -> None:
    wanted = []
    for run, (rows, _) in RUNS.items():
        sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
        for row in rows:
            both = sums[second(run, row["t"]), row["kind"]]
            both[0] += row["copies"]
            both[1] += row["bytes"]
        for (at, kind), (copies, size) in sums.items():
            row = {"run": run, "second": at, "kind": kind}
            wanted.append({**row, "messages": copies, "bytes": size})
    assert min(row["second"] for row in wanted) < 0
    found = traffic.traffic_by_second(messages, first_moments(publications, messages))
    assert_same(found, wanted, ["run", "second", "kind"])


def test_each_node_has_its_load(messages: DataFrame, publications: DataFrame) -> None:
    wanted = []
    for run in RUNS:
        both = {way: (loads(run, way), peaks(run, way)) for way in ("sent", "received")}
        for node in both["sent"][0]:
            copies: Counter[str] = Counter()
            peers: dict[str, set[int]] = {"sent": set(), "received": set()}
            for way, mine, other, _, row in ends(run):
                if mine == node:
                    copies[way] += row["copies"]
                    peers[way].add(other)
            wanted.append(
                {
                    "run": run,
                    "node": node,
                    "sent_messages": copies["sent"],
                    "sent_bytes": both["sent"][0][node],
                    "received_messages": copies["received"],
                    "received_bytes": both["received"][0][node],
                    "fan_out": len(peers["sent"]),
                    "fan_in": len(peers["received"]),
                    "peak_sent_bytes_per_s": both["sent"][1][node],
                    "peak_received_bytes_per_s": both["received"][1][node],
                }
            )
    found = traffic.traffic_by_node(messages, first_moments(publications, messages))
    assert_same(found, wanted, ["run", "node"])


def test_quantiles_are_over_all_nodes(messages: DataFrame, publications: DataFrame) -> None:
    wanted = []
    for run in RUNS:
        seconds = [at for _, _, _, at, _ in ends(run)]
        long = max(seconds) - min(seconds) + 1
        for way in ("sent", "received"):
            means = [load / long for load in loads(run, way).values()]
            for measure, values in (("mean", means), ("peak", [*peaks(run, way).values()])):
                row = {"run": run, "direction": way, "measure": measure}
                for p, value in enumerate(np.percentile(values, range(101))):
                    wanted.append({**row, "quantile": p / 100, "bytes_per_s": float(value)})
    found = traffic.traffic_quantiles(messages, first_moments(publications, messages))
    assert_same(found, wanted, ["run", "direction", "measure", "quantile"])
