"""Handover: a client is moved to the node that owns its anchor, and loses nothing.

The anchor is the client's lowest-numbered subscription with a bounded area.

**The rules.** One node at a time owns a client. The old home owns it until it sends
`ClientTransfer`. It offers the client to the owner of the anchor (`HandoverOffer`, answered by
`HandoverAccepted`), tells the client where to go, and serves it as before. A ticket is valid for
`VALID`, at both ends. When the client shows it, the new home claims the client (`HandoverClaim`)
and may take it in for `ANSWERED` from then on, not later: then it tells the client that the
handover failed, and cancels it (`HandoverCancelled`). The old home answers a claim by
`ClientTransfer`: all the client's state, and what was delivered to it in the last seconds. From
then on the old home does not serve the client, but keeps its connection open and forwards its
requests (`ForwardedRequest`). The new home takes the client in and confirms (`HandoverConfirmed`),
or cancels, because it gave up or the client disconnected. On a cancellation the old home takes the
client back on the connection that is still open, with all it missed. Without any answer it does so
after `TAKE_BACK`, which is longer than `ANSWERED`: a new home that is only late refuses by then.

If the client disconnects within `SETTLED` after it was taken in, it does not know that it was, and
is returned (`ClientReturned`). After that the new home confirms again (`settled`, several times),
and the old connection is closed. What is lost with a link is decided by these times alone. In one
case both nodes serve a client: when no answer of the new home reached the old one within
`TAKE_BACK`. Then the old home sends the transfer again (`ASK_EVERY`) whenever the new home is a
member, until it is answered: the new home confirms what it took in, also if the client has gone on
or left since, and cancels the rest. The confirmation, or the client itself, ends the old
connection, and the new home's subscriptions have the higher version. If the connection ends without
an answer, the client does not leave here: it is with the new home, or leaves when that one cancels,
or when no answer can come any more (`DOUBTED`). A client whose connections are both gone leaves at
the node that owns it.

Recent publications that the new home knows and the client has not received are delivered at once.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.errors import MalformedMessageError, Refused
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers
from nearcast.model.subscription import Formula, NodeId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.records import leg, region_bytes
from nearcast.service.access.permission import may_listen
from nearcast.service.client_state import ActiveSubscription, ClientState
from nearcast.service.cluster.messages import (
    ClientReturned,
    ClientTransfer,
    DirectForwarded,
    ForwardedRequest,
    HandoverAccepted,
    HandoverCancelled,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
    TransferredSubscription,
)
from nearcast.service.cluster.realm import OVERDUE
from nearcast.service.cluster.recent_history import (
    COUNT_BITS,
    LATE,
    SEARCHED,
    EarlierDeliveries,
    JoinedFlushes,
    PastFlush,
    SubscriptionVersion,
    join_flushes,
)
from nearcast.service.cluster.routing import (
    encoding_of,
    publish_request,
    remote_direct,
    remote_publication,
)
from nearcast.service.connection import Connection
from nearcast.service.connections import Connections
from nearcast.service.effects import DeliverMissed
from nearcast.service.recipients import AcceptedDirect
from nearcast.space.motion import FOREVER, SECOND, Path, Time

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

AWAY: Time = SECOND  # for so long another node must own the anchor before a handover
REST: Time = 5 * SECOND  # between two attempts with one client
VALID: Time = 10 * SECOND
ANSWERED: Time = 3 * SECOND
TAKE_BACK: Time = ANSWERED + SECOND // 2
SETTLED: Time = SECOND
TOLD = 4  # how often it is confirmed, because a link may break
UNSETTLED: Time = 10 * SECOND  # by then a client has left its old connection
LOOK_EVERY: Time = SECOND // 2
ASK_EVERY: Time = SECOND  # that an unanswered transfer is sent again
# Until an answer is not expected any more: for so long, nodes that cannot reach each other remember
# each other (`cluster_node.REMEMBER_LOST`).
DOUBTED: Time = 600 * SECOND
REMEMBERED: Time = 2 * DOUBTED  # that a new home knows whom it took in
AT_ONCE = 64  # clients offered at a time
TICKET_BITS = 192  # of chance, which a live host takes from the system
ELSEWHERE = "another node serves you now"
HAD: Time = 5 * SECOND
MOST_FORWARDED = 1000  # requests kept for a client that may come back
MOST_HOMES = 250
MOST_AREA_BYTES = 800_000  # of a client's areas: `wire.LONGEST` leaves room for its states


class OfferedClient(Struct):
    """At the old home: a client that was offered to another node."""

    connection: Connection
    client: ClientState
    to: NodeId
    until: Time

    @property
    def is_valid(self) -> bool:
        """Is it still here, and publishes for no other entity?"""
        return self.connection.client is self.client and not self.client.entities


class ExpectedClient(Struct):
    """At the new home: a client that may come; with its connection, once it has."""

    home: NodeId
    until: Time
    holder: str  # of the token that it must show
    connection: Connection | None = None
    join: Any = None


class DepartingClient(Struct):
    """At the old home: a client that was transferred and may come back.

    `forwarded`: its requests here since. `taken`: the new home serves it. `direct`: messages to it
    since.
    """

    connection: Connection
    to: NodeId
    passed: ClientTransfer
    until: Time
    taken: bool = False
    forwarded: list[tuple[bytes, bool]] = []
    direct: list[AcceptedDirect] = []


class UnansweredClient(Struct):
    """At the old home: a client whose transfer was not answered, so both nodes may serve it.

    `client`: as it is served here again; None if its connection here has ended.
    """

    connection: Connection
    client: ClientState | None
    to: NodeId
    transfer: ClientTransfer
    until: Time
    asked: Time


class SettlingClient(Struct):
    """At the new home: a client that was just taken in.

    `obeyed`: see `ClientReturned`. `told`: how often the old home got a settled confirmation.
    """

    connection: Connection
    home: NodeId
    transfer: ClientTransfer
    until: Time
    obeyed: int = 0
    told: int = 0


class Handover:
    """All handovers of a node, as old home and as new home."""

    def __init__(
        self, node: "ClusterNode", out: Outbox, connections: Connections, rng: Random
    ) -> None:
        self._node, self._out, self._send = node, out, out.send
        self._connections, self._random = connections, rng
        # For the service to carry out: connections that end, and why; and requests to handle, each
        # of which came by another node, as a frame and whether it is MessagePack.
        self.ended: list[tuple[Connection, str, CloseCode]] = []
        self.forwarded: list[tuple[Connection, bytes, bool]] = []
        self._offers: dict[str, OfferedClient] = {}
        self._expected: dict[str, ExpectedClient] = {}
        self._owned_elsewhere: dict[
            int, tuple[NodeId, Time]
        ] = {}  # by entity: the owner, and since when
        self._last_attempt: dict[int, Time] = {}
        self._arrived_connections: dict[
            int, Connection
        ] = {}  # of clients that were handed over to this node, by entity
        # Clients that have just come: since when they may have missed publications, and their
        # subscriptions when they came, which may have changed since.
        self._catching_up: list[
            tuple[Connection, ClientState, Time, list[tuple[int, SubscriptionVersion]]]
        ] = []
        self.claimed: dict[str, OfferedClient] = {}  # transferred once nothing waits
        self._departing: dict[str, DepartingClient] = {}
        self._settling: dict[str, SettlingClient] = {}
        self._unanswered: dict[str, UnansweredClient] = {}
        self._taken_in: dict[str, Time] = {}  # by ticket: when; for old homes that ask again
        self._looked: Time = 0
        self.steps = 0  # taken with clients that leave: a node that stops waits as long as it grows

    # At the old home.

    def tick(self, now: Time) -> None:
        self._expire(now)
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._offer_clients(now)
            self._arrived_connections = {
                e: s for e, s in self._arrived_connections.items() if s.client is not None
            }
            self._last_attempt = {e: t for e, t in self._last_attempt.items() if now - t < REST}
            self._taken_in = {w: t for w, t in self._taken_in.items() if now - t < REMEMBERED}

    def _expire(self, now: Time) -> None:
        """Acts on everything that was not answered in time."""
        for ticket, offer in list(self._offers.items()):
            if offer.until < now or offer.connection.client is not offer.client:
                del self._offers[ticket]
        for ticket, expected in list(self._expected.items()):
            if expected.until < now:
                self._reject_expected(ticket)
                self._send(expected.home, HandoverCancelled(ticket))
        for ticket, settling in list(self._settling.items()):
            if settling.until < now:
                settling.told, settling.until = settling.told + 1, now + SETTLED
                self._send(settling.home, HandoverConfirmed(ticket, settled=True))
                if settling.told == TOLD:
                    del self._settling[ticket]
        for ticket, departing in list(self._departing.items()):
            if departing.until < now:
                del self._departing[ticket]
                if departing.taken:
                    self.ended.append((departing.connection, ELSEWHERE, CloseCode.GOING_AWAY))
                else:
                    self._take_back_unanswered(now, ticket, departing)
        for ticket, one in list(self._unanswered.items()):
            if one.connection.client is not one.client:  # it went elsewhere
                del self._unanswered[ticket]
            elif one.until < now:
                del self._unanswered[ticket]
                if one.client is None:
                    self._leave_absent(now, one.transfer)
            elif now - one.asked >= ASK_EVERY and one.to in self._node.nodes:
                one.asked = now
                self._send(one.to, one.transfer)
        since = [one.passed.departed - SEARCHED for one in self._departing.values()]
        since += [since for _, _, since, _ in self._catching_up]
        self._node.history.keep_since = min(since, default=FOREVER)

    def hand_over_all(self) -> None:
        """All clients go elsewhere, and at once (`Scaling.clears`)."""
        self._last_attempt.clear()

    @property
    def _clearing(self) -> bool:
        return self._node.scaling.clears

    @property
    def all_gone(self) -> bool:
        clients = (connection.client for connection in self._connections.all)
        served = any(client is not None and not client.entities for client in clients)
        return not served and all(one.taken for one in self._departing.values())

    @property
    def under_way(self) -> bool:
        """Is any client on its way, in either direction?"""
        unsettled = any(not settling.told for settling in self._settling.values())
        return bool(self._expected or self.claimed or self._departing or unsettled)

    def is_departing(self, entity: int) -> bool:
        """Was it transferred a moment ago? Others may not know yet where it is."""
        asked = [one.transfer for one in self._unanswered.values() if one.to in self._node.nodes]
        passed = [one.passed for one in self._departing.values()]
        return any(transfer.entity == entity for transfer in (*passed, *asked))

    def _offer_clients(self, now: Time) -> None:
        away: dict[int, tuple[NodeId, Time]] = {}
        begun, serving = 0, self._node.serving_nodes()
        owned_elsewhere = self._node.registry.owned_elsewhere()
        for connection in list(self._connections.all):
            client = connection.client
            if client is None or connection.paused or connection.ended:
                continue
            if client.entity not in owned_elsewhere and not self._clearing:
                continue  # as most are
            if client.entities:  # such a client stays, and reconnects when the node stops
                continue
            to = self._preferred_node(now, client, serving)
            if to is None:
                continue
            before = self._owned_elsewhere.get(client.entity)
            since = before[1] if before is not None and before[0] == to else now
            away[client.entity] = to, since
            due = self._clearing or now - since >= AWAY
            if due and client.entity not in self._last_attempt and begun < AT_ONCE:
                begun += 1
                self._last_attempt[client.entity] = now
                ticket = f"{self._random.getrandbits(TICKET_BITS):0{TICKET_BITS // 4}x}"
                self._offers[ticket] = OfferedClient(connection, client, to, now + VALID)
                self._send(
                    to, HandoverOffer(ticket, connection.grant.holder if connection.grant else "")
                )
        self._owned_elsewhere = away

    def _preferred_node(
        self, now: Time, client: ClientState, serving: Sequence[NodeId]
    ) -> NodeId | None:
        """The node that should serve the client, if not this one."""
        node = self._node
        owner = None
        for number in sorted(client.subscriptions):
            active = client.subscriptions[number]
            if has_bounded_area(active) and active.handovers < MOST_HOMES:
                owner = node.registry.owner(active.subscription.id)
                if self._clearing and owner == node.id:
                    x, y, *_ = leg(active.subscription.region, now)[0]
                    owner = node.site.heir((x, y))
                break
        if owner is not None and owner != node.id and owner in serving:
            return owner
        if not self._clearing or not serving:
            return None
        return min(serving, key=lambda one: node.nodes[one].beat.load)

    def receive(self, now: Time, message: Message, sender: NodeId) -> None:
        """Dispatches a message of the handover protocol."""
        match message:
            case HandoverOffer(ticket, holder):
                if self._clearing:
                    self._send(sender, HandoverCancelled(ticket))
                else:
                    self._expected[ticket] = ExpectedClient(sender, now + VALID, holder)
                    self._send(sender, HandoverAccepted(ticket))
            case HandoverAccepted(ticket):
                offer = self._offers.get(ticket)
                known = self._node.nodes.get(sender)
                if offer is not None and known is not None and offer.to == sender:
                    self._connections.reply(
                        offer.connection, messages.MovedNotice(known.beat.url, ticket)
                    )
            case HandoverClaim(ticket):
                offer = self._offers.pop(ticket, None)
                if offer is None or offer.to != sender or not offer.is_valid:
                    self._send(sender, HandoverCancelled(ticket))
                else:
                    self.claimed[ticket] = offer
                    self.steps += 1
            case ClientTransfer():
                self._on_transfer(now, message, sender)
            case HandoverConfirmed(ticket, settled):
                self._on_taken(now, ticket, settled)
            case HandoverCancelled(ticket):
                self._on_void(now, ticket)
            case ClientReturned(transfer, obeyed):
                self._on_returned(now, transfer, obeyed)
            case ForwardedRequest(entity, frame, packed):
                self._on_forwarded_request(entity, frame, packed)

    def release_claimed(self, now: Time) -> None:
        """Transfers claimed clients, once all publications until now have been delivered."""
        claimed, self.claimed = self.claimed, {}
        for ticket, offer in claimed.items():
            if self._node.realm.publications_waiting(offer.client):
                self.claimed[ticket] = offer  # its own publications are delivered first
            elif offer.is_valid and self._fits_into_message(now, offer.client):
                passed = self._release_client(now, ticket, offer)
                self._send(offer.to, passed)
                until = now + TAKE_BACK
                self._departing[ticket] = DepartingClient(offer.connection, offer.to, passed, until)
            else:
                self._send(offer.to, HandoverCancelled(ticket))

    def _fits_into_message(self, now: Time, client: ClientState) -> bool:
        """Can it be transferred? One whose areas have too many legs and vertices stays here."""
        regions: list[object] = []
        for active in client.subscriptions.values():
            regions += [active.asked.region, active.subscription.region]
            earlier = self._node.history.versions.of(active.slot, now - SEARCHED)
            regions += [was.subscription.region for was in earlier]
        return sum(map(region_bytes, regions)) <= MOST_AREA_BYTES

    def _release_client(self, now: Time, ticket: str, offer: OfferedClient) -> ClientTransfer:
        """Stops serving a client, and returns its state."""
        node, client = self._node, offer.client
        earlier = node.realm.earlier_deliveries.get(client.slot)  # on the node before
        before = earlier.publications if earlier is not None else frozenset()
        had = (*before, *node.history.delivered_to(client.entity))
        states = tuple(
            remote_publication(state.accepted, state.t)
            for state in node.realm.retained_states(client)
        )
        subscriptions = tuple(
            _to_transfer(active, node.history.versions.of(active.slot, now - SEARCHED))
            for active in client.subscriptions.values()
        )
        self._connections.detach(offer.connection)
        node.routing.send_recent_to(client.entity, offer.to)
        node.realm.release_client(now, client, offer.to)
        for transferred in subscriptions:
            for was in _versions(transferred):
                node.remote_subscriptions.on_client_moved(now, offer.to, was)
            node.registry.remove_departed(now, transferred.subscription.id)
        offer.connection.elsewhere = client.entity, offer.to
        departed = node.realm.now
        return ClientTransfer(
            ticket, client.entity, client.name, subscriptions, states, had, departed,
            node.direct.received_by(client.entity),
        )  # fmt: skip

    def _on_taken(self, now: Time, ticket: str, settled: bool) -> None:
        unanswered = self._unanswered.pop(ticket, None)
        if unanswered is not None:
            if self._release_unanswered(now, ticket, unanswered):
                self.ended.append((unanswered.connection, ELSEWHERE, CloseCode.GOING_AWAY))
            return
        departing = self._departing.get(ticket)
        if departing is None:
            return
        departing.taken, departing.until = True, now + UNSETTLED
        self.steps += 1
        if settled:
            del self._departing[ticket]
            self.ended.append((departing.connection, ELSEWHERE, CloseCode.GOING_AWAY))

    def _on_void(self, now: Time, ticket: str) -> None:
        offer = self._offers.pop(ticket, None)
        if offer is not None and self._clearing:  # it leaves as well: try another node at once
            self._last_attempt.pop(offer.client.entity, None)
        self.claimed.pop(ticket, None)
        self._reject_expected(ticket)
        departing = self._departing.pop(ticket, None)
        if departing is not None:
            self._take_back(now, departing, departing.passed)
        unanswered = self._unanswered.pop(ticket, None)
        if unanswered is not None and unanswered.client is None:
            self._leave_absent(now, unanswered.transfer)

    def _on_returned(self, now: Time, transfer: ClientTransfer, obeyed: int) -> None:
        departing = self._departing.pop(transfer.ticket, None)
        if departing is not None:
            self._take_back(now, departing, transfer, obeyed)
            return
        unanswered = self._unanswered.pop(transfer.ticket, None)
        if unanswered is None or unanswered.client is None:
            self._leave_absent(now, transfer)
        # Else it is here already.

    def _take_back_unanswered(self, now: Time, ticket: str, departing: DepartingClient) -> None:
        connection, client = departing.connection, None
        if not connection.ended:
            client = self._take_back(now, departing, departing.passed)
        self._unanswered[ticket] = UnansweredClient(
            connection, client, departing.to, departing.passed, now + DOUBTED, now
        )

    def _release_unanswered(self, now: Time, ticket: str, one: UnansweredClient) -> bool:
        """Stops serving a client that is another node's as far as this one knows. Did it serve?"""
        if one.client is None or one.connection.client is not one.client:
            return False
        offer = OfferedClient(one.connection, one.client, one.to, now)
        one.client, one.transfer = None, self._release_client(now, ticket, offer)
        return True

    def _leave_absent(self, now: Time, transfer: ClientTransfer) -> None:
        """The new home does not have it, and its connection here has ended: it leaves."""
        client = self._add_transferred(now, transfer, messages.MSGPACK)
        self._node.send_states([client])
        self._leave_returned(now, client)

    def _take_back(
        self, now: Time, departing: DepartingClient, transfer: ClientTransfer, obeyed: int = 0
    ) -> ClientState:
        """Serves a client here again, on the connection that it has kept."""
        connection, was_there = departing.connection, transfer is not departing.passed
        if not was_there:  # no other node has announced its subscriptions
            subscriptions = tuple(
                replace(s, handovers=s.handovers - 1) for s in transfer.subscriptions
            )
            transfer = replace(transfer, subscriptions=subscriptions)
        client = self._add_transferred(now, transfer, connection.encoding or messages.JSON)
        if was_there:
            # Other nodes believe that it is there, and would not believe this one that it leaves.
            self._node.send_states([client])
        if connection.ended and was_there:
            self._leave_returned(now, client)
            return client
        if connection.ended:
            self._node.realm.leave(now, client)
            return client
        connection.elsewhere = None
        self._connections.attach(connection, client)
        self._start_serving(now, connection, client, transfer)
        for message in departing.direct:
            self._connections.deliver_direct(message, [client])
        for frame, packed in departing.forwarded[obeyed:]:
            self.forwarded.append((connection, frame, packed))
        return client

    def forward_direct(self, message: AcceptedDirect) -> list[int]:
        """To clients that were transferred a moment ago, by their new homes: a message to all nodes
        may have come there before them. Returns these entities."""
        found: list[int] = []
        for one in self._departing.values():
            if message.to in (one.passed.entity, one.passed.name):
                found.append(one.passed.entity)
                one.direct.append(message)
                self._send(one.to, DirectForwarded(one.passed.entity, remote_direct(message)))
        return found

    def _leave_returned(self, now: Time, client: ClientState) -> None:
        """What it published on the other node may still come, and is no sign that it is there."""
        self._node.realm.leave(now, client)
        self._node.realm.remote_entities.on_left_here(now, client.entity)

    def forward_request(self, connection: Connection, frame: bytes, packed: bool) -> None:
        """A request of a client that was transferred, on its old connection."""
        assert connection.elsewhere is not None
        entity, home = connection.elsewhere
        form = encoding_of(packed)
        try:
            leaves = form.message_class(form.read_request(frame)) in (
                messages.LeaveRequest,
                messages.JoinRequest,
            )
        except MalformedMessageError:
            leaves = False  # the new home answers what is wrong with it
        departing = [one for one in self._departing.values() if one.connection is connection]
        if leaves:
            if any(not one.taken for one in departing):
                self.ended.append((connection, "you left", CloseCode.NORMAL))
            return
        for one in departing:
            if len(one.forwarded) >= MOST_FORWARDED:
                too_many = messages.ErrorNotice("too many requests while another node takes over")
                self._connections.reply(connection, too_many)
                return
            one.forwarded.append((frame, packed))
        self._send(home, ForwardedRequest(entity, frame, packed))

    # At the new home.

    def claim_client(self, now: Time, connection: Connection, word: Any) -> None:
        """A client has come with a ticket: its old home must transfer it."""
        expected = self._expected.get(word.ticket)
        if expected is None or expected.connection is not None:
            raise Refused("this ticket is not valid, or not any more")
        if connection.grant is None or connection.grant.holder != expected.holder:
            raise Refused("this ticket belongs to the holder of another token")
        expected.connection, expected.join = connection, word
        expected.until = now + ANSWERED
        self._send(expected.home, HandoverClaim(word.ticket))

    def _reject_expected(self, ticket: str) -> None:
        expected = self._expected.pop(ticket, None)
        if expected is not None and expected.connection is not None:
            silent = messages.ErrorNotice("your former node does not answer", expected.join.id)
            self._connections.reply(expected.connection, silent)
            self.ended.append((expected.connection, "join as everybody does", CloseCode.POLICY))

    def _on_transfer(self, now: Time, transfer: ClientTransfer, sender: NodeId) -> None:
        expected, ticket = self._expected.get(transfer.ticket), transfer.ticket
        if expected is not None and expected.home != sender:
            return
        if ticket in self._taken_in:  # the confirmations were lost
            self._send(sender, HandoverConfirmed(ticket, settled=ticket not in self._settling))
            return
        connection = expected.connection if expected is not None else None
        if expected is None or connection is None or connection.ended or expected.until < now:
            self._reject_expected(ticket)
            self._send(sender, HandoverCancelled(ticket))
            return
        del self._expected[ticket]
        self._taken_in[ticket] = now
        client = self._add_transferred(now, transfer, connection.encoding or messages.JSON)
        self._node.send_states([client])
        self._connections.welcome(self._node.realm.now, connection, client, expected.join.id)
        if not may_listen(connection):  # its token is newer and allows less
            why = "your token does not allow what you listen to any more"
            self.ended.append((connection, why, CloseCode.POLICY))
            self._send(sender, HandoverConfirmed(ticket, settled=True))
            return
        self._arrived_connections[client.entity] = connection
        self._start_serving(now, connection, client, transfer)
        self._settling[ticket] = SettlingClient(connection, sender, transfer, now + SETTLED)
        self._send(sender, HandoverConfirmed(ticket, settled=False))

    def _add_transferred(
        self, now: Time, transfer: ClientTransfer, form: messages.Encoding
    ) -> ClientState:
        """A client with the state that it had on another node."""
        realm = self._node.realm
        self._node.direct.add_received(transfer.entity, transfer.direct)
        subscriptions = [_from_transfer(transferred) for transferred in transfer.subscriptions]
        versions = [transferred.earlier for transferred in transfer.subscriptions]
        client = realm.add_transferred(
            now, transfer.entity, transfer.name, form, subscriptions, versions, transfer.departed,
            {state.channel for state in transfer.states},
        )  # fmt: skip
        for state in transfer.states:
            parts = publish_request(state), encoding_of(state.packed), state.id, state.t
            realm.restore_state(client, *parts)
        return client

    def _start_serving(
        self, now: Time, connection: Connection, client: ClientState, transfer: ClientTransfer
    ) -> None:
        """Serves it from now on: presence at once, then the publications that it missed."""
        realm = self._node.realm
        realm.earlier_deliveries[client.slot] = EarlierDeliveries(
            transfer.departed - LATE, transfer.departed, frozenset(transfer.delivered), now + HAD
        )
        self._last_attempt[client.entity] = now  # it stays for a while, wherever borders move
        wanted = [
            (transferred.number, was)
            for transferred in transfer.subscriptions
            for was in _versions(transferred)
        ]
        self._catching_up.append((connection, client, transfer.departed - SEARCHED, wanted))
        fences = [
            transferred.number
            for transferred in transfer.subscriptions
            if transferred.fence_options
        ]
        for notice in realm.restart_fences(client, fences):
            self._connections.reply(connection, notice)

    def _on_forwarded_request(self, entity: int, frame: bytes, packed: bool) -> None:
        connection = self._arrived_connections.get(entity)
        if connection is not None and connection.client is not None:
            for settling in self._settling.values():
                settling.obeyed += settling.connection is connection
            self.forwarded.append((connection, frame, packed))

    def connection_ends(self, now: Time, connection: Connection) -> None:
        """A connection ends. Its client leaves, unless it is another node's."""
        if connection.client is not None:
            for ticket, one in self._unanswered.items():
                if one.connection is connection:
                    self._release_unanswered(now, ticket, one)
            self._return_client(now, connection)

    def _return_client(self, now: Time, connection: Connection) -> None:
        """A client that disconnected right after it was taken in may still be connected to its old
        home, and is returned there."""
        found = [s for s in self._settling.values() if s.connection is connection and not s.told]
        if not found or connection.client is None:
            return
        settling = found[0]
        ticket, home, transfer = settling.transfer.ticket, settling.home, settling.transfer
        del self._settling[ticket]
        if not connection.ended or home not in self._node.nodes:  # it was ended here, or left
            self._send(home, HandoverConfirmed(ticket, settled=True))
            return
        self._taken_in.pop(ticket, None)
        returned = self._release_client(
            now, ticket, OfferedClient(connection, connection.client, home, now)
        )
        # What was delivered here has not reached it.
        returned = replace(
            returned, delivered=transfer.delivered, departed=transfer.departed,
            direct=transfer.direct,
        )  # fmt: skip
        self._send(home, ClientReturned(returned, settling.obeyed))

    def deliver_missed(self, passed: Sequence[PastFlush]) -> None:
        """Delivers recent publications that clients which just came have not received."""
        late, self._catching_up = self._catching_up, []
        late = [one for one in late if one[0].client is one[1]]
        recent = join_flushes(passed, min(since for _, _, since, _ in late)) if late else None
        if recent is None:
            return
        matcher = MATCHERS["keyed"]()
        for number, was in enumerate(was for one in late for _, was in one[3]):
            matcher.put(replace(was.subscription, id=number))
        found = matcher.match_many(recent.publications)
        made = recent.publications.t[found.publication]
        order = np.lexsort((found.subscription, recent.ids[found.publication], made))
        index, place = found.publication[order], found.subscription[order]
        first, by_id = 0, np.argsort(recent.ids)
        for connection, client, since, wanted in late:
            last = first + len(wanted)
            mine = (place >= first) & (place < last)
            self._deliver_missed_to(
                connection, client, since, wanted, recent, by_id, index[mine], place[mine] - first
            )
            first = last

    def _deliver_missed_to(
        self, connection: Connection, client: ClientState, since: Time, wanted: list[tuple[int,
        SubscriptionVersion]],
        recent: JoinedFlushes, by_id: Integers, index: Integers, place: Integers,
    ) -> None:  # fmt: skip
        """Delivers those pairs of publication and version that it has not received. `by_id` sorts
        the recent publications."""
        realm = self._node.realm
        had = realm.earlier_deliveries.get(client.slot)
        if had is None:
            return
        spans = np.array([(was.since, was.until) for _, was in wanted], np.int64).reshape(-1, 2)
        began, ended = spans[place].T
        t = recent.publications.t[index]
        new = (t >= np.maximum(began, since)) & (t < ended)
        received = np.zeros(len(by_id), np.bool_)
        ids = np.fromiter(had.publications, np.int64)
        found = by_id[np.minimum(np.searchsorted(recent.ids, ids, sorter=by_id), len(by_id) - 1)]
        known = recent.ids[found] == ids
        received[found[known]] = True
        overdue = realm.now - OVERDUE
        new &= ~received[index] & ~find_overtaken(recent.publications, received, index, overdue)
        late = np.flatnonzero(new & (t < overdue))
        new[late] = ~may_be_overtaken(recent.ids[index[late]], ids[~known])
        hears: dict[int, list[tuple[int, SubscriptionVersion]]] = {}
        for one, which in zip(index[new].tolist(), place[new].tolist(), strict=True):
            hears.setdefault(one, []).append(wanted[which])
        for one, several in hears.items():
            passed, which = recent.locate(one)
            accepted = passed.accepted[which]
            numbers = [number for number, _ in several]
            subscriptions = tuple(was.subscription.id for _, was in several)
            made = accepted.t or passed.t
            self._out.put(DeliverMissed(connection, client, accepted, made, numbers, subscriptions))
        told = frozenset(recent.ids[list(hears)].tolist())
        realm.earlier_deliveries[client.slot] = replace(had, publications=had.publications | told)


def find_overtaken(
    publications: Batch, received: NDArray[np.bool_], index: Integers, overdue: Time
) -> NDArray[np.bool_]:
    """Which of these are overdue, though a later one of the same publisher was received? They are
    not delivered any more, as `ClusterRealm.receive_remote` says."""
    late = publications.t[index] < overdue
    if not late.any():
        return late
    came = np.flatnonzero(received)
    publishers = publications.node[np.concatenate((came, index))]
    _, whose = np.unique(publishers, return_inverse=True)
    latest = np.zeros(len(whose), np.int64)  # by publisher
    np.maximum.at(latest, whose[: len(came)], publications.t[came])
    return late & (publications.t[index] < latest[whose[len(came) :]])


def may_be_overtaken(ids: Integers, unknown: Integers) -> NDArray[np.bool_]:
    """Was a later one received that is not known here? It may be of the same publisher if it was
    published on the same node."""
    latest = {number >> COUNT_BITS: number for number in np.sort(unknown).tolist()}
    later = [latest.get(number >> COUNT_BITS, number) > number for number in ids.tolist()]
    return np.array(later, np.bool_)


def has_bounded_area(active: ActiveSubscription) -> bool:
    region = active.subscription.region
    if isinstance(region, Formula):
        return False
    shape = region.legs[0].shape if isinstance(region, Path) else region.shape
    return max(shape.rx, shape.ry) < 1e29


def _to_transfer(
    active: ActiveSubscription, versions: list[SubscriptionVersion]
) -> TransferredSubscription:
    return TransferredSubscription(
        active.number, active.since, active.asked, active.subscription, active.throttle_options,
        active.linger, active.handovers, tuple(versions),
        active.fence_options, active.follow,
    )  # fmt: skip


def _versions(transferred: TransferredSubscription) -> tuple[SubscriptionVersion, ...]:
    if transferred.fence_options.lacks_area:
        return transferred.earlier
    return *transferred.earlier, SubscriptionVersion(
        transferred.subscription, transferred.since, FOREVER
    )


def _from_transfer(transferred: TransferredSubscription) -> ActiveSubscription:
    return ActiveSubscription(
        -1, transferred.number, transferred.since, transferred.asked, transferred.subscription,
        transferred.throttle_options,
        linger=transferred.linger, handovers=transferred.handovers,
        fence_options=transferred.fence_options, follow=transferred.follow,
    )  # fmt: skip
