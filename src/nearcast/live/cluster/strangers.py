"""Entities on other nodes, as this one knows them: their voices, and what they retain.

Every node knows the states of all entities in the cluster, so whoever watches or asks who is near
is answered at once, and as if there were one node only. A state stays known until its entity, or
the node that it is on, is said to be gone; the voice of one who retains nothing is forgotten when
it has been silent for a while. Words overtake each other between nodes: of somebody who is gone
nothing is kept that comes late, and whoever has spoken for an entity last is its node.
"""

from msgspec import Struct

from nearcast.live import words
from nearcast.live.cluster.abroad import COUNT_BITS, block_of
from nearcast.live.seats import Seat
from nearcast.live.voices import Voices
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.space.motion import SECOND, Time

SILENT: Time = 60 * SECOND
ELSEWHERE = -1  # in place of a seat's place


class Stranger(Struct):
    seat: Seat
    heard: Time  # when we last heard of it
    block: int  # of its node, and since when that is known
    since: Time


class Strangers:
    def __init__(self, voices: Voices) -> None:
        self._voices = voices
        self._known: dict[int, Stranger] = {}
        self._gone: dict[int, Time] = {}
        self._withdrawn: dict[tuple[int, str], tuple[Time, Time]] = {}  # when, and when we heard it
        self._looked: Time = 0

    def __len__(self) -> int:
        return len(self._known)

    def is_gone(self, entity: int) -> bool:
        return entity in self._gone

    def speaks(
        self, now: Time, entity: int, name: str, form: words.Form, number: PublicationId, t: Time
    ) -> Seat:
        """Who has said this; the publication's number tells on which node."""
        if entity in self._gone:
            return Seat(ELSEWHERE, entity, name, form, left=True)
        return self._at(now, entity, name, form, number >> COUNT_BITS, t)

    def settles(
        self, now: Time, entity: int, name: str, form: words.Form, home: NodeId, t: Time
    ) -> Seat:
        """It is on this node, which has said so itself."""
        return self._at(now, entity, name, form, block_of(home), t)

    def _at(self, now: Time, entity: int, name: str, form: words.Form, block: int, t: Time) -> Seat:
        known = self._known.get(entity)
        if known is None:
            seat = Seat(ELSEWHERE, entity, name, form)
            known = self._known[entity] = Stranger(seat, now, block, t)
        known.heard = now
        if t >= known.since:
            known.block, known.since = block, t
        if name and not known.seat.name:
            known.seat.name = name
        return known.seat

    def voice(self, seat: Seat, channel: str) -> int:
        voice = seat.voices.get(channel)
        if voice is None:
            voice = seat.voices[channel] = self._voices.take()
            if seat.left:
                self._voices.leave(voice)
        return voice

    def release(self, entity: int) -> dict[str, int]:
        """It comes here: its voices are its own again."""
        known = self._known.pop(entity, None)
        return {} if known is None else known.seat.voices

    def gone(self, now: Time, entity: int) -> None:
        """It has left, for good."""
        self._gone[entity] = now
        self._drop(entity)

    def withdraw(self, now: Time, entity: int, channel: str, t: Time) -> None:
        """Its state on this channel has ended at `t`; a later one may be known already."""
        self._withdrawn[entity, channel] = t, now
        known = self._known.get(entity)
        voice = None if known is None else known.seat.voices.get(channel)
        if known is None or voice is None or not self._voices.retains(voice):
            return
        if self._voices.state(voice).t <= t:
            del known.seat.voices[channel]
            self._voices.leave(voice)

    def has_withdrawn(self, entity: int, channel: str, t: Time) -> bool:
        """Has its state of this moment ended? What was published before may come later."""
        return t <= self._withdrawn.get((entity, channel), (-1, 0))[0]

    def lost(self, node: NodeId) -> None:
        """With all that are there; they may be found again."""
        block = block_of(node)
        for entity in [e for e, known in self._known.items() if known.block == block]:
            self._drop(entity)

    def _drop(self, entity: int) -> None:
        known = self._known.pop(entity, None)
        if known is not None:
            known.seat.left = True
            for voice in known.seat.voices.values():
                self._voices.leave(voice)

    def forget(self, now: Time) -> None:
        if now - self._looked < SECOND:
            return
        self._looked = now
        for entity, known in list(self._known.items()):
            voices = known.seat.voices.values()
            if now - known.heard > SILENT and not any(map(self._voices.retains, voices)):
                self._drop(entity)
        self._gone = {entity: t for entity, t in self._gone.items() if now - t <= SILENT}
        self._withdrawn = {
            which: (t, heard)
            for which, (t, heard) in self._withdrawn.items()
            if now - heard <= SILENT
        }
