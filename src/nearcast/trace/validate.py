"""Is this trace what it claims to be? Every file is looked at, whatever is wrong with the others.

The rules about single rows are those of `rules`; here are those that need a whole table or two.
Everything is reported once for each file and reason, with a count and an example.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.errors import StorageError, TraceError
from nearcast.storage import AnyPath, PathInput, list_folder, open_parquet
from nearcast.trace.reader import (
    complete_columns,
    files,
    folder,
    missing_or_mistyped,
    scenario,
)
from nearcast.trace.rules import RULES, Rows, Rule
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import ROW_GROUP, SCENARIO, SUMMARY, in_a_line

Column: TypeAlias = NDArray[np.int64]

MAX_EXAMPLE = 500  # characters: a formula may be long

# Columns that the rules about several rows ask for.
_KEPT = {"interests": ("t", "node", "subscription"), "publications": ("t", "publication")}


class Problem(Struct, frozen=True):
    """`count` rows of a file break a rule; `row` is the first of them. None: not about rows."""

    table: str
    file: str | None
    row: int | None
    count: int | None
    reason: str
    example: str = ""


class TableSummary(Struct, frozen=True):
    """How many files and rows a table has, and its first and last moment."""

    files: int
    rows: int
    first: int | None
    last: int | None


class ValidationReport(Struct, frozen=True):
    """What was found. `finished`: the run has ended by itself, and says so in summary.json."""

    path: str
    finished: bool
    tables: dict[str, TableSummary]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


class _TableFindings(NamedTuple):
    """What one pass over a table found; `whole` if every file could be read."""

    summary: TableSummary
    problems: list[Problem]
    kept: dict[str, Column]
    whole: bool


def validate(path: PathInput) -> ValidationReport:
    """Check a trace. Raises TraceError only if there is none.

    Where files cannot be read, what they may have held is not missed elsewhere.
    """
    root = folder(path)
    interests = _survey(root, "interests")
    publications = _survey(root, "publications")
    references = _reference_rules(interests, publications)
    surveys = {"interests": interests, "publications": publications} | {
        name: _survey(root, name, references if name == "deliveries" else ())
        for name in TABLES
        if name not in _KEPT
    }
    return ValidationReport(
        path=str(root),
        finished=(root / SUMMARY).exists(),
        tables={name: survey.summary for name, survey in surveys.items()},
        problems=(
            *_scenario_problems(root),
            *(problem for survey in surveys.values() for problem in survey.problems),
            *_interest_problems(**interests.kept),
            *_publication_problems(**publications.kept),
        ),
        warnings=tuple(
            f"{name} is not the folder of a table and was not looked at"
            for name, is_folder in list_folder(root).items()
            if is_folder != (name in TABLES) and name[0] not in "._"
        ),
    )


def _scenario_problems(root: AnyPath) -> list[Problem]:
    try:
        scenario(root)
    except TraceError as error:
        return [Problem("scenario", SCENARIO, None, None, str(error))]
    return []


# One table: file by file, batch by batch, so that a table may be larger than memory.


def _survey(root: AnyPath, name: str, more_rules: Sequence[Rule] = ()) -> _TableFindings:
    findings = [_check_file(part, name, more_rules) for part in files(root, name)]
    columns = _KEPT.get(name, ())
    kept = pa.concat_tables(
        [table for found in findings for table in found.kept]
        or [TABLES[name].empty_table().select(columns)]
    )
    return _TableFindings(
        TableSummary(
            files=len(findings),
            rows=sum(found.rows for found in findings),
            first=min((t for found in findings for t in found.times), default=None),
            last=max((t for found in findings for t in found.times), default=None),
        ),
        [problem for found in findings for problem in found.problems()],
        {column: kept.column(column).to_numpy() for column in columns},
        all(found.readable for found in findings),
    )


class _BrokenRule(NamedTuple):
    first: int
    rows: int
    example: str


class _FileFindings:
    """What was found in one file so far."""

    def __init__(self, table: str, file: AnyPath, rules: Sequence[Rule]) -> None:
        self.table = table
        self.file = f"{table}/{file.name}"
        self.rules = rules
        self.rows = 0
        self.times: list[int] = []  # the first and the last of each batch
        self.kept: list[pa.Table] = []
        self.faults: list[str] = []  # of the file as a whole
        self.breaches: dict[str, _BrokenRule] = {}
        self.readable = True

    def add(self, batch: pa.RecordBatch) -> None:
        for rule in self.rules:
            broken = pc.fill_null(rule.broken(batch), False)
            if broken.true_count:
                self._add_breach(rule, batch, broken)
        span = pc.min_max(batch.column("t"))
        self.times += [t for t in (span["min"].as_py(), span["max"].as_py()) if t is not None]
        self.rows += batch.num_rows
        if self.table in _KEPT:
            self.kept.append(pa.Table.from_batches([batch]).select(_KEPT[self.table]).drop_null())

    def _add_breach(self, rule: Rule, batch: pa.RecordBatch, broken: pa.BooleanArray) -> None:
        row = pc.index(broken, True).as_py()
        before = self.breaches.get(rule.reason)
        if before:
            self.breaches[rule.reason] = before._replace(rows=before.rows + broken.true_count)
        else:
            example = _example(rule, batch.slice(row, 1).to_pylist()[0])
            self.breaches[rule.reason] = _BrokenRule(self.rows + row, broken.true_count, example)

    def problems(self) -> Iterator[Problem]:
        for fault in self.faults:
            yield Problem(self.table, self.file, None, None, fault)
        for reason, (first, rows, example) in self.breaches.items():
            yield Problem(self.table, self.file, first, rows, reason, example)


def _example(rule: Rule, row: dict[str, object]) -> str:
    """The row as text, led by what the parser says of it, if there is one."""
    reason = rule.fault(str(row[rule.text])) if rule.text else None
    values = ", ".join(f"{name}={value!r}" for name, value in row.items() if value is not None)
    return (f"{reason}: {values}" if reason else values)[:MAX_EXAMPLE]


def _check_file(part: AnyPath, name: str, more_rules: Sequence[Rule]) -> _FileFindings:
    schema = TABLES[name]
    found = _FileFindings(name, part, (*RULES[name], *more_rules))
    try:
        with open_parquet(part, page_checksum_verification=True) as file:
            unknown = [name for name in file.schema_arrow.names if name not in schema.names]
            found.faults += [f"column {column} is unknown" for column in unknown]
            wrong = missing_or_mistyped(file.schema_arrow, schema)
            if wrong:
                found.faults += wrong
                found.readable = False
                found.rows = file.metadata.num_rows
                return found
            for batch in file.iter_batches(ROW_GROUP, columns=schema.names):
                whole = complete_columns(batch, schema)
                columns = [whole.column(field.name).cast(field.type) for field in schema]
                found.add(pa.RecordBatch.from_arrays(columns, names=schema.names))
    except StorageError:
        raise  # the file may be sound
    # A damaged text shows itself as a ValueError only when it is looked at.
    except (OSError, ValueError, pa.ArrowException) as error:
        found.faults.append(f"cannot be read: {in_a_line(error)}")
        found.readable = False
    return found


# Rules about several rows.


def _interest_problems(t: Column, node: Column, subscription: Column) -> Iterator[Problem]:
    order = np.lexsort((t, subscription))
    t, node, subscription = t[order], node[order], subscription[order]
    same = subscription[1:] == subscription[:-1]
    for reason, breach in (
        ("two rows of one subscription at the same t", same & (t[1:] == t[:-1])),
        ("a subscription of two nodes", same & (node[1:] != node[:-1])),
    ):
        if breach.any():
            place = int(breach.argmax())
            example = f"subscription={subscription[place]}, t={t[place]}, node={node[place]}"
            yield Problem("interests", None, None, int(breach.sum()), reason, example)


def _publication_problems(t: Column, publication: Column) -> Iterator[Problem]:
    order = np.lexsort((t, publication))
    t, publication = t[order], publication[order]
    again = publication[1:] == publication[:-1]
    if again.any():
        place = int(again.argmax())
        example = f"publication={publication[place]}, t={t[place]} and t={t[place + 1]}"
        reason = "a publication made twice"
        yield Problem("publications", None, None, int(again.sum()), reason, example)


def _reference_rules(interests: _TableFindings, publications: _TableFindings) -> list[Rule]:
    """What a delivery speaks of must exist; or may, if a file of it could not be read."""
    subscriptions = np.unique(interests.kept["subscription"])
    order = np.lexsort((publications.kept["t"], publications.kept["publication"]))
    made, first = np.unique(publications.kept["publication"][order], return_index=True)
    times = publications.kept["t"][order][first]

    def before_made(rows: Rows) -> pa.BooleanArray:
        known, places = _find(rows.column("publication"), made)
        made_at = np.zeros(rows.num_rows, np.int64)
        made_at[known] = times[places[known]]
        return pc.and_kleene(pa.array(known), pc.less(rows.column("t"), pa.array(made_at)))

    rules = [Rule("delivered before it was published", before_made)]
    if interests.whole:
        rules.append(_known("subscription", subscriptions))
    if publications.whole:
        rules.append(_known("publication", made))
    return rules


def _known(column: str, known: Column) -> Rule:
    def broken(rows: Rows) -> pa.BooleanArray:
        ids = rows.column(column)
        return pc.and_(pc.is_valid(ids), pa.array(~_find(ids, known)[0]))

    return Rule(f"unknown {column}", broken)


def _find(ids: pa.Array, known: Column) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which of these are known, and where among the known, which are in order."""
    wanted = ids.fill_null(-1).to_numpy()
    if not len(known):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.intp)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return known[places] == wanted, places
