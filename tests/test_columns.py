"""Columns as compiled loops take them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.columns import writable
from nearcast.fences.events import fixes_of
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.last_fixes import take_fixes
from nearcast.trace import earth_columns


def test_only_a_column_of_another_kind_or_that_cannot_be_written_is_copied() -> None:
    ours = np.arange(4)
    assert writable(ours, np.int64) is ours
    arrow = pa.array([1, 2]).to_numpy()
    for other, kind in ((arrow, np.int64), (ours[::2], np.int64), ([1, 2], np.float64)):
        column = writable(other, kind)
        assert column.tolist() == list(other)
        assert column.dtype == kind and column.flags.c_contiguous
        column[0] = 7
    assert arrow.tolist() == [1, 2]


def use_kernels(column: Callable[[list[Any]], Any]) -> set[Any]:
    """All types for which kernels are compiled when they have been used with such columns."""
    FenceEngine().fixes(
        fixes_of(
            column([1, 1]), column([0, 9]), [(0.0, 0.0), (1.0, 0.0)], column([2.0, 2.0]),
            column([5, 5]),
        )
    )  # fmt: skip
    places = earth_columns.ecef_columns(column([8.0]), column([50.0]))
    earth_columns.lon_lat_columns(*(column(place.tolist()) for place in places))
    kernels = (take_fixes, earth_columns._ecef_columns, earth_columns._lon_lat_columns)
    return {(kernel.py_func, one) for kernel in kernels for one in kernel.signatures}


def test_for_columns_of_arrow_no_kernel_is_compiled_once_more() -> None:
    assert use_kernels(np.array) == use_kernels(lambda values: pa.array(values).to_numpy())
