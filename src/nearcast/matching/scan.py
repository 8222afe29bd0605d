"""Test every subscription against every publication. Slow, obvious, and therefore the oracle."""

import numpy as np

from nearcast.matching.matcher import Batch, Matches
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription, SubscriptionId
from nearcast.space.motion import Time


class ScanMatcher:
    """Asks `wants` of every subscription."""

    def __init__(self) -> None:
        self._subscriptions: dict[SubscriptionId, Subscription] = {}

    def put(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription

    def drop(self, subscription: SubscriptionId) -> None:
        self._subscriptions.pop(subscription, None)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        return sorted(s.id for s in self._subscriptions.values() if wants(s, publication, at))

    def match_many(self, publications: Batch) -> Matches:
        pairs = [
            (i, s) for i, p in enumerate(publications.publications) for s in self.match(p, p.t)
        ]
        columns = np.array(pairs, np.int64).reshape(-1, 2)
        return Matches(columns[:, 0], columns[:, 1])

    def due(self) -> Time | None:
        return None

    def refresh(self, now: Time) -> None:
        """Nothing becomes stale."""
