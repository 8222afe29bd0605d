"""A little network of brokers for tests: simulated, every message through the codec and back."""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from nearcast.model.commands import Command
from nearcast.node import Message
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.client import BrokerClient
from nearcast.protocols.brokers.deployment import BrokerOverlay
from nearcast.protocols.brokers.messages import CODEC
from nearcast.protocols.brokers.parameters import Parameters
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.network import ConstantDelay, Network
from nearcast.sim.simulation import Simulation
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import Deliveries, delivered, expected

B = [FIRST_SERVER + k for k in range(10)]


class CheckedCodec:
    """A codec that checks that each message comes back as it was."""

    def encode(self, message: Message) -> bytes:
        data = CODEC.encode(message)
        assert CODEC.decode(data) == message
        return data


class BrokerNetwork:
    """Brokers and their clients on a simulated network, and what their trace contains."""

    def __init__(
        self,
        entities: Iterable[int] = (),
        delay: int = 0,
        links: Iterable[tuple[int, int]] | None = None,
        network: Network | None = None,
        **settings: Any,
    ) -> None:
        self.trace = MemoryTrace()
        self.recorder = Recorder(self.trace)
        parameters = Parameters(**{"evolving": "scan", "matcher": "scan", **settings})
        self.overlay = BrokerOverlay(parameters, lambda node: Random(node), links)
        self.simulation = Simulation(
            network or ConstantDelay(delay),
            CheckedCodec(),
            self.recorder,
            (DeliveredOnce(), NotBeforePublished()),
        )
        for broker in self.overlay.servers():
            self.simulation.start(broker)
        for entity in entities:
            self.join(entity)
        self.run(2 * SECOND)

    def join(self, entity: int) -> BrokerClient:
        client = self.overlay.entity(entity, Random(entity))
        self.simulation.start(client)
        return client

    def restart(self, number: int) -> Broker:
        broker = self.overlay.broker(number)
        self.simulation.start(broker)
        return broker

    def crash(self, node: int) -> None:
        self.simulation.crash(node)

    def run(self, for_: int) -> None:
        self.simulation.run(self.simulation.now + for_)

    def obey(self, entity: int, command: Command, then: int = 1) -> None:
        """The command, and time for all that it causes if nothing takes any."""
        self.simulation.obey(entity, command)
        self.run(then)

    def broker(self, number: int) -> Broker:
        node = self.simulation.nodes[FIRST_SERVER + number]
        assert isinstance(node, Broker)
        return node

    def client(self, entity: int) -> BrokerClient:
        node = self.simulation.nodes[entity]
        assert isinstance(node, BrokerClient)
        return node

    # What the trace says, so far.

    def rows(self, table: str) -> list[dict[str, Any]]:
        self.recorder.flush()
        rows: list[dict[str, Any]] = self.trace.table(table).to_pylist()
        return rows

    def delivered(self) -> list[tuple[int, int]]:
        self.recorder.flush()
        return delivered(self.trace.table("deliveries"))

    def should(self) -> Deliveries:
        self.recorder.flush()
        return expected(self.trace.table("interests"), self.trace.table("publications"))

    def kinds(self, since: int = 0, among_brokers: bool = False) -> Counter[str]:
        return Counter(
            row["kind"]
            for row in self.rows("messages")
            if row["t"] >= since
            and (not among_brokers or min(row["node"], row["to"]) >= FIRST_SERVER)
        )

    def notes(self, fact: str) -> list[tuple[int, int | None]]:
        return [(row["node"], row["about"]) for row in self.rows("notes") if row["fact"] == fact]
