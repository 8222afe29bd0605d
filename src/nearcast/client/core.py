"""What a client decides, whatever carries its bytes: a client core decides, a host does.

It has neither clock nor socket nor tasks. A host calls its inputs, and each returns all the effects
that it caused, in order (`client.effects`); a test is one `assert core.received(...) == [...]`. The
asyncio host is `client.client`. The phases of a client:

    NEW ─▶ OPENING ─welcomed─▶ SERVED ─lost─▶ PAUSING ─▶ TRYING ─welcomed─▶ RESTORING ─▶ SERVED
              │                ▲   │             ▲         │ all were tried       │
              │ refused, lost  │ moved           └─────────┴──────────────────────┘ lost
              ▼                │   ▼
            ENDED           HANDED_OVER: joins another node while the present one serves

While it is not SERVED, requests wait. `docs/reference/wire.md` says what a client should do.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from itertools import count
from random import Random
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, replace

from nearcast.client.effects import (
    AnswerDue,
    Answered,
    Ask,
    Changed,
    ClientEffect,
    ClientParameters,
    Connect,
    Disconnect,
    Ended,
    Failed,
    FormerNodeDue,
    HoldBackDue,
    JoinDue,
    RetryDue,
    ServedAgain,
    SubscriptionEnded,
    Told,
    Welcomed,
)
from nearcast.client.message_order import MessageOrder
from nearcast.client.pending_requests import PendingRequest, PendingRequests, Purpose
from nearcast.client.published_states import PublishedStates, retains
from nearcast.client.received import Change, Disconnected, Entity, FenceEvent, HandedOver
from nearcast.client.subscription_state import SubscriptionState
from nearcast.client_protocol import messages as wire
from nearcast.client_protocol.close_codes import ABNORMAL, CloseCode
from nearcast.client_protocol.geometry_json import EARTH, PLANE, Geometry
from nearcast.errors import ClosedError, Refused
from nearcast.model.subscription import Region
from nearcast.node import ClearTimer, SetTimer, Timer
from nearcast.space.earth_shapes import great_circle_path
from nearcast.space.motion import Path, Time, path
from nearcast.space.outlines import BALL, WHOLE
from nearcast.space.shapes import EVERYWHERE


class Phase(Enum):
    """What a client is doing."""

    NEW = auto()
    OPENING = auto()  # it joins its first node
    SERVED = auto()
    HANDED_OVER = auto()  # it joins another node; the present one serves it until then
    PAUSING = auto()  # it has lost its connection, and waits before it tries again
    TRYING = auto()  # it joins a node again
    RESTORING = auto()  # it was welcomed again, and subscribes and publishes its states again
    ENDED = auto()


class _Connection(Struct, eq=False):
    """A connection to a node, from the wish to have it on."""

    number: int
    url: str | None  # None: the address that the application gave
    ticket: str = ""  # to be handed over
    token: str | None = None  # None until it is open
    join_sent: bool = False
    join_timed: bool = False  # is its JoinDue set?
    clock_offset: Time | None = None  # the node's clock minus ours, the largest seen
    bye: str = ""  # why the node will end it
    closed: ClosedError | None = None  # why it has ended


class ClientCore:
    """What a client knows and decides: its connections, requests, subscriptions and states.

    `reconnects`: it repairs a lost connection. `changes_nodes`: it can connect to other addresses
    than its first, so it follows a handover, and tries other nodes when its own fails.
    """

    def __init__(
        self,
        name: str,
        rng: Random,
        *,
        reconnects: bool = True,
        changes_nodes: bool = True,
        encoding: wire.Encoding = wire.MSGPACK,
        parameters: ClientParameters = ClientParameters(),  # noqa: B008 (it is frozen)
    ) -> None:
        self.name = name
        self.entity = -1  # until a node has welcomed us
        self.node = ""  # the name of the node that serves us
        self.nodes: list[str] = []  # addresses of other nodes of the cluster, as far as known
        self.limits: dict[str, float] = {}
        self.geometry: Geometry = PLANE  # of the world that the node serves
        self.phase = Phase.NEW
        # The connection to the node that serves us; None while requests wait. A publication that
        # needs no answer may be sent there without asking the core: see `published`.
        self.serving: int | None = None
        self.subscriptions: dict[int, SubscriptionState] = {}  # by number
        self._rng, self._parameters = rng, parameters
        self._reconnects, self._changes_nodes = reconnects, changes_nodes
        self._now: Time = 0
        self._out: list[ClientEffect] = []
        self._connection_numbers, self._request_numbers = count(1), count(1)
        self._subscription_numbers = count(1)
        self._end_error: Exception | None = None
        self._connections: dict[int, _Connection] = {}  # those that are open or being opened
        self._current: _Connection | None = None  # to the node that serves us, or did last
        self._joining: _Connection | None = None  # to the node that shall welcome us
        self._requests = PendingRequests()
        self._answer_timer_set = False
        self.states = PublishedStates()
        # Reconnecting.
        self._lost_at: Time = 0
        self._pause: Time = 0
        self._untried: list[str | None] = []  # addresses
        self._tried = 0  # of this round: how many in all
        self._refusals: list[Refused] = []  # of joins of this round
        self._refused: list[int] = []  # subscriptions, since the connection was lost
        self._order = MessageOrder(encoding, self.subscriptions)
        # What `received` does with a message, for hosts that receive many: message(connection,
        # notice), of a connection that is open.
        self.message = self._order.message

    # Inputs: the application.

    def open(self, now: Time) -> list[ClientEffect]:
        """Connect and join. `Welcomed` or `Ended` follows: only later losses are repaired."""
        self._advance(now)
        if self.phase is Phase.NEW:
            self._enter(Phase.OPENING)
            self._connect(None)
        elif self.phase is Phase.ENDED:
            self._out.append(Ended(self._end_error))
        return self._drain()

    def request(
        self, now: Time, request: wire.Request, confirm: bool = True
    ) -> tuple[int, list[ClientEffect]]:
        """Send a request without an id as soon as a node serves us. Returns its number, under which
        `Answered` or `Failed` follows."""
        return self._ask(now, PendingRequest(request, confirm=confirm))

    def subscribe(
        self, now: Time, request: wire.SubscribeRequest, region: Region | str,
        follows_client: bool = False,
    ) -> tuple[int, SubscriptionState, list[ClientEffect]]:  # fmt: skip
        """Subscribe to this region; the core chooses the number of the subscription.

        It is answered when the node has accepted it and, if it watches or is a fence, said who is
        inside.
        `follows_client`: it is among the `walks`.
        """
        request = replace(request, subscription=next(self._subscription_numbers))
        state = SubscriptionState(request, region)
        pending = PendingRequest(request, state=state, region=region, follows_client=follows_client)
        number, effects = self._ask(now, pending)
        return number, state, effects

    def move(
        self, now: Time, request: wire.MoveRequest, region: Region | str,
        follows_client: bool = False,
    ) -> tuple[int, list[ClientEffect]]:  # fmt: skip
        """Give a subscription this region, which is that of the request."""
        return self._ask(now, PendingRequest(request, region=region, follows_client=follows_client))

    def abandon(self, now: Time, number: int) -> list[ClientEffect]:
        """Nobody waits for this request any more. If it was sent, the node may obey it."""
        self._advance(now)
        pending = self._requests.take(number)
        if pending is not None and pending.state is not None:
            self.subscriptions.pop(pending.state.number, None)
        if pending is not None and pending.connection:
            self._took_effect(number, pending.request)
        self._join_if_answered()
        return self._drain()

    def published(self, request: wire.PublishRequest) -> None:
        """A host has sent this to the node that serves us, without confirmation."""
        self._took_effect(next(self._request_numbers), request)

    def close(self, now: Time) -> list[ClientEffect]:
        """Leave the node, and end."""
        self._advance(now)
        if self.phase is not Phase.ENDED:
            if self._current is not None and self._current.closed is None:
                self._out.append(Ask(self._current.number, wire.LeaveRequest(), 0))
            self._end(None, ConnectionError("this client has left"))
        return self._drain()

    # Inputs: connections and timers.

    def connected(self, now: Time, connection: int, token: str = "") -> list[ClientEffect]:
        """It is open, and the node lets in who has this token."""
        self._advance(now)
        found = self._connections.get(connection)
        if found is not None:
            found.token = token
            self._join_if_answered()
        return self._drain()

    def connect_failed(self, now: Time, connection: int, why: Exception) -> list[ClientEffect]:
        self._advance(now)
        found = self._connections.pop(connection, None)
        if found is not None:
            self._join_failed(found, why)
        return self._drain()

    def lost(
        self, now: Time, connection: int, reason: str = "", code: int = ABNORMAL
    ) -> list[ClientEffect]:
        """It has ended, but not by `Disconnect`. `code`: its WebSocket close code."""
        self._advance(now)
        found = self._connections.pop(connection, None)
        if found is not None:
            found.closed = ClosedError(found.bye or reason or "the connection is lost", code)
            for number, pending in self._requests.take_sent_on(found.number):
                if pending.purpose is Purpose.APPLICATION:
                    self._took_effect(number, pending.request)
                    if retains(pending.request):  # and a node that takes us over may not know it
                        self.states.mark_missing(pending.request)
                    self._fail(number, pending, found.closed)
            if found.number == self._order.former:
                self._out += self._order.release()
            if found is self._joining:
                self._join_failed(found, found.closed)
            elif found is self._current:
                self._current_lost(found.closed)
        return self._drain()

    def not_sent(self, now: Time, number: int, why: Exception) -> list[ClientEffect]:
        """The host could not send the request of this number."""
        self._advance(now)
        pending = self._requests.sent.pop(number, None)
        if pending is not None:
            self._fail(number, pending, why)
        return self._drain()

    def wake(self, now: Time, timer: Timer) -> list[ClientEffect]:
        """A timer is due. One that has lost its meaning does nothing."""
        self._advance(now)
        match timer:
            case AnswerDue():
                self._answers_due()
            case RetryDue() if self.phase is Phase.PAUSING:
                self._retry()
            case JoinDue(connection) if self._is_joining(connection):
                why = ConnectionError("the node does not answer")
                self._join_failed(self._connections[connection], why)
            case HoldBackDue(connection) if connection == self._order.former:
                self._out += self._order.release()
            case FormerNodeDue(connection) if connection in self._connections:
                self._disconnect(self._connections[connection])
        return self._drain()

    def received(
        self, now: Time, connection: int, kind: type[Struct], notice: Any
    ) -> list[ClientEffect]:
        """A notice of a node. `kind` is its declared class, whatever its encoding was."""
        self._advance(now)
        found = self._connections.get(connection)
        if found is not None:
            _HANDLERS[kind](self, found, kind, notice)
        return self._drain()

    # Queries, which change nothing.

    @property
    def connection(self) -> int | None:
        """That to the node that serves us, or did last."""
        return None if self._current is None else self._current.number

    def entity_of(self, state: wire.EntityState) -> Entity:
        """An entity of an answer, as the application sees it."""
        return self._order.entity(state)

    def node_time(self, now: Time) -> Time:
        """The node's clock as estimated here, in microseconds of Unix time."""
        return now + ((self._current and self._current.clock_offset) or 0)

    def walks(self, now: Time, place: Sequence[float], speed: float) -> list[tuple[int, Path]]:
        """Subscriptions that follow the client, and the paths that take them to `place`."""
        t = self.node_time(now)
        walks = []
        for number, state in self.subscriptions.items():
            here = state.where(t)
            if not state.follows_client or here is None or here == EVERYWHERE:
                continue
            if self.geometry == EARTH:
                if here.outline is None or here.outline.form in (WHOLE, BALL):
                    walks.append((number, great_circle_path(here, [place], speed)))
            else:
                x, y, z = (*place, here.z)[:3]
                walks.append((number, path(here, [(x, y, z)], speed)))
        return walks

    def _advance(self, now: Time) -> None:
        assert now >= self._now, f"time ran back from {self._now} to {now}"
        self._now = now

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        served = self._current if phase is Phase.SERVED else None
        self.serving = None if served is None else served.number

    def _drain(self) -> list[ClientEffect]:
        effects, self._out = self._out, []
        return effects

    # Requests and answers.

    def _ask(self, now: Time, pending: PendingRequest) -> tuple[int, list[ClientEffect]]:
        self._advance(now)
        number = next(self._request_numbers)
        if self._end_error is not None:
            self._out.append(Failed(number, self._end_error))
        elif self.phase is Phase.SERVED:
            assert self._current is not None
            self._send(self._current, number, pending)
        else:
            self._requests.queue[number] = pending
        return number, self._drain()

    def _send(self, connection: _Connection, number: int, pending: PendingRequest) -> None:
        if not pending.confirm:
            self._took_effect(number, pending.request)
            self._out.append(Ask(connection.number, pending.request, number))
            self._out.append(Answered(number, None))
            return
        if pending.state is not None:  # its messages may come before the answer
            self.subscriptions[pending.state.number] = pending.state
        pending.connection = connection.number
        pending.deadline = self._now + self._parameters.answer
        self._requests.sent[number] = pending
        request = replace(pending.request, id=number)
        self._out.append(Ask(connection.number, request, number))
        self._set_answer_timer()

    def _took_effect(self, number: int, request: Any) -> None:
        """Remember the state that this gives, or forget those that it ends. It was sent, and has
        not been refused; without an answer it counts too, because others may have seen its effect,
        and must not get an older state after it."""
        if not self._reconnects:
            return
        if isinstance(request, wire.WithdrawRequest):
            self.states.forget(number, request)
            self._requests.unretain_sent(number, request)
        elif retains(request):
            self.states.remember(number, request)

    def _set_answer_timer(self) -> None:
        """One timer for all requests: when it is due, it is set again for the oldest."""
        if self._answer_timer_set:
            return
        deadline = self._requests.next_deadline()
        if deadline is not None:
            self._answer_timer_set = True
            self._out.append(SetTimer(AnswerDue(), deadline - self._now))

    def _answers_due(self) -> None:
        self._answer_timer_set = False
        for number, pending in self._requests.take_overdue(self._now):
            what = "answer" if pending.done is None else "say who is inside"
            if pending.purpose is Purpose.APPLICATION:
                self._took_effect(number, pending.request)
            self._fail(number, pending, ConnectionError(f"the node does not {what}"))
        self._set_answer_timer()

    def _fail(self, number: int, pending: PendingRequest, why: Exception) -> None:
        if pending.purpose is Purpose.APPLICATION:
            if pending.state is not None:
                self.subscriptions.pop(pending.state.number, None)
            if isinstance(pending.request, wire.WithdrawRequest) and type(why) is Refused:
                self._took_effect(number, pending.request)  # there was nothing to end
            self._out.append(Failed(number, why))
            self._publish_missing_states()
            self._join_if_answered()
        elif pending.purpose is Purpose.REPUBLISH and isinstance(why, Refused):
            self._state_refused(pending.request, why)
        elif pending.purpose is Purpose.RESUBSCRIBE and isinstance(why, Refused):
            assert pending.state is not None
            self._subscription_refused(pending.state.number, why)
        else:
            self._join_failed(self._connections[pending.connection], why)

    # Joining, reconnecting, and handover to another node.

    def _connect(self, url: str | None, ticket: str = "") -> _Connection:
        connection = _Connection(next(self._connection_numbers), url, ticket)
        self._connections[connection.number] = self._joining = connection
        self._out.append(Connect(connection.number, url))
        return connection

    def _disconnect(self, connection: _Connection) -> None:
        """Close it, if it is open."""
        self._requests.take_sent_on(connection.number)
        if self._connections.pop(connection.number, None) is not None:
            connection.closed = ClosedError("closed", CloseCode.NORMAL)
            self._out.append(Disconnect(connection.number))
        if connection.number == self._order.former:
            self._out += self._order.release()

    def _is_joining(self, connection: int) -> bool:
        return self._joining is not None and self._joining.number == connection

    def _join_if_answered(self) -> None:
        """Join, when there is a connection and all that was asked for before is answered: requests
        take effect in order, also those of a client that is handed over."""
        joining = self._joining
        if joining is None or joining.token is None or joining.join_sent or self._requests.sent:
            return
        joining.join_sent = True
        request = wire.JoinRequest(self.name, joining.token, ticket=joining.ticket)
        pending = PendingRequest(request, Purpose.JOIN)
        self._send(joining, next(self._request_numbers), pending)

    def _set_join_timer(self, connection: _Connection, patience: Time) -> None:
        connection.join_timed = True
        self._out.append(SetTimer(JoinDue(connection.number), patience))

    def _end_joining(self, connection: _Connection) -> None:
        self._joining = None
        if connection.join_timed:
            connection.join_timed = False
            self._out.append(ClearTimer(JoinDue(connection.number)))

    def _join_failed(self, connection: _Connection, why: Exception) -> None:
        """There is no connection, no welcome, or not all could be restored."""
        self._end_joining(connection)
        self._disconnect(connection)
        match self.phase:
            case Phase.OPENING:
                self._end(why, why)
            case Phase.HANDED_OVER:
                self._serve()
            case Phase.TRYING | Phase.RESTORING:
                if isinstance(why, Refused):
                    self._refusals.append(why)
                self._try_next()
            case _:
                raise AssertionError(f"no join is under way, but {self.phase}")

    def _welcomed(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:
        self._estimate_clock(connection, notice.t)
        if self._requests.take_answered(connection.number, kind, notice.id) is None:
            return
        if self.phase is Phase.HANDED_OVER and notice.entity != self.entity:
            why = ConnectionError("the node has welcomed another entity")
            self._join_failed(connection, why)
            return
        self._end_joining(connection)
        former, self._current = self._current, connection
        self.entity, self.node, self.limits = notice.entity, notice.node, notice.limits
        self.geometry = notice.geometry
        known = self.nodes if former is None or former.url is None else [*self.nodes, former.url]
        self._set_nodes(notice.nodes or [url for url in known if url != connection.url])
        self.states.set_limits(notice.limits)
        if self.phase is Phase.HANDED_OVER:
            assert former is not None
            self._await_last_messages(former)
            self._order.serving = connection.number, notice.t
            self._out.append(Told(HandedOver(self.node, connection.url or "")))
            self._serve()
            self._publish_missing_states()
            return
        self._order.serving = None
        self._out.append(Welcomed(self.entity))
        if self.phase is Phase.OPENING:
            self._serve()
        else:
            self._restore(connection)

    def _serve(self) -> None:
        """The current connection serves us, unless it was lost while we were handed over."""
        assert self._current is not None
        self._enter(Phase.SERVED)
        if self._current.closed is not None:
            self._current_lost(self._current.closed)
            return
        queue, self._requests.queue = self._requests.queue, {}
        for number, pending in queue.items():
            self._send(self._current, number, pending)

    def _current_lost(self, why: ClosedError) -> None:
        match self.phase:
            case Phase.SERVED if self._reconnects:
                self._out.append(Told(Disconnected(why.reason, why.code)))
                self._lost_at = self._now
                self._pause, self._refused = self._parameters.first_pause, []
                self._pause_before_retry()
            case Phase.SERVED:
                self._end(why, why)
            case Phase.RESTORING:
                assert self._current is not None
                self._join_failed(self._current, why)
            case Phase.HANDED_OVER:
                pass  # the other node may welcome us yet

    def _pause_before_retry(self) -> None:
        """Pauses have a random length, so that not all clients of a node come back at once."""
        self._enter(Phase.PAUSING)
        delay = round(self._pause * self._rng.uniform(0.5, 1.0))
        self._out.append(SetTimer(RetryDue(), delay))

    def _retry(self) -> None:
        """Try the last node first, then the others of the cluster in random order, and then the
        address that the application gave: perhaps none of the others exists any more."""
        assert self._current is not None
        others = self._rng.sample(self.nodes, len(self.nodes)) if self._changes_nodes else []
        addresses = dict.fromkeys([self._current.url, *others, None])
        self._untried, self._refusals = list(addresses), []
        self._tried = len(self._untried)
        self._try_next()

    def _try_next(self) -> None:
        if self._untried:
            self._enter(Phase.TRYING)
            connection = self._connect(self._untried.pop(0))
            if self._tried > 1:  # a node that does not answer must not keep us from the others
                self._set_join_timer(connection, self._parameters.attempt + self._pause)
        elif len(self._refusals) == self._tried:
            self._end(self._refusals[0], self._refusals[0])
        else:
            self._pause = self._parameters.next_pause(self._pause, self._now - self._lost_at)
            self._pause_before_retry()

    def _restore(self, connection: _Connection) -> None:
        """The node does not know us: subscribe again, then publish the states again."""
        self._enter(Phase.RESTORING)
        self.states.all_missing()
        t = self.node_time(self._now)
        for state in self.subscriptions.values():
            request, region = state.request_at(t)
            pending = PendingRequest(request, Purpose.RESUBSCRIBE, state=state, region=region)
            self._send(connection, next(self._request_numbers), pending)
        self._continue_restoring()

    def _continue_restoring(self) -> None:
        """When all is answered: nothing of the application can be pending in this phase."""
        if self.phase is not Phase.RESTORING or self._requests.sent:
            return
        assert self._current is not None
        waiting = [pending.request for pending in self._requests.queue.values()]
        for request in self.states.next_batch(waiting):
            pending = PendingRequest(request, Purpose.REPUBLISH)
            self._send(self._current, next(self._request_numbers), pending)
        if not self._requests.sent:
            refused, self._refused = self._refused, []
            self._out.append(ServedAgain(refused))
            self._serve()

    def _state_refused(self, request: wire.PublishRequest, why: Refused) -> None:
        if str(why).startswith(wire.BUSY):  # as states of this batch wait, which it makes first
            self.states.mark_missing(request)
        else:
            self.states.refused(request)
            whose = f"of {request.name or self.name!r} on channel {request.channel!r}"
            reason = f"the retained state {whose} is not accepted again: {why}"
            self._out.append(Told(wire.ErrorNotice(reason)))
        self._continue_restoring()

    def _publish_missing_states(self) -> None:
        """Those that were not published again for the sake of a request that has failed now."""
        current = self._current
        if current is not None and current.closed is None and self.phase is not Phase.RESTORING:
            sent = [pending.request for pending in self._requests.sent.values()]
            for request in self.states.take_missing(sent):
                self._out.append(Ask(current.number, request, next(self._request_numbers)))

    def _subscription_refused(self, subscription: int, why: Refused) -> None:
        if self.subscriptions.pop(subscription, None) is not None:  # nobody has given it up yet
            self._refused.append(subscription)
            self._out.append(SubscriptionEnded(subscription, why))
            self._answer_inside(subscription)
        self._continue_restoring()

    def _moved(self, notice: Any) -> None:
        """Join the other node. Until it welcomes us, the present one serves us."""
        if self._changes_nodes and self.phase is Phase.SERVED:
            self._set_nodes(self.nodes or [notice.to])
            self._enter(Phase.HANDED_OVER)
            joining = self._connect(notice.to, notice.ticket)
            self._set_join_timer(joining, self._parameters.handover)

    def _await_last_messages(self, former: _Connection) -> None:
        """The former node sends until it has nothing left for us; its messages come first."""
        self._out += self._order.release()
        if former.closed is None:
            self._order.former = former.number
            timers = self._parameters
            self._out.append(SetTimer(HoldBackDue(former.number), timers.hold_back))
            self._out.append(SetTimer(FormerNodeDue(former.number), timers.former_node))

    def _set_nodes(self, nodes: list[str]) -> None:
        """Other nodes of the cluster. A node that knows none may be cut off from them, so what was
        known before stays. Only with several nodes can a publication arrive twice."""
        if nodes:
            self.nodes = list(dict.fromkeys(nodes))
            self._order.drop_duplicates(self._parameters.remembered)

    def _end(self, why: Exception | None, later: Exception) -> None:
        """End for good: iterations end, with the error `why` if given; requests fail by `later`."""
        self._enter(Phase.ENDED)
        self._end_error, self._joining = later, None
        requests = self._requests
        for number, pending in [*requests.sent.items(), *requests.queue.items()]:
            if pending.purpose is Purpose.APPLICATION:
                self._out.append(Failed(number, later))
        for number, pending in requests.inside.items():  # it ends like the others
            self._out.append(Answered(number, pending.done))
        requests.clear()
        self.states.clear()
        for connection in list(self._connections.values()):
            self._disconnect(connection)
        self._out.append(Ended(why))

    # Notices.

    def _estimate_clock(self, connection: _Connection, t: Time) -> None:
        offset = t - self._now
        if connection.clock_offset is None or offset > connection.clock_offset:
            connection.clock_offset = offset

    def _done(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:
        self._estimate_clock(connection, notice.t)
        pending = self._requests.take_answered(connection.number, kind, notice.id)
        if pending is None:
            return
        request, state, region = pending.request, pending.state, pending.region
        match request:
            case wire.SubscribeRequest() if pending.purpose is Purpose.RESUBSCRIBE:
                assert state is not None and region is not None
                if request.area.formula is None:
                    state.area_accepted(region, state.follows_client, notice.t)
                self._continue_restoring()
                return
            case wire.SubscribeRequest() if state is not None and region is not None:
                state.area_accepted(region, pending.follows_client, notice.t)
                if (request.watch or request.events) and not state.inside_known:
                    pending.done, pending.deadline = notice, self._now + self._parameters.answer
                    self._requests.inside[notice.id] = pending
                    self._set_answer_timer()
                    self._join_if_answered()
                    return
            case wire.MoveRequest() if region is not None:
                state = self.subscriptions.get(request.subscription)
                if state is not None:
                    state.moved(request.area, region, pending.follows_client, notice.t)
            case wire.TuneRequest():
                state = self.subscriptions.get(request.subscription)
                if state is not None:
                    state.tuned(request.variables)
            case wire.UnsubscribeRequest():
                self.subscriptions.pop(request.subscription, None)
            case wire.PublishRequest() if pending.purpose is Purpose.REPUBLISH:
                self._continue_restoring()
                return
            case wire.PublishRequest() | wire.WithdrawRequest():
                self._took_effect(notice.id, request)
        self._out.append(Answered(notice.id, notice))
        self._join_if_answered()

    def _nearby(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:
        if self._requests.take_answered(connection.number, kind, notice.id) is not None:
            self._out.append(Answered(notice.id, notice))
            self._join_if_answered()

    def _message(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:  # noqa: ARG002
        effect = self.message(connection.number, notice)
        if effect is not None:
            self._out.append(effect)

    def _direct(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:  # noqa: ARG002
        message = self._order.direct(connection.number, notice)
        if message is not None:
            self._out.append(message)

    def _error(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:
        if notice.id is None:
            self._tell(connection, kind, notice)
            return
        pending = self._requests.take_answered(connection.number, kind, notice.id)
        if pending is not None:
            self._fail(notice.id, pending, Refused(notice.reason))

    def _tell(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:  # noqa: ARG002
        told: Any = kind(*astuple(notice))  # the declared class, also after MessagePack
        self._out.append(Told(told))

    def _bye(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:  # noqa: ARG002
        connection.bye = notice.reason

    def _from_current(self, connection: _Connection, kind: type[Struct], notice: Any) -> None:
        """These are out of date if they come from a former node."""
        if connection is not self._current:
            return
        if kind is wire.MovedNotice:
            self._moved(notice)
        elif kind is wire.NodesNotice:
            self._set_nodes(notice.nodes)
        else:
            self._presence(kind, notice)

    def _presence(self, kind: type[Struct], notice: Any) -> None:
        state = self.subscriptions.get(notice.subscription)
        if state is None:
            return  # it has ended in the meantime
        self._order.presence_known = True
        changes: Sequence[Change | FenceEvent]
        if kind is wire.FenceNotice:
            event = self._order.fence_event(notice)
            state.fence_event(event)
            changes = [event]
        elif kind is wire.InsideNotice and state.request.events:
            entities = [self._order.entity(one) for one in notice.entities]
            now = self.node_time(self._now)
            changes = state.set_inside_fence(entities, notice.fences, now)
        elif kind is wire.InsideNotice:
            changes = state.set_inside([self._order.entity(one) for one in notice.entities])
        elif kind is wire.EnterNotice:
            changes = state.entity_entered(self._order.entity(notice.entity))
        else:
            changes = state.entity_left(notice.entity, notice.gone)
        self._out += [Changed(notice.subscription, change) for change in changes]
        if kind is wire.InsideNotice:
            self._answer_inside(notice.subscription)

    def _answer_inside(self, subscription: int) -> None:
        """Who waits for the entities inside has them now, or need not wait."""
        for number, pending in self._requests.take_waiting_for_inside(subscription):
            self._out.append(Answered(number, pending.done))


_Handler: TypeAlias = Callable[[ClientCore, _Connection, type[Struct], Any], None]
_HANDLERS: dict[type[Struct], _Handler] = {
    wire.MessageNotice: ClientCore._message,
    wire.WelcomeNotice: ClientCore._welcomed,
    wire.DoneNotice: ClientCore._done,
    wire.ErrorNotice: ClientCore._error,
    wire.NearbyNotice: ClientCore._nearby,
    wire.DirectNotice: ClientCore._direct,
    wire.InsideNotice: ClientCore._from_current,
    wire.EnterNotice: ClientCore._from_current,
    wire.LeaveNotice: ClientCore._from_current,
    wire.FenceNotice: ClientCore._from_current,
    wire.MovedNotice: ClientCore._from_current,
    wire.NodesNotice: ClientCore._from_current,
    wire.WithheldNotice: ClientCore._tell,
    wire.DroppedNotice: ClientCore._tell,
    wire.ByeNotice: ClientCore._bye,
}
