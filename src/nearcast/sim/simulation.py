"""The simulated host: one heap, one clock, any number of nodes.

The heap holds moments. Each moment has a list of steps in the order in which they were scheduled,
so ties are broken by age, never by chance, and a thousand messages that arrive together cost one
heap operation. Consecutive messages for one node are handed to it in one call, `receive_many`.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import product
from typing import TypeAlias

from nearcast.model.commands import Command, Leave, Publish
from nearcast.model.subscription import NodeId
from nearcast.node import (
    ClearTimer,
    Deliver,
    DeliveryBatch,
    Effect,
    Message,
    Node,
    NodeGroup,
    Note,
    Send,
    SendMany,
    SetTimer,
    Timer,
)
from nearcast.sim.checkers import Checker
from nearcast.sim.network import ConstantDelay, Network
from nearcast.space.motion import Time
from nearcast.trace.interest_log import InterestLog
from nearcast.trace.recorder import Recorder
from nearcast.wire import Codec

Arrival: TypeAlias = tuple[NodeId | Sequence[NodeId], NodeId, Message]
Step: TypeAlias = Arrival | Callable[[], None]


class Simulation:
    """Runs nodes on a simulated network and records what they do. `SimulatedWorld` sets it up."""

    def __init__(
        self, network: Network, codec: Codec, recorder: Recorder, checkers: Iterable[Checker] = ()
    ) -> None:
        self.now: Time = 0
        self.nodes: dict[NodeId, Node] = {}
        self.network = network
        self.recorder = recorder
        self.messages = 0  # sent so far, to show progress
        self.latest_arrival: Time = 0  # of all that was sent so far
        self.latest_carrying: Time = 0  # of all that carries a publication
        self.node_group: NodeGroup | None = None  # of all nodes, if they have one in common
        self._lonely = False  # some have none, or another
        self._group_messages: tuple[type[Message], ...] = ()
        self._encode = codec.encode
        self._constant = network.delay if isinstance(network, ConstantDelay) else None
        self.checkers = list(checkers)
        self._interest_log = InterestLog(recorder, self.at)
        self._moments: list[Time] = []
        self._steps: dict[Time, list[Step]] = {}
        self._timers: dict[tuple[NodeId, Timer], object] = {}

    # What a world does with nodes.

    def start(self, node: Node) -> None:
        assert node.id not in self.nodes, f"node {node.id} is here already"
        self.nodes[node.id] = node
        self._lonely |= node.node_group is None or self.node_group not in (None, node.node_group)
        self.node_group = None if self._lonely else node.node_group
        self._group_messages = () if self.node_group is None else self.node_group.message_types
        self._apply(node, node.start(self.now))

    def crash(self, node_id: NodeId) -> None:
        """Stop a node without notice: messages under way still arrive, its timers never fire."""
        self._forget(node_id)
        self.recorder.note(self.now, node_id, "crashed")

    def obey(self, node_id: NodeId, command: Command) -> None:
        node = self.nodes[node_id]
        if isinstance(command, Publish):
            self.recorder.published(command.stamped(node_id, self.now))
        else:
            self._interest_log.obey(self.now, node_id, command)
        self._apply(node, node.obey(self.now, command))
        if isinstance(command, Leave):
            self.recorder.note(self.now, node_id, "left")

    # Time.

    def at(self, t: Time, step: Step) -> None:
        """Schedule a step for `t`, after all that is already scheduled for that moment."""
        assert t >= self.now, f"cannot plan for {t}: it is {self.now}"
        steps = self._steps.get(t)
        if steps is None:
            self._steps[t] = [step]
            heappush(self._moments, t)
        else:
            steps.append(step)

    def run(self, until: Time) -> None:
        """Do everything that is due up to and including `until`."""
        while self._moments and self._moments[0] <= until:
            self.now = heappop(self._moments)
            self._pass(self._steps[self.now])
            del self._steps[self.now]
            for checker in self.checkers:
                checker.passed(self.now)
        self.now = max(self.now, until)

    def _pass(self, steps: list[Step]) -> None:
        i = 0
        while i < len(steps):  # steps may add steps for this very moment
            step = steps[i]
            i += 1
            if not isinstance(step, tuple):
                step()
                continue
            target, sender, message = step
            if self.node_group is not None and isinstance(message, self._group_messages):
                first = i - 1
                while i < len(steps) and _brings(steps[i], message):
                    i += 1
                if not isinstance(target, int) or i > first + 1:
                    self._deliver(self.node_group.receive(self.now, _ways(steps[first:i]), message))
                    continue
            if not isinstance(target, int):
                now, find, apply = self.now, self.nodes.get, self._apply
                for one in target:
                    node = find(one)
                    if node is not None:  # else it has left or crashed: silence
                        apply(node, node.receive(now, sender, message))
            elif i < len(steps) and _goes_to(steps[i], target):
                first = i - 1
                while i < len(steps) and _goes_to(steps[i], target):
                    i += 1
                arrivals = [arrival[1:] for arrival in steps[first:i] if isinstance(arrival, tuple)]
                node = self.nodes.get(target)
                if node is not None:
                    self._apply(node, node.receive_many(self.now, arrivals))
            else:
                node = self.nodes.get(target)
                if node is not None:
                    self._apply(node, node.receive(self.now, sender, message))

    # Effects.

    def _deliver(self, made: DeliveryBatch) -> None:
        publication, now = made.publication, self.now
        self.recorder.delivered_many(now, made.node, publication.id, made.subscription, made.hops)
        checkers = [checker for checker in self.checkers if checker.checks_deliveries]
        if checkers:
            pairs = zip(made.node.tolist(), made.subscription.tolist(), strict=True)
            for (node, subscription), checker in product(pairs, checkers):
                checker.delivered(now, node, publication, subscription)

    def _apply(self, node: Node, effects: list[Effect]) -> None:
        # The frequent first, and by isinstance: class patterns cost three times as much here.
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node.id, effect.to, effect.message)
            elif isinstance(effect, Deliver):
                publication, subscriptions = effect.publication, effect.subscriptions
                self.recorder.delivered(
                    self.now, node.id, publication.id, subscriptions, effect.hops
                )
                for checker in self.checkers:
                    for subscription in subscriptions:
                        checker.delivered(self.now, node.id, publication, subscription)
            elif isinstance(effect, SendMany):
                self._send_many(node.id, effect.to, effect.message)
            elif isinstance(effect, SetTimer):
                self._set_timer(node, effect.timer, effect.delay)
            elif isinstance(effect, ClearTimer):
                self._timers.pop((node.id, effect.timer), None)
            elif isinstance(effect, Note):
                self.recorder.note(self.now, node.id, effect.fact, effect.about, effect.value)
            else:
                self._forget(node.id)

    def _send(self, source: NodeId, to: NodeId, message: Message) -> None:
        size = len(self._encode(message))
        if self._constant is not None:
            arrived: Time | None = self.now + self._constant
            self._put_on_the_way(self.now + self._constant, (to, source, message))
        else:
            delays = self.network.route(self.now, source, to, size)
            arrived = self.now + min(delays) if delays else None
            for delay in delays:
                self._put_on_the_way(self.now + delay, (to, source, message))
        publication = message.carries()
        if publication is not None and arrived is not None and arrived > self.latest_carrying:
            self.latest_carrying = arrived
        self.recorder.sent(
            self.now, source, to, message.kind, size, publication, arrived,
            arrived is None,
        )  # fmt: skip
        self.messages += 1

    def _send_many(self, source: NodeId, to: Sequence[NodeId], message: Message) -> None:
        """As a send to each. Only a constant network promises that all arrive together."""
        if self._constant is None:
            for one in to:
                self._send(source, one, message)
        elif len(to):
            size, arrived = len(self._encode(message)), self.now + self._constant
            publication = message.carries()
            if publication is not None and arrived > self.latest_carrying:
                self.latest_carrying = arrived
            self.recorder.sent_many(self.now, source, to, message.kind, size, publication, arrived)
            self.messages += len(to)
            self._put_on_the_way(arrived, (to, source, message))

    def _put_on_the_way(self, t: Time, arrival: Arrival) -> None:
        if t > self.latest_arrival:
            self.latest_arrival = t
        self.at(t, arrival)

    def _set_timer(self, node: Node, timer: Timer, delay: Time) -> None:
        key, token = (node.id, timer), object()
        self._timers[key] = token

        def fire() -> None:
            # Only if nobody has cleared or moved it, and this life of the node goes on.
            if self._timers.get(key) is token and self.nodes.get(node.id) is node:
                del self._timers[key]
                self._apply(node, node.wake(self.now, timer))

        self.at(self.now + delay, fire)

    def _forget(self, node_id: NodeId) -> None:
        node = self.nodes.pop(node_id, None)
        if node is not None and node.node_group is not None:
            node.node_group.leave(node_id, self.now)
        self._interest_log.gone(self.now, node_id)


def _goes_to(step: Step, target: NodeId) -> bool:
    return isinstance(step, tuple) and step[0] == target


def _brings(step: Step, message: Message) -> bool:
    return isinstance(step, tuple) and step[2] == message


def _ways(steps: Sequence[Step]) -> list[tuple[Sequence[NodeId], NodeId]]:
    """To whom, from whom."""
    return [
        ((step[0],) if isinstance(step[0], int) else step[0], step[1])
        for step in steps
        if isinstance(step, tuple)
    ]
