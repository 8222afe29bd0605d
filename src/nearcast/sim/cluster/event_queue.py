"""What happens next in simulated time."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from nearcast.space.motion import Time


class EventQueue:
    """Acts by the time at which they are due; at one moment, in the order of their planning."""

    def __init__(self, now: Time) -> None:
        self.now = now
        self._due: list[tuple[Time, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, t: Time, act: Callable[[], None]) -> None:
        assert t >= self.now, f"cannot plan for {t}: it is {self.now}"
        heappush(self._due, (t, next(self._order), act))

    def after(self, delay: Time, act: Callable[[], None]) -> None:
        heappush(self._due, (self.now + delay, next(self._order), act))

    def run(self, until: Time) -> None:
        """Do everything that is due up to and including `until`."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, act = heappop(due)
            act()
        self.now = max(self.now, until)
