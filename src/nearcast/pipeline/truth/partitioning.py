"""Parts of a trace, and reading a part in time order.

A part is a time range. Its task first finds the interests that are in force when it begins, then
reads chunk by chunk: what held before, what came new, what was published meanwhile. So it needs
memory for a chunk and for the interests in force, never for the whole trace.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct

from nearcast.pipeline.spark.storage import RowGroup
from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.row_groups import concat_rows, read_row_group, rows_between
from nearcast.space.motion import FOREVER
from nearcast.storage import locate, open_parquet

ROWS_PER_CHUNK = 400_000  # publications, or interests, joined at once: tens of megabytes
MAX_X = 1e300  # beyond any position; JSON has no infinity
GROUPS_PER_FOLD = 8  # row groups read backwards before they are reduced to their latest rows


class TracePart(Struct, frozen=True):
    """The publications of a run made in [begin, end), and the row groups that their join needs.

    If too much is published at the same time to be cut by time, only those with low <= x < high.
    """

    run: str
    begin: int
    end: int
    publications: list[RowGroup]
    interests: list[RowGroup]
    low: float = -MAX_X
    high: float = MAX_X


def split_times(groups: Sequence[RowGroup], count: int) -> list[tuple[int, int]]:
    """Time ranges with about equally many rows, according to the row groups' statistics."""
    if not groups:
        return [(-FOREVER, FOREVER)]
    # Within a row group, rows are assumed to be spread evenly over its time.
    moments = np.concatenate([np.linspace(p.first, p.last, 33) for p in groups])
    weights = np.concatenate([np.full(33, p.rows / 33) for p in groups])
    order = np.argsort(moments, kind="stable")
    reached = np.cumsum(weights[order])
    inner = [
        int(moments[order][np.searchsorted(reached, reached[-1] * k / count)])
        for k in range(1, count)
    ]
    edges = [-FOREVER, *sorted(set(inner)), FOREVER]
    return list(pairwise(edges))


def read_chunks(part: TracePart) -> Iterator[tuple[pa.Table, pa.Table]]:
    """For each chunk: the interests in force, and the publications in time order."""
    publications, interests = (
        _TimeOrderedReader(part.publications),
        _TimeOrderedReader(part.interests),
    )
    interests.skip_before(part.begin)
    publications.skip_before(part.begin)
    fresh = [group for group in part.interests if group.last >= part.begin]
    count = max(sum(group.rows for group in groups) for groups in (part.publications, fresh))
    rows, queries = [interests_in_force(part.interests, part.begin)], list[pa.Table]()
    since = part.begin
    for begin, end in split_times([*part.publications, *fresh], max(1, count // ROWS_PER_CHUNK)):
        end = min(end, part.end)
        if end <= max(begin, since):
            continue
        rows.append(interests.read_until(end))
        queries.append(publications.read_until(end))
        # Many interests that hardly change are better joined with many publications at once.
        held, new, published = len(rows[0]), sum(map(len, rows[1:])), sum(map(len, queries))
        if end < part.end and 4 * published < held and new < max(held, ROWS_PER_CHUNK):
            continue
        known = join.add_ends(concat_rows(rows, "interests"))
        made = concat_rows([_select_stripe(part, each) for each in queries], "publications")
        yield join.select_in_force(known, since, end), join.sort_by_time(made)
        rows, queries, since = [_without_ended(_latest_rows(known))], [], end


def _select_stripe(part: TracePart, publications: pa.Table) -> pa.Table:
    if part.low == -MAX_X and part.high == MAX_X:
        return publications
    x = join.column_or_zeros(publications, "x")
    return publications.filter(pa.array((x >= part.low) & (x < part.high)))


def split_along_x(publications: Sequence[RowGroup], count: int) -> list[tuple[float, float]]:
    """Ranges of x with about equally many publications."""
    if count < 2 or not publications:
        return [(-MAX_X, MAX_X)]
    sample = max(publications, key=lambda group: group.rows)
    with open_parquet(locate(sample.file)) as file:
        x = file.read_row_group(sample.row_group, ["x"]).column(0).to_numpy()
    inner = np.quantile(x[np.abs(x) < MAX_X], np.arange(1, count) / count) if len(x) else []
    return list(pairwise([-MAX_X, *sorted(set(map(float, inner))), MAX_X]))


def interests_in_force(interests: Sequence[RowGroup], moment: int) -> pa.Table:
    """The rows written before `moment` that still hold then.

    Row groups are read from the latest backwards, until every subscription that earlier ones can
    contain has a later row. If each subscription is renewed every second, two row groups suffice.
    """
    earlier = sorted((p for p in interests if p.first < moment), key=lambda p: (p.last, p.first))
    ranges = _subscription_ranges(earlier)
    found = concat_rows([], "interests")
    unread = len(earlier)
    while unread:
        several = earlier[max(0, unread - GROUPS_PER_FOLD) : unread]
        unread -= len(several)
        rows = [rows_between(read_row_group(group), -FOREVER, moment) for group in several]
        found = _latest_rows(join.add_ends(concat_rows([*rows, found], "interests")))
        if unread and _all_superseded(found, earlier[unread - 1].last, ranges[:unread]):
            break
    return _without_ended(found)


def _all_superseded(found: pa.Table, last: int, ranges: list[tuple[int, int]]) -> bool:
    """Whether every subscription in these ranges has a row after `last`."""
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    t, subscription = join.column_or_zeros(found, "t"), join.column_or_zeros(found, "subscription")
    later = (t > last) & (subscription >= low) & (subscription <= high)
    return int(np.count_nonzero(later)) == high - low + 1


def _subscription_ranges(groups: Sequence[RowGroup]) -> list[tuple[int, int]]:
    """The lowest and the highest subscription of each row group, from its statistics."""
    found = []
    footers = {}
    for name in {group.file for group in groups}:
        with open_parquet(locate(name)) as file:
            footers[name] = file.metadata
    for group in groups:
        metadata = footers[group.file].row_group(group.row_group)
        columns = (metadata.column(i) for i in range(metadata.num_columns))
        publications = next(c.statistics for c in columns if c.path_in_schema == "subscription")
        known = publications is not None and publications.has_min_max
        found.append((publications.min, publications.max) if known else (0, FOREVER))
    return found


def _latest_rows(rows: pa.Table) -> pa.Table:
    """The latest row of each subscription, which may say that it has ended."""
    return rows.filter(pa.array(join.column_or_zeros(rows, "end") == FOREVER)).drop_columns("end")


def _without_ended(rows: pa.Table) -> pa.Table:
    if "ended" not in rows.column_names:
        return rows
    return rows.filter(pa.array(~join.column_or_zeros(rows, "ended")))


class _TimeOrderedReader:
    """Reads row groups in time order, each once, and returns their rows up to a given time."""

    def __init__(self, groups: Sequence[RowGroup]) -> None:
        self._unread = sorted(groups, key=lambda group: group.first, reverse=True)
        self._table = groups[0].table if groups else "interests"
        self._begin = -FOREVER
        self._left: list[pa.Table] = []

    def skip_before(self, begin: int) -> None:
        """Leave out rows before this time: they belong to another part."""
        self._begin = begin
        self._unread = [group for group in self._unread if group.last >= begin]

    def read_until(self, end: int) -> pa.Table:
        while self._unread and self._unread[-1].first < end:
            self._left.append(
                rows_between(read_row_group(self._unread.pop()), self._begin, FOREVER)
            )
        given = concat_rows([rows_between(rows, -FOREVER, end) for rows in self._left], self._table)
        rest = (rows_between(rows, end, FOREVER) for rows in self._left)
        self._left = [rows for rows in rest if len(rows)]
        return given
