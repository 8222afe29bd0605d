"""Subscriptions: formulas and filters that keep their own clocks, moves, and what is refused."""

from math import sin, sqrt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.expressions import MAX_LENGTH
from nearcast.model.subscription import Filter, Formula, Region, Subscription, Value
from nearcast.space.motion import SECOND, Moving, Path, path
from nearcast.space.shapes import Shape, box, disc, point
from support.examples import examples
from support.strategies import ATTRIBUTES, FILTERS, FORMULAS, TIMES, regions, shapes, subscriptions

MOMENTS = TIMES | st.integers(-5 * SECOND, 30 * SECOND)
SMALL = st.integers(-8, 8).map(float) | st.floats(-8, 8)


def formula_holds(text: str, x: float, y: float, t: float) -> bool:
    """The strategies' formulas, once more by hand; where there is no value, there is no region."""
    match FORMULAS.index(text):
        case 0:
            return -3 + t <= x <= 3 + t and -2 + t <= y <= 2 + t
        case 1:
            return x < 1 + 0.5 * t
        case 2:
            return 0 < x < 4 and y == 2
        case 3:
            return t != 5 and y >= 10 / (t - 5)
        case 4:
            return t <= 4 and x >= sqrt(4 - t)
        case 5:
            return x <= min(3, t) and y > sin(t)
    raise AssertionError(f"{text} is new; say here what it means")


def filter_holds(text: str, attributes: dict[str, Value], t: float) -> bool:
    """The strategies' filters by hand: missing, or of another type, is no match."""
    kind, weight, ripe = (attributes.get(name) for name in ("kind", "weight", "ripe"))
    match FILTERS.index(text):
        case 0:
            return kind == "apple"
        case 1:
            return isinstance(weight, int) and weight > 3
        case 2:
            return isinstance(weight, int) and weight <= 5 + t and ripe is True
        case 3:
            return isinstance(kind, str) and kind != "pear"
        case 4:
            return kind == "pear" or (isinstance(weight, int) and weight > 5 - t)
    raise AssertionError(f"{text} is new; say here what it means")


# Formulas and filters, and their clocks.


@examples(100)
@given(st.sampled_from(FORMULAS), SMALL, SMALL, TIMES, MOMENTS)
def test_a_formula_means_what_it_says_so_many_seconds_after_it_was_submitted(
    text: str, x: float, y: float, since: int, at: int
) -> None:
    seconds = max(0, at - since) / 1e6
    expected = formula_holds(text, x, y, seconds)
    assert Formula(text, since).touches(point(x, y), at) == expected


@examples(50)
@given(st.sampled_from(FILTERS), ATTRIBUTES, TIMES, MOMENTS)
def test_a_filter_means_what_it_says_so_many_seconds_after_it_was_submitted(
    text: str, attributes: dict[str, Value], since: int, at: int
) -> None:
    seconds = max(0, at - since) / 1e6
    assert Filter(text, since).accepts(attributes, at) == filter_holds(text, attributes, seconds)


@examples(30)
@given(st.sampled_from(FORMULAS), shapes(), TIMES, MOMENTS)
def test_stamping_shifts_a_formula_in_time_and_nothing_else(
    text: str, shape: Shape, now: int, after: int
) -> None:
    stamped = Formula(text, 123).stamped(now)
    assert stamped == Formula(text, now)
    assert stamped.touches(shape, now + after) == Formula(text).touches(shape, after)


def test_the_clock_of_a_formula_ticks_in_microseconds_and_never_before_its_submission() -> None:
    growing = Formula("x <= t", since=7 * SECOND)
    assert growing.touches(point(1, 0), 8 * SECOND)
    assert not growing.touches(point(1, 0), 8 * SECOND - 1)
    assert growing.touches(point(0, 0), 0)
    assert not growing.touches(point(1e-6, 0), 0)
    assert not Formula("x >= t", since=7 * SECOND).touches(point(-1, 0), 0)


def test_a_filter_and_a_formula_of_one_subscription_may_have_different_clocks() -> None:
    rising = Filter("weight <= t", since=2 * SECOND)
    assert not rising.accepts({"weight": 1}, 3 * SECOND - 1)
    assert rising.accepts({"weight": 1}, 3 * SECOND)
    assert not rising.accepts({"weight": 1}, 0)
    assert rising.accepts({"weight": 0}, 0)
    assert rising.stamped(5 * SECOND) == Filter("weight <= t", 5 * SECOND)


def test_a_strict_border_of_a_formula_stays_strict_for_every_shape() -> None:
    below = Formula("x < 3")
    assert not below.touches(point(3, 0), 0)
    assert not below.touches(disc(5, 0, 2), 0)
    assert not below.touches(box(5, 0, 2, 9), 0)
    closed = Formula("x <= 3")
    assert closed.touches(point(3, 0), 0)
    assert closed.touches(disc(5, 0, 2), 0)
    assert closed.touches(box(5, 0, 2, 9), 0)


# Moving to another region.


@examples(50)
@given(subscriptions(), regions(), TIMES)
def test_a_move_replaces_the_region_and_leaves_the_rest(
    subscription: Subscription, region: Region, now: int
) -> None:
    moved = subscription.moved(region, now)
    assert moved.region == region.stamped(now)
    assert moved.region.since == now
    for name in ("id", "node", "channel", "echo"):
        assert getattr(moved, name) == getattr(subscription, name)
    if subscription.filter is None:
        assert moved.filter is None
    elif isinstance(region, Formula):  # the two share one t
        assert moved.filter == Filter(subscription.filter.text, now)
    else:
        assert moved.filter == subscription.filter


@pytest.mark.parametrize(
    ("region", "restarts"),
    [
        (Moving(disc(0, 0, 1)), False),
        (path(disc(0, 0, 1), [(1.0, 0.0, 0.0), (2.0, 0.0, 0.0)], 1.0), False),
        (Formula("x > t"), True),
    ],
)
def test_a_filters_clock_goes_on_unless_the_new_region_is_a_formula(
    region: Region, restarts: bool
) -> None:
    before = Subscription(1, 2, Formula("x > 3", 10), Filter("weight <= t", 10))
    moved = before.moved(region, 5 * SECOND)
    assert moved.filter == Filter("weight <= t", 5 * SECOND if restarts else 10)


# What is refused.


@pytest.mark.parametrize(
    "text", ["weight > 3", "x > 3, weight > 3", 'x > 3, kind == "x"', "ripe == true, y < 1"]
)
def test_a_formula_may_only_use_coordinates(text: str) -> None:
    sentence = f"a region's formula speaks of x, y and z alone: {text!r}"
    with pytest.raises(ValueError) as at_home:
        Formula(text)
    assert str(at_home.value) == sentence
    with pytest.raises(msgspec.ValidationError) as from_afar:
        received([1, 1, [3, text]])
    assert str(from_afar.value).startswith(sentence)


@pytest.mark.parametrize("text", ["x > 3", "weight > 3, y < t", "z == 1", "weight > 3, z <= 0"])
def test_a_filter_may_not_use_coordinates(text: str) -> None:
    sentence = f"a filter cannot speak of x, y or z: {text!r}"
    with pytest.raises(ValueError) as at_home:
        Filter(text)
    assert str(at_home.value) == sentence
    with pytest.raises(msgspec.ValidationError) as from_afar:
        received([1, 1, [1, [0, 0.0, 0.0]], [text]])
    assert str(from_afar.value).startswith(sentence)


def received(fields: list[Any]) -> Subscription:
    """The subscription that untrusted bytes make."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Subscription)


@pytest.mark.parametrize(
    "text",
    ["", "x", "x >", "x > 3 ,", "x != 3", 'x == "a"', "x > q", "__import__('os')", "x > 1e999"],
)
def test_invalid_predicates_are_refused_as_regions_and_as_filters(text: str) -> None:
    for make in (Formula, Filter):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            make(text)
    with pytest.raises(msgspec.ValidationError, match=r"^[^\n]+$"):
        received([1, 1, [3, text]])


def test_a_refusal_shows_little_of_a_long_text() -> None:
    long = " " * 900 + "weight\n> 3" + " " * 50
    assert len(long) < MAX_LENGTH
    with pytest.raises(ValueError) as refusal:
        Formula(long)
    assert len(str(refusal.value)) < 200
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("moment", [-1, 2**53, 2**62, 2**63, -(2**63)])
def test_formulas_and_filters_begin_at_a_moment(moment: int) -> None:
    sentence = f"{moment} is no moment: microseconds from 0 to {2**53}"
    for make, text in ((Formula, "x > t"), (Filter, "weight > t")):
        with pytest.raises(ValueError) as at_home:
            make(text, moment)
        assert str(at_home.value) == sentence
        with pytest.raises(ValueError) as when_stamped:
            make(text).stamped(moment)
        assert str(when_stamped.value) == sentence
        assert make(text).stamped(2**53 - 1).since == 2**53 - 1
    for fields in ([1, 1, [3, "x > t", moment]], [1, 1, PLACE, ["weight > t", moment]]):
        with pytest.raises(msgspec.ValidationError, match=r"^Expected `int` [^\n]+$"):
            received(fields)


PLACE = [1, [0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "fields",
    [
        [-1, 1, PLACE],
        [2**53, 1, PLACE],
        [1, -1, PLACE],
        [1, 2**53, PLACE],
        [1.0, 1, PLACE],
        [True, 1, PLACE],
        [1, 1],
        [1, 1, None],
        [1, 1, [7, "x > 3"]],
        [1, 1, [3, 5]],
        [1, 1, PLACE, "weight > 3"],
        [1, 1, PLACE, None, 5],
        [1, 1, PLACE, None, "", 1],
    ],
)
def test_a_malformed_subscription_is_refused_from_the_wire(fields: list[Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^[^\n]+$"):
        received(fields)


@examples(30)
@given(subscriptions())
def test_a_subscription_travels_whole_with_the_moments_of_its_clocks(
    subscription: Subscription,
) -> None:
    arrived = received(msgspec.to_builtins(subscription, builtin_types=(bytes,)))
    assert arrived == subscription
    assert type(arrived.region) in (Moving, Path, Formula)
