"""Regions on their way to a node, and what a subscription that comes back asks for."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from nearcast.client.inbox import Inbox
from nearcast.client.subscription import Subscription
from nearcast.client_protocol import geometry_json
from nearcast.client_protocol.messages import SubscribeRequest
from nearcast.client_protocol.regions import Where, area_of, later, region_of
from nearcast.model.subscription import Filter, Formula, Region, Value
from nearcast.space.motion import SECOND, Moving, Path, Time, line, path
from nearcast.space.shapes import EVERYWHERE, Shape, ball, box, cuboid, disc, point

places = st.floats(-1e4, 1e4)
extents = st.floats(0, 1e3)
shapes: st.SearchStrategy[Shape] = st.one_of(
    st.builds(point, places, places, places),
    st.builds(disc, places, places, extents),
    st.builds(ball, places, places, places, extents),
    st.builds(box, places, places, extents, extents),
    st.builds(cuboid, places, places, places, extents, extents, extents),
)
speeds = st.floats(0.1, 1e3)
vectors = st.tuples(places, places, places)
motions: st.SearchStrategy[Moving | Path] = st.one_of(
    st.builds(Moving, shapes, st.tuples(speeds, speeds, speeds)),
    st.builds(line, shapes, vectors, speeds),
    st.builds(path, shapes, st.lists(vectors, min_size=1, max_size=4), speeds),
)
moments = st.lists(st.integers(0, 10**10), min_size=1, max_size=5)


def apart(one: Shape, other: Shape) -> float:
    assert one.kind == other.kind
    pairs = zip(astuple(one)[1:], astuple(other)[1:], strict=True)
    return float(max(abs(a - b) for a, b in pairs))


@given(motions, moments)
def test_a_node_reads_the_motion_that_was_meant(motion: Moving | Path, times: list[Time]) -> None:
    read = geometry_json.region(area_of(motion))
    assert not isinstance(read, Formula)
    for t in times:
        assert apart(read.at(t), motion.at(t)) < 1e-2  # at most 1,000 units/s for 2 µs a leg


@pytest.mark.parametrize("where", [disc(1, 2, 3), EVERYWHERE, point(1, 2, 3), box(1, 2, 0, 4)])
def test_a_node_reads_the_shape_that_was_meant(where: Shape) -> None:
    assert geometry_json.region(area_of(region_of(where))) == Moving(where)


@pytest.mark.parametrize("where", ["x >= -3 + t", Formula("x >= -3 + t")])
def test_a_node_reads_the_formula_that_was_meant(where: Where) -> None:
    assert geometry_json.region(area_of(region_of(where))) == Formula("x >= -3 + t")


def test_a_path_of_several_speeds_cannot_be_told() -> None:
    slow, fast = line(disc(0, 0, 1), (10, 0, 0), 1), line(disc(10, 0, 1), (20, 0, 0), 2)
    legs = (slow, fast.stamped(10 * SECOND))
    with pytest.raises(ValueError, match="must have one speed"):
        area_of(Path(legs))


def subscription(region: Region | str, condition: str | None = None) -> Subscription:
    async def ask(_request: object) -> None:
        raise AssertionError("nobody is asked")

    request = SubscribeRequest(1, area_of(region), condition)
    return Subscription(ask, lambda _: None, request, region, 1)


@given(motions, st.integers(0, 10**9), st.integers(0, 10**9), moments)
def test_a_motion_that_comes_back_goes_on_as_if_nothing_had_happened(
    motion: Moving | Path, since: Time, gone: Time, times: list[Time]
) -> None:
    here = subscription(motion)
    here.placed(motion, False, since)
    back = since + gone
    request, _ = here.resumed(back)
    again = geometry_json.region(request.area)
    assert not isinstance(again, Formula)
    for t in times:
        assert apart(again.stamped(back).at(back + t), motion.stamped(since).at(back + t)) < 2e-2


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_a_formula_and_a_filter_that_come_back_go_on(seconds: float, t: float) -> None:
    since, gone = 7 * SECOND, round(seconds * SECOND)
    formula, condition = "x >= -3 + 2 * t, x < 3 + 2 * t, y <= sin(t)", "top == 't', k < 5 * t - 1"
    here = subscription(formula, condition)
    here.placed(formula, False, since)
    request, _ = here.resumed(since + gone)
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
    here.placed(here.region, True, 7 * SECOND)
    here.placed(Moving(disc(9, 0, 1)), True, 10 * SECOND)
    assert here.resumed(12 * SECOND)[0].filter == "k < (t + 5.0)"
    here.request = replace(here.request, area=area_of("x < t"))
    here.placed("x < t", False, 13 * SECOND)
    request, _ = here.resumed(15 * SECOND)
    assert (request.filter, request.area.formula) == ("k < (t + 2.0)", "x < (t + 2.0)")


def test_only_the_time_itself_is_shifted() -> None:
    text = "x >= t + tall * 2, top == 't', x <= min(t, 3)"
    shifted = "x >= (t + 2.5) + tall * 2, top == 't', x <= min((t + 2.5), 3)"
    assert later(text, 2.5, frozenset({"tall"})) == shifted


@given(st.lists(st.one_of(st.integers(), st.none()), max_size=30), st.integers(1, 5))
def test_an_inbox_keeps_the_newest_and_counts_the_rest(acts: list[int | None], size: int) -> None:
    """Against a plain list; None takes one out."""

    async def story() -> None:
        inbox: Inbox[int] = Inbox(size)
        kept: list[int] = []
        dropped = 0
        for act in acts:
            if act is None and kept:
                assert await anext(inbox) == kept.pop(0)
            elif act is not None:
                inbox.put(act)
                kept.append(act)
                dropped += len(kept) > size
                kept = kept[-size:]
            assert (len(inbox), inbox.dropped) == (len(kept), dropped)
        inbox.end(None)
        assert [item async for item in inbox] == kept

    asyncio.run(story())


def test_an_inbox_holds_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Inbox(0)
