"""What is no motion is refused, with one sentence, at home and from the wire."""

from math import inf, nan, nextafter
from typing import Any

import msgspec
import pytest

from nearcast.space.motion import (
    FASTEST,
    FOREVER,
    LATEST,
    MOST_LEGS,
    STILL,
    Moving,
    Path,
    line,
    path,
)
from nearcast.space.shapes import box, disc, point

SPOT = point(0.0, 0.0)


def received(region: list[Any]) -> Moving | Path:
    """The region that untrusted bytes make."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(region), type=Moving | Path)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((SPOT, (nan, 0.0, 0.0)), "velocity and growth must be within ±1e+100, not nan"),
        ((SPOT, (0.0, inf, 0.0)), "velocity and growth must be within ±1e+100, not inf"),
        (
            (box(0, 0, 1, 1), STILL, (0.0, 0.0, -inf)),
            "velocity and growth must be within ±1e+100, not -inf",
        ),
        (
            (SPOT, (0.0, 0.0, nextafter(FASTEST, inf))),
            "velocity and growth must be within ±1e+100, not 1.0000000000000002e+100",
        ),
        (
            (disc(0, 0, 1), STILL, (-1e299, 0.0, 0.0)),
            "velocity and growth must be within ±1e+100, not -1e+299",
        ),
        (
            (SPOT, STILL, (1.0, 0.0, 0.0)),
            "a point does not grow, and a disc grows by its first number alone",
        ),
        (
            (disc(0, 0, 1), STILL, (1.0, 1.0, 0.0)),
            "a point does not grow, and a disc grows by its first number alone",
        ),
        (
            (disc(0, 0, 1), STILL, (0.0, 0.0, -1.0)),
            "a point does not grow, and a disc grows by its first number alone",
        ),
    ],
)
def test_an_invalid_motion_is_refused_in_one_sentence_in_code_and_from_the_wire(
    fields: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(ValueError) as at_home:
        Moving(*fields)
    assert str(at_home.value) == sentence
    for region in ([1, *fields], [2, [[1, *fields]]]):
        with pytest.raises(msgspec.ValidationError) as from_afar:
            received(region)
        assert str(from_afar.value).startswith(sentence)
        assert "\n" not in str(from_afar.value)


@pytest.mark.parametrize("wrong", [-1, LATEST, 2**62, 2**63, -(2**63)])
def test_moments_and_durations_are_within_all_time(wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"^a motion cannot last {wrong} microseconds$"):
        Moving(SPOT, duration=wrong)
    with pytest.raises(ValueError, match=rf"^a region cannot begin at {wrong}$"):
        Moving(SPOT, since=wrong)
    with pytest.raises(ValueError, match=rf"^a region cannot begin at {wrong}$"):
        path(SPOT, [(1.0, 0.0, 0.0)], 1.0).stamped(wrong)
    for times in ([wrong], [None, wrong]):
        still = [1, [0, 0.0, 0.0], [0.0] * 3, [0.0] * 3, *times]
        for region in (still, [2, [still]]):
            with pytest.raises(msgspec.ValidationError, match=r"^Expected `int` [^\n]+$"):
                received(region)


def test_the_last_moment_and_the_longest_duration_are_allowed() -> None:
    last = Moving(SPOT, (FASTEST, 0.0, 0.0), duration=LATEST - 1, since=LATEST - 1)
    assert received([1, *msgspec.structs.astuple(last)]) == last
    assert last.until == 2 * LATEST - 2 < FOREVER


@pytest.mark.parametrize(
    "region",
    [
        [1, [0, nan, 0.0]],
        [1, [1, 0.0, 0.0, 0.0, -1.0]],
        [1, [0, 0.0, 0.0], [1.0, 2.0]],
        [1, [0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]],
        [1, [0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 1.5],
        [1, [0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], None, None],
        [1],
        [2],
        [4, "x > 3"],
    ],
)
def test_a_malformed_region_is_refused_from_the_wire(region: list[Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^[^\n]+$"):
        received(region)


@pytest.mark.parametrize("speed", [0.0, -1.0, -inf, nan, inf, nextafter(FASTEST, inf)])
def test_a_motion_needs_a_valid_speed(speed: float) -> None:
    sentence = r"^a speed must be above 0 and at most 1e\+100, not \S+$"
    with pytest.raises(ValueError, match=sentence):
        line(SPOT, (1.0, 0.0, 0.0), speed)
    with pytest.raises(ValueError, match=sentence):
        path(SPOT, [(1.0, 0.0, 0.0)], speed)


@pytest.mark.parametrize("nowhere", [inf, -inf, nan, 1e200])
def test_a_motion_to_an_invalid_place_is_refused(nowhere: float) -> None:
    for to in ((nowhere, 0.0, 0.0), (0.0, nowhere, 0.0), (0.0, 0.0, nowhere)):
        with pytest.raises(ValueError, match=r"^a centre must be within ±1e\+150, not \(.*\)$"):
            line(SPOT, to, 1.0)


def test_a_motion_that_would_not_arrive_before_the_end_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^at 1e-14 units per second it would take 1e\+14 s to"):
        line(SPOT, (1.0, 0.0, 0.0), 1e-14)
    with pytest.raises(ValueError, match=r"^a region cannot begin at \d+$"):
        path(SPOT, [(5e9, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)], 1.0)
    late = line(SPOT, (9e9, 0.0, 0.0), 1.0)
    assert late.at(LATEST - 1) == point(9e9, 0)


def test_a_path_has_so_many_legs_and_no_more() -> None:
    there_and_back = [(1.0, 0.0, 0.0), (0.0, 0.0, 0.0)] * (MOST_LEGS // 2)
    longest = path(SPOT, there_and_back, 1.0)
    still = [1, SPOT, STILL, STILL, 0]
    assert len(received([2, [still] * MOST_LEGS]).legs) == len(longest.legs) == MOST_LEGS
    sentence = r"^a path has at most 1000 legs, not 1001$"
    with pytest.raises(ValueError, match=sentence):
        path(SPOT, [*there_and_back, (1.0, 0.0, 0.0)], 1.0)
    with pytest.raises(msgspec.ValidationError, match=sentence):
        received([2, [still] * (MOST_LEGS + 1)])


def test_a_path_needs_a_leg() -> None:
    with pytest.raises(ValueError, match=r"^a path needs at least one leg$"):
        path(SPOT, [], 1.0)
    with pytest.raises(msgspec.ValidationError, match=r"^a path needs at least one leg$"):
        received([2, []])


@pytest.mark.parametrize("duration", [None, 11])
def test_a_leg_that_begins_before_the_one_before_has_arrived_is_refused(
    duration: int | None,
) -> None:
    legs = (Moving(SPOT, duration=duration, since=5), Moving(SPOT, duration=1, since=15))
    sentence = r"^a leg of a path begins before the leg before it has arrived$"
    with pytest.raises(ValueError, match=sentence):
        Path(legs)
    with pytest.raises(msgspec.ValidationError, match=sentence):
        received([2, list(legs)])


def test_a_leg_may_begin_at_the_microsecond_in_which_the_one_before_arrives() -> None:
    legs = (Moving(SPOT, duration=10, since=5), Moving(SPOT, duration=1, since=15))
    assert Path(legs).legs == legs
    assert received([2, [[1, *msgspec.structs.astuple(leg)] for leg in legs]]) == Path(legs)
