"""The simulated host: order within a moment, timers, silence of the dead, and the batched doors.

The nodes here decide nothing: they log what they are told and do what a table says, so that any
little protocol can be drawn by chance and played by hosts that must agree.
"""

import gc
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Command, Leave, Publish, Subscribe
from nearcast.model.publication import Publication
from nearcast.node import Message, Node, Timer
from nearcast.sim.network import ConstantDelay, Duplication, Jitter, Loss, Network
from nearcast.sim.simulation import Simulation, Step
from nearcast.space.motion import Moving
from nearcast.space.shapes import disc, point
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.wire import Codec
from support.examples import examples

DELAY = 50
BEGIN = -1  # the number under which the table says what a node does when it starts


class Word(Message, frozen=True, tag=1):
    number: int
    left: int = 0  # how often something may still come of it

    def carries(self) -> int | None:
        return self.number if self.number % 2 else None


class Long(Message, frozen=True, tag=2):
    text: str


class Alarm(Timer, frozen=True):
    number: int


class Bell(Timer, frozen=True):
    number: int


CODEC = Codec(Word, Long)
Act: TypeAlias = tuple[Any, ...]
Table: TypeAlias = dict[int, list[Act]]
Log: TypeAlias = list[tuple[Any, ...]]


class Actor(Node):
    """Logs each input; a word or an alarm of some number makes it do what the table says."""

    def __init__(self, node_id: int, log: Log, table: Table | None = None) -> None:
        super().__init__(node_id, Random(node_id))
        self.log = log
        self.table = table or {}

    def on_start(self) -> None:
        self.act(BEGIN, 1)

    def on_message(self, sender: int, message: Message) -> None:
        self.log.append((self.now, self.id, sender, message))
        if isinstance(message, Word) and message.left:
            self.act(message.number, message.left - 1)

    def on_timer(self, timer: Timer) -> None:
        self.log.append((self.now, self.id, timer))
        if isinstance(timer, Alarm):
            self.act(timer.number, 0)

    def on_command(self, command: Command) -> None:
        self.log.append((self.now, self.id, command))
        if isinstance(command, Leave):
            self.out.stop()

    def act(self, number: int, left: int) -> None:
        for act in self.table.get(number, ()):
            match act:
                case "say", to, word:
                    self.send_word(to, Word(word, left))
                case "set", timer, delay:
                    self.out.set_timer(timer, delay)
                case "clear", timer:
                    self.out.clear_timer(timer)
                case "deliver", said:
                    publication = Publication(said, 0, 0, point(0, 0))
                    self.out.deliver(publication, [said, said + 1], 1)
                case "note", value:
                    self.out.note("acted", self.id, value)
                case ("stop",):
                    self.out.stop()

    def send_word(self, to: Sequence[int], word: Word) -> None:
        for one in to:
            self.out.send(one, word)


class BatchActor(Actor):
    """Sends in one batch what an Actor sends to each in turn."""

    def send_word(self, to: Sequence[int], word: Word) -> None:
        self.out.send_many(to, word)


class Unbatched(Simulation):
    """Between any two arrivals stands a step that does nothing, so none are ever neighbours."""

    def steps_at(self, t: int) -> list[Step]:
        steps = super().steps_at(t)
        steps.append(lambda: None)
        return steps


def simulated(
    network: Network | None = None, host: type[Simulation] = Simulation
) -> tuple[Simulation, MemoryTrace, Log]:
    sink = MemoryTrace()
    return host(network or ConstantDelay(DELAY), CODEC, Recorder(sink)), sink, []


def rows(simulation: Simulation, sink: MemoryTrace, table: str) -> list[dict[str, Any]]:
    simulation.recorder.close()
    found: list[dict[str, Any]] = sink.table(table).to_pylist()
    return found


# Time.


def test_what_is_planned_for_one_moment_happens_in_the_order_of_planning() -> None:
    simulation, _, log = simulated()
    for t, name in [(20, "c"), (10, "a"), (20, "d"), (10, "b"), (20, "e")]:
        simulation.at(t, partial(log.append, (t, name)))
    simulation.run(100)
    assert log == [(10, "a"), (10, "b"), (20, "c"), (20, "d"), (20, "e")]
    assert simulation.now == 100


def test_garbage_is_collected_rarely_while_a_simulation_runs_and_as_usual_afterwards() -> None:
    simulation, _, _ = simulated()
    usual, meanwhile = gc.get_threshold(), list[int]()
    simulation.at(10, lambda: meanwhile.append(gc.get_threshold()[0]))
    simulation.at(20, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        simulation.run(20)
    assert meanwhile[0] > usual[0]
    assert gc.get_threshold() == usual


def test_messages_timers_and_plans_of_one_moment_are_ordered_by_age() -> None:
    simulation, _, log = simulated()
    simulation.at(DELAY, partial(log.append, ("first",)))
    table: Table = {BEGIN: [("set", Alarm(1), DELAY), ("say", [2], 7), ("set", Bell(1), DELAY)]}
    simulation.start(Actor(1, log, table))
    simulation.at(DELAY, partial(log.append, ("last",)))
    simulation.start(Actor(2, log))
    simulation.run(DELAY)
    assert log == [
        ("first",),
        (DELAY, 1, Alarm(1)),
        (DELAY, 2, 1, Word(7, 1)),
        (DELAY, 1, Bell(1)),
        ("last",),
    ]


def test_a_step_planned_for_the_present_moment_still_happens_in_it() -> None:
    simulation, _, log = simulated()

    def again(left: int) -> None:
        log.append((simulation.now, left))
        if left:
            simulation.at(simulation.now, partial(again, left - 1))

    simulation.at(10, partial(again, 3))
    simulation.at(10, partial(log.append, ("planned before",)))
    simulation.at(11, partial(log.append, ("later",)))
    simulation.run(11)
    assert log == [(10, 3), ("planned before",), (10, 2), (10, 1), (10, 0), ("later",)]


def test_a_run_goes_up_to_and_including_its_end_and_may_be_continued() -> None:
    simulation, _, log = simulated()
    for t in (10, 20, 21):
        simulation.at(t, partial(log.append, (t,)))
    simulation.run(20)
    assert log == [(10,), (20,)]
    simulation.at(20, partial(log.append, ("added",)))
    simulation.run(30)
    assert log[2:] == [("added",), (21,)]


def test_nothing_can_be_planned_for_the_past() -> None:
    simulation, _, _ = simulated()
    simulation.run(10)
    with pytest.raises(AssertionError, match="it is 10"):
        simulation.at(9, lambda: None)


# Timers are values.


@pytest.mark.parametrize(
    ("acts", "wakes"),
    [
        ([("set", Alarm(1), 10)], [(10, Alarm(1))]),
        ([("set", Alarm(1), 10), ("set", Alarm(1), 30)], [(30, Alarm(1))]),
        ([("set", Alarm(1), 30), ("set", Alarm(1), 10)], [(10, Alarm(1))]),
        ([("set", Alarm(1), 10), ("set", Alarm(1), 10)], [(10, Alarm(1))]),
        ([("set", Alarm(1), 10), ("set", Alarm(2), 9)], [(9, Alarm(2)), (10, Alarm(1))]),
        ([("set", Alarm(1), 10), ("set", Bell(1), 20)], [(10, Alarm(1)), (20, Bell(1))]),
        ([("set", Alarm(1), 10), ("clear", Alarm(1))], []),
        ([("set", Alarm(1), 10), ("clear", Bell(1))], [(10, Alarm(1))]),
        ([("set", Alarm(1), 9), ("clear", Alarm(1)), ("set", Alarm(1), 5)], [(5, Alarm(1))]),
        ([("clear", Alarm(1)), ("set", Alarm(1), 0)], [(0, Alarm(1))]),
    ],
)
def test_an_equal_timer_is_the_same_timer(acts: list[Act], wakes: list[tuple[int, Timer]]) -> None:
    simulation, _, log = simulated()
    simulation.start(Actor(1, log, {BEGIN: acts}))
    simulation.run(100)
    assert log == [(t, 1, timer) for t, timer in wakes]


def test_a_timer_that_has_fired_may_be_set_again() -> None:
    simulation, _, log = simulated()
    again = ("set", Alarm(1), 10)
    simulation.start(Actor(1, log, {BEGIN: [again], 1: [again]}))
    simulation.run(45)
    assert log == [(t, 1, Alarm(1)) for t in (10, 20, 30, 40)]


def test_two_nodes_have_equal_timers_of_their_own() -> None:
    simulation, _, log = simulated()
    simulation.start(Actor(1, log, {BEGIN: [("set", Alarm(1), 10)]}))
    simulation.start(Actor(2, log, {BEGIN: [("set", Alarm(1), 20), ("clear", Bell(1))]}))
    simulation.run(100)
    assert log == [(10, 1, Alarm(1)), (20, 2, Alarm(1))]


@pytest.mark.parametrize("restarts", [(), (5,), (10,), (5, 7)])
def test_timers_of_an_earlier_run_of_a_node_never_fire(restarts: tuple[int, ...]) -> None:
    simulation, _, log = simulated()
    simulation.start(Actor(1, log, {BEGIN: [("set", Alarm(1), 10), ("set", Alarm(2), 30)]}))
    simulation.run(4)
    simulation.crash(1)
    for t in restarts:
        simulation.run(t)
        if 1 in simulation.nodes:
            simulation.crash(1)
        simulation.start(Actor(1, log, {BEGIN: [("set", Alarm(1), 100)]}))
    simulation.run(1_000)
    assert log == [(t + 100, 1, Alarm(1)) for t in restarts[-1:]]


# The dead and those who have left.


def test_messages_to_a_crashed_node_are_lost_and_its_own_still_arrive() -> None:
    simulation, sink, log = simulated()
    simulation.start(Actor(1, log, {BEGIN: [("say", [2, 3], 7)]}))
    simulation.start(Actor(2, log, {BEGIN: [("say", [1, 9], 9)]}))
    simulation.run(10)
    simulation.crash(2)
    simulation.run(DELAY)
    assert log == [(DELAY, 1, 2, Word(9, 1))]
    assert [r["fact"] for r in rows(simulation, sink, "notes")] == ["crashed"]
    assert len(rows(simulation, sink, "messages")) == 4


def test_many_messages_to_a_missing_node_at_one_moment_are_lost() -> None:
    simulation, _, log = simulated()
    simulation.start(Actor(1, log, {BEGIN: [("say", [2, 2, 2], 7)]}))
    simulation.run(DELAY)
    assert log == []


def test_a_stopped_node_is_forgotten() -> None:
    simulation, sink, log = simulated()
    late = [("set", Alarm(2), 10), ("set", Alarm(1), 5), ("say", [1], 3)]
    simulation.start(Actor(1, log, {BEGIN: late, 1: [("stop",)]}))
    simulation.obey(1, Subscribe(77, Moving(disc(0, 0, 1))))
    log.clear()
    simulation.run(1_000)
    assert log == [(5, 1, Alarm(1))]
    assert simulation.nodes == {}
    interests = rows(simulation, sink, "interests")
    assert [(r["t"], r["subscription"], r["ended"]) for r in interests] == [
        (0, 77, False),
        (5, 77, True),
    ]


def test_a_leave_command_has_a_row_in_the_trace() -> None:
    simulation, sink, log = simulated()
    simulation.start(Actor(1, log))
    simulation.obey(1, Subscribe(77, Moving(disc(0, 0, 1))))
    simulation.run(30)
    simulation.obey(1, Leave())
    assert 1 not in simulation.nodes
    assert [(r["t"], r["fact"]) for r in rows(simulation, sink, "notes")] == [(30, "left")]
    assert [(r["t"], r["ended"]) for r in rows(simulation, sink, "interests")] == [
        (0, False),
        (30, True),
    ]


@pytest.mark.parametrize("host", [Unbatched, Simulation])
def test_a_stopped_node_receives_nothing_more_not_even_of_the_same_moment(
    host: type[Simulation],
) -> None:
    simulation, _, log = simulated(host=host)
    simulation.start(Actor(1, log, {BEGIN: [("say", [2, 2, 2], 7)]}))
    simulation.start(Actor(2, log, {7: [("stop",)]}))
    simulation.run(DELAY)
    assert log == [(DELAY, 2, 1, Word(7, 1))]


def test_a_node_cannot_be_started_twice() -> None:
    simulation, _, log = simulated()
    simulation.start(Actor(1, log))
    with pytest.raises(AssertionError, match="here already"):
        simulation.start(Actor(1, log))


# The batched doors mean what the plain ones mean.

NODES = 5
TARGETS = st.lists(st.integers(0, NODES), max_size=9)  # one of them is nobody
TIMERS = st.one_of(st.builds(Alarm, st.integers(0, 2)), st.builds(Bell, st.integers(0, 2)))
ACTS = st.one_of(
    st.tuples(st.just("say"), TARGETS, st.integers(0, 2)),
    st.tuples(st.just("say"), TARGETS, st.integers(0, 2)),
    st.tuples(st.just("set"), TIMERS, st.integers(20, 120)),
    st.tuples(st.just("clear"), TIMERS),
    st.tuples(st.just("deliver"), st.integers(0, 5)),
    st.tuples(st.just("note"), st.just(0.5)),
    st.tuples(st.just("stop")),
)
TABLES = st.dictionaries(st.integers(BEGIN, 2), st.lists(ACTS, max_size=3), min_size=1)


def played(
    tables: list[Table], delay: int, actor: type[Actor], host: type[Simulation], slices: int = 1
) -> tuple[Log, str]:
    """What everybody heard, and the trace, of a run in which one node crashes and returns."""
    simulation, sink, log = simulated(ConstantDelay(delay), host)
    for node, table in enumerate(tables):
        simulation.start(actor(node, log, table))
    simulation.at(60, partial(simulation.crash, 1))
    simulation.at(110, lambda: simulation.start(actor(1, log, tables[0])))
    for k in range(1, slices + 1):
        simulation.run(300 * k // slices)
    simulation.recorder.close()
    return log, digest(sink)


@examples(60)
@given(
    tables=st.lists(TABLES, min_size=NODES, max_size=NODES),
    delay=st.sampled_from([0, DELAY]),
)
def test_any_small_protocol_runs_the_same_with_single_and_batched_inputs(
    tables: list[Table], delay: int
) -> None:
    plain = played(tables, delay, Actor, Unbatched)
    assert played(tables, delay, Actor, Simulation) == plain, "receive_many"
    assert played(tables, delay, BatchActor, Simulation) == plain, "send_many and receive_many"
    assert played(tables, delay, BatchActor, Unbatched, slices=7) == plain, "send_many, in slices"


class Listener(Actor):
    """Logs how many messages come at once."""

    def on_messages(self, arrivals: Sequence[tuple[int, Message]]) -> None:
        self.log.append(("together", len(arrivals)))
        super().on_messages(arrivals)


def test_consecutive_messages_of_one_moment_are_received_as_a_batch() -> None:
    simulation, _, log = simulated()
    acts = [("say", [2], 0), ("say", [2], 1), ("say", [3], 2), ("say", [2], 3)]
    simulation.start(Actor(1, log, {BEGIN: acts}))
    simulation.start(Listener(2, log))
    simulation.run(DELAY)
    words = [(DELAY, 2, 1, Word(number, 1)) for number in (0, 1, 3)]
    assert log == [("together", 2), *words]


@pytest.mark.parametrize(
    "delay", [ConstantDelay(DELAY), Jitter(0, Random(1), ConstantDelay(DELAY))]
)
def test_send_many_reaches_those_whom_it_named_though_the_list_changes_later(
    delay: Network,
) -> None:
    simulation, _, log = simulated(delay)
    friends = [2, 3]
    simulation.start(BatchActor(1, log, {BEGIN: [("say", friends, 7)]}))
    for node in (2, 3, 4):
        simulation.start(Actor(node, log))
    friends[:] = [4]
    simulation.run(DELAY)
    assert log == [(DELAY, node, 1, Word(7, 1)) for node in (2, 3)]


# The trace.


def hostile(seed: int) -> Network:
    jittered = Jitter(40, Random(seed), ConstantDelay(DELAY))
    return Loss(0.2, Random(seed + 1), Duplication(0.3, Random(seed + 2), jittered))


@examples(20)
@given(seed=st.integers(0, 1000), actor=st.sampled_from([Actor, BatchActor]))
def test_the_trace_says_when_each_message_was_received_or_that_it_was_lost(
    seed: int, actor: type[Actor]
) -> None:
    simulation, sink, log = simulated(hostile(seed))
    table: Table = {k: [("set", Alarm(k + 2), 7), ("say", [2, 3], k)] for k in range(1, 101, 2)}
    simulation.start(actor(1, log, {**table, BEGIN: [("set", Alarm(1), 0)]}))
    simulation.start(Actor(2, log))
    simulation.start(Actor(3, log))
    simulation.run(10_000)
    received: dict[tuple[int, int], int] = {}
    for t, node, *what in log:
        if isinstance(what[-1], Word):
            received.setdefault((node, what[-1].number), t)
    messages = rows(simulation, sink, "messages")
    assert len(messages) == simulation.messages == 100
    for row in messages:
        assert row["arrived"] == received.get((row["to"], row["publication"]))
        assert row["lost"] == (row["arrived"] is None)
        assert row["t"] == (row["publication"] // 2) * 7
    assert 50 < len(received) < 100


@given(text=st.text(max_size=300), number=st.integers(0, 2**53 - 1))
@examples(30)
def test_recorded_sizes_are_the_lengths_of_the_encodings(text: str, number: int) -> None:
    simulation, sink, _ = simulated()

    class Sender(Actor):
        def on_start(self) -> None:
            self.out.send(2, Long(text))
            self.out.send_many(range(10), Word(number, 3))

    simulation.start(Sender(1, []))
    sizes = {(r["kind"], r["bytes"]) for r in rows(simulation, sink, "messages")}
    assert sizes == {
        ("Long", len(CODEC.encode(Long(text)))),
        ("Word", len(CODEC.encode(Word(number, 3)))),
    }
    assert simulation.messages == 11


def test_what_a_node_delivers_and_notes_is_recorded_with_its_own_moment() -> None:
    simulation, sink, log = simulated()
    table: Table = {BEGIN: [("set", Alarm(1), 30)], 1: [("deliver", 4), ("note", 0.25)]}
    simulation.start(Actor(6, log, table))
    simulation.run(100)
    assert rows(simulation, sink, "deliveries") == [
        {"t": 30, "node": 6, "publication": 4, "subscription": s, "hops": 1} for s in (4, 5)
    ]
    assert rows(simulation, sink, "notes") == [
        {"t": 30, "node": 6, "fact": "acted", "about": 6, "value": 0.25}
    ]


def test_a_publication_is_recorded_when_the_application_makes_it() -> None:
    simulation, sink, log = simulated()
    simulation.start(Actor(6, log))
    simulation.run(40)
    command = Publish(9, point(1, 2), "chat", {"kind": "apple"}, b"12345")
    simulation.obey(6, command)
    assert log == [(40, 6, command)]
    [row] = rows(simulation, sink, "publications")
    assert (row["t"], row["node"], row["publication"]) == (40, 6, 9)
    assert (row["x"], row["y"], row["channel"], row["bytes"]) == (1.0, 2.0, "chat", 5)
    assert row["attributes"] == '{"kind":"apple"}'
