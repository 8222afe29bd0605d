"""Clients change nodes: each is brought to the node that owns its anchor, and loses nothing.

The anchor is the client's lowest-numbered subscription with a bounded area.

**The rules of a handover.** One node at a time owns a client. The old home owns it until it sends
`ClientTransfer`: it asks the owner of the anchor to expect somebody (`HandoverOffer`, answered by
`HandoverAccepted`), tells
the client where to go, and serves it as before. A ticket is valid for `VALID`, at both ends. When
the client shows it, the new home asks for the client (`HandoverClaim`) and may take it in for
`ANSWERED`
from then on, not later: then it tells the client that it failed, and the old home that nobody comes
(`HandoverCancelled`). The old home answers `HandoverClaim` by `ClientTransfer`: all that the
client has, and what it was told in
the last seconds. From now on it serves the client no more, but keeps its connection open and what
it asks for there, which the new home is told at once (`ForwardedRequest`). The new home takes the
client in
and answers `HandoverConfirmed`, or it answers `HandoverCancelled` because it gave up or the client
hung up. On `HandoverCancelled` the
old home takes the client back on the connection that is still there, with all it missed; without
any answer it does so after `TAKE_BACK`, which is longer than `ANSWERED`: so the new home, if it is
only late, refuses by then. If the client hangs up within `SETTLED` after it was taken in, it has
not understood that it was, and is given back (`ClientReturned`); after that the new home says so
(`HandoverConfirmed`, settled, several times), and the old connection is ended. What is lost with a
link is
settled by these times alone. In one case both nodes serve a client: when no answer of the new home
reached the old one within `TAKE_BACK`. Then a late `HandoverConfirmed`, or the client itself, ends
the old
connection, and the new home's subscriptions have the higher version. A client whose connections are
both gone leaves at the node that owns it.

What the new home finds among its own last publications, the client is told at once.
"""

from collections.abc import Callable, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.errors import MalformedMessageError, Refused
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Integers
from nearcast.model.subscription import Formula, NodeId
from nearcast.node import Message
from nearcast.protocols.voronoi.records import leg
from nearcast.service.client_state import ActiveSubscription, ClientState
from nearcast.service.cluster.messages import (
    ClientReturned,
    ClientTransfer,
    ForwardedRequest,
    HandoverAccepted,
    HandoverCancelled,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
    RetainedStatesRequest,
    TransferredSubscription,
)
from nearcast.service.cluster.recent_history import (
    LATE,
    SEARCHED,
    EarlierDeliveries,
    JoinedFlushes,
    PastFlush,
    SubscriptionVersion,
    join_flushes,
)
from nearcast.service.cluster.routing import encoding_of, publish_request, remote_publication
from nearcast.service.frames import message_frame
from nearcast.space.motion import FOREVER, SECOND, Path, Time

if TYPE_CHECKING:
    from nearcast.server.session import Session
    from nearcast.service.cluster.cluster_node import ClusterNode

AWAY: Time = SECOND  # for so long the owner is another node before a client is sent there
REST: Time = 5 * SECOND  # between two attempts with one client
VALID: Time = 10 * SECOND
ANSWERED: Time = 3 * SECOND
TAKE_BACK: Time = ANSWERED + SECOND // 2
SETTLED: Time = SECOND
TOLD = 4  # so often the old home is told, as a link may break
UNSETTLED: Time = 10 * SECOND  # then a client has left the old connection by itself
LOOK_EVERY: Time = SECOND // 2
AT_ONCE = 64  # clients sent away at one look
ELSEWHERE = "another node serves you now"
HAD: Time = 5 * SECOND
MOST_SPOKEN = 1000  # requests that are kept for a client that may come back
MOST_HOMES = 250


class OfferedClient(Struct):
    """At the old home: a client that may go."""

    session: "Session"
    client: ClientState
    to: NodeId
    until: Time

    @property
    def stands(self) -> bool:
        """Is it still here, and speaks for nobody else?"""
        return self.session.client is self.client and not self.client.entities


class ExpectedClient(Struct):
    """At the new home: somebody who may come; with its session, once it has."""

    home: NodeId
    until: Time
    holder: str  # of the token that it must show
    session: "Session | None" = None
    join: Any = None


class DepartingClient(Struct):
    """At the old home: a client that was passed on and may come back.

    `spoken`: what it has said here since. `taken`: the new home serves it.
    """

    session: "Session"
    to: NodeId
    passed: ClientTransfer
    until: Time
    taken: bool = False
    spoken: list[tuple[bytes, bool]] = []


class SettlingClient(Struct):
    """At the new home: a client that was just taken in.

    `obeyed`: see `ClientReturned`. `told`: how often the old home was told that it has settled.
    """

    session: "Session"
    home: NodeId
    came: ClientTransfer
    until: Time
    obeyed: int = 0
    told: int = 0


class Handover:
    """The handovers of a node: clients that may go, go, come back, may come and come."""

    def __init__(self, member: "ClusterNode", send: Callable[[NodeId, Message], None]) -> None:
        self._member, self._gateway, self._send = member, member.gateway, send
        self._offers: dict[str, OfferedClient] = {}
        self._guests: dict[str, ExpectedClient] = {}
        self._away: dict[int, tuple[NodeId, Time]] = {}  # by entity: whose it is, and since when
        self._tried: dict[int, Time] = {}
        self._seated: dict[int, Session] = {}  # who has come this way, by entity
        # Who has come, from when on it must be told what has passed here without it, and what it
        # wanted when it came, which may have changed since.
        self._late: list[
            tuple[Session, ClientState, Time, list[tuple[int, SubscriptionVersion]]]
        ] = []
        self.claimed: dict[
            str, OfferedClient
        ] = {}  # clients that go as soon as nothing waits for them
        self._departing: dict[str, DepartingClient] = {}
        self._settling: dict[str, SettlingClient] = {}
        # Clients that were taken back without an answer; until when one may still come.
        self._unanswered: dict[str, tuple[OfferedClient, Time]] = {}
        self._looked: Time = 0
        self._clearing = False

    # At the old home.

    def tick(self, now: Time) -> None:
        self._expire(now)
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look(now)
            self._seated = {e: s for e, s in self._seated.items() if s.client is not None}
            self._tried = {e: t for e, t in self._tried.items() if now - t < REST}

    def _expire(self, now: Time) -> None:
        """What was not answered in time."""
        for ticket, offer in list(self._offers.items()):
            if offer.until < now or offer.session.client is not offer.client:
                del self._offers[ticket]
        for ticket, guest in list(self._guests.items()):
            if guest.until < now:
                self._turn_away(ticket)
                self._send(guest.home, HandoverCancelled(ticket))
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
                    departing.session.end(ELSEWHERE, CloseCode.GOING_AWAY)
                else:
                    self._take_back_unanswered(now, ticket, departing)
        for ticket, (offer, until) in list(self._unanswered.items()):
            if offer.client.left:  # here, and perhaps because it is there
                self._send(offer.to, RetainedStatesRequest((offer.client.entity,)))
            if offer.client.left or until < now:
                del self._unanswered[ticket]
        since = [one.passed.departed - SEARCHED for one in self._departing.values()]
        since += [since for _, _, since, _ in self._late]
        self._member.history.keep_since = min(since, default=FOREVER)

    def clear_out(self) -> None:
        """This node stops: all clients go elsewhere."""
        self._clearing = True
        self._tried.clear()

    @property
    def all_gone(self) -> bool:
        clients = (session.client for session in self._gateway.sessions)
        served = any(client is not None and not client.entities for client in clients)
        return not served and all(one.taken for one in self._departing.values())

    @property
    def under_way(self) -> bool:
        """Is any client on its way, in either direction?"""
        unsettled = any(not settling.told for settling in self._settling.values())
        return bool(self._guests or self.claimed or self._departing or unsettled)

    def owns(self, entity: int) -> bool:
        """Has this client gone from here a moment ago? Others may not know yet where it is."""
        return any(one.passed.entity == entity for one in self._departing.values())

    def _look(self, now: Time) -> None:
        away: dict[int, tuple[NodeId, Time]] = {}
        begun = 0
        for session in list(self._gateway.sessions):
            client = session.client
            if client is None or session.paused or session.closing:
                continue
            if client.entities:  # who speaks for others stays, and comes back when the node stops
                continue
            to = self._belongs(now, client)
            if to is None:
                continue
            before = self._away.get(client.entity)
            since = before[1] if before is not None and before[0] == to else now
            away[client.entity] = to, since
            due = self._clearing or now - since >= AWAY
            if due and client.entity not in self._tried and begun < AT_ONCE:
                begun += 1
                self._tried[client.entity] = now
                ticket = token_urlsafe(24)
                self._offers[ticket] = OfferedClient(session, client, to, now + VALID)
                self._send(to, HandoverOffer(ticket, session.grant.holder if session.grant else ""))
        self._away = away

    def _belongs(self, now: Time, client: ClientState) -> NodeId | None:
        """Where the client should be, if not here."""
        member = self._member
        owner = None
        for number in sorted(client.subscriptions):
            active = client.subscriptions[number]
            if has_bounded_area(active) and active.handovers < MOST_HOMES:
                owner = member.registry.owner(active.subscription.id)
                if self._clearing and owner == member.id:
                    x, y, *_ = leg(active.subscription.region, now)[0]
                    owner = member.site.heir((x, y))
                break
        if owner is not None and owner != member.id and owner in member.nodes:
            return owner
        if not self._clearing or not member.nodes:
            return None
        return min(member.nodes, key=lambda node: member.nodes[node].load)

    def on(self, said: Message, sender: NodeId) -> None:
        now = self._gateway.now()
        match said:
            case HandoverOffer(ticket, holder):
                if not self._member.stopping:
                    self._guests[ticket] = ExpectedClient(sender, now + VALID, holder)
                    self._send(sender, HandoverAccepted(ticket))
            case HandoverAccepted(ticket):
                offer = self._offers.get(ticket)
                known = self._member.nodes.get(sender)
                if offer is not None and known is not None and offer.to == sender:
                    offer.session.send(messages.MovedNotice(known.url, ticket))
            case HandoverClaim(ticket):
                offer = self._offers.pop(ticket, None)
                if offer is None or offer.to != sender or not offer.stands:
                    self._send(sender, HandoverCancelled(ticket))
                else:
                    self.claimed[ticket] = offer
            case ClientTransfer():
                self._on_passed(now, said, sender)
            case HandoverConfirmed(ticket, settled):
                self._on_taken(now, ticket, settled)
            case HandoverCancelled(ticket):
                self._on_void(now, ticket)
            case ClientReturned(transfer, obeyed):
                self._on_returned(now, transfer, obeyed)
            case ForwardedRequest(entity, frame, packed):
                self._on_spoke(entity, frame, packed)

    def let_go(self, now: Time) -> None:
        """Nothing waits: what was said until now has been told here, the rest is told there."""
        claimed, self.claimed = self.claimed, {}
        for ticket, offer in claimed.items():
            if self._member.realm.publishes(offer.client):
                self.claimed[ticket] = offer  # it goes once all that it has said is heard
            elif offer.stands:
                passed = self._depart(now, ticket, offer)
                self._send(offer.to, passed)
                until = now + TAKE_BACK
                self._departing[ticket] = DepartingClient(offer.session, offer.to, passed, until)
            else:
                self._send(offer.to, HandoverCancelled(ticket))

    def _depart(self, now: Time, ticket: str, offer: OfferedClient) -> ClientTransfer:
        """This node does not serve it any more. Gives all that it has."""
        gateway, member, client = self._gateway, self._member, offer.client
        earlier = member.realm.earlier_deliveries.get(client.slot)  # on the node before
        before = earlier.publications if earlier is not None else frozenset()
        had = (*before, *member.history.delivered_to(client.entity))
        states = tuple(
            remote_publication(state.accepted, state.t) for state in member.realm.states(client)
        )
        subscriptions = tuple(
            _to_transfer(active, member.history.versions.of(active.slot, now - SEARCHED))
            for active in client.subscriptions.values()
        )
        gateway.detach(offer.session)
        member.routing.send_recent_to(client.entity, offer.to)
        member.realm.depart(now, client, offer.to)
        for sat in subscriptions:
            for was in _versions(sat):
                member.remote_subscriptions.moved(now, offer.to, was)
            member.registry.depart(now, sat.subscription.id)
        offer.session.elsewhere = client.entity, offer.to
        departed = member.realm.now
        return ClientTransfer(
            ticket, client.entity, client.name, subscriptions, states, had, departed
        )

    def _on_taken(self, now: Time, ticket: str, settled: bool) -> None:
        unanswered = self._unanswered.pop(ticket, None)
        if unanswered is not None:
            offer = unanswered[0]
            if offer.session.client is offer.client:
                self._depart(now, ticket, offer)
                offer.session.end(ELSEWHERE, CloseCode.GOING_AWAY)
            return
        departing = self._departing.get(ticket)
        if departing is None:
            return
        departing.taken, departing.until = True, now + UNSETTLED
        if settled:
            del self._departing[ticket]
            departing.session.end(ELSEWHERE, CloseCode.GOING_AWAY)

    def _on_void(self, now: Time, ticket: str) -> None:
        self._offers.pop(ticket, None)
        self.claimed.pop(ticket, None)
        self._turn_away(ticket)
        departing = self._departing.pop(ticket, None)
        if departing is not None:
            self._take_back(now, departing, departing.passed)

    def _on_returned(self, now: Time, transfer: ClientTransfer, obeyed: int) -> None:
        departing = self._departing.pop(transfer.ticket, None)
        if departing is None:
            if transfer.ticket in self._unanswered:
                return  # it is here already
            # Its connection here has ended meanwhile, so it leaves.
            client = self._arrive(now, transfer, messages.MSGPACK)
            self._member.realm.leave(now, client)
            return
        client = self._take_back(now, departing, transfer, obeyed)
        self._member.send_states([client])  # the others were told that it is there

    def _take_back_unanswered(self, now: Time, ticket: str, departing: DepartingClient) -> None:
        client = self._take_back(now, departing, departing.passed)
        offer = OfferedClient(departing.session, client, departing.to, now)
        self._unanswered[ticket] = offer, now + UNSETTLED

    def _take_back(
        self, now: Time, departing: DepartingClient, came: ClientTransfer, obeyed: int = 0
    ) -> ClientState:
        """It is served here again, on the connection that it has kept."""
        session = departing.session
        if came is departing.passed:  # no other node has told of its subscriptions
            subscriptions = tuple(replace(s, handovers=s.handovers - 1) for s in came.subscriptions)
            came = replace(came, subscriptions=subscriptions)
        client = self._arrive(now, came, session.encoding or messages.JSON)
        if session.closing:
            self._member.realm.leave(now, client)
            return client
        session.elsewhere = None
        self._gateway.attach(client, session)
        self._begin(now, session, client, came)
        for frame, packed in departing.spoken[obeyed:]:
            self._gateway.read(session, frame, packed)
        return client

    def spoke(self, session: "Session", frame: bytes, packed: bool) -> None:
        """A client that has gone said this to its old home."""
        assert session.elsewhere is not None
        entity, home = session.elsewhere
        form = encoding_of(packed)
        try:
            leaves = form.message_class(form.read_request(frame)) in (
                messages.LeaveRequest,
                messages.JoinRequest,
            )
        except MalformedMessageError:
            leaves = False  # the new home will say what is wrong with it
        departing = [one for one in self._departing.values() if one.session is session]
        if leaves:
            if any(not one.taken for one in departing):
                session.end("you left", CloseCode.NORMAL)
            return
        for one in departing:
            if len(one.spoken) >= MOST_SPOKEN:
                session.send(
                    messages.ErrorNotice("too many requests while another node takes over")
                )
                return
            one.spoken.append((frame, packed))
        self._send(home, ForwardedRequest(entity, frame, packed))

    # At the new home.

    def claim(self, session: "Session", word: Any) -> None:
        """Somebody has come with a ticket: its old home must let it go."""
        guest = self._guests.get(word.ticket)
        if guest is None or guest.session is not None:
            raise Refused("this ticket is not valid, or not any more")
        if session.grant is None or session.grant.holder != guest.holder:
            raise Refused("this ticket belongs to the holder of another token")
        guest.session, guest.join = session, word
        guest.until = self._gateway.now() + ANSWERED
        self._send(guest.home, HandoverClaim(word.ticket))

    def _turn_away(self, ticket: str) -> None:
        guest = self._guests.pop(ticket, None)
        if guest is not None and guest.session is not None:
            guest.session.send(
                messages.ErrorNotice("your former node does not answer", guest.join.id)
            )
            guest.session.end("join as everybody does")

    def _on_passed(self, now: Time, came: ClientTransfer, sender: NodeId) -> None:
        guest = self._guests.get(came.ticket)
        if guest is not None and guest.home != sender:
            return
        session = guest.session if guest is not None else None
        if guest is None or session is None or session.closing or guest.until < now:
            self._turn_away(came.ticket)
            self._send(sender, HandoverCancelled(came.ticket))
            return
        del self._guests[came.ticket]
        client = self._arrive(now, came, session.encoding or messages.JSON)
        self._member.send_states([client])
        self._gateway.welcome(session, client, guest.join.id)
        if not self._gateway.check_subscriptions(session):
            # Its token is a newer one, which allows less, and it has been ended here.
            self._send(sender, HandoverConfirmed(came.ticket, settled=True))
            return
        self._seated[client.entity] = session
        self._begin(now, session, client, came)
        self._settling[came.ticket] = SettlingClient(session, sender, came, now + SETTLED)
        self._send(sender, HandoverConfirmed(came.ticket, settled=False))

    def _arrive(self, now: Time, came: ClientTransfer, form: messages.Encoding) -> ClientState:
        """A seat with all that it had on another node."""
        realm = self._member.realm
        subscriptions = [_from_transfer(sat) for sat in came.subscriptions]
        versions = [sat.earlier for sat in came.subscriptions]
        client = realm.arrive(
            now, came.entity, came.name, form, subscriptions, versions, came.departed
        )
        for said in came.states:
            state = publish_request(said), encoding_of(said.packed), said.id, said.t
            realm.restore(client, *state)
        return client

    def _begin(
        self, now: Time, session: "Session", client: ClientState, came: ClientTransfer
    ) -> None:
        """It is served from now on: what it has missed is told next, and who is there at once."""
        realm = self._member.realm
        realm.earlier_deliveries[client.slot] = EarlierDeliveries(
            came.departed - LATE, came.departed, frozenset(came.delivered), now + HAD
        )
        self._tried[client.entity] = now  # it stays for a while, wherever borders go
        wanted = [(sat.number, was) for sat in came.subscriptions for was in _versions(sat)]
        self._late.append((session, client, came.departed - SEARCHED, wanted))
        watching = [sat.number for sat in came.subscriptions if sat.watches]
        for notice in realm.watch_again(client, watching):
            session.send(notice)

    def _on_spoke(self, entity: int, frame: bytes, packed: bool) -> None:
        session = self._seated.get(entity)
        if session is not None and session.client is not None:
            for settling in self._settling.values():
                settling.obeyed += settling.session is session
            self._gateway.read(session, frame, packed)

    def give_back(self, session: "Session") -> None:
        """It is about to end. If the client hung up right after it was taken in, it may still be
        connected to its old home, and believe that nothing has changed."""
        found = [s for s in self._settling.values() if s.session is session and not s.told]
        if not found or session.client is None:
            return
        settling = found[0]
        ticket, home, came = settling.came.ticket, settling.home, settling.came
        del self._settling[ticket]
        if not session.closing or home not in self._member.nodes:  # it was ended here, or left
            self._send(home, HandoverConfirmed(ticket, settled=True))
            return
        now = self._gateway.now()
        returned = self._depart(now, ticket, OfferedClient(session, session.client, home, now))
        # What it was told here has not reached it.
        returned = replace(returned, delivered=came.delivered, departed=came.departed)
        self._send(home, ClientReturned(returned, settling.obeyed))

    def catch_up(self, passed: Sequence[PastFlush]) -> None:
        """What has passed here lately, and has not reached those who came on their old nodes."""
        late, self._late = self._late, []
        late = [one for one in late if one[0].client is one[1]]
        said = join_flushes(passed, min(since for _, _, since, _ in late)) if late else None
        if said is None:
            return
        matcher = MATCHERS["keyed"]()
        for number, was in enumerate(was for one in late for _, was in one[3]):
            matcher.put(replace(was.subscription, id=number))
        found = matcher.match_many(said.publications)
        made = said.publications.t[found.publication]
        order = np.lexsort((found.subscription, said.ids[found.publication], made))
        index, place = found.publication[order], found.subscription[order]
        first = 0
        for session, client, since, wanted in late:
            last = first + len(wanted)
            mine = (place >= first) & (place < last)
            self._tell_late(session, client, since, wanted, said, index[mine], place[mine] - first)
            first = last

    def _tell_late(
        self, session: "Session", client: ClientState, since: Time, wanted: list[tuple[int,
        SubscriptionVersion]],
        said: JoinedFlushes, index: Integers, place: Integers,
    ) -> None:  # fmt: skip
        """Pairs of publication and what was wanted: those that it has not had yet."""
        realm = self._member.realm
        had = realm.earlier_deliveries.get(client.slot)
        if had is None:
            return
        spans = np.array([(was.since, was.until) for _, was in wanted], np.int64).reshape(-1, 2)
        began, ended = spans[place].T
        t = said.publications.t[index]
        new = (t >= np.maximum(began, since)) & (t < ended)
        new &= ~np.isin(said.ids[index], np.fromiter(had.publications, np.int64))
        hears: dict[int, list[tuple[int, SubscriptionVersion]]] = {}
        for one, which in zip(index[new].tolist(), place[new].tolist(), strict=True):
            hears.setdefault(one, []).append(wanted[which])
        for one, several in hears.items():
            passed, which = said.locate(one)
            accepted = passed.accepted[which]
            numbers = [number for number, _ in several]
            session.write(message_frame(accepted, accepted.t or passed.t, client.form, numbers))
            ids = tuple(was.subscription.id for _, was in several)
            self._gateway.record_delivery(client, accepted.id, ids)
        told = frozenset(said.ids[list(hears)].tolist())
        realm.earlier_deliveries[client.slot] = replace(had, publications=had.publications | told)


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
        active.watch is not None, active.linger, active.handovers, tuple(versions),
    )  # fmt: skip


def _versions(sat: TransferredSubscription) -> tuple[SubscriptionVersion, ...]:
    return *sat.earlier, SubscriptionVersion(sat.subscription, sat.since, FOREVER)


def _from_transfer(sat: TransferredSubscription) -> ActiveSubscription:
    return ActiveSubscription(
        -1, sat.number, sat.since, sat.asked, sat.subscription, sat.throttle_options,
        linger=sat.linger, handovers=sat.handovers,
    )  # fmt: skip
