"""What a recorded realm has told is what its trace says should have been told."""

from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Refused
from nearcast.space.motion import SECOND
from support.examples import examples
from support.realm_histories import FLUSH, TICK, histories
from support.recorded_realms import REQUESTS, FenceRealm, replayed, set_of, told_events


def run_realm(steps: list[Any]) -> FenceRealm:
    """Somebody looks ten times a second, and at the end for long."""
    here = FenceRealm()
    for name in ("depots", "ports"):
        here.ask(0, set_of(name, ("a", 1.0, 1.0, 2.5), ("b", -2.0, 0.0, 1.0)))
    for later, client, request in steps:
        here.now += max(later, 0)
        if request == FLUSH:
            here.realm.flush(here.now)
            here.realm.fence_notices()
        elif request == TICK:
            here.realm.tick(here.now)
        else:
            with suppress(Refused, ValueError):
                here.ask(client, request)
    for _ in range(3):
        here.now += 10 * SECOND
        here.realm.flush(here.now)
        here.realm.tick(here.now)
    here.table("states")  # what is recorded is handed over
    return here


@given(histories(REQUESTS), st.integers(1, 4))
@examples(300)
def test_nothing_is_missed_and_nothing_spurious(steps: list[Any], pieces: int) -> None:
    here = run_realm(steps)
    told = told_events(here.sink)
    expected = Counter[Any]()
    unsettled = Counter[Any]()
    for *event, decided, until in replayed(here.sink, here.now - 1, pieces):
        expected[tuple(event)] += 1
        unsettled[tuple(event)] += decided + SECOND > until
    assert told - expected == Counter()
    missed = expected - told
    assert missed - unsettled == Counter()
