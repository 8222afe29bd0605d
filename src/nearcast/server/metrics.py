"""What a node counts while it serves: plain numbers, read by `/metrics` and by the monitor."""

from bisect import bisect_left
from itertools import accumulate

from nearcast.client_protocol import messages

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # seconds


class LatencyHistogram:
    """How long deliveries waited in the node: how many were at most so many seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times

    def percentile(self, share: float) -> float:
        """An upper bound of it: the bound of the bucket in which it lies."""
        sums = list(accumulate(self.counts))
        place = bisect_left(sums, share * sums[-1])
        return BOUNDS[min(place, len(BOUNDS) - 1)] if sums[-1] else 0.0


# Each is an attribute of `Metrics` that begins at 0.
COUNTERS = {
    "connections": "Connections that clients opened.",
    "requests": "Requests that were read.",
    "refused": "Requests that were refused.",
    "tokens_refused": "Tokens that were refused.",
    "publications": "Publications that were accepted.",
    "interests": "Subscriptions that were begun, moved, tuned or ended.",
    "deliveries": "Publications handed to a subscription.",
    "dropped": "Messages given up because their reader was too slow.",
    "cut": "Clients let go because they read too slowly.",
    "cut_refused": "Clients let go because too many of their requests were refused.",
    "slowed": "Times that reading a client was paused because it sent too much.",
    "bytes_in": "Bytes of clients' frames.",
    "bytes_out": "Bytes written for clients.",
    "flushes": "Times that waiting publications were delivered.",
    "cut_short": "Of these: left something waiting, because there was too much for one of them.",
    "refused_address": "Connections refused because their address had too many.",
    "refused_full": "Clients refused because the node had as many as it serves.",
    "displaced": "Connections closed to make room, because they had not joined, or were idle.",
    "late": "HTTP connections closed because they sent or read too slowly.",
    "faults": "Requests and publications lost to a mistake of the node, which its log tells.",
    "busy": "Publications refused because too many of the same client's waited.",
    "work": "Steps of about ten nanoseconds that matching and delivering took, as counted.",
    "unrecorded": "Rows of the trace that could not be kept.",
}


class Metrics:
    """Counters since the start. Whoever wants a rate asks twice."""

    def __init__(self) -> None:
        self.connections = self.requests = self.refused = self.publications = 0
        self.interests = self.deliveries = self.dropped = self.cut = 0
        self.tokens_refused = self.cut_refused = self.slowed = 0
        self.bytes_in = self.bytes_out = self.flushes = self.faults = self.unrecorded = 0
        self.refused_address = self.refused_full = self.displaced = self.late = 0
        self.cut_short = self.busy = self.work = 0
        self.latency = LatencyHistogram()

    def snapshot(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTERS}


def exposition(metrics: Metrics, gauges: dict[str, tuple[str, float]]) -> str:
    """Prometheus' text format: counters, gauges (name: meaning, value), and the histogram."""
    lines = []
    for name, meaning in COUNTERS.items():
        full = f"nearcast_{name}_total"
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} counter"]
        lines.append(f"{full} {getattr(metrics, name)}")
    for name, (meaning, value) in gauges.items():
        full = f"nearcast_{name}"
        lines += [f"# HELP {full} {meaning}", f"# TYPE {full} gauge", f"{full} {value:g}"]
    full = "nearcast_delivery_seconds"
    lines.append(f"# HELP {full} From reading a publication to writing it to its readers.")
    lines.append(f"# TYPE {full} histogram")
    sums = list(accumulate(metrics.latency.counts))
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), sums, strict=True):
        lines.append(f'{full}_bucket{{le="{bound}"}} {count}')
    lines += [f"{full}_sum {metrics.latency.total:.6f}", f"{full}_count {sums[-1]}"]
    lines += [
        "# HELP nearcast_info The wire protocol's version.",
        "# TYPE nearcast_info gauge",
        f'nearcast_info{{version="{messages.VERSION}"}} 1',
    ]
    return "\n".join(lines) + "\n"
