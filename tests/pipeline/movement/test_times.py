"""A text or number is one moment, or is refused."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.movement.fix_collector import UNIX_EPOCH, utc_text
from nearcast.pipeline.movement.times import (
    iso_times,
    read_iso_time,
    read_unix_time,
    seconds_of_any_clock,
    unix_times,
)
from support.examples import examples

MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30))])
SEPARATORS = st.sampled_from("T ")


def microseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - UNIX_EPOCH) // timedelta(microseconds=1)


@examples(200)
@given(st.lists(st.tuples(MOMENTS, ZONES, SEPARATORS), min_size=1, max_size=6))
def test_iso_times_without_a_zone_are_utc(
    moments: list[tuple[datetime, timezone | None, str]],
) -> None:
    aware = [(moment.replace(tzinfo=zone), between) for moment, zone, between in moments]
    texts = [moment.isoformat(between) for moment, between in aware]
    wanted = [microseconds(moment) for moment, _ in aware]
    assert [read_iso_time(text) for text in texts] == wanted
    found, bad = iso_times(pa.array(texts))
    assert found.tolist() == wanted
    assert not bad.any()


def test_faults_among_iso_times_are_only_their_own() -> None:
    texts = ["2026-02-28T12:00:00Z", "2026-02-30T12:00:00Z", None, "noon", "2026-02-28 13:00:00"]
    found, bad = iso_times(pa.array(texts))
    assert bad.tolist() == [False, True, True, True, False]
    assert found[4] - found[0] == 3_600_000_000
    with pytest.raises(ValueError, match="'noon' is no time of ISO 8601"):
        read_iso_time("noon")


def test_a_number_is_seconds_or_milliseconds_by_its_size() -> None:
    numbers = [0.0, 1641168000.25, 99_999_999_999.0, 1e11, 1641168000250.0]
    wanted = [0, 1641168000_250000, 99_999_999_999_000000, 100_000_000_000_000, 1641168000_250000]
    found, bad = unix_times(np.array([*numbers, np.nan, 1e14, np.inf]))
    assert found[:5].tolist() == wanted
    assert bad.tolist() == [False] * 5 + [True] * 3
    assert [read_unix_time(str(number)) for number in numbers] == wanted
    for text in ("1e14", "nan", "inf", "-1e15"):
        with pytest.raises(ValueError, match="neither seconds nor milliseconds"):
            read_unix_time(text)


def test_a_number_of_t_is_seconds_whatever_its_size() -> None:
    found, bad = seconds_of_any_clock(np.array([-5.5, 2e10, np.nan, 1e11]))
    assert found[:2].tolist() == [-5_500_000, 20_000_000_000_000_000]
    assert bad.tolist() == [False, False, True, True]


def test_a_moment_for_people() -> None:
    assert utc_text(1641168000_250000) == "2022-01-03T00:00:00Z"
