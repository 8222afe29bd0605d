"""Bounds over a stretch of time hold for every moment in it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.expressions import (
    FUNCTIONS,
    Arithmetic,
    Call,
    Number,
    Variable,
    evaluator,
)
from nearcast.model.intervals import (
    UNBOUNDED,
    ClosedInterval,
    admitted_interval,
    enclosure,
    swept_box,
)
from nearcast.model.predicates import box_at, parse
from support.examples import examples
from support.expression_strategies import SECONDS, TREES, parse_expression


@examples(400)
@given(tree=TREES, ends=st.tuples(SECONDS, SECONDS), shares=st.lists(st.floats(0, 1), max_size=8))
def test_every_value_between_two_moments_is_within_the_bounds(
    tree: Arithmetic, ends: tuple[float, float], shares: list[float]
) -> None:
    low, high = sorted(ends)
    bounds, evaluate = enclosure(tree, low, high), evaluator(tree)
    for share in [0.0, 1.0, 0.5, *shares]:
        t = min(max(low + (high - low) * share, low), high)
        value = evaluate(t)
        if value is not None:
            assert bounds is not None
            assert bounds.low <= value <= bounds.high


def test_every_function_of_the_language_has_bounds() -> None:
    for name in FUNCTIONS:
        several = 1 if name in ("abs", "sin", "cos", "sqrt", "negate") else 2
        assert enclosure(Call(name, (Variable("t"),) * several), 1.0, 2.0) is not None


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("-3 + t", -2, 1),
        ("2 * t - 1", 1, 7),
        ("-t * t", -16, -1),
        ("12 / t", 3, 12),
        ("abs(t - 3)", 0, 2),
        ("min(t, 2)", 1, 2),
        ("max(t, 2, 3)", 3, 4),
        ("sqrt(t)", 1, 2),
        ("sqrt(t - 2)", 0, 1.4142135623730951),
        ("sin(t)", -0.7568024953079282, 1),
        ("cos(t)", -1, 0.5403023058681398),
        ("sin(9 * t)", -1, 1),
        ("sin(1e9 * t)", -1, 1),
    ],
)
def test_bounds_are_tight_where_t_occurs_once(text: str, low: float, high: float) -> None:
    tree = parse_expression(text)
    bounds = enclosure(tree, 1.0, 4.0)
    assert bounds is not None
    assert bounds.low == pytest.approx(low, abs=1e-14)
    assert bounds.high == pytest.approx(high, abs=1e-14)
    assert bounds.low <= low
    assert bounds.high >= high


T = Variable("t")
HUGE = Number(1e308)


@pytest.mark.parametrize(
    "tree",
    [
        Call("sqrt", (Call("-", (Number(-1.0), T)),)),
        Call("/", (T, Number(0.0))),
        Call("+", (HUGE, Call("+", (HUGE, T)))),
        Call("-", (Call("negate", (HUGE,)), Call("*", (HUGE, Call("+", (T, Number(2.0))))))),
        Call("min", (T, Call("sqrt", (Number(-1.0),)))),
    ],
)
def test_an_expression_without_any_value_has_no_bounds(tree: Arithmetic) -> None:
    assert enclosure(tree, 0.0, 5.0) is None


def test_a_possible_division_by_zero_has_no_bounds() -> None:
    assert enclosure(parse_expression("1 / (t - 3)"), 1.0, 5.0) == UNBOUNDED
    assert enclosure(parse_expression("1 / (t - 3)"), 4.0, 5.0) == pytest.approx((0.5, 1.0))


def test_a_region_is_swept_from_its_first_place_to_its_last() -> None:
    player = parse("x >= -3 + t, x <= 3 + t, y > -2 - t, y < 2, z == 1")
    box = swept_box(player, 1.0, 5.0)
    assert box is not None
    assert [pytest.approx(side) for side in box] == [(-2, 8), (-7, 2), (1, 1)]
    assert swept_box(parse("x < 1 + t"), 0.0, 2.0) == (
        ClosedInterval(-inf, pytest.approx(3)), UNBOUNDED, UNBOUNDED,
    )  # fmt: skip


def test_an_empty_region_sweeps_an_empty_box() -> None:
    assert swept_box(parse("x >= 5 + t, x <= 4 - t"), 0.0, 9.0) is None
    assert swept_box(parse("x >= sqrt(2 - t), y > 0"), 3.0, 9.0) is None
    assert swept_box(parse("x >= 5 - t, x <= 4 + t"), 0.0, 9.0) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price > t", (2, inf)), ("price >= t", (2, inf)), ("price < t", (-inf, 3)),
        ("price <= t", (-inf, 3)), ("price == t", (2, 3)), ("price != t", (-inf, inf)),
    ],
)  # fmt: skip
def test_a_comparison_admits_what_it_admits_at_one_of_the_moments(
    text: str, expected: tuple[float, float]
) -> None:
    assert admitted_interval(parse(text).items[0], 2.0, 3.0) == expected


TEXTS = [
    "x >= -3 + t, x <= 3 + t, y >= -2 + t, y <= 2 + t",
    "x > 5 * sin(t), x < 5 * sin(t) + 4, y >= cos(2 * t) - 3, y < 3",
    "x > -4, x < 4, y > 1 / (t - 3), y < 8",
    "x >= sqrt(t - 4), x <= sqrt(t - 4) + 5",
    "x == t * t, z <= 4 - t",
]


@examples(200)
@given(
    text=st.sampled_from(TEXTS),
    ends=st.tuples(SECONDS, SECONDS),
    share=st.floats(0, 1),
)
def test_the_swept_box_holds_the_region_of_every_moment(
    text: str, ends: tuple[float, float], share: float
) -> None:
    low, high = sorted(ends)
    t = min(max(low + (high - low) * share, low), high)
    box, region = swept_box(parse(text), low, high), box_at(parse(text), t)
    if region is not None:
        assert box is not None
        for side, interval in zip(box, (region.x, region.y, region.z), strict=True):
            assert side.low <= interval.low
            assert interval.high <= side.high
