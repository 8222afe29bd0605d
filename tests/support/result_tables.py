"""Small result tables, known to the last digit, as `analyse` would write them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Columns = dict[str, Any]  # lists or Arrow arrays
SECONDS = [0, 1, 2]


def write(results: Path, name: str, run: str, columns: Columns) -> None:
    folder = results / name / f"run={run}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "part-00000.parquet")


def write_all(results: Path, run: str, missed: int = 1234) -> None:
    for name, columns in tables(missed).items():
        write(results, name, run, columns)


def tables(missed: int) -> dict[str, Columns]:
    """Three seconds of four entities and a server, node 100; most was heard that should be."""
    return delivery(missed) | fences() | traffic() | awareness() | overlay() | world()


def fences() -> dict[str, Columns]:
    return {
        "fence_totals": {
            "kind": ["enter", "leave"], "expected": [1001, 1000], "told": [1000, 1000],
            "missed": [1, 0], "spurious": [0, 2], "unsettled": [0, 3],
            "late_p50_ms": [480.0, 510.0], "late_p99_ms": [990.0, 1005.0],
            "late_max_ms": [1100.0, 1200.0], "delay_p50_ms": [0.0, 45.0],
            "delay_p99_ms": [95.0, 99.0], "delay_max_ms": [100.0, 101.0],
        },
        "fence_lateness": {
            "quantile": [0.0, 0.5, 1.0], "late_ms": [0.0, 490.0, 1200.0],
            "delay_ms": [0.0, 20.0, 101.0],
        },
        "fence_examples": {
            "outcome": ["missed", "spurious", "spurious"], "kind": ["enter", "leave", "leave"],
            "node": [1, 1, 2], "subscription": [8, 8, 9], "fence": [None, None, '"north"'],
            "entity": [3, 3, 4], "reason": [None, "left", "gone"],
            "event_t": [5_000, 2_006_000, 7], "out_t": pa.nulls(3, pa.int64()),
            "decided": [6_000, None, None], "told": [None, 2_100_000, 8],
        },
    }  # fmt: skip


def delivery(missed: int) -> dict[str, Columns]:
    correct = 123_456
    expected = correct + missed
    return {
        "delivery_totals": {
            "expected": [expected], "delivered": [correct + 75], "correct": [correct],
            "missed": [missed], "spurious": [56], "duplicates": [19],
            "precision": [correct / (correct + 56)], "recall": [correct / expected],
            "latency_mean_ms": [61.5], "latency_p50_ms": [57.25], "latency_p90_ms": [80.0],
            "latency_p99_ms": [99.125], "latency_max_ms": [1250.0], "hops_mean": [2.0],
            "order_violations": [7], "withheld": [3],
        },
        "delivery_by_second": {
            "second": [None, *SECONDS], "publications": [0, 10, 20, 10],
            "expected": [0, 50, 100, 50],
            "correct": [0, 49, 98, 50], "missed": [0, 1, 2, 0], "spurious": [1, 0, 2, 0],
            "duplicates": [0, 0, 0, 0], "recall": [None, 0.98, 0.98, 1.0],
            "precision": [0.0, 1.0, 0.98, 1.0], "latency_p50_ms": [None, 57.0, 57.5, 57.0],
            "latency_p99_ms": [None, 99.0, 99.5, 98.0],
        },
        "delivery_by_node": {
            "node": [1, 2, 3, 4], "expected": [40, 60, 50, 50], "correct": [39, 60, 48, 50],
            "missed": [1, 0, 2, 0], "spurious": [0, 0, 0, 0], "duplicates": [0, 0, 0, 0],
            "latency_mean_ms": [60.0, 62.0, 61.0, None],
        },
        "delivery_by_channel": {
            "channel": ["chat", "", None], "publications": [30, 10, 0], "expected": [150, 50, 0],
            "correct": [147, 50, 0], "missed": [3, 0, 0], "spurious": [2, 0, 1],
            "duplicates": [0, 0, 0], "latency_p50_ms": [57.0, 58.0, None],
        },
        "latency_quantiles": {
            "quantile": [0.0, 0.5, 1.0], "latency_ms": [50.0, 57.25, 1250.0], "hops": [2.0] * 3,
        },
        "popularity": {
            "interested": [0, 1, 3], "publications": [2, 20, 18], "complete": [2, 19, 16],
            "total_time_mean_ms": [None, 60.0, 70.0], "total_time_p90_ms": [None, 80.0, 95.0],
        },
        "false_positives_by_level": {
            "level": [None, 0.0, 1.0], "nodes": [1, 3, 1], "carried": [40, 100, 60],
            "unwanted": [40, 2, 30], "rate_mean": [1.0, 0.02, 0.5], "rate_std": [0.0, 0.01, 0.0],
        },
        "missed_places": {
            "publication": [5, 6], "subscription": [8, 9], "node": [1, 3], "t": [5_000, 2_006_000],
            "second": [0, 2], "x": [10.0, 90.0], "y": [10.0, 40.0], "z": [0.0, 0.0],
        },
        "miss_causes": {"cause": ["lost", "crashed"], "misses": [1, missed - 1]},
        "miss_stories": {
            "cause": ["crashed", "lost"], "publication": [5, 6], "subscription": [8, 9],
            "node": [1, 3], "t": [5_000, 2_006_000], "story": ["five\nand why", "six\nand why"],
        },
        "rejected": {
            "table": ["interests"], "file": ["interests/0.parquet"], "reason": ["negative radius"],
            "rows": [4242],
        },
    }  # fmt: skip


def traffic() -> dict[str, Columns]:
    quantiles: Columns = {"direction": [], "measure": [], "quantile": [], "bytes_per_s": []}
    for direction in ("sent", "received"):
        for measure in ("mean", "peak"):
            for quantile, rate in ((0.0, 0.0), (0.5, 120.0), (1.0, 90_000.0)):
                for name, value in zip(
                    quantiles, (direction, measure, quantile, rate), strict=True
                ):
                    quantiles[name].append(value)
    return {
        "traffic_totals": {
            "messages": [987_654], "bytes": [53_442_695], "lost": [321],
            "publication_messages": [900_000], "publication_bytes": [50_000_000],
            "subscription_messages": [87_654], "subscription_bytes": [3_442_695],
            "gini_sent": [0.75], "gini_received": [0.25],
            "max_over_mean_sent": [4.5], "max_over_mean_received": [2.5],
        },
        "traffic_by_kind": {
            "kind": ["Notify", "Post"], "messages": [900_000, 87_654],
            "bytes": [50_000_000, 3_442_695], "lost": [300, 21], "carries": [1.0, 0.0],
        },
        "traffic_by_second": {
            "second": [-1, 0, 0, 2], "kind": ["Post", "Notify", "Post", "Notify"],
            "messages": [1, 2, 3, 4], "bytes": [100, 2000, 300, 4000],
        },
        "traffic_by_node": {
            "node": [1, 2, 100], "sent_messages": [3, 4, 90], "sent_bytes": [300, 400, 9000],
            "received_messages": [40, 50, 7], "received_bytes": [4000, 5000, 700],
            "fan_out": [1, 1, 2], "fan_in": [1, 1, 2], "peak_sent_bytes_per_s": [200, 300, 8000],
            "peak_received_bytes_per_s": [3000, 4000, 600],
        },
        "traffic_quantiles": quantiles,
    }  # fmt: skip


def awareness() -> dict[str, Columns]:
    measures: Columns = {
        "known": [2.0, 3.0, 3.0], "should": [3.0] * 3, "true_positives": [8, 11, 12],
        "false_positives": [0, 1, 0], "false_negatives": [4, 1, 0], "true_negatives": [0, 0, 0],
        "precision": [1.0, 11 / 12, 1.0], "recall": [8 / 12, 11 / 12, 1.0],
        "accuracy": [8 / 12, 11 / 13, 1.0], "specificity": [None, 0.0, 0.5],
        "consistency": [8 / 12, 11 / 12, 1.0], "position_difference_mean": [None, 1.5, 2.0],
        "position_difference_p90": [None, 2.5, 3.0],
    }  # fmt: skip
    totals = {name: values[-1:] for name, values in measures.items()}
    return {
        "awareness_by_second": {"second": SECONDS, "nodes": [4] * 3, **measures},
        "awareness_by_node": {"node": [1, 2, 3], **measures},
        "awareness_totals": {"nodes": [4], **totals},
    }


def overlay() -> dict[str, Columns]:
    return {
        "overlay_by_second": {
            "second": [0, 2], "links": [3, 4], "nodes": [4, 5], "degree_mean": [1.5, 1.6],
            "degree_max": [3, 4], "clustering": [0.0, 0.25], "components": [1, 1],
            "height": [None, 2.0],
        },
        "overlay_links": {
            "node": [1, 100, 2, 3], "to": [100, 1, 100, 1], "messages": [10, 10, 5, 1],
            "bytes": [1000, 1500, 700, 50], "first_s": [-0.5, 0.1, 0.2, 1.5],
            "last_s": [2.5, 2.6, 0.9, 2.0],
        },
        "overlay_paths": {
            "hops": [1, 2], "deliveries": [50, 150], "stretch_mean": [1.0, 1.75],
        },
        "ownership": {
            "second": [0, 1], "owner": [1, 2], "subscriptions": [3, 4], "changes": [0, 2],
        },
    }  # fmt: skip


def world() -> dict[str, Columns]:
    cells = 5
    return {
        "world_density": {
            "second": [0, 0, 1, 1, 2], "cell_x": [0, 1, 1, 63, 63], "cell_y": [0, 0, 2, 63, 63],
            "entities": [2, 2, 1, 3, 4], "x_low": [0.0] * cells, "y_low": [0.0] * cells,
            "cell_width": [100 / 64] * cells, "cell_height": [50 / 64] * cells,
        },
        "world_movement": {
            "entities": [4], "speed_mean": [1.5], "speed_p50": [1.25], "speed_p90": [2.0],
            "speed_max": [2.5], "still_share": [0.125], "dwell_mean_s": [1.0],
            "dwell_p90_s": [2.0], "area_mean": [12.5], "neighbours_mean": [3.0],
            "neighbours_max": [3], "clustering": [1.0], "crowding": [0.5],
        },
        "world_positions": {
            "second": [0, 0, 0, 2], "node": [1, 2, 3, 1], "x": [0.0, 50.0, 100.0, 90.0],
            "y": [0.0, 50.0, 25.0, 40.0],
        },
    }  # fmt: skip


def scenario(**settings: Any) -> dict[str, Any]:
    """A scenario as `scenario.json` has it."""
    return {
        "protocol": "client-server", "workload": "clustering", "nodes": 4, "seconds": 3.0,
        "seed": 1, "record": "all", "schema": 1,
        "settings": {"matcher": "grid", "loss": 0.0, **settings},
    }  # fmt: skip
