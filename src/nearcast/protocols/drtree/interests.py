"""The present and recent subscriptions of a node, and which of its members stands for each.

A publication is matched with the version that was in force when it was made, and it may arrive
later. So a version is kept for a while after the next one, and boxes still cover it. A member is a
slot of its node. A subscription that goes from one slot to another begins a new version, and both
members cover it until the tree knows of the second.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription, SubscriptionId, region_evolves
from nearcast.protocols.drtree.boxes import Box, box_of_subscription
from nearcast.space.boxes import BoxBounds, overlaps, union
from nearcast.space.motion import Time


class SlotVersion(NamedTuple):
    """From `begins` on, until the next version, the slot stands for this subscription."""

    begins: Time
    wanted: Subscription | None  # None: the subscription has ended
    slot: int


class MemberInterests:
    """The versions of a node's subscriptions, each with the slot of its member."""

    def __init__(self) -> None:
        self._versions: dict[SubscriptionId, list[SlotVersion]] = {}

    def put(self, subscription: Subscription, slot: int, now: Time) -> None:
        versions = self._versions.setdefault(subscription.id, [])
        if versions and versions[-1].begins == now:
            versions.pop()  # it lasted for no time
        versions.append(SlotVersion(now, subscription, slot))

    def end(self, subscription: SubscriptionId, now: Time) -> None:
        versions = self._versions[subscription]
        versions.append(SlotVersion(now, None, versions[-1].slot))

    def end_all(self, now: Time) -> None:
        for subscription in self.present():
            self.end(subscription, now)

    def current(self, subscription: SubscriptionId) -> Subscription | None:
        versions = self._versions.get(subscription)
        return versions[-1].wanted if versions else None

    def present(self) -> dict[SubscriptionId, int]:
        """Those that have not ended, each with its slot."""
        last = {subscription: versions[-1] for subscription, versions in self._versions.items()}
        return {s: version.slot for s, version in last.items() if version.wanted is not None}

    def slots(self) -> list[int]:
        """Slots that have an interest, or had one recently."""
        return list(dict.fromkeys(v.slot for versions in self._versions.values() for v in versions))

    def wanting(self, publication: Publication) -> list[SubscriptionId]:
        return [s for s in self._versions if self._wants(s, publication)]

    def _wants(self, subscription: SubscriptionId, publication: Publication) -> bool:
        for begins, wanted, _ in reversed(self._versions[subscription]):
            if begins <= publication.t:
                return wanted is not None and wants(wanted, publication, publication.t)
        return False

    def forget(self, before: Time) -> None:
        """Versions that ended before that moment, and subscriptions of which nothing is left."""
        for subscription, versions in list(self._versions.items()):
            while len(versions) > 1 and versions[1].begins < before:
                versions.pop(0)
            if versions[0].wanted is None and versions[0].begins < before:
                del self._versions[subscription]

    def box(self, slot: int, dimensions: Sequence[str], begin: Time, end: Time) -> BoxBounds | None:
        """Around all that a slot covers at any moment from `begin` to `end`."""
        boxes = []
        for versions in self._versions.values():
            ends = [version.begins for version in versions[1:]] + [end]
            for (begins, wanted, of), until in zip(versions, ends, strict=True):
                if wanted is not None and of == slot and until >= begin:
                    box = box_of_subscription(
                        wanted, dimensions, max(begin, begins), max(until, begins)
                    )
                    if box is not None:
                        boxes.append(box)
        return union(boxes) if boxes else None

    def areas(
        self, dimensions: Sequence[str], begin: Time, end: Time
    ) -> dict[SubscriptionId, BoxBounds]:
        """The box of each that is wanted now, without its past; what is nowhere has none."""
        found = {}
        for subscription in self.present():
            wanted = self.current(subscription)
            assert wanted is not None
            box = box_of_subscription(wanted, dimensions, begin, end)
            if box is not None:
                found[subscription] = box
        return found

    def box_changes(self, slot: int) -> bool:
        """Will its box change by itself?"""
        for versions in self._versions.values():
            last = versions[-1].wanted
            if any(version.slot == slot for version in versions) and (
                len(versions) > 1
                or last is None
                or region_evolves(last.region)
                or (last.filter is not None and last.filter.parsed.evolves)
            ):
                return True
        return False


def group_touching(areas: Mapping[SubscriptionId, Box]) -> list[list[SubscriptionId]]:
    """Areas that touch, directly or through others, are one: only disjoint ranges are worth a
    rectangle each ([DRtree] III).
    """
    groups: list[list[SubscriptionId]] = []
    for subscription, box in areas.items():
        near = [group for group in groups if any(overlaps(areas[other], box) for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*(other for group in near for other in group), subscription])
    return groups
