"""A hashed grid of several levels, compiled: batches in, columns out, subscriptions that move.

Most puts do not touch the index. A subscription that changed is `fresh`: it is asked one by one and
passed over in the index, until so many are fresh that building anew is cheaper. Regions that move
by themselves are indexed for a slice of time (see `kernels`); when a publication's moment lies
outside it, the index is built for a new slice.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from nearcast.matching import kernels
from nearcast.matching.matcher import Batch, Floats, Integers, Matches
from nearcast.matching.rows import FORMULA, Rows
from nearcast.model.publication import Publication
from nearcast.model.subscription import Formula, Subscription, SubscriptionId
from nearcast.space.motion import FOREVER, SECOND, Moving, Time

VALID, FRESH, GONE = 0, 1, 2  # of a place: what the index says is true, asked apart, or void


class Grid:
    def __init__(self) -> None:
        self._rows = Rows()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._places: dict[SubscriptionId, list[int]] = {}
        self._timed: dict[SubscriptionId, None] = {}  # regions whose place depends on the moment
        self._by_id: Integers | None = None  # places of the living in the order of their ids
        self._state = np.zeros(64, np.uint8)
        self._fresh: list[int] = []
        self._void = 0  # places whose entry in the index is no longer true
        self._index: Any = None
        self._slice: tuple[Time, Time] = (0, 0)
        self._reach = 0.0  # how far publications reach, typically
        self._built_for = 0.0
        self._answers = 0  # pairs found last time: as many will be found this time
        self._one = (*(np.zeros(1, np.int64) for _ in range(4)), np.zeros((2, 1, 3)))

    def put(self, subscription: Subscription) -> None:
        self.drop(subscription.id)
        self._subscriptions[subscription.id] = subscription
        places = self._places[subscription.id] = self._rows.add(subscription)
        self._by_id = None
        region = subscription.region
        if not isinstance(region, Moving) or region.moves:
            self._timed[subscription.id] = None
        if len(self._state) < len(self._rows.array):
            grown = np.zeros(len(self._rows.array), np.uint8)
            grown[: len(self._state)] = self._state
            self._state = grown
        for place in places:
            if self._state[place] != FRESH:
                self._state[place] = FRESH
                self._fresh.append(place)

    def drop(self, subscription: SubscriptionId) -> None:
        places = self._places.pop(subscription, None)
        if places is None:
            return
        del self._subscriptions[subscription]
        self._timed.pop(subscription, None)
        self._rows.remove(places)
        self._by_id = None
        for place in places:
            if self._state[place] == VALID:
                self._state[place] = GONE
        self._void += len(places)

    def move_many(self, subscriptions: Integers, centre: Floats, now: Time) -> None:
        """The batched door for a tick: each of these regions stands still here from `now` on.

        Means a put of each with its shape at the new centre. For regions that are a shape: a path
        or a formula has no single centre to move.
        """
        if self._by_id is None:
            alive = np.flatnonzero(self._rows.array["flags"][: self._rows.used])
            self._by_id = alive[np.argsort(self._rows.array["id"][alive], kind="stable")]
        ids = self._rows.array["id"][self._by_id]
        first = np.searchsorted(ids, subscriptions)
        single = np.searchsorted(ids, subscriptions, "right") - first == 1
        places = self._by_id[first[single]]
        if len(places) < len(subscriptions) or np.any(self._rows.array["flags"][places] & FORMULA):
            raise ValueError("only known subscriptions whose region is one shape can be moved so")
        kernels.move(self._rows.array, places, centre, now)
        for subscription in subscriptions.tolist() if self._timed else ():
            self._timed.pop(subscription, None)
        fresh = places[self._state[places] != FRESH]
        self._state[fresh] = FRESH
        self._fresh += fresh.tolist()

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        t, node, channel, kind, (centre, extent) = self._one
        s = publication.shape
        t[0], node[0], kind[0] = at, publication.node, s.kind
        channel[0] = self._rows.channels.get(publication.channel, -1)
        centre[0], extent[0] = (s.x, s.y, s.z), (s.rx, s.ry, s.rz)
        reach = max((r for r in (s.rx, s.ry, s.rz) if r < inf), default=0.0)
        columns = (t, node, channel, kind, centre, extent)
        matches = self._match(columns, [publication], at, at, reach)
        return sorted(matches.subscription.tolist())

    def match_many(self, publications: Batch) -> Matches:
        if not len(publications):
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
        codes = self._rows.channels
        if publications.channel is None:
            channel = np.full(len(publications), codes.get("", -1), np.int64)
        else:
            channel = np.array([codes.get(name, -1) for name in publications.channel], np.int64)
        columns = (
            publications.t, publications.node, channel, publications.kind,
            publications.centre, publications.extent,
        )  # fmt: skip
        lo, hi = int(publications.t.min()), int(publications.t.max())
        bounded = np.where(np.isfinite(publications.extent), publications.extent, 0.0)
        reach = float(bounded.max(axis=1).mean())
        return self._match(columns, publications.publications, lo, hi, reach)

    def due(self) -> Time | None:
        return None

    def refresh(self, now: Time) -> None:
        """The index renews itself when it is asked."""

    def _match(
        self, columns: Any, publications: Sequence[Publication], lo: Time, hi: Time, reach: float
    ) -> Matches:
        self._prepare(len(publications), lo, hi, reach)
        rows, used, index = self._rows.array, self._rows.used, self._index
        apart = index[3]
        skip = self._state[:0]
        if self._fresh or self._void:
            skip = self._state
            apart = np.concatenate((apart[skip[apart] == VALID], np.array(self._fresh, np.int64)))
        order = kernels.arrange(columns[4], index[0])
        capacity = 2 * used + max(min(2**18, 64 * len(columns[0])), self._answers)
        found: list[tuple[Integers, Integers]] = []
        done, total = 0, len(columns[0])
        while done < total:
            out = [np.empty(capacity, np.int64) for _ in range(4)]
            done, n, m = kernels.query(columns, order, done, rows[:used], index, apart, skip, *out)
            found.append((out[0][:n], out[1][:n]))
            if m:
                found.append(self._ask(columns[0], publications, out[2][:m], out[3][:m]))
        self._answers = sum(len(f[0]) for f in found)
        if len(found) == 1:
            return Matches(*found[0])
        return Matches(np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]))

    def _ask(
        self, at: Integers, publications: Sequence[Publication], which: Integers, places: Integers
    ) -> tuple[Integers, Integers]:
        """Let filters and formulas have the last word on pairs that the kernel could not settle."""
        pairs: list[tuple[int, int]] = []
        ids = self._rows.array["id"][places].tolist()
        for i, subscription_id in zip(which.tolist(), ids, strict=True):
            wanted, publication, moment = (
                self._subscriptions[subscription_id], publications[i], int(at[i]),
            )  # fmt: skip
            if isinstance(wanted.region, Formula) and not wanted.region.touches(
                publication.shape, moment
            ):
                continue
            if wanted.filter is None or wanted.filter.accepts(publication.attributes, moment):
                pairs.append((i, subscription_id))
        columns = np.array(pairs, np.int64).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def _prepare(self, count: int, lo: Time, hi: Time, reach: float) -> None:
        """Build the index anew if it does not cover these moments or too much has changed."""
        self._reach += (reach - self._reach) * 0.1
        changed = len(self._fresh) + self._void
        tolerable = 32 + 3 * len(self._places) ** 0.5
        covered = self._slice[0] <= lo and hi <= self._slice[1]
        drifted = self._reach > 4 * self._built_for
        if self._index is not None and covered and changed <= tolerable and not drifted:
            return
        used = self._rows.used
        if self._timed and 4 * count < len(self._places):
            # Few publications at a time: a slice that serves many of them.
            ahead = int(min(max(kernels.calm(self._rows.array, used), 1e-3), 60.0) * SECOND)
            lo, hi = lo - ahead // 4, hi + ahead
        elif not self._timed:
            lo, hi = -FOREVER, FOREVER - 1
        self._index = kernels.build(self._rows.array, used, lo, hi, self._reach)
        self._slice, self._built_for = (lo, hi), self._reach
        self._state[:] = VALID
        self._fresh.clear()
        self._void = 0
