"""Bubblecast: a random walk in many directions at once, of so many steps (seed 002, 3.3.1.2).

Each peer that a cast comes to is one replica; what is left of the weight is divided among `split`
links drawn by chance, never of the location by which it came. At weight zero it stops. So a cast of
weight 13 is processed exactly 13 times, at a depth of about log2 of that.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Way = TypeVar("Way")


def shares(weight: int, split: int) -> list[int]:
    """What remains after this peer, divided as evenly as can be; nobody gets nothing."""
    left = weight - 1
    base, more = divmod(left, split)
    return [base + 1] * more + [base] * (split - more) if base else [1] * more


def spread(weight: int, split: int, links: Sequence[Way], rng: Random) -> list[tuple[Way, int]]:
    """To whom a peer passes a cast on, and with what weight, given the links it may use.

    With fewer links than shares, the links take all of the weight: none is lost.
    """
    if weight <= 1 or not links:
        return []
    parts, pool = shares(weight, min(split, len(links))), list(links)
    for drawn in range(len(parts)):  # the first steps of a shuffle: a fifth of what `sample` takes
        other = drawn + int(rng.random() * (len(pool) - drawn))
        pool[drawn], pool[other] = pool[other], pool[drawn]
    return list(zip(pool, parts, strict=False))
