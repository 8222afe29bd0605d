"""Client and server, message by message; unknown senders, late messages and forged senders."""

from collections.abc import Callable
from math import inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.matching import EXACT
from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Unsubscribe
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.node import Deliver, Effect, Message, Note, Send, Stop
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.client_server import (
    CODEC,
    KIND,
    Ask,
    Bye,
    Cancel,
    CentralServer,
    ClientServerOverlay,
    Interest,
    Moved,
    Notify,
    Parameters,
    Post,
)
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import SECOND, path
from nearcast.space.shapes import box, disc, point
from support.client_server_nodes import (
    ANN,
    BEN,
    EVE,
    HERE,
    MATCHER_NAMES,
    SERVER,
    THERE,
    client,
    listener,
    make_publication,
    server,
)
from support.examples import examples
from support.strategies import ATTRIBUTES, TIMES, regions, shapes, subscriptions

# The client obeys its application.


def test_a_subscription_is_stamped_kept_and_sent() -> None:
    ann = client()
    subscribe = Subscribe(7, HERE, Filter("weight > t"), "chat", True)
    expected = Subscription(
        7, ANN, HERE.stamped(5), Filter("weight > t", 5), channel="chat", echo=True
    )
    assert ann.obey(5, subscribe) == [Send(SERVER, Interest(expected))]
    assert ann.subscriptions == {7: expected}


def test_a_move_sends_the_region_alone() -> None:
    ann = client()
    ann.obey(0, Subscribe(7, HERE, Filter("weight > t"), "chat"))
    assert ann.obey(5, Move(7, THERE)) == [Send(SERVER, Moved(7, THERE.stamped(5)))]
    assert ann.subscriptions[7] == Subscription(
        7, ANN, THERE.stamped(5), Filter("weight > t", 0), "chat"
    )


def test_a_cancelled_subscription_is_forgotten() -> None:
    ann = listener()
    assert ann.obey(5, Unsubscribe(7)) == [Send(SERVER, Cancel(7, 5))]
    assert ann.subscriptions == {}


def test_a_publication_is_stamped_and_posted() -> None:
    publish = Publish(9, box(1, 2, 3, 4), "chat", {"weight": 5}, b"hello")
    assert client().obey(5, publish) == [
        Send(SERVER, Post(Publication(9, ANN, 5, box(1, 2, 3, 4), "chat", {"weight": 5}, b"hello")))
    ]


def test_who_leaves_says_goodbye_and_stops() -> None:
    ann = listener()
    assert ann.obey(5, Leave()) == [Send(SERVER, Bye(5)), Stop()]


# The client listens to its server and to nobody else.


def test_what_the_server_sends_is_delivered_after_two_messages() -> None:
    ann = client()
    ann.obey(0, Subscribe(7, HERE))
    ann.obey(0, Subscribe(8, HERE))
    publication = make_publication(9)
    assert ann.receive(5, SERVER, Notify(publication, (7, 8))) == [Deliver(publication, (7, 8), 2)]


def test_a_copy_of_the_network_is_not_delivered_again() -> None:
    ann = listener()
    assert len(ann.receive(5, SERVER, Notify(make_publication(9), (7,)))) == 1
    assert ann.receive(6, SERVER, Notify(make_publication(9), (7,))) == []
    assert ann.receive_many(7, [(SERVER, Notify(make_publication(9), (7,)))] * 3) == []
    assert len(ann.receive(8, SERVER, Notify(make_publication(10), (7,)))) == 1


def test_an_ask_is_answered_with_the_whole_interest_as_it_is_now() -> None:
    ann = client()
    ann.obey(0, Subscribe(7, HERE, Filter("weight > t"), "chat"))
    ann.obey(5, Move(7, THERE))
    now = Subscription(7, ANN, THERE.stamped(5), Filter("weight > t", 0), "chat")
    assert ann.receive(9, SERVER, Ask(7)) == [Send(SERVER, Interest(now))]
    ann.obey(10, Unsubscribe(7))
    assert ann.receive(11, SERVER, Ask(7)) == []
    assert ann.receive(11, SERVER, Ask(12345)) == []


@pytest.mark.parametrize(
    "message",
    [
        Notify(make_publication(9), (7,)),
        Ask(7),
        Interest(Subscription(7, ANN, THERE)),
        Moved(7, THERE),
        Cancel(7, 0),
        Post(make_publication(9)),
        Bye(0),
    ],
)
def test_a_client_ignores_unknown_nodes(message: Message) -> None:
    ann = listener()
    before = dict(ann.subscriptions)
    for sender in (EVE, ANN, 0):
        assert ann.receive(5, sender, message) == [Note("ignored", sender)]
    assert ann.subscriptions == before
    assert list(ann.known(5)) == []


@pytest.mark.parametrize(
    "message", [Interest(Subscription(7, ANN, THERE)), Moved(7, THERE), Cancel(7, 0), Bye(0)]
)
def test_a_client_ignores_what_only_a_server_should_receive(message: Message) -> None:
    ann = listener()
    assert ann.receive(5, SERVER, message) == [Note("ignored", SERVER)]
    assert list(ann.subscriptions) == [7]


# Whom a client knows.


def test_a_client_knows_publishers_where_they_published_and_forgets_them() -> None:
    ann = listener(memory=100)
    ann.receive(10, SERVER, Notify(make_publication(1, BEN, x=5.0), (7,)))
    ann.receive(60, SERVER, Notify(make_publication(2, EVE, x=6.0), (7,)))
    assert dict(ann.known(60)) == {BEN: (5.0, 0.0, 0.0), EVE: (6.0, 0.0, 0.0)}
    assert dict(ann.known(110)) == {BEN: (5.0, 0.0, 0.0), EVE: (6.0, 0.0, 0.0)}
    assert dict(ann.known(111)) == {EVE: (6.0, 0.0, 0.0)}
    assert dict(ann.known(160)) == {EVE: (6.0, 0.0, 0.0)}
    assert dict(ann.known(161)) == {}


def test_who_publishes_again_is_known_for_longer_and_at_its_new_place() -> None:
    ann = listener(memory=100)
    ann.receive(0, SERVER, Notify(make_publication(1, BEN, x=5.0), (7,)))
    ann.receive(90, SERVER, Notify(Publication(2, BEN, 90, box(1, 2, 3, 4)), (7,)))
    assert dict(ann.known(190)) == {BEN: (1.0, 2.0, 0.0)}


def test_who_receives_its_own_echo_does_not_know_itself() -> None:
    ann = listener()
    ann.receive(0, SERVER, Notify(make_publication(1, ANN), (7,)))
    assert dict(ann.known(0)) == {}


# The server, message by message.


@MATCHER_NAMES
def test_a_publication_is_sent_once_to_each_subscriber_with_all_its_subscriptions(
    matcher: str,
) -> None:
    node = server(
        Subscription(7, ANN, HERE),
        Subscription(3, EVE, HERE),
        Subscription(5, ANN, HERE),
        Subscription(6, ANN, THERE),
        Subscription(4, BEN, HERE),
        Subscription(2, BEN, HERE, echo=True),
        Subscription(1, EVE, HERE, channel="chat"),
        matcher=matcher,
    )
    publication = make_publication(9, BEN)
    assert node.receive(5, BEN, Post(publication)) == [
        Send(BEN, Notify(publication, (2,))),
        Send(EVE, Notify(publication, (3,))),
        Send(ANN, Notify(publication, (5, 7))),
    ]


@MATCHER_NAMES
def test_a_post_is_matched_at_its_own_moment_and_not_at_the_servers(matcher: str) -> None:
    walker = path(disc(0, 0, 1), [(10.0, 0.0, 0.0)], 1.0)
    node = server(Subscription(7, ANN, walker), matcher=matcher)
    publication = make_publication(9, x=5.0, t=5 * SECOND)
    assert node.receive(60 * SECOND, BEN, Post(publication)) == [
        Send(ANN, Notify(publication, (7,)))
    ]
    assert node.receive(60 * SECOND, BEN, Post(make_publication(10, x=5.0, t=9 * SECOND))) == []


def test_a_publication_that_nobody_wants_is_sent_to_nobody() -> None:
    assert server().receive(0, BEN, Post(make_publication(9))) == []
    assert server(Subscription(7, ANN, THERE)).receive(0, BEN, Post(make_publication(9))) == []


@MATCHER_NAMES
def test_an_interest_replaces_its_predecessor_whole(matcher: str) -> None:
    node = server(Subscription(7, ANN, HERE, channel="chat"), matcher=matcher)
    assert node.receive(1, ANN, Interest(Subscription(7, ANN, THERE.stamped(1)))) == []
    assert node.receive(2, BEN, Post(replace(make_publication(9, t=2), channel="chat"))) == []
    publication = make_publication(10, x=100.0, t=2)
    assert node.receive(2, BEN, Post(publication)) == [Send(ANN, Notify(publication, (7,)))]


@MATCHER_NAMES
def test_a_move_changes_the_region_and_keeps_the_rest(matcher: str) -> None:
    node = server(Subscription(7, ANN, HERE, Filter("weight <= t", 0), "chat"), matcher=matcher)
    assert node.receive(5, ANN, Moved(7, THERE.stamped(5 * SECOND))) == []
    loud = replace(
        make_publication(9, x=100.0, t=6 * SECOND), channel="chat", attributes={"weight": 6}
    )
    assert node.receive(6, BEN, Post(loud)) == [Send(ANN, Notify(loud, (7,)))]
    assert node.receive(6, BEN, Post(replace(loud, channel=""))) == []
    assert node.receive(6, BEN, Post(replace(loud, attributes={"weight": 7}))) == []
    assert node.receive(6, BEN, Post(replace(loud, shape=point(0, 0)))) == []


def test_a_move_to_a_formula_restarts_the_filters_clock_at_both_ends() -> None:
    ann, node = client(), server()
    for effect in ann.obey(0, Subscribe(7, HERE, Filter("weight <= t"))):
        assert isinstance(effect, Send)
        assert node.receive(0, ANN, effect.message) == []
    for effect in ann.obey(5 * SECOND, Move(7, Formula("x >= t"))):
        assert isinstance(effect, Send)
        assert node.receive(5 * SECOND, ANN, effect.message) == []
    assert ann.subscriptions[7].filter == Filter("weight <= t", 5 * SECOND)
    assert node.subscriptions[ANN][7] == ann.subscriptions[7]


@MATCHER_NAMES
def test_a_move_that_was_overtaken_is_ignored(matcher: str) -> None:
    node = server(Subscription(7, ANN, HERE), matcher=matcher)
    assert node.receive(0, ANN, Moved(7, THERE.stamped(5))) == []
    assert node.receive(0, ANN, Moved(7, HERE.stamped(4))) == [Note("ignored", 7)]
    publication = make_publication(9, x=100.0, t=6)
    assert node.receive(0, BEN, Post(publication)) == [Send(ANN, Notify(publication, (7,)))]
    assert node.receive(0, BEN, Post(make_publication(10, t=6))) == []
    assert node.receive(0, ANN, Moved(7, HERE.stamped(5))) == []
    assert node.receive(0, BEN, Post(make_publication(11, t=6))) == [
        Send(ANN, Notify(make_publication(11, t=6), (7,)))
    ]


@MATCHER_NAMES
def test_a_cancelled_interest_receives_nothing_more(matcher: str) -> None:
    node = server(Subscription(7, ANN, HERE), Subscription(8, ANN, HERE), matcher=matcher)
    assert node.receive(0, ANN, Cancel(7, 0)) == []
    assert node.receive(0, BEN, Post(make_publication(9))) == [
        Send(ANN, Notify(make_publication(9), (8,)))
    ]
    assert node.receive(0, ANN, Cancel(7, 0)) == [], "a copy of the message does no harm"
    assert node.receive(0, ANN, Moved(7, THERE)) == [Send(ANN, Ask(7))]


@MATCHER_NAMES
def test_bye_forgets_all_of_one_and_none_of_others(matcher: str) -> None:
    node = server(
        *(Subscription(k, ANN, HERE) for k in range(5)),
        Subscription(9, EVE, HERE),
        matcher=matcher,
    )
    assert node.receive(0, ANN, Bye(0)) == []
    assert node.receive(0, BEN, Post(make_publication(9))) == [
        Send(EVE, Notify(make_publication(9), (9,)))
    ]
    assert not node.subscriptions.get(ANN)
    assert list(node.owner) == [9]
    assert node.receive(0, ANN, Bye(0)) == []
    assert node.receive(0, BEN, Bye(0)) == [], "nor is it wrong of one who had nothing"


@pytest.mark.parametrize("message", [Notify(make_publication(9), (7,)), Ask(7)])
def test_a_server_ignores_what_servers_send(message: Message) -> None:
    node = server(Subscription(7, ANN, HERE))
    assert [e for e in node.receive(0, ANN, message) if not isinstance(e, Note)] == []
    assert node.receive(0, BEN, Post(make_publication(9))) == [
        Send(ANN, Notify(make_publication(9), (7,)))
    ]


# No client publishes or subscribes for another.


def still_hers(node: CentralServer) -> bool:
    """Is the interest of Ann, which Eve has been after, just as it was?"""
    return node.receive(9, BEN, Post(make_publication(9))) == [
        Send(ANN, Notify(make_publication(9), (7,)))
    ]


@MATCHER_NAMES
@pytest.mark.parametrize(
    ("forged", "answer"),
    [
        (Interest(Subscription(7, ANN, THERE)), [Note("refused", 7)]),
        (Interest(Subscription(7, EVE, THERE)), [Note("refused", 7)]),
        (Interest(Subscription(8, ANN, HERE)), [Note("refused", 8)]),
        (Moved(7, THERE.stamped(5)), [Send(EVE, Ask(7))]),
        (Cancel(7, 0), []),
        (Bye(0), []),
        (Bye(100), []),
        (Post(make_publication(9)), [Note("refused", 9)]),
        (Post(make_publication(9, ANN)), [Note("refused", 9)]),
    ],
)
def test_nobody_can_send_in_the_name_of_another(
    matcher: str, forged: Message, answer: list[Effect]
) -> None:
    node = server(Subscription(7, ANN, HERE), matcher=matcher)
    assert node.receive(5, EVE, forged) == answer
    assert still_hers(node)
    assert node.receive_many(9, [(EVE, forged)]) == answer


# Repair.


@MATCHER_NAMES
def test_a_server_that_missed_the_interest_asks_and_gets_it(matcher: str) -> None:
    ann, node = client(), server(matcher=matcher)
    ann.obey(0, Subscribe(7, HERE, None, "chat"))  # this message is lost
    (moved,) = ann.obey(5, Move(7, THERE))
    assert isinstance(moved, Send)
    (ask,) = node.receive(10, ANN, moved.message)
    assert ask == Send(ANN, Ask(7))
    (answer,) = ann.receive(15, SERVER, Ask(7))
    assert answer == Send(SERVER, Interest(Subscription(7, ANN, THERE.stamped(5), None, "chat")))
    assert isinstance(answer, Send)
    assert node.receive(20, ANN, answer.message) == []
    publication = replace(make_publication(9, x=100.0, t=20), channel="chat")
    assert node.receive(20, BEN, Post(publication)) == [Send(ANN, Notify(publication, (7,)))]


# All together: clients and their server on an ideal network, against the sentence itself.

# Wide, and mostly on one channel, so that publications have many receivers.
WIDE = st.builds(disc, st.floats(-9, 9), st.floats(-9, 9), st.floats(0, 60))
CHANNEL = st.sampled_from(["", "", "", "chat"])
COMMANDS: st.SearchStrategy[Subscribe | Move | Unsubscribe | Publish] = st.one_of(
    st.builds(
        lambda s, channel: Subscribe(s.id % 3, s.region, s.filter, channel, s.echo),
        subscriptions(2),
        CHANNEL,
    ),
    st.builds(Move, st.integers(0, 2), regions(2)),
    st.builds(Unsubscribe, st.integers(0, 2)),
    *[st.builds(Publish, st.just(0), WIDE | shapes(2), CHANNEL, ATTRIBUTES)] * 3,
)


class Ideal:
    """A network without delay or loss that carries bytes, as a live host would."""

    def __init__(self, matcher: str) -> None:
        self.nodes = {SERVER: server(matcher=matcher)} | {n: client(n) for n in (ANN, BEN, EVE)}
        self.delivered: list[tuple[int, int, int]] = []

    def obey(self, now: int, node: int, command: Command) -> None:
        self._apply(now, node, self.nodes[node].obey(now, command))

    def _apply(self, now: int, node: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                message = CODEC.decode(CODEC.encode(effect.message))
                answer = self.nodes[effect.to].receive(now, node, message)
                self._apply(now, effect.to, answer)
            elif isinstance(effect, Deliver):
                pairs = ((effect.publication.id, s, node) for s in effect.subscriptions)
                self.delivered.extend(pairs)


@MATCHER_NAMES
@examples(16)
@given(
    lives=st.lists(
        st.tuples(TIMES, st.sampled_from([ANN, BEN, EVE]), COMMANDS), min_size=10, max_size=25
    )
)
def test_whatever_is_commanded_everyone_receives_what_they_want_and_nothing_else(
    matcher: str, lives: list[tuple[int, int, Subscribe | Move | Unsubscribe | Publish]]
) -> None:
    ideal = Ideal(matcher)
    truth: dict[int, Subscription] = {}
    expected: list[tuple[int, int, int]] = []
    ended: set[int] = set()
    now = 0
    for number, (pause, node, command) in enumerate(lives):
        now += pause // 10
        if isinstance(command, Publish):
            command = replace(command, publication=number)
            publication = command.stamped(node, now)
            expected += [
                (number, s.id, s.node) for s in truth.values() if wants(s, publication, now)
            ]
        else:
            mine = node * 10 + command.subscription  # entities have names of their own
            command = replace(command, subscription=mine)
            if mine in ended:  # names are never used again
                continue
            if isinstance(command, Subscribe):
                truth[mine] = command.stamped(node, now)
            elif mine not in truth:
                continue
            elif isinstance(command, Move):
                truth[mine] = truth[mine].moved(command.region, now)
            else:
                del truth[mine]
                ended.add(mine)
        ideal.obey(now, node, command)
    assert sorted(ideal.delivered) == sorted(expected)


# Parameters and the deployment.


@pytest.mark.parametrize(
    ("settings_", "sentence"),
    [
        ({"matcher": "magic"}, f"matcher must be one of {', '.join(EXACT)}, not 'magic'"),
        ({"memory_s": 0.0}, "memory_s must be above 0 and at most 1e6, not 0.0"),
        ({"memory_s": -1.0}, "memory_s must be above 0 and at most 1e6, not -1.0"),
        ({"memory_s": nan}, "memory_s must be above 0 and at most 1e6, not nan"),
        ({"memory_s": inf}, "memory_s must be above 0 and at most 1e6, not inf"),
        ({"memory_s": 1e6 + 1}, "memory_s must be above 0 and at most 1e6, not 1000001.0"),
    ],
)
def test_impossible_parameters_are_refused(settings_: dict[str, object], sentence: str) -> None:
    make: Callable[..., Parameters] = Parameters
    with pytest.raises(ValueError) as refusal:
        make(**settings_)
    assert str(refusal.value) == sentence


@MATCHER_NAMES
def test_a_deployment_is_one_server_and_clients_that_know_it(matcher: str) -> None:
    assert PROTOCOLS["client-server"] is KIND
    overlay = ClientServerOverlay(
        Parameters(matcher=matcher, memory_s=0.5), lambda node: Random(node)
    )
    (only,) = overlay.servers()
    assert only.id == FIRST_SERVER
    assert only.rng.random() == Random(FIRST_SERVER).random()
    ann = overlay.entity(ANN, Random(5))
    assert ann.start(0) == only.start(0) == []
    assert ann.rng.random() == Random(5).random()
    (effect,) = ann.obey(0, Subscribe(7, HERE))
    assert effect == Send(FIRST_SERVER, Interest(Subscription(7, ANN, HERE)))
    ann.receive(0, FIRST_SERVER, Notify(make_publication(1), (7,)))
    assert [other for other, _ in ann.known(SECOND // 2)] == [BEN]
    assert list(ann.known(SECOND // 2 + 1)) == []
