"""Retained states of a client whose node is restarted: remembered, forgotten, published again."""

from typing import Any

import pytest
from msgspec.structs import replace

from nearcast.client.effects import (
    AnswerDue,
    Answered,
    Ask,
    ClientEffect,
    Connect,
    Disconnect,
    Failed,
    RetryDue,
    ServedAgain,
    Told,
    Welcomed,
)
from nearcast.client.published_states import BATCH
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.messages import (
    ErrorNotice,
    MovedNotice,
    NearbyRequest,
    PublishRequest,
    SubscribeRequest,
    WithdrawRequest,
)
from nearcast.errors import ClosedError, InvalidRequestError, Refused
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import disc
from support.timed_core import ENTITY, PARAMETERS, TimedCore, pause


def state(x: float, name: str = "", channel: str = "", **more: Any) -> PublishRequest:
    return PublishRequest(x, 0.0, retain=True, name=name, channel=channel, **more)


def published(one: TimedCore, *states: PublishRequest) -> TimedCore:
    """With these retained states, on connection 1."""
    for request in states:
        number, _ = one.ask(request)
        assert isinstance(one.done(1, number)[0], Answered)
    return one


def reconnecting(one: TimedCore, connection: int = 1) -> int:
    """It has lost this connection, and joins on the next. The number of that request."""
    one.wake(RetryDue(), pause(one.lost(connection)))
    return joining(one, connection + 1)


def joining(one: TimedCore, connection: int) -> int:
    join = one.connected(connection)[0]
    assert isinstance(join, Ask)
    return join.number


def asked(effects: list[ClientEffect]) -> list[Any]:
    """Requests, without their numbers."""
    return [replace(one.request, id=None) for one in effects if isinstance(one, Ask)]


def restored(one: TimedCore, connection: int = 2) -> list[Any]:
    """What it asks for of a node that accepts all, from its welcome until it is served."""
    join = reconnecting(one, connection - 1)
    effects = one.welcome(connection, join)
    requests = []
    while not any(isinstance(effect, ServedAgain) for effect in effects):
        requests += asked(effects)
        effects = [
            effect
            for sent in effects
            if isinstance(sent, Ask)
            for effect in one.done(connection, sent.number)
        ]
    return requests


# Publishing states again.


def test_a_client_comes_back_with_subscriptions_then_states_then_what_waits() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"), state(3.0, "", "talk"))
    one.subscribed(disc(0, 0, 5))
    join = reconnecting(one)
    waiting, _ = one.ask(NearbyRequest(Area()))
    again = SubscribeRequest(1, Area(0.0, 0.0, r=5.0), id=8)
    assert one.welcome(2, join, entity=8)[:2] == [Welcomed(8), Ask(2, again, 8)]
    assert one.done(2, 8) == [
        Ask(2, state(1.0, id=9), 9),
        Ask(2, state(2.0, "orc", id=10), 10),
        Ask(2, state(3.0, "", "talk", id=11), 11),
    ]
    assert one.done(2, 10) == one.done(2, 9) == []
    assert one.core.serving is None, "not all states are back"
    assert one.done(2, 11) == [
        ServedAgain([]),
        Ask(2, NearbyRequest(Area(), id=waiting), waiting),
    ], "and nobody is answered whose request it was before"


def test_the_last_state_counts_and_plain_publications_are_not_repeated() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0), PublishRequest(9.0, 9.0))
    one.ask(state(3.0, "orc"), confirm=False)
    one.core.published(state(4.0, "orc"))
    one.core.published(PublishRequest(5.0, 5.0, name="orc"))
    assert restored(one) == [state(2.0), state(4.0, "orc")]
    assert restored(one, 3) == [state(2.0), state(4.0, "orc")], "each time"


def test_answers_in_another_order_do_not_bring_an_older_state_back() -> None:
    one = TimedCore().opened()
    slow, _ = one.ask(state(1.0))
    one.core.published(state(2.0))
    one.done(1, slow)
    first, second = one.ask(state(3.0, "orc"))[0], one.ask(state(4.0, "orc"))[0]
    one.done(1, second)
    one.done(1, first)
    assert restored(one) == [state(2.0), state(4.0, "orc")]


def test_what_was_refused_or_not_sent_changes_no_state() -> None:
    one = published(TimedCore().opened(), state(1.0))
    refused, _ = one.ask(state(2.0))
    one.get(1, ErrorNotice("no", refused))
    for why in (InvalidRequestError("a frame has at most 9 bytes"), ConnectionError("gone")):
        not_sent, _ = one.ask(state(3.0))
        assert one.core.not_sent(one.now, not_sent, why) == [Failed(not_sent, why)]
        not_sent, _ = one.ask(WithdrawRequest())
        assert one.core.not_sent(one.now, not_sent, why) == [Failed(not_sent, why)]
    assert restored(one) == [state(1.0)]


@pytest.mark.parametrize("how", ["lost", "abandoned", "silent"])
def test_a_state_without_an_answer_may_have_been_seen_and_counts(how: str) -> None:
    one = published(TimedCore().opened(), state(1.0))
    number, _ = one.ask(state(2.0))
    if how == "lost":
        why = ClosedError("the connection is lost")
        assert one.core.lost(one.now, 1)[0] == Failed(number, why)
        one.wake(RetryDue(), PARAMETERS.first_pause)
        join = joining(one, 2)
        assert asked(one.welcome(2, join)) == [state(2.0)]
        return
    if how == "abandoned":
        one.core.abandon(one.now, number)
    else:
        one.wake(AnswerDue(), PARAMETERS.answer)
    assert restored(one) == [state(2.0)]


def test_a_waiting_state_replaces_the_former_one_which_is_not_published_again() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"))
    join = reconnecting(one)
    first, second = one.ask(state(3.0))[0], one.ask(state(4.0, "", "talk"), confirm=False)[0]
    (_, ask) = one.welcome(2, join)
    assert isinstance(ask, Ask) and asked([ask]) == [state(2.0, "orc")]
    assert one.done(2, ask.number) == [
        ServedAgain([]),
        Ask(2, state(3.0, id=first), first),
        Ask(2, state(4.0, "", "talk"), second),
        Answered(second, None),
    ]
    one.done(2, first)
    assert restored(one, 3) == [state(3.0), state(2.0, "orc"), state(4.0, "", "talk")]


@pytest.mark.parametrize("how", ["refused", "not sent"])
def test_a_state_is_published_again_when_the_one_that_should_replace_it_is_not(how: str) -> None:
    one = published(TimedCore().opened(), state(1.0))
    join = reconnecting(one)
    first, second = one.ask(state(2.0))[0], one.ask(state(3.0))[0]
    assert asked(one.welcome(2, join)) == [state(2.0), state(3.0)]
    why = Refused("no") if how == "refused" else InvalidRequestError("a frame has at most 9 bytes")

    def fail(number: int) -> list[ClientEffect]:
        if how == "refused":
            return one.get(2, ErrorNotice("no", number))
        return one.core.not_sent(one.now, number, why)

    assert fail(first) == [Failed(first, why)], "the other one may replace it yet"
    assert fail(second) == [Failed(second, why), Ask(2, state(1.0), second + 1)]
    assert restored(one, 3) == [state(1.0)]


def test_a_state_that_a_withdrawal_may_have_ended_is_not_published_after_it() -> None:
    one = published(TimedCore().opened(), state(1.0))
    join = reconnecting(one)
    replacing, withdrawal = one.ask(state(2.0))[0], one.ask(WithdrawRequest())[0]
    one.welcome(2, join)
    assert one.get(2, ErrorNotice("no", replacing)) == [Failed(replacing, Refused("no"))]
    assert asked(one.done(2, withdrawal)) == restored(one, 3) == []


def test_a_state_is_published_again_when_nobody_waits_to_replace_it_any_more() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"))
    join = reconnecting(one)
    waiting, _ = one.ask(state(3.0))
    (_, ask) = one.welcome(2, join)
    assert isinstance(ask, Ask) and asked([ask]) == [state(2.0, "orc")]
    assert one.core.abandon(one.now, waiting) == []
    assert asked(one.done(2, ask.number)) == [state(1.0)]


def test_what_a_waiting_withdrawal_ends_is_there_before_it() -> None:
    """A node refuses to withdraw for an entity that it does not know."""
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"))
    join = reconnecting(one)
    withdrawal, _ = one.ask(WithdrawRequest(None, "orc"))
    later, _ = one.ask(state(3.0, "orc"))
    effects = one.welcome(2, join)
    assert asked(effects) == [state(1.0), state(2.0, "orc")]
    for ask in effects[1:]:
        assert isinstance(ask, Ask)
        effects = one.done(2, ask.number)
    assert asked(effects) == [WithdrawRequest(None, "orc"), state(3.0, "orc")]
    one.done(2, withdrawal)
    one.done(2, later)
    assert restored(one, 3) == [state(1.0), state(3.0, "orc")]


def test_a_refused_state_is_told_forgotten_and_the_end_of_nothing() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc", "talk"))
    here = one.subscribed(disc(0, 0, 5))
    join = reconnecting(one)
    one.welcome(2, join)
    first, second = [e.number for e in one.done(2, join + 1) if isinstance(e, Ask)]
    assert one.get(2, ErrorNotice("not there", first)) == [
        Told(
            ErrorNotice(
                "the retained state of 'anna' on channel '' is not accepted again: not there"
            )
        )
    ]
    told, served = one.get(2, ErrorNotice("nor there", second))
    assert isinstance(told, Told) and isinstance(told.notice, ErrorNotice)
    assert "'orc' on channel 'talk'" in told.notice.reason
    assert served == ServedAgain([])
    assert one.core.subscriptions == {1: here}
    assert len(restored(one, 3)) == 1, "the subscription"


def test_a_state_that_cannot_be_sent_is_refused_or_the_node_is_given_up() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"))
    join = reconnecting(one)
    first, second = [e.number for e in one.welcome(2, join) if isinstance(e, Ask)]
    long = InvalidRequestError("a frame has at most 9 bytes")
    assert isinstance(one.core.not_sent(one.now, first, long)[0], Told)
    effects = one.core.not_sent(one.now, second, ConnectionError("there is no connection"))
    assert effects[0] == Disconnect(2)
    assert one.wake(RetryDue(), pause(effects)) == [Connect(3, None)]


def test_a_busy_node_gets_the_state_again_when_the_others_are_made() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"))
    join = reconnecting(one)
    first, second = [e.number for e in one.welcome(2, join) if isinstance(e, Ask)]
    busy = ErrorNotice("the node is busy: 1 of your publications wait to be delivered", second)
    assert one.get(2, busy) == []
    (again,) = one.done(2, first)
    assert isinstance(again, Ask) and asked([again]) == [state(2.0, "orc")]
    assert one.done(2, again.number) == [ServedAgain([])]


def test_a_connection_that_breaks_before_all_states_are_back_is_made_again() -> None:
    one = published(TimedCore().opened(), state(1.0), state(2.0, "orc"))
    join = reconnecting(one)
    first, _ = [e.number for e in one.welcome(2, join) if isinstance(e, Ask)]
    one.done(2, first)
    assert restored(one, 3) == [state(1.0), state(2.0, "orc")]


def test_many_states_are_published_in_batches() -> None:
    many = [state(1.0, f"orc {number}") for number in range(2 * BATCH + 1)]
    one = published(TimedCore().opened(), *many)
    join = reconnecting(one)
    effects = one.welcome(2, join)
    assert [len(asked(effects)), asked(effects)] == [BATCH, many[:BATCH]]
    last = [one.done(2, e.number) for e in effects if isinstance(e, Ask)]
    assert last[:-1] == [[]] * (BATCH - 1)
    assert asked(last[-1]) == many[BATCH : 2 * BATCH]


# Forgetting.


@pytest.mark.parametrize(
    ("withdrawn", "left"),
    [
        (WithdrawRequest(), [3, 4]),
        (WithdrawRequest("talk"), [1, 3, 4]),
        (WithdrawRequest(None, "orc"), [1, 2]),
        (WithdrawRequest("talk", "orc"), [1, 2, 3]),
        (WithdrawRequest("other"), [1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("how", ["answered", "refused", "lost", "unconfirmed"])
def test_what_is_withdrawn_is_forgotten(
    withdrawn: WithdrawRequest, left: list[float], how: str
) -> None:
    states = [state(1), state(2, "", "talk"), state(3, "orc"), state(4, "orc", "talk")]
    one = published(TimedCore().opened(), *states)
    number, _ = one.ask(withdrawn, confirm=how != "unconfirmed")
    if how == "answered":
        one.done(1, number)
    elif how == "refused":
        one.get(1, ErrorNotice("you do not speak for 'orc'", number))
    assert [request.x for request in restored(one)] == left


def test_a_state_that_is_answered_after_it_was_withdrawn_is_forgotten() -> None:
    one = TimedCore().opened()
    before, kept = one.ask(state(1.0))[0], one.ask(state(2.0, "orc"))[0]
    withdrawal, _ = one.ask(WithdrawRequest())
    after, _ = one.ask(state(3.0, "", "talk"))
    for number in (withdrawal, before, kept, after):
        one.done(1, number)
    assert restored(one) == [state(2.0, "orc"), state(3.0, "", "talk")]


def test_a_state_that_is_published_after_a_withdrawal_outlives_its_answer() -> None:
    one = published(TimedCore().opened(), state(1.0))
    withdrawal, _ = one.ask(WithdrawRequest())
    one.core.published(state(2.0))
    one.done(1, withdrawal)
    assert restored(one) == [state(2.0)]


def test_no_more_states_are_remembered_than_a_node_allows() -> None:
    one = TimedCore()
    one.limits = {"channels": 2, "entities": 1}
    one.opened()
    for number in range(9):
        one.core.published(state(1.0, "", f"channel {number}"))
    one.core.published(state(2.0, "", "channel 0"))
    assert len(one.core.states) == 2 * (1 + 1)
    assert restored(one)[0] == state(2.0, "", "channel 0"), "a known one is kept up to date"


def test_a_client_that_ends_or_does_not_reconnect_remembers_nothing() -> None:
    one = published(TimedCore().opened(), state(1.0))
    one.core.close(one.now)
    other = published(TimedCore(reconnects=False).opened(), state(1.0))
    other.core.published(state(2.0, "orc"))
    assert len(one.core.states) == len(other.core.states) == 0


def test_after_a_handover_the_new_node_has_the_states_and_after_its_end_none() -> None:
    one = published(TimedCore(["ws://b"]).opened(), state(1.0))
    one.get(1, MovedNotice("ws://b", "a ticket"))
    join = joining(one, 2)
    assert asked(one.welcome(2, join, "b")) == []
    effects = one.wake(RetryDue(), pause(one.lost(2)))
    assert Connect(3, "ws://b") in effects
    join = joining(one, 3)
    assert asked(one.welcome(3, join, "b", ENTITY + 1)) == [state(1.0)]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_state_that_was_lost_while_the_client_was_handed_over_is_published_again(
    replaced: bool,
) -> None:
    one = published(TimedCore(["ws://b"]).opened(), state(1.0))
    one.ask(state(2.0))
    one.get(1, MovedNotice("ws://b", "a ticket"))
    assert one.connected(2) == [], "first, the former node must answer"
    (join,) = [effect for effect in one.lost(1) if isinstance(effect, Ask)]
    if replaced:
        one.ask(state(3.0))
    found = [state(3.0)] if replaced else [state(2.0)]
    assert asked(one.welcome(2, join.number, "b")) == found


# Time to come back.


def attempts(seed: int, until: Time) -> list[Time]:
    """When a client tries to reach a node that nobody has started yet."""
    one = published(TimedCore(seed=seed).opened(), state(1.0))
    effects, made = one.lost(1), []
    while one.now < until:
        (connect,) = one.wake(RetryDue(), pause(effects))
        assert isinstance(connect, Connect)
        made.append(one.now)
        effects = one.core.connect_failed(one.now, connect.connection, OSError("nobody"))
    return made


def test_a_node_that_is_restarted_within_half_a_minute_is_tried_within_two_seconds() -> None:
    for seed in range(50):
        made = attempts(seed, 32 * SECOND)
        starts = range(0, 30 * SECOND + 1, SECOND // 10)
        waits = [min(t for t in made if t >= start) - start for start in starts]
        assert max(waits) <= 1 * SECOND, "the rest of two seconds is for subscriptions and states"


def test_clients_that_lost_their_node_together_do_not_come_back_together() -> None:
    clients = [attempts(seed, 12 * SECOND) for seed in range(500)]
    for start in (2 * SECOND, 5 * SECOND, 10 * SECOND):
        back = [min(t for t in made if t >= start) for made in clients]
        tenths = [t // (SECOND // 10) for t in back]
        assert max(map(tenths.count, set(tenths))) < len(clients) / 4
