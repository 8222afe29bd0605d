"""The simulated host: order within a moment, timers, silence of the dead, and the batched doors.

The nodes here decide nothing: they log what they are told and do what a table says, so that any
little protocol can be drawn by chance and played by two hosts that must agree.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.commands import Command, Leave, Publish, Subscribe
from nearcast.model.publication import Publication
from nearcast.node import Message, Node, Timer
from nearcast.sim.checkers import Checker
from nearcast.sim.network import Constant, Duplication, Jitter, Loss, Network
from nearcast.sim.simulation import Simulation, Step
from nearcast.space.motion import Moving
from nearcast.space.shapes import point
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import Memory
from nearcast.wire import Codec

DELAY = 50


class Word(Message, frozen=True, tag=1):
    number: int
    left: int = 0  # how much more may come of it

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
Log: TypeAlias = list[tuple[Any, ...]]


class Actor(Node):
    """Logs each input; a word or an alarm of some number makes it do what the table says."""

    def __init__(self, node_id: int, log: Log, table: dict[int, list[Act]] | None = None) -> None:
        super().__init__(node_id, Random(node_id))
        self.log = log
        self.table = table or {}

    def on_start(self) -> None:
        self.act(-1, 3)

    def on_message(self, sender: int, message: Message) -> None:
        self.log.append((self.now, self.id, "heard", sender, message))
        if isinstance(message, Word) and message.left:
            self.act(message.number, message.left - 1)

    def on_timer(self, timer: Timer) -> None:
        self.log.append((self.now, self.id, "woken", timer))
        if isinstance(timer, Alarm):
            self.act(timer.number, 1)

    def on_command(self, command: Command) -> None:
        self.log.append((self.now, self.id, "told", command))
        if isinstance(command, Leave):
            self.out.stop()

    def act(self, number: int, left: int) -> None:
        for act in self.table.get(number, ()):
            match act:
                case "send", to, word:
                    self.send(to, Word(word, left))
                case "alarm", alarm, delay:
                    self.out.set_timer(Alarm(alarm), delay)
                case "bell", bell, delay:
                    self.out.set_timer(Bell(bell), delay)
                case "clear", alarm:
                    self.out.clear_timer(Alarm(alarm))
                case "deliver", publication:
                    said = Publication(publication, 0, 0, point(0, 0))
                    self.out.deliver(said, [publication, publication + 1], 1)
                case "note", value:
                    self.out.note("acted", self.id, value)
                case "stop",:
                    self.out.stop()

    def send(self, to: Sequence[int], word: Word) -> None:
        for one in to:
            self.out.send(one, word)


class Crier(Actor):
    """Says with one breath what an Actor says to each in turn."""

    def send(self, to: Sequence[int], word: Word) -> None:
        self.out.send_many(to, word)


class Unbatched(Simulation):
    """Between any two arrivals stands a step that does nothing: none are ever neighbours."""

    def at(self, t: int, step: Step) -> None:
        super().at(t, step)
        if isinstance(step, tuple):
            super().at(t, lambda: None)


def simulated(network: Network | None = None) -> tuple[Simulation, Memory, Log]:
    sink = Memory()
    return Simulation(network or Constant(DELAY), CODEC, Recorder(sink)), sink, []


def rows(simulation: Simulation, sink: Memory, table: str) -> list[dict[str, Any]]:
    simulation.recorder.close()
    found: list[dict[str, Any]] = sink.table(table).to_pylist()
    return found


# Order.


def test_what_is_planned_for_one_moment_happens_in_the_order_of_planning() -> None:
    simulation, _, log = simulated()
    for t, name in [(20, "c"), (10, "a"), (20, "d"), (10, "b"), (20, "e")]:
        simulation.at(t, lambda name=name: log.append((simulation.now, name)))  # type: ignore[misc]
    simulation.run(100)
    assert log == [(10, "a"), (10, "b"), (20, "c"), (20, "d"), (20, "e")]
    assert simulation.now == 100
