"""Counters and the latency histogram, as Prometheus reads them."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from nearcast.server import overview
from nearcast.server.metrics import BOUNDS, COUNTERS, LatencyHistogram, Metrics
from nearcast.server.prometheus import MetricsEncoder

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def encode(metrics: Metrics, accept: str = "") -> tuple[str, str]:
    gateway: Any = SimpleNamespace(metrics=metrics)
    with patch.object(overview, "gauges", lambda _: {"clients": ("Open.", 2)}):
        body, content_type = MetricsEncoder(gateway).encode(accept)
    return body.decode(), content_type


def test_a_percentile_is_the_bound_under_which_that_share_lies() -> None:
    latency = LatencyHistogram()
    latency.add(0.0004, 90)
    latency.add(0.015, 9)
    latency.add(9.0, 1)
    assert latency.percentile(0.5) == 0.0005
    assert latency.percentile(0.99) == 0.02
    assert latency.percentile(1.0) == BOUNDS[-1]
    assert LatencyHistogram().percentile(0.99) == 0.0


def test_every_counter_is_exposed_with_its_meaning() -> None:
    metrics = Metrics()
    metrics.deliveries = 7
    metrics.latency.add(0.003, 7)
    text, content_type = encode(metrics)
    assert content_type.startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["nearcast_deliveries_total", None] == 7
    assert samples["nearcast_clients", None] == 2
    assert samples["nearcast_delivery_seconds_bucket", "0.002"] == 0
    assert samples["nearcast_delivery_seconds_bucket", "0.005"] == 7
    assert samples["nearcast_delivery_seconds_bucket", "+Inf"] == 7
    assert samples["nearcast_delivery_seconds_count", None] == 7
    assert samples["nearcast_info", None] == 1
    assert samples["process_start_time_seconds", None] > 0
    for name, meaning in COUNTERS.items():
        assert families[f"nearcast_{name}"].documentation == meaning
        assert f"# HELP nearcast_{name}_total {meaning}" in text.splitlines()
    assert set(metrics.snapshot()) == set(COUNTERS)


def test_openmetrics_is_given_to_those_who_ask_for_it() -> None:
    text, content_type = encode(Metrics(), OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name for family in openmetrics.text_string_to_metric_families(text)}
    assert {"nearcast", "nearcast_delivery_seconds", "python_gc_collections"} <= families
    assert {f"nearcast_{name}" for name in COUNTERS} <= families


def test_no_name_is_exposed_twice() -> None:
    text, _ = encode(Metrics())
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"]
    assert len(lines) == len(set(lines))
