"""Entities on other nodes whose voices are heard here: their seats are elsewhere.

What a stranger retained stays known until it, or its node, is said to be gone; the voice of one who
retains nothing is forgotten when it has been silent for a while.
"""

from nearcast.live import words
from nearcast.live.seats import Seat
from nearcast.live.voices import Voices
from nearcast.space.motion import SECOND, Time

SILENT: Time = 60 * SECOND
ELSEWHERE = -1  # in place of a seat's place


class Strangers:
    def __init__(self, voices: Voices) -> None:
        self._voices = voices
        self._seats: dict[int, Seat] = {}
        self._heard: dict[int, tuple[Time, int]] = {}  # when, and the last publication
        self._looked: Time = 0

    def seat(self, entity: int, name: str, form: words.Form) -> Seat:
        seat = self._seats.get(entity)
        if seat is None:
            seat = self._seats[entity] = Seat(ELSEWHERE, entity, name, form)
        return seat

    def voice(self, now: Time, seat: Seat, channel: str, publication: int) -> int:
        """Of who says this on this channel; the publication's number tells on which node."""
        self._heard[seat.entity] = now, publication
        voice = seat.voices.get(channel)
        if voice is None:
            voice = seat.voices[channel] = self._voices.take()
        return voice

    def adopt(self, now: Time, seat: Seat, channel: str, voice: int) -> None:
        """The voice of someone who sat here a moment ago."""
        self.seat(seat.entity, seat.name, seat.form).voices[channel] = voice
        self._heard[seat.entity] = now, 0

    def release(self, entity: int) -> dict[str, int]:
        """It comes here: its voices are its own again."""
        self._heard.pop(entity, None)
        seat = self._seats.pop(entity, None)
        return {} if seat is None else seat.voices

    def gone(self, entity: int) -> None:
        self._heard.pop(entity, None)
        seat = self._seats.pop(entity, None)
        if seat is not None:
            seat.left = True
            for voice in seat.voices.values():
                self._voices.leave(voice)

    def last_heard(self) -> list[tuple[int, int]]:
        """Entities, and the last publication of each."""
        return [(entity, publication) for entity, (_, publication) in self._heard.items()]

    def forget(self, now: Time) -> None:
        if now - self._looked < SECOND:
            return
        self._looked = now
        for entity in [e for e, (heard, _) in self._heard.items() if now - heard > SILENT]:
            if not any(map(self._voices.retains, self._seats[entity].voices.values())):
                self.gone(entity)
