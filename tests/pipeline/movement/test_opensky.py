"""State vectors as OpenSky's interface answers them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.movement_files import SECOND, PlainFix, read_movement

NOON = 1641211200


def state(name: Any = "3c6444", t: Any = NOON, lon: Any = 8.5, lat: Any = 50.0) -> list[Any]:
    return [
        name, "DLH1", "Germany", t, NOON, lon, lat, 11000.0, False, 200.0, 90.0, 0.0, None,
        11200.0, "1000", False, 0,
    ]  # fmt: skip


def answer(*states: Any, t: int = NOON) -> str:
    return json.dumps({"time": t, "states": states or None})


def write(folder: Path, text: str, name: str = "states.json") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_an_answer_and_answers_line_by_line(tmp_path: Path) -> None:
    other = [*state("a", None, -179.0, 1.0)[:13], None, *state()[14:]]
    fixes, found = read_movement(write(tmp_path, answer(state(), other, t=NOON + 5)))
    assert fixes == [
        PlainFix("3c6444", NOON * SECOND, 8.5, 50.0, 11200.0),
        PlainFix("a", (NOON + 5) * SECOND, -179.0, 1.0, 11000.0),
    ]
    assert found.skipped == 0
    lines = "\n".join([answer(state()), "", answer(), answer(state(t=NOON + 1, lon=9)), "{oops"])
    fixes, found = read_movement(write(tmp_path, lines, "states.jsonl"))
    assert [fix.lon for fix in fixes] == [8.5, 9]
    assert found.skipped == 1
    assert found.first_skipped.startswith("line 5 is no answer of OpenSky: JSON is malformed")


def test_bad_states_are_skipped_and_counted(tmp_path: Path) -> None:
    bad = {
        "has no place": state(lon=None),
        "has no icao24": state(name=None),
        "has a time, place or height that is not a number": state(t="noon"),
        "has the time 1000000000000.0, which is no Unix time in seconds": state(t=1e12),
        "is no array of at least 8 values": [1, 2],
        "has lat = 99, beyond ±90 degrees": state(lat=99),
    }
    for why, one in bad.items():
        fixes, found = read_movement(write(tmp_path, answer(state(), one)))
        assert len(fixes) == found.skipped == 1
        assert found.first_skipped == f"state 2 {why}"


def test_other_documents_are_refused(tmp_path: Path) -> None:
    for text in ("{}", "[1]", "", '{"type": "FeatureCollection", "features": []}'):
        with pytest.raises(ValueError, match="has no state vectors"):
            read_movement(write(tmp_path, text))


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)


@examples(100)
@given(states=st.lists(VALUES | st.lists(VALUES, max_size=15), max_size=5))
def test_whatever_a_state_is_it_is_used_or_counted(
    states: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("states")
    fixes, found = read_movement(write(folder, answer(state(), *states)))
    assert len(fixes) + found.skipped == 1 + len(states)
