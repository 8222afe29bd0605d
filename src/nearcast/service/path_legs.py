"""Which paths begin a further leg, and when: the trace has a row of its own for each leg."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from nearcast.model.subscription import Region, Subscription, SubscriptionId
from nearcast.space.motion import Path, Time


class PathLegs:
    """When the paths of subscriptions begin their next legs."""

    def __init__(self) -> None:
        # When the next leg begins; one per subscription.
        self._under_way: dict[SubscriptionId, tuple[Time, Subscription]] = {}
        self._due: list[tuple[Time, SubscriptionId]] = []

    def put(self, subscription: Subscription, t: Time) -> None:
        """From `t` on it is this one, of which all legs up to `t` have begun."""
        self.drop(subscription.id)
        begins = _next_leg(subscription.region, t)
        if begins is not None:
            self._under_way[subscription.id] = begins, subscription
            heappush(self._due, (begins, subscription.id))
        # Walks that were given up leave moments behind, which may lie far ahead.
        if len(self._due) > 64 + 4 * len(self._under_way):
            self._due = [(begins, number) for number, (begins, _) in self._under_way.items()]
            heapify(self._due)

    def drop(self, subscription: SubscriptionId) -> None:
        self._under_way.pop(subscription, None)

    def begun(self, t: Time) -> Iterator[tuple[Time, Subscription]]:
        """Legs that begin at or before `t` and were not told yet, in the order of their moments."""
        while self._due and self._due[0][0] <= t:
            begins, number = heappop(self._due)
            expected, subscription = self._under_way.get(number, (None, None))
            if expected == begins and subscription is not None:
                yield begins, subscription
                self.put(subscription, begins)


def _next_leg(region: Region, t: Time) -> Time | None:
    legs = region.legs if isinstance(region, Path) else ()
    return next((leg.since for leg in legs if leg.since > t), None)
