"""The naive configuration of [Lehn], and nodes with nothing but relays on a simulated network."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from nearcast.model.commands import Command, Leave, Publish
from nearcast.node import Message, Node, Timer
from nearcast.protocols.relays import cost_model
from nearcast.protocols.relays.cost_model import Weights
from nearcast.protocols.relays.messages import CODEC, Flow
from nearcast.protocols.relays.options import Option
from nearcast.protocols.relays.parameters import Parameters
from nearcast.protocols.relays.relays import Relays
from nearcast.sim.checkers import Checker
from nearcast.sim.network import Network
from nearcast.sim.simulation import Simulation
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace

Path = tuple[int, ...]


class Scene(NamedTuple):
    interest: np.ndarray  # [v, u]: of v in u
    delay: np.ndarray  # [a, b]
    capacity: np.ndarray
    payload: np.ndarray
    header: float


def scene(nodes: int, seed: int, *, density: float = 0.6, capacity: float = 6000.0) -> Scene:
    rng = np.random.default_rng(seed)
    interest = np.where(
        rng.random((nodes, nodes)) < density, rng.uniform(0.1, 1, (nodes, nodes)), 0
    )
    places = rng.random((nodes, 2)) / 5
    delay = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + 0.005
    np.fill_diagonal(interest, 0)
    return Scene(
        interest, delay, rng.uniform(0.3, 2, nodes) * capacity, rng.uniform(100, 900, nodes), 400.0
    )


class NaiveConfiguration:
    """Paths as lists, and everything counted anew from them, as in the text of [Lehn]."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        wanted = np.argwhere(scene.interest >= cost_model.AT_THE_EDGE)
        self.paths: dict[Flow, Path] = {(int(s), int(d)): (int(s), int(d)) for d, s in wanted}

    def utilisation(self, node: int, paths: dict[Flow, Path]) -> float:
        streams = {
            (b, source)
            for (source, _), path in paths.items()
            for a, b in pairwise(path)
            if a == node
        }
        links = {b for b, _ in streams}
        load = sum(self.scene.payload[source] for _, source in streams)
        return (load + self.scene.header * len(links)) / self.scene.capacity[node]

    def latency(self, path: Path) -> float:
        return sum(self.scene.delay[a, b] for a, b in pairwise(path))

    def neighbours(self, node: int) -> set[int]:
        pairs = [pair for pair in self.paths if node in pair]
        return {one for pair in pairs for one in pair} - {node}

    def options(self, v: int) -> list[tuple[Flow, Path, int, int]]:
        """Each with the path that results, S and U."""
        found = []
        for (s, d), path in self.paths.items():
            if v not in path[:-1]:
                continue
            at = path.index(v)
            if at > 0:
                found.append(((s, d), path[:at] + path[at + 1 :], path[at - 1], v))
            for u in sorted(self.neighbours(v)):
                if (s, u) in self.paths and u not in path:
                    found.append(((s, d), (*path[: at + 1], u, *path[at + 1 :]), v, u))
        return found

    def gain(self, option: tuple[Flow, Path, int, int], weights: Weights) -> float:
        flow, path, s, u = option
        after = {**self.paths, flow: path}

        def cost(paths: dict[Flow, Path]) -> float:
            bounds = cost_model.bounds_at(self.scene.interest[flow[1], flow[0]], weights)
            late = cost_model.latency_cost(self.latency(paths[flow]), bounds, weights)
            ends = self.utilisation(s, paths), self.utilisation(u, paths)
            return cost_model.bandwidth_cost(weights, *ends) + late

        return cost(self.paths) - cost(after)


# Nodes with nothing but relays.


class RelayNode(Node):
    """It knows all of the others and wants all that they publish."""

    def __init__(self, node_id: int, others: Sequence[int], parameters: Parameters, **more) -> None:
        super().__init__(node_id, Random(node_id))
        self.others = [other for other in others if other != node_id]
        self.relays = Relays(
            node_id, self.out, self.rng, lambda: self.now, parameters,
            more.pop("capacity", 1e6), self.others.__contains__, **more,
        )  # fmt: skip

    def on_message(self, sender: int, message: Message) -> None:
        assert self.relays.on(message, sender)
        for publication, hops in self.relays.drain():
            self.out.deliver(publication, (self.id,), hops)

    def on_timer(self, timer: Timer) -> None:
        assert self.relays.wake(timer)

    def on_command(self, command: Command) -> None:
        if isinstance(command, Publish):
            destinations = dict.fromkeys(self.others, 0.5)
            self.relays.disseminate(command.stamped(self.id, self.now), destinations)
        elif isinstance(command, Leave):
            self.relays.leave()
            self.out.stop()


class ScriptedDelays:
    """A network with the given delays, one after the other."""

    def __init__(self, delays: Sequence[Time]) -> None:
        self._delays, self._next = delays, 0

    def route(self, now: Time, source: int, target: int, size: int) -> list[Time]:  # noqa: ARG002
        self._next += 1
        return [self._delays[self._next % len(self._delays)]]


class RelayNetwork:
    """Relay nodes on a simulated network; it notes what they publish."""

    def __init__(
        self,
        members: int,
        network: Network,
        checkers: Sequence[Callable[["RelayNetwork"], Checker]] = (),
        parameters: Parameters | None = None,
        **more,
    ) -> None:
        self.memory = MemoryTrace()
        made = tuple(make(self) for make in checkers)
        self.simulation = Simulation(network, CODEC, Recorder(self.memory), made)
        self.parameters = parameters or Parameters()
        self.node_ids = list(range(members))
        self.published: list[tuple[Time, int, int]] = []  # when, what, by whom
        for node in self.node_ids:
            self.simulation.start(RelayNode(node, self.node_ids, self.parameters, **more))

    def member(self, node: int) -> RelayNode:
        found = self.simulation.nodes[node]
        assert isinstance(found, RelayNode)
        return found

    def relays(self, node: int) -> Relays:
        return self.member(node).relays

    def publish(self, node: int) -> None:
        if node in self.simulation.nodes:
            number = len(self.published)
            self.published.append((self.simulation.now, number, node))
            self.simulation.obey(node, Publish(number, point(0, 0)))

    def publish_every(
        self, period: Time, until: Time, publishers: Sequence[int] | None = None
    ) -> None:
        for t in range(self.simulation.now + 1, until, period):
            for node in self.node_ids if publishers is None else publishers:
                self.simulation.at(t, lambda node=node: self.publish(node))

    def force(self, kind: int, node: int, flow: Flow, whom: int) -> None:
        """Let a node ask for an operation that gains much, if it is one at all."""
        member = self.simulation.nodes.get(node)
        if not isinstance(member, RelayNode) or not member.relays.table.is_free(flow):
            return
        member.now = self.simulation.now
        member.relays._request(Option(kind, flow, whom, 1e9, 1e9), self.simulation.now)
        self.simulation._apply(member, member.out.drain())

    def path(self, flow: Flow) -> list[int] | None:
        """From the source as tables have it; None: it does not arrive."""
        node, nodes = flow[0], [flow[0]]
        while node != flow[1]:
            there = self.simulation.nodes.get(node)
            entry = there.relays.table.entries.get(flow) if isinstance(there, RelayNode) else None
            if entry is None or entry.next in nodes:
                return None
            node = entry.next
            nodes.append(node)
        return nodes

    def flows(self) -> list[Flow]:
        present = [node for node in self.node_ids if node in self.simulation.nodes]
        return [(s, d) for s in present for d in present if s != d]

    def broken(self) -> list[Flow]:
        return [flow for flow in self.flows() if self.path(flow) is None]

    def pass_seconds(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + round(seconds * SECOND))

    def delivered(self) -> set[tuple[int, int]]:
        """Publication and node of each delivery."""
        self.simulation.recorder.flush()
        rows = self.memory.table("deliveries").to_pylist()
        return {(row["publication"], row["node"]) for row in rows}
