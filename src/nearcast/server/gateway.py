"""Between sockets and the realm: reads clients' words, obeys them, and delivers what was heard.

Publications wait for a moment, so that one flush reads and matches many and writes to each client
once: a loop over a thousand frames costs a third of as many visits between other things. How long
depends on what flushing costs: at low load it happens as soon as the loop has read what there
is; when busy, a flush is followed by a pause of several times its own length, up to a bound.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.errors import MalformedMessageError, Refused
from nearcast.matching.matcher import Integers
from nearcast.server import memory
from nearcast.server.access.guesses import Guesses
from nearcast.server.access.permission import check_listening, check_publishing
from nearcast.server.access.quotas import Quotas, check_subscriptions
from nearcast.server.access.tokens import AccessControl, Denied, Verdict
from nearcast.server.clock import clock
from nearcast.server.config import LimitSettings
from nearcast.server.http.connections import OpenConnections
from nearcast.server.http.protocol import HttpError, HttpRequest
from nearcast.server.metrics import Metrics
from nearcast.server.request_cost import COST, LARGE, PARSED, READ_WORK, REFUSAL, costly, parsed
from nearcast.server.session import SHARE, SLACK, Said, Session, fair_level, traced
from nearcast.service.client_state import Accepted, ClientState, Heard
from nearcast.service.frames import DeliveryFrames, buildable, framed, letters
from nearcast.service.realm import HOPS, Realm, flushes
from nearcast.space.motion import SECOND, Time
from nearcast.trace.live_recording import ROTATE_S, LiveRecording

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

LOG = logging.getLogger("nearcast.live")
PAUSE = 10.0  # times as long as a flush took: so it takes a tenth of the time, until the bound
WRITE_S = 4e-6  # what the kernel takes to send to one client, which it does after the flush
TICK_S = 0.1
NODE = 0  # the node's own number in the trace; clients' begin at 1
TICKS = 10  # in a second
TOKEN_NEEDED = "a token that this node knows is needed"
MISTAKE = "the node made a mistake; its log has more"
REFUSALS_S = 10  # seconds during which `limits.refusals` are too many


def _keep(frames: bytes) -> None:
    """Instead of writing: for entities of this process, and for clients whose transport is full."""


def _grown(column: NDArray[Any], size: int) -> NDArray[Any]:
    return np.concatenate((column, np.zeros(size - len(column), column.dtype)))


class Gateway:
    """Serves the WebSocket clients of a node: reads requests, flushes, delivers."""

    def __init__(
        self, realm: Realm, limits: LimitSettings, access: AccessControl, *,
        name: str = "", flush_s: float = 0.05, recording: LiveRecording | None = None,
        now: Callable[[], Time] | None = None,
    ) -> None:  # fmt: skip
        self.realm, self.limits, self.access, self.name = realm, limits, access, name
        self.loop = asyncio.get_running_loop()
        self.now = now or clock()
        self.metrics = Metrics()
        self.open: dict[Session, None] = {}  # all WebSocket connections, the oldest first
        self.connections = OpenConnections(limits, self.metrics)
        self.clients = 0  # of them, those who have joined
        self.recording = recording
        self._sessions: list[Session | None] = []  # by a seat's place
        # The same by a seat's place: how to write, whether packed, messages and bytes written.
        self._writes: list[Callable[[bytes], None]] = []
        self._packed: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._sent: Integers = np.zeros(0, np.int64)
        self._sent_bytes: Integers = np.zeros(0, np.int64)
        self._slow: dict[int, Session] = {}  # those of them who read too slowly
        self.queued = 0  # bytes that wait in the queues of all clients
        self._held: dict[Session, int] = {}  # whose reading is paused, until which tick
        self._read_work = 0  # since the last tick
        self._unread: list[tuple[Session, bytes]] = []  # publications
        self._longest_frame, self._longest_pause = limits.frame, flush_s
        self._most_bytes = limits.bytes
        self._flush_timer: asyncio.Handle | None = None
        self._flush_not_before = self._first_waits_since = 0.0
        self._answers: dict[int, asyncio.Future[tuple[Time, int]]] = {}  # by publication
        self._ticks = 0
        self._states: dict[int, Accepted] = {}  # each entity's last one, for the trace
        self._rotate_at = monotonic() + ROTATE_S
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self.guesses = Guesses()
        self.quotas = Quotas(limits.requests)
        self._late: set[asyncio.Task[None]] = set()  # joins whose tokens are not known
        self._trimming = memory.Trimming()
        self._moved = 0  # bytes in and out, until the last second
        self.cluster: ClusterNode | None = None
        self.number = NODE  # of this node in the trace

    # Connections.

    def admit(self, request: HttpRequest) -> Session:
        """A connection wants to become a WebSocket. Without a token yet, its join must bring it."""
        if self.clients >= self.limits.clients:
            self.metrics.refused_full += 1
            raise HttpError(503, f"this node serves at most {self.limits.clients} clients")
        return Session(self, request.token)

    def connected(self, session: Session) -> None:
        self.metrics.connections += 1
        self.open[session] = None

    def disconnected(self, session: Session) -> None:
        self.open.pop(session, None)
        self.connections.closed(session.raw)
        self.retire(session)

    def retire(self, session: Session) -> None:
        """Its client is gone, or as good as gone: nothing is matched for it any more."""
        self._read_all()
        self.quotas.leave(session)
        self._withhold(session, [one.said for one in session.waiting if one.said is not None])
        session.forget()
        if session.held is not None:
            session.held = None
            del self._held[session]
            if not session.closing:
                session.raw.resume_reading()
        if self.cluster is not None:
            self.cluster.passages.give_back(session)
        seat = self.release(session)
        if seat is not None:
            self.realm.leave(self.now(), seat)

    def release(self, session: Session) -> ClientState | None:
        """Its client is not served by this connection any more."""
        seat, session.seat = session.seat, None
        if seat is not None:
            self.clients -= 1
            self._sum_up(session, seat)
            self._states.pop(seat.entity, None)
            self._slow.pop(seat.place, None)
            self._sessions[seat.place], self._writes[seat.place] = None, _keep
        return seat

    def dismiss(self, seat: ClientState) -> None:
        """An entity that spoke over HTTP ends, with its states."""
        self._states.pop(seat.entity, None)
        self.realm.leave(self.now(), seat)

    # Words.

    def read(self, session: Session, frame: bytes, binary: bool) -> None:
        """A frame of a client. Publications are looked at together, before anything else is."""
        if session.held is not None:
            session.held.append((frame, binary))
            return
        if len(frame) > LARGE:
            self._read_work += len(frame)
            if self._read_work > READ_WORK:
                self._hold(session, self._ticks + 1, frame, binary)
                return
        if binary and session.seat is not None and messages.is_publish_frame(frame):
            self._unread.append((session, frame))
            if self._flush_timer is None:
                self.wake()
            return
        if session.elsewhere is not None and self.cluster is not None:
            self.cluster.passages.spoke(session, frame, binary)
            return
        self._read_all()
        form = messages.MSGPACK if binary else messages.JSON
        if session.form is None:
            session.form = form
        self._heed(session, frame, form)

    def _read_all(self) -> None:
        """What was published and not looked at."""
        if self._unread:
            unread, self._unread = self._unread, []
            for session, frame in unread:
                try:
                    self._heed(session, frame, messages.MSGPACK)
                except Exception:
                    self._fault("a client could not be answered")

    def _heed(self, session: Session, frame: bytes, form: messages.Encoding) -> None:
        """Obey one frame. Whatever is wrong with it is told to this client alone."""
        number: int | None = None
        try:
            if len(frame) > self._longest_frame:
                number = form.request_id(frame)
                raise Refused(f"a frame has at most {self._longest_frame} bytes")
            try:
                word = form.decode_request(frame)
            except messages.DECODE_ERRORS as why:
                number = form.request_id(frame)
                raise messages.as_malformed(why) from None
            number = word.id
            if number is not None and not 0 <= number < messages.REQUEST_IDS_END:
                number = None  # no answer could repeat it
                raise Refused("an id is from 0 to 2**53 - 1")
            if not session.bucket.take() and not session.bucket.fill(monotonic()):
                raise Refused(f"a client makes at most {session.bucket.rate} requests a second")
            if type(word) is form.publish_class:
                if session.seat is None:
                    raise Refused("join first")
                if session.limited and session.grant is not None:
                    check_publishing(session.grant, word)
                self.realm.publish(session.seat, word, form)
                if self._flush_timer is None:
                    self.wake()
                session.published += 1
                session.published_bytes += len(frame)
                if session.published_bytes > self._most_bytes:
                    self._hold(session, self._next_second())
                return
            kind = form.message_class(word)
            if self._read_work > READ_WORK and costly(kind, word):
                session.bucket.charge(-1)
                self._hold(session, self._ticks + 1, frame, form.binary)
                return
            self._read_work += PARSED * parsed(kind, word)
            self._obey(session, kind, word)
        except (Refused, MalformedMessageError) as why:
            self._refuse(session, messages.ErrorNotice(str(why), number))
        except Exception:
            self._fault(f"a request of {session.seat and session.seat.name!a} failed")
            session.send(messages.ErrorNotice(MISTAKE, number))
        session.asked += 1
        session.asked_bytes += len(frame)
        if session.asked_bytes + session.published_bytes > self._most_bytes:
            self._hold(session, self._next_second())

    def _refuse(self, session: Session, error: messages.ErrorNotice) -> None:
        """Tell the client; one that is refused again and again is let go."""
        self.metrics.refused += 1
        session.refused += 1
        session.send(error)
        self._read_work += REFUSAL
        if self._read_work > READ_WORK:
            self._hold(session, self._ticks + 1)
        if session.refused - session.refused_before > self.limits.refusals and not session.closing:
            self.metrics.cut_refused += 1
            session.end(
                f"more than {self.limits.refusals} of your requests were refused"
                f" within {REFUSALS_S} seconds"
            )

    def _hold(
        self, session: Session, until: int, frame: bytes | None = None, binary: bool = False
    ) -> None:
        """Read nothing more of this client before that tick. Such a frame is read again then."""
        if session.closing:
            return
        if session.held is None:
            session.held = []
            session.paused_reading += 1
            self.metrics.slowed += 1
            self._held[session] = until
            session.raw.pause_reading()
        if frame is not None:
            session.held.append((frame, binary))

    def _next_second(self) -> int:
        """The tick at which the clients' bytes are counted from 0 again."""
        return (self._ticks // TICKS + 1) * TICKS

    def _read_on(self) -> None:
        """Read on where reading was paused: who has waited longest first, as far as work allows."""
        self._read_work = 0
        for session in [one for one, until in self._held.items() if until <= self._ticks]:
            if self._read_work > READ_WORK:
                break
            if session.held is None:
                continue  # it was let go meanwhile
            held, session.held = session.held, None
            del self._held[session]
            for frame, binary in held:  # should it be held again, the rest waits again
                self.read(session, frame, binary)
            if session.held is None and not session.closing:
                session.raw.resume_reading()

    def _charge(self, session: Session, cost: int) -> None:
        """What a request costs besides the one token that every request takes."""
        session.bucket.charge(cost)
        self._read_work += COST * cost

    def _obey(self, session: Session, kind: type, word: Any) -> None:
        if kind is messages.JoinRequest:
            self._join(session, word)
            return
        seat, realm, now = session.seat, self.realm, self.now()
        if seat is None:
            raise Refused("join first")
        assert session.grant is not None
        if kind is messages.NearbyRequest:
            check_listening(session.grant, word.area, word.channel, self.limits)
            found = realm.nearby(now, word, seat.form)
            self._charge(session, realm.cost(len(found)))
            session.send(messages.NearbyNotice(found, word.id))
            return
        notices: list[messages.Notice] = []
        if kind is messages.MoveRequest:
            known = seat.subscriptions.get(word.subscription)
            if known is not None:
                check_listening(session.grant, word.area, known.subscription.channel, self.limits)
            realm.move(now, seat, word)
        elif kind is messages.SubscribeRequest:
            check_listening(session.grant, word.area, word.channel, self.limits)
            check_subscriptions(session, word.subscription)
            notices = realm.subscribe(now, seat, word)
        elif kind is messages.TuneRequest:
            realm.tune(now, seat, word)
        elif kind is messages.UnsubscribeRequest:
            realm.unsubscribe(now, seat, word)
        elif kind is messages.WithdrawRequest:
            realm.withdraw(now, seat, word)
            self._states.pop(seat.entity, None)
        self.metrics.interests += kind not in (messages.LeaveRequest, messages.WithdrawRequest)
        if word.id is not None:
            traced = None
            if kind is messages.SubscribeRequest:
                traced = seat.subscriptions[word.subscription].subscription.id
            session.send(messages.DoneNotice(word.id, realm.now, subscription=traced))
        for notice in notices:
            if isinstance(notice, messages.InsideNotice):
                self._charge(session, realm.cost(len(notice.entities)))
            session.send(notice)
        if kind is messages.LeaveRequest:
            session.end("you left", CloseCode.NORMAL)

    # Tokens.

    def judge(self, token: str) -> Verdict:
        return self.access.judge(token, self.now() / SECOND)

    async def judge_again(self, token: str, verdict: Denied) -> Verdict:
        """With fresh keys, if the token names one that is not known; else as before."""
        if verdict.unknown_key:
            if await self.access.refresh():
                self.adopt(self.access)
            return self.judge(token)
        return verdict

    def pause(self, remote: str, token: str, verdict: Denied) -> float:
        """A token was refused: for how many seconds the answer waits. To say none is no guess."""
        if not token:
            return 0.0
        self.metrics.tokens_refused += 1
        return self.guesses.failed(remote, monotonic()) if verdict.guess else 0.0

    def adopt(self, access: AccessControl) -> None:
        """From now on these tokens and keys count; sessions whose own is gone end."""
        self.access = access
        for session in list(self.open):
            if session.grant is not None:
                grant = access.renewed(session.grant)
                if grant is None:
                    session.end("your token is not valid any more")
                elif grant is not session.grant:
                    session.allow(grant)
                    self.check_standing(session)

    def check_standing(self, session: Session) -> bool:
        """Does what the client listens to fit what it may do now? If not, its session ends."""
        grant, seat = session.grant, session.seat
        if grant is None or seat is None or not grant.limits_listening:
            return True
        wanted = [standing.subscription for standing in seat.subscriptions.values()]
        if any(grant.listening_refusal(one.region, one.channel) for one in wanted):
            session.end("your token does not allow what you listen to any more")
            return False
        return True

    def _join(self, session: Session, word: Any) -> None:
        if session.seat is not None:
            raise Refused("you have joined already")
        if session.joining:
            raise Refused("your join is under way")
        token = word.token or session.token
        verdict = self.judge(token)
        if isinstance(verdict, Denied):
            session.joining = True
            task = self.loop.create_task(self._join_late(session, word, token, verdict))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return
        session.allow(verdict)
        self._enter(session, word)

    async def _join_late(self, session: Session, word: Any, token: str, denied: Denied) -> None:
        """A token that is not known: perhaps its key is new. If not, refuse it after a pause."""
        verdict = await self.judge_again(token, denied)
        if isinstance(verdict, Denied):
            await asyncio.sleep(self.pause(session.remote, token, verdict))
            session.send(messages.ErrorNotice(verdict.reason, word.id))
            session.end(TOKEN_NEEDED if verdict.guess else verdict.reason)
            return
        session.joining = False
        if session.closing:
            return
        session.allow(verdict)
        try:
            self._enter(session, word)
        except Refused as why:
            session.send(messages.ErrorNotice(str(why), word.id))
            session.end(str(why))
        except Exception:
            LOG.exception("a join failed")
            session.end("the node made a mistake; its log has more")

    def _enter(self, session: Session, word: Any) -> None:
        """The token is good: a client begins, or goes on with its ticket."""
        assert session.form is not None
        assert session.grant is not None
        if word.ticket and self.cluster is None:
            raise Refused("this node is in no cluster, and knows of no tickets")
        self.quotas.leave(session)  # an earlier attempt may have been with another token
        self.quotas.enter(session, session.grant, monotonic())
        if word.ticket and self.cluster is not None:
            self.cluster.passages.claim(session, word)
            session.joining = True  # until it is welcomed or turned away, by this token
            return
        if self.clients >= self.limits.clients:  # others have joined since it connected
            self.metrics.refused_full += 1
            session.send(messages.ErrorNotice("this node has no room for another client", word.id))
            session.end(f"this node serves at most {self.limits.clients} clients")
            return
        seat = self.realm.join(self.now(), word.name, session.form)
        self.welcome(session, seat, word.id)

    def welcome(self, session: Session, seat: ClientState, number: int | None) -> None:
        """From now on this connection is the client's."""
        self.serve(seat, session)
        limits = {name: float(value) for name, value in asdict(self.limits).items()}
        nodes = self.cluster.urls() if self.cluster else []
        session.send(
            messages.WelcomeNotice(
                seat.entity, self.realm.now, self.name, limits=limits, id=number, nodes=nodes
            )
        )

    def caught_up(
        self, seat: ClientState, publication: int, subscriptions: tuple[int, ...]
    ) -> None:
        """It was told by itself, and not in a flush: for the trace."""
        if self.recording:
            self.recording.recorder.delivered(
                self.now(), seat.entity, publication, subscriptions, HOPS
            )

    def serve(self, seat: ClientState, session: Session) -> None:
        """What this client hears is written to this connection, and what it asks for is obeyed."""
        self._make_room(seat.place + 1)
        place = seat.place
        self.clients += 1
        self.connections.joined(session.raw)
        self._sessions[place] = session
        self._packed[place] = seat.form.binary
        self._sent[place] = self._sent_bytes[place] = 0
        session.joined(seat)
        if session.paused:
            self.paused(session)
        else:
            self._writes[place] = session.raw.write

    def _make_room(self, seats: int) -> None:
        """Entities of this process take seats, too, without coming this way."""
        while len(self._sessions) < seats:
            self._sessions.append(None)
            self._writes.append(_keep)
        if seats > len(self._packed):
            more = 2 * seats + 64
            self._packed = _grown(self._packed, more)
            self._sent, self._sent_bytes = _grown(self._sent, more), _grown(self._sent_bytes, more)

    # Publications.

    def wake(self, after: float = 0.0) -> None:
        """Something waits to be flushed; so many seconds it may wait for more."""
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

    def answer(self, publication: int) -> "asyncio.Future[tuple[Time, int]]":
        """When it was made, and how many subscriptions heard it; known after the next flush."""
        return self._answers.setdefault(publication, self.loop.create_future())

    def flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        began = monotonic()
        self._read_all()
        if not self.realm.waiting:
            return
        written, metrics = 0, self.metrics
        for heard in flushes(self.realm, self.now, self._failed):
            written += self._tell(heard)
            metrics.publications += len(heard.publications)
            metrics.deliveries += len(heard)
            metrics.latency.add(monotonic() - self._first_waits_since, len(heard))
        ended, accounts = monotonic(), self.realm.accounts
        metrics.flushes += 1
        metrics.work, metrics.busy = accounts.work, accounts.refused
        metrics.cut_short = accounts.cut_short
        took = ended - began + WRITE_S * written
        self._flush_not_before = ended + min(PAUSE * took, self._longest_pause)
        if self.realm.waiting:  # more than one flush should do: the loop has a turn in between
            self._first_waits_since = began
            self._flush_timer = self.loop.call_soon(self.flush)

    def _tell(self, heard: Heard) -> int:
        """Everybody what they hear, and publishers that it is done; gives to how many."""
        if self.cluster is not None:
            try:
                self.cluster.flushed(heard.own)
            except Exception:
                self._fault("publications could not be passed on to other nodes")
        written = self._deliver(heard)
        self._answer(heard)
        if self.cluster is not None:
            self.cluster.delivered()
        if self.recording:
            seats = self.realm.seats
            for said in heard.publications:
                # Somebody may have left since it was said, or be on another node.
                place = said.seat.place
                if said.request.retain and place >= 0 and seats[place] is said.seat:
                    self._states[said.seat.entity] = said
        return written

    def _fault(self, what: str, lost: int = 1) -> None:
        """Something failed that should not; called while the exception is being handled."""
        self.metrics.faults += lost
        LOG.exception(what)

    def _failed(self, said: Accepted | None) -> None:
        """Matching failed: of all publications that waited (None), and then of this one alone."""
        if said is None:
            self._fault("publications could not be matched; each is tried by itself", 0)
            return
        self.metrics.faults += 1
        session = self._publisher(said)
        if session is not None and said.request.id is not None:
            session.send(messages.ErrorNotice(MISTAKE, said.request.id))
        future = self._answers.pop(said.id, None)
        if future is not None and not future.done():
            future.set_exception(HttpError(500, MISTAKE))

    def _publisher(self, said: Accepted) -> Session | None:
        """The session of who published it, while it is a client of this node."""
        return self.session_of(said.seat.owner or said.seat)

    def session_of(self, seat: ClientState) -> Session | None:
        """The connection of this client, if it has one here."""
        place = seat.place
        session = self._sessions[place] if 0 <= place < len(self._sessions) else None
        return session if session is not None and session.seat is seat else None

    @property
    def held(self) -> int:
        """So many clients of whom nothing is read for now."""
        return len(self._held)

    def _deliver(self, heard: Heard) -> int:
        """Hand everyone their share; gives to how many."""
        self._make_room(len(self.realm.seats))
        try:
            post = letters(heard, self.realm.numbers, self._packed)
        except Exception as why:
            heard, lost = buildable(heard, self._packed)
            post = letters(heard, self.realm.numbers, self._packed)
            self.metrics.faults += lost
            LOG.error("%d publications cannot be told to some listeners", lost, exc_info=why)
        writes, frames, join = self._writes, post.frames, b"".join
        starts = post.starts.tolist()
        # Who becomes slow by what is written now has had it; it is not kept for later as well.
        slow = np.fromiter(self._slow, np.int64)
        large = np.flatnonzero(post.sizes > SHARE)
        if len(large):
            slow = np.concatenate((slow, self._spread(post.seats[large])))
        for place, first, last in zip(post.seats.tolist(), starts, starts[1:], strict=False):
            writes[place](join(frames[first:last]))
        sent = np.diff(post.starts)
        which: Any = slice(None)
        if len(slow):
            later = np.flatnonzero(np.isin(post.seats, slow))
            self._queue(heard, post, later)
            sent[later] = post.sizes[later] = 0
            which = ~np.isin(heard.seat, slow)
        self._sent[post.seats] += sent
        self._sent_bytes[post.seats] += post.sizes
        self.realm.delivered(max(self.now(), heard.t), heard, which)
        if self.queued > self.limits.queues_bytes:
            self._relieve()
        return len(post.seats)

    def paused(self, session: Session) -> None:
        """Its transport is full: what is for it now waits, and nobody else does."""
        if session.seat is not None:
            self._slow[session.seat.place] = session
            self._writes[session.seat.place] = _keep

    def resumed(self, session: Session) -> None:
        if session.seat is not None:
            self._slow.pop(session.seat.place, None)
            self._writes[session.seat.place] = session.raw.write

    def _spread(self, places: Integers) -> Integers:
        """Of these clients, those to be handed their share in pieces: it goes by their queue."""
        found = [place for place in places.tolist() if self._sessions[place] is not None]
        for place in found:
            self._writes[place] = _keep
        return np.array(found, np.int64)

    def _queue(self, heard: Heard, post: DeliveryFrames, turns: Integers) -> None:
        """What is for these clients goes by their queues. Queues share frames and `Said`."""
        shared: dict[int, Said] = {}
        for turn in turns.tolist():
            session = self._sessions[int(post.seats[turn])]
            if session is None or session.seat is None:
                continue
            first, last = int(post.starts[turn]), int(post.starts[turn + 1])
            publications = post.publications[first:last].tolist()
            for place in publications:
                if place not in shared:
                    one = heard.publications[place]
                    said = one.request
                    shared[place] = Said(one.seat.entity, said.channel, said.retain, one.id, ())
            told = [shared[place] for place in publications]
            if self.recording:
                numbers = self.realm.subscriptions
                told = traced(told, publications, heard, session.seat.place, numbers)
            self._withhold(session, session.queue(post.frames[first:last], told))
            if not session.paused:
                self.resumed(session)

    def _relieve(self) -> None:
        """All queues together are too large: the largest lose messages until they are equal."""
        slow = [session for session in self.open if session.bytes]
        level = fair_level(
            [session.bytes for session in slow],
            self.limits.queues_bytes - self.limits.queues_bytes // SLACK,
        )
        for session in slow:
            if session.bytes > level:
                self._withhold(session, session.shed(0, session.bytes - level))
                if session.bytes > 2 * level:  # only notices are left
                    session.cut("you do not read what you are told")

    def delivered_late(self, session: Session, told: list[Said]) -> None:
        session.sent += len(told)
        if self.recording and session.seat is not None:
            now = self.now()
            for one in told:
                self.recording.recorder.delivered(
                    now, session.seat.entity, one.publication, one.subscriptions, HOPS
                )

    def _withhold(self, session: Session, dropped: list[Said]) -> None:
        self.metrics.dropped += len(dropped)
        if self.recording and session.seat is not None:
            now, entity = self.now(), session.seat.entity
            for one in dropped:
                for _ in one.subscriptions:
                    self.recording.recorder.note(now, entity, "withheld", one.publication)

    def _answer(self, heard: Heard) -> None:
        for said in heard.publications:
            number = said.request.id
            if number is not None:
                session = self._publisher(said)
                if session is not None:
                    session.send(messages.DoneNotice(number, heard.t, said.id))
        if self._answers:
            readers = np.bincount(heard.publication, minlength=len(heard.publications))
            for said, count in zip(heard.publications, readers.tolist(), strict=True):
                future = self._answers.pop(said.id, None)
                if future is not None and not future.done():
                    future.set_result((heard.t, count))

    # What happens by itself.

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        try:
            self._notify(self.realm.tick(self.now()))
            if self.queued > self.limits.queues_bytes:
                self._relieve()
            if self._ticks % TICKS == 0:
                self._second()
            self._read_on()
        except Exception:
            LOG.exception("a tick failed")

    def _notify(self, notices: Iterable[tuple[ClientState, messages.Notice]]) -> None:
        """Many clients are told the same at one tick: it is made a frame once for each form."""
        frames: dict[tuple[int, messages.Encoding], bytes] = {}
        shares: dict[Session, list[bytes]] = {}
        told = list(notices)  # what is in a list has an identity as long as the list
        for seat, notice in told:
            session = self.session_of(seat)
            if session is not None:
                key = id(notice), seat.form
                if key not in frames:
                    try:
                        frames[key] = framed(seat.form, seat.form.encode(notice))
                    except Exception:
                        self._fault("a notice could not be told")
                        continue
                shares.setdefault(session, []).append(frames[key])
        for session, share in shares.items():
            session.send_frames(share)

    def _second(self) -> None:
        now, unix = monotonic(), self.now() / SECOND
        fresh = self._ticks % (TICKS * REFUSALS_S) == 0
        self.quotas.forget(now)
        for session in list(self.open):
            if fresh:
                session.refused_before = session.refused
            if session.expired(unix):
                session.end("your token has expired")
            if session.seat is not None:
                self._sum_up(session, session.seat)
            if session.paused and not session.closing:
                session.tell_dropped()
                if now - session.stuck_since > self.limits.slow_s:
                    session.cut(f"you read nothing for {self.limits.slow_s:g} seconds")
        moved = self.metrics.bytes_in + self.metrics.bytes_out
        connected = memory.CONNECTION * len(self.connections)
        self._trimming.look(self.queued + moved - self._moved + connected)
        self._moved = moved
        if self.recording:
            self._record(self.recording, now)

    def _record(self, recording: LiveRecording, now: float) -> None:
        t = self.now()
        self._states = {e: said for e, said in self._states.items() if not said.seat.left}
        for entity, said in self._states.items():
            where = said.request
            recording.recorder.position(t, entity, where.x, where.y, where.z)
        # Two rows of one subscription at one moment must not be parted.
        if now >= self._rotate_at and t > self.realm.now:
            self._rotate_at = now + ROTATE_S
            recording.rotate()
            self.metrics.unrecorded = recording.writer.lost

    def _sum_up(self, session: Session, seat: ClientState) -> None:
        published, published_bytes, asked, asked_bytes, sent, sent_bytes = session.counts()
        sent += int(self._sent[seat.place])
        sent_bytes += int(self._sent_bytes[seat.place])
        self._sent[seat.place] = self._sent_bytes[seat.place] = 0
        session.bytes_in += published_bytes + asked_bytes
        session.bytes_out += sent_bytes
        self.metrics.requests += published + asked
        self.metrics.bytes_in += published_bytes + asked_bytes
        self.metrics.bytes_out += sent_bytes
        if self.recording:
            now, sums = self.now(), self.recording.sums
            node = self.number
            sums.add(now, seat.entity, node, "publish", published_bytes, published)
            sums.add(now, seat.entity, node, "request", asked_bytes, asked)
            sums.add(now, node, seat.entity, "notice", sent_bytes, sent)

    def close(self, reason: str) -> None:
        """Deliver what waits, say goodbye to everyone, and stop."""
        self.flush()
        while self.realm.waiting:
            self.flush()
        self._timer.cancel()
        for task in self._late:
            task.cancel()
        for session in list(self.open):
            session.end(reason, CloseCode.GOING_AWAY)
