"""Rows of a trace as values of the model: what was recorded can be asked what it wants."""

from collections.abc import Mapping
from typing import Any

import msgspec

from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Region, Subscription, Value
from nearcast.space.motion import LATEST, Moving
from nearcast.space.outlines import outline_from_text
from nearcast.space.shapes import Shape, ShapeKind
from nearcast.trace.schema import SHAPES

Row = Mapping[str, Any]
_KINDS = {name: ShapeKind(number) for number, name in enumerate(SHAPES)}


def shape_of(row: Row) -> Shape:
    text = row["outline"]
    return Shape(
        _KINDS[row["shape"]], row["x"], row["y"], row["z"], row["rx"], row["ry"], row["rz"],
        None if text is None else outline_from_text(text),
    )  # fmt: skip


def region_of(row: Row) -> Moving:
    """The region of a row that has no formula."""
    until = row["until"]
    return Moving(
        shape_of(row),
        (row["vx"], row["vy"], row["vz"]),
        (row["gx"], row["gy"], row["gz"]),
        None if until is None else min(until - row["t"], LATEST - 1),
        row["t"],
    )


def subscription_of(row: Row) -> Subscription | None:
    """What is in force from the row's `t` on; None: it has ended."""
    if row["ended"]:
        return None
    region: Region
    if row["formula"] is not None:
        region = Formula(row["formula"], row["since"] or 0)
    else:
        region = region_of(row)
    condition = None if row["filter"] is None else Filter(row["filter"], row["since"] or 0)
    return Subscription(
        row["subscription"], row["node"], region, condition, row["channel"], row["echo"]
    )


def publication_of(row: Row) -> Publication:
    """Without its payload, which no trace has."""
    attributes = plain_attributes(row["attributes"])
    return Publication(
        row["publication"], row["node"], row["t"], shape_of(row), row["channel"], attributes
    )


def plain_attributes(text: str | None) -> dict[str, Value]:
    """The attributes of a publication. Those that are no plain values count as absent, as they do
    for a filter."""
    attributes = msgspec.json.decode(text or "{}")
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(value, bool | int | float | str)
    }
