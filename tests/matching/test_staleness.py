"""Engines that trade freshness for speed: exactly as stale as their rules say, and no more.

The rules are written out again here in a few lines, each with the scan's own judgement `wants` at
the moment that the rule names.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching.cached import CachedMatcher
from nearcast.matching.evolving_parts import split_evolving
from nearcast.matching.matcher import Matcher, make_batch
from nearcast.matching.periodic import PeriodicMatcher
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, Subscription, evolves, stops_evolving_at
from nearcast.space.motion import SECOND
from support.evolving_cases import evolving
from support.examples import examples
from support.strategies import TIMES, publications, subscriptions


class PeriodicRule:
    """Evolve at submission and then every interval; a version stands as it was made."""

    def __init__(self, interval: int) -> None:
        self.interval, self.now = interval, 0
        self.versions: dict[int, tuple[Subscription, int, int]] = {}  # made when, due when
        self.intervals: dict[int, int] = {}

    def put(self, subscription: Subscription, interval: int | None) -> None:
        interval = self.intervals[subscription.id] = interval or self.interval
        submitted = subscription.region.since
        made = max(submitted, self.now)
        due = submitted + interval
        while due <= made:
            due += interval
        self.versions[subscription.id] = subscription, made, due

    def drop(self, subscription: int) -> None:
        self.versions.pop(subscription, None)

    def refresh(self, now: int) -> None:
        self.now = max(self.now, now)
        for subscription, made, due in list(self.versions.values()):
            if due <= now:
                made = now
            while due <= now:
                due += self.intervals[subscription.id]
            self.versions[subscription.id] = subscription, made, due

    def due(self) -> int | None:
        return min(
            (
                due
                for subscription, made, due in self.versions.values()
                if evolves(subscription) and made < stops_evolving_at(subscription)
            ),
            default=None,
        )

    def match(self, publication: Publication, at: int) -> list[int]:
        self.now = max(self.now, at)
        return sorted(
            subscription.id
            for subscription, made, _ in self.versions.values()
            if standing(subscription, made) and wants(subscription, publication, made)
        )


def standing(subscription: Subscription, at: int) -> bool:
    """Is it a shape at all? A version beyond all numbers stands nowhere."""
    if isinstance(subscription.region, Formula) or not evolves(subscription):
        return True
    try:
        subscription.region.at(at)
    except ValueError:
        return False
    return True


class CachedRule:
    """Evaluate for a publication that could want it, unless that was done within the threshold."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.subscriptions: dict[int, Subscription] = {}
        self.thresholds: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.evaluations = 0

    def put(self, subscription: Subscription, threshold: int | None) -> None:
        self.thresholds[subscription.id] = self.threshold if threshold is None else threshold
        self.subscriptions[subscription.id] = subscription
        self.made.pop(subscription.id, None)

    def drop(self, subscription: int) -> None:
        self.subscriptions.pop(subscription, None)

    def match(self, publication: Publication, at: int) -> list[int]:
        found = []
        for subscription in self.subscriptions.values():
            half = split_evolving(subscription).evolving
            if half is None or subscription.channel != publication.channel:
                moment = at
            else:
                items = half.filter.parsed.items if half.filter else ()
                covered = all(item.attribute in publication.attributes for item in items)
                made, threshold = self.made.get(subscription.id), self.thresholds[subscription.id]
                if covered and (made is None or abs(at - made) > threshold):
                    self.made[subscription.id] = made = at
                    self.evaluations += 1
                moment = at if made is None else made
                assert not covered or abs(at - moment) <= threshold
            if wants(subscription, publication, moment):
                found.append(subscription.id)
        return sorted(found)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), subscriptions()),
        st.tuples(st.just("put"), evolving()),
        st.tuples(st.just("drop"), st.integers(0, 12)),
        st.tuples(st.just("match"), st.tuples(publications(), TIMES)),
        st.tuples(st.just("refresh"), TIMES),
    ),
    min_size=1,
    max_size=25,
)
DELAYS = st.sampled_from([SECOND // 50, SECOND // 3, SECOND, 7 * SECOND])
OWN = (None, SECOND // 20, 2 * SECOND, None)  # intervals and thresholds that subscribers choose


@examples(60)
@given(interval=DELAYS, history=ACTS)
def test_periodic_answers_with_versions_that_are_one_interval_old_at_most(
    interval: int, history: list[tuple[str, object]]
) -> None:
    engine, rule = PeriodicMatcher(interval_us=interval), PeriodicRule(interval)
    for act, argument in history:
        match act, argument:
            case "put", Subscription() as subscription:
                engine.put(subscription, OWN[subscription.id % len(OWN)])
                rule.put(subscription, OWN[subscription.id % len(OWN)])
            case "drop", int(subscription_id):
                engine.drop(subscription_id)
                rule.drop(subscription_id)
            case "match", (Publication() as publication, int(at)):
                assert engine.match(publication, at) == rule.match(publication, at)
            case "refresh", int(now):
                engine.refresh(now)
                rule.refresh(now)
        assert engine.due() == rule.due()


@examples(60)
@given(threshold=DELAYS | st.just(0), history=ACTS)
def test_cached_answers_with_versions_that_are_one_threshold_old_at_most(
    threshold: int, history: list[tuple[str, object]]
) -> None:
    engine, rule = CachedMatcher(threshold_us=threshold), CachedRule(threshold)
    for act, argument in history:
        match act, argument:
            case "put", Subscription() as subscription:
                engine.put(subscription, OWN[subscription.id % len(OWN)])
                rule.put(subscription, OWN[subscription.id % len(OWN)])
            case "drop", int(subscription_id):
                engine.drop(subscription_id)
                rule.drop(subscription_id)
            case "match", (Publication() as publication, int(at)):
                assert engine.match(publication, at) == rule.match(publication, at)
        assert engine.evaluations == rule.evaluations


@pytest.mark.parametrize("make", [PeriodicMatcher, CachedMatcher])
@examples(25)
@given(
    wanted=st.lists(evolving(), min_size=1, max_size=12),
    said=st.lists(publications(), max_size=8),
    seed=st.integers(0, 9),
)
def test_a_batch_is_answered_as_its_publications_one_by_one(
    make: type[PeriodicMatcher | CachedMatcher],
    wanted: list[Subscription],
    said: list[Publication],
    seed: int,
) -> None:
    Random(seed).shuffle(said)
    together: Matcher = make()
    apart: Matcher = make()
    for subscription in wanted:
        together.put(subscription)
        apart.put(subscription)
    matches = together.match_many(make_batch(said))
    pairs = zip(matches.publication.tolist(), matches.subscription.tolist(), strict=True)
    assert sorted(pairs) == [
        (i, subscription)
        for i, publication in enumerate(said)
        for subscription in apart.match(publication, publication.t)
    ]


@pytest.mark.parametrize("interval", [0, -1])
def test_an_invalid_interval_is_refused(interval: int) -> None:
    with pytest.raises(ValueError, match="cannot evolve every"):
        PeriodicMatcher(interval_us=interval)
    with pytest.raises(ValueError, match="cannot serve for -1"):
        CachedMatcher(threshold_us=-1)
