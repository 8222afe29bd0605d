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

If all matchers have gone at once, nobody is left who could become gateway. Then the peer with the
lowest name that still answers begins anew. Peers that did not reach each other may do so apart;
gateways ask peers too, and when two find each other, the later term wins and the meshes merge.
"""

from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Timer
from nearcast.protocols.voronoi.vso.client_columns import ClientColumns
from nearcast.protocols.voronoi.vso.initial_grid import grid
from nearcast.protocols.voronoi.vso.messages import GatewayKnown, GatewayQuery, Place, Term
from nearcast.protocols.voronoi.vso.overlay import GatewayName, SendAlive, VsoNode
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.space.motion import SECOND, Time

ASKED_TOGETHER = 8  # contacts that are asked with one heartbeat: half of them by name
ABANDONED = 3  # times the patience without a matcher, after which a peer begins anew
NEVER: Time = -(2**62)


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
        self._asked: dict[NodeId, None] = {}  # since the last heartbeat
        self._unserved_peer: Time = NEVER  # when another peer last answered that it has no gateway
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
        """Once in a heartbeat: peers that know nothing may name each other in circles."""
        if node != self.id and node not in self._asked:
            self._asked[node] = None
            self.contacts.pop(node, None)  # until it answers
            self.out.send(node, GatewayQuery())

    def _ask_some(self, most: int) -> None:
        """Contacts at random, and as many with the lowest names, one of which may begin anew."""
        contacts = sorted(self.contacts)
        half = (most + 1) // 2
        chosen = [*self.rng.sample(contacts, min(len(contacts), half)), *contacts[: most - half]]
        for contact in dict.fromkeys(chosen):
            self._ask(contact)

    def _check_gateway(self) -> None:
        self._asked.clear()
        if self.matcher is not None and self._is_matching:
            if self.matcher.site.gateway.is_mine:
                self._ask_some(1)  # somebody may know another gateway; other matchers are told
            return
        if self.matcher is not None and self.now - self._promoted > self._patience:
            self.matcher = None  # whom it should join through has died
            self.out.note("resigned")
        silent = self.now - self._confirmed
        if silent > self._patience:
            self.term = 0
        if silent > ABANDONED * self._patience and self._is_first_of_unserved():
            self.directory.gateway = self.id
            self._become_matcher(grid(1, self.parameters.world)[0], self.id)
            self._update_role()
            return
        if not self.term:
            self._ask_some(ASKED_TOGETHER)
        self._ask(self.client.home)

    def _is_first_of_unserved(self) -> bool:
        """Do others answer that have no gateway either, and none with a lower name?

        Contacts that do not answer are none any more. A peer that reaches nobody waits.
        """
        recently = self.now - self._unserved_peer <= self._patience
        return self.matcher is None and recently and self.id < min(self.contacts, default=self.id)

    def _on_gateway_known(self, sender: NodeId, message: GatewayKnown) -> None:
        self.contacts[sender] = None
        if not message.term:
            self._unserved_peer = self.now
        if message.gateway == self.id:
            return
        if self.matcher is not None and self._is_matching:
            role = self.matcher.site.gateway
            if role.is_mine and message.term and message.gateway not in role.matchers:
                if sender == message.gateway and message.matcher:
                    self.matcher.site.merge(sender)
                else:
                    self._ask(message.gateway)
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
