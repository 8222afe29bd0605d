"""The window that is replayed: where it is, and that nothing of it is lost."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.advise.world import (
    WorldOptions,
    choose_window,
    cut_around,
    cut_interests,
    in_span,
    prepare_world,
    shifted,
)
from nearcast.space.motion import SECOND as S
from nearcast.trace import reader
from nearcast.trace.schema import TABLES
from nearcast.trace.validate import validate
from support.brute_force import expected
from support.examples import examples
from support.small_traces import interest, publication, write_trace

FILE = Path("walk.parquet")


@examples(50)
@given(times=st.lists(st.integers(0, 40 * S), min_size=2, max_size=40), seconds=st.integers(1, 10))
def test_the_window_is_the_first_busiest_by_brute_force(times: list[int], seconds: int) -> None:
    whole = max(times) - min(times)
    if seconds * S > max(whole, S):
        with pytest.raises(ValueError, match="does not fit"):
            choose_window(FILE, np.array(times), WorldOptions(seconds=seconds))
        return
    window, begin = choose_window(FILE, np.array(times), WorldOptions(seconds=seconds))
    assert window == seconds * S
    begins = range(min(times), max(min(times), max(times) - window) + 1, S)
    counts = [sum(first <= t < first + window for t in times) for first in begins]
    assert begin == begins[counts.index(max(counts))]


def test_a_window_is_a_minute_or_half_of_a_shorter_recording_or_what_was_asked_for() -> None:
    hour, short = np.arange(0, 3600 * S, S), np.arange(0, 41 * S, S)
    assert choose_window(FILE, hour, WorldOptions()) == (60 * S, 0)
    assert choose_window(FILE, short, WorldOptions())[0] == 20 * S
    assert choose_window(FILE, short, WorldOptions(seconds=5.0, start_s=7.0)) == (5 * S, 7 * S)
    with pytest.raises(ValueError, match="no window of 5 s begins at 38 s"):
        choose_window(FILE, short, WorldOptions(seconds=5.0, start_s=38.0))
    with pytest.raises(ValueError, match="is 40 s long; a window of 50 s does not fit"):
        choose_window(FILE, short, WorldOptions(seconds=50.0))


def test_the_cut_is_up_to_three_times_as_long_and_within_the_recording() -> None:
    assert cut_around(50, 10, 0, 100) == (40, 70)
    assert cut_around(0, 10, 0, 100) == (0, 30)
    assert cut_around(90, 10, 0, 100) == (70, 100)
    assert cut_around(5, 10, 0, 20) == (0, 20)
    assert cut_around(0, 10, 0, 4) == (0, 10)


MANY = {
    "interests": [
        interest(0, 1, node=1, x=0.0, y=0.0, vx=1.0, gy=0.25, until=30 * S),
        interest(22 * S, 1, node=1, x=2.0, y=2.0),
        interest(0, 2, node=2, x=5.0, rx=8.0, filter="level < t", since=0),
        interest(1 * S, 3, node=3, formula="x > t - 20, y < 4", since=1 * S, rx=float("inf")),
        interest(18 * S, 3, node=3, formula="x > t - 22, y < 4", since=4 * S, rx=float("inf")),
        interest(2 * S, 4, node=4, rx=50.0, ry=50.0),
        interest(3 * S, 4, node=4, ended=True),
        interest(28 * S, 5, node=5, rx=50.0, ry=50.0),
    ],
    "publications": [
        publication(
            place * S // 4, place, node=10 + place % 3, x=place * 3 % 17 - 4.0,
            y=place * 5 % 11 - 4.0, attributes=f'{{"level": {place % 30}}}',
        )
        for place in range(160)
    ],
}  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(0, 40), (10, 30), (19, 20), (5, 25), (30, 40)])
def test_in_a_cut_the_same_is_delivered_as_in_the_recording(low: int, high: int) -> None:
    interests, publications = (pa.Table.from_pylist(MANY[n], TABLES[n]) for n in MANY)
    made = in_span(publications, low * S, high * S)
    due = expected(interests, made)
    assert len(due) > 3
    assert expected(cut_interests(interests, low * S, high * S), shifted(made, low * S)) == due


def test_a_trace_is_cut_as_it_is(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "live", MANY)
    facts, world = prepare_world(trace, tmp_path, WorldOptions(seconds=10.0, start_s=14.0))
    assert validate(world).problems == ()
    assert (facts.seconds, facts.window_at_s, facts.start_s, facts.spare_s) == (10, 14, 10, 20)
    assert (facts.has_filters, facts.has_formulas, facts.is_file) == (True, True, False)
    assert (facts.entities, facts.publications) == (7, 40)  # not number 4, which had left
    assert prepare_world(trace, tmp_path, WorldOptions(seconds=10.0, start_s=14.0))[1] == world
    assert prepare_world(trace, tmp_path, WorldOptions(seconds=10.0, start_s=2.0))[1] != world


def recording(folder: Path) -> Path:
    """Three walk for a minute, a fix each second; the third one leaves after ten seconds."""
    rows = [(float(t), who, 3.0 * t, 40.0 * who) for t in range(61) for who in (0, 1, 2)
            if who < 2 or t < 10]  # fmt: skip
    columns = dict(zip(("t", "entity", "x", "y"), zip(*rows, strict=True), strict=True))
    file = folder / "walk.parquet"
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), file)
    return file


def test_in_a_file_everybody_wants_a_disc_and_who_has_left_is_not_there(tmp_path: Path) -> None:
    options = WorldOptions(seconds=10.0, start_s=30.0, radius=50.0, payload=9)
    facts, world = prepare_world(recording(tmp_path), tmp_path, options)
    assert (facts.entities, facts.publications, facts.radius, facts.payload) == (2, 20, 50, 9)
    assert facts.speed == pytest.approx(3.0)
    assert facts.is_file and facts.radius_given and not facts.is_deep
    interests = reader.read(world, "interests")
    assert set(interests["shape"].to_pylist()) == {"disc"}
    assert pc.min(interests["t"]).as_py() == 0


def test_what_cannot_be_advised_on_is_refused_in_one_sentence(tmp_path: Path) -> None:
    silent = write_trace(tmp_path / "silent", {"interests": MANY["interests"]})
    deaf = write_trace(tmp_path / "deaf", {"publications": MANY["publications"]})
    both = write_trace(tmp_path / "both", MANY)
    for source, options, why in (
        (silent, WorldOptions(), "has no publications: nothing could be delivered"),
        (deaf, WorldOptions(), "has no subscriptions: nobody would receive anything"),
        (both, WorldOptions(radius=3.0), "--radius and --faster are for files of fixes"),
        (both, WorldOptions(seconds=1e5), "a window of 100,000 s does not fit"),
    ):
        with pytest.raises(ValueError, match=why):
            prepare_world(source, tmp_path / "out", options)
    (tmp_path / "text.csv").write_text("hello\n")
    with pytest.raises(ValueError, match="lacks t, entity, x, y"):
        prepare_world(tmp_path / "text.csv", tmp_path / "out", WorldOptions())
