"""Reads those rows of a trace that concern some publications, subscriptions or nodes.

No Spark in here. Row groups whose statistics exclude them are not read, and of the others only the
rows asked for are kept, so that memory does not grow with the trace. Invalid rows are left out, by
the same rules as everywhere (`trace.rules`).
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.errors import StorageError, TraceError
from nearcast.space.motion import FOREVER, Time
from nearcast.storage import AnyPath, open_parquet
from nearcast.trace.reader import complete_columns, files, missing_or_mistyped
from nearcast.trace.rules import rejected
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import in_a_line

Integers: TypeAlias = NDArray[np.int64]
# By column: which values.
Wanted: TypeAlias = Mapping[str, Collection[int] | Collection[str] | Integers]


class TableGroup(NamedTuple):
    """A row group of a table: its file, its number, its rows, and what its columns span."""

    file: AnyPath
    number: int
    rows: int
    spans: dict[str, tuple[int, int]]  # lowest and highest value of columns with statistics
    nulls: dict[str, int]

    @property
    def first(self) -> Time:
        return self.spans.get("t", (-FOREVER, FOREVER))[0]

    @property
    def last(self) -> Time:
        return self.spans.get("t", (-FOREVER, FOREVER))[1]


def table_groups(root: AnyPath, table: str) -> list[TableGroup]:
    """All row groups of a table's sound files."""
    found: list[TableGroup] = []
    for file in files(root, table):
        try:
            with open_parquet(file) as parquet:
                if missing_or_mistyped(parquet.schema_arrow, TABLES[table]):
                    continue
                footer = parquet.metadata
                found += [
                    _group(file, n, footer.row_group(n)) for n in range(footer.num_row_groups)
                ]
        except StorageError:
            raise
        except (OSError, ValueError, pa.ArrowException):
            continue  # `analyse` counts it as rejected
    return found


def _group(file: AnyPath, number: int, metadata: Any) -> TableGroup:
    spans, nulls = {}, {}
    for place in range(metadata.num_columns):
        column = metadata.column(place)
        known = column.statistics
        if known is None:
            continue
        if known.has_null_count:
            nulls[column.path_in_schema] = known.null_count
        if known.has_min_max and isinstance(known.min, int):
            spans[column.path_in_schema] = known.min, known.max
    return TableGroup(file, number, metadata.num_rows, spans, nulls)


def select_rows(
    root: AnyPath,
    table: str,
    wanted: Wanted,
    low: Time = 0,
    high: Time = FOREVER,
    groups: list[TableGroup] | None = None,
) -> pa.Table:
    """The valid rows with t from `low` to `high` and with these values in these columns."""
    sets = {name: _as_set(TABLES[table].field(name).type, some) for name, some in wanted.items()}
    parts = [TABLES[table].empty_table()]
    for group in table_groups(root, table) if groups is None else groups:
        if group.first <= high and group.last >= low and _may_have(group, sets):
            parts.append(_read_group(table, group, sets, low, high))
    return pa.concat_tables(parts)


def _as_set(kind: pa.DataType, some: Collection[Any] | Integers) -> pa.Array:
    if kind != pa.int64():
        return pa.array(sorted(set(some)), kind)
    return pa.array(np.unique(np.fromiter(some, np.int64, len(some))))


def _may_have(group: TableGroup, sets: Mapping[str, pa.Array]) -> bool:
    for name, values in sets.items():
        if not len(values):
            return False
        if name in group.spans:
            least, most = group.spans[name]
            numbers = values.to_numpy()
            place = np.searchsorted(numbers, least)
            if place == len(numbers) or numbers[place] > most:
                return False
    return True


def _read_group(
    table: str, group: TableGroup, sets: Mapping[str, pa.Array], low: Time, high: Time
) -> pa.Table:
    """First the columns that decide, then the others, if there is a row to keep."""
    schema = TABLES[table]
    deciding = list(dict.fromkeys(["t", *sets]))
    try:
        with open_parquet(group.file) as parquet:
            rows = parquet.read_row_group(group.number, deciding, use_threads=False)
            kept = pc.and_(
                pc.greater_equal(rows.column("t"), low), pc.less_equal(rows.column("t"), high)
            )
            for name, values in sets.items():
                kept = pc.and_(kept, pc.is_in(rows.column(name), value_set=values))
            if not pc.any(pc.fill_null(kept, False)).as_py():
                return schema.empty_table()
            whole = parquet.read_row_group(group.number, schema.names, use_threads=False)
        free = pa.schema([field.with_nullable(True) for field in schema])
        chosen = complete_columns(whole, schema).filter(kept).cast(free).combine_chunks()
        return chosen.filter(rejected(table, chosen).is_null()).cast(schema)
    except StorageError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TraceError(f"cannot read {group.file}: {in_a_line(error)}") from error


def select_interests(
    root: AnyPath,
    subscriptions: Collection[int] | Integers | None,
    low: Time,
    high: Time,
    before: int,
) -> pa.Table:
    """The interests of these subscriptions (None: of all) from `low` to `high`, and of each the
    last `before` rows earlier than `low`: what is in force at `low`, and what was before that.

    Row groups are read from the last to the first, until all are found.
    """
    sets = {} if subscriptions is None else {"subscription": _as_set(pa.int64(), subscriptions)}
    found = PrecedingInterests(before)
    parts: list[pa.Table] = [TABLES["interests"].empty_table()]
    groups = [one for one in table_groups(root, "interests") if one.first <= high]
    for group in sorted(groups, key=lambda one: (one.last, one.first), reverse=True):
        early = group.last < low
        if early and sets and not found.may_lack(sets["subscription"].to_numpy(), group.last):
            break
        if not _may_have(group, sets):
            continue
        rows = _read_group("interests", group, sets, 0, high)
        late = pc.greater_equal(rows.column("t"), low)
        parts.append(rows.filter(late))
        found.add(rows.filter(pc.invert(late)))
    return pa.concat_tables([*parts, found.rows()])


class PrecedingInterests:
    """The last rows of each subscription before a moment, from parts in any order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows = TABLES["interests"].empty_table()
        self._oldest: dict[int, Time] = {}  # of each subscription that has enough rows

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        whole = pa.concat_tables([self._rows, rows])
        t, subscription = (whole.column(name).to_numpy() for name in ("t", "subscription"))
        order = np.lexsort((-t, subscription))
        ordered = subscription[order]
        starts = np.searchsorted(ordered, ordered)
        rank = np.arange(len(ordered)) - starts
        kept = order[rank < self._most]
        self._rows = whole.take(kept)
        last = order[rank == self._most - 1]
        self._oldest = dict(zip(subscription[last].tolist(), t[last].tolist(), strict=True))

    def may_lack(self, sought: Integers, last: Time) -> bool:
        """May rows up to `last` still belong to one of these?"""
        return any(self._oldest.get(one, -1) <= last for one in sought.tolist())

    def rows(self) -> pa.Table:
        return self._rows


def has_ways(root: AnyPath) -> bool:
    """Do the messages of this trace say which publication they carried? Sums do not."""
    return any(
        group.nulls.get("publication", 0) < group.rows for group in table_groups(root, "messages")
    )


def count_rows(root: AnyPath) -> int:
    return sum(group.rows for table in TABLES for group in table_groups(root, table))
