"""Bubblecast: a branching random walk of a given number of steps ([Lucas2011] 3.3.1.2).

Each peer that a cast reaches is one replica. The rest of the weight is divided among `split` random
links, never of the location through which the cast came. It stops at weight zero. So a cast of
weight 13 is processed exactly 13 times, at a depth of about log2(13).
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Way = TypeVar("Way")


def shares(weight: int, split: int) -> list[int]:
    """The weight after this peer, divided evenly; no share is zero."""
    left = weight - 1
    base, more = divmod(left, split)
    return [base + 1] * more + [base] * (split - more) if base else [1] * more


def spread(weight: int, split: int, links: Sequence[Way], rng: Random) -> list[tuple[Way, int]]:
    """The links to which a peer forwards a cast, with the weight of each.

    With fewer links than shares the links get all of the weight.
    """
    if weight <= 1 or not links:
        return []
    parts, pool = shares(weight, min(split, len(links))), list(links)
    for drawn in range(len(parts)):  # the first steps of a shuffle: a fifth of what `sample` takes
        other = drawn + int(rng.random() * (len(pool) - drawn))
        pool[drawn], pool[other] = pool[other], pool[drawn]
    return list(zip(pool, parts, strict=False))
