"""A client's conversation with one node, from its first word to its last.

A client that is handed over to another node has two of these for a while. What was asked for is
answered by the node that was asked, whichever of them is the client's own by then.
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

ANSWER_S = 30.0  # a node that has not answered by then is given up

OnNotice: TypeAlias = Callable[["RequestChannel", type[Struct], Any], None]


def clock() -> Time:
    """Ours, which has nothing to do with the time of day."""
    return time.monotonic_ns() // 1000


class RequestChannel:
    """`hear` is told every word of the node, before whoever has asked; `lost` that it is over."""

    def __init__(
        self, link: ClientLink, hear: OnNotice, lost: Callable[["RequestChannel"], None]
    ) -> None:
        self.link = link
        self.ahead: Time | None = None  # the node's clock over ours, of its fastest word
        self.over: ClosedError | None = None  # why nothing more comes
        self._ended = asyncio.Event()
        self._hear, self._tell_lost = hear, lost
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._bye = ""

    async def open(self) -> None:
        await self.link.open(self._receive, self._lost)

    async def ask(self, number: int, request: Any) -> Any:
        """Send a request under this number, and wait for its answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self.link.send(replace(request, id=number))
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise ConnectionError("the node does not answer") from None
        finally:
            del self._asked[number]

    async def settled(self) -> None:
        """Wait until all that was asked so far is answered."""
        if self._asked:
            await asyncio.wait(list(self._asked.values()))

    def fail(self, why: Exception) -> None:
        """Nothing that was asked will be answered."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(why)

    async def ended(self, patience_s: float) -> None:
        """Go on listening until the node ends it, but no longer than that; then close."""
        try:
            await asyncio.wait_for(self._ended.wait(), patience_s)
        except TimeoutError:
            pass
        finally:
            await self.close()

    async def close(self) -> None:
        self._finish("closed", CloseCode.NORMAL)
        await self.link.close()

    def _lost(self, reason: str, code: int = ABNORMAL) -> None:
        if self.over is None:
            self._finish(self._bye or reason or "the connection is lost", code)
            self._tell_lost(self)

    def _finish(self, reason: str, code: int) -> None:
        if self.over is None:
            self.over = ClosedError(reason, code)
            self._ended.set()
            self.fail(self.over)

    def _receive(self, kind: type[Struct], word: Any) -> None:
        if self.over is not None:
            return
        if kind is messages.MessageNotice:  # first, since nearly all are
            self._hear(self, kind, word)
        elif kind is messages.ByeNotice:
            self._bye = word.reason
        elif kind is messages.ErrorNotice and word.id is not None:
            self._answer(word.id, Refused(word.reason))
        elif kind in (messages.DoneNotice, messages.WelcomeNotice, messages.NearbyNotice):
            if kind is not messages.NearbyNotice:
                ahead = word.t - clock()
                self.ahead = ahead if self.ahead is None else max(self.ahead, ahead)
            self._hear(self, kind, word)
            self._answer(word.id, word)
        else:
            self._hear(self, kind, word)

    def _answer(self, number: int | None, answer: Any) -> None:
        waiting = None if number is None else self._asked.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
