"""The examples of [Evolving], run through the engines. Each function returns what was observed.

The claims compare that with the paper (`semantics`).
"""

from collections.abc import Sequence
from random import Random

from nearcast.matching import MATCHERS
from nearcast.matching.cached import CachedMatcher
from nearcast.matching.evolving_parts import split_evolving
from nearcast.matching.lazy import LazyMatcher
from nearcast.matching.matcher import Matcher
from nearcast.matching.periodic import PeriodicMatcher
from nearcast.matching.scan import ScanMatcher
from nearcast.matching.swept import SweptMatcher
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Region, Subscription, Value
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import EVERYWHERE, box, point

SUBMITTED: Time = 1_000 * SECOND  # the global time T at which the examples subscribe
STATIC = "(x >= -3),(x <= 3),(y >= -2),(y <= 2)"  # section 3
EVOLVING = "(x >= -3+t),(x <= 3+t),(y >= -2+t),(y <= 2+t)"
WIDENING = "x < 1 + 0.5*t"  # section 2
PICK_UP = (4.0, 3.0)  # where it is picked up
PUBLISHER = 99  # publishes, and subscribes to nothing
MOVING_SUBSCRIPTIONS = 40


def publication_at(after: Time, place: tuple[float, float], **attributes: Value) -> Publication:
    """A publication that is made so long after the submission."""
    return Publication(1, PUBLISHER, SUBMITTED + after, point(*place), attributes=attributes)


def match_as_broker(engine: Matcher, publication: Publication) -> list[int]:
    """As a broker asks: whoever is due evolves first."""
    while (due := engine.due()) is not None and due <= publication.t:
        engine.refresh(due)
    return engine.match(publication, publication.t)


def matching_subscriptions(name: str, texts: Sequence[str], publication: Publication) -> list[str]:
    """Which of these subscriptions an engine finds for a publication."""
    engine = MATCHERS[name]()
    for number, text in enumerate(texts):
        engine.put(Subscription(number, number, Formula(text, SUBMITTED)))
    return [texts[number] for number in match_as_broker(engine, publication)]


def matching_times(name: str, region: Region, moments: Sequence[Time]) -> list[Time]:
    """After which of these times an engine finds the apple in the region."""
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, region))
    return [after for after in moments if match_as_broker(engine, publication_at(after, PICK_UP))]


def reached_places(name: str, seconds: int) -> list[int]:
    """How many of 40 places the widening subscription reaches, second by second."""
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, Formula(WIDENING, SUBMITTED)))
    return [
        sum(
            match_as_broker(engine, publication_at(second * SECOND, (x / 4, 0.0))) == [1]
            for x in range(40)
        )
        for second in range(seconds)
    ]


def evolution_times(intervals: Sequence[Time], number: int) -> list[Time]:
    """The first evolutions of a periodic engine, counted from the submission of all."""
    engine = PeriodicMatcher()
    for place, interval in enumerate(intervals):
        subscription = Subscription(place, place, Formula(EVOLVING, SUBMITTED))
        engine.put(subscription, interval_us=interval)
    order = []
    for _ in range(number):
        due = engine.due()
        assert due is not None, "what evolves for ever is always due"
        order.append(due - SUBMITTED)
        engine.refresh(due)
    return order


def matching_places(engine: Matcher, after: Time) -> list[float]:
    """The places along the diagonal, a quarter of a unit apart, where a subscription hears."""
    places = (quarter / 4 for quarter in range(-20, 80))
    return [
        place for place in places if match_as_broker(engine, publication_at(after, (place, place)))
    ]


def staleness(interval: Time, seconds: int) -> tuple[float, list[float]]:
    """How old a periodic engine's versions get, and how tall the regions are that answer."""
    engine = PeriodicMatcher(interval_us=interval)
    engine.put(Subscription(1, 1, Formula(EVOLVING, SUBMITTED)))
    oldest, heights = 0.0, dict[float, None]()
    for tenth in range(10 * seconds):
        matching = matching_places(engine, tenth * SECOND // 10)
        # The version of second s reaches from s - 2 to s + 2; two at once would reach further.
        oldest = max(oldest, tenth / 10 - (max(matching) - 2))
        heights[max(matching) - min(matching)] = None
    return oldest, list(heights)


def moving_subscriptions(number: int = MOVING_SUBSCRIPTIONS) -> list[Subscription]:
    """Rectangles of the game that all walk to the right and up."""
    rng = Random(number)
    places = [(rng.uniform(0, 50), rng.uniform(0, 50)) for _ in range(number)]
    return [
        Subscription(i, i, Moving(box(x, y, 3, 2), (1.0, 1.0, 0.0), since=SUBMITTED))
        for i, (x, y) in enumerate(places)
    ]


def matching_costs(publications: int) -> tuple[int, int, int]:
    """Evaluations while publications are matched by PES and by a standard engine that holds the
    same versions as still subscriptions; and how many answers of theirs differ."""
    periodic, standard = PeriodicMatcher(interval_us=SECOND), SweptMatcher()
    for walking in moving_subscriptions():
        assert isinstance(walking.region, Moving)
        periodic.put(walking)
        standing = Moving(walking.region.shape, since=SUBMITTED)
        standard.put(Subscription(walking.id, walking.node, standing))
    before, different, rng = periodic.evaluations, 0, Random(7)
    for _ in range(publications):
        publication = publication_at(SECOND // 2, (rng.uniform(0, 50), rng.uniform(0, 50)))
        different += match_as_broker(periodic, publication) != match_as_broker(
            standard, publication
        )
    return periodic.evaluations - before, standard.evaluations, different


def lazy_differences(publications: int) -> tuple[int, int, int]:
    """How often LEES answers otherwise than M1 ∩ M2, than brute force, and how much it answers."""
    both, fruit = 'kind == "apple", weight <= t', 'kind == "apple"'
    wanted = (
        Subscription(1, 1, Formula(EVOLVING, SUBMITTED), Filter(both, SUBMITTED)),
        Subscription(2, 1, Formula(EVOLVING, SUBMITTED)),
        Subscription(3, 1, Formula(STATIC, SUBMITTED), Filter(fruit, SUBMITTED)),
        Subscription(4, 1, Formula(STATIC, SUBMITTED), Filter(both, SUBMITTED)),
    )
    engine, everything, first, second = LazyMatcher(), ScanMatcher(), ScanMatcher(), ScanMatcher()
    for one in wanted:
        engine.put(one)
        everything.put(one)
        # What has no such half is in that set always.
        still, evolving = split_evolving(one)
        first.put(still or Subscription(one.id, 1, Moving(EVERYWHERE)))
        second.put(evolving or Subscription(one.id, 1, Moving(EVERYWHERE)))
    from_sets = from_truth = answers = 0
    rng = Random(8)
    for _ in range(publications):
        place = float(rng.randint(-4, 12)), float(rng.randint(-4, 12))
        kind, weight = rng.choice(["apple", "pear"]), rng.randint(0, 9)
        publication = publication_at(rng.randrange(8 * SECOND), place, kind=kind, weight=weight)
        answer = match_as_broker(engine, publication)
        m1, m2 = match_as_broker(first, publication), match_as_broker(second, publication)
        from_sets += answer != [one for one in m1 if one in m2]
        from_truth += answer != match_as_broker(everything, publication)
        answers += len(answer)
    return from_sets, from_truth, answers


def evaluations_of(engine: CachedMatcher | LazyMatcher, moments: Sequence[Time]) -> int:
    """What a crowd costs an engine when somebody publishes at these moments."""
    for subscription in moving_subscriptions():
        engine.put(subscription)
    for moment in moments:
        match_as_broker(engine, publication_at(moment, (25.0, 25.0)))
    return engine.evaluations


def cached_versions(threshold: Time, moments: Sequence[Time]) -> list[int]:
    """How many versions CLEES has made after each of these moments, each with a publication."""
    engine, made = CachedMatcher(threshold_us=threshold), []
    engine.put(Subscription(1, 1, Formula(EVOLVING, SUBMITTED)))
    for moment in moments:
        match_as_broker(engine, publication_at(moment, PICK_UP))
        made.append(engine.evaluations)
    return made


def cached_errors(threshold: Time, publications: int) -> tuple[int, int]:
    """How often CLEES errs, and how often in a way that no version within its threshold explains.

    What it answers must be what all wanted at one moment that lies at most the threshold back.
    """
    engine, everybody, rng = (
        CachedMatcher(threshold_us=threshold),
        moving_subscriptions(),
        Random(13),
    )
    for subscription in everybody:
        engine.put(subscription)
    moments: list[Time] = []
    moment, errors, unexplained = 0, 0, 0
    for _ in range(publications):
        moment += rng.randrange(SECOND // 2)
        moments = [earlier for earlier in moments if moment - earlier <= threshold] + [moment]
        publication = publication_at(moment, (rng.uniform(0, 60), rng.uniform(0, 60)))
        answer = match_as_broker(engine, publication)
        truths = [
            [s.id for s in everybody if wants(s, publication, SUBMITTED + earlier)]
            for earlier in moments
        ]
        errors += answer != truths[-1]
        unexplained += answer not in truths
    return errors, unexplained
