"""The present and recent subscriptions of a node, and which of its members stands for each.

A publication is matched with the version that was in force when it was made, and it may arrive
later. So a version is kept for a while after the next one, and boxes still cover it. A member is a
slot of its node. A subscription whose filter chooses between disjoint ranges has several rectangles
and may have several members. A rectangle that goes from one slot to another begins a new version,
and both members cover it until the tree knows of the second.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from nearcast.model.predicates import Predicate
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription, SubscriptionId, region_evolves
from nearcast.protocols.drtree.boxes import Box, box_of_subscription, ranges
from nearcast.space.boxes import BoxBounds, overlaps, union
from nearcast.space.motion import Time

Rectangle: TypeAlias = tuple[SubscriptionId, int]  # a subscription, and which of its ranges


class SlotVersion(NamedTuple):
    """From `begins` on, until the next version, the slot stands for this subscription, or for one
    of its ranges."""

    begins: Time
    wanted: Subscription | None  # None: the rectangle has ended
    slot: int
    chosen: tuple[Predicate, ...] = ()


class MemberInterests:
    """The versions of a node's subscriptions, each with the slot of its member."""

    def __init__(self) -> None:
        self._versions: dict[Rectangle, list[SlotVersion]] = {}

    def put(self, subscription: Subscription, dimensions: Sequence[str], now: Time) -> list[int]:
        """Begin it or change it: its rectangles keep their slots, and new ones get the first.
        Returns the slots that cover it from now on, or have covered it."""
        slots = self.present()
        chosen = ranges(subscription, dimensions)
        rectangles = [(subscription.id, k) for k in range(len(chosen))]
        for rectangle, one in zip(rectangles, chosen, strict=True):
            self._begin(rectangle, SlotVersion(now, subscription, slots.get(rectangle, 0), one))
        ended = [r for r in slots if r[0] == subscription.id and r not in rectangles]
        for rectangle in ended:
            self._end(rectangle, now)
        return [slots.get(rectangle, 0) for rectangle in (*rectangles, *ended)]

    def give(self, rectangle: Rectangle, slot: int, now: Time) -> None:
        """Let another slot cover it from now on."""
        self._begin(rectangle, self._versions[rectangle][-1]._replace(begins=now, slot=slot))

    def _begin(self, rectangle: Rectangle, version: SlotVersion) -> None:
        versions = self._versions.setdefault(rectangle, [])
        if versions and versions[-1].begins == version.begins:
            versions.pop()  # it lasted for no time
        versions.append(version)

    def end(self, subscription: SubscriptionId, now: Time) -> list[int]:
        """Returns the slots that have covered it."""
        slots = {r: slot for r, slot in self.present().items() if r[0] == subscription}
        for rectangle in slots:
            self._end(rectangle, now)
        return list(slots.values())

    def _end(self, rectangle: Rectangle, now: Time) -> None:
        self._versions[rectangle].append(SlotVersion(now, None, self._versions[rectangle][-1].slot))

    def end_all(self, now: Time) -> None:
        for rectangle in self.present():
            self._end(rectangle, now)

    def present(self) -> dict[Rectangle, int]:
        """Those that have not ended, each with its slot."""
        last = {rectangle: versions[-1] for rectangle, versions in self._versions.items()}
        return {r: version.slot for r, version in last.items() if version.wanted is not None}

    def slots(self) -> list[int]:
        """Slots that have an interest, or had one recently."""
        return list(dict.fromkeys(v.slot for versions in self._versions.values() for v in versions))

    def wanting(self, publication: Publication) -> list[SubscriptionId]:
        t = publication.t
        wanting: dict[SubscriptionId, None] = {}
        for rectangle, versions in self._versions.items():
            for version in reversed(versions):
                if version.begins <= t:
                    wanted = version.wanted
                    if wanted is not None and wants(wanted, publication, t):
                        wanting[rectangle[0]] = None
                    break
        return list(wanting)

    def forget(self, before: Time) -> None:
        """Versions that ended before that moment, and rectangles of which nothing is left."""
        for rectangle, versions in list(self._versions.items()):
            while len(versions) > 1 and versions[1].begins < before:
                versions.pop(0)
            if versions[0].wanted is None and versions[0].begins < before:
                del self._versions[rectangle]

    def box(self, slot: int, dimensions: Sequence[str], begin: Time, end: Time) -> BoxBounds | None:
        """Around all that a slot covers at any moment from `begin` to `end`."""
        boxes = []
        for versions in self._versions.values():
            ends = [version.begins for version in versions[1:]] + [end]
            for (begins, wanted, of, chosen), until in zip(versions, ends, strict=True):
                if wanted is not None and of == slot and until >= begin:
                    box = box_of_subscription(
                        wanted, dimensions, max(begin, begins), max(until, begins), chosen
                    )
                    if box is not None:
                        boxes.append(box)
        return union(boxes) if boxes else None

    def areas(
        self, dimensions: Sequence[str], begin: Time, end: Time
    ) -> dict[Rectangle, BoxBounds]:
        """The box of each that is wanted now, without its past; what is nowhere has none."""
        found = {}
        for rectangle in self.present():
            _, wanted, _, chosen = self._versions[rectangle][-1]
            assert wanted is not None
            box = box_of_subscription(wanted, dimensions, begin, end, chosen)
            if box is not None:
                found[rectangle] = box
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


def group_touching(areas: Mapping[Rectangle, Box]) -> list[list[Rectangle]]:
    """Areas that touch, directly or through others, are one: only disjoint ranges are worth a
    rectangle each ([DRtree] III).
    """
    groups: list[list[Rectangle]] = []
    for rectangle, box in areas.items():
        near = [group for group in groups if any(overlaps(areas[other], box) for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*(other for group in near for other in group), rectangle])
    return groups
