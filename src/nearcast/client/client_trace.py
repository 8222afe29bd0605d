"""The trace of one client: what it received, against what the node's trace says was sent.

`nearcast merge` replaces the node's deliveries to this client by these, so that a run is judged end
to end. A client has its own subscription numbers; the node's answers give the numbers of the trace.
"""

from os import PathLike
from time import monotonic, time_ns

from nearcast.service.realm import HOPS
from nearcast.space.motion import Time
from nearcast.trace.live_recording import ROTATE_S, LiveRecording


class ClientTrace:
    """Records deliveries into a folder."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._recording = LiveRecording(path, time_ns() // 1000, {"recorded": "by a client"})
        self._requested: dict[
            int, int
        ] = {}  # by request id: the client's number of the subscription
        self._trace_numbers: dict[int, int] = {}  # by the client's number: that of the trace
        self._rotated = monotonic()

    def joined(self, t: Time, entity: int) -> None:
        self._recording.recorder.note(t, entity, "joined")

    def subscribe_requested(self, request: int, number: int) -> None:
        self._requested[request] = number

    def answered(self, request: int, traced: int | None) -> None:
        number = self._requested.pop(request, None)
        if number is not None and traced is not None:
            self._trace_numbers[number] = traced

    def delivered(self, t: Time, entity: int, publication: int, to: list[int]) -> None:
        subscriptions = [self._trace_numbers[number] for number in to]
        self._recording.recorder.delivered(t, entity, publication, subscriptions, HOPS)
        if monotonic() - self._rotated > ROTATE_S:
            self._rotated = monotonic()
            self._recording.rotate()

    def close(self) -> None:
        self._recording.close({})
