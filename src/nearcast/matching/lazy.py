"""LEES, evolving subscriptions evaluated lazily ([Evolving] 4.2).

The predicates that do not depend on time are in a standard engine, those that do in a table (LEME).
For each publication, each entry of the table whose attributes the publication has is evaluated at
the moment of matching. A subscription with both kinds wants what both want: M1 ∩ M2; one with
nothing that is still counts as always in M1. Exact, and no work at all without publications.

Moving regions are rows, which the compiled loop of `grid_query` tests one by one.
"""

from collections.abc import Iterable

import numpy as np

from nearcast.matching import grid_build
from nearcast.matching.evolving_parts import split_evolving
from nearcast.matching.indexed_engine import IndexedEngine, RowSelection
from nearcast.matching.matcher import (
    Batch,
    Integers,
    Matcher,
    Matches,
    concatenate_matches,
    match_each,
)
from nearcast.matching.residual_check import check_subscription
from nearcast.matching.swept import SweptMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription, SubscriptionId
from nearcast.space.motion import Time


class RowScan(IndexedEngine):
    """Tests every row for every publication."""

    def __init__(self) -> None:
        super().__init__()
        self._nothing = grid_build.build(self._rows.array, 0, 0, 0, 0.0)
        self._all: Integers | None = None

    def put(self, subscription: Subscription) -> None:
        self.drop(subscription.id)
        self._subscriptions[subscription.id] = subscription
        self._places[subscription.id] = self._rows.add(subscription)
        self._all = None

    def drop(self, subscription: SubscriptionId) -> None:
        if self._subscriptions.pop(subscription, None) is not None:
            self._rows.remove(self._places.pop(subscription))
            self._all = None

    def _select_rows(self, count: int, lo: Time, hi: Time, reach: float) -> RowSelection:  # noqa: ARG002
        rows = self._rows.array[: self._rows.used]
        if self._all is None:
            self._all = np.flatnonzero(rows["flags"])
        return RowSelection(rows, self._nothing, self._all, np.empty(0, np.uint8))


class EvolvingTable:
    """LEME, for what no compiled loop can evaluate: the evolving parts by channel."""

    def __init__(self) -> None:
        self._halves: dict[str, dict[SubscriptionId, Subscription]] = {}
        self._channel: dict[SubscriptionId, str] = {}

    def put(self, half: Subscription) -> None:
        self.drop(half.id)
        self._channel[half.id] = half.channel
        self._halves.setdefault(half.channel, {})[half.id] = half

    def drop(self, subscription: SubscriptionId) -> None:
        channel = self._channel.pop(subscription, None)
        if channel is not None:
            del self._halves[channel][subscription]
            if not self._halves[channel]:
                del self._halves[channel]

    def __len__(self) -> int:
        return len(self._channel)

    def covered(self, publication: Publication) -> Iterable[Subscription]:
        """Those "whose attributes are covered by the publication"."""
        for half in self._halves.get(publication.channel, {}).values():
            items = half.filter.parsed.items if half.filter else ()
            if all(item.attribute in publication.attributes for item in items):
                yield half


def intersect_matches(
    still: list[SubscriptionId], evolving: list[SubscriptionId], both: dict[SubscriptionId, bool]
) -> list[SubscriptionId]:
    """M1 ∩ M2; `both` says of what evolves whether it has a still half too."""
    m1 = dict.fromkeys(still)
    whole = [s for s in still if s not in both]
    return sorted([*whole, *(s for s in evolving if not both[s] or s in m1)])


def intersect_match_columns(
    still: Matches, evolving: Matches, both: dict[SubscriptionId, bool]
) -> Matches:
    """`intersect_matches` for columns of pairs."""
    if not len(still.subscription) and not any(both.values()):
        return evolving
    ids = np.concatenate((still.subscription, evolving.subscription))
    known, rank = np.unique(ids, return_inverse=True)
    pairs = np.concatenate((still.publication, evolving.publication)) * len(known) + rank
    count = len(still.subscription)
    whole = np.array([s not in both for s in known.tolist()], bool)[rank]
    alone = np.array([not both.get(s, True) for s in known.tolist()], bool)[rank]
    kept = np.concatenate((whole[:count], alone[count:] | np.isin(pairs[count:], pairs[:count])))
    publications = np.concatenate((still.publication, evolving.publication))
    return Matches(publications[kept], ids[kept])


class LazyMatcher(Matcher):
    """LEES: evolving predicates are evaluated for each publication."""

    def __init__(self) -> None:
        self._standard = SweptMatcher()
        self._regions = RowScan()
        self._table = EvolvingTable()
        self._both: dict[SubscriptionId, bool] = {}  # of what evolves: has it a still half too?
        self._evaluations = 0
        self._faults = 0

    @property
    def evaluations(self) -> int:
        return self._evaluations + self._regions.evaluations

    @property
    def faults(self) -> int:
        return self._faults + self._regions.faults + self._standard.faults

    def put(self, subscription: Subscription) -> None:
        self.drop(subscription.id)
        still, evolving = split_evolving(subscription)
        if still is not None:
            self._standard.put(still)
        if evolving is not None:
            self._both[subscription.id] = still is not None
            (self._regions if evolving.filter is None else self._table).put(evolving)

    def drop(self, subscription: SubscriptionId) -> None:
        self._standard.drop(subscription)
        if self._both.pop(subscription, None) is not None:
            self._regions.drop(subscription)
            self._table.drop(subscription)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        still = self._standard.match(publication, at)
        evolving = [*self._regions.match(publication, at), *self._evaluated(publication, at)]
        return intersect_matches(still, evolving, self._both)

    def match_many(self, publications: Batch) -> Matches:
        still = self._standard.match_many(publications)
        moving = self._regions.match_many(publications)
        if not self._table:
            return intersect_match_columns(still, moving, self._both)
        evolving = concatenate_matches(moving, match_each(publications, self._evaluated))
        return intersect_match_columns(still, evolving, self._both)

    def _evaluated(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        matching = []
        for half in self._table.covered(publication):
            outcome = self._check(half, publication, at)
            if outcome:
                matching.append(half.id)
            elif outcome is None:
                self._faults += 1
        return matching

    def _check(self, half: Subscription, publication: Publication, at: Time) -> bool | None:
        self._evaluations += 1
        return check_subscription(half, publication, at)
