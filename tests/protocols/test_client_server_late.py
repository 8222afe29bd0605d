"""Client and server where messages overtake each other: what is sent first does not arrive first.

Whatever the order, the server ends up with what the client wants, and the client receives only what
was published while it wanted it.
"""

from itertools import permutations
from random import Random

import pytest

from nearcast.matching import EXACT
from nearcast.model.commands import Command, Leave, Move, Subscribe, Unsubscribe
from nearcast.model.subscription import Filter, Subscription
from nearcast.node import Deliver, Effect, Message, Note, Send
from nearcast.protocols import client_server, dedup
from nearcast.protocols.client_server import (
    Bye,
    Cancel,
    CentralServerClient,
    Interest,
    Moved,
    Notify,
    Post,
)
from nearcast.space.motion import SECOND
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

# The server and what comes late.


@MATCHER_NAMES
def test_an_interest_that_a_newer_one_has_overtaken_is_ignored(matcher: str) -> None:
    node = server(matcher=matcher)
    assert node.receive(9, ANN, Interest(Subscription(7, ANN, THERE.stamped(5)))) == []
    assert node.receive(9, ANN, Interest(Subscription(7, ANN, HERE))) == [Note("ignored", 7)]
    assert node.subscriptions[ANN][7].region == THERE.stamped(5)
    publication = make_publication(9, x=100.0, t=6)
    assert node.receive(9, BEN, Post(publication)) == [Send(ANN, Notify(publication, (7,)))]
    assert node.receive(9, BEN, Post(make_publication(10, t=6))) == []


@MATCHER_NAMES
def test_an_interest_that_a_move_has_overtaken_is_ignored(matcher: str) -> None:
    node = server(Subscription(7, ANN, HERE), matcher=matcher)
    assert node.receive(9, ANN, Moved(7, THERE.stamped(6))) == []
    late = Subscription(7, ANN, HERE.stamped(5), channel="chat")
    assert node.receive(9, ANN, Interest(late)) == [Note("ignored", 7)]
    assert node.subscriptions[ANN][7] == Subscription(7, ANN, THERE.stamped(6))


@MATCHER_NAMES
@pytest.mark.parametrize("goodbye", [Cancel(7, 5), Bye(5)])
@pytest.mark.parametrize("since", [0, 5])
def test_an_interest_that_its_goodbye_has_overtaken_is_ignored(
    matcher: str, goodbye: Message, since: int
) -> None:
    node = server(matcher=matcher)
    assert node.receive(9, ANN, goodbye) == []
    late = Interest(Subscription(7, ANN, HERE.stamped(since)))
    assert node.receive(9, ANN, late) == [Note("ignored", 7)]
    assert node.receive_many(9, [(ANN, late)]) == [Note("ignored", 7)]
    assert node.receive(9, BEN, Post(make_publication(9, t=9))) == []


@MATCHER_NAMES
@pytest.mark.parametrize("goodbye_is_late", [False, True])
def test_a_goodbye_ends_what_was_before_it_and_nothing_of_a_later_life(
    matcher: str, goodbye_is_late: bool
) -> None:
    node = server(Subscription(7, ANN, HERE), matcher=matcher)
    arrivals: list[Message] = [Bye(5), Interest(Subscription(8, ANN, HERE.stamped(6)))]
    for message in reversed(arrivals) if goodbye_is_late else arrivals:
        assert node.receive(9, ANN, message) == []
    assert list(node.subscriptions[ANN]) == [8]
    assert node.receive(9, BEN, Post(make_publication(9, t=9))) == [
        Send(ANN, Notify(make_publication(9, t=9), (8,)))
    ]


def test_an_older_goodbye_that_comes_late_takes_back_nothing_of_a_newer_one() -> None:
    node = server()
    node.receive(0, ANN, Bye(5))
    node.receive(0, ANN, Bye(2))
    assert node.receive(0, ANN, Interest(Subscription(7, ANN, HERE.stamped(4)))) == [
        Note("ignored", 7)
    ]


def test_the_goodbye_of_one_is_none_of_another() -> None:
    node = server()
    for sender in (BEN, EVE):
        node.receive(0, sender, Bye(100))
    assert node.receive(0, ANN, Interest(Subscription(7, ANN, HERE))) == []


def test_a_server_remembers_the_latest_goodbyes_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_server, "MAX_REMEMBERED", 10)
    node = server()
    for number in range(50):
        node.receive(0, number, Bye(5))
        node.receive(0, ANN, Cancel(number, 5))
    assert list(node.left) == list(range(40, 50))
    assert list(node.ended) == [(ANN, number) for number in range(40, 50)]


def test_nobody_can_cancel_what_another_is_about_to_want() -> None:
    node = server()
    node.receive(0, BEN, Cancel(7, 0))
    node.receive(1, ANN, Interest(Subscription(7, ANN, HERE)))
    assert node.owner == {7: ANN}


LIFE: list[tuple[int, Command]] = [
    (1, Subscribe(7, HERE, Filter("weight <= t"), "chat")),
    (2, Move(7, THERE)),
    (3, Move(7, HERE)),
    (4, Unsubscribe(7)),
]


@pytest.mark.parametrize("acts", range(1, len(LIFE) + 1))
@pytest.mark.parametrize("leaves", [False, True])
def test_in_whatever_order_the_messages_of_a_life_arrive_the_server_ends_up_with_its_end(
    acts: int, leaves: bool
) -> None:
    """With the answers to its questions, which the client gives as long as it is there."""
    sent: list[Message] = []
    ann = client()
    for now, command in [*LIFE[:acts], *([(5, Leave())] if leaves else [])]:
        sent += [e.message for e in ann.obey(now, command) if isinstance(e, Send)]
    for order in permutations(sent):
        node = server()
        for message in order:
            answered = False
            for effect in node.receive(9, ANN, message):
                if isinstance(effect, Send):
                    for answer in ann.receive(9, SERVER, effect.message):
                        assert isinstance(answer, Send)
                        assert node.receive(9, ANN, answer.message) == []
                        answered = True
            assert not (answered and leaves), "who has left answers nothing"
        known = node.subscriptions.get(ANN, {})
        assert known == ({} if leaves else ann.subscriptions)


# The client and what comes late.


def deliveries(effects: list[Effect]) -> list[tuple[int, tuple[int, ...]]]:
    return [(e.publication.id, tuple(e.subscriptions)) for e in effects if isinstance(e, Deliver)]


@pytest.mark.parametrize(
    ("made", "delivered"), [(0, False), (4, False), (5, True), (8, True), (9, False), (20, False)]
)
def test_a_client_delivers_what_was_published_while_it_wanted_it_however_late(
    made: int, delivered: bool
) -> None:
    ann = client()
    ann.obey(5, Subscribe(7, HERE))
    ann.obey(9, Unsubscribe(7))
    effects = ann.receive(30, SERVER, Notify(make_publication(1, t=made), (7,)))
    assert effects == ([Deliver(make_publication(1, t=made), (7,), 2)] if delivered else [])
    assert [other for other, _ in ann.known(30)] == ([BEN] if delivered else [])


def test_of_several_subscriptions_a_client_delivers_for_those_that_wanted_it() -> None:
    ann = client()
    ann.obey(0, Subscribe(7, HERE))
    ann.obey(5, Subscribe(8, HERE))
    ann.obey(9, Unsubscribe(7))
    moments = {1: 0, 2: 5, 3: 9}
    delivered = [
        deliveries(ann.receive(20, SERVER, Notify(make_publication(p, t=t), (6, 7, 8))))
        for p, t in moments.items()
    ]
    assert delivered == [[(1, (7,))], [(2, (7, 8))], [(3, (8,))]]


def test_a_move_or_a_repeated_subscribe_does_not_end_the_span_of_a_subscription() -> None:
    ann = listener()
    ann.obey(5, Move(7, THERE))
    ann.obey(6, Subscribe(7, HERE, channel="chat"))
    for publication, made in ((1, 0), (2, 4), (3, 5), (4, 9)):
        effects = ann.receive(9, SERVER, Notify(make_publication(publication, t=made), (7,)))
        assert deliveries(effects) == [(publication, (7,))]


def test_an_unwanted_copy_does_not_suppress_a_wanted_one() -> None:
    ann = listener()
    assert ann.receive(5, SERVER, Notify(make_publication(9), (12345,))) == []
    assert deliveries(ann.receive(6, SERVER, Notify(make_publication(9), (7,)))) == [(9, (7,))]


@pytest.mark.parametrize("command", [Move(7, HERE), Unsubscribe(7)])
def test_a_command_about_nothing_is_a_note_and_changes_nothing(command: Command) -> None:
    assert client().obey(0, command) == [Note("ignored", 7)]
    ann = listener()
    ann.obey(1, Unsubscribe(7))
    assert ann.obey(2, command) == [Note("ignored", 7)]
    assert ann.subscriptions == {}
    assert deliveries(ann.receive(9, SERVER, Notify(make_publication(9), (7,)))) == [(9, (7,))]
    assert deliveries(ann.receive(9, SERVER, Notify(make_publication(10, t=1), (7,)))) == []


def test_reading_the_known_publishers_changes_nothing() -> None:
    ann = listener(memory=10)
    ann.receive(0, SERVER, Notify(make_publication(1), (7,)))
    before = list(ann.known(5))
    assert list(ann.known(50)) == []
    assert list(ann.known(5)) == before == [(BEN, (0.0, 0.0, 0.0))]


def test_a_client_forgets_old_deliveries_once_there_are_many_and_no_recent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dedup, "REMEMBERED", 10)
    ann = CentralServerClient(ANN, Random(1), SERVER, SECOND)
    ann.obey(0, Subscribe(7, HERE))
    recent = dedup.DUPLICATE_WINDOW
    for number in range(1_000):
        now = number * recent // 5
        assert len(ann.receive(now, SERVER, Notify(make_publication(number), (7,)))) == 1
        for copy in range(max(0, number - 5), number + 1):
            assert ann.receive(now, SERVER, Notify(make_publication(copy), (7,))) == []
        assert len(ann.delivered) <= 20


# Posts in another's name.


@pytest.mark.parametrize("matcher", EXACT)
def test_a_publication_in_the_name_of_another_is_refused_in_a_batch_too(matcher: str) -> None:
    node = server(Subscription(7, ANN, HERE), matcher=matcher)
    first, forged, last = make_publication(1), make_publication(2), make_publication(3)
    assert node.receive_many(9, [(BEN, Post(first)), (EVE, Post(forged)), (BEN, Post(last))]) == [
        Send(ANN, Notify(first, (7,))),
        Note("refused", 2),
        Send(ANN, Notify(last, (7,))),
    ]
    assert node.receive(9, EVE, Post(make_publication(4, EVE))) == [
        Send(ANN, Notify(make_publication(4, EVE), (7,)))
    ]
