"""WebSocket close codes (RFC 6455, 7.4): those that a node sends, and which are valid."""

from enum import IntEnum

NO_STATUS = 1005  # the other end has closed without a code; never sent
ABNORMAL = 1006  # the connection broke without a close frame; never sent


class CloseCode(IntEnum):
    """Why a node ends a connection. Clients that break the protocol get the same codes."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    INVALID_DATA = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011


CLOSE_CODE_MEANINGS = {
    CloseCode.NORMAL: "the client has left, or has closed without a code",
    CloseCode.GOING_AWAY: "the node stops, another node of the cluster serves the client now,"
    " or the client did not answer a ping",
    CloseCode.PROTOCOL_ERROR: "a frame breaks RFC 6455",
    CloseCode.INVALID_DATA: "a text message or the reason of a close frame is not valid UTF-8",
    CloseCode.POLICY: "the client has no valid token or ticket, has not joined in time, or reads"
    " too slowly",
    CloseCode.TOO_BIG: "a message is longer than four times the limit `frame`",
    CloseCode.INTERNAL_ERROR: "the node failed while it handled a frame",
}


def may_be_sent(code: int) -> bool:
    """Whether a close frame may have this code: registered ones, and those for applications."""
    registered = 1000 <= code <= 1014 and code not in (1004, NO_STATUS, ABNORMAL)
    return registered or 3000 <= code <= 4999


def close_reason(reason: str) -> bytes:
    """A reason cut to what fits into a close frame: at most 123 bytes of UTF-8."""
    return reason.encode()[:123].decode(errors="ignore").encode()
