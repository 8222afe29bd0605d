"""Tracks of GPX become fixes; what could harm a reader of XML is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.movement_files import SECOND, PlainFix, read_movement

NOON = 1641211200 * SECOND
HEAD = '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1">'


def point(lat: object, lon: object, seconds: int, more: str = "") -> str:
    time = f"<time>2022-01-03T12:00:{seconds:02}Z</time>"
    return f'<trkpt lat="{lat}" lon="{lon}">{more}{time}</trkpt>'


def write(folder: Path, body: str, head: str = HEAD) -> Path:
    (folder / "walk.gpx").write_text(f"{head}{body}</gpx>", encoding="utf-8")
    return folder / "walk.gpx"


def test_each_track_is_an_entity(tmp_path: Path) -> None:
    body = (
        '<metadata><name>not a track</name></metadata><wpt lat="1" lon="2"><name>w</name></wpt>'
        "<trk><name>Ann &amp; Bob</name><trkseg>"
        + point(1, 2, 0, "<ele>12.5</ele>")
        + "</trkseg><trkseg>"
        + point(1.5, -180, 5)
        + "</trkseg></trk><trk><trkseg>"
        + point(-90, 0, 1)
        + "</trkseg></trk><trk><name>Ann &amp; Bob</name><trkseg>"
        + point(3, 4, 2)
        + "</trkseg></trk>"
    )
    fixes, found = read_movement(write(tmp_path, body))
    assert fixes == [
        PlainFix("Ann & Bob", NOON, 2, 1, 12.5),
        PlainFix("Ann & Bob", NOON + 5 * SECOND, -180, 1.5),
        PlainFix("Ann & Bob (3)", NOON + 2 * SECOND, 4, 3),
        PlainFix("track 2", NOON + SECOND, 0, -90),
    ]
    assert found.skipped == 0


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('<trkpt lat="1" lon="2"></trkpt>', "track point 2: it has no time"),
        (point("north", 2, 1), "track point 2: lat = 'north' is not a number"),
        (point("nan", 2, 1), "track point 2 has no lat"),
        (point(1, 181, 1), "track point 2 has lon = 181, beyond ±180 degrees"),
        (point(1, 2, 1, "<ele>up</ele>"), "track point 2: ele = 'up' is not a number"),
        (point(1, 2, 99), "track point 2: '2022-01-03T12:00:99Z' is no time of ISO 8601"),
        ("<trkpt><time>2022-01-03T12:00:00Z</time></trkpt>", "track point 2: it has no lat"),
    ],
)
def test_a_bad_point_is_skipped_and_counted(tmp_path: Path, bad: str, why: str) -> None:
    body = f"<trk><trkseg>{point(1, 2, 0)}{bad}{point(1, 3, 9)}</trkseg></trk>"
    fixes, found = read_movement(write(tmp_path, body))
    assert [fix.lon for fix in fixes] == [2, 3]
    assert (found.skipped, found.first_skipped) == (1, why)


def test_document_types_and_other_documents_are_refused(tmp_path: Path) -> None:
    track = f"<trk><name>&a;</name><trkseg>{point(1, 2, 0)}</trkseg></trk>"
    for inside in ('<!ENTITY a "b">', '<!ENTITY a SYSTEM "file:///etc/hostname">', ""):
        head = f'<?xml version="1.0"?><!DOCTYPE gpx [{inside}]><gpx>'
        with pytest.raises(ValueError, match="has a document type, which GPX does not need"):
            read_movement(write(tmp_path, track, head))
    with pytest.raises(ValueError, match="begins with <kml>, not with <gpx>"):
        read_movement(write(tmp_path, "", "<kml></kml>"))
    with pytest.raises(ValueError, match="is not well-formed XML"):
        read_movement(write(tmp_path, "<trk>"))
    with pytest.raises(ValueError, match="has no track points"):
        read_movement(write(tmp_path, "<rte></rte>"))
    with pytest.raises(
        ValueError, match="holds no usable fixes; the first of 1 is skipped because"
    ):
        read_movement(write(tmp_path, f"<trk><trkseg>{point(1, 999, 0)}</trkseg></trk>"))


@examples(100)
@given(place=st.integers(0, 400), damage=st.binary(max_size=6))
def test_damaged_files_are_read_or_refused_in_one_line(
    place: int, damage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = write(tmp_path_factory.mktemp("gpx"), f"<trk><trkseg>{point(1, 2, 0)}</trkseg></trk>")
    whole = file.read_bytes()
    file.write_bytes(whole[:place] + damage + whole[place + len(damage) :])
    try:
        read_movement(file)
    except ValueError as why:
        assert "\n" not in str(why)
