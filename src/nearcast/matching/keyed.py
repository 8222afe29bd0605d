"""The engine of live nodes: whatever clients ask for, a publication costs a bounded time.

Subscriptions with a region go to the grid. One without a region is found in a hash table by one
equality of its filter, the rarest at the time; without an equality it goes to the grid as well,
which tests all of these. Compiled loops test the candidates, so the most that a subscription can
cost is known (`filters.count_steps`). `swept` finds fewer candidates by all predicates of a filter,
but its index costs more than that saves when clients often change their filters.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from nearcast.matching import grid_query
from nearcast.matching.attributes import ValueType, type_of_value
from nearcast.matching.grid import GridMatcher
from nearcast.matching.indexed_engine import IndexedEngine, concatenate_columns
from nearcast.matching.matcher import Batch, EvaluationCost, Integers, Matcher, Matches
from nearcast.matching.residual_check import check_subscription
from nearcast.matching.swept import is_bounded
from nearcast.model.publication import Publication
from nearcast.model.subscription import Formula, Subscription, SubscriptionId, Value
from nearcast.space.motion import Path, Time

Key: TypeAlias = tuple[str, str, ValueType, Value]  # channel, attribute, and what it is equal to
AT_ONCE = 2**18  # pairs that are tested at a time


class KeyedMatcher(Matcher):
    """A grid for regions and a hash table for equalities of filters."""

    def __init__(self) -> None:
        self._regions = GridMatcher()
        self._table = EqualityTable()

    @property
    def evaluations(self) -> int:
        return self._regions.evaluations + self._table.evaluations

    @property
    def faults(self) -> int:
        return self._regions.faults + self._table.faults

    def put(self, subscription: Subscription) -> None:
        self.drop(subscription.id)
        keys = list(_equality_keys(subscription))
        if keys:
            self._table.put(subscription, keys)
        else:
            self._regions.put(subscription)

    def drop(self, subscription: SubscriptionId) -> None:
        self._regions.drop(subscription)
        self._table.drop(subscription)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        found = self._regions.match(publication, at)
        return sorted([*found, *self._table.wanting(publication, at)])

    def match_many(self, publications: Batch) -> Matches:
        found = self._regions.match_many(publications)
        if not len(self._table) or not len(publications):
            return found
        others = self._table.judge(publications)
        cost = [one.cost for one in (found, others) if one.cost is not None]
        columns = [(one.publication, one.subscription, one.steps) for one in cost]
        return Matches(
            np.concatenate((found.publication, others.publication)),
            np.concatenate((found.subscription, others.subscription)),
            EvaluationCost(*concatenate_columns(columns)) if columns else None,
        )


class EqualityTable(IndexedEngine):
    """Subscriptions by one attribute that must have one value: a hash table of places of rows."""

    def __init__(self) -> None:
        super().__init__()
        self._members: dict[Key, dict[int, None]] = {}
        self._arrays: dict[Key, Integers] = {}  # the same as arrays, made when needed
        self._keys: dict[SubscriptionId, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, subscription: Subscription, keys: list[Key]) -> None:
        key = min(keys, key=lambda one: len(self._members.get(one, ())))
        (place,) = self._rows.add(subscription)
        self._subscriptions[subscription.id], self._places[subscription.id] = subscription, [place]
        self._keys[subscription.id] = key
        self._members.setdefault(key, {})[place] = None
        self._arrays.pop(key, None)

    def drop(self, subscription: SubscriptionId) -> None:
        key = self._keys.pop(subscription, None)
        if key is None:
            return
        del self._subscriptions[subscription]
        places = self._places.pop(subscription)
        del self._members[key][places[0]]
        if not self._members[key]:
            del self._members[key]
        self._arrays.pop(key, None)
        self._rows.remove(places)

    def wanting(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        wanting: list[SubscriptionId] = []
        for name, value in publication.attributes.items():
            key = publication.channel, name, type_of_value(value), value
            for place in self._members.get(key, ()):
                wanted = self._subscriptions[int(self._rows.array[place]["id"])]
                outcome = check_subscription(wanted, publication, at)
                if outcome:
                    wanting.append(wanted.id)
                elif outcome is None:
                    self.faults += 1
        return wanting

    def judge(self, publications: Batch) -> Matches:
        """The matches of these publications among the subscriptions of the table."""
        columns = self.columns(publications)
        rows = self._rows.array[: self._rows.used]
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        costs: list[tuple[Integers, Integers, Integers]] = []
        for which, places in self._candidates(publications):
            m = grid_query.keep_undecided(columns, rows, which, places)
            if m:
                which, places = which[:m], places[:m]
                costs.append(grid_query.count_pair_steps(columns[0], rows, which, places))
                found += self._settle(
                    columns, rows, publications.publications, publications.attributes,
                    publications.outlines, which, places,
                )  # fmt: skip
        publication, subscription = concatenate_columns(found)
        cost = EvaluationCost(*concatenate_columns(costs)) if costs else None
        return Matches(publication, subscription, cost)

    def _candidates(self, publications: Batch) -> Iterator[tuple[Any, Any]]:
        """Pairs of a publication and a place; the pairs of one publication are adjacent."""
        batch, channels = publications.attributes, publications.channel
        which: list[int] = []
        several: list[Integers] = []
        size = 0
        for i in range(len(publications)):
            attributes = batch[i] if batch is not None else publications.publications[i].attributes
            channel = channels[i] if channels is not None else ""
            for name, value in attributes.items():
                places = self._listed((channel, name, type_of_value(value), value))
                if places is not None:
                    which.append(i)
                    several.append(places)
                    size += len(places)
            if size > AT_ONCE or (size and i == len(publications) - 1):
                counts = [len(places) for places in several]
                yield np.repeat(np.array(which, np.int64), counts), np.concatenate(several)
                which, several, size = [], [], 0

    def _listed(self, key: Key) -> Integers | None:
        members = self._members.get(key)
        if members is None:
            return None
        if key not in self._arrays:
            self._arrays[key] = np.fromiter(members, np.int64, len(members))
        return self._arrays[key]


def _equality_keys(subscription: Subscription) -> Iterator[Key]:
    """The equalities of the filter of a subscription without a region, if it stands still."""
    region, condition = subscription.region, subscription.filter
    if condition is None or isinstance(region, Formula | Path) or is_bounded(region):
        return
    for predicate in condition.parsed.items:
        value = predicate.constant
        if predicate.operator == "==" and value is not None:
            yield subscription.channel, predicate.attribute, type_of_value(value), value
