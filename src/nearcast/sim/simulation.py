"""The simulated host: one heap, one clock, any number of nodes.

The heap holds moments. Each moment has a list of steps in the order in which they were scheduled,
so ties are broken by age, never by chance, and a thousand messages that arrive together cost one
heap operation. Consecutive messages for one node are handed to it in one call, `receive_many`.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import product
from typing import Any, TypeAlias

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
    Stop,
    Timer,
)
from nearcast.sim.checkers import Checker
from nearcast.sim.network import ConstantDelay, Network, PacketLoss
from nearcast.space.motion import Time
from nearcast.trace.interest_log import InterestLog
from nearcast.trace.recorder import Recorder
from nearcast.wire import Codec

Arrival: TypeAlias = tuple[NodeId | Sequence[NodeId], NodeId, Message]
Step: TypeAlias = Arrival | Callable[[], None]


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Messages and effects are in no reference cycles, and there are millions of them: to look for
    cycles as often as usual takes most of the time where there are many nodes."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


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
        self._measured: Message | None = None  # the latest, and its size
        self._size = 0
        self._constant = network.delay if isinstance(network, ConstantDelay) else None
        self._packet_loss: PacketLoss | None = None
        self.checkers = list(checkers)
        self._carry_out: dict[type[Effect], Callable[[Node, Any], None]] = {
            Deliver: self._deliver,
            SendMany: lambda node, effect: self._send_many(node.id, effect.to, effect.message),
            SetTimer: self._set_timer,
            ClearTimer: self._clear_timer,
            Note: self._note,
            Stop: lambda node, _: self._forget(node.id),
        }
        self._interest_log = InterestLog(recorder, self.at)
        self._moments: list[Time] = []
        self._steps: dict[Time, list[Step]] = {}
        # The moment at which the latest message arrives, and its steps: most arrive together.
        self._arrival: Time = -1
        self._arriving: list[Step] = []
        self._timers: dict[tuple[NodeId, Timer], object] = {}

    def lose_packets(self, packet_loss: PacketLoss) -> None:
        self._packet_loss, self._constant = packet_loss, None

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
        self.steps_at(t).append(step)

    def steps_at(self, t: Time) -> list[Step]:
        """What is scheduled for `t`, to add to it."""
        steps = self._steps.get(t)
        if steps is None:
            steps = self._steps[t] = []
            heappush(self._moments, t)
        return steps

    @rare_garbage_collection()
    def run(self, until: Time) -> None:
        """Do everything that is due up to and including `until`."""
        while self._moments and self._moments[0] <= until:
            self.now = heappop(self._moments)
            self._pass(self._steps[self.now])
            del self._steps[self.now]
            self._arrival = -1
            for checker in self.checkers:
                checker.passed(self.now)
        self.now = max(self.now, until)

    def _pass(self, steps: list[Step]) -> None:
        now, find = self.now, self.nodes.get
        i = 0
        while i < len(steps):  # steps may add steps for this very moment
            step, steps[i] = steps[i], _done  # what it sends can use its memory
            i += 1
            if not isinstance(step, tuple):
                step()
                continue
            target, sender, message = step
            if self.node_group is not None and isinstance(message, self._group_messages):
                arrivals = [step, *_while(steps, i, 2, message)]
                i += len(arrivals) - 1
                if not isinstance(target, int) or len(arrivals) > 1:
                    self._deliver_many(self.node_group.receive(now, _ways(arrivals), message))
                    continue
            if not isinstance(target, int):
                for one in target:
                    node = find(one)
                    if node is not None:  # else it has left or crashed: silence
                        effects = node.receive(now, sender, message)
                        if effects:
                            self._apply(node, effects)
                continue
            node = find(target)
            if node is None:
                continue
            following = steps[i] if i < len(steps) else None
            if isinstance(following, tuple) and following[0] == target:
                arrivals = [step, *_while(steps, i, 0, target)]
                i += len(arrivals) - 1
                effects = node.receive_many(now, [arrival[1:] for arrival in arrivals])
            else:
                effects = node.receive(now, sender, message)
            if effects:
                self._apply(node, effects)

    # Effects.

    def _deliver(self, node: Node, effect: Deliver) -> None:
        now, publication, subscriptions = self.now, effect.publication, effect.subscriptions
        self.recorder.delivered(now, node.id, publication.id, subscriptions, effect.hops)
        for checker in self.checkers:
            for subscription in subscriptions:
                checker.delivered(now, node.id, publication, subscription)

    def _deliver_many(self, made: DeliveryBatch) -> None:
        publication, now = made.publication, self.now
        self.recorder.delivered_many(now, made.node, publication.id, made.subscription, made.hops)
        checkers = [checker for checker in self.checkers if checker.checks_deliveries]
        if checkers:
            pairs = zip(made.node.tolist(), made.subscription.tolist(), strict=True)
            for (node, subscription), checker in product(pairs, checkers):
                checker.delivered(now, node, publication, subscription)

    def _apply(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:  # most are
                self._send(node.id, effect.to, effect.message)
            else:
                self._carry_out[type(effect)](node, effect)

    def _send(self, source: NodeId, to: NodeId, message: Message) -> None:
        if message is not self._measured:
            self._measured, self._size = message, len(self._encode(message))
        now, size = self.now, self._size
        if self._constant is not None:
            due = now + self._constant
            if due != self._arrival:  # `_put_on_the_way`, written out
                self._begin_arrivals(due)
            self._arriving.append((to, source, message))
            arrived: Time | None = due
        else:
            delays = self.network.route(now, source, to, size)
            if self._packet_loss is not None:
                delays = self._packet_loss.delays(message, now, (source, to), size, delays)
            arrived = now + min(delays) if delays else None
            for delay in delays:
                self._put_on_the_way(now + delay, (to, source, message))
        publication = message.carries()
        if publication is not None and arrived is not None and arrived > self.latest_carrying:
            self.latest_carrying = arrived
        self.recorder.sent(
            now, source, to, message.kind, size, publication, arrived, arrived is None
        )
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
        if t != self._arrival:
            self._begin_arrivals(t)
        self._arriving.append(arrival)

    def _begin_arrivals(self, t: Time) -> None:
        self._arrival, self._arriving = t, self.steps_at(t)
        if t > self.latest_arrival:
            self.latest_arrival = t

    def _set_timer(self, node: Node, effect: SetTimer) -> None:
        timer = effect.timer
        key, token = (node.id, timer), object()
        self._timers[key] = token

        def fire() -> None:
            # Only if nobody has cleared or moved it, and this life of the node goes on.
            if self._timers.get(key) is token and self.nodes.get(node.id) is node:
                del self._timers[key]
                self._apply(node, node.wake(self.now, timer))

        self.at(self.now + effect.delay, fire)

    def _clear_timer(self, node: Node, effect: ClearTimer) -> None:
        self._timers.pop((node.id, effect.timer), None)

    def _note(self, node: Node, effect: Note) -> None:
        self.recorder.note(self.now, node.id, effect.fact, effect.about, effect.value)

    def _forget(self, node_id: NodeId) -> None:
        node = self.nodes.pop(node_id, None)
        if node is not None and node.node_group is not None:
            node.node_group.leave(node_id, self.now)
        self._interest_log.gone(self.now, node_id)


def _done() -> None:
    """In place of a step that has been taken."""


def _while(steps: Sequence[Step], begin: int, column: int, value: object) -> Iterator[Arrival]:
    """The arrivals from there on, as long as this is equal in all of them."""
    for place in range(begin, len(steps)):
        step = steps[place]
        if not isinstance(step, tuple) or step[column] != value:
            return
        yield step


def _ways(arrivals: Sequence[Arrival]) -> list[tuple[Sequence[NodeId], NodeId]]:
    """To whom, from whom."""
    return [((to,) if isinstance(to, int) else to, sender) for to, sender, _ in arrivals]
