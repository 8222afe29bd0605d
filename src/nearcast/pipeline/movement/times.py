"""Times of files as microseconds.

A text is ISO 8601, in UTC unless it names another zone. A number of a column `t` is seconds since
whenever; any other number is Unix time: seconds below 100,000,000,000 (until the year 5138), else
milliseconds (from March 1973 on), so no number is both.
"""

from datetime import UTC, datetime, timedelta
from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.pipeline.movement.fix_collector import UNIX_EPOCH
from nearcast.space.motion import SECOND
from nearcast.workloads.fixes import Numbers, Whole

MILLISECONDS_FROM = 1e11
MILLISECONDS_TO = 1e14


def read_unix_time(text: str) -> int:
    """Microseconds of a Unix time or of ISO 8601. Raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        return read_iso_time(text)
    if not isfinite(number) or abs(number) >= MILLISECONDS_TO:
        raise ValueError(f"{text!r} is neither seconds nor milliseconds of Unix time")
    return round(number * (SECOND if abs(number) < MILLISECONDS_FROM else 1000))


def read_iso_time(text: str) -> int:
    """Microseconds of Unix time. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time of ISO 8601") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - UNIX_EPOCH) // timedelta(microseconds=1)


def unix_times(numbers: Numbers) -> tuple[Whole, NDArray[np.bool_]]:
    """The microseconds of numbers of Unix time, and which of them are none."""
    size = np.abs(numbers)
    bad = ~(size < MILLISECONDS_TO)
    scale = np.where(size < MILLISECONDS_FROM, float(SECOND), 1000.0)
    return np.rint(np.where(bad, 0.0, numbers) * scale).astype(np.int64), bad


def seconds_of_any_clock(numbers: Numbers) -> tuple[Whole, NDArray[np.bool_]]:
    """The microseconds of seconds, and which of them are beyond all measure."""
    bad = ~(np.abs(numbers) < MILLISECONDS_FROM)
    return np.rint(np.where(bad, 0.0, numbers) * SECOND).astype(np.int64), bad


def iso_times(texts: pa.Array) -> tuple[Whole, NDArray[np.bool_]]:
    """The microseconds of texts of ISO 8601, and which of them are none. Nulls are none."""
    texts = pc.utf8_trim_whitespace(texts)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # without a zone, and with one
        try:
            moments = texts.cast(kind)
        except pa.ArrowException:
            continue
        bad = moments.is_null().to_numpy(zero_copy_only=False)
        return moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), bad
    # Some are with and some without, or there are forms or faults that Arrow does not know.
    found, bad = np.zeros(len(texts), np.int64), np.ones(len(texts), np.bool_)
    for row, text in enumerate(texts.to_pylist()):
        try:
            found[row] = read_iso_time(text or "")
            bad[row] = False
        except ValueError:
            pass
    return found, bad
