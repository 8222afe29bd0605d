"""A peer of VSO: a node that shares no directory with others and asks for the gateway.

[VSO] IV-A has a gateway with a well-known address. Peers have no such address: each knows the peer
that it has joined through, and hears of others later. So each keeps the gateway's name for itself:

newcomer                    any peer                   gateway
  │── GatewayQuery ───────────▶│
  │◀──────────── GatewayKnown ─│ as far as it knows
  │── GatewayQuery ──────────────────────────────────────▶│
  │◀──────────────────────────────────────── GatewayKnown ─│ it is the one, in this term

Only the gateway's own word counts; what others answer says whom to ask. Until a newcomer knows the
gateway, its contact forwards what it sends. A peer asks again with every heartbeat, a matcher that
serves it if there is one: matchers are told of each new gateway. When no matcher has answered for
`misses` heartbeats, it asks other peers that it knows of.
"""

from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Timer
from nearcast.protocols.voronoi.client_columns import ClientColumns
from nearcast.protocols.voronoi.initial_grid import grid
from nearcast.protocols.voronoi.vso import GatewayName, SendAlive, VsoNode
from nearcast.protocols.voronoi.vso_messages import GatewayKnown, GatewayQuery, Place, Term
from nearcast.protocols.voronoi.vso_parameters import Parameters
from nearcast.space.motion import SECOND, Time

ASKED_TOGETHER = 3  # contacts that are asked with one heartbeat


class VsoPeer(VsoNode):
    """A client, and a matcher if promoted. `contact`: the peer that it joins through; its own name
    if it is the first, which is the first matcher and the gateway."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, contact: NodeId
    ) -> None:
        columns = ClientColumns(round(parameters.memory_s * SECOND))
        place = grid(1, parameters.world)[0] if contact == node_id else None
        super().__init__(node_id, rng, parameters, GatewayName(contact), columns, place)
        self.contacts: dict[NodeId, None] = {}  # peers that may know the gateway
        self.term: Term = 0  # of the gateway; 0: it is not certain
        self._confirmed: Time = 0  # when a matcher last answered
        self._promoted: Time = 0

    def on_start(self) -> None:
        self._confirmed = self.now
        super().on_start()
        self._update_role()
        if self.matcher is None:
            self._ask(self.directory.gateway)

    def on_message(self, sender: NodeId, message: Message) -> None:
        if isinstance(message, GatewayQuery):
            known = GatewayKnown(self.term, self.directory.gateway, self._is_matching)
            self.out.send(sender, known)
        elif isinstance(message, GatewayKnown):
            self._on_gateway_known(sender, message)
        else:
            super().on_message(sender, message)

    def on_timer(self, timer: Timer) -> None:
        if isinstance(timer, SendAlive):
            self._check_gateway()
        super().on_timer(timer)

    @property
    def _is_matching(self) -> bool:
        return self.matcher is not None and self.matcher.site.ready

    @property
    def _patience(self) -> Time:
        return self.parameters.misses * self.parameters.heartbeat

    # The gateway's name.

    def _ask(self, node: NodeId) -> None:
        if node != self.id:
            self.contacts.pop(node, None)  # until it answers
            self.out.send(node, GatewayQuery())

    def _check_gateway(self) -> None:
        if self._is_matching:
            return  # matchers are told
        if self.matcher is not None and self.now - self._promoted > self._patience:
            self.matcher = None  # whom it should join through has died
            self.out.note("resigned")
        if self.now - self._confirmed > self._patience:
            self.term = 0
        if not self.term:
            contacts = sorted(self.contacts)
            for contact in self.rng.sample(contacts, min(len(contacts), ASKED_TOGETHER)):
                self._ask(contact)
        self._ask(self.client.home)

    def _on_gateway_known(self, sender: NodeId, message: GatewayKnown) -> None:
        self.contacts[sender] = None
        if self._is_matching or message.gateway == self.id:
            return
        claim = message.term, message.gateway
        if message.matcher:
            if sender == message.gateway and message.term and claim > self._claim:
                self._set_gateway(*claim)
            if self.term:
                self._confirmed = self.now
        elif sender == self.directory.gateway:
            self.term = 0  # it is none, or no longer
        if sender != message.gateway and claim > self._claim:
            self._ask(message.gateway)

    @property
    def _claim(self) -> tuple[Term, NodeId]:
        return self.term, self.directory.gateway if self.term else -1

    def _set_gateway(self, term: Term, gateway: NodeId) -> None:
        before, since = self.directory.gateway, self._confirmed
        is_new = gateway != before or not self.term
        self.term, self.directory.gateway, self._confirmed = term, gateway, self.now
        if is_new:
            self.client.gateway_changed(since if gateway != before else self.now)

    # The role of a matcher.

    def _become_matcher(self, place: Place, contact: NodeId) -> None:
        self._promoted = self.now
        super()._become_matcher(place, contact)

    def _update_role(self) -> None:
        if self.matcher is not None and self._is_matching:
            role = self.matcher.site.gateway
            if role.term and role.gateway is not None:
                self._set_gateway(role.term, role.gateway)
        super()._update_role()
