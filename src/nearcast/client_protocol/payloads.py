"""What may be inside a payload, and which values both encodings can express."""

from math import isfinite
from typing import Any

from msgspec import Struct

MAX_NESTING = 100  # levels of arrays and objects: far fewer than common decoders accept
_CONTAINERS = frozenset((list, dict, tuple))


class Unreadable(Struct, frozen=True):
    """A payload that has arrived and cannot be decoded: its bytes, and why not."""

    content: bytes
    reason: str


def nests_too_deep(value: Any) -> bool:
    """Are arrays and objects nested in more than MAX_NESTING levels? Work is linear in the size."""
    level = [value]
    for _ in range(MAX_NESTING):
        # MessagePack also has arrays as keys of objects, which are tuples in Python.
        keys = [key for one in level if type(one) is dict for key in one if type(key) is tuple]
        level = keys + [
            inner
            for one in level
            if type(one) in _CONTAINERS
            for inner in (one.values() if type(one) is dict else one)
            if type(inner) in _CONTAINERS
        ]
        if not level:
            return False
    return True


def is_json_value(value: Any) -> bool:
    """Can JSON express it without changing it? No NaN or infinity, and all keys are strings.

    Encoders would write `null` for the former, and strings for other keys, of which two may become
    equal. Values that no encoder accepts are not checked here.
    """
    waiting = [value]
    for one in waiting:  # it grows during the loop
        kind = type(one)
        if kind is dict:
            if not all(type(key) is str for key in one):
                return False
            waiting.extend(one.values())
        elif kind is list or kind is tuple:
            waiting.extend(one)
        elif kind is float and not isfinite(one):
            return False
    return True
