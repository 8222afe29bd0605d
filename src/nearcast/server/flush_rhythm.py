"""How long a node waits after a flush: some times as long as the flush took.

Each write costs a system call, however little is in it. A node that flushes often delivers early
and writes often; one that gathers for some tens of milliseconds writes once to each client, and
needs a third of the CPU for a delivery. So flushes get a certain share of a core (`prompt`): one to
one, a publication is on its way at once, and the more there is to write, the more is gathered. The
time is that of the node's threads, so that a node does not gather because something else uses the
machine; other threads that write with the loop's count as well, so that they save no time of
gathering, which would cost CPU.
"""

LEAST = 0.25  # of a pause, in times of the flush: the loop does other work meanwhile


class FlushRhythm:
    """Decides when the next flush may begin."""

    def __init__(self, prompt: float, longest_s: float) -> None:
        self.prompt, self.longest_s = prompt, longest_s

    def pause_s(self, took: float, others: float = 0.0) -> float:
        """After a flush that took so many seconds, and other threads so many more of CPU: how long
        it is until the next one may begin."""
        from_start = self.longest_s
        if self.prompt > 0.0:
            from_start = min((took + others) / self.prompt, self.longest_s)
        return max(from_start - took, LEAST * took)
