"""Commands: the node that accepts one stamps it with its own clock; and [Evolving] end to end."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Region, Subscription, Value
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.shapes import Shape, box, disc, point
from support.examples import examples
from support.strategies import ATTRIBUTES, CHANNELS, FILTERS, TIMES, regions, shapes


@examples(40)
@given(
    regions(),
    st.none() | st.builds(Filter, st.sampled_from(FILTERS), TIMES),
    CHANNELS,
    st.booleans(),
    TIMES,
)
def test_a_subscription_begins_when_its_node_accepts_the_command(
    region: Region, wanted: Filter | None, channel: str, echo: bool, now: int
) -> None:
    stamped = Subscribe(7, region, wanted, channel, echo).stamped(3, now)
    assert (stamped.id, stamped.node, stamped.channel, stamped.echo) == (7, 3, channel, echo)
    assert stamped.region == region.stamped(now)
    assert stamped.region.since == now
    assert stamped.filter == (None if wanted is None else Filter(wanted.text, now))


@examples(40)
@given(shapes(), CHANNELS, ATTRIBUTES, st.binary(max_size=20), TIMES)
def test_a_publication_is_made_when_its_node_accepts_the_command(
    shape: Shape, channel: str, attributes: dict[str, Value], payload: bytes, now: int
) -> None:
    stamped = Publish(7, shape, channel, attributes, payload).stamped(3, now)
    assert stamped == Publication(7, 3, now, shape, channel, attributes, payload)


def test_a_command_without_options_has_the_defaults() -> None:
    assert Subscribe(1, Moving(disc(0, 0, 1))).stamped(2, 5) == Subscription(
        1, 2, Moving(disc(0, 0, 1), since=5), filter=None, channel="", echo=False
    )
    assert Publish(1, point(0, 0)).stamped(2, 5) == Publication(
        1, 2, 5, point(0, 0), channel="", attributes={}, payload=b""
    )


def test_a_command_can_be_given_twice() -> None:
    """A stamp belongs to the subscription; the command stays as it was written."""
    subscribe = Subscribe(
        1, path(disc(0, 0, 1), [(1.0, 0.0, 0.0), (2.0, 0.0, 0.0)], 1.0), Filter("weight > t")
    )
    first, second = subscribe.stamped(2, 5 * SECOND), subscribe.stamped(2, 9 * SECOND)
    assert subscribe.region.since == 0
    assert subscribe.filter == Filter("weight > t", 0)
    assert first.region.stamped(9 * SECOND) == second.region
    assert (first.region.since, second.region.since) == (5 * SECOND, 9 * SECOND)


@pytest.mark.parametrize(("name", "value"), [("x", 1), ("t", 0), ("weight", float("nan"))])
def test_an_invalid_publication_is_refused_when_it_is_stamped(name: str, value: Value) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        Publish(1, point(0, 0), attributes={name: value}).stamped(1, 0)


# [Evolving] section 3: the player's rectangle and the apple at (4, 3).

STATIC = "{(x >= -3),(x <= 3),(y >= -2),(y <= 2)}"
EVOLVING = "{(x >= -3+t),(x <= 3+t),(y >= -2+t),(y <= 2+t)}"
PLAYER, PICKER = 1, 2


def receives(subscribe: Subscribe, submitted: int, made: int) -> bool:
    """From the two commands over the wire to the verdict, as a broker would come to it."""
    subscription = subscribe.stamped(PLAYER, submitted)
    pick_up = Publish(1, point(4, 3), attributes={"kind": "apple"}).stamped(PICKER, made)
    subscription = msgspec.msgpack.decode(msgspec.msgpack.encode(subscription), type=Subscription)
    pick_up = msgspec.msgpack.decode(msgspec.msgpack.encode(pick_up), type=Publication)
    return wants(subscription, pick_up, pick_up.t)


@examples(40)
@given(
    TIMES,
    st.integers(0, 8 * SECOND)
    | st.sampled_from([SECOND - 1, SECOND, SECOND + 1, 5 * SECOND - 1, 5 * SECOND, 5 * SECOND + 1]),
)
def test_the_moving_player_receives_the_apple_from_1_to_5_seconds_after_submission(
    submitted: int, after: int
) -> None:
    made = submitted + after
    moving = Moving(box(0, 0, 3, 2), (1.0, 1.0, 0.0))
    expected = SECOND <= after <= 5 * SECOND
    assert receives(Subscribe(1, Formula(EVOLVING)), submitted, made) == expected
    assert receives(Subscribe(1, moving), submitted, made) == expected
    assert not receives(Subscribe(1, Formula(STATIC)), submitted, made)
    assert not receives(Subscribe(1, Moving(box(0, 0, 3, 2))), submitted, made)


def test_a_filter_selects_apples_alone() -> None:
    for kind, expected in (("apple", True), ("pear", False)):
        subscribe = Subscribe(1, Formula(EVOLVING), Filter(f'kind == "{kind}"'))
        assert receives(subscribe, 7 * SECOND, 8 * SECOND) == expected


def test_a_player_that_turns_starts_a_new_clock_and_one_that_is_moved_keeps_its_filters() -> None:
    subscribed = Subscribe(1, Formula(EVOLVING), Filter("weight <= t")).stamped(PLAYER, 0)
    turn = Move(1, Formula("x >= -3 - t, x <= 3 - t"))
    turned = subscribed.moved(turn.region, 10 * SECOND)
    light = Publish(1, point(4, 3), attributes={"weight": 2}).stamped(PICKER, 0)
    assert wants(subscribed, light, 2 * SECOND)
    assert not wants(turned, light, 10 * SECOND), "it begins anew, so nothing is light enough"
    left = Publish(1, point(-4, 0), attributes={"weight": 2}).stamped(PICKER, 0)
    assert not wants(turned, left, 12 * SECOND - 1)
    assert wants(turned, left, 12 * SECOND)
    carried = subscribed.moved(Move(1, Moving(box(4, 3, 1, 1))).region, 10 * SECOND)
    assert wants(carried, light, 10 * SECOND), "its filter has been counting all the while"
