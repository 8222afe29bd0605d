"""A token bucket: how many requests a client may make."""


class TokenBucket:
    """So many requests a second; saved up for at most two. Time is looked at only when empty."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate, self._filled = rate, now
        self._left = 2.0 * rate

    def take(self) -> bool:
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def take_many(self, most: int) -> int:
        """Takes as many as there are, at most so many."""
        taken = min(most, max(int(self._left), 0))
        self._left -= taken
        return taken

    def charge(self, cost: int) -> None:
        """Take that much more, into debt if need be: of at most two seconds. Below 0: give back."""
        self._left = max(self._left - cost, -2.0 * self.rate)

    def fill(self, now: float) -> bool:
        """After `take` failed: is there one after all?"""
        gained = (now - self._filled) * self.rate
        self._left, self._filled = min(self._left + gained, 2.0 * self.rate), now
        return self.take()
