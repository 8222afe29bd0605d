"""What a live node decides for its clients, without clock or socket.

A gateway lets clients in, tells the realm what they ask for, and asks it every few milliseconds who
hears what was published since (`flush`). Interests take effect at once, each at a moment after the
publications before it; publications are made when they are flushed, all of a batch at one moment.
So what is heard is exactly what the trace says should be heard, and matching is done in columns.

What `flush` returns speaks of places, which are used again: read it before asking for more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import (
    Limits,
    as_refusal,
    check_name,
    check_subscription_number,
    checked_region,
    publication_shape,
    refuse_value_errors,
    subscribe_command,
)
from nearcast.client_protocol.payloads import MAX_NESTING
from nearcast.errors import Busy, Refused
from nearcast.matching import MATCHERS
from nearcast.matching.filters import count_steps
from nearcast.matching.matcher import Batch, EvaluationCost, Integers, Matcher
from nearcast.model import commands
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import Formula, Subscription, Value
from nearcast.model.variables import bind
from nearcast.service.client_state import (
    Accepted,
    ActiveSubscription,
    ClientState,
    Heard,
    SlotAllocator,
    Wish,
)
from nearcast.service.fair_queueing import Accounts, Backlog
from nearcast.service.path_legs import PathLegs
from nearcast.service.presence import Presence, watching
from nearcast.service.retained_state import (
    BITS,
    SAID,
    VOICE,
    RetainedState,
    RetainedStates,
    Said,
    batch,
    clear_retain,
    pack,
)  # fmt: skip
from nearcast.service.throttling import KEPT, Throttle, check_wish, has_centre
from nearcast.space.motion import Time
from nearcast.trace.recorder import Recorder

__all__ = [
    "Accepted",
    "ActiveSubscription",
    "ClientState",
    "Heard",
    "Limits",
    "Realm",
    "Refused",
    "flushes",
]

FIRST_ROOM = 64  # places for which columns have room at first; they double
HOPS = 2  # from the publisher to the node, and from there to whoever hears it
NOBODY = -1  # whose publication would be an echo to nobody who asks
ANSWER_BYTES = 1_048_576  # of payloads that `inside` or `nearby` lists
# What `nearby` and a subscription that watches cost besides one request: another one, and one more
# for every so many states that there are, and for every so many that are listed.
LOOKED_AT, LISTED = 500, 50
FILTERED = 500  # states at most for which a filter is asked at once


class Flush(Struct):
    """Publications of one flush: of clients here, with rows of SAID; and of other nodes."""

    accepted: Sequence[Accepted]
    said: Said
    channels: list[str] | None  # None: all are on the default one
    attributes: list[dict[str, Value]] | None  # None: none has any
    overheard: list[tuple[Accepted, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self.accepted or self.overheard)

    def singly(self) -> Iterator[tuple[Accepted, "Flush"]]:
        """The same, one publication at a time."""
        for i, one in enumerate(self.accepted):
            channels = self.channels and self.channels[i : i + 1]
            attributes = self.attributes and self.attributes[i : i + 1]
            yield one, Flush([one], self.said[i : i + 1], channels, attributes)
        for one, row in self.overheard:
            yield one, Flush((), self.said[:0], None, None, [(one, row)])


class Realm:
    def __init__(
        self,
        matcher: Matcher,
        limits: Limits,
        recorder: Recorder | None,
        entities_from: int = 1,
    ) -> None:
        self.now: Time = 0  # of the last thing that happened
        self.limits = limits
        self.seats: list[ClientState | None] = []  # by place
        self.entities: Integers = np.zeros(FIRST_ROOM, np.int64)  # by a seat's place
        # By a standing's place: the client's number of it, its number in the trace, its seat,
        # and its number among those who spare.
        self.numbers: Integers = np.zeros(FIRST_ROOM, np.int64)
        self.subscriptions: Integers = np.zeros(FIRST_ROOM, np.int64)
        self._listeners: Integers = np.zeros(FIRST_ROOM, np.int64)
        self._sparers: Integers = np.zeros(FIRST_ROOM, np.int64)
        self._matcher = matcher
        self._recorder = recorder
        self._flushed: Time = -1
        self._seat_places, self._standing_places = SlotAllocator(), SlotAllocator()
        self._next_entity = self._next_subscription = self._next_publication = entities_from
        self._waiting: list[Accepted] = []
        self._said = bytearray()  # the same, as rows of SAID
        self._on_channels = False  # are some of them on another channel than the default one?
        self._attributed = False  # have some of them attributes?
        self._walks = PathLegs()
        self._voices = RetainedStates()
        self._watches = Presence(self._voices, limits.watched)
        self._watching: dict[int, tuple[ClientState, ActiveSubscription]] = {}
        self._sparing = Throttle()
        self._thrifty: dict[int, tuple[ClientState, ActiveSubscription]] = {}
        self.accounts = Accounts()
        self._backlog = Backlog()
        self._looking = MATCHERS["keyed"]()  # for who is asked about once

    @property
    def waiting(self) -> int:
        """How many publications wait for the next flush."""
        return len(self._waiting) + len(self._backlog)

    def publishes(self, seat: ClientState) -> int:
        """How many of its publications a flush has left waiting."""
        return self._backlog.waits(seat)

    # Clients.

    def join(self, now: Time, name: str, form: messages.Encoding = messages.JSON) -> ClientState:
        with refuse_value_errors():
            check_name("a name", name, self.limits)
        self._reach(now)
        seat = self._take_seat(self._next_entity, name, form)
        self._next_entity += 1
        if self._recorder:
            self._recorder.note(self.now, seat.entity, "joined")
        return seat

    def _take_seat(self, entity: int, name: str, form: messages.Encoding) -> ClientState:
        seat = ClientState(self._seat_places.take(), entity, name, form)
        if seat.place == len(self.seats):
            self.seats.append(None)
        if seat.place == len(self.entities):
            self.entities = _doubled(self.entities)
        self.seats[seat.place], self.entities[seat.place] = seat, seat.entity
        self.accounts.open(seat.place)
        return seat

    def _vacate(self, seat: ClientState) -> None:
        self.seats[seat.place] = None
        self._seat_places.give(seat.place)

    def leave(self, now: Time, seat: ClientState) -> None:
        """All its subscriptions and states end. What it published and still waits is heard."""
        if seat.left:
            return
        for entity in list(seat.entities.values()):
            self.leave(now, entity)
        if seat.owner is not None:
            del seat.owner.entities[seat.name]
        for standing in seat.subscriptions.values():
            self._reach(self._moment(now, standing))
            self._end(standing)
        for voice in seat.voices.values():
            self._voices.leave(voice, self._next_publication)
        self._reach(now)
        seat.subscriptions.clear()
        seat.left = True
        self._vacate(seat)
        if self._recorder:
            self._recorder.note(self.now, seat.entity, "left")

    # Interests.

    def subscribe(
        self, now: Time, seat: ClientState, request: messages.SubscribeRequest
    ) -> list[messages.Notice]:
        """It holds from now on; who watches is told who is there."""
        mine = seat.subscriptions
        before = mine.get(request.subscription)
        with refuse_value_errors():
            check_subscription_number(request.subscription)
            if before is None and len(mine) >= self.limits.subscriptions:
                raise Refused(f"a client has at most {self.limits.subscriptions} subscriptions")
            number = before.subscription.id if before else self._next_subscription
            wanted = subscribe_command(request, number, self.limits)
            wish = Wish(request.rates, request.closest, request.budget)
            check_wish(wish, wanted.region)
            t = self._moment(now, before)
            subscription = wanted.stamped(seat.entity, t)
            cost = self._check_steps(seat, before, subscription)
        if before is None:
            self._next_subscription += 1
            place = self._take_standing(seat, request.subscription, number)
        else:
            place = before.place
            self._release(before)
            self._outdate(t, before)
        standing = ActiveSubscription(
            place, request.subscription, t, wanted, subscription, wish,
            linger=request.linger, homes=before.homes if before else 0, steps=cost,
        )  # fmt: skip
        mine[request.subscription] = standing
        self._change(t, standing, wanted, subscription)
        self._spare(seat, standing)
        return [self._watch(seat, standing)] if request.watch else []

    def _spare(self, seat: ClientState, standing: ActiveSubscription) -> None:
        if standing.wish:
            region = standing.subscription.region
            standing.sparer = self._sparing.begin(self.now, standing.wish, region)
            self._thrifty[standing.sparer] = seat, standing
            self._sparers[standing.place] = standing.sparer

    def move(self, now: Time, seat: ClientState, request: messages.MoveRequest) -> None:
        try:
            standing = _standing(seat, request.subscription)
            wanted = standing.asked
            region = checked_region(request.area, self.limits)
            if standing.sparer is not None:
                check_wish(standing.wish, region)
            if wanted.variables:  # only then it matters what was asked for
                wanted = replace(wanted, region=region)
            if isinstance(region, str):
                region = Formula(bind(region, wanted.variables))
            t = self._moment(now, standing)
            subscription = standing.subscription.moved(region, t)
            cost = self._check_steps(seat, standing, subscription)
        except ValueError as why:
            raise as_refusal(why) from None
        standing.steps = cost
        self._outdate(t, standing)
        self._change(t, standing, wanted, subscription)

    def tune(self, now: Time, seat: ClientState, request: messages.TuneRequest) -> None:
        with refuse_value_errors():
            standing = _standing(seat, request.subscription)
            if not request.variables:
                raise Refused("to tune is to name a variable")
            for name in request.variables:
                if name not in standing.asked.variables:
                    raise Refused(f"subscription {standing.number} has no variable {name[:64]!a}")
            t = self._moment(now, standing)
            wanted = standing.asked.tuned(request.variables)
            subscription = wanted.rebound(standing.subscription, t)
            cost = self._check_steps(seat, standing, subscription)
        standing.steps = cost
        self._outdate(t, standing)
        self._change(t, standing, wanted, subscription)

    def unsubscribe(
        self, now: Time, seat: ClientState, request: messages.UnsubscribeRequest
    ) -> None:
        standing = _standing(seat, request.subscription)
        self._reach(self._moment(now, standing))
        self._end(standing)
        del seat.subscriptions[standing.number]

    def _check_steps(
        self, seat: ClientState, before: ActiveSubscription | None, wanted: Subscription
    ) -> int:
        """How many steps its formula and filter take; Refused if that is too much for a client."""
        cost = sum(count_steps(wanted))
        if cost > (before.steps if before else 0):
            total = cost + sum(s.steps for s in seat.subscriptions.values() if s is not before)
            if total > self.limits.steps:
                raise Refused(
                    f"the formulas and filters of a client take at most {self.limits.steps} steps,"
                    f" and with this one yours take {total}"
                )
        return cost

    def _outdate(self, t: Time, standing: ActiveSubscription) -> None:
        """It will be something else from `t` on; here nobody needs to know what it was."""

    def _change(
        self,
        t: Time,
        standing: ActiveSubscription,
        wanted: commands.Subscribe,
        subscription: Subscription,
    ) -> None:
        self._reach(t)
        standing.since, standing.asked, standing.subscription = t, wanted, subscription
        self._matcher.put(replace(subscription, id=standing.place))
        if standing.watch is not None:
            self._watches.change(standing.watch, subscription)
        if standing.sparer is not None:
            self._sparing.move(t, standing.sparer, subscription.region)
        if self._recorder:
            self._recorder.interest(t, subscription)
            self._walks.put(subscription, t)

    def _end(self, standing: ActiveSubscription) -> None:
        wanted = standing.subscription
        self._drop(standing)
        if self._recorder:
            self._recorder.ended(self.now, wanted.node, wanted.id)

    def _drop(self, standing: ActiveSubscription) -> None:
        self._matcher.drop(standing.place)
        self._release(standing)
        self._standing_places.give(standing.place)
        self._walks.drop(standing.subscription.id)

    def _release(self, standing: ActiveSubscription) -> None:
        """It neither watches nor spares any more."""
        if standing.watch is not None:
            self._watches.end(standing.watch)
            del self._watching[standing.watch]
        if standing.sparer is not None:
            self._sparing.end(standing.sparer)
            del self._thrifty[standing.sparer]
            self._sparers[standing.place] = NOBODY

    def _take_standing(self, seat: ClientState, number: int, subscription: int) -> int:
        place = self._standing_places.take()
        if place == len(self.numbers):
            self.numbers, self.subscriptions = _doubled(self.numbers), _doubled(self.subscriptions)
            self._listeners, self._sparers = _doubled(self._listeners), _doubled(self._sparers)
        self.numbers[place], self.subscriptions[place] = number, subscription
        self._listeners[place], self._sparers[place] = seat.place, NOBODY
        return place

    # Publications.

    def publish(
        self, seat: ClientState, request: messages.PublishRequest, form: messages.Encoding
    ) -> int:
        """Accepted, under this number; it is made, and heard, at the next flush.

        If the node is busy it may be left for a later one, and Refused if too much is.
        """
        try:
            if seat.held:
                self.accounts.refused += 1
                raise Busy(
                    f"the node is busy: {seat.held} of your publications wait to be delivered;"
                    " publish again later"
                )
            where = publication_shape(request, self.limits)
            size = len(request.payload)
            if size:
                if size > self.limits.payload:
                    raise Refused(f"a payload has at most {self.limits.payload} bytes")
                if size > MAX_NESTING:
                    form.check_payload(request.payload)
                else:  # most are small, and this costs least
                    try:
                        form.decode_value(request.payload)
                    except messages.DECODE_ERRORS:
                        form.check_payload(request.payload)
            if request.attributes:
                check_attributes(request.attributes)
            client = seat
            if request.name:
                seat = self._spoken_for(client, request.name)
            voice = seat.voices.get(request.channel)
            if voice is None:
                voice = self._new_voice(seat, request.channel)
        except ValueError as why:
            raise as_refusal(why) from None
        if request.channel:
            self._on_channels = True
        if request.attributes:
            self._attributed = True
        number = self._next_publication
        self._next_publication += 1
        self._waiting.append(Accepted(seat, number, where[0], request, form))
        self._said += pack(
            seat.entity, client.entity, client.place, voice, size, request.retain, *where
        )
        return number

    def _spoken_for(self, seat: ClientState, name: str) -> ClientState:
        """The entity of this name for which the client speaks."""
        entity = seat.entities.get(name)
        if entity is None:
            if len(seat.entities) >= self.limits.entities:
                raise Refused(
                    f"a client speaks for at most {self.limits.entities} entities beside itself:"
                    " withdraw one"
                )
            entity = seat.entities[name] = self.join(self.now, name, seat.form)
            entity.owner = seat
        return entity

    def withdraw(self, now: Time, seat: ClientState, request: messages.WithdrawRequest) -> None:
        """States end, after all that this client has published so far."""
        if request.name:
            if request.name not in seat.entities:
                raise Refused(f"you do not speak for {request.name[:64]!a}")
            seat = seat.entities[request.name]
            if request.channel is None:
                self.leave(now, seat)
                return
        channels = list(seat.voices) if request.channel is None else [request.channel]
        self._reach(self._moment(now, None))
        for channel in channels:
            if channel in seat.voices:
                self._withdraw(seat, channel)

    def _withdraw(self, seat: ClientState, channel: str) -> None:
        self._voices.leave(seat.voices.pop(channel), self._next_publication)
        # What waits is published after this moment: it is heard, but is no state any more.
        for place, one in enumerate(self._waiting):
            if one.unretain(seat, channel):
                clear_retain(self._said, place)
        self._backlog.unretain(seat, channel)

    def _new_voice(self, seat: ClientState, channel: str) -> int:
        check_name("a channel", channel, self.limits)
        if len(seat.voices) >= self.limits.channels:
            raise Refused(f"a client publishes on at most {self.limits.channels} channels")
        voice = seat.voices[channel] = self._voices.take()
        return voice

    def flush(self, now: Time) -> Heard:
        """What waits is published now. Who hears it?

        All of it, unless it is more than a flush should do at once (see `work`): then `waiting`
        says that there is more.
        """
        return self.make(now, self.take())

    def take(self) -> Flush:
        """What is to be published in one flush; the rest stays."""
        accepted, said = self._next()
        channels = [one.request.channel for one in accepted] if self._on_channels else None
        attributes = [one.request.attributes for one in accepted] if self._attributed else None
        if not self._backlog:
            self._on_channels = self._attributed = False
        return Flush(accepted, said, channels, attributes)

    def _next(self) -> tuple[Sequence[Accepted], Said]:
        accepted, said = self._waiting, np.frombuffer(self._said, SAID)
        self._waiting, self._said = [], bytearray()
        if not self._backlog and self.accounts.fits(said):
            return accepted, said
        rows, size = said.tobytes(), SAID.itemsize
        for i, one in enumerate(accepted):
            self._backlog.add(one, rows[i * size : (i + 1) * size], self.accounts)
        taken = self._backlog.take(self.accounts)
        said = np.frombuffer(bytearray().join([row for _, row in taken]), SAID)
        return [one for one, _ in taken], said

    def make(self, now: Time, taken: Flush) -> Heard:
        """These are published now, all at one moment. Who hears them?"""
        self._reach(now)
        t = self._flushed = self.now
        if not taken:
            return Heard(t, (), *np.empty((3, 0), np.int64))
        accepted = taken.accepted
        publications = batch(t, taken.said, accepted, taken.channels, taken.attributes)
        heard, said = self._heard(t, taken, publications)
        if len(self._sparing):
            heard = self._spared(heard, said)
        # Last: what has failed before is not in the trace, and can be tried again.
        if self._recorder and accepted:
            self._recorder.published_many(
                publications, _ids(accepted), taken.attributes, taken.said["size"]
            )
        self._settle()
        return heard

    def _settle(self) -> None:
        """The numbers of voices that left may be used again, once nothing of theirs waits."""
        next_one = self._waiting[0].id if self._waiting else self._next_publication
        self._voices.settle(self._backlog.oldest(next_one))

    def _heard(self, t: Time, taken: Flush, publications: Batch) -> tuple[Heard, Said]:
        """Who hears what, and all that was said."""
        accepted, said = taken.accepted, taken.said
        self._voices.hear(t, accepted, said)
        matches = self._matcher.match_many(publications)
        heard = self._sorted(t, accepted, matches.publication, matches.subscription)
        self._charge(heard, said, matches.cost)
        return heard, said

    def _charge(self, heard: Heard, said: Said, effort: EvaluationCost | None) -> None:
        askers = self._listeners[effort.subscription] if effort is not None else None
        self.accounts.charge(said, self.entities, heard.publication, heard.seat, effort, askers)

    def _sorted(
        self, t: Time, accepted: Sequence[Accepted], publication: Integers, standing: Integers
    ) -> Heard:
        """One number for each pair, in the order that is wanted: sorting these is all it takes."""
        for_standing = self._standing_places.used.bit_length()
        for_publication = len(accepted).bit_length()
        pairs = (self._listeners[standing] << for_publication) | publication
        pairs = (pairs << for_standing) | standing
        pairs.sort()
        standing = pairs & ((1 << for_standing) - 1)
        pairs >>= for_standing
        publication = pairs & ((1 << for_publication) - 1)
        pairs >>= for_publication
        return Heard(t, accepted, pairs, publication, standing, _ids(accepted))

    def _spared(self, heard: Heard, said: Said) -> Heard:
        """Without what was withheld from those who asked for less."""
        sparer = self._sparers[heard.standing]
        spares = np.flatnonzero(sparer >= 0)
        verdict = self._sparing.spare(
            heard.t, sparer[spares], heard.publication[spares], said, self._voices
        )
        withheld = spares[verdict != KEPT]
        if self._recorder:
            self._recorder.noted_many(
                heard.t, self.entities[heard.seat[withheld]], "withheld", heard.numbers(withheld)
            )
        kept = np.ones(len(heard), np.bool_)
        kept[withheld] = False
        return heard.only(kept)

    def delivered(self, t: Time, heard: Heard, which: Any = slice(None)) -> None:
        """These pairs were handed over: for the trace. `which` is any index of a numpy column."""
        if self._recorder and len(heard):
            self._recorder.delivered_many(
                t, self.entities[heard.seat[which]], heard.numbers(which),
                self.subscriptions[heard.standing[which]], HOPS,
            )  # fmt: skip

    # Who is there.

    def nearby(
        self, now: Time, request: messages.NearbyRequest, form: messages.Encoding = messages.JSON
    ) -> list[messages.EntityState]:
        """Whose state is in this area now: the closest to its centre first."""
        with refuse_value_errors():
            check_name("a channel", request.channel, self.limits)
            if not 0 <= request.limit <= self.limits.nearby:
                raise Refused(f"from 0 to {self.limits.nearby} entities are listed")
            wanted = commands.Subscribe(
                0, checked_region(request.area, self.limits), channel=request.channel
            )
            subscription = wanted.stamped(NOBODY, max(now, self.now))
        self._reach(now)
        found = self._closest_first(self._present(subscription, len(self._voices)), subscription)
        return self._listed(found[: request.limit], form)[1]

    def cost(self, listed: int) -> int:
        """Of looking at all states and listing so many of them: in requests, besides the one."""
        return 1 + len(self._voices) // LOOKED_AT + listed // LISTED

    def _present(self, subscription: Subscription, most: int) -> Integers:
        """The voices whose states it would hear, were they said again now. Looks at so many."""
        voices, states, _ = self._voices.some(self.now, 0, most)
        self._looking.put(watching(subscription, 0))
        matches = self._looking.match_many(states)
        self._looking.drop(0)
        present: Integers = voices[np.sort(matches.publication)]
        return present

    def states(self, seat: ClientState) -> list[RetainedState]:
        """What it retains, one for each channel on which it does."""
        voices = seat.voices.values()
        return [self._voices.state(voice) for voice in voices if self._voices.retains(voice)]

    def _closest_first(self, voices: Integers, subscription: Subscription) -> Integers:
        """Of those as far away, who came first comes first."""
        centre, entity = self._voices.places_of_states(voices)
        region = subscription.region
        if isinstance(region, Formula) or not has_centre(region):
            return voices[np.argsort(entity, kind="stable")]
        away = centre - region.centre(self.now)
        return voices[np.lexsort((entity, np.sqrt((away * away).sum(axis=1))))]

    def _listed(
        self, voices: Integers, form: messages.Encoding
    ) -> tuple[list[int], list[messages.EntityState]]:
        """Voices and their states, as many as an answer may list and hold."""
        found: list[int] = []
        entities: list[messages.EntityState] = []
        left = ANSWER_BYTES
        for voice in voices[: self.limits.nearby].tolist():
            entity = self._voices.state(voice).entity(form)
            left -= len(entity.payload)
            if left < 0:
                break
            found.append(voice)
            entities.append(entity)
        return found, entities

    def _watch(self, seat: ClientState, standing: ActiveSubscription) -> messages.Notice:
        """It is told who is there, as many as an answer lists; of the others it is told soon."""
        wanted = standing.subscription
        standing.watch = self._watches.begin(seat.entity, wanted, standing.linger)
        self._watching[standing.watch] = seat, standing
        most = len(self._voices) if wanted.filter is None else FILTERED
        found, entities = self._listed(self._present(wanted, most), seat.form)
        self._watches.know(standing.watch, found)
        return messages.InsideNotice(standing.number, entities)

    def tick(self, now: Time) -> list[tuple[ClientState, messages.Notice]]:
        """Ten times a second: who enters and leaves, and once a second what was withheld."""
        self._reach(now)
        self._settle()
        notices = self._changes() if len(self._watches) else []
        if len(self._sparing):
            notices += self._withheld()
            self._sparing.forget(self.now, self._voices.settled)
        self._voices.forget(self._watches.departed)
        return notices

    def _changes(self) -> list[tuple[ClientState, messages.Notice]]:
        """Who is told the same shares the notice, so that it becomes a frame once."""
        changes = self._watches.look(self.now)
        notices: list[tuple[ClientState, messages.Notice]] = []
        for pairs, gone in ((changes.gone, True), (changes.left, False)):
            lefts: dict[tuple[int, int], messages.LeaveNotice] = {}
            for watch, voice in _watches_and_voices(pairs):
                seat, standing = self._watching[watch]
                key = voice, standing.number
                if key not in lefts:
                    lefts[key] = messages.LeaveNotice(
                        standing.number, self._voices.entity(voice), gone
                    )
                notices.append((seat, lefts[key]))
        enters: dict[tuple[int, int, messages.Encoding], messages.EnterNotice] = {}
        for watch, voice in _watches_and_voices(changes.entered):
            seat, standing = self._watching[watch]
            entry = voice, standing.number, seat.form
            if entry not in enters:
                entity = self._voices.state(voice).entity(seat.form)
                enters[entry] = messages.EnterNotice(standing.number, entity)
            notices.append((seat, enters[entry]))
        return notices

    def _withheld(self) -> Iterator[tuple[ClientState, messages.Notice]]:
        for sparer, rate, closest, budget in self._sparing.told(self.now):
            seat, standing = self._thrifty[sparer]
            yield seat, messages.WithheldNotice(standing.number, rate, closest, budget)

    # Time.

    def _moment(self, now: Time, before: ActiveSubscription | None) -> Time:
        """Of an interest: after all publications that were made, and after its predecessor."""
        return max(now, self.now, self._flushed + 1, before.since + 1 if before else 0)

    def _reach(self, now: Time) -> None:
        """Time goes on to `now`, or stays where it is; legs of paths begin on the way."""
        self.now = max(now, self.now)
        if self._recorder:
            for begins, subscription in self._walks.begun(self.now):
                self._recorder.interest(begins, subscription)


def flushes(
    realm: Realm, now: Callable[[], Time], failed: Callable[[Accepted | None], None]
) -> Iterator[Heard]:
    """What is to be published in one flush, together; or if that fails, each by itself.

    So a publication that cannot be matched costs no other. `failed` is called while the exception
    is being handled: with None if all of them failed together, then with each that fails alone.
    """
    taken = realm.take()
    try:
        together = realm.make(now(), taken)
    except Exception:
        failed(None)
    else:
        yield together
        return
    for publication, one in taken.singly():
        try:
            alone = realm.make(now(), one)
        except Exception:
            failed(publication)
        else:
            yield alone


def _standing(seat: ClientState, number: int) -> ActiveSubscription:
    standing = seat.subscriptions.get(number)
    if standing is None:
        raise Refused(f"there is no subscription {number}")
    return standing


def _ids(accepted: Sequence[Accepted]) -> Integers:
    """The publications' numbers; one by one, unless a flush has left some waiting."""
    first, count = accepted[0].id, len(accepted)
    if accepted[-1].id - first == count - 1:
        return np.arange(first, first + count)
    return np.fromiter((one.id for one in accepted), np.int64, count)


def _doubled(column: Integers) -> Integers:
    return np.concatenate((column, np.zeros_like(column)))


def _watches_and_voices(pairs: Integers) -> Iterator[tuple[int, int]]:
    return zip((pairs >> BITS).tolist(), (pairs & VOICE).tolist(), strict=True)
