"""A counting index over predicates on attributes: (attribute, operator, constant).

Each predicate that a publication satisfies counts for its subscription; one is found when it has
been counted as often as it has predicates (Yan and Garcia-Molina, 1994). Satisfied comparisons with
`<` and `>` are one run of a sorted array, equalities one entry of a table. A subscription with
equalities is counted only where the rarest of them holds (as Fabret et al., SIGMOD 2001, cluster
theirs), and its channel is an equality like any other.

Most puts do not touch the index: what changed is `fresh` and always found. So the caller must
verify what was found. Nothing that wants the publication is missed.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nearcast.matching.matcher import Integers
from nearcast.model.subscription import SubscriptionId, Value

ValueType: TypeAlias = type  # str, bool, or float for all numbers
Key: TypeAlias = tuple[str, ValueType, Value]  # an attribute has this value
CHANNEL = ""  # no attribute has this name


def type_of_value(value: Value) -> ValueType:
    return type(value) if isinstance(value, str | bool) else float


class AttributeComparison(NamedTuple):
    """One predicate with a constant bound."""

    attribute: str
    operator: str  # one of < <= > >= == !=
    bound: Value

    @property
    def key(self) -> Key:
        return self.attribute, type_of_value(self.bound), self.bound


class SortedBounds(NamedTuple):
    """Comparisons of one attribute in the order of their bounds, and the slots that make them."""

    bounds: list[tuple[Any, int]]
    slots: Integers


class CountingBucket:
    """Subscriptions that are counted together."""

    def __init__(self, members: list[tuple[SubscriptionId, list[AttributeComparison]]]) -> None:
        self._ids = np.array([subscription for subscription, _ in members], np.int64)
        self._needed = np.array([len(tests) for _, tests in members], np.int64)
        above: dict[tuple[str, ValueType], list[tuple[Any, int, int]]] = {}
        below: dict[tuple[str, ValueType], list[tuple[Any, int, int]]] = {}
        equal: dict[Key, list[int]] = {}
        unequal: dict[Key, list[int]] = {}
        for slot, (_, tests) in enumerate(members):
            for test in tests:
                where = test.attribute, type_of_value(test.bound)
                match test.operator:
                    # Ties are in such order that what a value satisfies borders on (value, 0).
                    case ">=" | ">":
                        above.setdefault(where, []).append(
                            (test.bound, int(test.operator == ">"), slot)
                        )
                    case "<=" | "<":
                        below.setdefault(where, []).append(
                            (test.bound, int(test.operator == "<="), slot)
                        )
                    case "==":
                        equal.setdefault(test.key, []).append(slot)
                    case "!=":
                        unequal.setdefault(test.key, []).append(slot)
        self._above = {where: _sort_bounds(items) for where, items in above.items()}
        self._below = {where: _sort_bounds(items) for where, items in below.items()}
        self._equal = {key: np.array(slots) for key, slots in equal.items()}
        self._unequal = {key: np.array(slots) for key, slots in unequal.items()}
        self._differing: dict[tuple[str, ValueType], Integers] = {}
        for (attribute, kind, _), slots in self._unequal.items():
            others = self._differing.get((attribute, kind), slots[:0])
            self._differing[attribute, kind] = np.concatenate((others, slots))

    def find(self, attributes: Mapping[str, Value]) -> list[SubscriptionId]:
        """Count satisfied tests by slot; give the slots with all of theirs."""
        counts = np.zeros(len(self._ids), np.int64)
        for attribute, value in attributes.items():
            where = attribute, type_of_value(value)
            if (run := self._above.get(where)) is not None:
                end = bisect_right(run.bounds, (value, 0))
                counts += np.bincount(run.slots[:end], minlength=len(counts))
            if (run := self._below.get(where)) is not None:
                begin = bisect_right(run.bounds, (value, 0))
                counts += np.bincount(run.slots[begin:], minlength=len(counts))
            if (slots := self._equal.get((*where, value))) is not None:
                counts += np.bincount(slots, minlength=len(counts))
            if (slots := self._differing.get(where)) is not None:
                counts += np.bincount(slots, minlength=len(counts))
                same = self._unequal.get((*where, value), slots[:0])
                counts -= np.bincount(same, minlength=len(counts))
        found: list[int] = self._ids[counts == self._needed].tolist()
        return found


def _sort_bounds(items: list[tuple[Any, int, int]]) -> SortedBounds:
    items.sort()
    return SortedBounds(
        [(bound, tie) for bound, tie, _ in items], np.array([slot for *_, slot in items], np.int64)
    )


class AttributeIndex:
    """Finds the subscriptions all of whose comparisons a publication satisfies."""

    def __init__(self) -> None:
        self.clashes = 0  # publications with an attribute of another type than a predicate's
        self._tests: dict[SubscriptionId, list[AttributeComparison]] = {}
        self._fresh: dict[SubscriptionId, None] = {}
        self._void: dict[SubscriptionId, None] = {}  # whose entries in the index are out of date
        self._buckets: dict[Key, CountingBucket] = {}
        self._kinds: dict[str, dict[ValueType, None]] = {}

    def __len__(self) -> int:
        return len(self._tests)

    def put(
        self, subscription: SubscriptionId, channel: str, tests: Iterable[AttributeComparison]
    ) -> None:
        """Index the subscription by these tests, replacing earlier ones."""
        self._tests[subscription] = [AttributeComparison(CHANNEL, "==", channel), *tests]
        self._fresh[subscription] = self._void[subscription] = None

    def drop(self, subscription: SubscriptionId) -> None:
        if self._tests.pop(subscription, None) is not None:
            self._fresh.pop(subscription, None)
            self._void[subscription] = None

    def find(self, channel: str, attributes: Mapping[str, Value]) -> list[SubscriptionId]:
        """The subscriptions whose tests hold, and possibly others; in ascending order."""
        tolerable = 32 + 3 * len(self._tests) ** 0.5 if self._buckets else 0
        if len(self._void) > tolerable:
            self._build()
        for attribute, value in attributes.items():
            kinds = self._kinds.get(attribute, {})
            self.clashes += len(kinds) > (type_of_value(value) in kinds)
        values = {**attributes, CHANNEL: channel}
        found = list(self._fresh)
        for attribute, value in values.items():
            bucket = self._buckets.get((attribute, type_of_value(value), value))
            if bucket is not None:
                found += [s for s in bucket.find(values) if s not in self._void]
        return sorted(found)

    def _build(self) -> None:
        sizes = Counter(
            test.key for tests in self._tests.values() for test in tests if test.operator == "=="
        )
        members: dict[Key, list[tuple[SubscriptionId, list[AttributeComparison]]]] = {}
        self._kinds = {}
        for subscription, tests in self._tests.items():
            rarest = min(
                (test for test in tests if test.operator == "=="), key=lambda t: sizes[t.key]
            )
            rest = [test for test in tests if test is not rarest]
            members.setdefault(rarest.key, []).append((subscription, rest))
            for attribute, _, bound in tests:
                self._kinds.setdefault(attribute, {})[type_of_value(bound)] = None
        self._buckets = {key: CountingBucket(several) for key, several in members.items()}
        self._fresh.clear()
        self._void.clear()
