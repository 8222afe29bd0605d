"""PES, periodic evolving subscriptions ([Evolving] 4.1).

A standard engine holds one frozen version of each subscription. A queue, ordered by the time of the
next evolution, says when a version is replaced by the one for that moment. Matching is unchanged;
an answer is as stale as the version that gave it, one interval at most.
"""

from heapq import heappop, heappush

from nearcast.matching.evolving_parts import has_fault
from nearcast.matching.matcher import Batch, Matches
from nearcast.matching.swept import SweptMatcher
from nearcast.model.freezing import freeze
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Subscription,
    SubscriptionId,
    evolves,
    stops_evolving_at,
)
from nearcast.space.motion import SECOND, Time


class PeriodicMatcher:
    """PES: every evolving subscription is frozen anew each interval."""

    def __init__(self, interval_us: Time = SECOND) -> None:
        _check_interval(interval_us)
        self.evaluations = 0
        self._interval = interval_us
        self._standard = SweptMatcher()
        self._faults = 0
        self._now: Time = 0  # the latest moment seen
        self._evolving: dict[SubscriptionId, Subscription] = {}
        self._intervals: dict[SubscriptionId, Time] = {}
        self._scheduled: dict[SubscriptionId, Time] = {}  # SCHEDT
        self._queue: list[tuple[Time, SubscriptionId]] = []  # ESQ; outdated entries are skipped

    @property
    def faults(self) -> int:
        return self._faults + self._standard.faults

    def put(self, subscription: Subscription, interval_us: Time | None = None) -> None:
        self.drop(subscription.id)
        if not evolves(subscription):
            self._standard.put(subscription)
            return
        interval = self._interval if interval_us is None else interval_us
        _check_interval(interval)
        self._evolving[subscription.id] = subscription
        self._intervals[subscription.id] = interval
        submitted = subscription.region.since  # SUBT(S) = T
        # "The broker creates an initial version of the subscription (with t = 0)", unless it came
        # late: then as it is by now, for it would be stale already.
        moment = max(submitted, self._now)
        self._evolve(subscription.id, moment)
        self._schedule(subscription.id, submitted + interval, moment)  # SCHEDT(S) = T + EI

    def drop(self, subscription: SubscriptionId) -> None:
        self._standard.drop(subscription)
        if self._evolving.pop(subscription, None) is not None:
            del self._intervals[subscription]
            self._scheduled.pop(subscription, None)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        self._now = max(self._now, at)
        return self._standard.match(publication, at)

    def match_many(self, publications: Batch) -> Matches:
        if len(publications):
            self._now = max(self._now, int(publications.t.max()))
        return self._standard.match_many(publications)

    def due(self) -> Time | None:
        while self._queue:
            due, subscription = self._queue[0]
            if self._scheduled.get(subscription) == due:
                return due
            heappop(self._queue)
        return None

    def refresh(self, now: Time) -> None:
        """Replace every version that is due."""
        self._now = max(self._now, now)
        while (due := self.due()) is not None and due <= now:
            _, subscription = heappop(self._queue)
            self._evolve(subscription, now)
            self._schedule(subscription, due + self._intervals[subscription], now)

    def _evolve(self, subscription: SubscriptionId, now: Time) -> None:
        """Replace the version in the standard engine by the one for now."""
        self.evaluations += 1
        evolving = self._evolving[subscription]
        still = freeze(evolving, now)
        if still is None:
            self._faults += has_fault(evolving, now)
            self._standard.drop(subscription)
        else:
            self._standard.put(still)

    def _schedule(self, subscription: SubscriptionId, due: Time, now: Time) -> None:
        """Schedule the next evolution after now, unless the subscription no longer changes."""
        self._scheduled.pop(subscription, None)
        if stops_evolving_at(self._evolving[subscription]) > now:
            interval = self._intervals[subscription]
            missed = max(0, (now - due) // interval + 1)
            self._scheduled[subscription] = due + missed * interval
            heappush(self._queue, (due + missed * interval, subscription))


def _check_interval(interval: Time) -> None:
    if interval < 1:
        raise ValueError(f"subscriptions cannot evolve every {interval} microseconds")
