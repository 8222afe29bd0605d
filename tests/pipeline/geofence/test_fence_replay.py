"""What a recorded realm has told is what its trace says should have been told."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences.events import FenceKind, LeaveReason
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.outline_shapes import polygon
from nearcast.space.shapes import Shape, disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.schema import FENCE_KINDS
from nearcast.trace.sinks import MemoryTrace
from support.examples import examples, seeds
from support.fence_oracle import Disc, Fix, Polygon, fix_events, pair_events, transitions
from support.fence_worlds import NEVER, durations, histories
from support.fence_worlds import discs as oracle_discs
from support.fence_worlds import rectangles as oracle_rectangles
from support.recorded_realms import replayed, run_realm, told_events

LATE = 2**40
ALL_EVENTS = ("enter", "leave", "cross", "inside", "outside")
REASONS = {LeaveReason.LEFT: "left", LeaveReason.EXPIRED: "expired"}


def shape_of(area: Disc | Polygon) -> Shape:
    if isinstance(area, Disc):
        return disc(area.x, area.y, area.r)
    return polygon([[(float(x), float(y)) for x, y in ring] for ring in area.rings])


areas = st.one_of(
    oracle_discs,
    oracle_rectangles.filter(lambda one: len(set(one.rings[0])) == 4),
)


@given(
    st.lists(st.tuples(areas, st.one_of(st.none(), durations), durations), max_size=3),
    st.lists(histories(), min_size=1, max_size=3),
)
@examples(150)
def test_expected_events_are_those_of_the_definition(
    fences: list[Any], entities: list[list[Fix]]
) -> None:
    """Of a trace that no node has made: fences from the beginning, and fixes of some entities."""
    trace = MemoryTrace()
    recorder = Recorder(trace)
    for number, (area, dwell, linger) in enumerate(fences):
        region = Moving(shape_of(area))
        wanted = Subscription(number, 99, region)
        events = (*ALL_EVENTS, "dwell") if dwell is not None else ALL_EVENTS
        recorder.fence_interest(0, wanted, "", events, dwell, linger)
        recorder.fence_area(0, 99, number, region)
    rows = [(fix, entity) for entity, fixes in enumerate(entities) for fix in fixes]
    for publication, (fix, entity) in enumerate(sorted(rows, key=lambda row: row[0].t)):
        place = point(float(fix.place[0]), float(fix.place[1]))
        recorder.published(Publication(publication, entity, fix.t, place))
        ttl = None if fix.ttl == NEVER else fix.ttl
        recorder.states_made(fix.t, [entity], [publication], [ttl])
    recorder.close()
    expected = Counter[Any]()
    for entity, fixes in enumerate(entities):
        for number, (area, dwell, linger) in enumerate(fences):
            moves = transitions(area, fixes, LATE)
            for one in pair_events(moves, dwell, linger, LATE) + fix_events(area, fixes):
                reason = REASONS[LeaveReason(one.reason)] if one.kind == FenceKind.LEAVE else None
                t_out = one.t_out if one.kind == FenceKind.CROSS else None
                kind = FENCE_KINDS[one.kind]
                expected[99, number, None, entity, kind, reason, one.t, t_out, one.known] += 1
    assert Counter(event[:-1] for event in replayed(trace, LATE)) == expected


# Of these, an area that moves just touches somebody: rounding decides, and must do so once.
TANGENTS = (97, 122, 257, 285)


def differences(seed: int, earth: bool = False) -> tuple[Counter[Any], Counter[Any]]:
    """What was told and should not have been, and what should have been and was not."""
    here = run_realm(seed, earth=earth)
    told = told_events(here.sink)
    expected = Counter[Any]()
    unsettled = Counter[Any]()
    for *event, decided, until in replayed(here.sink, here.now - 1, 1 + seed % 4, earth):
        expected[tuple(event)] += 1
        unsettled[tuple(event)] += decided + SECOND > until
    return told - expected, expected - told - unsettled


@seeds([*range(20), *TANGENTS, 346, 1_616_647_744], range(20, 60))
def test_nothing_is_missed_and_nothing_spurious(seed: int) -> None:
    assert differences(seed) == (Counter(), Counter())


@seeds(range(8), range(8, 20))
def test_nothing_is_missed_on_earth_and_nothing_spurious(seed: int) -> None:
    assert differences(seed, earth=True) == (Counter(), Counter())


def test_a_set_that_is_put_at_the_moment_of_its_subscription() -> None:
    """With a dwell of 0 s, who is inside then dwells at once. It is put a microsecond later."""
    assert differences(5_262) == (Counter(), Counter())


def test_a_waiting_state_that_another_client_replaces_is_none_later() -> None:
    """Its client had left before it was published; that it expired ended the node."""
    run_realm(393)
