"""What a node counts while it serves: plain integers, read by `/metrics` and by the monitor."""

from bisect import bisect_left
from itertools import accumulate

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # seconds


class LatencyHistogram:
    """How long deliveries waited in the node: counts for each bucket of `BOUNDS`."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times

    def percentile(self, share: float) -> float:
        """The upper bound of the bucket in which this percentile lies."""
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
    "interests": "Subscriptions that were created, moved, tuned or ended.",
    "deliveries": "Publications delivered to a subscription.",
    "dropped": "Messages dropped because the client reads too slowly.",
    "cut": "Clients disconnected because they read too slowly.",
    "cut_refused": "Clients disconnected after too many refused requests.",
    "slowed": "Times that reading a client was paused because it sent too much.",
    "bytes_in": "Bytes of clients' frames.",
    "bytes_out": "Bytes written for clients.",
    "flushes": "Times that waiting publications were delivered.",
    "cut_short": "Flushes that left publications waiting, because there were too many.",
    "refused_address": "Connections refused because their address had too many.",
    "refused_full": "Clients refused because the node had as many as it serves.",
    "displaced": "Connections closed to make room, because they had not joined, or were idle.",
    "late": "HTTP connections closed because they sent or read too slowly.",
    "faults": "Requests and publications lost to an internal error, which is logged.",
    "busy": "Publications refused because too many of the same client were waiting.",
    "work": "Work of matching and delivering, in steps of about ten nanoseconds.",
    "unrecorded": "Rows of the trace that could not be written.",
}


class Metrics:
    """Counters since the start of the node."""

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
