"""Variables of the application: bound by writing their numbers in their places."""

from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import FormulaError
from nearcast.model.commands import Command, Subscribe, Tune, continue_region
from nearcast.model.predicates import accepts, box_at, parse
from nearcast.model.subscription import Filter, Formula
from nearcast.model.variables import bind
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.shapes import EVERYWHERE, disc, point
from support.examples import examples
from support.expression_strategies import substitute_all

FINITE = st.floats(-1e6, 1e6) | st.integers(-5, 5).map(float) | st.sampled_from([1e300, 5e-324])
REGION = "{(x >= -view - 2*view*t), (x<=view+t)}"
CONDITION = "price <= limit + 0.5 * t, limit > price, symbol == 'price limit'"


@examples(200)
@given(view=FINITE, t=st.floats(0, 100))
def test_a_bound_region_is_the_region_with_those_values(view: float, t: float) -> None:
    bound = parse(bind(REGION, {"view": view}))
    open_one = parse(REGION, frozenset({"view"}))
    assert box_at(bound, t) == box_at(substitute_all(open_one, {"view": view}), t)


@examples(200)
@given(limit=FINITE, price=FINITE, said=FINITE, t=st.floats(0, 100))
def test_names_on_the_left_are_attributes_and_names_on_the_right_are_variables(
    limit: float, price: float, said: float, t: float
) -> None:
    values = {"limit": limit, "price": price}
    attributes = {"price": said, "limit": said / 2, "symbol": "price limit"}
    bound = bind(CONDITION, values)
    assert accepts(parse(bound), attributes, t) == (said <= limit + 0.5 * t and said / 2 > price)
    assert "'price limit'" in bound


def test_text_without_variables_stays_as_it_is() -> None:
    text = "{ (x >= -3+t) , y<2 }"
    assert bind(text, {}) == bind(text, {"unused": 3.0}) == text


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("x <= 3 + veiw", 9, "unknown name 'veiw'"),
        ("x <= view, y > foo(2)", 15, "unknown name 'foo'"),
        ("x <= 1 / view", 5, "has no value"),
        ("x <= sqrt(view - 1)", 5, "has no value"),
    ],
)
def test_an_unknown_name_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(FormulaError, match=reason) as refused:
        bind(text, {"view": 0.0})
    assert refused.value.position == position
    with pytest.raises(FormulaError, match=reason):
        Subscribe(1, text, variables={"view": 0.0})
    with pytest.raises(FormulaError, match=reason):
        Subscribe(1, Moving(EVERYWHERE), text.replace("x", "a").replace("y", "b"),
                  variables={"view": 0.0})  # fmt: skip


@pytest.mark.parametrize(
    "variables",
    [{"v": nan}, {"v": inf}, {"t": 1.0}, {"true": 1.0}, {"sin": 1.0}, {"v": "3"}, {"v": True},
     {"v": 10**400}],
)  # fmt: skip
def test_what_cannot_be_a_variable_is_refused(variables: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Tune(1, variables)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Subscribe(1, Moving(EVERYWHERE), variables=variables)


def test_a_region_has_predicates_on_coordinates_and_a_filter_has_none() -> None:
    with pytest.raises(ValueError, match="x, y and z alone"):
        Subscribe(1, "price > v", variables={"v": 1.0})
    with pytest.raises(ValueError, match="cannot speak of x"):
        Subscribe(1, Moving(EVERYWHERE), "x > v", variables={"v": 1.0})


def test_a_tune_changes_the_variables_and_restarts_no_clock() -> None:
    command = Subscribe(1, "x <= view + t", "price < limit", variables={"view": 3.0, "limit": 9.0})
    first = command.stamped(7, 5 * SECOND)
    assert first.region == Formula("x <= 3.0 + t", 5 * SECOND)
    assert first.filter == Filter("price < 9.0", 5 * SECOND)
    tuned = command.tuned({"view": 4.0}).rebound(first, 8 * SECOND)
    assert tuned.region == Formula("x <= 4.0 + t", 5 * SECOND)
    assert tuned.filter == first.filter
    assert tuned.region.touches(point(7, 0), 8 * SECOND)
    moved = command.moved(Moving(disc(0, 0, 1)))
    after = first.moved(Moving(disc(0, 0, 1)), 6 * SECOND)
    again = moved.tuned({"limit": 1.0}).rebound(after, 6 * SECOND)
    assert again.region == after.region
    assert again.filter == Filter("price < 1.0", 5 * SECOND)


def test_a_tune_that_leaves_no_value_is_refused() -> None:
    command = Subscribe(1, "x <= 1 / view", variables={"view": 3.0})
    with pytest.raises(FormulaError, match="has no value"):
        command.tuned({"view": 0.0})


@examples(50)
@given(now=st.integers(0, 20 * SECOND), later=st.integers(0, 20 * SECOND))
def test_a_motion_goes_on_from_where_it_is(now: int, later: int) -> None:
    walk = path(disc(0, 0, 1), [(4.0, 0.0, 0.0), (4.0, 8.0, 0.0)], 1.0).stamped(2 * SECOND)
    for region in (walk, walk.legs[0], Moving(disc(0, 0, 1), (0.5, 0, 0), (0.25, 0, 0))):
        onwards = continue_region(region, now)
        before, after = region.at(now + later), onwards.at(now + later)
        assert after.kind == before.kind
        for axis in ("x", "y", "z", "rx"):
            assert getattr(after, axis) == pytest.approx(getattr(before, axis), abs=1e-9)
        assert onwards.since == max(now, region.since)


def test_commands_with_variables_can_be_read_from_a_file() -> None:
    subscribe = Subscribe(1, "x < v", "price > v", variables={"v": 2.5})
    for command in (subscribe, Subscribe(2, Formula("x < 3")), Subscribe(3, Moving(disc(0, 0, 1)))):
        text = msgspec.json.encode(command)
        assert msgspec.json.decode(text, type=Subscribe) == command
    assert Tune in Command.__args__
