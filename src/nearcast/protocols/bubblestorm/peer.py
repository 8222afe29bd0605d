"""The publish/subscribe layer: subscriptions, connections, publications ([Lucas2011] 3.3, 3.4.2).

Every round a peer casts its subscription: its position and its vision radius. Each peer that the
bubble reaches stores it and replies with the peers that it knows in that area. The subscriber
contacts them; from then on both send each other their publications, directly or through relays. A
publication for another place, or for an area, may concern other peers too: it is also cast as an
instant bubble, which meets the stored subscriptions.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription
from nearcast.node import Message, Node, Timer
from nearcast.protocols.bubblestorm import messages
from nearcast.protocols.bubblestorm.cache import SubscriptionCache
from nearcast.protocols.bubblestorm.connections import DirectConnection, DirectConnections
from nearcast.protocols.bubblestorm.layouts import (
    MessageType,
    PeerPosition,
    pack_position,
    pack_reply,
    unpack_position,
    unpack_reply,
)
from nearcast.protocols.bubblestorm.managed import ReplicaHolders
from nearcast.protocols.bubblestorm.messages import Number
from nearcast.protocols.bubblestorm.overlay import (
    BubbleStormOverlay,
    CheckCircuitLinks,
    SendGossip,
    SendQueued,
)
from nearcast.protocols.bubblestorm.parameters import Parameters
from nearcast.protocols.bubblestorm.sizes import NetworkEstimate
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.dedup import DeliveredPublications, is_outside_window, publication_key
from nearcast.protocols.interests import Ball, PeerInterests, ball_around
from nearcast.protocols.relays.layer import interest_of, relays_of
from nearcast.protocols.relays.messages import MESSAGES as OF_RELAYS
from nearcast.protocols.update_rates import RateLimits, UpdateRates
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import POINT, Vector

FAREWELL: Time = 20 * SECOND  # a leaving peer stops after so long, whatever its links answer
ANSWERED_WITHIN: Time = 5 * SECOND  # later replies are ignored
NEARBY = 0.1  # of the vision radius: a publication so near counts as made at the peer's place
MOST_WANTED = 64  # interests that travel with one subscription
TOKENS = 2**52
MOST_HOPS = 128


class CastSubscription(Timer, frozen=True):
    """Cast the subscription; once in a low-frequency interval."""


class LeaveTimeout(Timer, frozen=True):
    """Stop, though some links have not been released."""


class BubbleStormPeer(Node):
    """A peer of BubbleStorm with the spatial publish/subscribe layer."""

    def __init__(
        self,
        node_id: NodeId,
        rng: Random,
        parameters: Parameters,
        contacts: Contacts,
        strength: float = 1.0,
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters, self.contacts = parameters, contacts
        self.overlay = BubbleStormOverlay(self, parameters, strength)
        self._circuit = self.overlay.circuit
        self.interests = PeerInterests()
        self.rates = RateLimits(self, self.interests, self.post)
        self.cache = SubscriptionCache(_time(parameters.cache_s))
        self.connections = DirectConnections(
            _time(parameters.linger_s), _time(parameters.silent_s), _time(parameters.address_s),
            self.note,
        )  # fmt: skip
        self.delivered = DeliveredPublications()
        self._round = round(parameters.round_ms * 1000)
        self.holders = ReplicaHolders(self._round)
        self.relays = relays_of(self, parameters, lambda node: node in self.connections.open)
        self.tokens: dict[Number, Time] = {}  # of subscriptions that may still be answered
        self._bubble: Number = rng.randrange(TOKENS)  # the token of the managed one
        self._to_self: list[Message] = []
        self._handlers: dict[type[Message], Callable[[NodeId, Any], None]] = {
            messages.DirectPublication: self._on_direct_publication,
            messages.SubscriptionBubble: self._on_subscription_bubble,
            messages.Reply: self._on_reply,
            messages.Position: self._on_position,
            messages.Contact: self._on_contact,
            messages.Accept: self._on_accept,
            messages.Close: self._on_close,
            messages.PublicationBubble: self._on_publication_bubble,
            messages.RendezvousPublication: self._on_rendezvous_publication,
            messages.ReplicaHeld: self._on_replica_held,
            messages.ReplicaUpdate: self._on_replica_update,
            messages.ReplicaDropped: self._on_replica_dropped,
            UpdateRates: self._on_update_rates,
            **self.overlay.handlers,
        }
        if self.relays is not None:
            self._handlers.update(dict.fromkeys(OF_RELAYS, self._on_relayed))

    @property
    def ready(self) -> bool:
        """Joined, and counted in a measurement of the network."""
        return self.overlay.circuit.joined and self.overlay.measurement.took_part > 0

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        return self.connections.seen(now)

    # Called by the layers below.

    def post(self, to: NodeId, message: Message) -> None:
        if to == self.id:
            self._to_self.append(message)  # a link to itself
        else:
            self.out.send(to, message)

    def note(self, fact: str, about: NodeId) -> None:
        self.out.note(fact, about)

    def set_timer(self, timer: Timer, delay: Time) -> None:
        self.out.set_timer(timer, delay)

    def contact(self) -> NodeId | None:
        return self.contacts.any(self.rng, self.id)

    def suspect(self, contact: NodeId) -> None:
        self.contacts.remove(contact)

    def known_network(self) -> tuple[Number, NetworkEstimate]:
        return self.overlay.measurement.round, self.overlay.measurement.network

    def learn_network(self, round_: Number, network: NetworkEstimate) -> None:
        self.overlay.measurement.join(round_, network)

    # Doors.

    def on_start(self) -> None:
        if self.relays is not None:
            self.out.note("uplink", value=round(self.relays.uplink.capacity * 8))
        self.overlay.start()
        self._announce()
        self.out.set_timer(CastSubscription(), 1 + self.rng.randrange(self._round))
        self._finish()

    def on_message(self, sender: NodeId, message: Message) -> None:
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(sender, message)
            if self._to_self or self._circuit.leaving:
                self._finish()

    def on_timer(self, timer: Timer) -> None:
        if self.relays is not None and self.relays.wake(timer):
            return
        match timer:
            case CastSubscription():
                self._play_round()
                self.out.set_timer(timer, self._round)
            case CheckCircuitLinks() | SendGossip() | SendQueued():
                self.overlay.on_timer(timer)
                self._announce()
            case _:
                self._stop()
        self._finish()

    def on_command(self, command: Command) -> None:
        if self.overlay.circuit.leaving:
            return
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Subscribe() | Move() | Tune() | Unsubscribe():
                why = self.interests.obey(command, self.id, self.now)
                if why is not None:
                    self.out.note(why, command.subscription)
                else:
                    self.rates.obey(command)
            case Leave():
                self._leave()
        self._finish()

    def _announce(self) -> None:
        """A peer with links is a contact for joiners."""
        if self.overlay.circuit.degree and not self.overlay.circuit.leaving:
            self.contacts.add(self.id)

    def _finish(self) -> None:
        """Handle messages to itself at once; stop when the peer has left."""
        while self._to_self:
            message = self._to_self.pop(0)
            self._handlers[type(message)](self.id, message)
        if self.overlay.circuit.gone and not self.out.stopped:
            self._stop()

    def _leave(self) -> None:
        if self.relays is not None:
            self.relays.leave()
        self.out.send_many(self.connections.to, messages.Close())
        self.out.send_many(self.holders.nodes, messages.ReplicaDropped())
        for node in self.connections.to:
            self.connections.close(node)
        self.overlay.circuit.leave()
        self.out.set_timer(LeaveTimeout(), FAREWELL)

    def _stop(self) -> None:
        self.contacts.remove(self.id)
        self.out.stop()

    # Expressing interest (3.3.1): every low-frequency interval.

    def _play_round(self) -> None:
        if self.overlay.circuit.leaving:
            return
        now = self.now
        area = self.interests.area(now)
        if area is not None and self.overlay.circuit.degree:
            self._subscribe(area)
            if self.connections.to:
                position = self._packet(MessageType.POSITION, area)
                self.out.send_many(self.connections.to, messages.Position(position))
        self.cache.clean(now)
        over = self.connections.check(area, now)
        if over:
            self.out.send_many(over, messages.Close())
        self.tokens = {token: t for token, t in self.tokens.items() if now - t < ANSWERED_WITHIN}
        self.interests.forget(now)

    def _packet(self, kind: MessageType, area: Ball) -> bytes:
        return pack_position(kind, self.id, area.place, area.radius, self.now)

    def _subscribe(self, area: Ball) -> None:
        packet, managed = self._packet(MessageType.SUBSCRIPTION, area), False
        token, weight = self.rng.randrange(TOKENS), self.overlay.size
        wanted: tuple[Subscription, ...] = ()
        if self.parameters.interests == "whole":
            wanted = tuple(self.interests.present()[:MOST_WANTED])
        if self.parameters.bubble == "managed" and self.parameters.cast == "bubblecast":
            token, managed = self._bubble, True
            keep = messages.ReplicaUpdate(token, self.holders.asks(), packet, wanted)
            if self.holders.nodes:
                self.out.send_many(self.holders.nodes, keep)
            weight = self.holders.missing(self.overlay.holders - 1, self.now) + 1
        self.tokens[token] = self.now
        size = max(weight, self.overlay.size)
        bubble = messages.SubscriptionBubble(0, weight, size, token, managed, packet, wanted)
        if self.parameters.cast == "flooding":
            self.overlay.is_new(token)
            self.overlay.flood(bubble, None)
        else:
            self.overlay.pass_on(bubble, None)  # its owner is the first replica

    # Neighbour detection ([Lucas2011] 3.3.2): a bubble arrives.

    def _on_subscription_bubble(self, sender: NodeId, message: messages.SubscriptionBubble) -> None:
        if not self.overlay.circuit.is_linked(message.location, sender):
            return  # not on a link of this peer
        position = unpack_position(MessageType.SUBSCRIPTION, message.packet)
        if position is None or not _fits(position, message.wanted):
            self.out.note("refused", sender)
            return
        if self.parameters.cast == "flooding":
            if not self.overlay.is_new(message.token):
                return
            self.overlay.flood(message, sender)
        else:
            self.overlay.pass_on(message, message.location)
        if position.node != self.id:
            self._match(position, message.token, message.managed, message.wanted)
            if message.managed:
                self.out.send(position.node, messages.ReplicaHeld(message.token))

    def _match(
        self, position: PeerPosition, token: Number, managed: bool, wanted: tuple[Subscription, ...]
    ) -> None:
        """Store it, and reply with the peers in its area (the thesis' matchQuery)."""
        found: list[NodeId] = []
        if self.parameters.cast != "flooding" and self.parameters.cache_s:
            self.cache.update(position, self.now, managed, wanted)
            found = self.cache.inside(position)
        mine = self.interests.area(self.now)
        if mine is not None and mine.away(*position.place) <= position.radius:
            found.append(self.id)
        if found:
            self.out.send(position.node, messages.Reply(token, pack_reply(self.id, found)))

    def _on_replica_held(self, sender: NodeId, message: messages.ReplicaHeld) -> None:
        if message.token == self._bubble and message.token in self.tokens:
            self.holders.receive(sender, self.now)

    def _on_replica_update(self, sender: NodeId, message: messages.ReplicaUpdate) -> None:
        entry = self.cache.entries.get(sender)
        position = unpack_position(MessageType.SUBSCRIPTION, message.packet)
        if entry is None or not entry.managed or position is None or position.node != sender:
            return  # not held here; the owner will notice
        if _fits(position, message.wanted):
            self._match(position, message.token, True, message.wanted)
            if message.asks:
                self.out.send(sender, messages.ReplicaHeld(message.token))

    def _on_replica_dropped(self, sender: NodeId, _: messages.ReplicaDropped) -> None:
        entry = self.cache.entries.get(sender)
        if entry is not None and entry.managed:
            self.cache.drop(sender)

    # Connecting (the thesis' foundData, contactPeer, onContact).

    def _on_reply(self, sender: NodeId, message: messages.Reply) -> None:
        reply = unpack_reply(message.packet)
        if message.token not in self.tokens or reply is None or reply[0] != sender:
            return  # not asked for, too late, or invalid
        known, attempted = self.connections.open, self.connections.attempted
        others = [node for node in reply[1] if node not in known and node not in attempted]
        area = self.interests.area(self.now) if others else None
        if area is None:
            return  # the usual case: all are known
        unknown = [
            node for node in others if node != self.id and self.connections.attempt(node, self.now)
        ]
        if unknown:
            self.out.send_many(unknown, messages.Contact(self._packet(MessageType.CONTACT, area)))

    def _on_contact(self, sender: NodeId, message: messages.Contact) -> None:
        position = unpack_position(MessageType.CONTACT, message.packet)
        area = self.interests.area(self.now)
        if position is None or position.node != sender or area is None or sender == self.id:
            return
        if area.away(*position.place) <= max(area.radius, position.radius):
            self.connections.connect(position, self.now)
            self.out.send(sender, messages.Accept(self._packet(MessageType.ACCEPT, area)))

    def _on_accept(self, sender: NodeId, message: messages.Accept) -> None:
        position = unpack_position(MessageType.ACCEPT, message.packet)
        if position is not None and position.node == sender:
            if sender in self.connections.attempted:
                self.connections.connect(position, self.now)
            elif sender in self.connections.open:
                self.connections.see(position, self.now)

    def _on_close(self, sender: NodeId, _: messages.Close) -> None:
        self.connections.close(sender)

    def _on_position(self, sender: NodeId, message: messages.Position) -> None:
        connection = self.connections.open.get(sender)
        if connection is None:
            return
        position = unpack_position(MessageType.POSITION, message.packet)
        if position is None or position.node != sender:
            connection.hard = True  # bogus
            self.out.note("refused", sender)
            return
        self.connections.see(position, self.now)
        connection.monitor(self.interests.sees(*connection.place, self.now), self.now)

    # Update propagation ([Lucas2011] 3.3.3).

    def _publish(self, publication: Publication) -> None:
        self._deliver(publication, 0)  # its own echo needs no way
        shape, area = publication.shape, self.interests.area(self.now)
        here = area is not None and area.away(shape.x, shape.y, shape.z) <= NEARBY * area.radius
        if self.connections.to:
            self._send_directly(publication, here)
        if not here or shape.kind != POINT:
            size = self.overlay.partner
            self.overlay.pass_on(messages.PublicationBubble(0, size, size, publication, 0), None)
            self._match_publication(publication, 0)

    def _send_directly(self, publication: Publication, here: bool) -> None:
        """To the connected peers. Relays carry only publications made at the peer's place."""
        direct, relays = messages.DirectPublication(publication, here), self.relays
        open_ = self.connections.open
        to = self.rates.receivers(publication, self.connections.to, lambda node: open_[node].place)
        if relays is not None and here:
            relays.disseminate(publication, self._audience_of(publication, to))
            return
        if relays is not None:
            for _ in to:
                relays.uplink.charge(direct, self.now)
        if to:
            self.out.send_many(to, direct)

    def _audience_of(self, publication: Publication, to: Iterable[NodeId]) -> dict[NodeId, float]:
        place, open_ = ball_around(publication.shape), self.connections.open
        return {
            node: interest_of(place.away(*open_[node].place), open_[node].radius) for node in to
        }

    def _on_update_rates(self, sender: NodeId, message: UpdateRates) -> None:
        if sender in self.connections.open:
            self.rates.learn(sender, message)

    def _on_direct_publication(self, sender: NodeId, message: messages.DirectPublication) -> None:
        connection = self.connections.open.get(sender)
        publication = message.publication
        if connection is None:
            self.out.note("ignored", sender)  # from before the connection was closed
        elif publication.node != sender:
            connection.hard = True  # not the sender's own
            self.out.note("refused", sender)
        else:
            self._receive_publication(connection, publication, message.here, 1)

    def _on_relayed(self, sender: NodeId, message: Message) -> None:
        assert self.relays is not None
        self.relays.on(message, sender)
        for publication, hops in self.relays.drain():
            connection = self.connections.open.get(publication.node)
            if connection is None:
                self.out.note("ignored", publication.node)
            else:
                self._receive_publication(connection, publication, True, hops)

    def _receive_publication(
        self, connection: DirectConnection, publication: Publication, here: bool, hops: int
    ) -> None:
        now = connection.last_received = self.now
        if here and publication.t >= connection.published:  # else it has been overtaken
            connection.published = publication.t
            shape = publication.shape
            x, y, z = connection.place = shape.x, shape.y, shape.z
            connection.monitor(self.interests.sees(x, y, z, now), now)
        self._deliver(publication, hops)

    def _on_publication_bubble(self, sender: NodeId, message: messages.PublicationBubble) -> None:
        if self.overlay.circuit.is_linked(message.location, sender):
            self._deliver(message.publication, message.hops)
            self._match_publication(message.publication, message.hops)
            if message.hops < MOST_HOPS:
                self.overlay.pass_on(message, message.location)

    def _match_publication(self, publication: Publication, hops: int) -> None:
        to = [node for node in self.cache.wanting(publication) if node != publication.node]
        if to:
            self.out.send_many(to, messages.RendezvousPublication(publication, hops + 1))

    def _on_rendezvous_publication(
        self, _: NodeId, message: messages.RendezvousPublication
    ) -> None:
        self._deliver(message.publication, message.hops)

    def _deliver(self, publication: Publication, hops: int) -> None:
        if is_outside_window(publication, self.now):
            return  # a replay
        wanting = self.interests.wanting(publication)
        if wanting and self.delivered.is_new(publication_key(publication), self.now):
            admitted = self.rates.admit(publication, wanting)
            if admitted:
                self.out.deliver(publication, tuple(admitted), hops)


def _fits(position: PeerPosition, wanted: tuple[Subscription, ...]) -> bool:
    return not wanted or (
        len(wanted) <= MOST_WANTED and all(one.node == position.node for one in wanted)
    )


def _time(seconds: float) -> Time:
    return round(seconds * SECOND)
