"""Predicates: [Evolving] examples to the letter, filters, zones and what they touch."""

import math
import pickle
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import FormulaError
from nearcast.model import predicates
from nearcast.model.expressions import Boolean, Call, Number, Text, Value, Variable
from nearcast.model.predicates import (
    EVERY_NUMBER,
    MAX_PREDICATES,
    Interval,
    Predicate,
    PredicateBox,
    Predicates,
    accepts,
    box_at,
    freeze_tests,
    others,
    parse,
    run_frozen_tests,
    spatial,
)
from nearcast.space.shapes import BOX, DISC, POINT, ShapeKind, overlap
from support.examples import examples
from support.expression_strategies import substitute_all

STATIC = "{(x >= -3),(x <= 3),(y >= -2),(y <= 2)}"
EVOLVING = "{(x >= -3+t),(x <= 3+t),(y >= -2+t),(y <= 2+t)}"
Q = frozenset({"q"})


def refusal(text: str, variables: frozenset[str] = frozenset()) -> FormulaError:
    with pytest.raises(FormulaError) as caught:
        parse(text, variables)
    return caught.value


def contains(text: str, x: float, y: float = 0.0, z: float = 0.0, t: float = 0.0) -> bool:
    region = box_at(parse(text), t)
    return region is not None and region.touches(POINT, x, y, z, 0.0, 0.0, 0.0)


# [Evolving] and its claims 001.1 to 001.4.


def test_claim_1_a_publication_at_2_matches_below_3_and_not_below_1() -> None:
    assert contains("{(x < 3)}", 2)
    assert not contains("{x < 1}", 2)
    assert accepts(parse("price < 3"), {"price": 2}, 0.0)
    assert not accepts(parse("price < 1"), {"price": 2}, 0.0)


def test_claim_2_the_static_rectangle_rejects_the_apple() -> None:
    assert not contains(STATIC, 4, 3)
    assert contains(STATIC, 3, 2)


def test_claim_3_the_evolving_rectangle_rejects_the_apple_at_0_and_takes_it_at_1_and_2() -> None:
    assert not contains(EVOLVING, 4, 3, t=0)
    assert contains(EVOLVING, 4, 3, t=1)
    assert contains(EVOLVING, 4, 3, t=2)


@examples(200)
@given(
    st.one_of(
        st.integers(0, 8_000_000),
        st.sampled_from([999_999, 1_000_000, 1_000_001, 4_999_999, 5_000_000, 5_000_001]),
    )
)
def test_claim_3_the_apple_is_taken_exactly_from_1_to_5_seconds(microseconds: int) -> None:
    taken = contains(EVOLVING, 4, 3, t=microseconds / 1e6)
    assert taken == (1_000_000 <= microseconds <= 5_000_000)


@examples(100)
@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(-1e6, 1e6))
def test_claim_4_a_growing_bound_only_ever_widens(t: float, later: float, x: float) -> None:
    text = "{x < 1 + 0.5 * t}"
    assert contains(text, x, t=t) == (x < 1 + 0.5 * t)
    assert contains(text, x, t=max(t, later)) or not contains(text, x, t=min(t, later))


# Reading.


def test_a_list_of_predicates_is_read_in_order() -> None:
    parsed = parse("x >= -3 + t, kind == \"apple\", ripe != true, a.b_2 < 'm', n == 4")
    assert parsed.items == (
        Predicate("x", ">=", Call("+", (Call("negate", (Number(3.0),)), Variable("t")))),
        Predicate("kind", "==", Text("apple")),
        Predicate("ripe", "!=", Boolean(True)),
        Predicate("a.b_2", "<", Text("m")),
        Predicate("n", "==", Number(4.0)),
    )


@pytest.mark.parametrize(
    "text",
    ["{(x<1),(y>t)}", "{x<1,y>t}", "(x<1),(y>t)", " ( x < 1 ) ,y>t", "{\n x < (1),\n y > t\n}"],
)
def test_braces_and_parentheses_as_in_the_paper_change_nothing(text: str) -> None:
    assert parse(text) == parse("x < 1, y > t")


def test_predicates_are_split_into_the_region_and_the_filter() -> None:
    parsed = parse('kind == "a", z < 3, x < 1, y.z < 2, x > 0')
    assert [item.attribute for item in spatial(parsed)] == ["z", "x", "x"]
    assert [item.attribute for item in others(parsed)] == ["kind", "y.z"]


def test_or_binds_closer_than_the_comma_with_or_without_parentheses() -> None:
    a, b, c, d = (Predicate(name, "<", Number(1.0)) for name in "abcd")
    assert parse("a < 1 or b < 1") == Predicates((), ((a, b),))
    for text in (
        "a < 1, b < 1 or c < 1, d < 1",
        "{a < 1, (b < 1 or c < 1), (d < 1)}",
        "(a < 1), (b < 1) or (c < 1), d < 1",
    ):
        assert parse(text) == Predicates((a, d), ((b, c),))
        assert parse(text).clauses == ((a,), (d,), (b, c))
    assert parse("(a < 1 or b < 1) or c < 1 or (d < 1)").choices == ((a, b, c, d),)
    assert parse("a < 1 or b < 1 + t").evolves


CLAUSES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["<", ">=", "=="]), st.integers(0, 3)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=3,
)


@examples(100)
@given(clauses=CLAUSES, attributes=st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)))
def test_of_each_clause_one_predicate_must_hold(
    clauses: list[list[tuple[str, str, int]]], attributes: dict[str, Value]
) -> None:
    text = ", ".join(" or ".join(f"{n} {sign} {k}" for n, sign, k in each) for each in clauses)
    holds = all(
        any(n in attributes and naive_holds(attributes[n], sign, k) for n, sign, k in each)
        for each in clauses
    )
    assert accepts(parse(text), attributes, 0.0) is holds
    assert run_frozen_tests(freeze_tests(parse(text), 0.0), attributes) is holds


def test_a_choice_without_a_value_leaves_the_other() -> None:
    parsed = parse("n < 1 / t or m == 2")
    assert predicates.test_attributes(parsed, {"n": 1, "m": 2}, 0.0) is True
    assert predicates.test_attributes(parsed, {"n": 1, "m": 3}, 0.0) is None
    assert predicates.test_attributes(parsed, {"m": 3}, 0.0) is False
    assert predicates.test_attributes(parsed, {"n": "one", "m": 3}, 1.0) is None


def test_only_predicates_with_t_evolve() -> None:
    assert parse("x < 3, y < max(1, 2 - t)").evolves
    assert [item.evolves for item in parse("x < 3, y < max(1, 2 - t)").items] == [False, True]
    assert not parse('x < q, kind == "t"', Q).evolves


def test_a_text_is_read_once() -> None:
    assert parse("x < 3 + t") is parse("x < 3 + t")
    assert parse("x < q", Q) == parse("x < q", Q | {"p"})


def test_predicates_are_plain_values_even_after_use() -> None:
    used = parse("x < 3 + t, n == 1")
    assert used.evolves and box_at(used, 0.0) and accepts(used, {"n": 1}, 0.0)
    assert used == Predicates(used.items) and hash(used) == hash(Predicates(used.items))
    copy = pickle.loads(pickle.dumps(used))
    assert copy == used and box_at(copy, 1.0) == box_at(used, 1.0)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected an attribute, found the end"),
        ("{}", 1, "expected an attribute, found '}'"),
        ("x < 3,", 6, "expected an attribute, found the end"),
        ("x < 3,, y < 2", 6, "expected an attribute, found ','"),
        ("3 < x", 0, "expected an attribute, found '3'"),
        ("t < 3", 0, "expected an attribute, found 't'"),
        ("x < 3, sqrt == 2", 7, "expected an attribute, found 'sqrt'"),
        ("true == 3", 0, "expected an attribute, found 'true'"),
        ("_x < 3", 0, "unexpected character '_'"),
        ("х < 3", 0, "unexpected character 'х' (U+0445)"),
        ("x", 1, "expected one of < <= > >= == !=, found the end"),
        ("x 3", 2, "expected one of < <= > >= == !=, found '3'"),
        ("x = 3", 2, "unexpected character '='"),
        ("x => 3", 2, "unexpected character '='"),
        ("x < ", 4, "expected a value, found the end"),
        ("x < y", 4, "unknown name 'y'"),
        ("x < 1 < 2", 6, "expected ',' or the end, found '<'"),
        ("x < 1 y < 2", 6, "expected ',' or the end, found 'y'"),
        ("x < 1}", 5, "expected ',' or the end, found '}'"),
        ("{x < 1", 6, "expected '}', found the end"),
        ("{x < 1} ,", 8, "expected ',' or the end, found ','"),
        ("(x < 1", 6, "expected ')', found the end"),
        ("((x < 1))", 1, "expected an attribute, found '('"),
        ("n < 1 or", 8, "expected an attribute, found the end"),
        ("n < 1 or (m > 2", 15, "expected ')', found the end"),
        ("(n < 1 or (m > 2))", 10, "expected an attribute, found '('"),
        ("n < 1 or, m > 2", 8, "expected an attribute, found ','"),
        ("or < 1", 0, "expected an attribute, found 'or'"),
        ("n < or", 4, "unknown name 'or'"),
        ("n < 1, m > 2 or x < 3", 7, "x, y and z have no `or`: subscribe to each part of a region"),
        ("n < 1, x != 3", 9, "x cannot be compared with !="),
        ('x != "a"', 2, "x cannot be compared with !="),
        ('y == "a"', 5, "y can only be compared with numbers"),
        ("z == true", 5, "z can only be compared with numbers"),
        ("ripe <= true", 5, "true and false know only == and !="),
        ('n == "a" + 1', 5, "no arithmetic with '\"a\"'"),
        ("n < 3, x >= 3 + 1/0", 16, "'1/0' has no value"),
    ],
)
def test_every_refusal_says_why_and_where(text: str, position: int, reason: str) -> None:
    error = refusal(text)
    assert (error.text, error.position, error.reason) == (text, position, reason)


def test_a_refusal_reads_as_one_line() -> None:
    assert str(refusal("x >= 3 + q")) == "unknown name 'q' at character 9 of \"x >= 3 + q\""


def test_a_subscription_has_a_limited_number_of_predicates() -> None:
    assert len(parse(",".join(["n<1"] * MAX_PREDICATES)).items) == MAX_PREDICATES
    error = refusal(",".join(["n<1"] * (MAX_PREDICATES + 1)))
    assert (error.position, error.reason) == (4 * MAX_PREDICATES, "more than 32 predicates")


@pytest.mark.parametrize(
    "bomb",
    [
        ",".join(["n<1"] * 5_000),
        "{" * 1_000,
        "(" * 1_000,
        "x<" + "(" * 900,
        "x<" + "-" * 900,
        "x" * 1_000,
        "x < ١",
        "x\0 < 1",
        "n == '\u2028" + "\n" * 900,
        "," * 1_000,
    ],
)
def test_a_bomb_is_refused_with_one_short_line(bomb: str) -> None:
    message = str(refusal(bomb))
    assert message.splitlines() == [message] and message.isprintable()
    assert len(message) < 700


words = ["kind", "min", "true", "<=", ">=", "==", "!=", "1e308", '"a"']
fragments = st.sampled_from([*"xyntq10(),+-*/<>{}é \n\0'\"", *words])
clauses = st.tuples(
    st.sampled_from(["x", "n", "kind", "t"]),
    st.sampled_from(["<", ">=", "==", "!="]),
    st.lists(fragments, max_size=4).map(" ".join),
).map(" ".join)


@examples(400)
@given(
    st.one_of(
        st.text(max_size=40),
        st.lists(fragments, max_size=20).map("".join),
        st.lists(clauses, max_size=4).map(",".join),
    ),
    st.floats(),
)
def test_any_text_is_either_read_or_refused(text: str, t: float) -> None:
    try:
        parsed = parse(text, Q)
    except FormulaError as error:
        assert 0 <= error.position <= len(text)
        assert str(error).splitlines() == [str(error)]
    else:
        bound = substitute_all(parsed, {"q": t})
        box_at(bound, t)
        accepts(bound, {"kind": "a", "n": t}, t)


# Filters.


@pytest.mark.parametrize(
    ("text", "attributes", "accepted"),
    [
        ('kind == "apple"', {"kind": "apple"}, True),
        ('kind == "apple"', {"kind": "pear"}, False),
        ('kind != "apple"', {"kind": "pear"}, True),
        ('kind != "apple"', {}, False),
        ('kind != "apple"', {"kind": 3}, False),
        ('kind < "b"', {"kind": "apple"}, True),
        ('kind > "b"', {"kind": "apple"}, False),
        ("kind != 3", {"kind": "apple"}, False),
        ("ripe == true", {"ripe": True}, True),
        ("ripe == true", {"ripe": 1}, False),
        ("ripe != true", {"ripe": 0}, False),
        ("ripe != true", {"ripe": False}, True),
        ("n == 1", {"n": True}, False),
        ("n != 1", {"n": False}, False),
        ("n < 1", {"n": False}, False),
        ("n == 1", {"n": 1}, True),
        ("n == 1", {"n": 1.0}, True),
        ("n != 1", {"n": nan}, False),
        ("n < 1", {"n": nan}, False),
        ("n > 1", {"n": inf}, True),
        ("n == 9007199254740992", {"n": 2**53}, True),
        ("n == 9007199254740992", {"n": 2**53 + 1}, False),
        ("n > 9007199254740992", {"n": 2**53 + 1}, True),
        ("n > 1e308", {"n": 10**400}, True),
        ("n >= 3 + t", {"n": 5}, True),
        ("n >= 4 + t", {"n": 5}, False),
        ("n != 1 / (t - 2)", {"n": 5}, False),
        ("n < q", {"n": 5}, True),
        ("n < q", {}, False),
        ('kind == "apple", n > 3', {"kind": "apple", "n": 4}, True),
        ('kind == "apple", n > 3', {"kind": "apple", "n": 3}, False),
        ("x < 0", {}, True),
        ("x < 0, n == 1", {"x": 5, "n": 1}, True),
    ],
)
def test_a_filter_accepts_what_is_there_and_of_the_same_kind(
    text: str, attributes: Mapping[str, Value], accepted: bool
) -> None:
    assert accepts(substitute_all(parse(text, Q), {"q": 6.0}), attributes, 2.0) is accepted


LITERALS = {"0": 0.0, "1": 1.0, "-2.5": -2.5, '"a"': "a", "'b'": "b", "true": True, "false": False}
FOUND: list[Value] = [0, 1, 1.0, -2.5, nan, inf, "a", "b", "", True, False]
FAMILIES = {bool: "boolean", str: "string", int: "number", float: "number"}


def naive_holds(value: Any, sign: str, bound: Any) -> bool:
    if FAMILIES[type(value)] != FAMILIES[type(bound)] or value is nan:
        return False
    below, above = value < bound, value > bound
    holding = {"<": below, "<=": not above, ">": above, ">=": not below, "!=": below or above}
    return bool(holding.get(sign, not below and not above))


def test_a_filter_agrees_with_the_naive_rule_for_every_pair_of_kinds() -> None:
    for (text, bound), sign, value in product(
        LITERALS.items(), ["<", "<=", ">", ">=", "==", "!="], FOUND
    ):
        if isinstance(bound, bool) and sign not in ("==", "!="):
            continue
        accepted = accepts(parse(f"n {sign} {text}"), {"n": value}, 0.0)
        assert accepted is naive_holds(value, sign, bound), (value, sign, text)


# Zones.


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("x > 1, x < 3", Interval(1, 3, True, True)),
        ("x >= 1, x <= 3", Interval(1, 3)),
        ("x < 3", Interval(-inf, 3, False, True)),
        ("x >= 3", Interval(3, inf)),
        ("x == 3", Interval(3, 3)),
        ("x == 3, x <= 3, x >= 3", Interval(3, 3)),
        ("x >= 3, x > 3", Interval(3, inf, True)),
        ("x > 3, x >= 3", Interval(3, inf, True)),
        ("x > 3, x >= 4", Interval(4, inf)),
        ("x > 4, x >= 3", Interval(4, inf, True)),
        ("x < 3, x <= 3", Interval(-inf, 3, False, True)),
        ("x <= 2, x < 3", Interval(-inf, 2)),
        ("x == 3, x > 2, x < 4", Interval(3, 3)),
        ("y < 3", EVERY_NUMBER),
        ("n < 3", EVERY_NUMBER),
    ],
)
def test_predicates_on_one_axis_intersect_and_strict_wins_at_equal_bounds(
    text: str, interval: Interval
) -> None:
    region = box_at(parse(text), 0.0)
    assert region is not None and region.x == interval


@pytest.mark.parametrize(
    "text",
    ["x > 3, x < 3", "x >= 3, x < 3", "x == 3, x < 3", "x == 3, x == 4", "x < 1, y > 4, y < 3"],
)
def test_a_zone_without_a_point_is_none(text: str) -> None:
    assert box_at(parse(text), 0.0) is None


def test_a_zone_without_a_value_at_some_moment_is_none_then() -> None:
    parsed = parse("x < 1 / t, y > sqrt(t), z < 1")
    assert box_at(parsed, 0.0) is None
    assert box_at(parsed, -1.0) is None
    assert box_at(parsed, 4.0) == PredicateBox(
        Interval(-inf, 0.25, False, True), Interval(2, inf, True), Interval(-inf, 1, False, True)
    )


# Quarters are exact in floats, so that a rational oracle and the floats must agree.
quarters = st.integers(-16, 16).map(lambda n: n / 4)
sizes = st.integers(0, 12).map(lambda n: n / 4)
SIGNS = ("<", "<=", ">", ">=", "==")
bounds = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from(SIGNS), quarters), min_size=1, max_size=5
)
triples = st.tuples(quarters, quarters, quarters)


@examples(300)
@given(bounds, triples)
def test_a_point_is_in_the_zone_when_every_predicate_holds(
    clauses: list[tuple[str, str, float]], place: tuple[float, float, float]
) -> None:
    text = ", ".join(f"{axis} {sign} {bound}" for axis, sign, bound in clauses)
    coordinates = dict(zip("xyz", place, strict=True))
    expected = all(naive_holds(coordinates[axis], sign, bound) for axis, sign, bound in clauses)
    assert contains(text, *place) == expected


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, high = sorted([draw(quarters), draw(quarters)])
    wide = low < high  # a single number has no strict side
    low, strict_low = draw(st.sampled_from([(low, False), (low, wide), (-inf, False)]))
    high, strict_high = draw(st.sampled_from([(high, False), (high, wide), (inf, False)]))
    return Interval(low, high, strict_low, strict_high)


zones = st.builds(PredicateBox, intervals(), intervals(), intervals())


def within(interval: Interval, number: Fraction) -> bool:
    above = number > interval.low if interval.strict_low else number >= interval.low
    below = number < interval.high if interval.strict_high else number <= interval.high
    return above and below


def candidates(interval: Interval, centre: float, half: float) -> list[Fraction]:
    """The numbers of the interval where a common point is to be looked for.

    Ends of both, the centre, and a hair inside each end for those that are strict: with quarters,
    two shapes that have more than a border in common have more than a hair in common.
    """
    hair = Fraction(1, 10**6)
    ends = [interval.low, interval.high, centre - half, centre, centre + half]
    exact = [Fraction(end) for end in ends if math.isfinite(end)]
    around = [end + step for end in exact for step in (-hair, Fraction(0), hair)]
    return [number for number in around if within(interval, number)]


@examples(200)
@given(zones, triples, st.tuples(sizes, sizes, sizes))
def test_a_closed_box_touches_the_zone_when_they_share_a_point(
    region: PredicateBox, centre: tuple[float, float, float], halves: tuple[float, float, float]
) -> None:
    shared = all(
        any(abs(number - Fraction(c)) <= h for number in candidates(interval, c, h))
        for interval, c, h in zip((region.x, region.y, region.z), centre, halves, strict=True)
    )
    assert region.touches(BOX, *centre, *halves) == shared


@examples(300)
@given(zones, triples, sizes)
def test_a_closed_ball_touches_the_zone_when_they_share_a_point(
    region: PredicateBox, centre: tuple[float, float, float], radius: float
) -> None:
    axes = zip((region.x, region.y, region.z), centre, strict=True)
    squares = [
        min((number - Fraction(c)) ** 2 for number in candidates(interval, c, 0.0))
        for interval, c in axes
    ]
    shared = sum(squares) <= Fraction(radius) ** 2
    assert region.touches(DISC, *centre, radius, 0.0, 0.0) == shared


@examples(200)
@given(triples, st.tuples(sizes, sizes, sizes), st.sampled_from(ShapeKind), triples, sizes)
def test_a_closed_zone_touches_what_the_box_of_its_size_overlaps(
    middle: tuple[float, float, float],
    halves: tuple[float, float, float],
    kind: ShapeKind,
    centre: tuple[float, float, float],
    size: float,
) -> None:
    sides = [Interval(m - h, m + h) for m, h in zip(middle, halves, strict=True)]
    radii = {POINT: (0.0, 0.0, 0.0), DISC: (size, 0.0, 0.0), BOX: (size, size, 0.0)}[kind]
    expected = overlap(BOX, *middle, *halves, kind, *centre, *radii)
    assert PredicateBox(*sides).touches(kind, *centre, *radii) == expected


def test_strict_sides_stay_strict_for_every_shape() -> None:
    strict, closed = box_at(parse("x < 3"), 0.0), box_at(parse("x <= 3"), 0.0)
    assert strict is not None and closed is not None
    for kind, x, rx in [(POINT, 3.0, 0.0), (DISC, 3.0, 0.0), (DISC, 5.0, 2.0), (BOX, 5.0, 2.0)]:
        assert closed.touches(kind, x, 0.0, 0.0, rx, 0.0, 0.0)
        assert not strict.touches(kind, x, 0.0, 0.0, rx, 0.0, 0.0)
    assert strict.touches(DISC, 3.0, 0.0, 0.0, 0.25, 0.0, 0.0)
    assert strict.touches(BOX, 3.0, 0.0, 0.0, 0.25, 0.0, 0.0)


def test_a_ball_that_meets_a_zone_at_its_corner_needs_the_corner() -> None:
    closed, cut = box_at(parse("x >= 3, y >= 4"), 0.0), box_at(parse("x >= 3, y > 4"), 0.0)
    assert closed is not None and cut is not None
    assert closed.touches(DISC, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0)
    assert not closed.touches(DISC, 0.0, 0.0, 0.0, 4.99, 0.0, 0.0)
    assert not cut.touches(DISC, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0)
    assert cut.touches(DISC, 0.0, 0.0, 0.0, 5.01, 0.0, 0.0)


def test_an_unbounded_box_touches_everything_along_its_axis() -> None:
    region = box_at(parse("x > 100, y < -5"), 0.0)
    assert region is not None
    assert region.touches(BOX, 0.0, 0.0, 0.0, inf, inf, inf)
    assert region.touches(BOX, 0.0, -6.0, 0.0, inf, 0.0, 0.0)
    assert not region.touches(BOX, 0.0, -5.0, 0.0, inf, 0.0, inf)


def test_a_shape_with_nan_coordinates_touches_nothing() -> None:
    for kind in ShapeKind:
        assert PredicateBox().touches(kind, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
        assert not PredicateBox().touches(kind, 0.0, nan, 0.0, 1.0, 1.0, 1.0)
