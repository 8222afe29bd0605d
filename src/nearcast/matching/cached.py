"""CLEES, lazy evaluation with a cache ([Evolving] 4.3).

As LEES, but what was evaluated for one publication serves the next ones too, until it expires: "if
Exp(S) is equal or bigger than the current global time T, then the cached version is still valid";
a new one expires at T + TT. So an answer is at most one threshold TT stale. Publications may arrive
out of order: a version also serves moments up to TT before it was made, and none earlier.
"""

import numpy as np

from nearcast.columns import grow
from nearcast.matching import grid_build
from nearcast.matching.evolving_parts import Snapshot, snapshot, snapshot_wants, split_evolving
from nearcast.matching.indexed_engine import RowSelection
from nearcast.matching.lazy import LazyMatcher, RowScan
from nearcast.matching.matcher import Batch, Matches, match_each
from nearcast.matching.rows import ROW
from nearcast.model.publication import Publication
from nearcast.model.subscription import Formula, Subscription, SubscriptionId
from nearcast.space.motion import FOREVER, SECOND, Time

NEVER: Time = -FOREVER


class CachedRowScan(RowScan):
    """Tests every row for every publication, as it was when it was last evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self._versions = np.zeros(0, ROW)
        self._made = np.zeros(0, np.int64)
        self._limit = np.zeros(0, np.int64)

    def remember(self, subscription: Subscription, threshold: Time) -> None:
        self.put(subscription)
        size = len(self._rows.array)
        self._versions = grow(self._versions, size)
        self._made, self._limit = grow(self._made, size), grow(self._limit, size)
        for place in self._places[subscription.id]:
            # The place may hold an old version on another channel.
            self._versions[place]["flags"] = 0
            self._made[place], self._limit[place] = NEVER, threshold

    def renew(self, channel: str, at: Time) -> None:
        self.evaluations += grid_build.refresh_versions(
            self._rows.array, self._rows.used, self._versions, self._made, self._limit,
            self._rows.channels.get(channel, -1), at,
        )  # fmt: skip

    def _select_rows(self, count: int, lo: Time, hi: Time, reach: float) -> RowSelection:
        selected = super()._select_rows(count, lo, hi, reach)
        return selected._replace(rows=self._versions[: self._rows.used])


class CachedMatcher(LazyMatcher):
    """CLEES: as `LazyMatcher`, but a value serves for up to `threshold_us`."""

    def __init__(self, threshold_us: Time = SECOND // 10) -> None:
        super().__init__()
        _check_threshold(threshold_us)
        self._threshold = threshold_us
        self._regions: CachedRowScan = CachedRowScan()
        self._snapshots: dict[SubscriptionId, Snapshot] = {}
        self._thresholds: dict[SubscriptionId, Time] = {}

    def put(self, subscription: Subscription, threshold_us: Time | None = None) -> None:
        self.drop(subscription.id)
        threshold = self._threshold if threshold_us is None else threshold_us
        _check_threshold(threshold)
        still, evolving = split_evolving(subscription)
        if still is not None:
            self._standard.put(still)
        if evolving is None:
            return
        self._both[subscription.id] = still is not None
        if evolving.filter is None and not isinstance(evolving.region, Formula):
            self._regions.remember(evolving, threshold)
        else:  # what has a formula, or a filter that evolves
            self._thresholds[subscription.id] = threshold
            self._table.put(evolving)

    def drop(self, subscription: SubscriptionId) -> None:
        super().drop(subscription)
        self._thresholds.pop(subscription, None)
        self._snapshots.pop(subscription, None)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        self._regions.renew(publication.channel, at)
        return super().match(publication, at)

    def match_many(self, publications: Batch) -> Matches:
        """In order: a publication may use what an earlier one has evaluated."""
        return match_each(publications, self.match)

    def _check(self, half: Subscription, publication: Publication, at: Time) -> bool | None:
        picture, threshold = self._snapshots.get(half.id), self._thresholds[half.id]
        if picture is None or abs(at - picture.made) > threshold:
            self._evaluations += 1
            picture = self._snapshots[half.id] = snapshot(half, at)
        return snapshot_wants(half, picture, publication)


def _check_threshold(threshold: Time) -> None:
    if threshold < 0:
        raise ValueError(f"a version cannot serve for {threshold} microseconds")
