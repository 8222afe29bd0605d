"""What requests cost to read, so that reading is bounded: see `Gateway.read`."""

from typing import Any

from nearcast.client_protocol import messages
from nearcast.client_protocol.earth_json import count_positions

AREA_REQUESTS = (messages.SubscribeRequest, messages.MoveRequest, messages.NearbyRequest)
# Reading is bounded for all clients together: beyond so much within a tick, whoever sends a large
# frame or a costly or refused request is read on at a later tick. Units are bytes of large frames.
LARGE_FRAME = 4_096  # bytes of a frame that counts
READ_BUDGET = 8 * 1_048_576
TOKEN_COST = 131_072  # of a request's every token beyond the first, in the same unit
REFUSAL_COST = 16_384  # of a request that is refused
CHARACTER_COST = 512  # of a character of a formula or filter: about 1.5 microseconds
VERTEX_COST = 8_192  # of a vertex of a polygon or line: about 20 microseconds
TUNE_CHARACTERS = 200  # characters, about, that are parsed to bind other numbers to variables


def is_costly(kind: type, request: Any) -> bool:
    """Does the request search all retained states, or parse a text or a geometry?"""
    return kind is messages.NearbyRequest or bool(
        parsed_characters(kind, request)
        or getattr(request, "watch", False)
        or getattr(request, "events", False)
        or (kind in AREA_REQUESTS and request.area.geometry)
    )


def parse_cost(kind: type, request: Any) -> int:
    """What parsing the formulas, filters and geometries of a request costs."""
    cost = CHARACTER_COST * parsed_characters(kind, request)
    if kind in AREA_REQUESTS and request.area.geometry:
        cost += VERTEX_COST * count_positions(request.area.geometry)
    return cost


def parsed_characters(kind: type, request: Any) -> int:
    """Characters of formulas and filters in a request."""
    if kind is messages.TuneRequest:
        return TUNE_CHARACTERS
    area = request.area if kind in (messages.SubscribeRequest, messages.MoveRequest) else None
    condition = request.filter if kind is messages.SubscribeRequest else None
    return len(condition or "") + len((area.formula if area else None) or "")
