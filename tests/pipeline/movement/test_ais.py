"""Logs of AIS receivers: reports with the times of their lines."""

from pathlib import Path
from typing import Any

import pyais
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.movement.ais import checksum_of
from support.examples import examples
from support.movement_files import SECOND, PlainFix, read_movement

NOON = 1641211200
MMSI = 235012345


def sentences(kind: int, lon: float, lat: float, **more: Any) -> list[str]:
    report = {"msg_type": kind, "mmsi": MMSI, "lon": lon, "lat": lat, **more}
    return pyais.encode_dict(report, radio_channel="A", sentence_type="VDM")


def tagged(t: object, sentence: str) -> str:
    content = f"s:station,c:{t}"
    return f"\\{content}*{checksum_of(content)}\\{sentence}"


def two_parts(sentence: str) -> list[str]:
    """The same report in two sentences, as class B sends type 19."""
    fields = sentence.split(",")
    payload = fields[5]
    cut = []
    for part, piece in ((1, payload[:20]), (2, payload[20:])):
        content = f"AIVDM,2,{part},7,A,{piece},0"
        cut.append(f"!{content}*{checksum_of(content)}")
    return cut


def write(folder: Path, *lines: str) -> Path:
    (folder / "log.nmea").write_text("\r\n".join(lines) + "\r\n")
    return folder / "log.nmea"


@pytest.mark.parametrize("kind", [1, 2, 3, 18, 19, 27])
def test_all_position_reports_are_read(tmp_path: Path, kind: int) -> None:
    (sentence,) = sentences(kind, -1.25, 51.5)
    assert pyais.decode(sentence).msg_type == kind
    fixes, found = read_movement(write(tmp_path, tagged(NOON, sentence)))
    assert fixes == [PlainFix(str(MMSI), NOON * SECOND, -1.25, 51.5)]
    assert (found.skipped, found.notes) == (0, ())


@pytest.mark.parametrize(
    "before",
    [
        "2022-01-03T12:00:00Z ", "2022-01-03 12:00:00, ", f"{NOON}\t", f"{NOON}000,",
        f"[{NOON}] ", f"\\c:{NOON}\\", f"\\g:1-2-3,c:{NOON}000\\", f"1 \\c:{NOON}\\",
    ],
)  # fmt: skip
def test_times_stand_in_tag_blocks_or_before(tmp_path: Path, before: str) -> None:
    (sentence,) = sentences(1, 179.5, -89.5)
    fixes, _ = read_movement(write(tmp_path, before + sentence))
    assert fixes == [PlainFix(str(MMSI), NOON * SECOND, 179.5, -89.5)]


def test_a_report_of_two_sentences_has_the_time_of_its_first(tmp_path: Path) -> None:
    one, two = two_parts(sentences(19, 3.5, 4.5)[0])
    (other,) = sentences(1, 1, 1)
    between = tagged(NOON + 9, other)
    file = write(tmp_path, tagged(NOON, one), between, two, tagged(NOON + 30, one))
    fixes, found = read_movement(file)
    assert [(fix.t_us // SECOND - NOON, fix.lon) for fix in fixes] == [(0, 3.5), (9, 1)]
    assert (found.skipped, found.first_skipped) == (
        1, "line 4 begins a report that does not go on",
    )  # fmt: skip


def test_other_messages_are_counted_apart(tmp_path: Path) -> None:
    static = pyais.encode_dict({"type": 5, "mmsi": MMSI, "shipname": "ANNA"}, sentence_type="VDM")
    (sentence,) = sentences(1, 1, 2)
    lines = [*static, "$GPRMC,1,2*33", "", tagged(NOON, sentence)]
    fixes, found = read_movement(write(tmp_path, *lines))
    assert len(fixes) == 1
    assert (found.skipped, found.notes) == (0, ("3 sentences are no position reports",))


def test_bad_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    (good,) = sentences(1, 1, 2)
    bad = {
        "hello": "line 2 has no sentence: 'hello'",
        good: "line 2 has no time: neither a tag block",
        tagged(NOON, good[:-1] + "F"): "line 2 cannot be decoded: The checksum is invalid",
        tagged(NOON, good).replace("s:station", "s:other"): "line 2 has a tag block of a wrong",
        f"\\c:1\\641168000*00\\{good}": "line 2 has a tag block that does not end just before",
        tagged("now", good): "line 2 'now' is no time of ISO 8601",
        "noon " + good: "line 2 has something else before its sentence: 'noon' is no time",
        tagged(NOON, sentences(1, 181, 91)[0]): "line 2 reports no position",
        tagged(NOON, "!AIVDM,1,1"): "line 2 is no sentence of AIS",
        tagged(NOON, "!AIVDM,1,1,,A,13P,0*" + checksum_of("AIVDM,1,1,,A,13P,0")): "line 2 reports",
    }
    for line, why in bad.items():
        fixes, found = read_movement(write(tmp_path, tagged(NOON, good), line))
        assert len(fixes) == found.skipped == 1
        assert found.first_skipped.startswith(why), found.first_skipped


def test_a_log_without_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no usable fixes; the first of 3 .* line 1 has no time"):
        read_movement(write(tmp_path, *sentences(1, 1, 2) * 3))


@examples(150)
@given(place=st.integers(0, 80), damage=st.binary(min_size=1, max_size=8))
def test_a_damaged_line_is_used_or_counted(
    place: int, damage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (good,) = sentences(1, 1, 2)
    file = write(tmp_path_factory.mktemp("ais"), tagged(NOON, good))
    whole = tagged(NOON + 1, good).encode()
    damage = damage.replace(b"\n", b"?")
    damaged = whole[:place] + damage + whole[place + len(damage) :]
    file.write_bytes(file.read_bytes() + damaged + b"\n")
    fixes, found = read_movement(file)
    others = sum("no position reports" in note for note in found.notes)
    replaced = sum("of a moment" in note for note in found.notes)
    assert len(fixes) + found.skipped + others + replaced == 1 + bool(damaged.strip())
