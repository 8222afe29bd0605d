"""Outlines as columns that compiled kernels can read."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from nearcast.columns import RecordPool, SlotAllocator, grow
from nearcast.matching.compiled import compile_with_callees
from nearcast.matching.matcher import Floats
from nearcast.space import outline_touch
from nearcast.space.outlines import WHOLE, Outline

contains_point = compile_with_callees(outline_touch.contains_point)

HEAD = np.dtype(
    [(name, np.int64) for name in (
        "form", "earth", "first", "last", "first_start", "last_start")]
    + [(name, np.float64) for name in ("size", "low", "high")]
)  # fmt: skip
NO_HEIGHTS = (-inf, inf)


class OutlineTable:
    """The outlines of an engine: a row for each, and their coordinates in one growing array."""

    def __init__(self) -> None:
        self._slots = SlotAllocator()
        self._heads: Any = np.zeros(16, HEAD)
        self._coordinates = RecordPool(np.dtype(np.float64))
        self._starts = RecordPool(np.dtype(np.int64))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def columns(self) -> Any:
        """As kernels take them."""
        return self._heads, self._coordinates.array, self._starts.array

    def add(self, outline: Outline) -> int:
        """Store an outline and return its place."""
        slot = self._slots.take()
        self._heads = grow(self._heads, slot + 1)
        numbers = np.frombuffer(outline.coordinates, np.float64)
        first = self._coordinates.put(numbers) if len(numbers) else 0
        start = self._starts.put(np.array(outline.starts, np.int64)) if outline.starts else 0
        self._heads[slot] = (
            outline.form, outline.earth, first, first + len(numbers),
            start, start + len(outline.starts), outline.size, outline.low, outline.high,
        )  # fmt: skip
        return slot

    def remove(self, slot: int) -> None:
        """Free the place of an outline."""
        head = self._heads[slot]
        if head["first"] < head["last"]:
            self._coordinates.remove(int(head["first"]))
        if head["first_start"] < head["last_start"]:
            self._starts.remove(int(head["first_start"]))
        self._slots.give(slot)


def publication_heights(outlines_of: Sequence[Outline | None] | None, count: int) -> Floats:
    """The lowest and highest height of each publication; infinite if it has none."""
    heights = np.empty((count, 2))
    heights[:] = NO_HEIGHTS
    for i, outline in enumerate(outlines_of or ()):
        if outline is not None:
            heights[i] = outline.low, outline.high
    return heights


def have_forms(outlines_of: Sequence[Outline | None] | None) -> Any:
    """Which publications have an outline that is more than a height: Python decides about them."""
    if outlines_of is None:
        return None
    forms = np.array([o is not None and o.form != WHOLE for o in outlines_of], np.bool_)
    return forms if forms.any() else None
