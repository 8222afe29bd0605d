"""Arrow columns made of buffers. `pyarrow.array` looks for pandas first, and where it is installed
imports it: almost half a second and 50 MB, of which a node needs nothing."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def number_column(
    values: NDArray[np.generic], missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Numbers or truth values, without those that are missing; numbers are not copied."""
    count, kind = len(values), pa.from_numpy_dtype(values.dtype)
    nulls = 0 if missing is None else int(missing.sum())
    present = _bits(~missing) if missing is not None and nulls else None
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, count, [present, data], nulls)


def text_column(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(texts) + 1)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers, 0)


def _bits(flags: NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
