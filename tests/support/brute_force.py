"""What should be delivered, by brute force from the rows of a trace: the oracle of every overlay.

It reads interests and publications as the design defines them and shares no code with the engines
but the definition of overlap; even motion is written out again.
"""

from collections import defaultdict

import pyarrow as pa
from msgspec import json

from nearcast.model.subscription import Filter, Formula
from nearcast.space.outlines import Outline, outline_from_text
from nearcast.space.shapes import Shape, ShapeKind

Deliveries = set[tuple[int, int]]  # publication, subscription
PLACE = ("x", "y", "z", "rx", "ry", "rz")
KINDS = {"point": ShapeKind.POINT, "disc": ShapeKind.DISC, "box": ShapeKind.BOX}


def expected(interests: pa.Table, publications: pa.Table) -> Deliveries:
    rows_of = defaultdict(list)
    for row in sorted(interests.to_pylist(), key=lambda row: row["t"]):
        rows_of[row["subscription"]].append(row)
    spans = []
    for rows in rows_of.values():
        ends = [row["t"] for row in rows[1:]] + [float("inf")]
        spans += [(row, end) for row, end in zip(rows, ends, strict=True) if not row["ended"]]
    due: Deliveries = set()
    for publication in publications.to_pylist():
        published = published_shape(publication)
        for row, end in spans:
            if row["t"] <= publication["t"] < end and wants(row, publication, published):
                due.add((publication["publication"], row["subscription"]))
    return due


def published_shape(publication: dict) -> Shape:
    place = (publication[c] for c in PLACE)
    return Shape(KINDS[publication["shape"]], *place, outline_of(publication))


def wants(row: dict, publication: dict, published: Shape) -> bool:
    if row["channel"] != publication["channel"]:
        return False
    if row["node"] == publication["node"] and not row["echo"]:
        return False
    p = publication["t"]
    if row["formula"] is not None:
        if not Formula(row["formula"], row["since"]).touches(published, p):
            return False
    else:
        until = p if row["until"] is None else min(p, row["until"])
        dt = (until - row["t"]) / 1e6
        x, y, z = (row[c] + row["v" + c] * dt for c in "xyz")
        rx, ry, rz = (max(row["r" + c] + row["g" + c] * dt, 0.0) for c in "xyz")
        shape = Shape(KINDS[row["shape"]], x, y, z, rx, ry, rz, outline_of(row))
        if not shape.touches(published):
            return False
    if row["filter"] is None:
        return True
    attributes = json.decode(publication["attributes"] or "{}")
    return Filter(row["filter"], row["since"] or 0).accepts(attributes, p)


def outline_of(row: dict) -> Outline | None:
    text = row.get("outline")
    return None if text is None else outline_from_text(text)


def delivered(deliveries: pa.Table) -> list[tuple[int, int]]:
    return list(
        zip(
            deliveries.column("publication").to_pylist(),
            deliveries.column("subscription").to_pylist(),
            strict=True,
        )
    )
