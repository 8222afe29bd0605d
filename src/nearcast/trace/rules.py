"""What a row must be to mean something, as rules over many rows at once.

A rule gives a reason and marks the rows that break it. The rules need nothing but Arrow columns
that have the types of their schema, so a validator asks them of files and a counting job of
batches, and both set the same rows aside for the same reasons. A null breaks only the rule that
forbids it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.subscription import Filter, Formula
from nearcast.space.motion import FASTEST
from nearcast.space.outlines import outline_from_text
from nearcast.space.shapes import LARGEST
from nearcast.trace.schema import FENCE_KINDS, IDS_END, LEAVE_REASONS, SHAPES, TABLES

Rows: TypeAlias = pa.RecordBatch | pa.Table
Mask: TypeAlias = pa.BooleanArray  # or, of a pa.Table, the same in chunks


class Rule(NamedTuple):
    """Why a row is set aside, which rows are, and, for a text, what its parser says."""

    reason: str
    broken: Callable[[Rows], Mask]
    text: str = ""
    fault: Callable[[str], str | None] = lambda _: None


def _any(*masks: Mask) -> Mask:
    return reduce(pc.or_kleene, masks)


# Rules about one column.


def _never_null(column: str) -> Rule:
    return Rule(f"{column} is null", lambda rows: pc.is_null(rows.column(column)))


def _identifier(column: str) -> Rule:
    def broken(rows: Rows) -> Mask:
        ids = rows.column(column)
        return _any(pc.less(ids, 0), pc.greater_equal(ids, IDS_END))

    return Rule(f"{column} is not in [0, 2**53)", broken)


def _at_least(column: str, least: int) -> Rule:
    return Rule(f"{column} is below {least}", lambda rows: pc.less(rows.column(column), least))


def _within(most: float, column: str) -> Rule:
    # Asked this way round, NaN breaks the rule too.
    return Rule(
        f"{column} is not finite, or beyond ±{most:g}",
        lambda rows: pc.invert(pc.less_equal(pc.abs(rows.column(column)), most)),
    )


def _extent(column: str) -> Rule:
    # Asked this way round, NaN breaks the rule too.
    return Rule(
        f"{column} is negative or NaN",
        lambda rows: pc.invert(pc.greater_equal(rows.column(column), 0.0)),
    )


def _bounded(column: str) -> Rule:
    def broken(rows: Rows) -> Mask:
        extent = rows.column(column)
        return pc.and_(pc.greater(extent, LARGEST), pc.is_finite(extent))

    return Rule(f"{column} is beyond {LARGEST:g}, but not infinite", broken)


def _parsed(column: str, fault: Callable[[str], str | None], reason: str) -> Rule:
    def broken(rows: Rows) -> Mask:
        texts = rows.column(column)
        distinct = pc.unique(texts).to_pylist()
        bad = [text for text in distinct if text is not None and fault(text) is not None]
        return pc.is_in(texts, value_set=pa.array(bad, pa.string()))

    return Rule(reason, broken, column, fault)


@lru_cache(65_536)
def _formula_fault(text: str) -> str | None:
    try:
        Formula(text)
    except ValueError as error:
        return str(error)
    return None


@lru_cache(65_536)
def _filter_fault(text: str) -> str | None:
    try:
        Filter(text)
    except ValueError as error:
        return str(error)
    return None


@lru_cache(65_536)
def _outline_fault(text: str) -> str | None:
    try:
        outline_from_text(text)
    except ValueError as error:
        return str(error)
    return None


def _attributes_fault(text: str) -> str | None:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return str(error)
    return None


# Rules about columns together.


def _is(rows: Rows, shape: str) -> Mask:
    return pc.equal(rows.column("shape"), shape)


def _not_zero(rows: Rows, *columns: str) -> Mask:
    return _any(*(pc.not_equal(rows.column(column), 0.0) for column in columns))


def _unbounded(rows: Rows) -> Mask:
    return pc.and_kleene(
        _any(_is(rows, "point"), _is(rows, "disc")),
        _any(*(pc.equal(rows.column(column), float("inf")) for column in ("rx", "ry", "rz"))),
    )


def _earlier(column: str, than: str = "t") -> Rule:
    return Rule(
        f"{column} is before {than}", lambda rows: pc.less(rows.column(column), rows.column(than))
    )


def _one_of(column: str, known: Sequence[str]) -> Rule:
    def broken(rows: Rows) -> Mask:
        texts = rows.column(column)
        return pc.and_(pc.is_valid(texts), pc.invert(pc.is_in(texts, pa.array(known))))

    return Rule(f"unknown {column}", broken)


def _events_fault(text: str) -> str | None:
    names = text.split(",") if text else []
    unknown = [name for name in names if name not in FENCE_KINDS]
    return f"there is no event {unknown[0]!r}" if unknown else None


def _of_one_owner(rows: Rows) -> Mask:
    """A fence is of a subscription, or it is one of a set."""
    owned, in_set, named = (
        pc.is_valid(rows.column(name)) for name in ("subscription", "set", "fence")
    )
    return pc.or_(pc.equal(owned, in_set), pc.xor(in_set, named))


_PLACE = tuple(_within(LARGEST, column) for column in ("x", "y", "z"))

_SHAPE = (
    _parsed("outline", _outline_fault, "outline does not parse"),
    Rule("unknown shape", lambda rows: pc.invert(_any(*(_is(rows, shape) for shape in SHAPES)))),
    *_PLACE,
    *map(_extent, ("rx", "ry", "rz")),
    *map(_bounded, ("rx", "ry", "rz")),
    Rule("infinite extent of a point or disc", _unbounded),
    Rule(
        "a point with extents",
        lambda rows: pc.and_kleene(_is(rows, "point"), _not_zero(rows, "rx", "ry", "rz")),
    ),
    Rule(
        "a disc with ry or rz",
        lambda rows: pc.and_kleene(_is(rows, "disc"), _not_zero(rows, "ry", "rz")),
    ),
)

_GROWTH = (
    *(_within(FASTEST, column) for column in ("vx", "vy", "vz", "gx", "gy", "gz")),
    Rule(
        "a point that grows",
        lambda rows: pc.and_kleene(_is(rows, "point"), _not_zero(rows, "gx", "gy", "gz")),
    ),
    Rule(
        "a disc that grows by gy or gz",
        lambda rows: pc.and_kleene(_is(rows, "disc"), _not_zero(rows, "gy", "gz")),
    ),
)

_MEANING: dict[str, tuple[Rule, ...]] = {
    "interests": (
        _identifier("subscription"),
        *_SHAPE,
        *_GROWTH,
        _earlier("until"),
        _identifier("since"),
        _parsed("formula", _formula_fault, "formula does not parse"),
        _parsed("filter", _filter_fault, "filter does not parse"),
    ),
    "publications": (
        _identifier("publication"),
        *_SHAPE,
        _parsed("attributes", _attributes_fault, "attributes are no JSON object"),
        _at_least("bytes", 0),
    ),
    "deliveries": (_identifier("publication"), _identifier("subscription"), _at_least("hops", 0)),
    "messages": (
        _identifier("to"),
        _identifier("publication"),
        _at_least("bytes", 0),
        _earlier("arrived"),
        Rule(
            "both lost and arrived",
            lambda rows: pc.and_(rows.column("lost"), pc.is_valid(rows.column("arrived"))),
        ),
        _at_least("copies", 1),
    ),
    "positions": _PLACE,
    "views": (_identifier("other"), *_PLACE),
    "notes": (Rule("value is NaN", lambda rows: pc.is_nan(rows.column("value"))),),
    "states": (_identifier("publication"), _at_least("ttl", 0)),
    "fence_interests": (
        _identifier("subscription"),
        _parsed("events", _events_fault, "events are none"),
        *(_at_least(column, 0) for column in ("dwell", "linger")),
        _parsed("filter", _filter_fault, "filter does not parse"),
    ),
    "fence_areas": (
        _identifier("subscription"),
        Rule("neither of a subscription nor one of a set", _of_one_owner),
        _identifier("since"),
        *_SHAPE,
        *_GROWTH,
        _earlier("until", "since"),
    ),
    "fence_events": (
        _identifier("subscription"),
        _identifier("entity"),
        _one_of("kind", FENCE_KINDS),
        _one_of("reason", LEAVE_REASONS),
        *_PLACE,
    ),
    "direct_messages": (_identifier("publication"), _identifier("to"), _at_least("bytes", 0)),
    "direct_deliveries": (_identifier("publication"),),
}

RULES: dict[str, tuple[Rule, ...]] = {
    name: (
        *(_never_null(field.name) for field in schema if not field.nullable),
        _at_least("t", 0),
        _identifier("node"),
        *_MEANING[name],
    )
    for name, schema in TABLES.items()
}


def rejected(table: str, rows: Rows) -> pa.StringArray:
    """For each row the first reason to set it aside, or null if it is sound."""
    nobody = pa.nulls(rows.num_rows, pa.string())
    return reduce(
        lambda reasons, rule: pc.if_else(
            pc.and_(pc.is_null(reasons), pc.fill_null(rule.broken(rows), False)),
            rule.reason,
            reasons,
        ),
        RULES[table],
        nobody,
    )
