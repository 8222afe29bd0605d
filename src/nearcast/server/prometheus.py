"""`/metrics`: a node's plain counters as Prometheus or OpenMetrics reads them.

Imported when `/metrics` is first asked for. Nothing is counted here: each scrape reads the integers
that the gateway keeps, so that serving clients costs nothing more.
"""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from nearcast.client_protocol import messages
from nearcast.server import overview
from nearcast.server.gateway import Gateway
from nearcast.server.metrics import BOUNDS, COUNTERS, LatencyHistogram


class GatewayCollector(Collector):
    """Reads the counters and gauges of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """One family for each counter and gauge, the latency histogram, and the version."""
        metrics = self._gateway.metrics
        for name, meaning in COUNTERS.items():
            yield CounterMetricFamily(f"nearcast_{name}", meaning, getattr(metrics, name))
        for name, (meaning, value) in overview.gauges(self._gateway).items():
            yield GaugeMetricFamily(f"nearcast_{name}", meaning, value)
        yield latency_family(metrics.latency)
        version = {"version": str(messages.VERSION)}
        yield InfoMetricFamily("nearcast", "The version of the client protocol.", version)


def latency_family(latency: LatencyHistogram) -> HistogramMetricFamily:
    """The histogram with cumulative buckets."""
    bounds = (*map(str, BOUNDS), "+Inf")
    buckets = list(zip(bounds, accumulate(latency.counts), strict=True))
    meaning = "From reading a publication to writing it to its subscribers."
    return HistogramMetricFamily("nearcast_delivery_seconds", meaning, buckets, latency.total)


class MetricsEncoder:
    """Encodes a gateway's metrics, and those of the process and its garbage collector."""

    def __init__(self, gateway: Gateway) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(GatewayCollector(gateway))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Body and content type, as the header `Accept` prefers: OpenMetrics, or the text format
        of Prometheus."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type
