"""The application layer: subscriptions, connections and publications (seed 002, 3.3 and 3.4.2).

Every round a peer casts its subscription, which is its place and how far it sees. Whoever the
bubble comes to stores it, looks whom else it knows in that area, and replies. The peer contacts
those named, and from then on both send each other what they publish, directly or with the help of
relays. A publication that is made elsewhere, or to an area, may concern others than those
connected: it is cast too, as an instant bubble, to meet the subscriptions stored on the way.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription
from nearcast.node import Message, Node, Timer
from nearcast.protocols.bubblestorm import messages as say
from nearcast.protocols.bubblestorm.cache import Cache
from nearcast.protocols.bubblestorm.connections import Connection, Connections
from nearcast.protocols.bubblestorm.layouts import (
    Kind,
    Sighting,
    pack_position,
    pack_reply,
    unpack_position,
    unpack_reply,
)
from nearcast.protocols.bubblestorm.managed import Holders
from nearcast.protocols.bubblestorm.messages import Number
from nearcast.protocols.bubblestorm.overlay import BubbleStormOverlay, Flush, Look, Whisper
from nearcast.protocols.bubblestorm.parameters import Parameters
from nearcast.protocols.bubblestorm.sizes import Census
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.dedup import DeliveredPublications, is_outside_window, publication_key
from nearcast.protocols.interests import Ball, PeerInterests, ball_around
from nearcast.protocols.relays.layer import interest_of, relays_of
from nearcast.protocols.relays.messages import MESSAGES as OF_RELAYS
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import POINT, Vector

FAREWELL: Time = 20 * SECOND  # a link that does not react to a goodbye is left after so long
ANSWERED_WITHIN: Time = 5 * SECOND  # a reply that comes later than this is none
NEARBY = 0.1  # of the vision radius: what is said so near to a peer's place is said there
MOST_WANTED = 64  # interests that travel with one subscription
TOKENS = 2**52
MOST_HOPS = 128


class Round(Timer, frozen=True):
    """The low-frequency interval is over."""


class Farewell(Timer, frozen=True):
    """Whoever has not let go by now never will."""


class Peer(Node):
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
        self.storm = BubbleStormOverlay(self, parameters, strength)
        self._circuit = self.storm.circuit
        self.interests = PeerInterests()
        self.cache = Cache(_time(parameters.cache_s))
        self.connections = Connections(
            _time(parameters.linger_s), _time(parameters.silent_s), _time(parameters.address_s),
            self.note,
        )  # fmt: skip
        self.delivered = DeliveredPublications()
        self._round = round(parameters.round_ms * 1000)
        self.holders = Holders(self._round)
        self.relays = relays_of(self, parameters, lambda node: node in self.connections.open)
        self.tokens: dict[Number, Time] = {}  # of subscriptions that may still be answered
        self._bubble: Number = rng.randrange(TOKENS)  # the token of the managed one
        self._to_self: list[Message] = []
        self._listeners: dict[type[Message], Callable[[NodeId, Any], None]] = {
            say.Told: self._on_told,
            say.Bubble: self._on_bubble,
            say.Reply: self._on_reply,
            say.Position: self._on_position,
            say.Contact: self._on_contact,
            say.Accept: self._on_accept,
            say.Close: self._on_close,
            say.Shout: self._on_shout,
            say.Heard: self._on_heard,
            say.Holding: self._on_holding,
            say.Keep: self._on_keep,
            say.Drop: self._on_drop,
            **self.storm.listeners,
        }
        if self.relays is not None:
            self._listeners.update(dict.fromkeys(OF_RELAYS, self._on_relayed))

    @property
    def ready(self) -> bool:
        """Joined, and counted in a measurement of the network."""
        return self.storm.circuit.joined and self.storm.measurement.took_part

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        return self.connections.seen(now)

    # What the layers below see.

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

    def known_network(self) -> tuple[Number, Census]:
        return self.storm.measurement.round, self.storm.measurement.census

    def learn_network(self, round_: Number, census: Census) -> None:
        self.storm.measurement.join(round_, census)

    # Doors.

    def on_start(self) -> None:
        if self.relays is not None:
            self.out.note("uplink", value=round(self.relays.uplink.capacity * 8))
        self.storm.start()
        self._announce()
        self.out.set_timer(Round(), 1 + self.rng.randrange(self._round))
        self._finish()

    def on_message(self, sender: NodeId, message: Message) -> None:
        listener = self._listeners.get(type(message))
        if listener is not None:
            listener(sender, message)
            if self._to_self or self._circuit.leaving:
                self._finish()

    def on_timer(self, timer: Timer) -> None:
        if self.relays is not None and self.relays.wake(timer):
            return
        match timer:
            case Round():
                self._play_round()
                self.out.set_timer(timer, self._round)
            case Look() | Whisper() | Flush():
                self.storm.on_timer(timer)
                self._announce()
            case _:
                self._stop()
        self._finish()

    def on_command(self, command: Command) -> None:
        if self.storm.circuit.leaving:
            return
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Subscribe() | Move() | Tune() | Unsubscribe():
                why = self.interests.obey(command, self.id, self.now)
                if why is not None:
                    self.out.note(why, command.subscription)
            case Leave():
                self._leave()
        self._finish()

    def _announce(self) -> None:
        """Whoever has a link may be asked by newcomers, and until its last one is gone."""
        if self.storm.circuit.degree and not self.storm.circuit.leaving:
            self.contacts.add(self.id)

    def _finish(self) -> None:
        """What a peer says to itself is heard at once; and whoever has left stops."""
        while self._to_self:
            message = self._to_self.pop(0)
            self._listeners[type(message)](self.id, message)
        if self.storm.circuit.gone and not self.out.stopped:
            self._stop()

    def _leave(self) -> None:
        if self.relays is not None:
            self.relays.leave()
        self.out.send_many(self.connections.to, say.Close())
        self.out.send_many(self.holders.nodes, say.Drop())
        for node in self.connections.to:
            self.connections.close(node)
        self.storm.circuit.leave()
        self.out.set_timer(Farewell(), FAREWELL)

    def _stop(self) -> None:
        self.contacts.remove(self.id)
        self.out.stop()

    # Expressing interest (3.3.1): every low-frequency interval.

    def _play_round(self) -> None:
        if self.storm.circuit.leaving:
            return
        now = self.now
        area = self.interests.area(now)
        if area is not None and self.storm.circuit.degree:
            self._subscribe(area)
            if self.connections.to:
                position = self._packet(Kind.POSITION, area)
                self.out.send_many(self.connections.to, say.Position(position))
        self.cache.clean(now)
        over = self.connections.check(area, now)
        if over:
            self.out.send_many(over, say.Close())
        self.tokens = {token: t for token, t in self.tokens.items() if now - t < ANSWERED_WITHIN}
        self.interests.forget(now)

    def _packet(self, kind: Kind, area: Ball) -> bytes:
        return pack_position(kind, self.id, area.place, area.radius, self.now)

    def _subscribe(self, area: Ball) -> None:
        packet, managed = self._packet(Kind.SUBSCRIPTION, area), False
        token, weight = self.rng.randrange(TOKENS), self.storm.size
        wanted: tuple[Subscription, ...] = ()
        if self.parameters.interests == "whole":
            wanted = tuple(self.interests.present()[:MOST_WANTED])
        if self.parameters.bubble == "managed" and self.parameters.cast == "bubblecast":
            token, managed = self._bubble, True
            keep = say.Keep(token, self.holders.asks(), packet, wanted)
            if self.holders.nodes:
                self.out.send_many(self.holders.nodes, keep)
            weight = self.holders.missing(self.storm.holders - 1, self.now) + 1
        self.tokens[token] = self.now
        size = max(weight, self.storm.size)
        bubble = say.Bubble(0, weight, size, token, managed, packet, wanted)
        if self.parameters.cast == "flooding":
            self.storm.is_new(token)
            self.storm.flood(bubble, None)
        else:
            self.storm.pass_on(bubble, None)  # its owner is the first replica

    # Neighbour detection (3.3.2): a bubble has come.

    def _on_bubble(self, sender: NodeId, message: say.Bubble) -> None:
        if not self.storm.circuit.is_linked(message.location, sender):
            return  # a stranger's, or on a link that is no more
        sighting = unpack_position(Kind.SUBSCRIPTION, message.packet)
        if sighting is None or not _fits(sighting, message.wanted):
            self.out.note("refused", sender)
            return
        if self.parameters.cast == "flooding":
            if not self.storm.is_new(message.token):
                return
            self.storm.flood(message, sender)
        else:
            self.storm.pass_on(message, message.location)
        if sighting.node != self.id:
            self._match(sighting, message.token, message.managed, message.wanted)
            if message.managed:
                self.out.send(sighting.node, say.Holding(message.token))

    def _match(
        self, sighting: Sighting, token: Number, managed: bool, wanted: tuple[Subscription, ...]
    ) -> None:
        """Store it, and tell its owner whom it would want to know (matchQuery)."""
        found: list[NodeId] = []
        if self.parameters.cast != "flooding" and self.parameters.cache_s:
            self.cache.update(sighting, self.now, managed, wanted)
            found = self.cache.inside(sighting)
        mine = self.interests.area(self.now)
        if mine is not None and mine.away(*sighting.place) <= sighting.radius:
            found.append(self.id)
        if found:
            self.out.send(sighting.node, say.Reply(token, pack_reply(self.id, found)))

    def _on_holding(self, sender: NodeId, message: say.Holding) -> None:
        if message.token == self._bubble and message.token in self.tokens:
            self.holders.hear(sender, self.now)

    def _on_keep(self, sender: NodeId, message: say.Keep) -> None:
        entry = self.cache.entries.get(sender)
        sighting = unpack_position(Kind.SUBSCRIPTION, message.packet)
        if entry is None or not entry.managed or sighting is None or sighting.node != sender:
            return  # not held here; its owner will notice
        if _fits(sighting, message.wanted):
            self._match(sighting, message.token, True, message.wanted)
            if message.asks:
                self.out.send(sender, say.Holding(message.token))

    def _on_drop(self, sender: NodeId, _: say.Drop) -> None:
        entry = self.cache.entries.get(sender)
        if entry is not None and entry.managed:
            self.cache.drop(sender)

    # Connecting (foundData, contactPeer, onContact).

    def _on_reply(self, sender: NodeId, message: say.Reply) -> None:
        reply = unpack_reply(message.packet)
        if message.token not in self.tokens or reply is None or reply[0] != sender:
            return  # nobody was asked, or it comes too late, or it is no reply
        known, attempted = self.connections.open, self.connections.attempted
        others = [node for node in reply[1] if node not in known and node not in attempted]
        area = self.interests.area(self.now) if others else None
        if area is None:
            return  # mostly: it knows them all
        strangers = [
            node for node in others if node != self.id and self.connections.attempt(node, self.now)
        ]
        if strangers:
            self.out.send_many(strangers, say.Contact(self._packet(Kind.CONTACT, area)))

    def _on_contact(self, sender: NodeId, message: say.Contact) -> None:
        sighting = unpack_position(Kind.CONTACT, message.packet)
        area = self.interests.area(self.now)
        if sighting is None or sighting.node != sender or area is None or sender == self.id:
            return
        if area.away(*sighting.place) <= max(area.radius, sighting.radius):
            self.connections.connect(sighting, self.now)
            self.out.send(sender, say.Accept(self._packet(Kind.ACCEPT, area)))

    def _on_accept(self, sender: NodeId, message: say.Accept) -> None:
        sighting = unpack_position(Kind.ACCEPT, message.packet)
        if sighting is not None and sighting.node == sender:
            if sender in self.connections.attempted:
                self.connections.connect(sighting, self.now)
            elif sender in self.connections.open:
                self.connections.see(sighting, self.now)

    def _on_close(self, sender: NodeId, _: say.Close) -> None:
        self.connections.close(sender)

    def _on_position(self, sender: NodeId, message: say.Position) -> None:
        connection = self.connections.open.get(sender)
        if connection is None:
            return
        sighting = unpack_position(Kind.POSITION, message.packet)
        if sighting is None or sighting.node != sender:
            connection.hard = True  # bogus
            self.out.note("refused", sender)
            return
        self.connections.see(sighting, self.now)
        connection.monitor(self.interests.sees(*connection.place, self.now), self.now)

    # Update propagation (3.3.3).

    def _publish(self, publication: Publication) -> None:
        self._deliver(publication, 0)  # its own echo needs no way
        shape, area = publication.shape, self.interests.area(self.now)
        here = area is not None and area.away(shape.x, shape.y, shape.z) <= NEARBY * area.radius
        if self.connections.to:
            self._tell(publication, here)
        if not here or shape.kind != POINT:
            size = self.storm.partner
            self.storm.pass_on(say.Shout(0, size, size, publication, 0), None)
            self._match_publication(publication, 0)

    def _tell(self, publication: Publication, here: bool) -> None:
        """To all connected. Relays do not know of `here`: what they bring was said there."""
        told, relays = say.Told(publication, here), self.relays
        if relays is not None and here:
            relays.tell(publication, self._audience_of(publication))
            return
        if relays is not None:
            for _ in self.connections.to:
                relays.uplink.take(told, self.now)
        self.out.send_many(self.connections.to, told)

    def _audience_of(self, publication: Publication) -> dict[NodeId, float]:
        place = ball_around(publication.shape)
        return {
            node: interest_of(place.away(*connection.place), connection.radius)
            for node, connection in self.connections.open.items()
        }

    def _on_told(self, sender: NodeId, message: say.Told) -> None:
        connection = self.connections.open.get(sender)
        publication = message.publication
        if connection is None:
            self.out.note("ignored", sender)  # from before the connection was closed
        elif publication.node != sender:
            connection.hard = True  # nobody speaks for another
            self.out.note("refused", sender)
        else:
            self._hear(connection, publication, message.here, 1)

    def _on_relayed(self, sender: NodeId, message: Message) -> None:
        assert self.relays is not None
        self.relays.on(message, sender)
        for publication, hops in self.relays.drain():
            connection = self.connections.open.get(publication.node)
            if connection is None:
                self.out.note("ignored", publication.node)
            else:
                self._hear(connection, publication, True, hops)

    def _hear(
        self, connection: Connection, publication: Publication, here: bool, hops: int
    ) -> None:
        now = connection.heard = self.now
        if here:
            shape = publication.shape
            x, y, z = connection.place = shape.x, shape.y, shape.z
            connection.monitor(self.interests.sees(x, y, z, now), now)
        self._deliver(publication, hops)

    def _on_shout(self, sender: NodeId, message: say.Shout) -> None:
        if self.storm.circuit.is_linked(message.location, sender):
            self._deliver(message.publication, message.hops)
            self._match_publication(message.publication, message.hops)
            if message.hops < MOST_HOPS:
                self.storm.pass_on(message, message.location)

    def _match_publication(self, publication: Publication, hops: int) -> None:
        to = [node for node in self.cache.wanting(publication) if node != publication.node]
        if to:
            self.out.send_many(to, say.Heard(publication, hops + 1))

    def _on_heard(self, _: NodeId, message: say.Heard) -> None:
        self._deliver(message.publication, message.hops)

    def _deliver(self, publication: Publication, hops: int) -> None:
        if is_outside_window(publication, self.now):
            return  # a replay
        wanting = self.interests.wanting(publication)
        if wanting and self.delivered.is_new(publication_key(publication), self.now):
            self.out.deliver(publication, tuple(wanting), hops)


def _fits(sighting: Sighting, wanted: tuple[Subscription, ...]) -> bool:
    return not wanted or (
        len(wanted) <= MOST_WANTED and all(one.node == sighting.node for one in wanted)
    )


def _time(seconds: float) -> Time:
    return round(seconds * SECOND)
