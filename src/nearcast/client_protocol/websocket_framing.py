"""The parts of RFC 6455 that picows leaves to its users, for either end of a WebSocket.

picows splits bytes into frames. It refuses unknown opcodes, wrong masks, wrong lengths, fragmented
or long control frames, frames beyond a size, most invalid close codes and close reasons that are
not UTF-8. It reports that only to its logger, so `PicowsLogger` stands in for one. The rest is
checked here: reserved bits, the order of fragments, UTF-8 in texts, and the other invalid close
codes.
"""

import asyncio
import logging
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any
from weakref import ref

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from nearcast.client_protocol.close_codes import NO_STATUS, CloseCode, close_reason, may_be_sent

LOG = logging.getLogger("nearcast.live")
TEXT, BINARY, CONTINUATION = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION
CLOSE, PING, PONG = WSMsgType.CLOSE, WSMsgType.PING, WSMsgType.PONG
CLOSE_GRACE_S = 2.0  # for the other end to answer a close frame

_Decoder = getincrementaldecoder("utf-8")


class WebSocketEndpoint(WSListener):
    """One end of a WebSocket. `read` gets each message: this endpoint, payload, whether binary."""

    def __init__(self, max_message_bytes: int, read: Callable[[Any, bytes, bool], None]) -> None:
        self.max_message_bytes = max_message_bytes
        self._read = read
        self.closing = False  # a close frame was sent; further frames are ignored
        self.unfinished: WSMsgType | None = None  # of a fragmented message: its type
        self.all_read = False  # does nothing follow the present frame in what has come?
        self._parts = bytearray()  # of that message
        self._decoder = _Decoder()

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def closed(self, code: int, reason: str) -> None:
        """Called when the other end closes the connection with a close frame."""

    def pong(self, payload: bytes) -> None:
        """Answer a ping."""
        self.transport.send_pong(payload)

    def fail(self, code: int, reason: str) -> None:
        """Close the connection with this code and reason."""
        if not self.closing:
            self.closing = True
            self.transport.send_close(WSCloseCode(code), close_reason(reason))
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self.transport.disconnect, False)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Check a frame; complete messages go to `read`."""
        kind = frame.msg_type
        if self.closing:
            if kind is CLOSE:
                transport.disconnect()
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.fail(CloseCode.PROTOCOL_ERROR, "a frame has reserved bits")
        elif kind is BINARY and frame.fin and self.unfinished is None:
            self.all_read = not frame.tail_size
            self._read(self, frame.get_payload_as_bytes(), True)
        elif kind is TEXT and frame.fin and self.unfinished is None:
            text = frame.get_payload_as_bytes()
            if text.isascii() or self._is_utf8(text, True):
                self._read(self, text, False)
        elif kind is PING:
            self.pong(frame.get_payload_as_bytes())
        elif kind is CLOSE:
            code = frame.get_close_code().value if frame.payload_size else NO_STATUS
            self._answer_close(code, frame.get_close_reason())
        elif kind is not PONG:
            self._collect(kind, frame)

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        """Is it a pong that picows may handle? Other frames go to `on_ws_frame`."""
        return frame.msg_type is PONG and not (frame.rsv1 or frame.rsv2 or frame.rsv3)

    def fault(self, code: int, reason: str) -> None:
        """picows refuses a frame. After a close frame of the other end this is ignored."""
        closing = self.transport.close_handshake
        if closing is not None and closing.recv is not None:
            self._answer_close(closing.recv.code.value or NO_STATUS, closing.recv.reason)
        elif code == CloseCode.TOO_BIG:
            self._too_big()
        else:
            self.fail(code, reason)

    def _too_big(self) -> None:
        self.fail(CloseCode.TOO_BIG, f"a message has at most {self.max_message_bytes} bytes")

    def _answer_close(self, code: int, reason: str | None) -> None:
        """Answer a close frame with the same code; with 1000 if it has none."""
        if self.closing:
            return
        if code == NO_STATUS or may_be_sent(code):
            self.closing = True
            self.closed(code, reason or "")
            self.transport.send_close(WSCloseCode(1000 if code == NO_STATUS else code))
        else:
            self.fail(CloseCode.PROTOCOL_ERROR, f"{code} is not a valid close code")
        self.transport.disconnect()

    def _collect(self, kind: WSMsgType, frame: WSFrame) -> None:
        """Collect a message that comes in several frames (RFC 6455, 5.4)."""
        begins = kind is not CONTINUATION
        if begins is not (self.unfinished is None):
            self.fail(CloseCode.PROTOCOL_ERROR, "the frames of a message are out of order")
            return
        payload, final = frame.get_payload_as_bytes(), bool(frame.fin)
        if begins:
            self.unfinished = kind
        if len(self._parts) + len(payload) > self.max_message_bytes:
            self._too_big()
            return
        if self.unfinished is TEXT and not self._is_utf8(payload, final):
            return
        self._parts += payload
        if final:
            whole, self._parts = bytes(self._parts), bytearray()
            binary, self.unfinished = self.unfinished is BINARY, None
            self._read(self, whole, binary)

    def _is_utf8(self, part: bytes, final: bool) -> bool:
        """Is this part of a text valid UTF-8? Characters may be split between parts."""
        try:
            self._decoder.decode(part, final)
        except UnicodeDecodeError:
            self.fail(CloseCode.INVALID_DATA, "a text message is not valid UTF-8")
            return False
        return True


class PicowsLogger:
    """Stands in for picows' logger: passes its reports about a connection to the endpoint."""

    def __init__(self, endpoint: WebSocketEndpoint) -> None:
        self._endpoint = ref(endpoint)  # its transport holds this

    def isEnabledFor(self, level: int) -> bool:  # noqa: ARG002, N802
        return False

    def error(self, text: str, *about: Any) -> None:
        """A frame that picows refuses, with close code and reason; or an exception of ours."""
        endpoint = self._endpoint()
        if about and isinstance(about[0], tuple) and endpoint is not None:
            code, reason = about[0]
            endpoint.fault(int(code), str(reason))
        else:
            self.exception(text, *about)

    def exception(self, text: str, *about: Any) -> None:
        LOG.exception(text, *about)
        endpoint = self._endpoint()
        if endpoint is not None:
            endpoint.fail(CloseCode.INTERNAL_ERROR, "an internal error; the log has more")

    def warning(self, text: str, *about: Any) -> None:
        LOG.warning(text, *about)

    def info(self, *_: Any) -> None:
        """Not logged."""

    debug = log = info
