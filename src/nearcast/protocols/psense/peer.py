"""A pSense peer ([Lucas2011] 2.4.1).

It knows the near nodes, which are in its area of interest, and one sensor node beyond it for each
sector. In every round it sends its position to both, asks sensors for better ones, and forwards
positions to peers that may lack them. A publication does not wait for the round: it goes at once to
all peers that see its place, with the position of its publisher, and they forward it likewise.

Where we differ from the paper: sensors are chosen anew in each round among all known peers, so a
response counts only if its sensor is the best. A peer that sees farther than we do is near as soon
as we are in its area of interest, since it wants our publications.
"""

from collections.abc import Callable, Iterable, Sequence
from math import dist, sqrt
from random import Random
from typing import Any, NamedTuple

from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Node, Timer
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.dedup import DeliveredPublications, is_outside_window, publication_key
from nearcast.protocols.interests import PeerInterests
from nearcast.protocols.psense import layouts
from nearcast.protocols.psense.acquaintances import Acquaintances, sees
from nearcast.protocols.psense.area_of_interest import AreaOfInterest, vision_of
from nearcast.protocols.psense.bandwidth_budget import BandwidthBudget, OutgoingMessage, size
from nearcast.protocols.psense.layouts import PositionRecord, with_hops
from nearcast.protocols.psense.messages import Position, PublicationMessage, Request, Response
from nearcast.protocols.psense.parameters import Parameters
from nearcast.protocols.psense.sectors import SECTORS, PlacedNode, best_sensor
from nearcast.protocols.update_rates import RateLimits, UpdateRates
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import BOX, DISC, Shape, Vector, overlap

ROUNDED = 1e-6  # relative: numbers of 4 bytes
LEAST_KEPT, MOST_KEPT = 5, 2  # a fifth to a half of the limit is for publications
CALM_ROUNDS = 6  # without a new near node: then a peer is ready


class PlayRound(Timer, frozen=True):
    """Send and forward positions, and ask sensors."""


class PositionToForward(NamedTuple):
    """A position to forward in the next round, and who has it already."""

    seen: PositionRecord
    already_sent: tuple[NodeId, ...]


class PSensePeer(Node):
    """A peer of pSense, or of pSense3D."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, contacts: Contacts
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters = parameters
        self.contacts = contacts
        self.interests = PeerInterests()
        self.rates = RateLimits(
            self, self.interests, self._send_rates, flat=parameters.dimensions == 2
        )
        self.known_of = Acquaintances(node_id, parameters.dimensions)
        self.allowance = BandwidthBudget(parameters.limit, rng)
        self.joined = False
        self.delivered = DeliveredPublications()
        self.passed_on = DeliveredPublications()
        self._published_at: Vector | None = None  # of a peer without interests: its place
        self._round: Time = round(parameters.round_ms * 1000)
        # At each hop a position is kept until nothing newer has come for `silent_s`.
        self._oldest: Time = round((parameters.hops + 1) * parameters.silent_s * SECOND)
        self._begun = False
        self._sought: Time = 0  # when contacts were last asked, or somebody was last known
        self._came: Time = 0  # when somebody last came near
        self._to_forward: dict[NodeId, PositionToForward] = {}
        self._latest: dict[NodeId, int] = {}  # sequence of the latest Position of each
        self._requests: dict[tuple[NodeId, int], PositionRecord] = {}
        self._sent_position_to: dict[NodeId, None] = {}  # who has got our position in this round
        self._sent_to_us: dict[NodeId, Time] = {}  # when each last sent us a message itself
        self._published = 0  # bytes of publications in this round
        self._understand: dict[type[Message], Callable[[NodeId, Any], bool]] = {
            Position: self._on_position,
            PublicationMessage: self._on_publication,
            Request: self._on_request,
            Response: self._on_response,
            UpdateRates: self._on_update_rates,
        }

    # Windows.

    @property
    def ready(self) -> bool:
        """Joined, and no new near node for some rounds; or without a place."""
        if self._vision() is None:
            return True
        return self.joined and self.now - self._came >= CALM_ROUNDS * self._round

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        """Whom it is connected to, or who is in its area of interest (see `Parameters.view`)."""
        vision = vision_of(self.interests, now, self.parameters.dimensions)
        if vision is None:
            return []
        linger, view = round(self.parameters.linger_s * SECOND), self.parameters.view
        known = {
            node
            for node, seen in self.known_of.seen.items()
            if dist(vision.place, seen.place) <= vision.radius
        }
        if view != "near":
            known |= {node for node, t in self.known_of.near.items() if now - t <= linger}
            known.update(self.known_of.sensors)
        if view == "connections":
            known |= {node for node, t in self._sent_to_us.items() if now - t <= linger}
        return [(node, seen.place) for node, seen in self.known_of.seen.items() if node in known]

    # Hooks.

    def on_command(self, command: Command) -> None:
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Subscribe() | Move() | Tune() | Unsubscribe():
                why = self.interests.obey(command, self.id, self.now)
                if why is not None:
                    self.out.note(why, command.subscription)
                else:
                    self.rates.obey(command)
                    self._begin()
            case Leave():
                self.contacts.remove(self.id)
                self.out.stop()  # pSense has no goodbye: the silent are forgotten

    def on_message(self, sender: NodeId, message: Message) -> None:
        if not self._understand[type(message)](sender, message):
            self.out.note("refused", sender)
            return
        self.joined = True
        if self._begun:
            self._sent_to_us[sender] = self.now
        self.contacts.add(sender)

    # Messages: each of these says whether it was understood.

    def _on_position(self, sender: NodeId, message: Position) -> bool:
        position = layouts.unpack_position(message.packet, self.parameters.dimensions)
        if position is None or not self._is_credible(sender, position[0]):
            return False
        self._receive_position(*position)
        return True

    def _on_publication(self, sender: NodeId, message: PublicationMessage) -> bool:
        publication = message.publication
        opened = layouts.unpack_position(message.packet, self.parameters.dimensions)
        if (
            opened is None
            or opened[0].node != publication.node
            or not self._is_credible(sender, opened[0])
            or is_outside_window(publication, self.now)
        ):
            return False
        self._receive_publication(publication, *opened)
        return True

    def _on_request(self, sender: NodeId, message: Request) -> bool:
        request = layouts.unpack_request(message.packet, self.parameters.dimensions)
        if request is None:
            return False
        asker, sector = request
        if not asker.node == sender != self.id or not self._is_credible(sender, asker):
            return False
        self._learn(asker)
        if self._begun:
            self._requests[sender, sector] = asker
        return True

    def _on_response(self, sender: NodeId, message: Response) -> bool:
        response = layouts.unpack_response(message.packet, self.parameters.dimensions)
        if (
            response is None
            or response.sender != sender
            or not self._is_credible(sender, response.sensor)
        ):
            return False
        self._learn(response.sensor)
        return True

    def _on_update_rates(self, sender: NodeId, message: UpdateRates) -> bool:
        if sender in self.known_of.seen:
            self.rates.learn(sender, message)
        return True

    def on_timer(self, timer: Timer) -> None:  # noqa: ARG002  there is one alone
        vision = self._vision()
        if vision is None:
            self.contacts.remove(self.id)
            self._requests.clear()
            self._to_forward.clear()
            self._sent_to_us.clear()
            self._begun = False
            return
        # A round leaves room for as much as was published in the last, within bounds.
        limit = self.parameters.limit
        kept = min(max(self._published, limit // LEAST_KEPT), limit // MOST_KEPT)
        self.allowance.renew()
        self._published = 0
        self._find_near_nodes(vision)
        self._respond(vision)
        self._ask_sensors(vision)
        self._spread_positions(vision, kept)
        self._seek_company(vision)
        self._sent_position_to.clear()
        self.interests.forget(self.now)
        self.out.set_timer(PlayRound(), self._round)

    # Rounds.

    def _vision(self) -> AreaOfInterest | None:
        vision = vision_of(self.interests, self.now, self.parameters.dimensions)
        if vision is None and self._published_at is not None:
            return AreaOfInterest(self._published_at, 0.0)
        return vision

    def _begin(self) -> None:
        """A peer takes part as soon as it has a place."""
        vision = self._vision()
        if vision is not None and not self._begun:
            self._begun = True
            self._came = self.now
            self._join(vision)
            # Rounds of peers that come together should not all fall together.
            self.out.set_timer(PlayRound(), self.rng.randrange(1, self._round + 1))

    def _me(self, vision: AreaOfInterest) -> PositionRecord:
        sequence = layouts.sequence_at(self.now)
        return PositionRecord(self.id, vision.place, vision.radius, sequence, self.parameters.hops)

    def _is_credible(self, sender: NodeId, seen: PositionRecord) -> bool:
        """Not so for a replay: what was sent long ago, or what another forwards with the hops that
        only the peer itself may send."""
        passed_on = seen.hops < self.parameters.hops
        return (passed_on or seen.node == sender) and layouts.is_recent(
            seen.sequence, self.now, self._oldest
        )

    def _learn(self, seen: PositionRecord) -> bool:
        """Is it newer than what is known? A peer that has no place learns nothing."""
        if seen.hops > self.parameters.hops:
            seen = with_hops(seen, self.parameters.hops)
        return self._begun and self.known_of.learn(seen, self.now)

    def _find_near_nodes(self, vision: AreaOfInterest) -> None:
        silent, linger = self.parameters.silent_s, self.parameters.linger_s
        for node in self.known_of.drop(self.now, round(silent * SECOND), round(linger * SECOND)):
            self.contacts.remove(node)  # whoever is there nevertheless says so every round
            self.out.note("lost", node)
        self._latest = {node: n for node, n in self._latest.items() if node in self.known_of.seen}
        self._sent_to_us = {n: t for n, t in self._sent_to_us.items() if n in self.known_of.seen}
        self.contacts.add(self.id)
        for node in self.known_of.find_near_nodes(vision, self.now):
            self._came = self.now
            self.out.note("linked", node)

    def _respond(self, vision: AreaOfInterest) -> None:
        """Answer the requests of the last round with the best known sensor, or this peer."""
        spots = [
            PlacedNode(node, seen.place)
            for node, seen in self.known_of.seen.items()
            if seen.hops > 0  # older positions are not forwarded
        ]
        spots.append(PlacedNode(self.id, vision.place))
        wishes, answers = [], []
        for (node, sector), asker in self._requests.items():
            others = [spot for spot in spots if spot.node != node]
            best = best_sensor(
                sector, asker.place, asker.radius, others, self.parameters.dimensions
            )
            assert best is not None
            if best == self.id:
                sensor = self._me(vision)
            else:
                sensor = self.known_of.seen[best]
                sensor = with_hops(sensor, sensor.hops - 1)
            answer = layouts.SensorSuggestion(self.id, sector, sensor, asker.sequence)
            message = Response(layouts.pack_response(answer, self.parameters.dimensions))
            answers.append(message)
            wishes.append(OutgoingMessage((node,), size(message)))
        self._requests.clear()
        self._serve(wishes, answers)

    def _ask_sensors(self, vision: AreaOfInterest) -> None:
        me, dimensions = self._me(vision), self.parameters.dimensions
        wishes, questions = [], []
        for sector, node in enumerate(self.known_of.sensor_of):
            if node is not None:
                message = Request(layouts.pack_request(me, sector, dimensions))
                questions.append(message)
                wishes.append(OutgoingMessage((node,), size(message)))
        self._serve(wishes, questions)

    def _serve(self, wishes: list[OutgoingMessage], messages: Sequence[Message]) -> None:
        for message, receivers in zip(messages, self.allowance.grant(wishes), strict=True):
            for node in receivers:
                self.allowance.take(message, 1)
                self.out.send(node, message)

    def _spread_positions(self, vision: AreaOfInterest, kept: int) -> None:
        """Send its own position and forward others', within the bandwidth budget.

        Receivers that are left out are not listed, so others may forward to them.
        """
        connected = list(self.known_of.connections(self.now))
        mine = [node for node in connected if node not in self._sent_position_to]
        already_sent = tuple(node for node in connected if node in self._sent_position_to)
        plans = [(PositionToForward(self._me(vision), already_sent), mine)]
        for forwarded in self._to_forward.values():
            plans.append((forwarded, self._lacking(forwarded)))
        self._to_forward.clear()
        wishes, positions = [], []
        for forwarded, receivers in plans:
            position = Position(self._packet(forwarded, receivers))
            positions.append(position)
            wishes.append(OutgoingMessage(receivers, size(position)))
        served_of = self.allowance.grant(wishes, kept)
        for (forwarded, receivers), position, served in zip(
            plans, positions, served_of, strict=True
        ):
            if served:
                if served != receivers:
                    position = Position(self._packet(forwarded, served))
                self.allowance.take(position, len(served))
                self.out.send_many(served, position)

    def _packet(self, forwarded: PositionToForward, receivers: Sequence[NodeId]) -> bytes:
        named = (*forwarded.already_sent, *receivers)
        return layouts.pack_position(forwarded.seen, named, self.parameters.dimensions)

    def _lacking(self, forwarded: PositionToForward) -> list[NodeId]:
        """Known peers that are near the node and have not got its position."""
        seen, known = forwarded.seen, self.known_of.seen
        informed = {seen.node, *forwarded.already_sent}
        around = AreaOfInterest(seen.place, seen.radius)
        lacking = [
            node for node, one in known.items() if node not in informed and sees(around, one)
        ]
        if not lacking and seen.node in self.known_of.sensors:
            others = [
                (dist(one.place, seen.place), n) for n, one in known.items() if n != seen.node
            ]
            return [node for _, node in sorted(others)[:1] if node not in informed]
        return lacking

    # Joining.

    def _join(self, vision: AreaOfInterest) -> None:
        """Ask each contact for a sensor of another sector, and send it our position."""
        self._sought = self.now
        dimensions, me = self.parameters.dimensions, self._me(vision)
        contacts = self.contacts.some(self.rng, SECTORS, self.id)
        self.contacts.add(self.id)
        if not contacts:
            self.joined = True  # the first one, until somebody comes
            return
        wishes, questions = [], []
        for sector, node in enumerate(contacts):
            message = Request(layouts.pack_request(me, sector, dimensions))
            questions.append(message)
            wishes.append(OutgoingMessage((node,), size(message)))
        self._serve(wishes, questions)
        position = Position(layouts.pack_position(me, contacts, dimensions))
        (served,) = self.allowance.grant([OutgoingMessage(contacts, size(position))])
        if served:
            self.allowance.take(position, len(served))
            self.out.send_many(served, position)

    def _seek_company(self, vision: AreaOfInterest) -> None:
        """Join again if nobody has answered, or nobody has been known for long."""
        if self.known_of.seen:
            self._sought = self.now
            return
        patience = self.parameters.alone_s if self.joined else self.parameters.retry_s
        if self.now - self._sought >= patience * SECOND:
            self.joined = False
            self._join(vision)

    def _receive_position(self, seen: PositionRecord, already_sent: tuple[NodeId, ...]) -> None:
        self._learn(seen)
        hops = min(seen.hops, self.parameters.hops)
        # A Request of the same round may have come before with the same position: this is to be
        # forwarded nevertheless.
        latest = self._latest.get(seen.node)
        if seen.node in self.known_of.seen and (
            latest is None or layouts.is_newer(seen.sequence, latest)
        ):
            self._latest[seen.node] = seen.sequence
            if hops > 0:
                self._to_forward[seen.node] = PositionToForward(
                    with_hops(seen, hops - 1), (*already_sent, self.id)
                )

    # Publications.

    def _publish(self, publication: Publication) -> None:
        self._deliver(publication, 0)  # its own echo needs no way
        self.passed_on.is_new(publication_key(publication), self.now)
        shape = publication.shape
        if vision_of(self.interests, self.now, self.parameters.dimensions) is None:
            x, y, z = map(layouts.within, (shape.x, shape.y, shape.z))
            self._published_at = (x, y, z if self.parameters.dimensions == 3 else 0.0)
        self._begin()
        vision = self._vision()
        assert vision is not None
        receivers: Sequence[NodeId] = self._concerned(shape, vision, ())
        withheld: tuple[NodeId, ...] = ()
        if seen := self.known_of.seen:
            concerned = receivers
            receivers = self.rates.receivers(publication, concerned, lambda one: seen[one].place)
            # Listed as if they had it, so that nobody forwards it to them.
            withheld = tuple(node for node in concerned if node not in receivers)
        else:
            receivers = self.contacts.some(self.rng, 1, self.id)
        self._send_publication(publication, self._me(vision), withheld, receivers)

    def _receive_publication(
        self, publication: Publication, seen: PositionRecord, already_sent: tuple[NodeId, ...]
    ) -> None:
        self._learn(seen)
        hops = min(seen.hops, self.parameters.hops)
        self._deliver(publication, self.parameters.hops - hops + 1)
        vision = self._vision()
        if (
            hops > 0
            and vision is not None
            and self.passed_on.is_new(publication_key(publication), self.now)
        ):
            informed = (*already_sent, self.id, seen.node)
            receivers = self._concerned(publication.shape, vision, informed)
            self._send_publication(
                publication, with_hops(seen, hops - 1), (*already_sent, self.id), receivers
            )

    def _concerned(
        self, shape: Shape, vision: AreaOfInterest, informed: tuple[NodeId, ...]
    ) -> list[NodeId]:
        """All peers that see the place; if none does and neither do we, the peer nearest to it."""
        dimensions, left_out = self.parameters.dimensions, set(informed)
        others = [one for node, one in self.known_of.seen.items() if node not in left_out]
        concerned = [
            one.node for one in others if _touches(one.place, one.radius, shape, dimensions)
        ]
        if not concerned and not _touches(*vision, shape, dimensions):
            centre = (shape.x, shape.y, shape.z if dimensions == 3 else 0.0)
            away = [(dist(one.place, centre), one.node) for one in others]
            if away and min(away)[0] < dist(vision.place, centre):
                return [min(away)[1]]
        return concerned

    def _send_publication(
        self,
        publication: Publication,
        seen: PositionRecord,
        already_sent: tuple[NodeId, ...],
        receivers: Sequence[NodeId],
    ) -> None:
        if not receivers:
            return
        forwarded = PositionToForward(seen, already_sent)
        message = PublicationMessage(self._packet(forwarded, receivers), publication)
        (served,) = self.allowance.grant([OutgoingMessage(receivers, size(message))])
        if not served:
            return
        if served != receivers:
            message = PublicationMessage(self._packet(forwarded, served), publication)
        self.allowance.take(message, len(served))
        self.out.send_many(served, message)
        self._published += size(message) * len(served)
        if seen.node == self.id:
            self._sent_position_to.update(dict.fromkeys(served))

    def _deliver(self, publication: Publication, hops: int) -> None:
        wanting = self.interests.wanting(publication)
        if wanting and self.delivered.is_new(publication_key(publication), self.now):
            admitted = self.rates.admit(publication, wanting)
            if admitted:
                self.out.deliver(publication, tuple(admitted), hops)

    def _send_rates(self, to: NodeId, message: UpdateRates) -> None:
        """If the limit of this round allows it; else at another publication."""
        self._serve([OutgoingMessage((to,), size(message))], [message])


def _touches(place: Vector, radius: float, shape: Shape, dimensions: int) -> bool:
    """Does the disc of this radius touch the shape? In 2-D at any height."""
    if radius >= layouts.WIDEST:
        return True
    (px, py, pz), z = place, shape.z if dimensions == 3 else 0.0
    # Packets round places and radii; the receiver decides for itself.
    reach = radius + ROUNDED * (radius + abs(px) + abs(py) + abs(pz))
    if shape.kind != BOX:  # asked of all known peers with each publication: `overlap`, written out
        dx, dy, dz = px - shape.x, py - shape.y, pz - z
        return sqrt(dx * dx + dy * dy + dz * dz) <= reach + shape.rx
    rz = shape.rz if dimensions == 3 else 0.0
    return overlap(
        DISC, px, py, pz, reach, 0.0, 0.0, BOX, shape.x, shape.y, z, shape.rx, shape.ry, rz
    )
