"""The base of engines over packed rows: publications become columns, kernels find pairs.

A subclass says which rows may want the publications (`_select_rows`). Kernels test outlines, run
formulas and filters; Python decides the pairs that they cannot.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nearcast.matching import grid_query
from nearcast.matching.filters import BatchAttributes
from nearcast.matching.matcher import Batch, EvaluationCost, Integers, Matches
from nearcast.matching.outline_table import have_forms, publication_heights
from nearcast.matching.residual_check import check_residual
from nearcast.matching.rows import Rows
from nearcast.model.publication import Publication
from nearcast.model.subscription import Region, Subscription, SubscriptionId
from nearcast.space.motion import Time
from nearcast.space.outlines import Outline
from nearcast.space.shapes import POINT

BatchOutlines: TypeAlias = Sequence[Outline | None] | None
_ALONE = np.zeros(1, np.int64)
FEW = 3  # pairs with a filter: so few are faster in Python than in a kernel, which needs columns


class RowSelection(NamedTuple):
    """The rows that a query tests: those in `index` without the places in `skip`, and `apart`."""

    rows: Any
    index: Any
    apart: Integers
    skip: Any


class IndexedEngine:
    """Matches batches against packed rows; `_select_rows` says which ones to test."""

    def __init__(self) -> None:
        self.evaluations = 0  # how often something evolving was evaluated for a moment
        self.faults = 0  # how often there was no value, or an attribute of another type
        self._rows = Rows()
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._places: dict[SubscriptionId, list[int]] = {}
        self._answers = 0  # pairs found last time: the guess for this time
        self._one = (*(np.zeros(1, np.int64) for _ in range(4)), np.zeros((2, 1, 3)))

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        t, node, channel, kind, (centre, extent) = self._one
        s = publication.shape
        t[0], node[0], kind[0] = at, publication.node, s.kind
        channel[0] = self._rows.channels.get(publication.channel, -1)
        centre[0], extent[0] = (s.x, s.y, s.z), (s.rx, s.ry, s.rz)
        reach = 0.0
        if s.kind != POINT:
            reach = max((r for r in (s.rx, s.ry, s.rz) if r < inf), default=0.0)
        columns = (t, node, channel, kind, centre, extent)
        outlines = None if s.outline is None else [s.outline]
        matches = self._match(columns, [publication], None, outlines, at, at, reach)
        found: list[SubscriptionId] = np.sort(matches.subscription).tolist()
        return found

    def match_many(self, publications: Batch) -> Matches:
        if not len(publications):
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
        columns = self.columns(publications)
        lo, hi = int(publications.t.min()), int(publications.t.max())
        reach = 0.0
        if publications.extent.any():  # else these are points, as they mostly are
            bounded = np.where(np.isfinite(publications.extent), publications.extent, 0.0)
            reach = float(bounded.max(axis=1).mean())
        return self._match(
            columns, publications.publications, publications.attributes, publications.outlines,
            lo, hi, reach,
        )  # fmt: skip

    def columns(self, publications: Batch) -> Any:
        """The columns that kernels take, with channels as their numbers in this engine."""
        codes = self._rows.channels
        if publications.channel is None:
            channel = np.full(len(publications), codes.get("", -1), np.int64)
        else:
            channel = np.array([codes.get(name, -1) for name in publications.channel], np.int64)
        return (
            publications.t, publications.node, channel, publications.kind,
            publications.centre, publications.extent,
        )  # fmt: skip

    def _select_rows(self, count: int, lo: Time, hi: Time, reach: float) -> RowSelection:
        """For `count` publications between these moments, which reach about so far."""
        raise NotImplementedError

    def _match(
        self, columns: Any, publications: Sequence[Publication], attributes: BatchAttributes | None,
        outlines: BatchOutlines, lo: Time, hi: Time, reach: float,
    ) -> Matches:  # fmt: skip
        selected = self._select_rows(len(publications), lo, hi, reach)
        order = _ALONE
        if len(publications) > 1:
            order = grid_query.order_by_bucket(columns[4], selected.index[0])
        capacity = 2 * len(selected.rows) + max(min(2**18, 64 * len(columns[0])), self._answers)
        found: list[tuple[Integers, Integers]] = []
        costs: list[tuple[Integers, Integers, Integers]] = []
        done, total = 0, len(columns[0])
        while done < total:
            out = [np.empty(capacity, np.int64) for _ in range(4)]
            done, n, m, evaluated = grid_query.query(columns, order, done, *selected, *out)
            self.evaluations += evaluated
            found.append((out[0][:n], out[1][:n]))
            if m:
                which, places = out[2][:m], out[3][:m]
                costs.append(grid_query.count_pair_steps(columns[0], selected.rows, which, places))
                found += self._settle(
                    columns, selected.rows, publications, attributes, outlines, which, places
                )
        self._answers = sum(len(f[0]) for f in found)
        cost = EvaluationCost(*concatenate_columns(costs)) if costs else None
        publication, subscription = concatenate_columns(found)
        forms = have_forms(outlines)
        if forms is not None:
            kept = ~forms[publication]
            for k in np.flatnonzero(~kept):
                i = int(publication[k])
                region = self._region(int(subscription[k]))
                kept[k] = region.touches(publications[i].shape, int(columns[0][i]))
            publication, subscription = publication[kept], subscription[kept]
        return Matches(publication, subscription, cost)

    def _region(self, subscription: SubscriptionId) -> Region:
        return self._subscriptions[subscription].region

    def _settle(
        self, columns: Any, rows: Any, publications: Sequence[Publication],
        attributes: BatchAttributes | None, outlines: BatchOutlines, which: Integers,
        places: Integers,
    ) -> Iterator[tuple[Integers, Integers]]:  # fmt: skip
        """The pairs that outlines, formulas and filters accept. `which` and `places` are
        overwritten."""
        if len(self._rows.outlines):
            which, places = self._check_outlines(
                columns, rows, publications, outlines, which, places
            )
            found = np.empty((2, len(which)), np.int64)
            n, m = grid_query.take_decided(rows, which, places, *found)
            yield found[0, :n], found[1, :n]
            which, places = which[:m], places[:m]
        found = np.empty((2, len(which)), np.int64)
        n, m = grid_query.run_formulas(
            columns, rows, self._rows.programs.array, which, places, *found
        )
        yield found[0, :n], found[1, :n]
        if m >= FEW:
            which, places, found = which[:m], places[:m], found[:, n:]
            n, m, faults = self._rows.filters.test_pairs(
                columns[0], publications, attributes, rows, which, places, found
            )
            self.faults += faults
            yield found[0, :n], found[1, :n]
        if m:
            places = np.where(places[:m] < 0, ~places[:m], places[:m])
            yield self._check_undecided(columns[0], publications, which[:m], places)

    def _check_outlines(
        self, columns: Any, rows: Any, publications: Sequence[Publication],
        outlines: BatchOutlines, which: Integers, places: Integers,
    ) -> tuple[Integers, Integers]:  # fmt: skip
        """Without the pairs whose outline the publication does not touch."""
        heights = publication_heights(outlines, len(columns[0]))
        m, undecided = grid_query.keep_outlined(
            columns, heights, rows, self._rows.outlines.columns, which, places
        )
        which, places = which[:m], places[:m]
        if not len(undecided):
            return which, places
        kept = np.ones(m, np.bool_)
        ids = self._rows.array["id"][places[undecided]].tolist()
        for k, subscription in zip(undecided.tolist(), ids, strict=True):
            i = int(which[k])
            region = self._subscriptions[subscription].region
            kept[k] = region.touches(publications[i].shape, int(columns[0][i]))
        return which[kept], places[kept]

    def _check_undecided(
        self, at: Integers, publications: Sequence[Publication], which: Integers, places: Integers
    ) -> tuple[Integers, Integers]:
        """Test pairs in Python that no kernel could decide."""
        pairs: list[tuple[int, int]] = []
        ids = self._rows.array["id"][places].tolist()
        for i, subscription_id in zip(which.tolist(), ids, strict=True):
            outcome = check_residual(
                self._subscriptions[subscription_id], publications[i], int(at[i])
            )
            if outcome:
                pairs.append((i, subscription_id))
            elif outcome is None:
                self.faults += 1
        columns = np.array(pairs, np.int64).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]


def concatenate_columns(several: Sequence[tuple[Integers, ...]]) -> Iterable[Integers]:
    """Each column of all parts, concatenated."""
    if len(several) == 1:
        return several[0]
    return map(np.concatenate, zip(*several, strict=True))
