"""The realm of a node in a cluster: it hears other nodes, remembers a while, and clients pass."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import Limits, publication_shape
from nearcast.matching.filters import count_steps
from nearcast.matching.matcher import Batch, Integers, Matcher, Matches
from nearcast.model import commands
from nearcast.model.subscription import NodeId, Subscription
from nearcast.service.client_state import NO_SEAT, Accepted, ActiveSubscription, ClientState, Heard
from nearcast.service.cluster.recent_history import Had, Passed, RecentHistory, Was
from nearcast.service.cluster.remote_entities import RemoteEntities
from nearcast.service.realm import Flush, Realm
from nearcast.service.retained_state import SAID, Said, batch, pack
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder

OVERDUE: Time = SECOND


class ClusterRealm(Realm):
    """A realm that also hears publications of other nodes, and whose clients may move."""

    def __init__(
        self, matcher: Matcher, limits: Limits, recorder: Recorder | None, entities_from: int
    ) -> None:
        super().__init__(matcher, limits, recorder, entities_from)
        self.lately = RecentHistory()
        self.strangers = RemoteEntities(self._voices)
        self._arrived: dict[int, ClientState] = {}  # by entity: who has come from another node
        self.had: dict[int, Had] = {}  # by the seat's place, of those who came from other nodes
        self._overheard: list[tuple[Accepted, bytes]] = []
        self._since: Integers = np.zeros(64, np.int64)  # by a standing's place: when it changed
        # By a seat's place: when its client left the node before this one; -1 if it has joined.
        self._departed: Integers = np.full(64, -1, np.int64)

    @property
    def waiting(self) -> int:
        return super().waiting + len(self._overheard)

    @property
    def overhears(self) -> bool:
        """Does something of other nodes wait for the next flush? It is never left for another."""
        return bool(self._overheard)

    # What others must be told of clients.

    def leave(self, now: Time, seat: ClientState) -> None:
        if not seat.left:
            super().leave(now, seat)
            self.lately.left.append(seat.entity)

    def _withdraw(self, seat: ClientState, channel: str) -> None:
        super()._withdraw(seat, channel)
        self.lately.withdrawn.append((seat.entity, channel, self.now))

    def _take_seat(self, entity: int, name: str, form: messages.Encoding) -> ClientState:
        seat = super()._take_seat(entity, name, form)
        if seat.place == len(self._departed):
            self._departed = np.concatenate((self._departed, np.full_like(self._departed, -1)))
        return seat

    def _vacate(self, seat: ClientState) -> None:
        self.had.pop(seat.place, None)
        if self._arrived.pop(seat.entity, None) is not None:
            self._departed[seat.place] = -1
        super()._vacate(seat)

    def _outdate(self, t: Time, standing: ActiveSubscription) -> None:
        """What comes late still finds it as it was."""
        was, since = standing.subscription, standing.since
        self.lately.former.add(self.now, standing.place, was, since, t)
        if since < t and self.lately.news.get(was.id) is standing:
            self.lately.skipped.append(Was(was, since, t))

    def _change(
        self,
        t: Time,
        standing: ActiveSubscription,
        wanted: commands.Subscribe,
        subscription: Subscription,
    ) -> None:
        self._note_change(t, standing)
        super()._change(t, standing, wanted, subscription)

    def _note_change(self, t: Time, standing: ActiveSubscription) -> None:
        place = standing.place
        while place >= len(self._since):
            self._since = np.concatenate((self._since, np.zeros_like(self._since)))
        self._since[place] = t
        self.lately.news[standing.subscription.id] = standing

    def _end(self, standing: ActiveSubscription) -> None:
        self.lately.news[standing.subscription.id] = None
        super()._end(standing)

    def _drop(self, standing: ActiveSubscription) -> None:
        self.lately.former.drop(standing.place)  # places are used again
        super()._drop(standing)

    # Publications.

    def overhear(
        self, entity: int, name: str, number: int, request: messages.PublishRequest,
        form: messages.Encoding, t: Time,
    ) -> bool:  # fmt: skip
        """Another node's publication: it is heard here at the next flush.

        Not if it is late and its publisher has been heard here since: False. While no link or node
        is slower than `OVERDUE`, nothing is overtaken (`trails`).
        """
        where = publication_shape(request, self.limits)
        if len(request.payload):
            form.check_payload(request.payload)
        seat, overdue = self._arrived.get(entity), t < self.now - OVERDUE
        if overdue and (seat is not None or self.strangers.overtakes(entity, t)):
            return False
        if seat is None:
            seat = self.strangers.speaks(self.now, entity, name, form, number, t)
        voice = self.strangers.voice(seat, request.channel)
        row = pack(
            seat.entity, NO_SEAT, NO_SEAT, voice, len(request.payload), request.retain, *where
        )
        self._overheard.append((Accepted(seat, number, where[0], request, form, t), row))
        return True

    def take(self) -> Flush:
        taken = super().take()
        taken.overheard, self._overheard = self._overheard, []
        return taken

    def make(self, now: Time, taken: Flush) -> Heard:
        if taken.overheard:  # whose clocks may be ahead of ours
            now = max(now, *(one.t for one, _ in taken.overheard))
        return super().make(now, taken)

    def _settle(self) -> None:
        if not self._overheard:
            super()._settle()

    def _heard(self, t: Time, taken: Flush, publications: Batch) -> tuple[Heard, Said]:
        accepted, said = taken.accepted, taken.said
        own = len(accepted)
        if taken.overheard:
            # As they were made.
            overheard = sorted(taken.overheard, key=lambda one: (one[0].t, one[0].id))
            rows = np.frombuffer(b"".join([row for _, row in overheard]), SAID)
            said = np.concatenate((said, rows))
            for place, (one, _) in enumerate(overheard, own):
                entity, channel = one.seat.entity, one.request.channel
                if one.request.retain and self.strangers.has_withdrawn(entity, channel, one.t):
                    said["retain"][place] = 0
            accepted = [*accepted, *(one for one, _ in overheard)]
            channels = [one.request.channel for one in accepted]
            publications = batch(t, said, accepted, channels if any(channels) else None)
            publications.t[own:] = [one.t for one in accepted[own:]]
        self._voices.hear(t, accepted, said)
        matches = self._matcher.match_many(publications)
        publication, standing = self._as_it_was(publications, matches)
        # What comes from elsewhere was made before, perhaps by somebody who has come here since.
        turned = (publication - own) % len(accepted)
        heard = self._sorted(t, accepted, turned, standing)
        heard = replace(heard, publication=(heard.publication + own) % len(accepted))
        self._charge(heard, said, matches.cost)
        retained = np.flatnonzero(said["retain"][:own])
        return self._remembered(heard, publications, own, retained), said

    def _as_it_was(self, publications: Batch, matches: Matches) -> tuple[Integers, Integers]:
        """By what subscriptions were when the publication was made, which may have been before
        their last change."""
        publication, standing = matches.publication, matches.subscription
        now = self._since[standing] <= publications.t[publication]
        earlier, place = self.lately.former.match(publications)
        return (
            np.concatenate((publication[now], earlier)),
            np.concatenate((standing[now], place)),
        )

    def _remembered(self, heard: Heard, publications: Batch, own: int, retained: Integers) -> Heard:
        """Without what a client has had on another node; the rest is kept in mind for a while."""
        ids = np.fromiter((one.id for one in heard.publications), np.int64, len(heard.publications))
        heard = replace(heard, ids=ids, own=own)
        if self._arrived:
            heard = heard.only(self._unheard(heard, publications))
        entities = self.entities[heard.seat]
        numbers = heard.numbers()
        self.lately.passed.append(
            Passed(
                heard.t, heard.publications, ids, publications, retained, entities, numbers,
                publications.node.tolist(),
            )
        )  # fmt: skip
        return heard

    def _unheard(self, heard: Heard, publications: Batch) -> NDArray[np.bool_]:
        """What was made before a client came here is told it only while it is known what it had."""
        unheard = np.ones(len(heard), np.bool_)
        early = publications.t[heard.publication] <= self._departed[heard.seat]
        for pair in np.flatnonzero(early).tolist():
            had = self.had.get(int(heard.seat[pair]))
            index = int(heard.publication[pair])
            t, number = int(publications.t[index]), heard.publications[index].id
            told = had is None or t < had.since or number in had.publications
            unheard[pair] = not told
        return unheard

    # Clients who come and go.

    def depart(self, now: Time, seat: ClientState, home: NodeId) -> None:
        """It goes on, on another node: nothing ends, and its voice is a stranger's from now on.

        Other entities for which it speaks stay with its connection here, and leave.
        """
        for entity in list(seat.entities.values()):
            self.leave(now, entity)
        self._reach(now)
        for standing in seat.subscriptions.values():
            self._drop(standing)
            self.lately.news.pop(standing.subscription.id, None)
        elsewhere = self.strangers.settles(
            self.now, seat.entity, seat.name, seat.form, home, self.now
        )
        elsewhere.voices = seat.voices
        self._vacate(seat)
        if self._recorder:
            self._recorder.note(self.now, seat.entity, "departed")

    def arrive(
        self, now: Time, entity: int, name: str, form: messages.Encoding,
        standings: Sequence[ActiveSubscription], former: Sequence[Sequence[Was]], departed: Time,
    ) -> ClientState:  # fmt: skip
        """It comes from another node, with all that it had there, and nothing begins anew."""
        self._reach(max(now, departed, *(standing.since for standing in standings)))
        seat = self._arrived[entity] = self._take_seat(entity, name, form)
        self._departed[seat.place] = departed
        seat.voices = self.strangers.release(entity)
        for came, versions in zip(standings, former, strict=True):
            wanted = came.subscription
            place = self._take_standing(seat, came.number, wanted.id)
            standing = replace(
                came, place=place, watch=None, sparer=None, homes=came.homes + 1,
                steps=sum(count_steps(wanted)),
            )  # fmt: skip
            seat.subscriptions[came.number] = standing
            self._note_change(came.since, standing)
            for was in versions:
                self.lately.former.add(self.now, place, was.subscription, was.since, was.until)
            self._matcher.put(replace(wanted, id=place))
            self._spare(seat, standing)
            if self._recorder:
                self._walks.put(wanted, departed)
        if self._recorder:
            self._recorder.note(self.now, seat.entity, "arrived")
        return seat

    def restore(
        self,
        seat: ClientState,
        request: messages.PublishRequest,
        form: messages.Encoding,
        number: int,
        t: Time,
    ) -> None:
        """What it retained on another node, or does there."""
        where = publication_shape(request, self.limits)
        if len(request.payload):
            form.check_payload(request.payload)
        voice = self.strangers.voice(seat, request.channel)
        said = pack(
            seat.entity, NO_SEAT, NO_SEAT, voice, len(request.payload), request.retain, *where
        )
        accepted = [Accepted(seat, number, where[0], request, form, t)]
        self._voices.hear(t, accepted, np.frombuffer(said, SAID))

    def recall(
        self, since: Time, home: NodeId, entity: int, name: str, request: messages.PublishRequest,
        form: messages.Encoding, number: int, t: Time,
    ) -> None:  # fmt: skip
        """A state of somebody who is on another node, which says so itself."""
        over = self.strangers.has_withdrawn(entity, request.channel, t)
        gone = self.strangers.is_gone(entity, since)
        if entity not in self._arrived and not gone and not over:
            seat = self.strangers.settles(self.now, entity, name, form, home, since)
            self.restore(seat, request, form, number, t)

    def gone(self, now: Time, entity: int, node: NodeId) -> None:
        """This node says that it has left; if it is here by now, it has left another node."""
        if entity not in self._arrived:
            self.strangers.gone(now, entity, node)

    def watch_again(self, seat: ClientState, numbers: Sequence[int]) -> list[messages.Notice]:
        """These of its subscriptions watch: what they know begins anew, from who is there."""
        return [self._watch(seat, seat.subscriptions[number]) for number in numbers]

    def tick(self, now: Time) -> list[tuple[ClientState, messages.Notice]]:
        notices = super().tick(now)
        self.lately.forget(self.now)
        self.strangers.forget(self.now)
        self.had = {place: had for place, had in self.had.items() if had.until > self.now}
        return notices
