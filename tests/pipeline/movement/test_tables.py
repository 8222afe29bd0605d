"""CSV and Parquet with degrees, under the names and in the types in which they come."""

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.movement import tables
from support.examples import examples
from support.movement_files import SECOND, PlainFix, read_movement

NOON = 1641211200  # 2022-01-03T12:00:00Z


def write(folder: Path, text: str) -> Path:
    (folder / "walk.csv").write_text(text)
    return folder / "walk.csv"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("entity,timestamp,lat,lon", "a,2022-01-03T12:00:00Z,51.5,-1.25"),
        ("timestamp,entity,latitude,longitude", "2022-01-03 12:00:00,a,51.5,-1.25"),
        ("MMSI,BaseDateTime,LAT,LON,SOG", "a,2022-01-03T12:00:00,51.5,-1.25,3.4"),
        ("id,time,lng,lat,speed", f"a,{NOON},-1.25,51.5,3"),
        ("name,timestamp,long,lat", f"a,{NOON}000,-1.25,51.5"),
        ("\ufeffentity,t,lat,lon", "a,2022-01-03T13:00:00+01:00,+51.5, -1.25 "),
    ],
)
def test_usual_names_and_times_are_understood(tmp_path: Path, header: str, row: str) -> None:
    fixes, found = read_movement(write(tmp_path, f"{header}\n{row}\n"))
    assert fixes == [PlainFix("a", NOON * SECOND, -1.25, 51.5)]
    assert found.epoch_us == NOON * SECOND
    assert (found.skipped, found.notes, found.fixes.altitude) == (0, (), None)


def test_numbers_of_t_are_seconds_without_a_calendar(tmp_path: Path) -> None:
    text = f"t,entity,lat,lon,alt\n{NOON},b,1,2,10\n{NOON + 1.5},b,1,3,\n"
    fixes, found = read_movement(write(tmp_path, text))
    assert fixes == [PlainFix("b", 0, 2, 1, 10.0), PlainFix("b", 1_500_000, 3, 1)]
    assert found.epoch_us is None


def test_state_vectors_of_opensky_as_csv(tmp_path: Path) -> None:
    text = (
        "time,icao24,lat,lon,velocity,baroaltitude,geoaltitude\n"
        f"{NOON},3c6444,50.0,8.5,200,11000,11200\n"
        f"{NOON + 10},3c6444,50.1,8.6,200,11000,\n"
        f"{NOON + 20},3c6444,,,200,,\n"
    )
    fixes, found = read_movement(write(tmp_path, text))
    assert fixes == [
        PlainFix("3c6444", NOON * SECOND, 8.5, 50.0, 11200.0),
        PlainFix("3c6444", (NOON + 10) * SECOND, 8.6, 50.1, 11000.0),
    ]
    assert (found.skipped, found.first_skipped) == (1, "row 3 has no lon")


@pytest.mark.parametrize(
    "times",
    [
        pa.array([NOON * SECOND], pa.timestamp("us", "UTC")),
        pa.array([NOON * SECOND * 1000], pa.timestamp("ns")),
        pa.array([NOON], pa.int64()),
        pa.array([NOON * 1000.0]),
        pa.array(["2022-01-03T12:00:00Z"]).dictionary_encode(),
    ],
)
def test_parquet_has_times_in_many_types(tmp_path: Path, times: pa.Array) -> None:
    columns: dict[str, Any] = {
        "timestamp": times,
        "mmsi": pa.array([235012345]),
        "Latitude": pa.array([51.5], pa.float32()),
        "Longitude": pa.array(["-1.25"]),
        "height": pa.array([7], pa.int16()),
    }
    pq.write_table(pa.table(columns), tmp_path / "walk.parquet")
    fixes, _ = read_movement(tmp_path / "walk.parquet")
    assert fixes == [PlainFix("235012345", NOON * SECOND, -1.25, 51.5, 7.0)]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (b"a,noon,1,2,3", "row 2 has timestamp = 'noon', not a time"),
        (b"a,,1,2,3", "row 2 has no timestamp"),
        (b"a,2022-02-30T12:00:00Z,1,2,3", "row 2 has timestamp = '2022-02-30T12:00:00Z', not"),
        (b"a,1641211200,1,2,3", "row 2 has timestamp = '1641211200', not a time"),
        (b",2022-01-03T12:00:00Z,1,2,3", "row 2 has no entity"),
        (b"\xff\xfe,2022-01-03T12:00:00Z,1,2,3", "row 2 has entity = '\ufffd\ufffd', not UTF-8"),
        (b"a,\xff,1,2,3", "row 2 has timestamp = '\ufffd', not a time"),
        (b"a,2022-01-03T12:00:00Z,north,2,3", "row 2 has lat = 'north', not a number"),
        (b"a,2022-01-03T12:00:00Z,null,2,3", "row 2 has no lat"),
        (b"a,2022-01-03T12:00:00Z,90.1,2,3", "row 2 has lat = 90.1, beyond ±90 degrees"),
        (b"a,2022-01-03T12:00:00Z,1,200,3", "row 2 has lon = 200, beyond ±180 degrees"),
        (b"a,2022-01-03T12:00:00Z,1,1e999,3", "row 2 has lon = '1e999', not a number"),
        (b"a,2022-01-03T12:00:00Z,1,2,high", "row 2 has alt = 'high', not a number"),
        (b"a,2022-01-03T12:00:00Z,1,2,1e9", "row 2 has altitude = 1000000000, beyond ±1e+08"),
        (b"a,b,c", "'a,b,c' has 3 cells and the header 5"),
    ],
)
def test_a_bad_row_is_skipped_and_counted(tmp_path: Path, row: bytes, why: str) -> None:
    good = b"a,2022-01-03T11:00:00Z,1,2,3"
    lines = [b"entity,timestamp,lat,lon,alt", good, row, good.replace(b"11:", b"13:"), row]
    (tmp_path / "walk.csv").write_bytes(b"\n".join(lines))
    fixes, found = read_movement(tmp_path / "walk.csv")
    assert [fix.t_us // SECOND for fix in fixes] == [NOON - 3600, NOON + 3600]
    assert found.skipped == 2
    assert found.first_skipped.startswith(why)


def test_the_first_bad_row_is_explained_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    rows = ["a,1,1,2", "a,2,99,2", "a,3,north,2", "a,noon,1,2", ",5,1,2"]
    for bad in (rows[1:], rows[:0:-1]):
        text = "\n".join(["id,t,lat,lon", rows[0], *bad])
        _, found = read_movement(write(tmp_path, text))
        assert found.skipped == 4
        assert found.first_skipped.startswith("row 2 has ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lat,lon,entity\n1,2,a\n", "has no column for time: t, timestamp, time"),
        ("lat,lon,t\n1,2,3\n", "has no column for entity: entity, id, mmsi"),
        ("lat,LAT,lon,t,id\n1,1,2,3,4\n", "has more than one column lat"),
        ("lat,lon,t,id\n", "holds no usable fixes"),
        ("lat,lon,t,id\nx,2,3,4\n", "holds no usable fixes; the first of 1 is skipped because row"),
    ],
)
def test_what_cannot_be_used_at_all_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_movement(write(tmp_path, text))


def test_a_clock_that_was_not_set_spoils_only_its_own_fixes(tmp_path: Path) -> None:
    rows = f"1,2,{NOON},a\n1,2,0,b\n1,2,{NOON + 1},c\n1,2,1,a\n1,2,{NOON + 2},a\n"
    for name, what in (("time", "1970-01-01T00:00:00Z"), ("t", "0 s")):
        fixes, found = read_movement(write(tmp_path, f"lat,lon,{name},id\n{rows}"))
        assert [fix.name for fix in fixes] == ["a", "a", "c"]
        assert found.names == ["a", "c"]
        assert found.skipped == 2
        assert found.first_skipped == f"a fix at {what} is more than 500,000,000 s from most others"


def test_who_has_x_and_y_is_in_a_plane() -> None:
    assert tables.has_degrees(["Lat", "lng", "t"])
    assert not tables.has_degrees(["lat", "lon", "x", "y", "t", "entity"])
    assert not tables.has_degrees(["x", "y", "lat"])


def test_of_two_fixes_of_a_moment_the_later_counts_and_this_is_said(tmp_path: Path) -> None:
    fixes, found = read_movement(write(tmp_path, "t,id,lat,lon\n0,a,1,1\n0,a,2,2\n1,a,3,3\n"))
    assert [fix.lat for fix in fixes] == [2, 3]
    assert found.notes[0].startswith("1 fixes of a moment for which the same entity has a later")


CELLS = st.one_of(
    st.floats(-200, 200).map(str),
    st.sampled_from(["", "nan", "null", "+1", "-0", "1e5", "2022-01-03T12:00:00Z", "1641211200"]),
    st.text(alphabet=st.characters(exclude_characters="\r\n\x00", codec="utf-8"), max_size=8),
)


def wanted_rows(rows: list[list[str]]) -> int:
    """How many of these rows a careful person can use."""

    def degrees(text: str, most: float) -> bool:
        try:
            return text.isascii() and "_" not in text and abs(float(text)) <= most
        except ValueError:
            return False

    def height(text: str) -> bool:
        nothing = text.strip().lower() in ("", "nan", "null", "none", "na", "n/a")
        return nothing or degrees(text, 1e8)

    def moment(text: str) -> bool:
        try:
            datetime.fromisoformat(text.strip()).replace(tzinfo=UTC)
        except ValueError:
            return False
        return True

    return sum(
        bool(name.strip()) and moment(t) and degrees(lat, 90) and degrees(lon, 180) and height(alt)
        for name, t, lat, lon, alt in rows
    )


@examples(100)
@given(rows=st.lists(st.lists(CELLS, min_size=5, max_size=5), max_size=8))
def test_whatever_stands_in_a_row_it_is_used_or_counted(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("cells") / "walk.csv"
    good = ["first", "2022-01-01T00:00:00Z", "1", "2", "3"]
    with file.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows(
            [["entity", "timestamp", "lat", "lon", "alt"], good, *rows]
        )
    _, found = read_movement(file)
    assert len(rows) - found.skipped == wanted_rows(rows)
    assert bool(found.first_skipped) == bool(found.skipped)
    assert found.first_skipped.isprintable()


@examples(100)
@given(content=st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused_in_one_line(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "walk.csv").write_bytes(b"lat,lon,t,id\n1,2,3,4\n" + content)
    try:
        read_movement(folder / "walk.csv")
    except ValueError as why:
        assert "\n" not in str(why)
