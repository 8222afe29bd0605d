"""The live host: runs any Node on asyncio, as the simulated one runs it on its heap.

Nodes, codec, ledger and trace are the simulator's; only clock and network are real. Time is Unix
time in microseconds and never runs back: where the machine's clock does, it stands still. What a
message's way took only its receiver could know, so the trace leaves `arrived` open.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias, TypeVar

from nearcast.errors import Refused, SignatureError, TraceError, WireError
from nearcast.model.commands import Command, Leave, Publish, SendDirect
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import (
    ClearTimer,
    Deliver,
    DirectPacket,
    Effect,
    Message,
    Node,
    Note,
    Send,
    SendMany,
    SetTimer,
    Timer,
)
from nearcast.peer.signing import Signing, carried_publications
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import SECOND, Time
from nearcast.trace.interest_log import InterestLog
from nearcast.trace.recorder import Recorder
from nearcast.transport.transport import Transport
from nearcast.wire import Codec

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
# To the application of this node: a publication, for these of its subscriptions.
OnDeliver: TypeAlias = Callable[[NodeId, Publication, Sequence[SubscriptionId]], None]
# To the application of a node: the entity that has sent it a direct message, and the message.
OnDirect: TypeAlias = Callable[[NodeId, DirectPacket], None]

MILLISECOND: Time = 1_000
EARLY: Time = 50_000  # a loop wakes its callers early by less than this


def unix_time() -> Time:
    return time.time_ns() // 1000


def run(main: Coroutine[Any, Any, Answer]) -> Answer:
    """On uvloop where there is one, which halves the cost of a message."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class Host:
    """Runs nodes on asyncio: carries out their effects, records their trace."""

    def __init__(
        self,
        codec: Codec,
        recorder: Recorder,
        on_deliver: OnDeliver | None = None,
        clock: Callable[[], Time] = unix_time,
    ) -> None:
        self.nodes: dict[NodeId, Node] = {}
        self.recorder = recorder
        self.refused: Counter[str] = Counter()  # publications, by reason
        # By node: what its application does with a direct message of another entity.
        self.on_direct: dict[NodeId, OnDirect] = {}
        self._codec = Codec(*codec.messages, DirectPacket)
        self._on_deliver = on_deliver
        self._clock = clock
        self._now: Time = 0
        self._published_at: Time = -1
        self._interest_log = InterestLog(recorder, self._plan)
        self._legs: list[tuple[Time, int, Callable[[], None]]] = []
        self._turn = count()
        self._transports: dict[NodeId, Transport] = {}
        self._signing: dict[NodeId, Signing] = {}
        self._timers: dict[NodeId, dict[Timer, asyncio.TimerHandle]] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        self._changed = asyncio.Event()

    @property
    def now(self) -> Time:
        self._now = max(self._now, self._clock())
        return self._now

    # What an application does with its nodes.

    async def start(self, node: Node, transport: Transport, signing: Signing | None = None) -> None:
        """The node comes to life, as soon as it can be reached. OSError if it cannot be.

        `signing`: it signs what it publishes, and hears nothing that its author has not signed.
        """
        assert node.id == transport.name, f"node {node.id} cannot speak as {transport.name}"
        assert node.id not in self.nodes, f"node {node.id} is here already"
        await transport.open(partial(self._receive, node))
        self.nodes[node.id] = node
        self._transports[node.id] = transport
        if signing is not None:
            self._signing[node.id] = signing
        self._timers[node.id] = {}
        now = self.now
        if node.id < FIRST_SERVER:
            self.recorder.note(now, node.id, "joined")
        self._enter(node, lambda: node.start(now))

    def obey(self, node_id: NodeId, command: Command) -> Time:
        """The moment at which it took effect. KeyError if the node has stopped."""
        node = self.nodes[node_id]
        now = self.now
        self._begin_legs()
        if isinstance(command, Publish):
            self._published_at = now
            self.recorder.published(command.stamped(node_id, now))
            if node_id in self._signing:
                command = self._signing[node_id].signed(command, now)
        else:
            if now == self._published_at:
                # At one moment, interests come before publications: this moment's are made.
                now = self._now = now + 1
            self._interest_log.obey(now, node_id, command)
        self._enter(node, lambda: node.obey(now, command))
        if isinstance(command, Leave):
            self.recorder.note(now, node_id, "left")
        return now

    def send_direct(self, node_id: NodeId, command: SendDirect) -> Time:
        """Send a message straight to the peer of another entity. Refused if this one does not know
        where that is: links tell the addresses of all whose messages they carry, so it knows those
        of which anything has reached it."""
        now, to = self.now, command.to
        if to >= FIRST_SERVER or not self._transports[node_id].knows(to):
            raise Refused(
                f"this peer does not know where entity {to} is: nobody has received your message"
            )
        self.recorder.direct_sent(now, node_id, command.message, to, len(command.payload))
        self._send(node_id, (to,), DirectPacket(command.message, now, command.payload))
        return now

    async def stopped(self, node_id: NodeId) -> None:
        """Wait until this node has stopped, for whatever reason."""
        while node_id in self.nodes:
            self._changed.clear()
            await self._changed.wait()

    async def stop(self, patience_s: float = 2.0) -> None:
        """All entities say goodbye, and all links end. The recorder stays its owner's."""
        for node_id in list(self.nodes):
            if node_id < FIRST_SERVER:
                self.obey(node_id, Leave())
        try:
            async with asyncio.timeout(patience_s):
                for node_id in list(self.nodes):
                    if node_id < FIRST_SERVER:
                        await self.stopped(node_id)
        except TimeoutError:
            log.warning("nodes %s did not stop by themselves", list(self.nodes))
        for node_id in list(self.nodes):
            self._forget(node_id)
        while self._closing:
            await asyncio.gather(*self._closing)

    # Inputs.

    def _enter(self, node: Node, door: Callable[[], list[Effect]]) -> None:
        """A node that fails is stopped, as if it had crashed; all others go on."""
        try:
            self._apply(node, door())
        except TraceError:
            raise  # not the node's fault
        except Exception:
            log.exception("node %d has failed and is stopped", node.id)
            self.recorder.note(self.now, node.id, "crashed")
            self._forget(node.id)

    def _receive(self, node: Node, sender: NodeId, frames: Sequence[bytes]) -> None:
        if self.nodes.get(node.id) is not node:
            return
        now, signing = self.now, self._signing.get(node.id)
        arrivals: list[tuple[NodeId, Message]] = []
        for frame in frames:
            try:
                message = self._codec.decode(frame)
                if isinstance(message, DirectPacket):
                    self._receive_direct(node.id, sender, message)
                    continue
                if signing is not None:
                    for publication in carried_publications(message):
                        signing.check(publication, sender, now)
                arrivals.append((sender, message))
            except SignatureError as why:
                self._refuse(node.id, sender, why)
            except WireError as why:
                log.debug("node %d refuses bytes of %d: %s", node.id, sender, why)
                self.recorder.note(now, node.id, "refused", sender)
        if len(arrivals) == 1:
            self._enter(node, lambda: node.receive(now, *arrivals[0]))
        elif arrivals:
            self._enter(node, lambda: node.receive_many(now, arrivals))

    def _receive_direct(self, node_id: NodeId, sender: NodeId, packet: DirectPacket) -> None:
        """A link proves who sends, so nothing is signed."""
        hear = self.on_direct.get(node_id)
        if hear is None:
            self.recorder.note(self._now, node_id, "ignored", sender)
        else:
            self.recorder.direct_delivered(self._now, node_id, packet.message)
            asyncio.get_running_loop().call_soon(hear, sender, packet)

    def _wake(self, node: Node, timer: Timer, due: Time) -> None:
        if rest := self._rest(due):
            self._timers[node.id][timer] = self._call_later(rest, self._wake, node, timer, due)
            return
        del self._timers[node.id][timer]
        now = self._now = max(self.now, due)
        self._enter(node, lambda: node.wake(now, timer))

    def _rest(self, due: Time) -> Time:
        """How much longer to wait, since a loop counts in milliseconds: who went on at once would
        be ahead of all other hosts, whose publications would come before what it did long since.
        0: it is due, or the machine's clock was set back."""
        rest = due - self._clock()
        return max(rest, MILLISECOND) if 0 < rest < EARLY else 0

    @staticmethod
    def _call_later(delay: Time, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay / SECOND, call, *arguments)

    # Effects.

    def _apply(self, node: Node, effects: list[Effect]) -> None:
        stops = False
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node.id, (effect.to,), effect.message)
            elif isinstance(effect, Deliver):
                self._deliver(node.id, effect)
            elif isinstance(effect, SendMany):
                self._send(node.id, effect.to, effect.message)
            elif isinstance(effect, SetTimer):
                self._set_timer(node, effect.timer, effect.delay)
            elif isinstance(effect, ClearTimer):
                self._clear_timer(node.id, effect.timer)
            elif isinstance(effect, Note):
                self.recorder.note(self._now, node.id, effect.fact, effect.about, effect.value)
            else:
                stops = True
        if stops:
            self._forget(node.id)

    def _send(self, source: NodeId, to: Sequence[NodeId], message: Message) -> None:
        frame, transport = self._codec.encode(message), self._transports[source]
        for one in to:
            transport.send(one, frame, message.lossy, message.priority, message.ordered)
        self.recorder.sent_many(
            self._now, source, to, message.kind, len(frame), message.carries(), None
        )

    def _deliver(self, node_id: NodeId, effect: Deliver) -> None:
        publication, subscriptions = effect.publication, effect.subscriptions
        if node_id in self._signing:
            try:
                publication, subscriptions = self._signing[node_id].opened(
                    publication, subscriptions
                )
            except SignatureError as why:
                self._refuse(node_id, publication.node, why)
                return
        self.recorder.delivered(self._now, node_id, publication.id, subscriptions, effect.hops)
        if self._on_deliver is not None:
            # Later: an application that answers at once must not find its node in mid-sentence.
            asyncio.get_running_loop().call_soon(
                self._on_deliver, node_id, publication, subscriptions
            )

    def _refuse(self, node_id: NodeId, about: NodeId, why: SignatureError) -> None:
        """A publication goes no further. `about`: who sent it, or its author."""
        self.refused[str(why)] += 1
        level = logging.WARNING if self.refused[str(why)] == 1 else logging.DEBUG
        log.log(level, "node %d refuses a publication by way of %d: %s", node_id, about, why)
        self.recorder.note(self._now, node_id, "refused", about)

    def _set_timer(self, node: Node, timer: Timer, delay: Time) -> None:
        self._clear_timer(node.id, timer)
        due = self._now + delay
        self._timers[node.id][timer] = self._call_later(delay, self._wake, node, timer, due)

    def _clear_timer(self, node_id: NodeId, timer: Timer) -> None:
        handle = self._timers[node_id].pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _forget(self, node_id: NodeId) -> None:
        if self.nodes.pop(node_id, None) is None:
            return
        for handle in self._timers.pop(node_id).values():
            handle.cancel()
        self._signing.pop(node_id, None)
        self.on_direct.pop(node_id, None)
        self._interest_log.gone(self._now, node_id)
        closing = asyncio.get_running_loop().create_task(self._transports.pop(node_id).close())
        self._closing[closing] = None
        closing.add_done_callback(self._closing.pop)
        self._changed.set()

    # The legs of paths, each of which is a row of the trace.

    def _plan(self, t: Time, begin_leg: Callable[[], None]) -> None:
        heappush(self._legs, (t, next(self._turn), begin_leg))
        self._call_later(max(t - self._now, 0), self._reach, t)

    def _reach(self, t: Time) -> None:
        if rest := self._rest(t):
            self._call_later(rest, self._reach, t)
            return
        self._now = max(self.now, t)
        self._begin_legs()

    def _begin_legs(self) -> None:
        """Those whose moment has come; a command must not find one that is late."""
        while self._legs and self._legs[0][0] <= self._now:
            heappop(self._legs)[2]()
