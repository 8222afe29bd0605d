"""Commands come at their times, interests before publications, and none after the end."""

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Command, Move, Publish, Subscribe, Unsubscribe
from nearcast.node import Message, Node
from nearcast.sim.network import ConstantDelay
from nearcast.sim.simulation import Simulation
from nearcast.sim.workload_player import WorkloadPlayer
from nearcast.space.motion import Moving
from nearcast.space.shapes import Vector, disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.wire import Codec
from nearcast.workloads.workload import Scheduled
from support.examples import examples

BEGINS, ENDS = 1_000, 1_100
HERE = Moving(disc(0, 0, 1))


class Word(Message, frozen=True, tag=1):
    pass


class Obedient(Node):
    """Logs what the application asks of it."""

    def __init__(self, node_id: int, log: list[tuple[int, int, Command]]) -> None:
        super().__init__(node_id, Random(node_id))
        self.log = log

    def on_command(self, command: Command) -> None:
        self.log.append((self.now, self.id, command))

    def on_message(self, sender: int, message: Message) -> None:
        raise AssertionError(f"nobody sends anything, yet {sender} sent {message}")


class ScriptedLife:
    """A life by its commands; its place tells the time."""

    def __init__(self, commands: list[Scheduled]) -> None:
        self.scheduled = commands

    def commands(self) -> Iterator[Scheduled]:
        return iter(self.scheduled)

    def position(self, t: int) -> Vector:
        return float(t), 0.0, 0.0


class Stage:
    """A simulation at the moment when the workload begins, with nobody on stage yet."""

    def __init__(self, entities: int) -> None:
        self.log: list[tuple[int, int, Command]] = []
        self.sink = MemoryTrace()
        self.simulation = Simulation(ConstantDelay(50), Codec(Word), Recorder(self.sink))
        for entity in range(entities):
            self.simulation.start(Obedient(entity, self.log))
        self.simulation.run(BEGINS)
        self.script = WorkloadPlayer(self.simulation, BEGINS, ENDS)

    def enter(self, entity: int, *commands: Scheduled) -> None:
        self.script.enter(entity, ScriptedLife(list(commands)))


def publish(number: int) -> Publish:
    return Publish(number, point(0, 0))


def test_interests_of_all_come_before_publications_of_any() -> None:
    stage = Stage(3)
    stage.enter(0, (5, Subscribe(1, HERE)), (5, publish(10)), (9, publish(11)))
    stage.enter(1, (5, publish(20)), (9, Subscribe(2, HERE)), (9, publish(21)))
    stage.enter(2, (5, Subscribe(3, HERE)), (5, Move(3, HERE)), (5, Unsubscribe(3)))
    stage.simulation.run(ENDS)
    first, second = BEGINS + 5, BEGINS + 9
    assert stage.log == [
        (first, 0, Subscribe(1, HERE)),
        (first, 2, Subscribe(3, HERE)),
        (first, 2, Move(3, HERE)),
        (first, 2, Unsubscribe(3)),
        (first, 0, publish(10)),
        (first, 1, publish(20)),
        (second, 1, Subscribe(2, HERE)),
        (second, 0, publish(11)),
        (second, 1, publish(21)),
    ]


@st.composite
def lives(draw: st.DrawFn, entity: int) -> list[Scheduled]:
    """Ordered by time; at equal times, interests first: what every workload promises."""
    moments = draw(st.lists(st.tuples(st.integers(0, 130), st.booleans()), max_size=12))
    commands: list[Scheduled] = []
    for number, (t, publishes) in enumerate(sorted(moments)):
        identifier = entity * 100 + number
        act = publish(identifier) if publishes else Subscribe(identifier, HERE)
        commands.append((t, act))
    return commands


@examples(60)
@given(cast=st.tuples(*(lives(entity) for entity in range(4))), order=st.permutations(range(4)))
def test_any_scripts_are_merged_by_time_then_interests_first_then_entity(
    cast: tuple[list[Scheduled], ...], order: list[int]
) -> None:
    stage = Stage(4)
    for entity in order:
        stage.enter(entity, *cast[entity])
    stage.simulation.run(ENDS + 100)
    expected = [
        (BEGINS + t, isinstance(command, Publish), entity, number, command)
        for entity, life in enumerate(cast)
        for number, (t, command) in enumerate(life)
        if BEGINS + t < ENDS
    ]
    expected.sort(key=lambda row: row[:4])
    assert stage.log == [(t, entity, command) for t, _, entity, _, command in expected]


def test_nothing_happens_at_the_end_or_after_it() -> None:
    stage = Stage(2)
    last = ENDS - BEGINS
    stage.enter(0, (last - 1, publish(1)), (last, publish(2)), (last + 1, publish(3)))
    stage.enter(1, (last, Subscribe(4, HERE)))
    stage.simulation.run(ENDS + 1_000)
    assert stage.log == [(ENDS - 1, 0, publish(1))]


def test_a_script_may_be_empty_or_end_while_others_go_on() -> None:
    stage = Stage(3)
    stage.enter(0)
    stage.enter(1, (10, publish(1)))
    stage.enter(2, (20, publish(2)), (30, publish(3)))
    stage.simulation.run(ENDS)
    assert [command for _, _, command in stage.log] == [publish(1), publish(2), publish(3)]
    assert [entity for entity, _ in stage.script.positions(ENDS)] == [0, 1, 2]


def test_an_endless_script_is_read_only_as_far_as_it_is_played() -> None:
    stage = Stage(1)

    class Endless(ScriptedLife):
        read = 0

        def commands(self) -> Iterator[Scheduled]:
            for self.read in count(1):
                yield self.read * 10, publish(self.read)

    life = Endless([])
    stage.script.enter(0, life)
    stage.simulation.run(BEGINS + 35)
    assert [t for t, _, _ in stage.log] == [BEGINS + t for t in (10, 20, 30)]
    assert life.read == 4
    stage.simulation.run(ENDS + 1_000)
    assert len(stage.log) == 9
    assert life.read == 10


def test_an_entity_that_left_does_nothing_more() -> None:
    stage = Stage(2)
    stage.enter(0, (10, publish(1)), (30, publish(2)))
    stage.enter(1, (30, publish(3)))
    stage.simulation.run(BEGINS + 20)
    stage.script.leave(0)
    stage.simulation.run(ENDS)
    assert [command for _, _, command in stage.log] == [publish(1), publish(3)]
    assert [entity for entity, _ in stage.script.positions(ENDS)] == [1]
    stage.script.leave(0)  # once more is no mistake: a crash may be faster than a farewell


def test_an_entity_that_joins_during_the_run_is_merged_with_the_others() -> None:
    stage = Stage(3)
    stage.enter(0, (20, publish(1)), (40, publish(2)))
    stage.simulation.run(BEGINS + 20)
    stage.enter(1, (20, Subscribe(9, HERE)), (30, publish(3)), (40, Subscribe(4, HERE)))
    stage.simulation.run(ENDS)
    assert [(t - BEGINS, entity) for t, entity, _ in stage.log] == [
        (20, 0),
        (20, 1),
        (30, 1),
        (40, 1),
        (40, 0),
    ]


@pytest.mark.parametrize("after", [25, 30, 31])
def test_an_entity_that_returns_follows_its_new_script_alone(after: int) -> None:
    stage = Stage(1)
    stage.enter(0, (10, publish(1)), (30, publish(2)), (50, publish(3)))
    stage.simulation.run(BEGINS + 20)
    stage.script.leave(0)
    stage.enter(0, (after, Subscribe(4, HERE)), (60, publish(5)))
    stage.simulation.run(ENDS)
    assert [command for _, _, command in stage.log] == [publish(1), Subscribe(4, HERE), publish(5)]


def test_an_entity_that_returns_may_act_at_a_moment_of_its_old_script() -> None:
    """As replayed entities do: they have the same fixes in every life."""
    stage = Stage(1)
    stage.enter(0, (10, publish(1)), (30, publish(2)))
    stage.simulation.run(BEGINS + 20)
    stage.script.leave(0)
    stage.enter(0, (30, publish(3)))
    stage.simulation.run(ENDS)
    assert [command for _, _, command in stage.log] == [publish(1), publish(3)]


def test_after_the_run_no_entity_has_a_position() -> None:
    stage = Stage(2)
    stage.enter(0, (50, publish(1)))
    stage.simulation.run(BEGINS + 20)
    stage.script.close()
    stage.simulation.run(ENDS)
    assert stage.log == []
    assert list(stage.script.positions(ENDS)) == []


def test_positions_are_computed_in_the_time_of_the_workload_by_entity() -> None:
    stage = Stage(3)
    for entity in (2, 0, 1):
        stage.enter(entity)
    assert list(stage.script.positions(BEGINS + 42)) == [(e, (42.0, 0.0, 0.0)) for e in range(3)]
