"""The live host does with any node what the simulated one does."""

import asyncio
import time
from random import Random

import pytest

from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Matcher
from nearcast.model.commands import Leave, Move, Publish, SendDirect, Subscribe, Tune
from nearcast.node import DirectPacket, Message, Node, Timer
from nearcast.peer.host import Host, run
from nearcast.protocols import client_server
from nearcast.protocols.client_server import CentralServer, CentralServerClient
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.sim.network import ConstantDelay
from nearcast.sim.simulation import Simulation
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.transport.identity import new_identity
from nearcast.transport.loopback import LoopbackNetwork, LoopbackTransport
from nearcast.wire import Codec
from support.patience import PATIENCE_S
from support.recorders import rows_held
from support.transports import ALL, Net


class Word(Message, frozen=True, tag=1):
    text: str


class Alarm(Timer, frozen=True):
    name: str


class Scripted(Node):
    """Does what a test tells it to, and remembers what it heard and when."""

    def __init__(self, node_id: int, **on: object) -> None:
        super().__init__(node_id, Random(1))
        self.on = on
        self.received: list[tuple[int, object]] = []

    def react(self, occasion: str, thing: object) -> None:
        self.received.append((self.now, thing))
        if occasion in self.on:
            self.on[occasion](self, thing)

    def on_start(self) -> None:
        self.react("start", "start")

    def on_message(self, sender: int, message: Message) -> None:
        self.react("message", (sender, message.text))

    def on_timer(self, timer: Timer) -> None:
        self.react("timer", timer.name)

    def on_command(self, command: object) -> None:
        self.react("command", command)
        if isinstance(command, Leave):
            self.out.stop()

    @property
    def things(self) -> list[object]:
        return [thing for _, thing in self.received]


class Stage:
    """A host with a trace in memory, and loopback transports."""

    def __init__(self, codec: Codec | None = None, **more: object) -> None:
        self.sink = MemoryTrace()
        self.recorder = Recorder(self.sink)
        self.host = Host(codec or Codec(Word), self.recorder, **more)
        self.room = LoopbackNetwork()

    async def start(self, *nodes: Node) -> None:
        for node in nodes:
            await self.host.start(node, LoopbackTransport(node.id, self.room))

    async def until(self, condition) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)

    def rows(self, table: str) -> list[dict]:
        self.recorder.flush()
        return self.sink.table(table).to_pylist()

    def facts(self) -> list[tuple[int, str, int | None]]:
        return [(row["node"], row["fact"], row["about"]) for row in self.rows("notes")]


def test_messages_go_to_one_or_to_many_in_the_order_of_sending():
    def greet(node: Node, _thing: object) -> None:
        node.out.send_many([2, 3], Word("one"))
        node.out.send(3, Word("two"))
        node.out.send(4, Word("to nobody"))

    async def main() -> None:
        stage = Stage()
        ben, eve = Scripted(2), Scripted(3)
        await stage.start(ben, eve, Scripted(1, start=greet))
        await stage.until(lambda: len(eve.received) == 3)
        assert ben.things == ["start", (1, "one")]
        assert eve.things == ["start", (1, "one"), (1, "two")]
        rows = [(r["node"], r["to"], r["kind"], r["bytes"]) for r in stage.rows("messages")]
        size = Codec(Word).size
        assert rows == [
            (1, 2, "Word", size(Word("one"))),
            (1, 3, "Word", size(Word("one"))),
            (1, 3, "Word", size(Word("two"))),
            (1, 4, "Word", size(Word("to nobody"))),
        ]
        assert all(r["arrived"] is None and not r["lost"] for r in stage.rows("messages"))

    run(main())


def test_direct_messages_go_from_host_to_host_and_past_the_nodes():
    async def main() -> None:
        stage, heard = Stage(), []
        ann, ben, eve = Scripted(1), Scripted(2), Scripted(3)
        await stage.start(ann, ben, eve)
        stage.host.on_direct[2] = lambda sender, packet: heard.append((sender, packet))
        t = stage.host.send_direct(1, SendDirect(7, 2, b"x"))
        stage.host.send_direct(1, SendDirect(8, 3))
        await stage.until(lambda: heard and (3, "ignored", 1) in stage.facts())
        assert heard == [(1, DirectPacket(7, t, b"x"))]
        assert [ann.things, ben.things, eve.things] == [["start"]] * 3
        with pytest.raises(Refused, match="does not know where entity 4 is"):
            stage.host.send_direct(1, SendDirect(9, 4))
        with pytest.raises(Refused):
            stage.host.send_direct(1, SendDirect(9, FIRST_SERVER))

    run(main())


def test_timers_are_values_that_move_when_set_again_and_never_fire_when_cleared():
    def start(node: Node, _thing: object) -> None:
        node.out.set_timer(Alarm("moved"), 1_000)
        node.out.set_timer(Alarm("cleared"), 2_000)
        node.out.set_timer(Alarm("kept"), 5_000)
        node.out.set_timer(Alarm("moved"), 40_000)
        node.out.clear_timer(Alarm("cleared"))
        node.out.clear_timer(Alarm("never set"))

    async def main() -> None:
        stage = Stage()
        ann = Scripted(1, start=start)
        await stage.start(ann)
        await stage.until(lambda: len(ann.received) == 3)
        await asyncio.sleep(0.01)
        assert ann.things == ["start", "kept", "moved"]
        (began, _), (kept, _), (moved, _) = ann.received
        assert kept - began >= 5_000
        assert moved - began >= 40_000

    run(main())


def test_timers_of_a_node_that_has_stopped_never_fire():
    async def main() -> None:
        stage = Stage()
        ann = Scripted(1, start=lambda node, _: node.out.set_timer(Alarm("late"), 10_000))
        await stage.start(ann)
        stage.host.obey(1, Leave())
        await asyncio.sleep(0.03)
        assert ann.things == ["start", Leave()]
        with pytest.raises(KeyError):
            stage.host.obey(1, Publish(1, point(0, 0)))

    run(main())


def test_time_never_runs_back_though_the_clock_does():
    clock = iter([10, 20, 5, 7, 30, *[30] * 1000])

    async def main() -> None:
        stage = Stage(clock=lambda: next(clock))
        ann = Scripted(1)
        await stage.start(ann)
        for number in range(4):
            stage.host.obey(1, Publish(number, point(0, 0)))
        times = [t for t, _ in ann.received]
        assert times == sorted(times)
        assert times[:2] == [10, 20]
        assert times[-1] == 30

    run(main())


def test_a_loop_that_wakes_its_nodes_early_does_not_move_their_time_ahead():
    """Or what a node does then comes after what others publish later, by their clocks."""
    began = time.monotonic_ns()

    def clock() -> int:
        """Slower than the loop's."""
        return 1_000_000 + (time.monotonic_ns() - began) * 9 // 10_000

    async def main() -> None:
        stage = Stage(clock=clock)
        ahead = []
        ann = Scripted(
            1,
            start=lambda node, _: node.out.set_timer(Alarm("early"), 40_000),
            timer=lambda _node, _timer: ahead.append(stage.host.now - clock()),
        )
        await stage.start(ann)
        stage.host.obey(1, Subscribe(7, path(disc(0, 0, 1), [(10, 0, 0), (10, 10, 0)], 1000.0)))
        await stage.until(lambda: ahead and len(stage.rows("interests")) >= 2)
        assert ahead[0] <= 0
        assert stage.host.now <= clock()

    run(main())


def test_timers_go_on_when_the_machines_clock_is_set_back():
    now = [3_600_000_000]

    async def main() -> None:
        stage = Stage(clock=lambda: now[0])
        ann = Scripted(1, start=lambda node, _: node.out.set_timer(Alarm("kept"), 5_000))
        await stage.start(ann)
        now[0] = 0
        await stage.until(lambda: ann.things == ["start", "kept"])
        assert ann.received[-1][0] == 3_600_005_000

    run(main())


def test_an_interest_never_falls_on_a_moment_at_which_something_was_published():
    """The truth says that at one moment interests come first; here it came later."""

    async def main() -> None:
        stage = Stage(clock=lambda: 100)
        await stage.start(Scripted(1), Scripted(2))
        assert stage.host.obey(2, Subscribe(6, Moving(disc(0, 0, 1)))) == 100
        assert stage.host.obey(1, Publish(1, point(0, 0))) == 100
        assert stage.host.obey(2, Subscribe(7, Moving(disc(0, 0, 1)))) == 101
        assert stage.host.obey(1, Publish(2, point(0, 0))) == 101
        assert stage.host.obey(2, Leave()) == 102
        assert [(r["t"], r["subscription"]) for r in stage.rows("interests")] == [
            (100, 6), (101, 7), (102, 6), (102, 7),
        ]  # fmt: skip

    run(main())


def fail(node: Node, _thing: object) -> None:
    node.out.send(2, Word("half a sentence"))
    raise RuntimeError("a bug")


@pytest.mark.parametrize("occasion", ["start", "message", "timer", "command"])
def test_a_node_that_fails_is_stopped_and_noted_while_others_go_on(occasion, caplog):
    async def main() -> None:
        stage = Stage()
        ben = Scripted(2)
        on = {"start": lambda node, _: node.out.set_timer(Alarm("tick"), 1_000), occasion: fail}
        ann = Scripted(1, **on)
        await stage.start(ben, ann)
        if 1 in stage.host.nodes:
            stage.host.obey(1, Subscribe(5, Moving(disc(0, 0, 1))))
        stage.room.present[2].send(1, Codec(Word).encode(Word("hello")), False)
        await stage.until(lambda: 1 not in stage.host.nodes)
        assert (1, "crashed", None) in stage.facts()
        assert ben.things == ["start"]
        assert "node 1 has failed and is stopped" in caplog.text
        assert "a bug" in caplog.text
        assert occasion == "start" or stage.rows("interests")[-1]["ended"]
        await stage.start(Scripted(3, start=lambda node, _: node.out.send(2, Word("go on"))))
        await stage.until(lambda: ben.things == ["start", (3, "go on")])
        await stage.host.stop()

    run(main())


def test_a_message_that_cannot_be_encoded_is_the_fault_of_its_node():
    async def main() -> None:
        stage = Stage()
        await stage.start(
            Scripted(2), Scripted(1, start=lambda n, _: n.out.send(2, Word("\ud800")))
        )
        assert list(stage.host.nodes) == [2]

    run(main())


def test_bytes_that_are_no_message_are_refused_and_the_rest_is_received():
    async def main() -> None:
        stage = Stage()
        ann = Scripted(1)
        await stage.start(ann)
        unknown = LoopbackTransport(9, stage.room)
        await unknown.open(lambda *_: None)
        for frame in (b"rubbish", Codec(Word).encode(Word("sense")), b"", b"\xc1"):
            unknown.send(1, frame, False)
        await stage.until(lambda: len(ann.received) == 2)
        assert ann.things == ["start", (9, "sense")]
        assert stage.facts().count((1, "refused", 9)) == 3

    run(main())


def test_an_application_may_answer_a_delivery_at_once():
    sent: list[int] = []
    stage: Stage

    def answer(node_id: int, publication, subscriptions) -> None:
        sent.append(publication.id)
        assert (node_id, tuple(subscriptions)) == (1, (7,))
        if publication.id < 3:
            stage.host.obey(1, Publish(publication.id + 1, point(0, 0)))

    def deliver(node: Node, command: object) -> None:
        if isinstance(command, Publish):
            node.out.deliver(command.stamped(1, node.now), (7,), 0)
            node.out.note("said", command.publication)

    async def main() -> None:
        nonlocal stage
        stage = Stage(on_deliver=answer)
        await stage.start(Scripted(1, command=deliver))
        stage.host.obey(1, Publish(1, point(0, 0)))
        await stage.until(lambda: len(sent) == 3)
        assert sent == [1, 2, 3]
        assert [r["publication"] for r in stage.rows("deliveries")] == [1, 2, 3]
        assert [about for _, fact, about in stage.facts() if fact == "said"] == [1, 2, 3]

    run(main())


def test_each_leg_of_a_path_is_a_row_that_begins_at_its_own_moment():
    walk = path(disc(0, 0, 1), [(10, 0, 0), (10, 10, 0)], 1000.0)  # legs of 10 ms each

    async def main() -> None:
        stage = Stage()
        await stage.start(Scripted(1))
        began = stage.host.obey(1, Subscribe(7, walk))
        await asyncio.sleep(0.06)
        stage.host.obey(1, Move(7, Moving(disc(50, 0, 1))))
        rows = stage.rows("interests")
        assert [row["t"] for row in rows[:2]] == [began, began + 10_000]
        assert [(row["vx"], row["vy"]) for row in rows[:2]] == [(1000, 0), (0, 1000)]
        assert (rows[1]["x"], rows[1]["y"]) == (10, 0)
        assert rows[-1]["x"] == 50

    run(main())


def test_a_leg_that_is_due_begins_before_a_command_that_comes_after_it():
    now = [1000]
    walk = path(disc(0, 0, 1), [(10, 0, 0), (10, 10, 0)], 1000.0)

    async def main() -> None:
        stage = Stage(clock=lambda: now[0])
        await stage.start(Scripted(1))
        stage.host.obey(1, Subscribe(7, walk))
        now[0] += 15_000  # without the loop's having had a turn
        stage.host.obey(1, Move(7, Moving(disc(50, 0, 1))))
        assert [row["t"] for row in stage.rows("interests")] == [1000, 11_000, 16_000]

    run(main())


def test_a_stop_lets_entities_leave_and_leaves_nothing_running():
    async def main() -> None:
        stage = Stage(client_server.CODEC)
        server = CentralServer(FIRST_SERVER, Random(1), matcher())
        await stage.start(server, CentralServerClient(1, Random(1), FIRST_SERVER, SECOND))
        stage.host.obey(1, Subscribe(7, Moving(disc(0, 0, 1))))
        await stage.until(lambda: server.subscriptions.get(1))
        await stage.host.stop()
        assert not stage.host.nodes
        assert not stage.room.present
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [fact for node, fact, _ in stage.facts() if node == 1] == ["joined", "left"]
        assert [r["kind"] for r in stage.rows("messages")] == [
            "client-server.Interest",
            "client-server.Bye",
        ]

    run(main())


def test_a_stop_does_not_wait_for_ever_for_a_node_that_does_not_leave(caplog):
    class Stubborn(Scripted):
        def on_command(self, command: object) -> None:
            self.react("command", command)

    async def main() -> None:
        stage = Stage()
        await stage.start(Stubborn(1))
        await stage.host.stop(patience_s=0.05)
        assert not stage.host.nodes
        assert "did not stop" in caplog.text

    run(main())


def matcher() -> Matcher:
    return MATCHERS["scan"]()


HERE, THERE = Moving(disc(0, 0, 5)), Moving(disc(100, 0, 5))
SCRIPT = [
    (1, Subscribe(11, HERE)),
    (2, Subscribe(12, "x >= low, x <= 50, y >= 0", variables={"low": -50.0})),
    (3, Subscribe(13, HERE, filter="level > 3", echo=True)),
    (2, Publish(21, point(1, 1))),
    (3, Publish(22, point(1, 1), attributes={"level": 5}, payload=b"abc")),
    (1, Move(11, THERE)),
    (2, Tune(12, {"low": 2.0})),
    (3, Publish(23, disc(98, 0, 3), channel="")),
    (1, Publish(24, point(1, 1), attributes={"level": 9})),
    (2, Leave()),
    (1, Publish(25, point(30, 0))),
]


def cast(server: int, *entities: int) -> list[Node]:
    clients = [CentralServerClient(entity, Random(1), server, SECOND) for entity in entities]
    return [CentralServer(server, Random(1), matcher()), *clients]


def without_time(sink: MemoryTrace, names: tuple[int, ...]) -> dict[str, list[tuple]]:
    """What must be equal whoever the host is: all but times, and sizes, which times are part of.

    Between different receivers there is no order.
    """
    roles = {name: role for role, name in enumerate(names)}
    kept = {
        "interests": "node subscription shape x y z rx formula channel filter echo ended",
        "publications": "node publication shape x y z rx channel attributes bytes",
        "deliveries": "node publication subscription hops",
        "messages": "node to kind publication lost copies",
        "notes": "node fact about value",
    }
    return {
        table: sorted(
            tuple(
                roles[row[column]] if column in ("node", "to") else row[column]
                for column in columns.split()
            )
            for row in sink.table(table).to_pylist()
            if row.get("fact") != "joined"  # which a world notes, and not the simulated host
        )
        for table, columns in kept.items()
    }


@pytest.mark.parametrize("kind", ALL)
def test_the_same_script_leaves_the_same_trace_as_in_the_simulator(kind):
    simulated = MemoryTrace()
    recorder = Recorder(simulated)
    simulation = Simulation(ConstantDelay(1000), client_server.CODEC, recorder)
    for node in cast(FIRST_SERVER, 1, 2, 3):
        simulation.start(node)
    rows = []
    for role, command in SCRIPT:
        simulation.obey(role, command)
        simulation.run(simulation.now + SECOND)
        rows.append(rows_held(recorder))
    recorder.close()
    names = tuple(new_identity(serves=role == 0) for role in range(4))

    async def main() -> MemoryTrace:
        net, stage = Net(kind), Stage(client_server.CODEC)
        transports = [net.make(identity) for identity in names]
        nodes = cast(*(transport.name for transport in transports))
        for node, transport in zip(nodes, transports, strict=True):
            await stage.host.start(node, transport)
        await net.acquaint(*transports)
        joined = rows_held(stage.recorder)
        for (role, command), so_many in zip(SCRIPT, rows, strict=True):
            stage.host.obey(nodes[role].id, command)
            await stage.until(lambda: rows_held(stage.recorder) >= joined + so_many)  # noqa: B023
        stage.recorder.flush()
        await stage.host.stop()
        return stage.sink

    lived = without_time(run(main()), tuple(identity.name for identity in names))
    assert lived == without_time(simulated, (FIRST_SERVER, 1, 2, 3))
    assert len(lived["deliveries"]) > 5
