"""Who is there, who comes, who goes: differences between what watches saw at two ticks.

All retained states are matched against all watching subscriptions, as if everybody had said theirs
again at this moment. A watch and a voice make one number, so what has changed since the last tick
is the difference of two sorted columns. Somebody whom a watch no longer sees stays known to it for
`linger` seconds, and is told to have left only then: nobody flaps at a border.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from nearcast.live.seats import Places
from nearcast.live.voices import BITS, VOICE, among
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND, Time

SEEN = -1  # in place of the moment since when somebody is out of sight


class Changes(NamedTuple):
    """Pairs of watch and voice."""

    entered: list[tuple[int, int]]
    left: list[tuple[int, int]]
    gone: list[tuple[int, int]]  # who left altogether


class Watches:
    def __init__(self) -> None:
        self._matcher = MATCHERS["swept"]()
        self._numbers = Places()
        self._linger: Integers = np.zeros(64, np.int64)
        self._ended: list[int] = []
        self._known: Integers = np.empty(0, np.int64)  # pairs, sorted
        self._since: Integers = np.empty(0, np.int64)  # and since when they are out of sight
        self._added: list[Integers] = []

    def __len__(self) -> int:
        """Those that have ended count until the next look."""
        return len(self._numbers)

    def begin(self, subscription: Subscription, linger: float) -> int:
        """One more watch, which knows nobody yet."""
        watch = self._numbers.take()
        if watch == len(self._linger):
            self._linger = np.concatenate((self._linger, np.zeros_like(self._linger)))
        self._linger[watch] = round(linger * SECOND)
        self.change(watch, subscription)
        return watch

    def change(self, watch: int, subscription: Subscription) -> None:
        """From now on it looks there. Nobody watches himself."""
        self._matcher.put(replace(subscription, id=watch, echo=False))

    def end(self, watch: int) -> None:
        self._matcher.drop(watch)
        self._ended.append(watch)

    def know(self, watch: int, voices: list[int]) -> None:
        """It has been told that these are there."""
        self._added.append((watch << BITS) | np.array(voices, np.int64))

    def look(self, now: Time, voices: Integers, states: Batch, left: Integers) -> Changes:
        """What has changed since the last look. `left` are voices that are no more."""
        known, since = self._before()
        gone = np.isin(known & VOICE, left)
        departed, known, since = known[gone], known[~gone], since[~gone]
        matches = self._matcher.match_many(states)
        seen = np.sort((matches.subscription << BITS) | voices[matches.publication])
        visible = among(known, seen)
        since = np.where(visible, SEEN, np.where(since == SEEN, now, since))
        over = ~visible & (now - since >= self._linger[known >> BITS])
        entered = seen[~among(seen, known)]
        known, since, parted = known[~over], since[~over], known[over]
        self._known = np.concatenate((known, entered))
        self._since = np.concatenate((since, np.full(len(entered), SEEN, np.int64)))
        return Changes(_pairs(entered), _pairs(parted), _pairs(departed))

    def _before(self) -> tuple[Integers, Integers]:
        """The pairs that are known, sorted, without those of watches that have ended."""
        known = np.concatenate((self._known, *self._added))
        since = np.full(len(known), SEEN, np.int64)
        since[: len(self._since)] = self._since
        kept = np.flatnonzero(~np.isin(known >> BITS, self._ended))
        kept = kept[np.argsort(known[kept])]
        self._added.clear()
        for watch in self._ended:
            self._numbers.give(watch)
        self._ended.clear()
        return known[kept], since[kept]


def _pairs(numbers: Integers) -> list[tuple[int, int]]:
    return list(zip((numbers >> BITS).tolist(), (numbers & VOICE).tolist(), strict=True))
