"""A part of a trace, worked through in order of time.

A part is a stretch of time. Its worker first finds the interests in force when it begins, then goes
on chunk by chunk: what held before, what came new, what was published meanwhile. So it needs memory
for a chunk and for what is in force, never for the whole trace.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from nearcast.pipeline.spark.storage import RowGroup
from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.row_groups import concat_rows, read_row_group, rows_between
from nearcast.space.motion import FOREVER

ROWS_PER_CHUNK = (
    400_000  # publications, or interests, that are looked at together: tens of megabytes
)
MAX_X = 1e300  # further than any place: JSON knows no infinity
GROUPS_PER_FOLD = 8  # row groups read backwards before what they say is summed up


class TracePart(Struct, frozen=True):
    """The publications of a run made in [begin, end), and where to find what concerns them.

    Where too much is published at once for time to be cut, only those with low <= x < high.
    """

    run: str
    begin: int
    end: int
    publications: list[RowGroup]
    interests: list[RowGroup]
    low: float = -MAX_X
    high: float = MAX_X


def split_times(pieces: Sequence[RowGroup], count: int) -> list[tuple[int, int]]:
    """Spans of time with about equally many rows, judged by the row groups' statistics."""
    if not pieces:
        return [(-FOREVER, FOREVER)]
    # Within a row group, rows are taken as evenly spread over its time.
    moments = np.concatenate([np.linspace(p.first, p.last, 33) for p in pieces])
    weights = np.concatenate([np.full(33, p.rows / 33) for p in pieces])
    order = np.argsort(moments, kind="stable")
    reached = np.cumsum(weights[order])
    inner = [
        int(moments[order][np.searchsorted(reached, reached[-1] * k / count)])
        for k in range(1, count)
    ]
    edges = [-FOREVER, *sorted(set(inner)), FOREVER]
    return list(pairwise(edges))


def read_chunks(part: TracePart) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The interests in force and the publications, in order of time, of chunk after chunk."""
    said, wanted = _TimeOrderedReader(part.publications), _TimeOrderedReader(part.interests)
    wanted.skip(part.begin)
    said.skip(part.begin)
    fresh = [piece for piece in part.interests if piece.last >= part.begin]
    count = max(sum(piece.rows for piece in pieces) for pieces in (part.publications, fresh))
    rows, questions = [interests_in_force(part.interests, part.begin)], list[pa.Table]()
    since = part.begin
    for begin, end in split_times([*part.publications, *fresh], max(1, count // ROWS_PER_CHUNK)):
        end = min(end, part.end)
        if end <= max(begin, since):
            continue
        rows.append(wanted.until(end))
        questions.append(said.until(end))
        # What stands still for long is better asked much at once than often.
        held, new, asked = len(rows[0]), sum(map(len, rows[1:])), sum(map(len, questions))
        if end < part.end and 4 * asked < held and new < max(held, ROWS_PER_CHUNK):
            continue
        known = join.add_ends(concat_rows(rows, "interests"))
        heard = join.sort_by_time(
            concat_rows([_select_stripe(part, each) for each in questions], "publications")
        )
        yield join.select_in_force(known, since, end), heard
        rows, questions, since = [_without_ended(_latest_rows(known))], [], end


def _select_stripe(part: TracePart, said: pa.Table) -> pa.Table:
    if part.low == -MAX_X and part.high == MAX_X:
        return said
    x = join.column_or_zeros(said, "x")
    return said.filter(pa.array((x >= part.low) & (x < part.high)))


def split_along_x(said: Sequence[RowGroup], count: int) -> list[tuple[float, float]]:
    """Stripes of the world, along x, in which about equally much is published."""
    if count < 2 or not said:
        return [(-MAX_X, MAX_X)]
    sample = max(said, key=lambda piece: piece.rows)
    x = pq.ParquetFile(sample.file).read_row_group(sample.row_group, ["x"]).column(0).to_numpy()
    inner = np.quantile(x[np.abs(x) < MAX_X], np.arange(1, count) / count) if len(x) else []
    return list(pairwise([-MAX_X, *sorted(set(map(float, inner))), MAX_X]))


def interests_in_force(interests: Sequence[RowGroup], moment: int) -> pa.Table:
    """The rows written before the moment that hold until then, or beyond.

    Row groups are read from the latest backwards, and no further once every subscription that
    earlier ones can speak of has been seen later: where each has its say every second, two suffice.
    """
    earlier = sorted((p for p in interests if p.first < moment), key=lambda p: (p.last, p.first))
    ranges = _subscription_ranges(earlier)
    found = concat_rows([], "interests")
    unread = len(earlier)
    while unread:
        several = earlier[max(0, unread - GROUPS_PER_FOLD) : unread]
        unread -= len(several)
        rows = [rows_between(read_row_group(piece), -FOREVER, moment) for piece in several]
        found = _latest_rows(join.add_ends(concat_rows([*rows, found], "interests")))
        if unread and _all_superseded(found, earlier[unread - 1].last, ranges[:unread]):
            break
    return _without_ended(found)


def _all_superseded(found: pa.Table, last: int, ranges: list[tuple[int, int]]) -> bool:
    """Has every subscription that row groups until `last` speak of a row after that?"""
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    t, subscription = join.column_or_zeros(found, "t"), join.column_or_zeros(found, "subscription")
    later = (t > last) & (subscription >= low) & (subscription <= high)
    return int(np.count_nonzero(later)) == high - low + 1


def _subscription_ranges(pieces: Sequence[RowGroup]) -> list[tuple[int, int]]:
    """The least and the greatest subscription of each row group, as its statistics have it."""
    found = []
    footers = {file: pq.read_metadata(file) for file in sorted({piece.file for piece in pieces})}
    for piece in pieces:
        group = footers[piece.file].row_group(piece.row_group)
        columns = (group.column(i) for i in range(group.num_columns))
        said = next(c.statistics for c in columns if c.path_in_schema == "subscription")
        known = said is not None and said.has_min_max
        found.append((said.min, said.max) if known else (0, FOREVER))
    return found


def _latest_rows(rows: pa.Table) -> pa.Table:
    """The last row of each subscription, be it that it has ended."""
    return rows.filter(pa.array(join.column_or_zeros(rows, "end") == FOREVER)).drop_columns("end")


def _without_ended(rows: pa.Table) -> pa.Table:
    if "ended" not in rows.column_names:
        return rows
    return rows.filter(pa.array(~join.column_or_zeros(rows, "ended")))


class _TimeOrderedReader:
    """Row groups in order of time, each read once, handed out until a moment."""

    def __init__(self, pieces: Sequence[RowGroup]) -> None:
        self._unread = sorted(pieces, key=lambda piece: piece.first, reverse=True)
        self._table = pieces[0].table if pieces else "interests"
        self._begin = -FOREVER
        self._left: list[pa.Table] = []

    def skip(self, begin: int) -> None:
        """Rows before this moment are somebody else's."""
        self._begin = begin
        self._unread = [piece for piece in self._unread if piece.last >= begin]

    def until(self, end: int) -> pa.Table:
        while self._unread and self._unread[-1].first < end:
            self._left.append(
                rows_between(read_row_group(self._unread.pop()), self._begin, FOREVER)
            )
        given = concat_rows([rows_between(rows, -FOREVER, end) for rows in self._left], self._table)
        rest = (rows_between(rows, end, FOREVER) for rows in self._left)
        self._left = [rows for rows in rest if len(rows)]
        return given
