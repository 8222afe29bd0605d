"""Requests and answers over one connection to one node.

A client that is handed over to another node has two channels for a while. A request is answered on
the channel on which it was sent.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.client.websocket import ClientLink
from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import ABNORMAL, CloseCode
from nearcast.errors import ClosedError, Refused
from nearcast.space.motion import Time

ANSWER_S = 30.0  # after which a request without an answer fails

OnNotice: TypeAlias = Callable[["RequestChannel", type[Struct], Any], None]


def clock() -> Time:
    """The local monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


class RequestChannel:
    """Pairs requests with answers. `on_notice` gets every notice, before the caller that waits for
    it; `on_lost` is called when the connection is lost."""

    def __init__(
        self, link: ClientLink, on_notice: OnNotice, on_lost: Callable[["RequestChannel"], None]
    ) -> None:
        self.link = link
        self.clock_offset: Time | None = None  # the node's clock minus ours, the largest seen
        self.closed: ClosedError | None = None  # why it has ended; None while it is open
        self._ended_event = asyncio.Event()
        self._on_notice, self._on_lost = on_notice, on_lost
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._bye = ""

    async def open(self) -> None:
        await self.link.open(self._receive, self._lost)

    async def ask(self, number: int, request: Any) -> Any:
        """Send a request with this id, and wait for its answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        try:
            self.link.send(replace(request, id=number))
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise ConnectionError("the node does not answer") from None
        finally:
            del self._pending[number]

    async def wait_until_answered(self) -> None:
        """Wait until all requests sent so far are answered."""
        if self._pending:
            await asyncio.wait(list(self._pending.values()))

    def fail(self, why: Exception) -> None:
        """Fail all requests that wait for an answer."""
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(why)

    async def drain(self, patience_s: float) -> None:
        """Go on receiving until the node closes, at most so many seconds; then close."""
        try:
            await asyncio.wait_for(self._ended_event.wait(), patience_s)
        except TimeoutError:
            pass
        finally:
            await self.close()

    async def close(self) -> None:
        self._finish("closed", CloseCode.NORMAL)
        await self.link.close()

    def _lost(self, reason: str, code: int = ABNORMAL) -> None:
        if self.closed is None:
            self._finish(self._bye or reason or "the connection is lost", code)
            self._on_lost(self)

    def _finish(self, reason: str, code: int) -> None:
        if self.closed is None:
            self.closed = ClosedError(reason, code)
            self._ended_event.set()
            self.fail(self.closed)

    def _receive(self, kind: type[Struct], notice: Any) -> None:
        if self.closed is not None:
            return
        if kind is messages.MessageNotice:  # first: most notices are messages
            self._on_notice(self, kind, notice)
        elif kind is messages.ByeNotice:
            self._bye = notice.reason
        elif kind is messages.ErrorNotice and notice.id is not None:
            self._answer(notice.id, Refused(notice.reason))
        elif kind in (messages.DoneNotice, messages.WelcomeNotice, messages.NearbyNotice):
            if kind is not messages.NearbyNotice:
                clock_offset = notice.t - clock()
                self.clock_offset = (
                    clock_offset
                    if self.clock_offset is None
                    else max(self.clock_offset, clock_offset)
                )
            self._on_notice(self, kind, notice)
            self._answer(notice.id, notice)
        else:
            self._on_notice(self, kind, notice)

    def _answer(self, number: int | None, answer: Any) -> None:
        waiting = None if number is None else self._pending.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
