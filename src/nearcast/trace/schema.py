"""The tables that a run leaves: the public, versioned contract between running and counting.

Times are microseconds, identifiers lie in [0, 2**53), coordinates are doubles; a column is never
null unless it is marked with a question mark. Anyone may write a trace, and readers of all kinds
need to know its columns, so this module imports nothing but Arrow.
"""

import pyarrow as pa

SCHEMA_VERSION = 2
READABLE_VERSIONS = (1, 2)
ADDED_COLUMNS = ("outline",)  # that a trace of schema 1 does not have: they are null there
IDS_END = 2**53  # so that doubles, hence JSON and JavaScript, keep every identifier whole
SHAPES = ("point", "disc", "box")  # in the order of their numbers in `space.shapes`
# Of fence events, in the order of their numbers in `fences.events`.
FENCE_KINDS = ("leave", "cross", "enter", "dwell", "inside", "outside")
LEAVE_REASONS = ("left", "expired", "gone", "removed")


_INTEGERS = (
    "t", "node", "subscription", "publication", "other", "to", "bytes", "hops", "copies",
    "until", "since", "arrived", "about", "ttl", "dwell", "linger", "entity", "event_t", "out_t",
)  # fmt: skip
_TEXTS = (
    "shape", "channel", "kind", "fact", "filter", "formula", "attributes", "outline", "set",
    "fence", "events", "reason",
)  # fmt: skip
_TRUTHS = ("echo", "ended", "lost")


def _field(column: str) -> pa.Field:
    """A column by its name, which alone decides its type; what is no other kind is a double."""
    name = column.rstrip("?")
    if name in _INTEGERS:
        kind = pa.int64()
    elif name in _TEXTS:
        kind = pa.string()
    else:
        kind = pa.bool_() if name in _TRUTHS else pa.float64()
    return pa.field(name, kind, nullable=column.endswith("?"))


def _schema(columns: str) -> pa.Schema:
    return pa.schema([_field(column) for column in columns.split()])


TABLES: dict[str, pa.Schema] = {
    "interests": _schema(
        "t node subscription shape x y z rx ry rz vx vy vz gx gy gz"
        " until? formula? since? channel filter? echo ended outline?"
    ),
    "publications": _schema(
        "t node publication shape x y z rx ry rz channel attributes? bytes outline?"
    ),
    "deliveries": _schema("t node publication subscription hops"),
    "messages": _schema("t node to kind bytes publication? arrived? lost copies"),
    "positions": _schema("t node x y z"),
    "views": _schema("t node other x y z"),
    "notes": _schema("t node fact about? value?"),
    # Of worlds with fences and retained states; see docs/reference/trace.md.
    "states": _schema("t node publication ttl? ended"),
    "fence_interests": _schema(
        "t node subscription set? events dwell? linger channel filter? echo ended"
    ),
    "fence_areas": _schema(
        "t node subscription? set? fence? since shape x y z rx ry rz vx vy vz gx gy gz"
        " until? outline? ended"
    ),
    "fence_events": _schema("t node subscription fence? entity kind reason? event_t out_t? x y z"),
    # Of worlds in which entities send to each other.
    "direct_messages": _schema("t node publication to bytes"),
    "direct_deliveries": _schema("t node publication"),
}
