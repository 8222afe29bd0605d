"""What a node holds, to be compared before and after."""

import random
from typing import Any


def state(thing: Any, seen: frozenset[int] = frozenset()) -> Any:
    """All that a node holds, as values that can be compared. Clock, chance and effects are none."""
    if isinstance(thing, bool | int | float | str | bytes | None | type):
        return thing
    if id(thing) in seen:
        return "…"
    seen |= {id(thing)}
    if isinstance(thing, dict):
        return [(state(key, seen), state(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset):
        return [state(one, seen) for one in thing]
    if callable(thing) or isinstance(thing, random.Random):
        return type(thing).__name__
    names = [*getattr(thing, "__dict__", ()), *_slots(type(thing))]
    return [
        (name, state(getattr(thing, name), seen))
        for name in names
        if name not in ("now", "out", "_out", "rng", "_rng") and hasattr(thing, name)
    ]


def _slots(kind: type) -> list[str]:
    return [name for one in kind.__mro__ for name in getattr(one, "__slots__", ())]
