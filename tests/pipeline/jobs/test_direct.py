"""Direct messages are judged on Spark as in plain Python."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from nearcast.pipeline.analyse import GROUPS, analyse
from nearcast.pipeline.spark.storage import open_traces, read_result
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder

Rows = list[dict[str, Any]]


def random_rows(seed: int) -> tuple[Rows, Rows, Rows]:
    """Messages, some recorded twice; deliveries that are missing, doubled or somebody else's; and
    notes of what was withheld."""
    rng = Random(seed)
    messages: Rows = []
    deliveries: Rows = []
    notes: Rows = []
    for number in range(60):
        row = {"t": rng.randrange(1000), "node": 1, "publication": number, "bytes": 3}
        for to in rng.sample(range(2, 6), rng.randint(0, 2)):
            messages += [{**row, "to": to}] * rng.choice((1, 1, 2))
        for node in rng.sample(range(2, 6), rng.randint(0, 3)):
            heard = {"t": 1000 + rng.randrange(9), "node": node, "publication": number}
            deliveries += [heard] * rng.choice((1, 1, 3))
        if rng.random() < 0.3:
            fact = rng.choice(("withheld", "joined"))
            note = {"t": 2000, "node": rng.randrange(2, 6), "fact": fact, "about": number}
            notes.append({**note, "value": None})
    return messages, deliveries, notes


def judged_plainly(messages: Rows, deliveries: Rows, notes: Rows) -> dict[str, int]:
    due = {(row["publication"], row["to"]) for row in messages}
    got = Counter((row["publication"], row["node"]) for row in deliveries)
    kept = {(row["about"], row["node"]) for row in notes if row["fact"] == "withheld"}
    return {
        "expected": len(due),
        "delivered": len(due & got.keys()),
        "missed": len(due - got.keys() - kept),
        "withheld": len((due - got.keys()) & kept),
        "spurious": sum(got.values()) - len(due & got.keys()),
    }


def write_rows(root: Path, messages: Rows, deliveries: Rows, notes: Rows) -> None:
    rows = {"direct_messages": messages, "direct_deliveries": deliveries, "notes": notes}
    tables = {name: pa.Table.from_pylist(rows[name], TABLES[name]) for name in rows}
    TraceFolder(root, b'{"schema":2}').write(tables)


def test_each_message_is_due_once_to_those_that_it_is_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    for seed in range(3):
        write_rows(tmp_path / "runs" / f"run-{seed}", *random_rows(seed))
    traces = open_traces([tmp_path / "runs" / f"run-{seed}" for seed in range(3)])
    analyse(spark, traces, tmp_path / "out", jobs=GROUPS["direct"])
    for seed, trace in enumerate(traces):
        (found,) = read_result(tmp_path / "out", "direct_totals", trace.run)
        plain = judged_plainly(*random_rows(seed))
        assert {name: found[name] for name in plain} == plain
        assert plain["missed"] > 0 and plain["withheld"] > 0 and plain["spurious"] > 0
        assert 0 <= found["delay_p50_ms"] <= found["delay_p99_ms"]
