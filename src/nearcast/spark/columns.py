"""Which columns of two DataFrames a join reads, and these columns under the names of the kernels.

A row matches nothing if a number that the join reads from it is null, NaN, out of range (beyond
±1e150, a velocity beyond ±1e100) or, for a radius or half-extent, negative. Infinite extents are
allowed: such an area is unbounded. A null channel equals no channel, a null owner no owner, and a
null `end` means that the area has none.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from nearcast.errors import ColumnsError
from nearcast.space.motion import FASTEST, FOREVER
from nearcast.space.shapes import LARGEST

Columns = str | tuple[str, ...]
Number = str | float  # a column, or the same number in all rows

NO_AREA_OWNER, NO_POINT_OWNER = -(2**63), -(2**63) + 1
TIMES = (IntegralType, TimestampType, TimestampNTZType)
CHANNELS = (StringType, IntegralType, BooleanType)


class PointColumns(Struct, frozen=True, kw_only=True):
    """The columns of points: where each is and, if the join is one in time as well, when.

    `keys` tell points apart; they and the columns `keep` are carried to the result. Times are
    timestamps, or whole numbers of microseconds. Where both sides have a `channel`, the two must be
    equal; where both have an `owner` (a whole number), they must differ.
    """

    keys: Columns
    keep: Columns = ()
    x: str = "x"
    y: str = "y"
    z: str | None = None
    t: str | None = None
    channel: str | None = None
    owner: str | None = None


class AreaColumns(Struct, frozen=True, kw_only=True):
    """The columns of areas: discs (in 3-D balls) of a `radius`, or boxes of `half_extents` along
    the axes; each is a column, or a number for all rows. With both, the column `shape` says which a
    row is: 'disc', 'box' or 'point'.

    With `t`, a row is an area from this moment until `end`, exclusively, or, without such a column,
    until the next row of the same `keys`. A row in which the boolean column `ended` is true is no
    area, but ends the one before. Of several rows of the same keys and moment, one counts.
    `velocity`: how the area moves from its `t` on, in units per second along the axes.
    """

    keys: Columns
    keep: Columns = ()
    x: str = "x"
    y: str = "y"
    z: str | None = None
    radius: Number | None = None
    half_extents: tuple[Number, ...] | None = None
    shape: str | None = None
    t: str | None = None
    end: str | None = None
    ended: str | None = None
    velocity: tuple[str, ...] | None = None
    channel: str | None = None
    owner: str | None = None


class Side(NamedTuple):
    """One side of a join: a frame with the columns that kernels read, and `carried` ones."""

    frame: DataFrame
    usable: str  # the condition without which a row matches nothing
    carried: list[StructField]  # in the frame, these are `_0`, `_1`, …
    keys: str  # those of them that are keys, separated by commas
    shape: str | None = None  # of all rows, if they have no column that says it


def select_points(points: DataFrame, columns: PointColumns) -> Side:
    """The columns of points that a join reads; rows that match nothing are left out."""
    read = ColumnReader(points, "points")
    carried = read.carried(columns.keys, columns.keep)
    selected = [*_renamed(carried), *read.places(columns)]
    selected += read.conditions(columns, NO_POINT_OWNER)
    usable = _usable(columns)
    frame = points.selectExpr(*selected).where(usable)
    return Side(frame, usable, carried, _numbered(columns.keys))


def select_areas(areas: DataFrame, columns: AreaColumns) -> Side:
    """The columns of areas that a join reads, of all rows: `add_ends` must follow."""
    read = ColumnReader(areas, "areas")
    carried = read.carried(columns.keys, columns.keep)
    shape, extents = read.extents(columns)
    selected = [*_renamed(carried), *read.places(columns), *extents]
    selected += read.conditions(columns, NO_AREA_OWNER)
    if columns.t is None and (columns.end or columns.ended or columns.velocity):
        raise ColumnsError("areas that end or move need a column `t`: since when?")
    if columns.end is not None:
        end = read.time(columns.end)
        selected.append(f"least(coalesce({end}, {FOREVER}), {FOREVER}) AS end")
        check_alike("t", read.kind(columns.t or ""), "end", read.kind(columns.end))
    if columns.ended is not None:
        selected.append(f"coalesce({read.name(columns.ended, BooleanType)}, FALSE) AS ended")
    if columns.velocity is not None:
        axes = _axes(columns.velocity, columns.z, "velocity")
        selected += [
            f"{read.number(v)} AS v{a}" for a, v in zip(axes, columns.velocity, strict=True)
        ]
    frame = areas.selectExpr(*selected)
    if columns.t is not None:
        frame = frame.where(f"t > {-FOREVER} AND t < {FOREVER}")
    conditions = [_usable(columns), _extents_usable(columns)]
    if columns.end is not None:
        conditions.append("t < end")
    if columns.ended is not None:
        conditions.append("NOT ended")
    return Side(frame, " AND ".join(conditions), carried, _numbered(columns.keys), shape)


def add_ends(side: Side) -> DataFrame:
    """The areas, each with its `end` if they have a `t`, without rows that match nothing."""
    frame = side.frame
    if "t" in frame.columns and "end" not in frame.columns:
        # Of rows of the same moment the last holds; the others end as they begin.
        ties = [n for n in ("ended", "x", "y", "z", "rx", "ry", "rz") if n in frame.columns]
        order = ", ".join(["t", *(f"{name} DESC" for name in ties)])
        following = f"lead(t) OVER (PARTITION BY {side.keys} ORDER BY {order})"
        frame = frame.selectExpr("*", f"coalesce({following}, {FOREVER}) AS end").where("t < end")
    return frame.where(side.usable).drop("ended")


def check_sides(
    areas: DataFrame, points: DataFrame, of_areas: AreaColumns, of_points: PointColumns
) -> None:
    """Raise what is wrong with the two sides together."""
    for name in ("z", "t", "channel", "owner"):
        ours, theirs = getattr(of_areas, name), getattr(of_points, name)
        if (ours is None) != (theirs is None):
            with_it, without = ("points", "areas") if ours is None else ("areas", "points")
            raise ColumnsError(f"{with_it} have a column {name}, so {without} need one, too")
    for name in ("t", "channel"):
        ours, theirs = getattr(of_areas, name), getattr(of_points, name)
        if ours is not None and theirs is not None:
            kinds = (
                ColumnReader(areas, "areas").kind(ours),
                ColumnReader(points, "points").kind(theirs),
            )
            check_alike(f"areas.{ours}", kinds[0], f"points.{theirs}", kinds[1])
    names = [*column_names(of_areas.keys), *column_names(of_areas.keep)]
    both = [
        name
        for name in (*column_names(of_points.keys), *column_names(of_points.keep))
        if name in names
    ]
    if both:
        raise ColumnsError(f"both sides carry a column {both[0]!r} to the result: rename one")


def check_alike(one: str, kind: DataType, other: str, theirs: DataType) -> None:
    alike = isinstance(kind, IntegralType) and isinstance(theirs, IntegralType)
    if kind != theirs and not alike:
        raise ColumnsError(
            f"{one} is {kind.simpleString()}, {other} {theirs.simpleString()}: they must be alike"
        )


class ColumnReader:
    """Expressions over the columns of a frame; a column that is not there or not usable raises."""

    def __init__(self, frame: DataFrame, side: str) -> None:
        if not hasattr(frame, "selectExpr"):
            raise ColumnsError(f"{side} must be a DataFrame of Spark, not {type(frame).__name__}")
        self._fields = frame.schema.fields
        self._side = side

    def field(self, name: str) -> StructField:
        found = [field for field in self._fields if field.name == name]
        if len(found) == 1:
            return found[0]
        known = ", ".join(field.name for field in self._fields)
        count = "no column" if not found else f"{len(found)} columns"
        raise ColumnsError(f"{self._side} have {count} {name!r}; there are: {known}")

    def kind(self, name: str) -> DataType:
        return self.field(name).dataType

    def name(self, name: str, *kinds: type[DataType]) -> str:
        kind = self.kind(name)
        if kinds and not isinstance(kind, kinds):
            wanted = " or ".join(one.__name__.removesuffix("Type").lower() for one in kinds)
            raise ColumnsError(
                f"column {name!r} of {self._side} must be {wanted}, not {kind.simpleString()}"
            )
        return quote_name(name)

    def number(self, given: Number) -> str:
        if isinstance(given, str):
            return f"CAST({self.name(given, NumericType)} AS DOUBLE)"
        if not float(given) >= 0:
            raise ColumnsError(f"a radius or half-extent must be 0 or more, not {given}")
        return f"CAST('{float(given)!r}' AS DOUBLE)"

    def time(self, name: str) -> str:
        column, kind = self.name(name, *TIMES), self.kind(name)
        if isinstance(kind, TimestampType):
            return f"unix_micros({column})"
        if isinstance(kind, TimestampNTZType):
            return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {column})"
        return f"CAST({column} AS BIGINT)"

    def carried(self, keys: Columns, keep: Columns) -> list[StructField]:
        names = [*column_names(keys), *column_names(keep)]
        if not column_names(keys):
            raise ColumnsError(f"{self._side} need at least one key column")
        if len(set(names)) < len(names):
            raise ColumnsError(f"{self._side} carry the same column twice: {', '.join(names)}")
        return [self.field(name) for name in names]

    def places(self, columns: PointColumns | AreaColumns) -> list[str]:
        given = {"x": columns.x, "y": columns.y, "z": columns.z}
        return [f"{self.number(column)} AS {axis}" for axis, column in given.items() if column]

    def conditions(self, columns: PointColumns | AreaColumns, no_owner: int) -> list[str]:
        selected = []
        if columns.t is not None:
            selected.append(f"{self.time(columns.t)} AS t")
        if columns.channel is not None:
            selected.append(f"CAST({self.name(columns.channel, *CHANNELS)} AS STRING) AS channel")
        if columns.owner is not None:
            owner = self.name(columns.owner, IntegralType)
            selected.append(f"coalesce(CAST({owner} AS BIGINT), {no_owner}) AS node")
        return selected

    def extents(self, columns: AreaColumns) -> tuple[str | None, list[str]]:
        """The shape of all rows, or None, and the half-extents."""
        radius, half = columns.radius, columns.half_extents
        if radius is None and half is None:
            raise ColumnsError("areas need a radius or half_extents")
        sides = dict(zip(_axes(half, columns.z, "half_extents"), half, strict=True)) if half else {}
        numbers = {axis: self.number(given) for axis, given in sides.items()}
        if columns.shape is None:
            if radius is not None and half is not None:
                raise ColumnsError("areas with a radius and half_extents need a column `shape`")
            if radius is not None:
                return "disc", [f"{self.number(radius)} AS rx"]
            return "box", [f"{number} AS r{axis}" for axis, number in numbers.items()]
        if radius is None or half is None:
            raise ColumnsError("areas with a column `shape` need a radius and half_extents")
        shape = self.name(columns.shape, StringType)
        first = (
            f"CASE {shape} WHEN 'disc' THEN {self.number(radius)}"
            f" WHEN 'box' THEN {numbers.pop('x')} WHEN 'point' THEN 0D END AS rx"
        )
        others = [f"IF({shape} = 'box', {each}, 0D) AS r{axis}" for axis, each in numbers.items()]
        return None, [f"{shape} AS shape", first, *others]


def _axes(given: Sequence[object], z: str | None, what: str) -> str:
    axes = "xy" if z is None else "xyz"
    if len(given) != len(axes):
        raise ColumnsError(f"{what} must have {len(axes)} numbers ({', '.join(axes)}), not {given}")
    return axes


def _usable(columns: PointColumns | AreaColumns) -> str:
    conditions = [
        f"{axis} BETWEEN {-LARGEST!r}D AND {LARGEST!r}D" for axis in ("xyz" if columns.z else "xy")
    ]
    if columns.t is not None:
        conditions.append(f"t > {-FOREVER} AND t < {FOREVER}")
    if columns.channel is not None:
        conditions.append("channel IS NOT NULL")
    return " AND ".join(conditions)


def _extents_usable(columns: AreaColumns) -> str:
    every = "xyz" if columns.z else "xy"
    axes = "x" if columns.half_extents is None else every
    conditions = [
        f"(r{axis} BETWEEN 0D AND {LARGEST!r}D OR r{axis} = CAST('Infinity' AS DOUBLE))"
        for axis in axes
    ]
    if columns.velocity is not None:
        conditions += [f"v{axis} BETWEEN {-FASTEST!r}D AND {FASTEST!r}D" for axis in every]
    return " AND ".join(conditions)


def _renamed(carried: Sequence[StructField]) -> list[str]:
    return [f"{quote_name(field.name)} AS _{number}" for number, field in enumerate(carried)]


def _numbered(keys: Columns) -> str:
    return ", ".join(f"_{number}" for number in range(len(column_names(keys))))


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def column_names(names: Columns) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
