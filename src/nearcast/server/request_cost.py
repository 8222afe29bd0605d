"""What requests cost to read, so that reading is bounded: see `Gateway.read`."""

from typing import Any

from nearcast.client_protocol import messages

# Reading is bounded for all clients together: beyond so much within a tick, whoever sends a large
# frame or a costly or refused request is read on at a later tick. Units are bytes of large frames.
LARGE = 4_096  # bytes of a frame that counts
READ_WORK = 8 * 1_048_576
COST = 131_072  # of a request's every token beyond the first, in the same unit
REFUSAL = 16_384  # of a request that is refused
PARSED = 512  # of a character of a formula or filter: about 1.5 microseconds
TUNED = 200  # characters, about, that are parsed to bind other numbers to variables


def costly(kind: type, word: Any) -> bool:
    """Must all states be looked at for it, or a text be parsed?"""
    return kind is messages.NearbyRequest or bool(
        parsed(kind, word) or getattr(word, "watch", False)
    )


def parsed(kind: type, word: Any) -> int:
    """Characters of formulas and filters in a request."""
    if kind is messages.TuneRequest:
        return TUNED
    area = word.area if kind in (messages.SubscribeRequest, messages.MoveRequest) else None
    condition = word.filter if kind is messages.SubscribeRequest else None
    return len(condition or "") + len((area.formula if area else None) or "")
