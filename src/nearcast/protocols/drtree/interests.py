"""What a node wants and has wanted lately.

A publication counts for whoever wanted it at its own moment, and it may arrive later. So a version
of a subscription is kept for a while after the next one, and boxes still cover it.
"""

from collections.abc import Iterable, Sequence

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription, SubscriptionId
from nearcast.protocols.drtree.boxes import box_of_subscription, evolves, joined
from nearcast.space.motion import Time
from nearcast.space.rtree import Bounds


class Interests:
    def __init__(self) -> None:
        # Each version with the moment it begins; None: the subscription has ended.
        self._versions: dict[SubscriptionId, list[tuple[Time, Subscription | None]]] = {}

    def put(self, subscription: Subscription, now: Time) -> None:
        self._versions.setdefault(subscription.id, []).append((now, subscription))

    def end(self, subscription: SubscriptionId, now: Time) -> None:
        self._versions[subscription].append((now, None))

    def end_all(self, now: Time) -> None:
        for subscription in self._versions:
            if self.current(subscription) is not None:
                self.end(subscription, now)

    def current(self, subscription: SubscriptionId) -> Subscription | None:
        versions = self._versions.get(subscription)
        return versions[-1][1] if versions else None

    def known(self, subscription: SubscriptionId) -> bool:
        return subscription in self._versions

    def wanting(
        self, subscriptions: Iterable[SubscriptionId], publication: Publication
    ) -> list[SubscriptionId]:
        return [s for s in subscriptions if self._wants(s, publication)]

    def _wants(self, subscription: SubscriptionId, publication: Publication) -> bool:
        for begin, version in reversed(self._versions[subscription]):
            if begin <= publication.t:
                return version is not None and wants(version, publication, publication.t)
        return False

    def forget(self, before: Time) -> None:
        """Versions that ended before that moment, and subscriptions of which nothing is left."""
        for subscription, versions in list(self._versions.items()):
            while len(versions) > 1 and versions[1][0] < before:
                versions.pop(0)
            if versions[0][1] is None and versions[0][0] < before:
                del self._versions[subscription]

    def box(
        self,
        subscriptions: Iterable[SubscriptionId],
        dimensions: Sequence[str],
        begin: Time,
        end: Time,
    ) -> Bounds | None:
        """Around all that they cover at any moment from `begin` to `end`."""
        boxes = []
        for subscription in subscriptions:
            versions = self._versions[subscription]
            ends = [start for start, _ in versions[1:]] + [end]
            for (start, version), until in zip(versions, ends, strict=True):
                if version is not None and until >= begin:
                    box = box_of_subscription(
                        version, dimensions, max(begin, start), max(until, start)
                    )
                    if box is not None:
                        boxes.append(box)
        return joined(boxes) if boxes else None

    def restless(self, subscriptions: Iterable[SubscriptionId]) -> bool:
        """Will their box change by itself?"""
        for subscription in subscriptions:
            versions = self._versions[subscription]
            _, last = versions[-1]
            if len(versions) > 1 or last is None or evolves(last):
                return True
        return False
