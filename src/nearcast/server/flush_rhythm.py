"""How long a node waits after a flush: hardly, unless that would need too much of a core.

Each write costs a system call, however little is in it. A node that flushes at once delivers early
and writes often; one that gathers for some tens of milliseconds writes once to each client, needs
several times less CPU for a delivery, and has room for bursts. So a node flushes at once as long as
that takes at most a certain share of a core (`prompt`), and gathers beyond that. While it gathers
it does not see what flushing at once would take. It knows what a delivery has cost until then, and
returns when the deliveries are few enough for that.
"""

from time import thread_time

PAUSE = 0.25  # after a flush at once, in times of its duration: the loop reads meanwhile
GATHER_S = 0.001  # for the rest of a burst, of which a loop reads only some frames at a time
READ_S = 0.025  # from one reading of sockets to the next one, while a node gathers
BURST = 8  # publications
WINDOW_S = 0.5  # over which the use of a core is measured
RETURN = 0.85  # of `prompt`: below that a node flushes at once again


class FlushRhythm:
    """Knows which share of a core the thread has used lately, and for what."""

    def __init__(self, now: float, prompt: float, longest_s: float) -> None:
        self.prompt, self.longest_s = prompt, longest_s
        self.gathering = prompt == 0.0
        self._since, self._used = now, thread_time()
        self._flushing = 0.0  # CPU seconds in flushes since then
        self._deliveries = 0
        self._prompt_cost = 0.0  # CPU seconds of a delivery that was flushed at once
        self._burst = False

    @property
    def gather_s(self) -> float:
        """How long the first publication after a pause waits for others at least."""
        return GATHER_S if self._burst else 0.0

    @property
    def read_s(self) -> float:
        """How long after sockets have been read they may be read again."""
        return READ_S if self.gathering else 0.0

    def pause_s(self, now: float, took: float, publications: int, deliveries: int) -> float:
        """After a flush: how long it is until the next one may begin. `took`: its seconds."""
        self._burst = publications >= BURST
        self._flushing += took
        self._deliveries += deliveries
        if now - self._since >= WINDOW_S:
            self._choose(now)
        return self.longest_s if self.gathering else min(PAUSE * took, self.longest_s)

    def _choose(self, now: float) -> None:
        """Gather from now on, or not?"""
        elapsed, used = now - self._since, thread_time()
        load = (used - self._used) / elapsed
        cost = self._flushing / max(self._deliveries, 1)
        if self.gathering:
            more = max(self._prompt_cost - cost, 0.0) * self._deliveries / elapsed
            self.gathering = load + more >= RETURN * self.prompt
        else:
            self._prompt_cost = cost
            self.gathering = load > self.prompt
        self._since, self._used, self._flushing, self._deliveries = now, used, 0.0, 0
