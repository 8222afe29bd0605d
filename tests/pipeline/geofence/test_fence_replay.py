"""What a recorded realm has told is what its trace says should have been told."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearcast.space.motion import SECOND
from support.examples import examples
from support.recorded_realms import replayed, run_realm, told_events


@given(st.integers(0, 2**32), st.integers(1, 4))
@examples(200)
def test_nothing_is_missed_and_nothing_spurious(seed: int, pieces: int) -> None:
    here = run_realm(seed)
    told = told_events(here.sink)
    expected = Counter[Any]()
    unsettled = Counter[Any]()
    for *event, decided, until in replayed(here.sink, here.now - 1, pieces):
        expected[tuple(event)] += 1
        unsettled[tuple(event)] += decided + SECOND > until
    assert told - expected == Counter()
    assert expected - told - unsettled == Counter()
