"""Hosts a service on the running asyncio loop: its timers, its faults, and what it sends.

`Gateway` (WebSocket and HTTP) and `World` (in the same process) say how notices and deliveries
reach clients; `ClusterHost` how messages reach other nodes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from nearcast.node import ClearTimer, Effect, Note, SetTimer, Timer
from nearcast.service.connection import Connection
from nearcast.service.effects import (
    CloseConnection,
    Counted,
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
from nearcast.service.service import FLUSH, Service
from nearcast.space.motion import SECOND, Time
from nearcast.trace.live_recording import LiveRecording

LOG = logging.getLogger(__name__)


class ServiceHost:
    """Carries out the effects of a service. Subclasses carry out those that concern clients."""

    def __init__(
        self, service: Service, now: Callable[[], Time], recording: LiveRecording | None
    ) -> None:
        self.service, self.realm, self.now, self.recording = service, service.realm, now, recording
        self.loop = asyncio.get_running_loop()
        # Set by `ClusterHost`: a request of a client that another node serves now.
        self.forward: Callable[[Connection, bytes, bool], None] = lambda *_: None
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._outcomes: dict[int, asyncio.Future[Counted]] = {}  # by publication
        self.handlers: dict[type[Effect], Callable[[Any], None]] = {
            Reply: self.on_reply,
            Refuse: self.on_refuse,
            Notify: self.on_notify,
            DeliverFlush: self.on_deliver_flush,
            DeliverMissed: self.on_deliver_missed,
            DeliverDirect: self.on_deliver_direct,
            Serve: self.on_serve,
            StopServing: self.on_stop_serving,
            CloseConnection: self.on_close_connection,
            SetTimer: self._set_timer,
            ClearTimer: self._clear_timer,
            Note: self._note,
            Counted: self._counted,
            Fault: self.on_fault,
        }
        self.apply(service.start(now()))

    def apply(self, effects: Iterable[Effect]) -> None:
        """Carry out what the service decided, in order."""
        handlers = self.handlers
        for effect in effects:
            handlers[type(effect)](effect)

    def wake(self, timer: Timer) -> None:
        """A timer of the service is due."""
        self._timers.pop(timer, None)
        self.before_input()
        try:
            effects = self.service.wake(self.now(), timer)
        except Exception:
            LOG.exception("%s failed", type(timer).__name__)
            effects = self.service.out.drain()
        self.apply(effects)

    def before_input(self) -> None:
        """Hand in first what came first."""

    def schedule_flush(self, after: float = 0.0) -> None:
        """Flush soon, at least `after` seconds from now."""
        raise NotImplementedError

    def outcome(self, publication: int) -> "asyncio.Future[Counted]":
        """How many subscriptions the publication matched, once it is known."""
        self.service.count(publication)
        return self._outcomes.setdefault(publication, self.loop.create_future())

    def _set_timer(self, effect: SetTimer) -> None:
        if effect.timer == FLUSH:
            self.schedule_flush(effect.delay / SECOND)
        else:
            self._clear_timer(effect)
            self._timers[effect.timer] = self.loop.call_later(
                effect.delay / SECOND, self.wake, effect.timer
            )

    def _clear_timer(self, effect: SetTimer | ClearTimer) -> None:
        timer = self._timers.pop(effect.timer, None)
        if timer is not None:
            timer.cancel()

    def stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _note(self, note: Note) -> None:
        LOG.info("%s: %s", note.fact, note.about)
        if self.recording:
            self.recording.recorder.note(
                self.now(), self.service.id, note.fact, note.about, note.value
            )

    def _counted(self, counted: Counted) -> None:
        future = self._outcomes.pop(counted.publication, None)
        if future is not None and not future.done():
            future.set_result(counted)

    def on_fault(self, fault: Fault) -> None:
        """An internal error: log it."""
        LOG.error(fault.what, exc_info=fault.error)
        future = self._outcomes.pop(fault.publication, None) if fault.publication else None
        if future is not None and not future.done():
            future.set_exception(fault.error)

    def record_positions(self) -> None:
        """Once a second, for the trace: where everybody is."""
        if self.recording:
            t = self.now()
            for entity, x, y, z in self.realm.positions():
                self.recording.recorder.position(t, entity, x, y, z)

    # What concerns clients.

    def on_reply(self, reply: Reply) -> None:
        raise NotImplementedError

    def on_refuse(self, refuse: Refuse) -> None:
        raise NotImplementedError

    def on_notify(self, notify: Notify) -> None:
        raise NotImplementedError

    def on_deliver_flush(self, deliver: DeliverFlush) -> None:
        raise NotImplementedError

    def on_deliver_missed(self, missed: DeliverMissed) -> None:
        raise NotImplementedError

    def on_deliver_direct(self, deliver: DeliverDirect) -> None:
        raise NotImplementedError

    def on_serve(self, serve: Serve) -> None:
        """A connection serves a client now."""

    def on_stop_serving(self, stop: StopServing) -> None:
        """A connection does not serve its client any more."""

    def on_close_connection(self, close: CloseConnection) -> None:
        raise NotImplementedError
