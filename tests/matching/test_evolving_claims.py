"""[Evolving] sections 2 to 4: its own examples and its claims 001.1 to 001.13, to the letter."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching import EXACT, MATCHERS
from nearcast.matching.cached import CachedMatcher
from nearcast.matching.evolving_parts import split_evolving
from nearcast.matching.lazy import LazyMatcher
from nearcast.matching.matcher import Matcher
from nearcast.matching.periodic import PeriodicMatcher
from nearcast.matching.scan import ScanMatcher
from nearcast.matching.swept import SweptMatcher
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, box, point
from support.examples import examples

ANYWHERE = Moving(EVERYWHERE)
STATIC = "{(x >= -3),(x <= 3),(y >= -2),(y <= 2)}"
EVOLVING = "{(x >= -3+t),(x <= 3+t),(y >= -2+t),(y <= 2+t)}"
T = 1_000 * SECOND  # the global time of a submission
APPLE = point(4, 3)

every_engine = pytest.mark.parametrize("name", MATCHERS)


def at(moment: int, x: float = 4, y: float = 3, **attributes: float | str | bool) -> Publication:
    return Publication(1, 99, moment, point(x, y), attributes=attributes)


def matched(engine: Matcher, publication: Publication) -> list[int]:
    """As a broker asks: whoever is due evolves first."""
    due = engine.due()
    if due is not None and due <= publication.t:
        engine.refresh(publication.t)
    return engine.match(publication, publication.t)


@every_engine
def test_001_1_a_publication_matches_x_below_3_and_not_x_below_1(name: str) -> None:
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, Formula("x < 3", T)))
    engine.put(Subscription(2, 1, Formula("x < 1", T)))
    engine.put(Subscription(3, 1, ANYWHERE.stamped(T), Filter("size < 3", T)))
    engine.put(Subscription(4, 1, ANYWHERE.stamped(T), Filter("size < 1", T)))
    assert matched(engine, at(T, 2, 0, size=2)) == [1, 3]


@every_engine
@pytest.mark.parametrize("region", [Formula(STATIC, T), Moving(box(0, 0, 3, 2), since=T)])
def test_001_2_the_rectangle_around_the_origin_rejects_the_apple(
    name: str, region: Formula | Moving
) -> None:
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, region))
    assert matched(engine, at(T)) == []
    assert matched(engine, at(T, 3, 2)) == [1]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(
    "region", [Formula(EVOLVING, T), Moving(box(0, 0, 3, 2), (1.0, 1.0, 0.0), since=T)]
)
def test_001_3_the_moving_rectangle_has_the_apple_from_1_to_5_seconds(
    name: str, region: Formula | Moving
) -> None:
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, region))
    found = [
        after
        for after in (0, SECOND - 1, SECOND, 2 * SECOND, 5 * SECOND, 5 * SECOND + 1, 9 * SECOND)
        if matched(engine, at(T + after))
    ]
    assert found == [SECOND, 2 * SECOND, 5 * SECOND]


@pytest.mark.parametrize("name", EXACT)
def test_001_4_a_bound_that_grows_with_t_widens_monotonically(name: str) -> None:
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, Formula("x < 1 + 0.5 * t", T)))
    widths = [
        sum(matched(engine, at(T + second * SECOND, x / 4, 0)) == [1] for x in range(40))
        for second in range(8)
    ]
    assert widths == sorted(set(widths))
    assert widths[0] == 4  # 0, 1/4, 1/2, 3/4: below 1 + 0
    assert widths[2] == 8


def test_001_5_the_queue_is_ordered_by_the_next_evolution() -> None:
    engine = PeriodicMatcher(interval_us=5 * SECOND)
    engine.put(Subscription(1, 1, Formula(EVOLVING, T)))
    assert engine.due() == T + 5 * SECOND  # SCHEDT(S) = T + EI
    engine.put(Subscription(2, 1, Formula(EVOLVING, T)), interval_us=2 * SECOND)
    engine.put(Subscription(3, 1, Formula(EVOLVING, T + SECOND)), interval_us=3 * SECOND)
    order = []
    for _ in range(6):
        due = engine.due()
        assert due is not None
        order.append(due - T)
        engine.refresh(due)
    assert order == [s * SECOND for s in (2, 4, 5, 6, 7, 8)]
    # SUBT(S) = T: at its first evolution, 5 s after submission, t is 5 and the apple just inside.
    alone = PeriodicMatcher(interval_us=5 * SECOND)
    alone.put(Subscription(1, 1, Formula(EVOLVING, T)))
    assert matched(alone, at(T + 5 * SECOND)) == [1]
    assert matched(alone, at(T + 5 * SECOND, -3 + 5 - 0.001, 3)) == []


def test_001_6_the_standard_engine_holds_one_version_which_is_at_most_one_interval_old() -> None:
    engine = PeriodicMatcher(interval_us=SECOND)
    subscription = Subscription(1, 1, Formula(EVOLVING, T))
    engine.put(subscription)
    for tenth in range(100):
        now = T + tenth * SECOND // 10
        versions = range(T, now + 1, SECOND)
        for x in range(-4, 14):
            publication = at(now, x, x)
            answer = matched(engine, publication)
            assert answer == ([1] if wants(subscription, publication, versions[-1]) else [])
        assert now - versions[-1] <= SECOND
    engine.drop(1)
    assert matched(engine, at(T + 11 * SECOND, 11, 11)) == []
    assert engine.due() is None


def test_001_7_periodic_evaluates_nothing_when_it_matches() -> None:
    engine, still = PeriodicMatcher(interval_us=SECOND), SweptMatcher()
    for i in range(50):
        engine.put(Subscription(i, i, Moving(box(i, 0, 3, 2), (1.0, 1.0, 0.0), since=T)))
        still.put(Subscription(i, i, Moving(box(i, 0, 3, 2), since=T)))
    before = engine.evaluations
    for x in range(50):
        publication = at(T + SECOND // 2, x, 1)
        assert matched(engine, publication) == matched(still, publication)
    assert engine.evaluations == before
    assert still.evaluations == 0


@examples(50)
@given(
    after=st.integers(0, 8 * SECOND),
    x=st.integers(-4, 12),
    y=st.integers(-4, 12),
    weight=st.integers(0, 9),
    kind=st.sampled_from(["apple", "pear"]),
)
def test_001_8_lazy_delivers_to_those_in_both_sets_which_is_brute_force_at_that_moment(
    after: int, x: int, y: int, weight: int, kind: str
) -> None:
    both = Subscription(1, 1, Formula(EVOLVING, T), Filter('kind == "apple", weight <= t', T))
    only_evolving = Subscription(2, 1, Formula(EVOLVING, T))
    only_still = Subscription(3, 1, Formula(STATIC, T), Filter('kind == "apple"', T))
    mixed = Subscription(4, 1, Formula(STATIC, T), Filter('kind == "apple", weight <= t', T))
    engine, oracle = LazyMatcher(), ScanMatcher()
    m1, m2 = ScanMatcher(), ScanMatcher()
    for subscription in (both, only_evolving, only_still, mixed):
        engine.put(subscription)
        oracle.put(subscription)
        still, evolving = split_evolving(subscription)
        m1.put(still or Subscription(subscription.id, 1, ANYWHERE))  # nothing still: always in M1
        m2.put(evolving or Subscription(subscription.id, 1, ANYWHERE))
    publication = at(T + after, x, y, weight=weight, kind=kind)
    answer = matched(engine, publication)
    assert answer == oracle.match(publication, publication.t)
    first, second = matched(m1, publication), matched(m2, publication)
    assert answer == [s for s in first if s in second]


def moving_subscriptions(n: int) -> list[Subscription]:
    rng = Random(n)
    return [
        Subscription(
            i,
            i,
            Moving(box(rng.uniform(0, 50), rng.uniform(0, 50), 3, 2), (1.0, 1.0, 0.0), since=T),
        )
        for i in range(n)
    ]


def played(engine: Matcher, moments: list[int], until: int) -> int:
    """Evaluations of a crowd of 40 during which these publications are made."""
    for subscription in moving_subscriptions(40):
        engine.put(subscription)
    for moment in moments:
        while (due := engine.due()) is not None and due <= moment:
            engine.refresh(due)
        engine.match(at(moment, 25, 25), moment)
    while (due := engine.due()) is not None and due <= until:
        engine.refresh(due)
    return engine.evaluations


def test_001_9_lazy_evolution_costs_in_proportion_to_publications_and_nothing_without() -> None:
    until = T + 20 * SECOND
    assert played(LazyMatcher(), [], until) == 0
    for count in (1, 3, 17):
        moments = [T + k * SECOND for k in range(count)]
        assert played(LazyMatcher(), moments, until) == 40 * count


def test_001_10_lazy_is_cheaper_when_evolutions_outnumber_publications_and_dearer_otherwise() -> (
    None
):
    cheaper = []
    for per_evolution in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        count = round(20 * per_evolution)
        moments = [T + 1 + k * 20 * SECOND // count for k in range(count)]
        until = T + 20 * SECOND
        lazily = played(LazyMatcher(), moments, until)
        periodically = played(PeriodicMatcher(interval_us=SECOND), moments, until)
        cheaper.append(lazily < periodically)
    assert cheaper[0]
    assert not cheaper[-1]
    assert cheaper == sorted(cheaper, reverse=True), "the sign changes once"


def test_001_11_a_cached_version_serves_until_it_expires_and_at_that_very_moment() -> None:
    threshold = 3 * SECOND
    engine = CachedMatcher(threshold_us=threshold)
    engine.put(Subscription(1, 1, Formula(EVOLVING, T)))
    assert matched(engine, at(T + SECOND)) == [1]  # made at t = 1; Exp = T + 1 s + TT
    assert engine.evaluations == 1
    edge = at(T + SECOND + threshold, -2, 1)  # in the rectangle of t = 1, long out of that of t = 4
    assert matched(engine, edge) == [1]
    assert engine.evaluations == 1
    assert matched(engine, at(T + SECOND + threshold + 1, -2, 1)) == []
    assert engine.evaluations == 2
    expires = T + SECOND + threshold + 1 + threshold  # the new Exp = T + TT
    matched(engine, at(expires))
    assert engine.evaluations == 2
    matched(engine, at(expires + 1))
    assert engine.evaluations == 3


def test_001_11_each_subscription_may_have_its_own_threshold() -> None:
    engine = CachedMatcher(threshold_us=0)
    moving = Moving(box(0, 0, 3, 2), (1.0, 1.0, 0.0), since=T)
    engine.put(Subscription(1, 1, moving), threshold_us=2 * SECOND)
    engine.put(Subscription(2, 1, moving))
    for second in range(5):
        matched(engine, at(T + second * SECOND))
    assert engine.evaluations == 2 + 5


@pytest.mark.parametrize("threshold", [0, 1, SECOND // 2, 2 * SECOND])
def test_001_12_the_cache_never_evaluates_more_and_less_if_a_threshold_sees_two(
    threshold: int,
) -> None:
    rng = Random(threshold)
    apart = sorted(T + rng.randrange(20 * SECOND) for _ in range(15))
    lazily, cached = played(LazyMatcher(), apart, T), played(CachedMatcher(threshold), apart, T)
    assert cached <= lazily
    close = any(b - a <= threshold for a, b in pairwise(apart))
    assert (cached < lazily) == close
    twice = sorted([*apart, *apart])
    assert played(CachedMatcher(threshold), twice, T) < played(LazyMatcher(), twice, T)


def test_001_12_without_a_threshold_it_answers_as_lazy_does() -> None:
    cached, lazily = CachedMatcher(threshold_us=0), LazyMatcher()
    for subscription in moving_subscriptions(40):
        cached.put(subscription)
        lazily.put(subscription)
    for k in range(50):
        publication = at(T + k * SECOND // 7, k, k)
        assert matched(cached, publication) == matched(lazily, publication)


def test_001_13_the_cache_errs_only_within_its_threshold() -> None:
    threshold, rng = 2 * SECOND, Random(13)
    engine = CachedMatcher(threshold_us=threshold)
    subscriptions = moving_subscriptions(40)
    for subscription in subscriptions:
        engine.put(subscription)
    made, moment, errors = T, T, 0
    for k in range(300):
        moment += rng.randrange(SECOND // 2)
        if k == 0 or moment - made > threshold:
            made = moment
        publication = at(moment, rng.uniform(0, 60), rng.uniform(0, 60))
        answer = matched(engine, publication)
        assert answer == [s.id for s in subscriptions if wants(s, publication, made)]
        assert moment - made <= threshold
        errors += answer != [s.id for s in subscriptions if wants(s, publication, moment)]
    assert errors > 0, "a cache that never errs was not tested"
