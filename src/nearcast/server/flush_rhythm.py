"""How long a node waits after a flush: hardly, unless it is busy.

Frequent flushes cost system calls and save time. So a node that has time flushes often, and one
that uses half of a core makes long pauses, in which more is gathered for each write. It then needs
least CPU for what it delivers, and has room for bursts.
"""

from time import thread_time

# A pause, as a factor of the flush's duration: if the node uses less than IDLE of a core, and if it
# uses more than BUSY. Flushing takes a tenth of the time then.
IDLE_PAUSE, BUSY_PAUSE = 0.5, 10.0
IDLE, BUSY = 0.3, 0.5
LOAD_S = 0.5  # seconds over which the use of a core is averaged


def pause_at_load(load: float) -> float:
    """The factor at this use of a core."""
    share = min(max((load - IDLE) / (BUSY - IDLE), 0.0), 1.0)
    return IDLE_PAUSE + share * (BUSY_PAUSE - IDLE_PAUSE)


class FlushRhythm:
    """Knows which share of a core the thread has used lately."""

    def __init__(self, now: float) -> None:
        self._load = 0.0
        self._until, self._used = now, thread_time()

    def pause_factor(self, now: float) -> float:
        """After a flush: how long the pause is, in times of its duration."""
        elapsed, used = now - self._until, thread_time() - self._used
        if elapsed > 0.0:
            self._load += min(elapsed / LOAD_S, 1.0) * (used / elapsed - self._load)
            self._until, self._used = now, self._used + used
        return pause_at_load(self._load)
