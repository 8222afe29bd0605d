"""The protocol between an application and its peer: the client protocol in lines of JSON.

Requests become commands of a node, deliveries become notices. The application numbers its own
subscriptions; in the overlay they have numbers that nobody else uses.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random, SystemRandom
from typing import Any

from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import (
    place_shape,
    refuse_earth_fields,
    region_from_area,
)
from nearcast.model import commands
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.peer.host import Host
from nearcast.space.shapes import ShapeKind


def unique_ids(rng: Random) -> Iterator[int]:
    """Identifiers that no other peer uses: from blocks that are drawn at random."""
    while True:
        first = rng.getrandbits(37) << 16
        yield from range(first, first + 2**16)


class LineProtocol:
    """Translates an application's requests to commands, and deliveries to notices."""

    def __init__(self, send_notice: Callable[[messages.Notice], None]) -> None:
        self._send_notice = send_notice
        self._numbers = unique_ids(SystemRandom())
        self._ids: dict[messages.SubscriptionNumber, SubscriptionId] = {}
        self._wanted: dict[SubscriptionId, messages.SubscriptionNumber] = {}

    def command(self, request: messages.Request) -> commands.Command:
        """ValueError says why not."""
        match request:
            case messages.PublishRequest():
                if request.retain:
                    raise ValueError("a peer keeps no states: publish without retain")
                if request.name:
                    raise ValueError("a peer publishes as itself alone: publish without a name")
                refuse_earth_fields("a publication", request)
                where = place_shape(request)
                return commands.Publish(
                    next(self._numbers), where, request.channel, request.attributes,
                    self.packed(request.payload),
                )  # fmt: skip
            case messages.SubscribeRequest():
                return self._subscribe(request)
            case messages.MoveRequest(subscription, area):
                return commands.Move(self._known(subscription), region_from_area(area))
            case messages.TuneRequest(subscription, variables):
                return commands.Tune(self._known(subscription), variables)
            case messages.UnsubscribeRequest(subscription):
                known = self._known(subscription)
                del self._ids[subscription], self._wanted[known]
                return commands.Unsubscribe(known)
            case messages.LeaveRequest():
                return commands.Leave()
        raise ValueError("a peer publishes, subscribes and leaves; the rest is a node's")

    def packed(self, payload: Raw) -> bytes:
        """As it travels; ValueError if it cannot."""
        if len(payload):
            messages.JSON.check_payload(payload)
        return bytes(payload)

    def opened(self, payload: bytes) -> Raw:
        """As the application reads it, on one line; nothing, of a peer that speaks otherwise."""
        with suppress(*messages.DECODE_ERRORS):
            messages.JSON.check_payload(Raw(payload))
            return messages.JSON.encode_payload(messages.JSON.decode_payload(Raw(payload)))
        return messages.NO_PAYLOAD

    def _subscribe(self, request: messages.SubscribeRequest) -> commands.Subscribe:
        if request.watch or request.rates or request.closest or request.budget:
            raise ValueError("a peer receives everything: no watch, rates, closest or budget")
        bound = request.variables and request.area.formula
        known = self._ids.get(request.subscription)
        command = commands.Subscribe(
            next(self._numbers) if known is None else known,
            bound or region_from_area(request.area),
            request.filter, request.channel, request.echo, request.variables,
        )  # fmt: skip
        self._ids[request.subscription] = command.subscription
        self._wanted[command.subscription] = request.subscription
        return command

    def _known(self, subscription: messages.SubscriptionNumber) -> SubscriptionId:
        if subscription not in self._ids:
            raise ValueError(f"no subscription {subscription}")
        return self._ids[subscription]

    def obey(self, host: Host, node: NodeId, line: bytes) -> None:
        request: Any = None
        try:
            request = messages.JSON.read_request(line)
            command = self.command(request)
            t = host.obey(node, command)
        except ValueError as why:
            number = messages.JSON.request_id(line) if request is None else request.id
            self._send_notice(messages.ErrorNotice(str(why), number))
            return
        if request.id is not None:
            publication = command.publication if isinstance(command, commands.Publish) else None
            self._send_notice(messages.DoneNotice(request.id, t, publication))

    def deliver(
        self, _node: NodeId, publication: Publication, subscriptions: Sequence[SubscriptionId]
    ) -> None:
        to = [self._wanted[s] for s in subscriptions if s in self._wanted]
        if not to:
            return  # all of them have ended meanwhile
        payload, s = self.opened(publication.payload), publication.shape
        disc, box = s.kind == ShapeKind.DISC, s.kind == ShapeKind.BOX
        self._send_notice(
            messages.MessageNotice(
                to, publication.node, publication.id, publication.t, s.x, s.y, payload, False,
                publication.attributes, publication.channel, s.z, s.rx if disc else None,
                s.rx if box else None, s.ry if box else None, s.rz if box else None,
            )
        )  # fmt: skip
