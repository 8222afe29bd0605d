"""The protocol between an application and its peer: the client protocol, also in lines of JSON.

Requests become commands of a node, deliveries become notices. The application numbers its own
subscriptions; in the overlay they have numbers that nobody else uses. Between peers, payloads are
MessagePack, whatever their applications read and write.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import dist
from random import Random, SystemRandom
from typing import Any

from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.earth_json import (
    earth_place_shape,
    earth_publication_fields,
    refuse_plane_fields,
)
from nearcast.client_protocol.geometry_json import (
    EARTH,
    NO_FORMULA,
    PLANE,
    Area,
    Geometry,
    place_shape,
    refuse_earth_fields,
    region_from_area,
)
from nearcast.errors import Refused
from nearcast.model import commands
from nearcast.model.evolution import chosen_evolution
from nearcast.model.publication import Publication
from nearcast.model.rates import has_centre
from nearcast.model.subscription import Formula, NodeId, SubscriptionId
from nearcast.node import DirectPacket
from nearcast.peer.discovery import OverlayDescription
from nearcast.peer.host import Host
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.offers import OverlayOffer, refuse_missing
from nearcast.space.earth import ecef, lon_lat
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape, ShapeKind, Vector, point


def unique_ids(rng: Random) -> Iterator[int]:
    """Identifiers that no other peer uses: from blocks that are drawn at random."""
    while True:
        first = rng.getrandbits(37) << 16
        yield from range(first, first + 2**16)


def needed_offers(request: messages.Request) -> Iterator[OverlayOffer]:
    """What an overlay must offer for this request."""
    match request:
        case messages.PublishRequest():
            if request.retain or request.ttl is not None:
                yield OverlayOffer.RETAINED_STATES
            if request.name:
                yield OverlayOffer.NAMES
            if request.channel:
                yield OverlayOffer.CHANNELS
            if request.lon is not None or request.lat is not None or request.alt is not None:
                yield OverlayOffer.EARTH
            yield OverlayOffer.EXTENTS
        case messages.SubscribeRequest():
            if request.near is None and not request.fences:
                yield from _offers_of_area(request.area)
            yield from _offers_of_options(request)
        case messages.MoveRequest(_, area):
            yield OverlayOffer.MOTION
            yield from _offers_of_area(area)
        case messages.TuneRequest():
            yield OverlayOffer.FORMULAS
        case messages.NearbyRequest():
            yield OverlayOffer.NEARBY
        case messages.WithdrawRequest():
            yield OverlayOffer.RETAINED_STATES
        case messages.FencesRequest():
            yield OverlayOffer.FENCES
        case messages.SendRequest():
            if request.name:
                yield OverlayOffer.NAMES
            yield OverlayOffer.DIRECT


def _offers_of_area(area: Area) -> Iterator[OverlayOffer]:
    yield OverlayOffer.AREAS
    if area.formula is not None:
        yield OverlayOffer.FORMULAS
    if area.geometry is not None or area.sector is not None:
        yield OverlayOffer.OUTLINES
    if area.to is not None or any((area.vx, area.vy, area.vz, area.gx, area.gy, area.gz)):
        yield OverlayOffer.MOTION
    if area.lon is not None or area.lat is not None:
        yield OverlayOffer.EARTH


def _offers_of_options(request: messages.SubscribeRequest) -> Iterator[OverlayOffer]:
    for offer, asked in (
        (OverlayOffer.WATCH, request.watch),
        (OverlayOffer.FENCES, request.events or request.fences or request.near is not None),
        (OverlayOffer.FENCES, request.dwell is not None or request.linger is not None),
        (OverlayOffer.FOLLOWING, request.follow != "" or request.offset),
        (OverlayOffer.RATES, request.rates),
        (OverlayOffer.THROTTLING, request.closest is not None or request.budget is not None),
        (OverlayOffer.FILTERS, request.filter is not None),
        (OverlayOffer.CHANNELS, request.channel),
        (OverlayOffer.ECHO, request.echo),
        (OverlayOffer.EVOLUTION, request.evolve),
    ):
        if asked:
            yield offer


class LineProtocol:
    """Translates an application's requests to commands, and deliveries to notices.

    `encoding` is that of payloads as the application reads and writes them.
    """

    def __init__(
        self,
        send_notice: Callable[[messages.Notice], None],
        encoding: messages.Encoding = messages.JSON,
    ) -> None:
        self.about: OverlayDescription | None = None  # until it is known, all is offered
        self._send_notice = send_notice
        self._encoding = encoding
        self._numbers = unique_ids(SystemRandom())
        # As asked for; in the overlay they have numbers of their own.
        self._subscribed: dict[messages.SubscriptionNumber, commands.Subscribe] = {}
        self._wanted: dict[SubscriptionId, messages.SubscriptionNumber] = {}

    def command(self, request: messages.Request) -> commands.Command:
        """ValueError says why not; NotOfferedError what the overlay cannot."""
        self._refuse_missing(request)
        match request:
            case messages.PublishRequest():
                where = self._place(request)
                return commands.Publish(
                    next(self._numbers), where, request.channel, request.attributes,
                    self.packed(request.payload),
                )  # fmt: skip
            case messages.SubscribeRequest():
                return self._subscribe(request)
            case messages.MoveRequest(subscription, area):
                # ValueError if it has rates, and the new area has no centre.
                region = region_from_area(area, self.geometry)
                moved = self._known(subscription).moved(region)
                self._subscribed[subscription] = moved
                return commands.Move(moved.subscription, region)
            case messages.TuneRequest(subscription, variables):
                known = self._known(subscription)
                if not known.variables:
                    raise ValueError(f"subscription {subscription} has no variables")
                self._subscribed[subscription] = known.tuned(variables)
                return commands.Tune(known.subscription, variables)
            case messages.UnsubscribeRequest(subscription):
                known = self._known(subscription)
                del self._subscribed[subscription], self._wanted[known.subscription]
                return commands.Unsubscribe(known.subscription)
            case messages.LeaveRequest():
                return commands.Leave()
        raise ValueError("a peer publishes, subscribes and leaves; the rest is a node's")

    @property
    def geometry(self) -> Geometry:
        return PLANE if self.about is None else self.about.geometry

    def _refuse_missing(self, request: messages.Request) -> None:
        if self.about is not None:
            refuse_missing(self.about.overlay, needed_offers(request), PROTOCOLS)

    def _place(self, request: messages.PublishRequest) -> Shape:
        if self.geometry == EARTH:
            refuse_plane_fields("a publication", request)
            return earth_place_shape(request.lon, request.lat, request.alt, request.r)
        refuse_earth_fields("a publication", request)
        return place_shape(request)

    def packed(self, payload: Raw) -> bytes:
        """As it travels; ValueError if it cannot."""
        if not len(payload):
            return b""
        self._encoding.check_payload(payload)
        if self._encoding is messages.MSGPACK:
            return bytes(payload)
        try:
            return bytes(messages.MSGPACK.encode_payload(self._encoding.decode_payload(payload)))
        except OverflowError as why:
            raise ValueError(f"the payload cannot be sent: {why}") from None

    def opened(self, payload: bytes) -> Raw:
        """As the application reads it; in JSON nothing, if it cannot be expressed there."""
        if self._encoding is messages.MSGPACK:
            return Raw(payload)
        with suppress(*messages.DECODE_ERRORS):
            messages.MSGPACK.check_payload(Raw(payload))
            return messages.MSGPACK.translate_payload(Raw(payload), self._encoding)
        return messages.NO_PAYLOAD

    def _subscribe(self, request: messages.SubscribeRequest) -> commands.Subscribe:
        bound = request.variables and request.area.formula
        if bound and self.geometry == EARTH:
            raise ValueError(NO_FORMULA)
        known = self._subscribed.get(request.subscription)
        command = commands.Subscribe(
            next(self._numbers) if known is None else known.subscription,
            bound or region_from_area(request.area, self.geometry),
            request.filter, request.channel, request.echo, request.variables,
            chosen_evolution(request.evolve, request.interval, request.threshold),
            tuple(request.rates),
        )  # fmt: skip
        self._subscribed[request.subscription] = command
        self._wanted[command.subscription] = request.subscription
        return command

    def _known(self, subscription: messages.SubscriptionNumber) -> commands.Subscribe:
        if subscription not in self._subscribed:
            raise ValueError(f"no subscription {subscription}")
        return self._subscribed[subscription]

    def obey(self, host: Host, node: NodeId, line: bytes) -> None:
        """Carry out a request in a line of JSON; what is wrong with it is an error notice."""
        request: Any = None
        try:
            request = messages.JSON.read_request(line)
            self.carry_out(host, node, request)
        except ValueError as why:
            number = messages.JSON.request_id(line) if request is None else request.id
            self._send_notice(messages.ErrorNotice(str(why), number))

    def carry_out(self, host: Host, node: NodeId, request: Any) -> None:
        """Carry out a request, and answer it if it has an id. ValueError says why not."""
        if isinstance(request, messages.SendRequest):
            self._send_direct(host, node, request)
            return
        if isinstance(request, messages.NearbyRequest):
            self._list_known(host, node, request)
            return
        command = self.command(request)
        t = host.obey(node, command)
        if request.id is not None:
            publication = command.publication if isinstance(command, commands.Publish) else None
            self._send_notice(messages.DoneNotice(request.id, t, publication))

    def _send_direct(self, host: Host, node: NodeId, request: messages.SendRequest) -> None:
        self._refuse_missing(request)
        if not isinstance(request.to, int):
            raise ValueError("entities of an overlay have no names: send to a number")
        command = commands.SendDirect(next(self._numbers), request.to, self.packed(request.payload))
        try:
            t = host.send_direct(node, command)
        except Refused as why:
            self._send_notice(messages.ErrorNotice(str(why), request.id))
        else:
            if request.id is not None:
                self._send_notice(messages.DoneNotice(request.id, t, command.message))

    def _list_known(self, host: Host, node: NodeId, request: messages.NearbyRequest) -> None:
        """Whom the peer knows in an area, where it believes them to be; the closest first."""
        self._refuse_missing(request)
        if self.about and self.geometry == EARTH and not PROTOCOLS[self.about.overlay].heights:
            raise ValueError(f"on Earth {self.about.overlay} does not know where others are")
        if request.channel:
            raise ValueError("a peer knows where entities are, not their states on channels")
        if request.limit < 0:
            raise ValueError(f"limit is 0 or more, not {request.limit}")
        region, now = region_from_area(request.area, self.geometry), host.now
        region = region.stamped(now)
        known = sorted(host.nodes[node].known(now))
        if self.geometry == EARTH:  # the middle of an area may be far below
            known = [(other, ecef(*lon_lat(*place))) for other, place in known]
        found = [one for one in known if region.touches(point(*one[1]), now)]
        if not isinstance(region, Formula) and has_centre(region):
            centre = region.centre(now)
            found.sort(key=lambda one: dist(centre, one[1]))
        entities = [self._entity(other, now, place) for other, place in found]
        del entities[request.limit :]
        self._send_notice(messages.NearbyNotice(entities, request.id))

    def _entity(self, entity: NodeId, now: Time, place: Vector) -> messages.EntityState:
        if self.geometry == PLANE:
            return messages.EntityState(entity, now, *place)
        lon, lat = lon_lat(*place)
        return messages.EntityState(entity, now, lon=lon, lat=lat)

    def receive_direct(self, sender: NodeId, packet: DirectPacket) -> None:
        """Another entity has sent this to the application."""
        payload = self.opened(packet.payload) if packet.payload else messages.NO_PAYLOAD
        self._send_notice(messages.DirectNotice(sender, packet.message, packet.t, payload))

    def deliver(
        self, _node: NodeId, publication: Publication, subscriptions: Sequence[SubscriptionId]
    ) -> None:
        to = [self._wanted[s] for s in subscriptions if s in self._wanted]
        if not to:
            return  # all of them have ended meanwhile
        payload, s = self.opened(publication.payload), publication.shape
        if self.geometry == EARTH:
            with suppress(ValueError):  # a peer published what is no place on Earth
                self._send_notice(
                    messages.MessageNotice(
                        to, publication.node, publication.id, publication.t, payload=payload,
                        attributes=publication.attributes, channel=publication.channel,
                        **earth_publication_fields(s),
                    )
                )  # fmt: skip
            return
        disc, box = s.kind == ShapeKind.DISC, s.kind == ShapeKind.BOX
        self._send_notice(
            messages.MessageNotice(
                to, publication.node, publication.id, publication.t, s.x, s.y, payload, False,
                publication.attributes, publication.channel, s.z, s.rx if disc else None,
                s.rx if box else None, s.ry if box else None, s.rz if box else None,
            )
        )  # fmt: skip
