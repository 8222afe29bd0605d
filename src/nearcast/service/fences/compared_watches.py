"""Watches that are compared with states at every tick, because no moment can be solved for.

These are watches with a formula, with a filter that changes with `t`, or with one more filter than
fences have engines for; they are compared with all states. And states with an extent, which fences
know by their centres: these are compared with all other watches. What happens between two ticks is
not seen here.

The work of a tick is bounded: a comparison continues at the next tick with the next states.
"""

from collections.abc import Iterable

import numpy as np

from nearcast.matching import MATCHERS
from nearcast.service.fences.watches import Watch, Watches
from nearcast.service.retained_state import RetainedStates, query_subscription
from nearcast.space.motion import SECOND, Time

WORK = 2_000_000  # of a tick: pairs of watch and state, times the steps of their formulas, plus one


class WatchComparison:
    """Some watches by subscription slot, and how far they are compared with states."""

    def __init__(self, states: RetainedStates, watches: Watches) -> None:
        self._states, self._all = states, watches
        self._matcher = MATCHERS["keyed"]()
        self._watches: dict[int, Watch] = {}
        self._steps: dict[int, int] = {}  # of each
        self._out: dict[int, dict[int, Time]] = {}  # of each: known feeds that are out, since when
        self._from = 0  # the feed with which the next tick begins

    def __len__(self) -> int:
        return len(self._watches)

    def put(self, watch: Watch) -> None:
        """Compare this one, too, or as it is now."""
        active = watch.active
        self._watches[active.slot], self._steps[active.slot] = watch, 1 + active.steps
        self._out.setdefault(active.slot, {})
        self._matcher.put(query_subscription(active.subscription, active.slot))

    def drop(self, slot: int) -> None:
        if slot in self._watches:
            del self._watches[slot], self._steps[slot], self._out[slot]
            self._matcher.drop(slot)

    def end_feed(self, feed: int) -> None:
        for out in self._out.values():
            out.pop(feed, None)

    def compare(self, now: Time, feeds: Iterable[int]) -> None:
        """Tell who enters and leaves, of as many of these feeds as there may be work for."""
        order = sorted(feeds)
        first = int(np.searchsorted(order, self._from))
        last = first + max(1, WORK // sum(self._steps.values()))
        self._from = order[last] if last < len(order) else 0
        found, batch = self._states.batch_of(now, np.array(order[first:last], np.int64))
        matches = self._matcher.match_many(batch)
        inside: dict[int, set[int]] = {}
        pairs = zip(matches.subscription.tolist(), found[matches.publication].tolist(), strict=True)
        for slot, feed in pairs:
            inside.setdefault(slot, set()).add(feed)
        compared = set(found.tolist())
        for slot, watch in self._watches.items():
            self._update(now, watch, inside.get(slot, set()), compared)

    def _update(self, now: Time, watch: Watch, inside: set[int], compared: set[int]) -> None:
        """This one has been compared with these, of whom some are inside."""
        out = self._out[watch.active.slot]
        for feed in sorted(inside - watch.known):
            self._all.enter(watch, feed)
        for feed in out.keys() & inside:
            del out[feed]
        linger = round(watch.active.linger * SECOND)
        for feed in sorted((watch.known & compared) - inside):
            if now - out.setdefault(feed, now) >= linger:
                del out[feed]
                self._all.leave(watch, feed, gone=False)
