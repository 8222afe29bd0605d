"""Conditions hold exactly if the subscription wants the publication; distances agree with that."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.pipeline.explain.conditions import border_distance, check_conditions
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import Shape, box, disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.row_values import publication_of, subscription_of
from nearcast.trace.sinks import MemoryTrace
from support.strategies import TIMES, publications, shapes, subscriptions


@given(subscriptions(), publications())
def test_all_conditions_hold_if_it_is_wanted(
    subscription: Subscription, publication: Publication
) -> None:
    conditions = check_conditions(subscription, publication)
    assert all(one.holds for one in conditions) == wants(subscription, publication, publication.t)
    assert len({one.name for one in conditions}) >= 4
    assert not any(one.holds for one in check_conditions(None, publication))


@given(shapes(), shapes())
def test_the_distance_to_the_border_is_below_zero_inside(region: Shape, other: Shape) -> None:
    distance = border_distance(region, other)
    size = max(
        abs(number) if abs(number) < inf else 0.0
        for one in (region, other)
        for number in (one.x, one.y, one.z, one.rx, one.ry, one.rz)
    )
    if abs(distance) > 1e-9 * (1 + size):  # else a border, which `overlap` decides
        assert (distance < 0) == region.touches(other)


@given(subscriptions(), publications(), TIMES)
def test_a_recorded_row_wants_what_the_subscription_wanted(
    subscription: Subscription, publication: Publication, later: int
) -> None:
    region, condition = subscription.region, subscription.filter
    since = region.legs[0].since if not isinstance(region, Moving | Formula) else region.since
    if isinstance(region, Formula) and condition is not None:
        condition = Filter(condition.text, since)  # the two share one clock
    subscription = Subscription(
        subscription.id, subscription.node, region, condition, subscription.channel,
        subscription.echo,
    )  # fmt: skip
    t = max(since, publication.t - later % SECOND)
    sink = MemoryTrace()
    recorder = Recorder(sink)
    recorder.interest(t, subscription)
    recorder.published(publication)
    recorder.ended(t + SECOND, subscription.node, subscription.id)
    recorder.close()
    first, last = sink.table("interests").to_pylist()
    (row,) = sink.table("publications").to_pylist()
    found, made = subscription_of(first), publication_of(row)
    assert found is not None and subscription_of(last) is None
    at = max(t, publication.t)
    if isinstance(region, Moving | Formula):
        assert found.region.touches(made.shape, at) == region.touches(publication.shape, at)
    assert (found.channel, found.echo, made.attributes) == (
        subscription.channel, subscription.echo, publication.attributes,
    )  # fmt: skip
    if condition is not None:
        assert found.filter is not None
        accepted = condition.accepts(publication.attributes, at)
        assert found.filter.accepts(made.attributes, at) == accepted


def test_distances_are_those_that_a_person_would_measure() -> None:
    assert border_distance(disc(0, 0, 5), point(3, 4)) == 0
    assert border_distance(disc(0, 0, 5), point(6, 8)) == 5
    assert border_distance(disc(0, 0, 5), disc(6, 8, 2)) == 3
    assert border_distance(box(0, 0, 2, 3), point(5, 7)) == 5
    assert border_distance(box(0, 0, 2, 3), point(1, 0)) == -1
    assert border_distance(box(0, 0, 2, 3), disc(5, 7, 1)) == 4
    assert border_distance(box(0, 0, inf, 3), point(1e9, 5)) == 2


def test_each_predicate_of_a_filter_is_told_with_its_numbers() -> None:
    wanted = Subscription(
        1, 2, Moving(disc(0, 0, 9)), Filter('price < 10 + t, kind == "apple"', SECOND), "fruit"
    )
    publication = Publication(1, 3, 3 * SECOND, point(1, 2), "fruit", {"price": 15})
    *_, price, kind = check_conditions(wanted, publication)
    assert (price.holds, price.detail) == (
        False,
        "price < 10 + t: the publication has 15, and the bound is 12",
    )
    assert (kind.holds, kind.detail) == (False, 'kind == "apple": the publication has none')


def test_predicates_with_or_between_them_are_one_condition() -> None:
    wanted = Subscription(
        1, 2, Moving(disc(0, 0, 9)), Filter('price < 3 or price > 9 + t or kind == "gift"')
    )
    for price, holds in ((5, False), (2, True), (11, True)):
        publication = Publication(1, 3, SECOND, point(1, 2), attributes={"price": price})
        *_, choice = check_conditions(wanted, publication)
        assert (choice.holds, choice.detail) == (
            holds,
            'price < 3 or price > 9 + t or kind == "gift": the publication has '
            f"{price}; has {price}, and the bound is 10; has none",
        )


@given(st.sampled_from(["chat", ""]), st.booleans())
def test_channel_and_publisher_are_conditions(channel: str, echo: bool) -> None:
    wanted = Subscription(1, 2, Moving(disc(0, 0, 9)), channel=channel, echo=echo)
    conditions = check_conditions(wanted, Publication(1, 2, 5, point(0, 0), "chat"))
    failed = {one.name for one in conditions if not one.holds}
    due = ({"channel"} if channel != "chat" else set()) | (set() if echo else {"publisher"})
    assert failed == due
