"""Clients change nodes: each is brought to the node that owns its anchor, and loses nothing.

The anchor is the client's lowest-numbered subscription with a bounded area. The old home asks the
owner to expect somebody, tells the client where to go, and serves on. When the client has shown its
ticket there, the new home claims it; only then the old one lets go, all at one moment: it tells the
new home all that the client has and has been told in the last seconds, and passes on whatever still
comes for it or from it. What the new home finds among its own last publications, the client is told
at once. A ticket that nobody uses is void, and all stays as it was.
"""

from collections.abc import Callable, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nearcast.live import words
from nearcast.live.admission import Refused
from nearcast.live.cluster.lately import LATE, SEARCHED, Had, Recent, Was, recent
from nearcast.live.cluster.lately import Passed as PassedHere
from nearcast.live.cluster.messages import (
    Arrive,
    Claim,
    Expect,
    Passed,
    Sat,
    Spoke,
    Void,
)
from nearcast.live.cluster.post import form_of, request_of, uttered
from nearcast.live.frames import message
from nearcast.live.seats import Seat, Standing
from nearcast.live.sessions import Session
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Integers
from nearcast.model.subscription import Formula, NodeId
from nearcast.node import Message
from nearcast.protocols.voronoi.records import leg
from nearcast.space.motion import FOREVER, SECOND, Path, Time

if TYPE_CHECKING:
    from nearcast.live.cluster.member import Member

AWAY: Time = SECOND  # for so long the owner is another node before a client is sent there
REST: Time = 5 * SECOND  # between two attempts with one client
VALID: Time = 10 * SECOND
ANSWERED: Time = 3 * SECOND
LOOK_EVERY: Time = SECOND // 2
AT_ONCE = 64  # clients sent away at one look
HAD: Time = 5 * SECOND
LINGER_S = 1.0  # the old connection stays open for late words
MOST_HOMES = 250


class Offer(Struct):
    """At the old home: a client that may go."""

    session: Session
    seat: Seat
    to: NodeId
    until: Time


class Guest(Struct):
    """At the new home: somebody who may come; with its session, once it has."""

    home: NodeId
    until: Time
    session: Session | None = None
    join: Any = None


class Passages:
    def __init__(self, member: "Member", send: Callable[[NodeId, Message], None]) -> None:
        self._member, self._gateway, self._send = member, member.gateway, send
        self._offers: dict[str, Offer] = {}
        self._guests: dict[str, Guest] = {}
        self._away: dict[int, tuple[NodeId, Time]] = {}  # by entity: whose it is, and since when
        self._tried: dict[int, Time] = {}
        self._seated: dict[int, Session] = {}  # who has come this way, by entity
        # Who has come, from when on it must be told what has passed here without it, and what it
        # wanted when it came, which may have changed since.
        self._late: list[tuple[Session, Seat, Time, list[tuple[int, Was]]]] = []
        self.claimed: dict[str, Offer] = {}  # clients that go as soon as nothing waits for them
        self._looked: Time = 0
        self._clearing = False

    # At the old home.

    def tick(self, now: Time) -> None:
        for ticket, offer in list(self._offers.items()):
            if offer.until < now or offer.session.seat is not offer.seat:
                del self._offers[ticket]
        for ticket, guest in list(self._guests.items()):
            if guest.until < now:
                self._turn_away(ticket)
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look(now)
            self._seated = {e: s for e, s in self._seated.items() if s.seat is not None}
            self._tried = {e: t for e, t in self._tried.items() if now - t < REST}

    def clear_out(self) -> None:
        """This node stops: all clients go elsewhere."""
        self._clearing = True
        self._tried.clear()

    @property
    def all_gone(self) -> bool:
        return not any(session.seat is not None for session in self._gateway.open)

    def _look(self, now: Time) -> None:
        away: dict[int, tuple[NodeId, Time]] = {}
        begun = 0
        for session in list(self._gateway.open):
            seat = session.seat
            if seat is None or session.paused or session.closing:
                continue
            to = self._belongs(now, seat)
            if to is None:
                continue
            before = self._away.get(seat.entity)
            since = before[1] if before is not None and before[0] == to else now
            away[seat.entity] = to, since
            due = self._clearing or now - since >= AWAY
            if due and seat.entity not in self._tried and begun < AT_ONCE:
                begun += 1
                self._tried[seat.entity] = now
                ticket = token_urlsafe(24)
                self._offers[ticket] = Offer(session, seat, to, now + VALID)
                self._send(to, Arrive(ticket))
        self._away = away

    def _belongs(self, now: Time, seat: Seat) -> NodeId | None:
        """Where the client should be, if not here."""
        member = self._member
        owner = None
        for number in sorted(seat.subscriptions):
            standing = seat.subscriptions[number]
            if is_bounded(standing) and standing.homes < MOST_HOMES:
                owner = member.holdings.owner(standing.subscription.id)
                if self._clearing and owner == member.id:
                    x, y, *_ = leg(standing.subscription.region, now)[0]
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
            case Arrive(ticket):
                if not self._member.stopping:
                    self._guests[ticket] = Guest(sender, now + VALID)
                    self._send(sender, Expect(ticket))
            case Expect(ticket):
                offer = self._offers.get(ticket)
                known = self._member.nodes.get(sender)
                if offer is not None and known is not None and offer.to == sender:
                    offer.session.send(words.Moved(known.url, ticket))
            case Claim(ticket):
                offer = self._offers.pop(ticket, None)
                if offer is None or offer.to != sender or offer.session.seat is not offer.seat:
                    self._send(sender, Void(ticket))
                else:
                    self.claimed[ticket] = offer
            case Passed():
                guest = self._guests.pop(said.ticket, None)
                if guest is not None and guest.home == sender:
                    self._take_in(now, guest, said)
            case Void(ticket):
                self._turn_away(ticket)
            case Spoke(entity, frame, packed):
                session = self._seated.get(entity)
                if session is not None and session.seat is not None:
                    self._gateway.read(session, frame, packed)

    def let_go(self, now: Time) -> None:
        """Nothing waits: what was said until now has been told here, the rest is told there."""
        claimed, self.claimed = self.claimed, {}
        for ticket, offer in claimed.items():
            if self._member.realm.publishes(offer.seat):
                self.claimed[ticket] = offer  # it goes once all that it has said is heard
            elif offer.session.seat is offer.seat:
                self._let_go(now, ticket, offer)
            else:
                self._send(offer.to, Void(ticket))

    def _let_go(self, now: Time, ticket: str, offer: Offer) -> None:
        gateway, member, seat = self._gateway, self._member, offer.seat
        earlier = member.realm.had.get(seat.place)  # on the node before
        before = earlier.publications if earlier is not None else frozenset()
        had = (*before, *member.lately.heard_by(seat.entity))
        states = tuple(uttered(state.accepted, state.t) for state in member.realm.retained(seat))
        subscriptions = tuple(
            _sat(standing, member.lately.former.of(standing.place, now - SEARCHED))
            for standing in seat.subscriptions.values()
        )
        gateway.release(offer.session)
        member.post.hand_over(seat.entity, offer.to)
        member.realm.depart(now, seat, offer.to)
        departed = member.realm.now
        self._send(
            offer.to,
            Passed(ticket, seat.entity, seat.name, subscriptions, states, had, departed),
        )
        for sat in subscriptions:
            for was in _versions(sat):
                member.abroad.moved(now, offer.to, was)
            member.holdings.depart(now, sat.subscription.id)
        offer.session.elsewhere = seat.entity, offer.to
        gateway.loop.call_later(LINGER_S, offer.session.end, "another node serves you now")

    def spoke(self, session: Session, frame: bytes, packed: bool) -> None:
        """A client that has gone said this to its old home."""
        assert session.elsewhere is not None
        entity, home = session.elsewhere
        form = form_of(packed)
        try:
            leaves = form.kind(form.request(frame)) in (words.Leave, words.Join)
        except words.WordError:
            leaves = False  # the new home will say what is wrong with it
        if not leaves:
            self._send(home, Spoke(entity, frame, packed))

    # At the new home.

    def claim(self, session: Session, word: Any) -> None:
        """Somebody has come with a ticket: its old home must let it go."""
        guest = self._guests.get(word.ticket)
        if guest is None or guest.session is not None:
            raise Refused("this ticket is not valid, or not any more")
        guest.session, guest.join = session, word
        guest.until = self._gateway.now() + ANSWERED
        self._send(guest.home, Claim(word.ticket))

    def _turn_away(self, ticket: str) -> None:
        guest = self._guests.pop(ticket, None)
        if guest is not None and guest.session is not None:
            guest.session.send(words.Error("your former node does not answer", guest.join.id))
            guest.session.end("join as everybody does")

    def _take_in(self, now: Time, guest: Guest, came: Passed) -> None:
        gateway, session = self._gateway, guest.session
        realm, form = self._member.realm, (session.form if session else None) or words.JSON
        standings = [_standing(sat) for sat in came.subscriptions]
        former = [sat.former for sat in came.subscriptions]
        seat = realm.arrive(now, came.entity, came.name, form, standings, former, came.departed)
        for said in came.states:
            state = request_of(said), form_of(said.packed), said.id, said.t
            realm.restore(seat, *state)
        if session is None or session.closing:
            realm.leave(now, seat)
            return
        self._member.tell_states([seat])
        realm.had[seat.place] = Had(
            came.departed - LATE, came.departed, frozenset(came.had), now + HAD
        )
        gateway.welcome(session, seat, guest.join.id)
        self._seated[seat.entity] = session
        self._tried[seat.entity] = now  # it stays for a while, wherever borders go
        wanted = [(sat.number, was) for sat in came.subscriptions for was in _versions(sat)]
        self._late.append((session, seat, came.departed - SEARCHED, wanted))
        watching = [sat.number for sat in came.subscriptions if sat.watches]
        for notice in realm.watch_again(seat, watching):
            session.send(notice)

    def catch_up(self, passed: Sequence[PassedHere]) -> None:
        """What has passed here lately, and has not reached those who came on their old nodes."""
        late, self._late = self._late, []
        late = [one for one in late if one[0].seat is one[1]]
        said = recent(passed, min(since for _, _, since, _ in late)) if late else None
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
        for session, seat, since, wanted in late:
            last = first + len(wanted)
            mine = (place >= first) & (place < last)
            self._tell_late(session, seat, since, wanted, said, index[mine], place[mine] - first)
            first = last

    def _tell_late(
        self, session: Session, seat: Seat, since: Time, wanted: list[tuple[int, Was]],
        said: Recent, index: Integers, place: Integers,
    ) -> None:  # fmt: skip
        """Pairs of publication and what was wanted: those that it has not had yet."""
        realm = self._member.realm
        had = realm.had.get(seat.place)
        if had is None:
            return
        spans = np.array([(was.since, was.until) for _, was in wanted], np.int64).reshape(-1, 2)
        began, ended = spans[place].T
        t = said.publications.t[index]
        new = (t >= np.maximum(began, since)) & (t < ended)
        new &= ~np.isin(said.ids[index], np.fromiter(had.publications, np.int64))
        hears: dict[int, list[tuple[int, Was]]] = {}
        for one, which in zip(index[new].tolist(), place[new].tolist(), strict=True):
            hears.setdefault(one, []).append(wanted[which])
        for one, several in hears.items():
            passed, which = said.place(one)
            accepted = passed.accepted[which]
            numbers = [number for number, _ in several]
            session.write(message(accepted, accepted.t or passed.t, seat.form, numbers))
            ids = tuple(was.subscription.id for _, was in several)
            self._gateway.caught_up(seat, accepted.id, ids)
        told = frozenset(said.ids[list(hears)].tolist())
        realm.had[seat.place] = replace(had, publications=had.publications | told)


def is_bounded(standing: Standing) -> bool:
    region = standing.subscription.region
    if isinstance(region, Formula):
        return False
    shape = region.legs[0].shape if isinstance(region, Path) else region.shape
    return max(shape.rx, shape.ry) < 1e29


def _sat(standing: Standing, former: list[Was]) -> Sat:
    return Sat(
        standing.number, standing.since, standing.asked, standing.subscription, standing.wish,
        standing.watch is not None, standing.linger, standing.homes, tuple(former),
    )  # fmt: skip


def _versions(sat: Sat) -> tuple[Was, ...]:
    return *sat.former, Was(sat.subscription, sat.since, FOREVER)


def _standing(sat: Sat) -> Standing:
    return Standing(
        -1, sat.number, sat.since, sat.asked, sat.subscription, sat.wish,
        linger=sat.linger, homes=sat.homes,
    )  # fmt: skip
