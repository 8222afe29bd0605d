"""What executors do in a join: encode rows as blocks for their parts, join the blocks of a part.

Rows have the columns that `columns` selects: those of the kernels, and carried ones.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.block_codec import block_cell, decode_block
from nearcast.pipeline.truth.spatial_parts import (
    AREAS,
    POINTS,
    PartTree,
    area_bounds,
    assign_rows,
    point_bounds,
)
from nearcast.spark.columns import NO_AREA_OWNER, NO_POINT_OWNER

Batches: TypeAlias = Iterator[pa.RecordBatch]
MapBatches: TypeAlias = Callable[[Batches], Batches]
EmitPairs: TypeAlias = Callable[[pa.Table, pa.Table], Batches]

ROWS_PER_BLOCK = 250_000  # rows that are read before they are distributed to parts
BLOCK = pa.schema([("part", pa.int32()), ("side", pa.int32()), ("block", pa.binary())])
MERGED = pa.schema([("part", pa.int32()), ("blocks", pa.binary())])


def encode_rows(tree: PartTree, side: int, shape: str | None, last: int) -> MapBatches:
    """Rows of a side to rows of `BLOCK`: for each part the rows that it needs."""

    def encode(batches: Batches) -> Batches:
        for given in _gather(batches):
            rows = add_constants(given, side, shape)
            chance = np.zeros(len(rows), np.int64)
            if "chance" in rows.column_names:
                chance = rows.column("chance").to_numpy()
                rows = rows.drop_columns("chance")
            bounds = point_bounds(rows) if side == POINTS else area_bounds(rows, last)
            for part, which in assign_rows(tree, bounds, side, chance):
                chosen = rows if len(which) == len(rows) else rows.take(pa.array(which))
                columns = [pa.array([part]), pa.array([side]), block_cell(chosen)]
                yield pa.RecordBatch.from_arrays(columns, schema=BLOCK)

    return encode


def _gather(batches: Batches) -> Iterator[pa.Table]:
    """Tables of many rows: Spark's batches are too small to be cut into parts."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count >= ROWS_PER_BLOCK:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


def add_constants(rows: pa.Table, side: int, shape: str | None) -> pa.Table:
    """The rows with the columns that are the same in all rows, and texts as dictionaries."""
    for name in ("channel", "shape"):
        if name in rows.column_names:
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, rows.column(name).dictionary_encode())
    if shape is not None:
        codes = pa.array(np.zeros(len(rows), np.int32))
        rows = rows.append_column("shape", pa.DictionaryArray.from_arrays(codes, [shape]))
    constants = {"node": NO_AREA_OWNER, "end": 1} if side == AREAS else {"node": NO_POINT_OWNER}
    for name, value in constants.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array(np.full(len(rows), value, np.int64)))
    return rows


def merge_blocks(batches: Batches) -> Batches:
    """Rows of `BLOCK` of one side to rows of `MERGED`, one for each part."""
    found: dict[int, list[bytes]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            found.setdefault(row["part"], []).append(row["block"])
    for part, blocks in found.items():
        yield pa.RecordBatch.from_arrays(
            [pa.array([part], pa.int32()), pa.array([msgspec.msgpack.encode(blocks)])],
            schema=MERGED,
        )


def join_blocks(emit: EmitPairs) -> MapBatches:
    """Rows of `BLOCK` of both sides to pairs; all rows of a part are in one Spark partition."""

    def work(batches: Batches) -> Batches:
        found: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                found.setdefault(row["part"], ([], []))[row["side"]].append(row["block"])
        for part in sorted(found):
            yield from _join(emit, *found.pop(part))

    return work


def join_merged(emit: EmitPairs) -> MapBatches:
    """Rows with the merged blocks of areas and points of a part to pairs."""

    def work(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                areas, points = (
                    msgspec.msgpack.decode(row[name], type=list[bytes])
                    for name in ("areas", "points")
                )
                yield from _join(emit, areas, points)

    return work


def _join(emit: EmitPairs, areas: list[bytes], points: list[bytes]) -> Batches:
    if areas and points:
        yield from emit(_decode(areas), _decode(points))


def _decode(blocks: list[bytes]) -> pa.Table:
    tables = [decode_block(block) for block in blocks]
    names = tables[0].column_names  # blocks have the same columns, in any order
    rows = pa.concat_tables([table.select(names) for table in tables])
    return rows.unify_dictionaries().combine_chunks()


def emit_carried(of_areas: Sequence[str], of_points: Sequence[str]) -> EmitPairs:
    """Pairs as the carried columns of both sides, under these names."""

    def emit(areas: pa.Table, points: pa.Table) -> Batches:
        rows = pa.array(np.arange(len(areas)))
        points = join.sort_by_time(points)
        for which, place in join.find_pairs(areas.append_column("subscription", rows), points):
            columns = [
                side.column(f"_{number}").combine_chunks().take(chosen)
                for side, names, chosen in (
                    (areas, of_areas, pa.array(place)),
                    (points, of_points, pa.array(which)),
                )
                for number in range(len(names))
            ]
            yield pa.RecordBatch.from_arrays(columns, [*of_areas, *of_points])

    return emit
