"""How long a node waits after a flush: the longer, the more there is to do.

Each write costs a system call, however little is in it. A node that flushes often delivers early
and writes often; one that gathers for some tens of milliseconds writes once to each client, and
needs a third of the CPU for a delivery. One to one, a publication is on its way at once. Beyond,
two things make a node wait:

- what a flush takes: flushes get a certain share of a core (`prompt`). The time is that of the
  node's threads, so that a node does not gather because something else uses the machine; other
  threads that write with the loop's count as well, or they would only make flushes more frequent;
- how much is delivered: up to 100,000 deliveries a second cost little, however often they are
  written. Beyond, a node gathers for the longer the more there are, and for as long as it may at a
  third of the two million that a core can deliver, so that it has something left.
"""

from math import expm1

LEAST = 0.25  # of a pause, in times of the flush: the loop does other work meanwhile
OVER_S = 0.1  # over which the rate of deliveries is averaged: bursts of a game's ticks are shorter
FEW = 100_000  # deliveries a second; for each more, a flush counts as so much longer
PER_DELIVERY_S = 5e-8


class FlushRhythm:
    """Decides when the next flush may begin."""

    def __init__(self, prompt: float, longest_s: float) -> None:
        self.prompt, self.longest_s = prompt, longest_s
        self._rate = self._began = 0.0  # deliveries a second until the last flush, and its begin

    def pause_s(
        self, took: float, others: float = 0.0, deliveries: int = 0, began: float = 0.0
    ) -> float:
        """How long it is until the next flush may begin: after one that began at this time, and
        took the loop so many seconds, and other threads so many more of CPU."""
        since = max(began - self._began, 1e-6)
        self._rate -= expm1(-since / OVER_S) * (deliveries / since - self._rate)
        self._began = began
        from_start = self.longest_s
        if self.prompt > 0.0:
            counts = max(took + others, (self._rate - FEW) * PER_DELIVERY_S)
            from_start = min(counts / self.prompt, self.longest_s)
        return max(from_start - took, LEAST * took)
