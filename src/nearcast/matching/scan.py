"""Test every subscription against every publication. Slow, obvious, and therefore the oracle."""

from nearcast.matching.matcher import Matcher
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription, SubscriptionId
from nearcast.space.motion import Time


class ScanMatcher(Matcher):
    """Asks `wants` of every subscription."""

    def __init__(self) -> None:
        self._subscriptions: dict[SubscriptionId, Subscription] = {}

    def put(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription

    def drop(self, subscription: SubscriptionId) -> None:
        self._subscriptions.pop(subscription, None)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        return sorted(s.id for s in self._subscriptions.values() if wants(s, publication, at))
