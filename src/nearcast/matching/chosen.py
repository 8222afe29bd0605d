"""Engines side by side: each subscription is in the one that its subscriber chose.

There is one engine for each kind that was ever chosen, and all are asked about a publication. What
they find is exactly what each finds by itself: an engine is refreshed when it is due, never because
another one is.
"""

from collections.abc import Callable

from nearcast.matching.matcher import Matcher
from nearcast.model.evolution import Evolution
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription, SubscriptionId
from nearcast.space.motion import Time


class ChosenMatcher(Matcher):
    """`usual`: the engine of subscriptions without a choice. `make`: an engine by its name, with
    the interval or threshold of those that have none of their own."""

    def __init__(self, usual: str, make: Callable[[str], Matcher]) -> None:
        self._usual, self._make = usual, make
        self._engines = {usual: make(usual)}
        self._kinds: dict[SubscriptionId, str] = {}
        self._now: Time = 0  # the latest moment that was matched

    def count(self, counter: str) -> int:
        """The sum of a counter of the engines; those that do not count add nothing."""
        return sum(getattr(engine, counter, 0) for engine in self._engines.values())

    def put(self, subscription: Subscription) -> None:
        choice = subscription.evolution
        kind = self._usual if choice is None else choice.kind
        before = self._kinds.get(subscription.id, kind)
        if before != kind:
            self._engines[before].drop(subscription.id)
        self._kinds[subscription.id] = kind
        engine = self._engines.get(kind)
        if engine is None:
            engine = self._engines[kind] = self._make(kind)
            engine.refresh(self._now)  # it must know what time it is
        _put_chosen(engine, subscription, choice)

    def drop(self, subscription: SubscriptionId) -> None:
        kind = self._kinds.pop(subscription, None)
        if kind is not None:
            self._engines[kind].drop(subscription)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        self._now = max(self._now, at)
        if len(self._engines) == 1:
            return self._engines[self._usual].match(publication, at)
        return sorted(s for engine in self._engines.values() for s in engine.match(publication, at))

    def due(self) -> Time | None:
        moments = (engine.due() for engine in self._engines.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def refresh(self, now: Time) -> None:
        for engine in self._engines.values():
            due = engine.due()
            if due is not None and due <= now:
                engine.refresh(now)


def _put_chosen(engine: Matcher, subscription: Subscription, choice: Evolution | None) -> None:
    """With the interval or threshold of its own, if it has one."""
    serves = None if choice is None else choice.serves
    if serves is None:
        engine.put(subscription)
        return
    from nearcast.matching.cached import CachedMatcher
    from nearcast.matching.periodic import PeriodicMatcher

    assert isinstance(engine, PeriodicMatcher | CachedMatcher), "others have none"
    engine.put(subscription, serves)
