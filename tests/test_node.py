"""Nodes: what is spoken comes out in order, once; time runs forward; a batch means each in turn."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.matching import EXACT, MATCHERS
from nearcast.model.commands import Command, Leave, Publish
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.node import (
    ClearTimer,
    Deliver,
    Effect,
    Message,
    Node,
    Note,
    Outbox,
    Send,
    SendMany,
    SetTimer,
    Stop,
    Timer,
)
from nearcast.protocols.client_server import (
    Bye,
    Cancel,
    CentralServer,
    Interest,
    Moved,
    Notify,
    Post,
)
from nearcast.space.motion import Moving
from nearcast.space.shapes import disc, point
from support.examples import examples
from support.strategies import publications, regions, shapes, subscriptions


class Word(Message, frozen=True, tag=1):
    number: int


class Tick(Timer, frozen=True):
    number: int


PUBLICATION = Publication(1, 2, 3, point(0, 0))

# Each verb beside the effect that it must become.
EFFECTS: st.SearchStrategy[tuple[str, tuple[Any, ...], Effect]] = st.integers(0, 9).flatmap(
    lambda n: st.sampled_from(
        [
            ("send", (n, Word(n)), Send(n, Word(n))),
            ("send_many", ((n, n + 1), Word(n)), SendMany((n, n + 1), Word(n))),
            ("set_timer", (Tick(n), n), SetTimer(Tick(n), n)),
            ("clear_timer", (Tick(n),), ClearTimer(Tick(n))),
            ("deliver", (PUBLICATION, [n], 2), Deliver(PUBLICATION, [n], 2)),
            ("note", ("joined", n, 0.5), Note("joined", n, 0.5)),
            ("note", ("joined",), Note("joined", None, None)),
            ("stop", (), Stop()),
        ]
    )
)
SCRIPTS = st.lists(EFFECTS, max_size=6)
Script = list[tuple[str, tuple[Any, ...], Effect]]


class ScriptedNode(Node):
    """Produces the effects of its script, and notes each event."""

    def __init__(self) -> None:
        super().__init__(5, Random(1))
        self.script: Script = []
        self.inputs: list[object] = []

    def _act(self, *arguments: object) -> None:
        self.inputs.append((self.now, *arguments))
        for verb, arguments, _ in self.script:
            getattr(self.out, verb)(*arguments)

    def on_start(self) -> None:
        self._act("start")

    def on_message(self, sender: int, message: Message) -> None:
        self._act("message", sender, message)

    def on_timer(self, timer: Timer) -> None:
        self._act("timer", timer)

    def on_command(self, command: Command) -> None:
        self._act("command", command)


DOORS: list[tuple[Callable[[Node, int], list[Effect]], tuple[object, ...]]] = [
    (lambda node, now: node.start(now), ("start",)),
    (lambda node, now: node.receive(now, 8, Word(1)), ("message", 8, Word(1))),
    (lambda node, now: node.receive_many(now, [(8, Word(1))]), ("message", 8, Word(1))),
    (lambda node, now: node.wake(now, Tick(3)), ("timer", Tick(3))),
    (lambda node, now: node.obey(now, Leave()), ("command", Leave())),
]


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(DOORS), SCRIPTS, st.integers(0, 3)), max_size=6))
def test_each_input_returns_exactly_its_effects_in_order(
    calls: list[tuple[Any, Script, int]],
) -> None:
    node, now = ScriptedNode(), 0
    kept: list[tuple[list[Effect], list[Effect]]] = []
    for turn, ((door, arguments), script, pause) in enumerate(calls, 1):
        now += pause
        node.script = script
        effects = door(node, now)
        expected = [effect for _, _, effect in script]
        assert effects == expected
        assert node.inputs[-1] == (now, *arguments)
        assert len(node.inputs) == turn
        kept.append((effects, expected))
        if Stop() in effects:
            break
    for effects, expected in kept:
        assert effects == expected, "what a door has handed over does not change later"


@pytest.mark.parametrize(("door", "arguments"), DOORS)
@pytest.mark.parametrize(("again", "_"), DOORS)
def test_a_stopped_node_receives_and_does_nothing_more(
    door: Callable[[Node, int], list[Effect]],
    arguments: tuple[object, ...],
    again: Callable[[Node, int], list[Effect]],
    _: object,
) -> None:
    node = ScriptedNode()
    node.script = [("stop", (), Stop())]
    assert door(node, 1) == [Stop()]
    node.script = [("note", ("I am back",), Note("I am back"))]
    assert again(node, 2) == []
    assert node.receive_many(3, [(8, Word(1)), (8, Word(2))]) == []
    assert node.inputs == [(1, *arguments)]


def test_a_returned_list_of_effects_belongs_to_the_caller() -> None:
    node = ScriptedNode()
    first = node.start(0)
    node.script = [("note", ("later",), Note("later"))]
    second = node.wake(1, Tick(1))
    assert first == []
    assert second == [Note("later")]
    for list_of_mine in (first, second):
        list_of_mine[:] = [Note("mine")]
        assert node.wake(2, Tick(1)) == [Note("later")]
    node.script = []
    assert node.wake(3, Tick(1)) == []


@examples(40)
@given(SCRIPTS, SCRIPTS)
def test_draining_empties_the_outbox(first: Script, second: Script) -> None:
    out = Outbox()
    for script in (first, second):
        for verb, arguments, _ in script:
            getattr(out, verb)(*arguments)
        assert out.drain() == [effect for _, _, effect in script]
        assert out.drain() == []


@examples(40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.builds(Word, st.integers(0, 9))), max_size=6), SCRIPTS
)
def test_many_messages_at_once_mean_each_in_turn(
    arrivals: list[tuple[int, Message]], script: Script
) -> None:
    together, apart = ScriptedNode(), ScriptedNode()
    together.script = apart.script = script
    one_by_one: list[Effect] = []
    for sender, message in arrivals:
        one_by_one.extend(apart.receive(7, sender, message))
    assert together.receive_many(7, arrivals) == one_by_one
    assert together.inputs == apart.inputs


# Time.


@pytest.mark.parametrize(("door", "arguments"), DOORS)
def test_time_cannot_run_back_at_any_input(
    door: Callable[[Node, int], list[Effect]], arguments: tuple[object, ...]
) -> None:
    node = ScriptedNode()
    node.start(10)
    with pytest.raises(AssertionError, match=r"^node 5: time ran back from 10 to 9$"):
        door(node, 9)
    assert node.now == 10
    assert node.inputs == [(10, "start")], "nobody is asked at a time that cannot be"
    assert door(node, 10) == []
    assert node.inputs[-1] == (10, *arguments), "the same moment may come again"


def test_a_new_node_has_time_0_its_id_its_random_stream_and_knows_nobody() -> None:
    node = ScriptedNode()
    assert (node.id, node.now) == (5, 0)
    assert node.rng.random() == Random(1).random()
    assert node.ready
    assert list(node.known(0)) == []
    with pytest.raises(AssertionError):
        node.start(-1)


# Values.


def test_a_node_class_needs_on_message() -> None:
    deaf: Any = type("Deaf", (Node,), {})
    with pytest.raises(TypeError, match="on_message"):
        deaf(1, Random(1))


def test_the_other_hooks_are_optional() -> None:
    class Quiet(Node):
        def on_message(self, sender: int, message: Message) -> None:
            """Nothing to say."""

    quiet = Quiet(1, Random(1))
    assert quiet.start(0) == quiet.wake(1, Tick(1)) == quiet.receive(2, 3, Word(1)) == []
    assert quiet.obey(3, Publish(1, point(0, 0))) == quiet.receive_many(4, [(3, Word(1))]) == []


def test_equal_timers_are_the_same_timer() -> None:
    class Tock(Timer, frozen=True):
        number: int

    timers: set[Timer] = {Tick(1), Tick(1), Tick(2), Tock(1), Tock(1)}
    assert len(timers) == 3
    assert Tick(1) in timers
    assert Tock(2) not in timers


def test_a_message_carries_nothing_and_is_not_lost_unless_it_says_so() -> None:
    assert Word(1).carries() is None
    assert not Word.lossy


# The batched door of a server: the same effects, whatever the batches and whoever matches.


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, Message]:
    """A client's message, mostly about what is its own."""
    sender = draw(st.integers(0, 3))
    subscription_id = draw(st.integers(0, 4))
    kind = draw(st.integers(0, 9))
    if kind < 3:
        wanted = replace(draw(subscriptions(2)), id=subscription_id, channel="")
        return sender, Interest(wanted if kind == 0 else replace(wanted, node=sender))
    if kind == 3:
        return sender, Moved(subscription_id, draw(regions(2)))
    if kind == 4:
        return sender, Cancel(subscription_id, draw(st.integers(0, 9)))
    if kind == 5:
        return sender, draw(st.sampled_from([Bye(0), Notify(PUBLICATION, (1,))]))
    wide = shapes(2) | st.builds(disc, st.just(0.0), st.just(0.0), st.floats(5, 50))
    said = replace(draw(publications(2)), node=sender, channel="", shape=draw(wide))
    return sender, Post(said)


HISTORIES = st.lists(st.lists(arrivals(), min_size=2, max_size=6), min_size=2, max_size=5)
History = Sequence[Sequence[tuple[int, Message]]]


def server(matcher: str) -> CentralServer:
    return CentralServer(99, Random(1), MATCHERS[matcher]())


def one_by_one(node: Node, history: History) -> list[Effect]:
    return [
        effect
        for now, batch in enumerate(history)
        for sender, message in batch
        for effect in node.receive(now, sender, message)
    ]


def at_once(node: Node, history: History) -> list[Effect]:
    return [effect for now, batch in enumerate(history) for effect in node.receive_many(now, batch)]


@pytest.mark.parametrize("matcher", EXACT)
@examples(16)
@given(history=HISTORIES)
def test_a_server_answers_a_batch_as_it_answers_each_in_turn(
    matcher: str, history: History
) -> None:
    expected = one_by_one(server("scan"), history)
    assert at_once(server(matcher), history) == expected
    assert one_by_one(server(matcher), history) == expected
    assert at_once(server(matcher), [[arrival for batch in history for arrival in batch]]) == (
        expected
    )


@pytest.mark.parametrize("matcher", EXACT)
def test_a_change_between_two_publications_of_a_batch_counts_for_the_second_alone(
    matcher: str,
) -> None:
    first, second = (Subscription(k, 2, Moving(disc(0, 0, 1))) for k in (1, 2))
    batch: list[tuple[int, Message]] = [
        (3, Post(replace(PUBLICATION, id=10, node=3))),
        (2, Interest(first)),
        (3, Post(replace(PUBLICATION, id=11, node=3))),
        (3, Post(replace(PUBLICATION, id=12, node=3))),
        (2, Cancel(1, 0)),
        (3, Post(replace(PUBLICATION, id=13, node=3))),
        (2, Interest(second)),
        (3, Post(replace(PUBLICATION, id=14, node=3))),
        (2, Bye(0)),
        (3, Post(replace(PUBLICATION, id=15, node=3))),
    ]
    assert server(matcher).receive_many(0, batch) == [
        Send(2, Notify(replace(PUBLICATION, id=number, node=3), (by,)))
        for number, by in ((11, 1), (12, 1), (14, 2))
    ]
