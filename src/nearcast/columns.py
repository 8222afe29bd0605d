"""Numpy columns that grow, and the dense numbers that index them.

State of many equal things (subscriptions, clients, records) lies in columns, which compiled loops
can read. A thing has a slot, its index in every column; a slot that is given back is used again.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


def grow(column: NDArray[Scalar], size: int, fill: Any = 0) -> NDArray[Scalar]:
    """The column with at least `size` entries: itself, or a copy of at least twice its length.

    New entries are `fill`; those of records can only be 0.
    """
    if size <= len(column):
        return column
    shape = max(size, 2 * len(column)) - len(column), *column.shape[1:]
    more = np.full(shape, fill, column.dtype) if fill else np.zeros(shape, column.dtype)
    return np.concatenate((column, more))


def writable(column: Any, kind: type[Scalar]) -> NDArray[Scalar]:
    """The values as a column of this kind that can be written; a copy if need be.

    Arrow's columns cannot. For them, numba compiles a kernel once more, which takes seconds.
    """
    return np.require(column, kind, ["C", "W"])


class SlotAllocator:
    """Dense numbers. The number that was given back last is taken first."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.used = 0  # numbers below have been taken at some time

    def __len__(self) -> int:
        return self.used - len(self.free)

    def take(self) -> int:
        if self.free:
            return self.free.pop()
        self.used += 1
        return self.used - 1

    def give(self, slot: int) -> None:
        self.free.append(slot)


class RecordPool:
    """Sequences of records in one growing array. The room of removed ones is used again."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.array: Any = np.zeros(64, dtype)
        self._used = 0
        self._lengths: dict[int, int] = {}  # by start
        self._free: dict[int, list[int]] = {}  # starts, by length

    def put(self, records: Any) -> int:
        """Store the records and return where they start."""
        length = len(records)
        if self._free.get(length):
            start = self._free[length].pop()
        else:
            start, self._used = self._used, self._used + length
            self.array = grow(self.array, self._used)
        self.array[start : start + length] = records
        self._lengths[start] = length
        return start

    def remove(self, start: int) -> None:
        self._free.setdefault(self._lengths.pop(start), []).append(start)

    def length(self, start: int) -> int:
        return self._lengths[start]
