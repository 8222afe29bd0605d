"""What a client decides, one input at a time: no sockets, no tasks, and a clock of the test's."""

from typing import Any

import pytest
from msgspec import Raw, structs

from nearcast.client.core import Phase
from nearcast.client.effects import (
    Again,
    AnswerDue,
    Answered,
    Ask,
    Changed,
    Connect,
    Disconnect,
    Ended,
    Failed,
    FormerNodeDue,
    HoldBackDue,
    JoinDue,
    RetryDue,
    ServedAgain,
    SubscriptionEnded,
    Told,
    Welcomed,
)
from nearcast.client.received import Disconnected, Entered, HandedOver, Left, Message
from nearcast.client_protocol.geometry_json import Area, area_from_region, as_region
from nearcast.client_protocol.messages import (
    ByeNotice,
    DoneNotice,
    DroppedNotice,
    EnterNotice,
    ErrorNotice,
    InsideNotice,
    LeaveNotice,
    LeaveRequest,
    MessageNotice,
    MovedNotice,
    MoveRequest,
    NearbyNotice,
    NearbyRequest,
    NodesNotice,
    SubscribeRequest,
    TuneRequest,
    UnsubscribeRequest,
    WithdrawRequest,
)
from nearcast.errors import ClosedError, InvalidRequestError, Refused
from nearcast.node import ClearTimer, SetTimer
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc
from support.timed_core import (
    ANSWER_TIMER,
    ENTITY,
    LEAD,
    PARAMETERS,
    PUBLISH,
    TimedCore,
    entity,
    join,
    message,
    message_notice,
    pause,
    publish,
    somebody,
    timer_delay,
)

# Joining.


def test_a_client_connects_joins_and_knows_who_it_is() -> None:
    one = TimedCore(["ws://b"])
    assert one.core.open(0) == [Connect(1, None)]
    one.now = 5
    assert one.connected(1) == [Ask(1, join(1), 1), ANSWER_TIMER]
    one.now = 9
    assert one.welcome(1, 1) == [Welcomed(ENTITY)]
    core = one.core
    assert (core.entity, core.node, core.nodes, core.serving) == (ENTITY, "a", ["ws://b"], 1)
    assert core.node_time(20) == LEAD + 20


def test_the_nodes_clock_is_estimated_by_the_fastest_answer() -> None:
    one = TimedCore().opened()
    for sent, answered in ((100, 150), (200, 220), (300, 390)):
        number, _ = one.ask(PUBLISH)
        one.now = answered
        one.get(1, DoneNotice(number, LEAD + 50 + sent))
    assert one.core.node_time(1_000) == LEAD + 1_000 + 50 - 20


@pytest.mark.parametrize("how", ["not there", "refused", "lost", "silent", "not sent"])
def test_a_client_that_cannot_join_at_first_ends(how: str) -> None:
    one = TimedCore(["ws://b"])
    one.core.open(0)
    why: Exception = ConnectionRefusedError("nobody listens there")
    if how == "not there":
        assert one.core.connect_failed(0, 1, why) == [Ended(why)]
    else:
        one.connected(1)
        if how == "refused":
            effects = one.get(1, ErrorNotice("who are you?", 1))
            assert effects == [Disconnect(1), Ended(Refused("who are you?"))]
        elif how == "lost":
            one.get(1, ByeNotice("too late"))
            assert one.lost(1, "closed") == [Ended(ClosedError("too late"))]
        elif how == "silent":
            effects = one.wake(AnswerDue(), PARAMETERS.answer)
            why = ConnectionError("the node does not answer")
            assert effects == [Disconnect(1), Ended(why)]
        else:
            assert one.core.not_sent(0, 1, why) == [Disconnect(1), Ended(why)]
    assert one.core.phase is Phase.ENDED
    assert [type(effect) for effect in one.core.open(one.now)] == [Ended]
    assert [type(effect) for effect in one.ask(PUBLISH)[1]] == [Failed]


def test_a_welcome_that_nobody_asked_for_changes_nothing() -> None:
    one = TimedCore().opened()
    assert one.welcome(1, 99, "evil", 8) == []
    number, _ = one.ask(PUBLISH)
    assert one.welcome(1, number, "evil", 8) == [], "it is no answer to a publication"
    assert (one.core.node, one.core.entity) == ("a", ENTITY)
    assert one.done(1, number) == [Answered(number, one.done_notice(number))]


# Requests and answers.


def test_requests_wait_until_a_node_serves_and_then_go_in_order() -> None:
    one = TimedCore()
    waiting = [one.ask(PUBLISH), one.ask(WithdrawRequest(), confirm=False), one.ask(PUBLISH)]
    assert waiting == [(1, []), (2, []), (3, [])]
    one.core.open(0)
    assert one.core.abandon(0, 3) == [], "nobody waits for it any more"
    assert one.connected(1) == [Ask(1, join(4), 4), ANSWER_TIMER]
    assert one.welcome(1, 4) == [
        Welcomed(ENTITY),
        Ask(1, publish(1), 1),
        Ask(1, WithdrawRequest(), 2),
        Answered(2, None),
    ]


def test_each_request_has_its_answer_in_any_order() -> None:
    one = TimedCore().opened()
    assert one.ask(PUBLISH) == (2, [Ask(1, publish(2), 2)])
    assert one.ask(PUBLISH) == (3, [Ask(1, publish(3), 3)])
    assert one.ask(NearbyRequest(Area())) == (4, [Ask(1, NearbyRequest(Area(), id=4), 4)])
    nearby = NearbyNotice([], 4)
    assert one.get(1, nearby) == [Answered(4, nearby)]
    assert one.get(1, ErrorNotice("not there", 3)) == [Failed(3, Refused("not there"))]
    assert one.done(1, 2) == [Answered(2, one.done_notice(2))]
    assert one.done(1, 2) == one.get(1, ErrorNotice("what?", 3)) == [], "once"


def test_a_request_that_cannot_be_sent_fails_and_has_no_answer() -> None:
    one = TimedCore().opened()
    number, _ = one.ask(PUBLISH)
    why = InvalidRequestError("a frame has at most 9 bytes")
    assert one.core.not_sent(0, number, why) == [Failed(number, why)]
    assert one.done(1, number) == []
    unconfirmed, effects = one.ask(PUBLISH, confirm=False)
    assert effects == [Ask(1, PUBLISH, unconfirmed), Answered(unconfirmed, None)]
    assert one.core.not_sent(0, unconfirmed, why) == []


def test_nobody_waits_for_ever_for_an_answer() -> None:
    """One timer serves all requests: it is set again for the oldest of those that wait."""
    one = TimedCore().opened()
    silence = ConnectionError("the node does not answer")
    one.now = 4 * SECOND
    assert one.ask(PUBLISH)[1] == [Ask(1, publish(2), 2)]
    one.now = 9 * SECOND
    assert one.ask(PUBLISH)[1] == [Ask(1, publish(3), 3)]
    one.now = PARAMETERS.answer
    assert one.wake(AnswerDue()) == [SetTimer(AnswerDue(), 4 * SECOND)]
    assert one.wake(AnswerDue(), 4 * SECOND) == [
        Failed(2, silence),
        SetTimer(AnswerDue(), 5 * SECOND),
    ]
    assert one.done(1, 2) == [], "too late"
    one.done(1, 3)
    assert one.wake(AnswerDue(), 5 * SECOND) == []
    assert one.ask(PUBLISH)[1] == [Ask(1, publish(4), 4), ANSWER_TIMER]


def test_what_the_node_says_by_itself_is_told() -> None:
    one = TimedCore().opened()
    slow, error = DroppedNotice(3, 1), ErrorNotice("what was that?")
    assert one.get(1, slow, error) == [Told(slow), Told(error)]
    assert one.get(1, NodesNotice(["ws://c"])) == []
    assert one.core.nodes == ["ws://c"]


def test_a_closed_client_leaves_and_all_that_waits_fails() -> None:
    one = TimedCore().opened()
    number, _ = one.ask(PUBLISH)
    left = ConnectionError("this client has left")
    assert one.core.close(0) == [
        Ask(1, LeaveRequest(), 0),
        Failed(number, left),
        Disconnect(1),
        Ended(None),
    ]
    assert one.core.close(0) == one.lost(1) == one.done(1, number) == []
    assert one.ask(PUBLISH) == (number + 1, [Failed(number + 1, left)])


# Subscriptions.


def test_a_subscription_is_known_before_it_is_accepted_and_forgotten_if_it_is_refused() -> None:
    one = TimedCore().opened()
    number, state, effects = one.subscribe(disc(0, 0, 5), channel="talk")
    request = SubscribeRequest(1, area_from_region(as_region(disc(0, 0, 5))), channel="talk", id=2)
    assert effects == [Ask(1, request, 2)]
    assert one.core.subscriptions == {1: state}
    assert one.get(1, ErrorNotice("no", number)) == [Failed(number, Refused("no"))]
    assert one.core.subscriptions == {}
    number, state, _ = one.subscribe(disc(0, 0, 5))
    assert one.core.abandon(0, number) == []
    assert one.core.subscriptions == {}
    assert one.subscribed(disc(0, 0, 5)).number == 3, "each has its own number"


def test_what_the_node_accepts_changes_the_subscription() -> None:
    one = TimedCore().opened()
    here = one.subscribed("x < limit", variables={"limit": 3.0, "other": 1.0})
    number, _ = one.ask(TuneRequest(1, {"limit": 5.0}))
    assert here.request.variables == {"limit": 3.0, "other": 1.0}, "not yet"
    one.done(1, number)
    assert here.request.variables == {"limit": 5.0, "other": 1.0}
    area = area_from_region(as_region(disc(9, 9, 1)))
    number, effects = one.core.move(0, MoveRequest(1, area), Moving(disc(9, 9, 1)), True)
    assert effects == [Ask(1, MoveRequest(1, area, number), number)]
    one.done(1, number)
    assert (here.where(LEAD), here.follows_client) == (disc(9, 9, 1), True)
    number, _ = one.ask(UnsubscribeRequest(1))
    one.done(1, number)
    assert one.core.subscriptions == {}


def test_a_walk_takes_plain_shapes_along() -> None:
    one = TimedCore().opened()
    one.subscribed(disc(0, 0, 5))
    one.subscribed(Moving(disc(0, 0, 5), velocity=(1.0, 0.0, 0.0)))
    one.subscribed("x < 3")
    ((number, walk),) = one.core.walks(one.now, (30.0, 40.0), 10.0)
    assert (number, walk.at(5 * SECOND)) == (1, disc(30, 40, 5))


@pytest.mark.parametrize("inside_first", [False, True])
def test_who_watches_is_answered_when_it_is_known_who_is_inside(inside_first: bool) -> None:
    one = TimedCore().opened()
    number, here, _ = one.subscribe(disc(0, 0, 5), watch=True)
    entered = [Changed(1, Entered(entity(4)))]
    answered = [Answered(number, one.done_notice(number))]
    inside = InsideNotice(1, [somebody(4)])
    if inside_first:
        assert one.get(1, inside) == entered
        assert one.done(1, number) == answered
    else:
        assert one.done(1, number) == []
        assert one.get(1, inside) == entered + answered
    assert here.inside == {4: entity(4)}


def test_who_watches_does_not_wait_for_ever() -> None:
    one = TimedCore().opened()
    number, _, _ = one.subscribe(disc(0, 0, 5), watch=True)
    one.now = SECOND
    one.done(1, number)
    assert one.wake(AnswerDue(), PARAMETERS.answer - SECOND) == [SetTimer(AnswerDue(), SECOND)]
    why = ConnectionError("the node does not say who is inside")
    assert one.wake(AnswerDue(), SECOND) == [Failed(number, why)]
    assert one.core.subscriptions == {}


def test_who_is_inside_is_kept_up_to_date() -> None:
    one = TimedCore().opened()
    here = one.subscribed(disc(0, 0, 5))
    one.get(1, InsideNotice(1, [somebody(1), somebody(2)]))
    assert one.get(1, EnterNotice(1, somebody(2)), EnterNotice(1, somebody(3))) == [
        Changed(1, Entered(entity(3)))
    ]
    assert one.get(1, LeaveNotice(1, 1, gone=True)) == [Changed(1, Left(entity(1), True))]
    state = MessageNotice([1], 3, 9, 8, 2.0, 0.0, retain=True)
    assert isinstance(one.get(1, state)[0], Message)
    assert isinstance(one.get(1, MessageNotice([1], 2, 10, 9, 4.0, 0.0))[0], Message), "no state"
    assert here.inside == {2: entity(2), 3: entity(3, 2.0, 8)}
    assert one.get(1, InsideNotice(1, [somebody(5), somebody(2)])) == [
        Changed(1, Left(entity(3, 2.0, 8), False)),
        Changed(1, Entered(entity(5))),
    ]
    assert one.get(1, LeaveNotice(1, 99), EnterNotice(9, somebody(3))) == []


def test_a_message_is_decoded_and_an_unreadable_payload_is_no_end() -> None:
    one = TimedCore().opened()
    (read,) = one.get(1, message_notice(1, payload=Raw(b"\xa2hi"), attributes={"level": 3}))
    assert isinstance(read, Message)
    assert (read.payload, read.attributes, read.publication) == ("hi", {"level": 3}, 1)
    (unread,) = one.get(1, message_notice(2, payload=Raw(b"\xa1\xff")))
    assert isinstance(unread, Message)
    assert unread.payload.reason == "text is not valid UTF-8"


# A lost connection.


def test_a_client_that_does_not_reconnect_ends() -> None:
    one = TimedCore(reconnects=False).opened()
    number, _ = one.ask(PUBLISH)
    late = ClosedError("it is late", 1001)
    assert one.lost(1, "it is late", 1001) == [Failed(number, late), Ended(late)]


def test_a_client_tries_again_after_growing_pauses() -> None:
    one = TimedCore().opened()
    one.get(1, ByeNotice("the node stops"))
    effects = one.lost(1, "", 1001)
    assert effects[:-1] == [Told(Disconnected("the node stops", 1001))]
    pauses = [pause(effects)]
    for connection in range(2, 12):
        assert one.wake(RetryDue(), pauses[-1]) == [Connect(connection, None)]
        pauses.append(pause(one.core.connect_failed(one.now, connection, OSError("nobody"))))
    longest = [SECOND // 10, SECOND // 5, 2 * SECOND // 5, 4 * SECOND // 5, *[SECOND] * 7]
    assert all(most / 2 <= one <= most for one, most in zip(pauses, longest, strict=True))
    assert len({one / most for one, most in zip(pauses, longest, strict=True)}) == 11, "random"
    connection = 11
    while one.now < PARAMETERS.restart:
        connection += 1
        one.wake(RetryDue(), pauses[-1])
        pauses.append(pause(one.core.connect_failed(one.now, connection, OSError("nobody"))))
        assert one.now >= PARAMETERS.restart or pauses[-1] <= PARAMETERS.restart_pause
    for most in (4 * SECOND, 8 * SECOND, PARAMETERS.longest_pause, PARAMETERS.longest_pause):
        connection += 1
        assert one.wake(RetryDue(), pauses[-1]) == [Connect(connection, None)]
        pauses.append(pause(one.core.connect_failed(one.now, connection, OSError("nobody"))))
        assert most / 2 <= pauses[-1] <= most


def test_a_client_whose_node_is_dead_tries_the_others_it_knows() -> None:
    one = TimedCore(["ws://b", "ws://c", "ws://d"]).opened()
    wait = pause(one.lost(1))
    orders = set()
    connection = 1
    for _ in range(9):
        tried: list[str | None] = []
        patience = 0
        effects = one.wake(RetryDue(), wait)
        while isinstance(first := effects[-2], Connect):
            connection += 1
            tried.append(first.url)
            patience = patience or timer_delay(effects)
            assert patience >= PARAMETERS.attempt
            assert effects[-2:] == [
                Connect(connection, first.url),
                SetTimer(JoinDue(connection), patience),
            ]
            effects = one.wake(JoinDue(connection), patience)
            assert effects[:2] == [ClearTimer(JoinDue(connection)), Disconnect(connection)]
        wait = pause(effects)
        assert tried[0] is None, "the last node first"
        assert sorted(map(str, tried[1:])) == ["ws://b", "ws://c", "ws://d"]
        orders.add(tuple(tried))
    assert len(orders) > 1, "the others in random order"


def test_a_node_that_refuses_is_not_the_end_but_all_of_them_are() -> None:
    one = TimedCore(["ws://b"]).opened()
    one.wake(RetryDue(), pause(one.lost(1)))
    one.connected(2)
    effects = one.get(2, ErrorNotice("not here", 2))
    assert [type(effect) for effect in effects] == [ClearTimer, Disconnect, Connect, SetTimer]
    wait = pause(one.core.connect_failed(one.now, 3, OSError("nobody")))
    one.wake(RetryDue(), wait)
    for connection, number in ((4, 3), (5, 4)):
        one.connected(connection)
        effects = one.get(connection, ErrorNotice(f"not by {connection}", number))
    assert effects[-1] == Ended(Refused("not by 4"))


def test_a_request_under_way_when_the_connection_breaks_fails_and_a_later_one_waits() -> None:
    one = TimedCore().opened()
    sent, _ = one.ask(PUBLISH)
    subscribing, _, _ = one.subscribe(disc(0, 0, 5))
    why = ClosedError("the connection is lost")
    effects = one.lost(1)
    assert effects[:2] == [Failed(sent, why), Failed(subscribing, why)]
    assert one.core.subscriptions == {}
    later, effects2 = one.ask(PUBLISH)
    assert effects2 == []
    one.wake(RetryDue(), pause(effects))
    one.connected(2)
    assert one.welcome(2, later + 1) == [
        Welcomed(ENTITY),
        ServedAgain([]),
        Ask(2, publish(later), later),
    ]


def test_a_client_comes_back_with_its_subscriptions_which_have_moved_on() -> None:
    one = TimedCore().opened()
    moving = one.subscribed(Moving(disc(0, 0, 5), velocity=(2.0, 0.0, 0.0)), filter="k < t")
    one.subscribed("x < t")
    one.subscribed(disc(1, 1, 1))
    one.now += SECOND
    wait = pause(one.lost(1))
    waiting, _ = one.ask(PUBLISH)
    one.wake(RetryDue(), wait)
    one.now = 4 * SECOND
    first, *asked = [*one.connected(2), *one.welcome(2, 6, "b", 8)]
    assert isinstance(first, Ask)
    requests = [effect.request for effect in asked if isinstance(effect, Ask)]
    assert requests == [
        SubscribeRequest(1, Area(8.0, 0.0, r=5.0, vx=2.0), "k < (t + 4.0)", id=7),
        SubscribeRequest(2, Area(formula="x < (t + 4.0)"), id=8),
        SubscribeRequest(3, Area(1.0, 1.0, r=1.0), id=9),
    ]
    assert one.done(2, 8) == one.done(2, 7) == []
    assert one.done(2, 9) == [ServedAgain([]), Ask(2, publish(waiting), waiting)]
    assert (one.core.entity, one.core.node) == (8, "b")
    shape = moving.where(one.core.node_time(6 * SECOND))
    assert shape == disc(12, 0, 5)


def test_a_formula_that_comes_back_twice_goes_on_from_its_beginning() -> None:
    one = TimedCore().opened()
    one.subscribed("x < t")
    one.wake(RetryDue(), pause(one.lost(1)))
    one.now = 3 * SECOND
    one.connected(2)
    one.welcome(2, 3)
    assert one.done(2, 4) == [ServedAgain([])]
    one.wake(RetryDue(), pause(one.lost(2)))
    one.now = 5 * SECOND
    one.connected(3)
    again = SubscribeRequest(1, Area(formula="x < (t + 5.0)"), id=6)
    assert Ask(3, again, 6) in one.welcome(3, 5)


@pytest.mark.parametrize("refused", [True, False])
def test_who_waits_to_know_who_is_inside_need_not_when_the_subscription_ends(refused: bool) -> None:
    one = TimedCore().opened()
    number, _, _ = one.subscribe(disc(0, 0, 5), watch=True)
    done = one.done_notice(number)
    assert one.get(1, done) == []
    wait = pause(one.lost(1))
    if refused:
        one.wake(RetryDue(), wait)
        one.connected(2)
        one.welcome(2, 3)
        effects = one.get(2, ErrorNotice("no", 4))
        assert effects[:2] == [SubscriptionEnded(1, Refused("no")), Answered(number, done)]
    else:
        assert one.core.close(one.now) == [Answered(number, done), Ended(None)]


def test_a_subscription_that_was_given_up_meanwhile_is_not_named_when_it_is_refused() -> None:
    one = TimedCore().opened()
    number, _, _ = one.subscribe(disc(0, 0, 5), watch=True)
    one.done(1, number)
    one.wake(RetryDue(), pause(one.lost(1)))
    one.connected(2)
    one.welcome(2, 3)
    assert one.core.abandon(one.now, number) == []
    assert one.get(2, ErrorNotice("no", 4)) == [ServedAgain([])]


def test_what_a_node_no_longer_accepts_ends_and_is_named_when_the_client_is_back() -> None:
    one = TimedCore().opened()
    for _ in range(3):
        one.subscribed(disc(0, 0, 5))
    one.wake(RetryDue(), pause(one.lost(1)))
    one.connected(2)
    one.welcome(2, 5)
    assert one.get(2, ErrorNotice("too large", 6)) == [SubscriptionEnded(1, Refused("too large"))]
    assert one.done(2, 8) == []
    wait = pause(one.lost(2, "once more"))  # before the second is in force
    assert one.wake(RetryDue(), wait) == [Connect(3, None)]
    one.connected(3)
    one.welcome(3, 9)
    assert one.get(3, ErrorNotice("this too", 11)) == [SubscriptionEnded(3, Refused("this too"))]
    assert one.done(3, 10) == [ServedAgain([1, 3])]
    assert list(one.core.subscriptions) == [2]


def test_a_node_that_stops_answering_while_a_client_comes_back_is_given_up() -> None:
    one = TimedCore().opened()
    one.subscribed(disc(0, 0, 5))
    one.now = 40 * SECOND
    one.wake(AnswerDue())
    one.wake(RetryDue(), pause(one.lost(1)))
    one.connected(2)
    one.welcome(2, 3)
    effects = one.wake(AnswerDue(), PARAMETERS.answer)
    assert effects[0] == Disconnect(2)
    assert one.wake(RetryDue(), pause(effects)) == [Connect(3, None)]


def test_a_client_that_is_coming_back_can_be_closed() -> None:
    one = TimedCore().opened()
    wait = pause(one.lost(1))
    number, _ = one.ask(PUBLISH)
    left = ConnectionError("this client has left")
    assert one.core.close(one.now) == [Failed(number, left), Ended(None)]
    assert one.wake(RetryDue(), wait) == []


# Handover.


def handed_over(**options: Any) -> TimedCore:
    """Subscribed twice at node a, told to go to b, and joining there on connection 2."""
    one = TimedCore(["ws://b"], **options).opened()
    one.subscribed(disc(0, 0, 5))
    one.subscribed(disc(3, 0, 5))
    assert one.get(1, MovedNotice("ws://b", "a ticket")) == [
        Connect(2, "ws://b"),
        SetTimer(JoinDue(2), PARAMETERS.handover),
    ]
    assert one.connected(2) == [Ask(2, join(4, "a ticket"), 4)]
    return one


def test_a_client_is_handed_over_and_receives_everything_once_and_in_order() -> None:
    one = handed_over()
    assert one.get(1, message_notice(1)) == [message(1)], "until then the present node serves"
    waiting, effects = one.ask(PUBLISH)
    assert effects == []
    assert one.welcome(2, 4, "b") == [
        ClearTimer(JoinDue(2)),
        SetTimer(HoldBackDue(1), PARAMETERS.hold_back),
        SetTimer(FormerNodeDue(1), PARAMETERS.former_node),
        Told(HandedOver("b", "ws://b")),
        Ask(2, publish(waiting), waiting),
    ]
    assert one.get(2, message_notice(1), message_notice(3), message_notice(4, [1, 2])) == []
    assert one.get(1, message_notice(2), message_notice(3)) == [message(2), message(3)]
    assert one.lost(1) == [message(4, [1, 2])], "held back until the former node has ended"
    assert one.get(2, message_notice(5)) == [message(5)]
    assert one.wake(HoldBackDue(1), PARAMETERS.hold_back) == []
    assert one.wake(FormerNodeDue(1), PARAMETERS.former_node) == []


def test_a_former_node_that_has_taken_the_client_back_by_mistake_is_not_listened_to() -> None:
    one = handed_over()
    one.welcome(2, 4, "b")
    since = one.now + LEAD
    made = structs.replace(message_notice(1), t=since + 1)
    assert one.get(1, made, message_notice(2)) == [message(2)]
    one.lost(1)
    assert one.get(2, made) == [structs.replace(message(1), t=made.t)]


def test_a_message_that_is_half_known_is_delivered_to_the_others() -> None:
    one = handed_over()
    one.get(1, message_notice(1, [1]))
    one.welcome(2, 4, "b")
    one.lost(1)
    assert one.get(2, message_notice(1, [1, 2])) == [Again(message(1, [2]))]
    assert one.get(2, message_notice(1, [1, 2])) == []


def test_messages_are_held_back_for_a_quarter_of_a_second_at_most() -> None:
    one = handed_over()
    one.welcome(2, 4, "b")
    one.get(2, message_notice(2), message_notice(3))
    assert one.wake(HoldBackDue(1), PARAMETERS.hold_back) == [message(2), message(3)]
    assert one.get(1, message_notice(1), message_notice(2)) == [message(1)], "late, but once"
    assert one.wake(FormerNodeDue(1), PARAMETERS.former_node) == [Disconnect(1)]
    assert one.get(1, message_notice(9)) == [] == one.lost(1)


def test_a_client_that_is_handed_over_again_loses_nothing_that_was_held_back() -> None:
    one = handed_over()
    one.welcome(2, 4, "b")
    one.get(2, message_notice(1), MovedNotice("ws://c", "another"))
    one.connected(3)
    effects = one.welcome(3, 5, "c")
    assert message(1) in effects and Told(HandedOver("c", "ws://c")) in effects
    assert one.get(3, message_notice(3)) == []
    assert one.get(2, message_notice(2)) == [message(2)]
    assert one.wake(HoldBackDue(1)) == [], "that was of the first handover"
    assert one.lost(2) == [message(3)]


def test_a_client_joins_the_other_node_when_all_it_asked_for_is_answered() -> None:
    one = TimedCore().opened()
    first, second = one.ask(PUBLISH)[0], one.ask(PUBLISH)[0]
    one.get(1, MovedNotice("ws://b", "a ticket"))
    assert one.connected(2) == []
    assert one.done(2, first) == [], "whom it was not sent to cannot answer it"
    assert one.done(1, first) == [Answered(first, one.done_notice(first))]
    assert one.get(1, ErrorNotice("no", second)) == [
        Failed(second, Refused("no")),
        Ask(2, join(4, "a ticket"), 4),
    ]


@pytest.mark.parametrize("trouble", ["refuses", "is silent", "is not there", "ends", "mistakes us"])
def test_where_the_other_node_will_not_have_it_a_client_stays(trouble: str) -> None:
    one = handed_over()
    waiting, _ = one.ask(PUBLISH)
    match trouble:
        case "refuses":
            effects = one.get(2, ErrorNotice("this ticket is not known here", 4))
        case "is silent":
            effects = one.wake(JoinDue(2), PARAMETERS.handover)
        case "is not there":
            effects = one.core.connect_failed(0, 2, OSError("nobody"))
        case "ends":
            effects = one.lost(2, "the node stops")
        case "mistakes us":
            effects = one.welcome(2, 4, "b", ENTITY + 1)
    over = trouble in ("is not there", "ends")
    assert effects == [
        ClearTimer(JoinDue(2)),
        *([] if over else [Disconnect(2)]),
        Ask(1, publish(waiting), waiting),
    ]
    assert (one.core.entity, one.core.node, one.core.serving) == (ENTITY, "a", 1)
    assert one.get(1, message_notice(1)) == [message(1)]
    assert one.get(2, message_notice(2), InsideNotice(1, [somebody(5)])) == []
    assert one.get(1, MovedNotice("ws://b", "another"))[0] == Connect(3, "ws://b")


def test_a_node_that_ends_while_it_hands_a_client_over() -> None:
    one = handed_over()
    assert one.lost(1, "the node stops") == [], "the other one may welcome it yet"
    assert one.welcome(2, 4, "b") == [ClearTimer(JoinDue(2)), Told(HandedOver("b", "ws://b"))]
    assert one.get(2, message_notice(1)) == [message(1)], "there is nothing to wait for"


def test_a_node_that_ends_while_it_hands_a_client_over_to_one_that_is_silent() -> None:
    one = handed_over()
    waiting, _ = one.ask(PUBLISH)
    one.lost(1, "the node stops")
    effects = one.wake(JoinDue(2), PARAMETERS.handover)
    assert effects[:-1] == [
        ClearTimer(JoinDue(2)),
        Disconnect(2),
        Told(Disconnected("the node stops")),
    ]
    effects = one.wake(RetryDue(), pause(effects))
    assert effects[0] == Connect(3, None)
    one.connected(3)
    again = SubscribeRequest(1, Area(0.0, 0.0, r=5.0), id=7)
    assert Ask(3, again, 7) in one.welcome(3, 6, "a", 8)
    assert one.done(3, 7) == []
    assert one.done(3, 8) == [ServedAgain([]), Ask(3, publish(waiting), waiting)]


def test_requests_under_way_fail_with_their_node_and_the_handover_goes_on() -> None:
    one = TimedCore().opened()
    number, _ = one.ask(PUBLISH)
    one.get(1, MovedNotice("ws://b", "a ticket"))
    assert one.connected(2) == []
    assert one.lost(1) == [
        Failed(number, ClosedError("the connection is lost")),
        Ask(2, join(3, "a ticket"), 3),
    ]


def test_only_the_node_that_serves_says_who_is_inside_and_where_to_go() -> None:
    one = handed_over()
    one.get(1, InsideNotice(1, [somebody(1), somebody(2)]))
    assert one.get(2, InsideNotice(1, [])) == [], "it does not serve yet"
    one.welcome(2, 4, "b")
    one.get(2, InsideNotice(1, [somebody(2), somebody(3)]))
    former = [LeaveNotice(1, 2), EnterNotice(1, somebody(1)), NodesNotice(["ws://x"])]
    assert one.get(1, *former, MovedNotice("ws://x", "t")) == []
    assert sorted(one.core.subscriptions[1].inside) == [2, 3]
    assert one.core.nodes == ["ws://b"]


def test_a_node_of_which_nothing_was_known_may_send_what_came_before() -> None:
    one = TimedCore().opened()
    one.get(1, MovedNotice("ws://b", "t"), message_notice(1))
    one.connected(2)
    one.welcome(2, 2, "b")
    one.lost(1)
    assert one.get(2, message_notice(1), message_notice(2)) == [message(2)]


def test_a_node_that_knows_no_others_does_not_make_a_client_forget_them() -> None:
    one = TimedCore(["ws://b", "ws://c"]).opened()
    one.get(1, NodesNotice([]))
    assert one.core.nodes == ["ws://b", "ws://c"]
    one.get(1, MovedNotice("ws://b", "t"))
    one.connected(2)
    one.nodes = []
    one.welcome(2, 2, "b")
    assert one.core.nodes == ["ws://c"]
    one.get(2, MovedNotice("ws://c", "t"))
    one.connected(3)
    one.welcome(3, 3, "c")
    assert one.core.nodes == ["ws://b"], "also the one before is known"


def test_a_client_tries_the_address_that_its_application_gave_too() -> None:
    """All nodes that it was told of later may be gone."""
    one = TimedCore(["ws://b"]).opened()
    one.get(1, MovedNotice("ws://c", "t"))
    one.connected(2)
    one.welcome(2, 2, "c")
    effects, tried = one.wake(RetryDue(), pause(one.lost(2))), []
    for connection in (3, 4, 5):
        (connect,) = [effect for effect in effects if isinstance(effect, Connect)]
        tried.append(connect.url)
        effects = one.core.connect_failed(one.now, connection, OSError("nobody"))
    assert tried == ["ws://c", "ws://b", None]
    assert pause(effects)


def test_a_client_that_cannot_change_nodes_stays_where_it_is() -> None:
    one = TimedCore(["ws://b"], changes_nodes=False).opened()
    assert one.get(1, MovedNotice("ws://b", "t")) == []
    assert one.wake(RetryDue(), pause(one.lost(1))) == [Connect(2, None)]


def test_a_client_that_was_handed_over_leaves_both_nodes() -> None:
    one = handed_over()
    one.welcome(2, 4, "b")
    assert one.core.close(one.now) == [
        Ask(2, LeaveRequest(), 0),
        Disconnect(1),
        Disconnect(2),
        Ended(None),
    ]


def test_a_client_comes_back_to_the_node_that_served_it_last() -> None:
    one = handed_over()
    one.welcome(2, 4, "b")
    assert one.wake(RetryDue(), pause(one.lost(2)))[0] == Connect(3, "ws://b")
