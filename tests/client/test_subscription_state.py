"""What a client asks for when it subscribes again after its connection was lost."""

from hypothesis import given
from hypothesis import strategies as st

from nearcast.client.subscription_state import SubscriptionState
from nearcast.client_protocol.geometry_json import area_from_region, region_from_area
from nearcast.client_protocol.messages import SubscribeRequest
from nearcast.model.subscription import Filter, Formula, Region, Value
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.shapes import disc, point
from support.random_motions import distance, moments, motions


def subscription(region: Region | str, condition: str | None = None) -> SubscriptionState:
    return SubscriptionState(SubscribeRequest(1, area_from_region(region), condition), region)


@given(motions, st.integers(0, 10**9), st.integers(0, 10**9), moments)
def test_a_motion_that_comes_back_goes_on_as_if_nothing_had_happened(
    motion: Moving | Path, since: Time, gone: Time, times: list[Time]
) -> None:
    here = subscription(motion)
    here.area_accepted(motion, False, since)
    back = since + gone
    request, _ = here.request_at(back)
    again = region_from_area(request.area)
    assert not isinstance(again, Formula)
    for t in times:
        assert distance(again.stamped(back).at(back + t), motion.stamped(since).at(back + t)) < 2e-2


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_a_formula_and_a_filter_that_come_back_go_on(seconds: float, t: float) -> None:
    since, gone = 7 * SECOND, round(seconds * SECOND)
    formula, condition = "x >= -3 + 2 * t, x < 3 + 2 * t, y <= sin(t)", "top == 't', k < 5 * t - 1"
    here = subscription(formula, condition)
    here.area_accepted(formula, False, since)
    request, _ = here.request_at(since + gone)
    assert request.area.formula is not None
    assert request.filter is not None
    moment = since + gone + round(t * SECOND)
    first, again = Formula(formula, since), Formula(request.area.formula, since + gone)
    old, new = Filter(condition, since), Filter(request.filter, since + gone)
    for step in range(-8, 9):
        x = 2 * (moment - since) / SECOND + step / 2 + 0.01
        where = point(x, -1)
        assert first.touches(where, moment) == again.touches(where, moment)
        attributes: dict[str, Value] = {"top": "t", "k": 2.5 * x + 0.013}
        assert old.accepts(attributes, moment) == new.accepts(attributes, moment)


def test_a_filter_goes_on_when_its_area_moves_and_begins_anew_with_a_formula() -> None:
    here = subscription(Moving(disc(0, 0, 1)), "k < t")
    here.area_accepted(here.region, True, 7 * SECOND)
    here.area_accepted(Moving(disc(9, 0, 1)), True, 10 * SECOND)
    assert here.request_at(12 * SECOND)[0].filter == "k < (t + 5.0)"
    here.moved(area_from_region("x < t"), "x < t", False, 13 * SECOND)
    request, _ = here.request_at(15 * SECOND)
    assert (request.filter, request.area.formula) == ("k < (t + 2.0)", "x < (t + 2.0)")
