"""A node decides; a host does.

A Node is one participant of an overlay, written as a state machine without clock, socket or global
random numbers. A host (`sim.simulation`, `peer.host`) calls its inputs, and each input returns all
the effects that it caused, in order. Inside, a protocol writes effects to its outbox:
`self.out.send(...)`. From outside a node is a function from input to effects, so a test is one
`assert node.receive(...) == [...]`.

Start reading here, then `protocols/client_server.py`.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import IntEnum
from random import Random
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.commands import Command
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector

if TYPE_CHECKING:  # clients use timers and effects, and need no numpy
    import numpy as np
    from numpy.typing import NDArray

# A number in a message. It is finite: the codec refuses NaN and infinity.
Real: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Priority(IntEnum):
    """What goes first where messages wait for a link (CUSP's priorities, [Lucas2011] 2.3)."""

    UPKEEP = 0  # what keeps an overlay together
    PUBLICATION = 1  # what applications wait for
    BULK = 2  # what is soon repeated, or large


class Message(Struct, frozen=True, array_like=True, gc=False):
    """What one node sends to another. Each class has a tag of its own within its protocol.

    A protocol has a base class of its messages, which names the protocol. The name of a class in
    traces (`kind`) is made once, when the class is: `bubblestorm.Join`.

    Between two nodes, messages of one priority stay in order. A class that sets one of these three
    says that its messages may overtake others and be overtaken.
    """

    lossy: ClassVar[bool] = False  # True: may travel as a datagram and be lost
    ordered: ClassVar[bool] = True  # False: neither waits for other messages nor holds them up
    priority: ClassVar[Priority] = Priority.UPKEEP
    protocol: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.kind = f"{cls.protocol}.{cls.__name__}" if cls.protocol else cls.__name__

    def carries(self) -> PublicationId | None:
        """The publication inside, if there is one; the trace links messages to it."""
        return None


class DirectPacket(Message, frozen=True, tag=255):
    """A direct message between the peers of two entities. Hosts send and receive it, so it is the
    same in every overlay, and no protocol has a message with this tag."""

    priority: ClassVar[Priority] = Priority.PUBLICATION
    message: Annotated[int, Meta(ge=0, lt=2**53)]
    t: Annotated[int, Meta(ge=0, lt=2**53)]
    payload: bytes = b""


class Timer(Struct, frozen=True):
    """A timer of a node, as a value: setting an equal one again moves it."""


class Effect(Struct, frozen=True):
    """What a node wants its host to do."""


class Send(Effect, frozen=True, gc=False):
    """Send a message to one node."""

    to: NodeId
    message: Message


class SendMany(Effect, frozen=True, gc=False):
    """One message to many nodes, encoded and recorded once. Means a Send to each, in order."""

    to: Sequence[NodeId]
    message: Message


class SetTimer(Effect, frozen=True):
    """Call `wake` with this timer after `delay`."""

    timer: Timer
    delay: Time


class ClearTimer(Effect, frozen=True):
    """Forget this timer. It need not be set."""

    timer: Timer


class Deliver(Effect, frozen=True, gc=False):
    """Deliver a publication to the application, for these subscriptions, after so many hops."""

    publication: Publication
    subscriptions: Sequence[SubscriptionId]
    hops: int


class Note(Effect, frozen=True):
    """Record a fact in the trace: joined, linked, split, ignored, …"""

    fact: str
    about: int | None = None
    value: float | None = None


class Stop(Effect, frozen=True):
    """The node has left its overlay; the host forgets it."""


class Outbox:
    """Collects the effects of one input, in order. A protocol calls its methods."""

    __slots__ = ("effects", "stopped")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.stopped = False  # from then on inputs have no effect

    def put(self, effect: Effect) -> None:
        """An effect of a kind that only some hosts know."""
        self.effects.append(effect)

    def send(self, to: NodeId, message: Message) -> None:
        self.effects.append(Send(to, message))

    def send_many(self, to: Sequence[NodeId], message: Message) -> None:
        self.effects.append(SendMany(tuple(to), message))  # the caller may change its list

    def set_timer(self, timer: Timer, delay: Time) -> None:
        self.effects.append(SetTimer(timer, delay))

    def clear_timer(self, timer: Timer) -> None:
        self.effects.append(ClearTimer(timer))

    def deliver(
        self, publication: Publication, subscriptions: Sequence[SubscriptionId], hops: int
    ) -> None:
        self.effects.append(Deliver(publication, subscriptions, hops))

    def note(self, fact: str, about: int | None = None, value: float | None = None) -> None:
        self.effects.append(Note(fact, about, value))

    def stop(self) -> None:
        self.stopped = True
        self.effects.append(Stop())

    def drain(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class DeliveryBatch(Struct, frozen=True):
    """Deliveries of one publication as columns: to `node[i]`, for its `subscription[i]`."""

    publication: Publication
    node: "NDArray[np.int64]"
    subscription: "NDArray[np.int64]"
    hops: int


class KnownPositions(Struct, frozen=True):
    """Which other nodes each node knows, as columns, and where it believes each to be (x, y, z)."""

    node: "NDArray[np.int64]"
    other: "NDArray[np.int64]"
    place: "NDArray[np.float64]"


class NodeGroup(Protocol):
    """Nodes of one process that handle some messages together, in columns.

    The effects are those that each node by itself would have.
    """

    message_types: tuple[type[Message], ...]  # that the group can receive

    def receive(
        self, now: Time, arrivals: Sequence[tuple[Sequence[NodeId], NodeId]], message: Message
    ) -> DeliveryBatch:
        """One message for many nodes: `arrivals` are pairs of receivers and their sender.

        Means a `receive` of each node that has started and not left, in turn.
        """
        ...

    def known_positions(self, now: Time, nodes: Sequence[NodeId]) -> KnownPositions:
        """What `known` of each of these nodes gives, if it is here; unordered within a node."""
        ...

    def leave(self, node: NodeId, now: Time) -> None:
        """The node has stopped or crashed."""
        ...


class Node(ABC):
    """One participant of an overlay. A protocol overrides the hooks; a host calls the inputs."""

    node_group: NodeGroup | None = None  # a host may call it instead, if all its nodes share it

    def __init__(self, node_id: NodeId, rng: Random) -> None:
        self.id = node_id
        self.rng = rng
        self.now: Time = 0
        self.out = Outbox()

    # Inputs, which a host calls. Each returns all its effects. After Stop, inputs do nothing.

    def start(self, now: Time) -> list[Effect]:
        self._advance(now)
        if not self.out.stopped:
            self.on_start()
        return self.out.drain()

    def receive(self, now: Time, sender: NodeId, message: Message) -> list[Effect]:
        if now != self.now:
            self._advance(now)
        out = self.out
        if not out.stopped:
            self.on_message(sender, message)
        effects, out.effects = out.effects, []  # `drain`, written out: hosts call this most
        return effects

    def receive_many(self, now: Time, arrivals: Sequence[tuple[NodeId, Message]]) -> list[Effect]:
        """Messages that arrive at one moment. Means a `receive` of each in turn."""
        self._advance(now)
        if not self.out.stopped:
            self.on_messages(arrivals)
        return self.out.drain()

    def wake(self, now: Time, timer: Timer) -> list[Effect]:
        self._advance(now)
        if not self.out.stopped:
            self.on_timer(timer)
        return self.out.drain()

    def obey(self, now: Time, command: Command) -> list[Effect]:
        self._advance(now)
        if not self.out.stopped:
            self.on_command(command)
        return self.out.drain()

    def _advance(self, now: Time) -> None:
        assert now >= self.now, f"node {self.id}: time ran back from {self.now} to {now}"
        self.now = now

    # Queries, which change nothing.

    @property
    def ready(self) -> bool:
        """Is this node a full member of its overlay? A workload begins when all nodes are."""
        return True

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:  # noqa: ARG002
        """The nodes that this one knows at this moment, and where it believes them to be."""
        return ()

    # Hooks, which a protocol overrides.

    def on_start(self) -> None:  # noqa: B027  most nodes need none
        """The node has started."""

    @abstractmethod
    def on_message(self, sender: NodeId, message: Message) -> None: ...

    def on_messages(self, arrivals: Sequence[tuple[NodeId, Message]]) -> None:
        """Override it where a batch is faster; the effects must be the same."""
        for sender, message in arrivals:
            if not self.out.stopped:
                self.on_message(sender, message)

    def on_timer(self, timer: Timer) -> None:  # noqa: B027
        """A timer that this node has set is due."""

    def on_command(self, command: Command) -> None:  # noqa: B027
        """The application asks for something."""
