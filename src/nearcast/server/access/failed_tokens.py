"""Wrong tokens are answered after a pause that grows, so that guessing them is slow.

Pauses are counted by remote address. Only wrong tokens wait: whoever has a good one is let in at
once, however much others behind the same address have guessed.
"""

from math import floor, log2

from nearcast.server.http.addresses import network_of

FIRST_S, LONGEST_S = 0.25, 5.0  # the pause doubles from one wrong token to the next
FORGET_S = 300.0  # after so long without a wrong token an address begins anew
MOST = 10_000  # addresses that are remembered; the one that was quiet for longest goes first
DOUBLINGS = floor(log2(LONGEST_S / FIRST_S)) + 1


class FailedTokens:
    """How often each address has given a wrong token lately."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}  # times, and the last one; oldest first

    def __len__(self) -> int:
        return len(self._failures)

    def failed(self, remote: str, now: float) -> float:
        """A wrong token came from there: so many seconds to wait before answering."""
        address = network_of(remote)
        times, last = self._failures.pop(address, (0, now))
        times = 0 if now - last > FORGET_S else times
        self._failures[address] = times + 1, now
        if len(self._failures) > MOST:
            del self._failures[next(iter(self._failures))]
        return min(FIRST_S * 2.0 ** min(times, DOUBLINGS), LONGEST_S)
