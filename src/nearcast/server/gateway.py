"""Hosts the service for WebSocket clients: reads requests, and writes notices and publications.

Publications wait for a moment (`flush_rhythm`), so that one flush reads and matches many and writes
to each client once: that costs a third of as many visits between other things.
"""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.client_protocol.geometry_json import PLANE
from nearcast.columns import grow
from nearcast.errors import MalformedMessageError, Refused
from nearcast.matching.matcher import Integers
from nearcast.node import Effect
from nearcast.server import memory, request_cost
from nearcast.server.access.failed_tokens import FailedTokens
from nearcast.server.access.tokens import AccessControl, AccessDecision, Denied
from nearcast.server.config import LimitSettings
from nearcast.server.flush_rhythm import FlushRhythm
from nearcast.server.http.connections import OpenConnections
from nearcast.server.http.protocol import HttpError, HttpRequest
from nearcast.server.metrics import Metrics
from nearcast.server.service_host import ServiceHost
from nearcast.server.session import (
    DIRECT_WRITE,
    QUEUE_SLACK,
    QueuedMessage,
    Session,
    fair_level,
    with_traced_subscriptions,
)
from nearcast.server.socket_reads import STREAK, SocketReads
from nearcast.server.socket_writes import ClientWrites
from nearcast.server.workers import Workers
from nearcast.service.access.grants import Grant
from nearcast.service.client_state import ClientState, FlushDeliveries
from nearcast.service.connection import Connection
from nearcast.service.effects import (
    CloseConnection,
    DeliverDirect,
    DeliverFlush,
    DeliverMissed,
    Fault,
    Notify,
    Refuse,
    Reply,
    Serve,
    StopServing,
)
from nearcast.service.frames import (
    DeliveryFrames,
    delivery_frames,
    message_frame,
    only_buildable,
    websocket_frame,
)
from nearcast.service.plain_publications import FEW, PREPAID
from nearcast.service.realm import HOPS
from nearcast.service.service import FLUSH, INTERNAL_ERROR, Service
from nearcast.space.motion import SECOND, Time
from nearcast.trace.live_recording import ROTATE_S, LiveRecording

LOG = logging.getLogger(__name__)
INTERESTS = (
    messages.SubscribeRequest, messages.MoveRequest, messages.TuneRequest,
    messages.UnsubscribeRequest,
)  # fmt: skip
TICK_S = 0.1
TICKS_PER_SECOND = 10
TOKEN_NEEDED = "a token that this node knows is needed"
REFUSALS_S = 10  # seconds during which `limits.refusals` are too many


class Gateway(ServiceHost):
    """Serves the WebSocket clients of a node: reads requests, flushes, delivers."""

    def __init__(
        self, service: Service, limits: LimitSettings, access: AccessControl,
        now: Callable[[], Time], *,
        flush_s: float = 0.05, prompt: float = 0.6, workers: int = 1,
        recording: LiveRecording | None = None,
    ) -> None:  # fmt: skip
        self.limits, self.access = limits, access
        self.metrics = Metrics()
        self.sessions: dict[Session, None] = {}  # all WebSocket connections, the oldest first
        self.connections = OpenConnections(limits, self.metrics)
        self._session_at: list[Session | None] = []  # by a client's place
        self._workers = Workers(workers)
        self._writes = ClientWrites(self._workers)
        # By a client's place, too: whether packed, messages and bytes written, publications and
        # their bytes that were read, requests that its bucket has given for plain publications.
        self._packed: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._sent: Integers = np.zeros(0, np.int64)
        self._sent_bytes: Integers = np.zeros(0, np.int64)
        self._published: Integers = np.zeros(0, np.int64)
        self._published_bytes: Integers = np.zeros(0, np.int64)
        self._prepaid: Integers = np.zeros(0, np.int64)
        self._slow: dict[int, Session] = {}  # those of them who read too slowly
        self.queued = 0  # bytes that wait in the queues of all clients
        self._paused_reading: dict[Session, int] = {}  # whose reading is paused, until which tick
        self._read_work = 0  # since the last tick
        # Publications that were not handled yet: their clients' places, and their frames.
        self._unread: list[int] = []
        self._unread_frames: list[bytes] = []
        self._in_columns = service.realm.geometry == PLANE
        self._longest_frame, self._most_bytes = limits.frame, limits.bytes
        self._flush_timer: asyncio.Handle | None = None
        self._flush_not_before = self._first_waits_since = 0.0
        self._rhythm = FlushRhythm(prompt, flush_s)
        self._ticks = 0
        self._rotate_at = monotonic() + ROTATE_S
        self.failed_tokens = FailedTokens()
        self._late_joins: set[asyncio.Task[None]] = set()  # joins whose tokens are not known
        self._memory = memory.MemoryTrimmer()
        self._bytes_moved = 0  # bytes in and out, until the last second
        super().__init__(service, now, recording)
        self._reads = SocketReads(self.loop, self._collect, self._workers)
        self._timer = self.loop.call_later(TICK_S, self._tick)

    # Connections.

    def admit(self, request: HttpRequest) -> Session:
        """Accept a WebSocket. If the request has no token, the join request must have it."""
        if self.clients >= self.limits.clients:
            self.metrics.refused_full += 1
            raise HttpError(503, f"this node serves at most {self.limits.clients} clients")
        return Session(self, request.token)

    @property
    def clients(self) -> int:
        """How many connections have joined."""
        return self.service.connections.clients

    def connected(self, session: Session) -> None:
        self.metrics.connections += 1
        self.sessions[session] = None
        self.apply(self.service.open(self.now(), session))

    def before_input(self) -> None:
        """What clients have published comes before anything else that happens."""
        self._handle_publications()

    def disconnected(self, session: Session) -> None:
        """The connection has ended, whoever ended it."""
        self._handle_publications()
        self.sessions.pop(session, None)
        self.connections.closed(session.raw)
        self._drop_unread(session)
        self.apply(self.service.close(self.now(), session))

    def end(self, session: Session, reason: str, code: CloseCode) -> None:
        """End a connection."""
        self._handle_publications()
        self.apply(self.service.end(self.now(), session, reason, code))

    def _drop_unread(self, session: Session) -> bool:
        """Forget what waits for this client or was read of it. Was its reading paused?"""
        self._record_dropped(session, session.clear_queue())
        if session.unread_frames is None:
            return False
        session.unread_frames = None
        del self._paused_reading[session]
        return True

    def on_close_connection(self, close: CloseConnection) -> None:
        session = self._session(close.connection)
        if self._drop_unread(session):
            session.raw.resume_reading()  # of its answer to the close frame
        session.finish(close.reason, close.code)

    def on_stop_serving(self, stop: StopServing) -> None:
        session, client = self._session(stop.connection), stop.client
        self._record_traffic(session, client)
        self._slow.pop(client.slot, None)
        self._reads.give_back(client.slot)
        self._session_at[client.slot] = None
        self._writes.stop(client.slot)

    def end_http_entity(self, client: ClientState) -> None:
        """End an entity that published over HTTP, with its retained states."""
        self.realm.leave(self.now(), client, ends_all=True)

    # Requests.

    def read(self, session: Session, frame: bytes, binary: bool) -> None:
        """Take a frame. Publications are collected, and handled before other requests."""
        if session.unread_frames is not None:
            session.unread_frames.append((frame, binary))
            return
        if len(frame) > request_cost.LARGE_FRAME:
            self._read_work += len(frame)
            if self._read_work > request_cost.READ_BUDGET:
                self._pause_reading(session, self._ticks + 1, frame, binary)
                return
        client = session.client
        if binary and client is not None and messages.is_publish_frame(frame):
            session.streak += 1
            if session.streak % STREAK == 0 and session.all_read:
                self._reads.take(client.slot, session.raw)
            self._collect([client.slot], [frame])
            return
        session.streak = 0
        self._handle_publications()
        if session.elsewhere is not None:
            self._forward(session, frame, binary)
            return
        encoding = messages.MSGPACK if binary else messages.JSON
        if session.encoding is None:
            session.encoding = encoding
        self._handle_frame(session, frame, encoding)

    def _collect(self, places: list[int], frames: list[bytes]) -> None:
        """Publications of the clients at these places."""
        self._unread += places
        self._unread_frames += frames
        if self._flush_timer is None:
            self.schedule_flush()

    def _forward(self, session: Session, frame: bytes, binary: bool) -> None:
        """A request of a client that another node serves now."""
        if self._may_ask(session):
            self.forward(session, frame, binary)
        else:
            error = f"a client makes at most {session.bucket.rate} requests a second"
            self._refuse(session, messages.ErrorNotice(error))

    def _handle_publications(self) -> None:
        """Handle the publications that were collected."""
        if not self._unread:
            return
        places, self._unread = self._unread, []
        frames, self._unread_frames = self._unread_frames, []

        def handle(which: int) -> None:
            session = self._session_at[places[which]]
            if session is not None:
                self._handle_publication(session, frames[which])

        if not self._in_columns or len(frames) < FEW or self.realm.is_behind:
            for which in range(len(frames)):
                handle(which)
            return
        slots = np.array(places)
        plain = self.realm.publish_plain(slots, frames, self._prepaid, handle)
        slots = slots[plain]
        sizes = np.fromiter(map(len, frames), np.int64, len(frames))
        np.add.at(self._published, slots, 1)
        np.add.at(self._published_bytes, slots, sizes[plain])
        for place in np.unique(slots[self._published_bytes[slots] > self._most_bytes]).tolist():
            session = self._session_at[place]
            if session is not None:
                self._pause_reading(session, self._next_second())
        if self._flush_timer is None:
            self.schedule_flush()

    def _handle_publication(self, session: Session, frame: bytes) -> None:
        """Handle a publication that is not plain, and let those that follow be."""
        try:
            self._handle_frame(session, frame, messages.MSGPACK)
        except Exception:
            self._log_fault("a client could not be answered")
        client = session.client
        if client is None or session.limited or session.use is not None:
            return  # what it publishes is looked at, or others take from the same bucket
        if not self._prepaid[client.slot]:
            self._prepaid[client.slot] = session.bucket.take_many(PREPAID)

    def _return_prepaid(self, session: Session) -> None:
        """What was taken of its bucket and not used is there again."""
        if session.client is not None:
            place = session.client.slot
            session.bucket.charge(-int(self._prepaid[place]))
            self._prepaid[place] = 0

    def _may_ask(self, session: Session) -> bool:
        """May it make one more request? Then that is counted."""
        bucket = session.bucket
        if bucket.take():
            return True
        self._return_prepaid(session)
        return bucket.take() or bucket.fill(self.now() / SECOND)

    def _handle_frame(self, session: Session, frame: bytes, encoding: messages.Encoding) -> None:
        """Decode one request and carry it out. Errors are answered to this client alone."""
        number: int | None = None
        try:
            if len(frame) > self._longest_frame:
                number = encoding.request_id(frame)
                raise Refused(f"a frame has at most {self._longest_frame} bytes")
            try:
                request = encoding.decode_request(frame)
            except messages.DECODE_ERRORS as why:
                number = encoding.request_id(frame)
                raise messages.as_malformed(why) from None
            number = request.id
            if number is not None and not 0 <= number < messages.REQUEST_IDS_END:
                number = None  # no answer could repeat it
                raise Refused("an id is from 0 to 2**53 - 1")
            if not self._may_ask(session):
                raise Refused(f"a client makes at most {session.bucket.rate} requests a second")
            if type(request) is encoding.publish_class:
                self.service.publish(session, request, encoding)
                if self._flush_timer is None:
                    self.schedule_flush()
                assert session.client is not None
                place = session.client.slot
                self._published[place] += 1
                self._published_bytes[place] += len(frame)
                if self._published_bytes[place] > self._most_bytes:
                    self._pause_reading(session, self._next_second())
                return
            kind = encoding.message_class(request)
            if self._read_work > request_cost.READ_BUDGET and request_cost.is_costly(kind, request):
                session.bucket.charge(-1)
                self._pause_reading(session, self._ticks + 1, frame, encoding.binary)
                return
            self._read_work += request_cost.parse_cost(kind, request)
            if kind is messages.JoinRequest:
                self._join(session, request)
            elif kind is messages.SendRequest:
                self.apply(self.service.send(self.now(), session, request, encoding))
            else:
                effects = self.service.request(self.now(), session, kind, request)
                refused = bool(effects) and type(effects[0]) is Refuse
                self.metrics.interests += kind in INTERESTS and not refused
                self.apply(effects)
        except (Refused, MalformedMessageError) as why:
            self._refuse(session, messages.ErrorNotice(str(why), number))
        except Exception:
            self._log_fault(f"a request of {session.client and session.client.name!a} failed")
            session.send(messages.ErrorNotice(INTERNAL_ERROR, number))
        session.asked += 1
        session.asked_bytes += len(frame)
        published = self._published_bytes[session.client.slot] if session.client else 0
        if session.asked_bytes + published > self._most_bytes:
            self._pause_reading(session, self._next_second())

    def _refuse(self, session: Session, error: messages.ErrorNotice) -> None:
        """Answer with an error. After too many refusals the connection is closed."""
        self.metrics.refused += 1
        session.refused += 1
        session.send(error)
        self._read_work += request_cost.REFUSAL_COST
        if self._read_work > request_cost.READ_BUDGET:
            self._pause_reading(session, self._ticks + 1)
        if session.refused - session.refused_before > self.limits.refusals and not session.closing:
            self.metrics.cut_refused += 1
            session.end(
                f"more than {self.limits.refusals} of your requests were refused"
                f" within {REFUSALS_S} seconds"
            )

    def _pause_reading(
        self, session: Session, until: int, frame: bytes | None = None, binary: bool = False
    ) -> None:
        """Read nothing more of this client before that tick; a given frame is handled then."""
        if session.closing:
            return
        if session.unread_frames is None:
            session.unread_frames = []
            session.paused_reading += 1
            self.metrics.slowed += 1
            self._paused_reading[session] = until
            if session.client is not None:
                self._reads.give_back(session.client.slot)
            session.raw.pause_reading()
        if frame is not None:
            session.unread_frames.append((frame, binary))

    def _next_second(self) -> int:
        """The tick at which the next second begins, and byte counts start from 0."""
        return (self._ticks // TICKS_PER_SECOND + 1) * TICKS_PER_SECOND

    def _resume_reading(self) -> None:
        """Resume reading of paused clients, the longest paused first, within the read budget."""
        self._read_work = 0
        for session in [one for one, until in self._paused_reading.items() if until <= self._ticks]:
            if self._read_work > request_cost.READ_BUDGET:
                break
            if session.unread_frames is None:
                continue  # it was closed meanwhile
            held, session.unread_frames = session.unread_frames, None
            session.all_read = False  # as far as can be known
            del self._paused_reading[session]
            for frame, binary in held:  # if reading is paused again, the rest waits again
                self.read(session, frame, binary)
            if session.unread_frames is None and not session.closing:
                session.raw.resume_reading()

    def on_reply(self, reply: Reply) -> None:
        session = self._session(reply.connection)
        if reply.cost:  # beyond the one token that every request takes
            session.bucket.charge(reply.cost)
            self._read_work += request_cost.TOKEN_COST * reply.cost
        session.send(reply.notice)

    def on_refuse(self, refuse: Refuse) -> None:
        self._refuse(self._session(refuse.connection), refuse.error)

    def on_fault(self, fault: Fault) -> None:
        self.metrics.faults += fault.lost
        super().on_fault(fault)

    def _log_fault(self, what: str) -> None:
        """Count and log an internal error; called while the exception is being handled."""
        self.metrics.faults += 1
        LOG.exception(what)

    def _session(self, connection: Connection) -> Session:
        assert isinstance(connection, Session)
        return connection

    # Tokens.

    def check_token(self, token: str) -> AccessDecision:
        return self.access.check(token, self.now() / SECOND)

    async def recheck_token(self, token: str, decision: Denied) -> AccessDecision:
        """Check again with fresh keys, if the token names an unknown key; else the same answer."""
        if decision.unknown_key:
            if await self.access.refresh():
                self.replace_access(self.access)
            return self.check_token(token)
        return decision

    def refusal_delay(self, remote: str, token: str, decision: Denied) -> float:
        """Seconds by which the answer to a refused token is delayed; 0 if no token was given."""
        if not token:
            return 0.0
        self.metrics.tokens_refused += 1
        return self.failed_tokens.failed(remote, monotonic()) if decision.guess else 0.0

    def replace_access(self, access: AccessControl) -> None:
        """Use these tokens and keys from now on. Sessions whose token is gone end."""
        self.access = access
        self._handle_publications()
        for session in list(self.sessions):
            if session.grant is not None:
                grant = access.renewed(session.grant)
                if grant is not session.grant:
                    self._return_prepaid(session)
                    self.apply(self.service.allow(self.now(), session, grant))

    def _join(self, session: Session, request: Any) -> None:
        if session.client is not None:
            raise Refused("you have joined already")
        if session.joining:
            raise Refused("your join is under way")
        token = request.token or session.token
        decision = self.check_token(token)
        if isinstance(decision, Denied):
            session.joining = True
            recheck = self._join_after_recheck(session, request, token, decision)
            task = self.loop.create_task(recheck)
            self._late_joins.add(task)
            task.add_done_callback(self._late_joins.discard)
            return
        self._apply_join(session, request, decision)

    def _apply_join(self, session: Session, request: Any, grant: Grant) -> list[Effect]:
        """The token is valid: the service decides."""
        full = self.clients >= self.limits.clients and not request.ticket
        self.metrics.refused_full += full  # others have joined since it connected
        effects = self.service.join(self.now(), session, request, grant)
        self.apply(effects)
        return effects

    async def _join_after_recheck(
        self, session: Session, request: Any, token: str, denied: Denied
    ) -> None:
        """Join with an unknown token: its key may be new. If it is not, refuse it after a delay."""
        decision = await self.recheck_token(token, denied)
        if isinstance(decision, Denied):
            await asyncio.sleep(self.refusal_delay(session.remote, token, decision))
            session.send(messages.ErrorNotice(decision.reason, request.id))
            session.end(TOKEN_NEEDED if decision.guess else decision.reason)
            return
        session.joining = False
        if session.closing:
            return
        for effect in self._apply_join(session, request, decision):
            if isinstance(effect, Refuse):
                session.end(effect.error.reason)

    def record_delivery(
        self, client: ClientState, publication: int, subscriptions: tuple[int, ...]
    ) -> None:
        """Record in the trace what was delivered outside of a flush."""
        if self.recording:
            recorder, now = self.recording.recorder, self.now()
            recorder.delivered(now, client.entity, publication, subscriptions, HOPS)

    def on_serve(self, serve: Serve) -> None:
        """Write this client's deliveries to this connection from now on."""
        session, client = self._session(serve.connection), serve.client
        self._grow_columns(client.slot + 1)
        place = client.slot
        self.connections.joined(session.raw)
        self._session_at[place] = session
        self._packed[place] = client.form.binary
        for column in (self._sent, self._sent_bytes, self._published, self._published_bytes):
            column[place] = 0
        self._prepaid[place] = 0
        session.joined(client)
        if session.paused:
            self.paused(session)
        else:
            self._writes.begin(place, session.raw)

    def _grow_columns(self, clients: int) -> None:
        """Extend the columns by client place; entities without a connection have places, too."""
        while len(self._session_at) < clients:
            self._session_at.append(None)
        self._writes.grow(clients)
        if clients > len(self._packed):
            size = clients + 64
            self._packed = grow(self._packed, size)
            self._sent, self._sent_bytes = grow(self._sent, size), grow(self._sent_bytes, size)
            self._published = grow(self._published, size)
            self._published_bytes = grow(self._published_bytes, size)
            self._prepaid = grow(self._prepaid, size)

    # Publications.

    def schedule_flush(self, after: float = 0.0) -> None:
        """Flush soon, at least `after` seconds from now and not too soon after the last flush."""
        if self._flush_timer is None:
            now = self._first_waits_since = monotonic()
            pause = max(self._flush_not_before - now, after)
            if pause <= 0.0:
                self._flush_timer = self.loop.call_soon(self.flush)
            else:
                self._flush_timer = self.loop.call_later(pause, self.flush)

    @property
    def idle(self) -> bool:
        """Nothing waits to be flushed."""
        return self._flush_timer is None

    def flush(self) -> None:
        """Match and deliver the waiting publications, and decide when the next flush may be."""
        self._reads.read()
        began, used, others = monotonic(), thread_time(), self._workers.others_s
        self._handle_publications()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self.realm.waiting:
            return
        metrics, accounts, before = self.metrics, self.realm.accounts, self.metrics.deliveries
        self.wake(FLUSH)
        metrics.flushes += 1
        metrics.work, metrics.busy = accounts.work, accounts.refused
        metrics.cut_short = accounts.cut_short
        others, delivered = self._workers.others_s - others, metrics.deliveries - before
        pause = self._rhythm.pause_s(thread_time() - used, others, delivered, began)
        self._flush_not_before = monotonic() + pause
        self._reads.rest(pause)
        if self.realm.waiting:  # more than fits into one flush: first let the loop do other work
            self._first_waits_since = began

    def on_deliver_flush(self, deliver: DeliverFlush) -> None:
        flushed, metrics = deliver.flushed, self.metrics
        self._deliver(flushed)
        metrics.publications += len(flushed.publications)
        metrics.deliveries += len(flushed)
        metrics.latency.add(monotonic() - self._first_waits_since, len(flushed))

    def on_deliver_missed(self, missed: DeliverMissed) -> None:
        session, form = self._session(missed.connection), missed.client.form
        session.write(message_frame(missed.publication, missed.t, form, list(missed.numbers)))
        self.record_delivery(missed.client, missed.publication.id, tuple(missed.subscriptions))

    def on_deliver_direct(self, deliver: DeliverDirect) -> None:
        """It is among the messages that may be dropped for a client that reads too slowly."""
        session, notice = self._session(deliver.connection), deliver.notice
        form = deliver.client.form
        frame = websocket_frame(form, form.encode(notice))
        queued = QueuedMessage(notice.source, "", False, notice.number, (), direct=True)
        self._record_dropped(session, session.queue([frame], [queued]))

    def session_of(self, client: ClientState) -> Session | None:
        """The connection of this client, if it has one here."""
        connection = self.service.connections.of(client)
        return None if connection is None else self._session(connection)

    @property
    def paused_readers(self) -> int:
        """How many clients are not read at present."""
        return len(self._paused_reading)

    def _deliver(self, flushed: FlushDeliveries) -> None:
        """Write to each client its deliveries."""
        self._grow_columns(len(self.realm.clients))
        try:
            post = delivery_frames(flushed, self.realm.numbers, self._packed)
        except Exception as why:
            flushed, lost = only_buildable(flushed, self._packed)
            post = delivery_frames(flushed, self.realm.numbers, self._packed)
            self.metrics.faults += lost
            LOG.error("%d publications could not be encoded for some clients", lost, exc_info=why)
        # Only clients that are slow already: one that becomes slow now has been written to.
        slow = np.fromiter(self._slow, np.int64)
        large = np.flatnonzero(post.sizes > DIRECT_WRITE)
        if len(large):
            slow = np.concatenate((slow, self._use_queues(post.clients[large])))
        self._writes.write(post)
        sent = np.diff(post.starts)
        which: Any = slice(None)
        if len(slow):
            later = np.flatnonzero(np.isin(post.clients, slow))
            self._queue(flushed, post, later)
            sent[later] = post.sizes[later] = 0
            which = ~np.isin(flushed.client, slow)
        self._sent[post.clients] += sent
        self._sent_bytes[post.clients] += post.sizes
        self.realm.record_deliveries(max(self.now(), flushed.t), flushed, which)
        if self.queued > self.limits.queues_bytes:
            self._shrink_queues()

    def paused(self, session: Session) -> None:
        """The transport of this session is full: its deliveries are queued from now on."""
        if session.client is not None:
            self._slow[session.client.slot] = session
            self._writes.stop(session.client.slot)

    def resumed(self, session: Session) -> None:
        if session.client is not None:
            self._slow.pop(session.client.slot, None)
            self._writes.begin(session.client.slot, session.raw)

    def stop_deliveries(self, session: Session) -> None:
        """The client closes the connection: after the answer nothing is sent."""
        client = session.client
        if client is not None and self._session_at[client.slot] is session:
            self._writes.stop(client.slot)

    def _use_queues(self, places: Integers) -> Integers:
        """Of these clients, those with a connection: they are written to by their queues."""
        found = [place for place in places.tolist() if self._session_at[place] is not None]
        for place in found:
            self._writes.stop(place)
        return np.array(found, np.int64)

    def _queue(self, flushed: FlushDeliveries, post: DeliveryFrames, turns: Integers) -> None:
        """Queue the deliveries of these clients. Queues share frames and `QueuedMessage`s."""
        shared: dict[int, QueuedMessage] = {}
        for turn in turns.tolist():
            session = self._session_at[int(post.clients[turn])]
            if session is None or session.client is None:
                continue
            first, last = int(post.starts[turn]), int(post.starts[turn + 1])
            publications = post.publications[first:last].tolist()
            for place in publications:
                if place not in shared:
                    one = flushed.publications[place]
                    entity, r = one.client.entity, one.request
                    shared[place] = QueuedMessage(entity, r.channel, r.retain, one.id, ())
            queued = [shared[place] for place in publications]
            if self.recording:
                place, numbers = session.client.slot, self.realm.subscriptions
                queued = with_traced_subscriptions(queued, publications, flushed, place, numbers)
            self._record_dropped(session, session.queue(post.frames(first, last), queued))
            if not session.paused:
                self.resumed(session)

    def _shrink_queues(self) -> None:
        """All queues together are too large: drop messages of the largest, down to one level."""
        slow = [session for session in self.sessions if session.bytes]
        most = self.limits.queues_bytes - self.limits.queues_bytes // QUEUE_SLACK
        level = fair_level([session.bytes for session in slow], most)
        for session in slow:
            if session.bytes > level:
                self._record_dropped(session, session.shed(0, session.bytes - level))
                if session.bytes > 2 * level:  # only notices are left
                    session.cut("you do not read what you are told")

    def record_drained(self, session: Session, written: list[QueuedMessage]) -> None:
        """Messages that waited in a queue have been written."""
        session.sent += len(written)
        if session.served is not None:
            for one in written:
                if one.direct and self.recording:
                    entity = session.served.entity
                    self.recording.recorder.direct_delivered(self.now(), entity, one.publication)
                else:
                    self.record_delivery(session.served, one.publication, one.subscriptions)

    def _record_dropped(self, session: Session, dropped: list[QueuedMessage]) -> None:
        self.metrics.dropped += len(dropped)
        if self.recording and session.served is not None:
            now, entity = self.now(), session.served.entity
            for one in dropped:
                for _ in one.subscriptions or (one.direct,):
                    self.recording.recorder.note(now, entity, "withheld", one.publication)

    # Timers.

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        try:
            if self.queued > self.limits.queues_bytes:
                self._shrink_queues()
            if self._ticks % TICKS_PER_SECOND == 0:
                self._every_second()
            self._resume_reading()
        except Exception:
            LOG.exception("a tick failed")

    def on_notify(self, notify: Notify) -> None:
        """A notice for many clients is encoded once for each encoding."""
        frames: dict[tuple[int, messages.Encoding], bytes] = {}
        shares: dict[Session, list[bytes]] = {}
        for client, notice in notify.notices:
            session = self.session_of(client)
            if session is not None:
                key = id(notice), client.form
                if key not in frames:
                    try:
                        frames[key] = websocket_frame(client.form, client.form.encode(notice))
                    except Exception:
                        self._log_fault("a notice could not be encoded")
                        continue
                shares.setdefault(session, []).append(frames[key])
        for session, share in shares.items():
            session.send_frames(share)

    def _every_second(self) -> None:
        now, unix = monotonic(), self.now() / SECOND
        fresh = self._ticks % (TICKS_PER_SECOND * REFUSALS_S) == 0
        if fresh:
            self._reads.are_alive()
        for session in list(self.sessions):
            if fresh:
                session.refused_before = session.refused
            if session.expired(unix):
                session.end("your token has expired")
            if session.client is not None:
                self._record_traffic(session, session.client)
            if session.paused and not session.closing:
                session.send_dropped()
                if now - session.stuck_since > self.limits.slow_s:
                    session.cut(f"you read nothing for {self.limits.slow_s:g} seconds")
        moved = self.metrics.bytes_in + self.metrics.bytes_out
        connected = memory.CONNECTION_BYTES * len(self.connections)
        self._memory.update(self.queued + moved - self._bytes_moved + connected)
        self._bytes_moved = moved
        if self.recording:
            self._record(self.recording, now)

    def _record(self, recording: LiveRecording, now: float) -> None:
        self.record_positions()
        # Rows of one subscription at one moment must be in the same file.
        if now >= self._rotate_at and self.now() > self.realm.now:
            self._rotate_at = now + ROTATE_S
            recording.rotate()
            self.metrics.unrecorded = recording.writer.lost

    def _record_traffic(self, session: Session, client: ClientState) -> None:
        asked, asked_bytes, sent, sent_bytes = session.counts()
        place = client.slot
        sent += int(self._sent[place])
        sent_bytes += int(self._sent_bytes[place])
        published = int(self._published[place])
        published_bytes = int(self._published_bytes[place])
        for column in (self._sent, self._sent_bytes, self._published, self._published_bytes):
            column[place] = 0
        session.bytes_in += published_bytes + asked_bytes
        session.bytes_out += sent_bytes
        self.metrics.requests += published + asked
        self.metrics.bytes_in += published_bytes + asked_bytes
        self.metrics.bytes_out += sent_bytes
        if self.recording:
            now, sums, node = self.now(), self.recording.sums, self.service.id
            sums.add(now, client.entity, node, "publish", published_bytes, published)
            sums.add(now, client.entity, node, "request", asked_bytes, asked)
            sums.add(now, node, client.entity, "notice", sent_bytes, sent)

    def close(self, reason: str) -> None:
        """Deliver what waits, send a bye notice to all clients, and stop."""
        self.flush()
        while self.realm.waiting:
            self.flush()
        self._timer.cancel()
        self._reads.close()
        self.stop_timers()
        for task in self._late_joins:
            task.cancel()
        for session in list(self.sessions):
            session.end(reason, CloseCode.GOING_AWAY)
        self._workers.close()
