"""VSO: matchers are sites of a Voronoi diagram that organises itself ([VSO]).

Every node has a client part, and a matcher part if it is one from the beginning or was promoted. In
a peer-to-peer deployment clients are the candidates; provisioned servers without an entity may be
candidates too, or instead.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from msgspec.structs import replace

from nearcast.model.commands import Command, Leave
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Node, Timer
from nearcast.protocols.overlay import FIRST_SERVER, Invariant, ProtocolKind
from nearcast.protocols.voronoi import mesh_messages
from nearcast.protocols.voronoi.vso.client import RetrySubscriptions, VsoClient
from nearcast.protocols.voronoi.vso.client_columns import ClientColumns
from nearcast.protocols.voronoi.vso.initial_grid import grid
from nearcast.protocols.voronoi.vso.matcher import MOST_HOPS, VsoMatcher
from nearcast.protocols.voronoi.vso.messages import (
    MESSAGES,
    Alive,
    Cancel,
    Candidate,
    Cast,
    Interest,
    Notify,
    OwnedSubscriptions,
    Place,
    Post,
    Promote,
    RegionUpdate,
    ReplicaMatch,
    sound,
)
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.wire import Codec

CODEC = Codec(*mesh_messages.MESSAGES, *MESSAGES)
CARRYING = (ReplicaMatch, Post, Cast)
PASSED_ON = (Post, Interest, RegionUpdate, Cancel, ReplicaMatch, Cast)


class GatewayName:
    """The well-known address of the gateway: a new gateway is found here.

    The nodes of a simulation share one; a peer has one of its own (`peer`).
    """

    def __init__(self, gateway: NodeId) -> None:
        self.gateway = gateway


class TickMatcher(Timer, frozen=True):
    """Run the periodic work of the matcher."""


class SendAlive(Timer, frozen=True):
    """Send the client's heartbeat, or a candidate's offer."""


class VsoNode(Node):
    """A client, and a matcher if promoted. `place`: it is a matcher here from the beginning."""

    def __init__(
        self,
        node_id: NodeId,
        rng: Random,
        parameters: Parameters,
        directory: GatewayName,
        columns: ClientColumns,
        place: Place | None = None,
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters = parameters
        self.directory = directory
        self.matcher: VsoMatcher | None = None
        self.node_group = columns
        self.client = VsoClient(
            node_id, self.out, self._clock, parameters, columns, self._gateway, self._send_to
        )
        self._place = place
        self._successor: NodeId | None = None  # has the region of this former matcher

    def _clock(self) -> Time:
        return self.now

    def _gateway(self) -> NodeId:
        return self.directory.gateway

    @property
    def ready(self) -> bool:
        return self.client.ready and (self.matcher is None or self.matcher.site.ready)

    def on_start(self) -> None:
        self.client.begin()
        if self._place is not None:
            self._become_matcher(self._place, self.directory.gateway)
        # Random, so that nodes that start together do not send together.
        self.out.set_timer(SendAlive(), 1 + int(self.rng.random() * self.parameters.heartbeat))

    def _become_matcher(self, place: Place, contact: NodeId) -> None:
        self.matcher = VsoMatcher(
            self.id, self.out, self.rng, self._clock, self.parameters, self._send_to_all
        )
        if self.directory.gateway == self.id:
            self.matcher.found(place)
        else:
            self.matcher.join(place, contact, contact)
        self.out.note("matcher", self.id)
        self.out.set_timer(TickMatcher(), 1 + int(self.rng.random() * self.parameters.tick))

    def on_command(self, command: Command) -> None:
        self.client.command(command)
        if isinstance(command, Leave):
            if self.matcher is not None:
                self.matcher.abandon()
            self.out.stop()

    def on_message(self, sender: NodeId, message: Message) -> None:
        if isinstance(message, Notify):  # by far the most frequent
            self.client.receive(message, sender)
            return
        if self.matcher is not None and isinstance(message, CARRYING):
            self.matcher.handle_publication(message, sender)
            self._update_role()
            return
        if self.client.on(message, sender):
            return
        if isinstance(message, Promote):
            if sender != message.contact or sender == self.id:
                self.out.note("refused", sender)
            elif self.matcher is None and sound(message):
                self._become_matcher(message.place, message.contact)
        elif self.matcher is None:
            self._pass_on(message, sender)
        elif not self.matcher.on(message, sender):
            self.out.note("ignored", sender)
        self._update_role()

    def _pass_on(self, message: Message, sender: NodeId) -> None:
        """Forward messages to a former matcher, so that they are not lost."""
        to = self._successor if self._successor is not None else self.directory.gateway
        if isinstance(message, Alive):
            self._send_to(sender, OwnedSubscriptions(()))
        elif isinstance(message, PASSED_ON) and to != self.id and message.hops < MOST_HOPS:
            if (
                isinstance(message, Post)
                and message.hops == 1
                and message.publication.node != sender
            ):
                self.out.note("refused", message.publication.id)
            else:
                self.out.send(to, replace(message, hops=message.hops + 1))
        else:
            self.out.note("ignored", sender)

    def on_timer(self, timer: Timer) -> None:
        match timer:
            case TickMatcher() if self.matcher is not None:
                self.matcher.tick(self.now)
                self._update_role()
                if self.matcher is not None:
                    self.out.set_timer(TickMatcher(), self.parameters.tick)
            case RetrySubscriptions():
                self.client.retry_unserved()
            case SendAlive():
                if self.id < FIRST_SERVER:
                    self.client.send_alive()
                elif self.matcher is None:
                    offer = Candidate(self.id, self.parameters.limit)
                    self.out.send(self.directory.gateway, offer)
                self.out.set_timer(SendAlive(), self.parameters.heartbeat)

    def _update_role(self) -> None:
        if self.matcher is None:
            return
        if self.matcher.resigned:
            self._successor = self.matcher.successor
            self.matcher = None  # [VSO] IV-C, 3: a candidate again
        elif self.matcher.gateway == self.id:
            self.directory.gateway = self.id

    # Client and matcher of one node exchange messages without the network ([VSO] IV-E, 2).

    def _send_to(self, to: NodeId, message: Message) -> None:
        if to != self.id:
            self.out.send(to, message)
        else:
            self.on_message(self.id, message)

    def _send_to_all(self, to: Sequence[NodeId], message: Message) -> None:
        others = to
        if self.id in to:
            others = [node for node in to if node != self.id]
            self.on_message(self.id, message)
        if len(others) == 1:
            self.out.send(others[0], message)
        elif others:
            self.out.send_many(others, message)

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        return self.client.known(now)


class VsoDeployment:
    """Matchers from the beginning, provisioned servers, and a node for each entity."""

    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        self.parameters = parameters
        self.stream = stream
        self.directory = GatewayName(FIRST_SERVER)
        self.columns = ClientColumns(round(parameters.memory_s * SECOND))

    def servers(self) -> list[Node]:
        chosen = self.parameters
        places: list[Place | None] = [*grid(chosen.matchers, chosen.world)]
        if chosen.candidates != "clients":
            places += [None] * chosen.servers
        return [self.server(number, place) for number, place in enumerate(places)]

    def server(self, number: int, place: Place | None = None) -> VsoNode:
        """A provisioned server: a matcher from the beginning if it has a place."""
        node_id, chosen = FIRST_SERVER + number, self.parameters
        own = replace(chosen, limit=chosen.server_limit or chosen.limit)
        return VsoNode(node_id, self.stream(node_id), own, self.directory, self.columns, place)

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        return VsoNode(node_id, rng, self.parameters, self.directory, self.columns)


def _invariants(*, calm: bool) -> Sequence[Invariant]:
    from nearcast.protocols.voronoi.invariants import invariants  # it imports this module

    return invariants(calm=calm)


KIND = ProtocolKind(
    Parameters, CODEC, VsoDeployment, settles=True, workload="clustering", invariants=_invariants
)
