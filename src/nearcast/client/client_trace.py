"""What a client heard, as a trace of its own: the other end of what the node's trace says was sent.

`nearcast merge` lets it take the place of the node's word for this client, so that a run is judged
from end to end. A client knows its subscriptions by its own numbers; the node's answers tell those
of the trace.
"""

from os import PathLike
from time import monotonic, time_ns

from nearcast.service.realm import HOPS
from nearcast.space.motion import Time
from nearcast.trace.live_recording import ROTATE_S, LiveRecording


class ClientTrace:
    def __init__(self, path: str | PathLike[str]) -> None:
        self._recording = LiveRecording(path, time_ns() // 1000, {"recorded": "by a client"})
        self._asked: dict[int, int] = {}  # our own number of a subscription, by request
        self._traced: dict[int, int] = {}  # its number in the trace, by our own
        self._rotated = monotonic()

    def joined(self, t: Time, entity: int) -> None:
        self._recording.recorder.note(t, entity, "joined")

    def asks(self, request: int, number: int) -> None:
        self._asked[request] = number

    def answered(self, request: int, traced: int | None) -> None:
        number = self._asked.pop(request, None)
        if number is not None and traced is not None:
            self._traced[number] = traced

    def heard(self, t: Time, entity: int, publication: int, to: list[int]) -> None:
        subscriptions = [self._traced[number] for number in to]
        self._recording.recorder.delivered(t, entity, publication, subscriptions, HOPS)
        if monotonic() - self._rotated > ROTATE_S:
            self._rotated = monotonic()
            self._recording.rotate()

    def close(self) -> None:
        self._recording.close({})
