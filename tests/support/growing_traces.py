"""A little world whose windows are known, and ways to let its trace grow as a recorder would."""

from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pyarrow as pa

from nearcast.storage import AnyPath, encode_parquet, write_whole
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TABLE_ORDER
from support.brute_force import expected
from support.small_traces import Rows, add_part, as_table, delivery, interest, message, publication

SECOND = 1_000_000
TABLES_IN_ORDER = (
    "interests",
    "publications",
    "notes",
    "messages",
    "deliveries",
)  # as they are flushed
COUNTS = (
    "publications", "expected", "delivered", "correct", "missed", "spurious", "duplicates",
    "messages", "bytes",
)  # fmt: skip
Windows = dict[float, dict[str, Any]]


def made_up(seed: int, seconds: int = 12) -> Rows:
    """Some deliveries are right, some doubled, late, missing or unwanted."""
    rng = Random(seed)
    rows: Rows = {name: [] for name in TABLES_IN_ORDER}
    for number in range(2 * seconds):
        for who in rng.sample(range(6), 3):
            t = number * SECOND // 2 + who
            place = {"x": rng.randrange(6) * 1.0, "y": 0.0, "z": 0.0}
            ended = rng.random() < 0.1
            rows["interests"].append(interest(t, who, node=who, **place, ended=ended))
    for number in range(8 * seconds):
        t = number * SECOND // 8 + rng.randrange(100, 1000)
        place = {"x": rng.randrange(6) * 1.0, "y": 0.0, "z": 0.0}
        rows["publications"].append(publication(t, number, node=9, **place))
    rows["messages"] = [
        message(row["t"], kind=rng.choice(["publish", "notice"]), copies=copies, bytes=60 * copies)
        for row in rows["publications"]
        for copies in [rng.choice([1, 5])]
    ]
    due = sorted(expected(*(table(rows, name) for name in ("interests", "publications"))))
    for number, subscription in [*due, *((rng.randrange(8 * seconds), 5) for _ in range(9))]:
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            wait = rng.choice([2_500, 50_000, 700_000, 700_000, 3 * SECOND])
            made = rows["publications"][number]["t"]
            rows["deliveries"].append(delivery(made + wait, number, subscription))
    for number, subscription in due[::3]:  # as its node asked for (or a slow client could not take)
        noted = {"node": 9, "fact": "withheld", "about": number}
        t, value = rows["publications"][number]["t"], float(subscription) if number % 4 else None
        rows["notes"].append({"t": t, **noted, "value": value})
    return rows


def table(rows: Rows, name: str) -> pa.Table:
    return as_table(name, rows[name]).cast(TABLES[name])


def windows_of(rows: Rows, window_s: float, late_s: float) -> Windows:
    """By plain Python: counts, the latency of first deliveries, and the kinds of messages."""
    found: Windows = defaultdict(
        lambda: {**dict.fromkeys(COUNTS, 0), "late": [], "kinds": Counter()}
    )

    def window(t: int) -> dict[str, Any]:
        return found[t // round(window_s * SECOND) * window_s]

    made = {row["publication"]: row["t"] for row in rows["publications"]}
    for t in made.values():
        window(t)["publications"] += 1
    waits = defaultdict(list)
    for row in rows["deliveries"]:
        wait = row["t"] - made[row["publication"]]
        if wait <= late_s * SECOND:
            waits[row["publication"], row["subscription"]].append(wait)
    due = expected(*(table(rows, name) for name in ("interests", "publications")))
    asked = {(row["about"], row["value"]) for row in rows["notes"]}  # by their only subscription
    for pair in (due - asked) | set(waits):
        one, arrived = window(made[pair[0]]), waits.get(pair, [])
        one["expected"] += pair in due
        one["missed"] += pair in due and not arrived
        one["spurious"] += pair not in due
        one["delivered"] += len(arrived)
        one["duplicates"] += max(len(arrived) - 1, 0)
        if pair in due and arrived:
            one["correct"] += 1
            one["late"].append(min(arrived) / 1000)
    for row in rows["messages"]:
        one = window(row["t"])
        one["messages"] += row["copies"]
        one["bytes"] += row["bytes"]
        one["kinds"][row["kind"]] += row["copies"]
    return dict(found)


def as_printed(one: dict[str, Any]) -> dict[str, Any]:
    """A true window as `analyse --follow --json` prints it, but for percentiles between ranks."""
    late = one["late"]
    return {
        **{name: one[name] for name in COUNTS},
        "mean": mean(late) if late else None,
        "max": max(late, default=None),
        "kinds": dict(one["kinds"]),
    }


def grow(trace: Path, rows: Rows, since_s: float, until_s: float) -> None:
    """One flush: what happened in this time, publications before their deliveries."""
    number = max(len(list((trace / name).glob("*.parquet"))) for name in TABLES_IN_ORDER)
    for name in TABLES_IN_ORDER:
        flushed = [row for row in rows[name] if since_s * SECOND <= row["t"] < until_s * SECOND]
        if flushed:
            add_part(trace, name, flushed, number)


def flush_rows(
    trace: AnyPath, rows: dict[str, list[dict[str, Any]]], since_s: int, until_s: int
) -> None:
    """One flush, as a recorder makes it."""
    for name in TABLE_ORDER:
        flushed = [row for row in rows.get(name, ()) if since_s * 1e6 <= row["t"] < until_s * 1e6]
        if flushed:
            part = trace / name / f"part-{since_s:05}.parquet"
            write_whole(part, encode_parquet(as_table(name, flushed)))
