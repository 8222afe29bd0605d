"""Which runs fit into the time that is left: by what smaller ones took, the cheapest first."""

from collections.abc import Callable, Iterable, Mapping
from math import inf, log

from msgspec import Struct

# Twice as many entities in the same space send twice as much, each to twice as many.
GROWTH = 2.0
LEAST_GROWTH, MOST_GROWTH = 1.0, 2.5
FIRST_MEASURE_S = 40.0  # reserved for the first analysis: Spark has to warm up
MOST_MEASURING = 0.4  # share of the time that is left which is reserved at most
REPORT_S = 5.0


class Budget:
    """Seconds that are left, by a clock that is given; some are reserved for measuring."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock, self._ends = clock, clock() + seconds
        self._measuring = FIRST_MEASURE_S

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends - self._clock())

    @property
    def for_runs_s(self) -> float:
        """What is left for simulations, if they are measured and reported afterwards."""
        left_s = self.left_s
        return max(0.0, left_s - min(self._measuring, left_s * MOST_MEASURING) - REPORT_S)

    def ends_at(self, share: float) -> float:
        """When a round of runs must end that may take this share of the time for runs."""
        return self._clock() + share * self.for_runs_s

    def measured_in(self, seconds: float) -> None:
        """The next analysis may take as long: it has fewer runs, but larger ones."""
        self._measuring = seconds


class Estimated(Struct, frozen=True):
    """A run that is wanted, and how many seconds it will take; None: nobody knows."""

    key: tuple[str, float]  # the candidate's name, and the crowd
    seconds: float | None


def estimate_s(took_s: Mapping[int, float], nodes: int, least_s: float = 0.0) -> float | None:
    """How long a run with so many nodes will take, by what others of the same kind took.

    All but the `least_s` that any run takes, and at least a quarter, grows with a power of the
    number, which two runs tell; with one, by the square.
    """
    if nodes in took_s:
        return took_s[nodes]
    known = sorted(took_s)
    if not known:
        return None
    power, last = GROWTH, known[-1]
    grows = {n: max(took_s[n] - least_s, took_s[n] / 4, 1e-3) for n in known}
    if len(known) > 1:
        ratio = log(grows[last] / grows[known[-2]]) / log(last / known[-2])
        power = min(MOST_GROWTH, max(LEAST_GROWTH, ratio))
    return float(least_s + grows[last] * (nodes / last) ** power)


def choose_runs(
    wanted: Iterable[Estimated], slots: int, seconds: float
) -> tuple[list[Estimated], list[Estimated]]:
    """Those that fit into so many seconds on so many cores, and the others; the cheapest first, and
    last those of which nothing is known."""
    chosen: list[Estimated] = []
    others: list[Estimated] = []
    total = 0.0
    for each in sorted(wanted, key=lambda one: inf if one.seconds is None else one.seconds):
        cost = each.seconds or 0.0
        if seconds > 0 and cost <= seconds and (total + cost) / slots <= seconds:
            chosen.append(each)
            total += cost
        else:
            others.append(each)
    return chosen, others
