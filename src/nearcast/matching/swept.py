"""Our engine for evolving subscriptions: index what each may want in a slice of time, then verify.

As exact as LEES, and about as cheap as PES. Regions go to `grid`, which holds the boxes that they
sweep during a slice. Subscriptions without a region go to `attributes`, with the bounds that
interval arithmetic finds for their predicates during a slice. Candidates are verified at the
publication's moment. A publication outside the slice begins a new one. What cannot be bounded is
tested every time (`fallbacks`). For subscriptions that do not evolve it is a standard engine, on
which the designs of [Evolving] build.
"""

from math import inf

from nearcast.matching.attributes import AttributeComparison, AttributeIndex
from nearcast.matching.grid import GridMatcher
from nearcast.matching.matcher import (
    Batch,
    Matcher,
    Matches,
    concatenate_matches,
    match_each,
)
from nearcast.matching.residual_check import check_subscription
from nearcast.model.intervals import admitted_interval
from nearcast.model.predicates import Predicate, has_bounded_axis
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Filter,
    Formula,
    Region,
    Subscription,
    SubscriptionId,
    evolves,
    seconds_since,
)
from nearcast.space.motion import SECOND, Path, Time

SHORTEST, USUAL, LONGEST = SECOND // 10, SECOND, 60 * SECOND  # that a slice may last


class SweptMatcher(Matcher):
    """A grid for regions and an attribute index for filters, both for a slice of time."""

    def __init__(self) -> None:
        self._regions = GridMatcher()
        self._conditions = AttributeIndex()
        self._conditional: dict[SubscriptionId, Subscription] = {}  # those without a region
        self._evolving: dict[SubscriptionId, Filter] = {}  # their filters that change with time
        self._slice: tuple[Time, Time] = (0, -1)
        self._ahead = USUAL
        self._served = 0  # publications since the slice began
        self._evaluations = 0
        self._faults = 0

    @property
    def evaluations(self) -> int:
        """How often something evolving was evaluated: verified, or bounded for a slice."""
        return self._evaluations + self._regions.evaluations

    @property
    def faults(self) -> int:
        return self._faults + self._regions.faults + self._conditions.clashes

    @property
    def fallbacks(self) -> int:
        """How many subscriptions are tested every time, because they are unbounded now."""
        return self._regions.fallbacks

    def put(self, subscription: Subscription) -> None:
        in_grid = is_bounded(subscription.region)
        if subscription.filter is None and isinstance(subscription.region, Formula):
            in_grid = True  # which handles unbounded ones
        if not in_grid or subscription.id in self._conditional:
            self.drop(subscription.id)
        if in_grid:
            self._regions.put(subscription)
        else:
            self._conditional[subscription.id] = subscription
            condition = subscription.filter
            if condition is not None and condition.parsed.evolves:
                self._evolving[subscription.id] = condition
                self._evaluations += 1
            self._index(subscription, *self._slice)

    def drop(self, subscription: SubscriptionId) -> None:
        if self._conditional.pop(subscription, None) is None:
            self._regions.drop(subscription)
            return
        self._evolving.pop(subscription, None)
        self._conditions.drop(subscription)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        found = self._regions.match(publication, at)
        if not self._conditional:
            return found
        self._cover(at, at, 1)
        return sorted([*found, *self._wanting(publication, at)])

    def match_many(self, publications: Batch) -> Matches:
        found = self._regions.match_many(publications)
        if not self._conditional or not len(publications):
            return found
        self._cover(int(publications.t.min()), int(publications.t.max()), len(publications))
        return concatenate_matches(found, match_each(publications, self._wanting))

    def _wanting(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        wanting = []
        for candidate in self._conditions.find(publication.channel, publication.attributes):
            wanted = self._conditional[candidate]
            self._evaluations += evolves(wanted)
            outcome = check_subscription(wanted, publication, at)
            if outcome:
                wanting.append(candidate)
            elif outcome is None:
                self._faults += 1
        return wanting

    def _cover(self, lo: Time, hi: Time, count: int) -> None:
        """Begin a new slice and bound evolving filters for it, if these moments are outside."""
        begin, end = self._slice
        if self._evolving and not (begin <= lo and hi <= end):
            # A slice should serve about as many publications as there are filters to be bounded.
            if self._served < len(self._evolving) // 4:
                self._ahead = min(2 * self._ahead, LONGEST)
            elif self._served > 4 * len(self._evolving):
                self._ahead = max(self._ahead // 2, SHORTEST)
            self._slice, self._served = (lo - self._ahead // 4, hi + self._ahead), 0
            for subscription in self._evolving:
                self._index(self._conditional[subscription], *self._slice)
            self._evaluations += len(self._evolving)
        self._served += count

    def _index(self, wanted: Subscription, lo: Time, hi: Time) -> None:
        tests: list[AttributeComparison] | None = []
        if wanted.filter is not None:
            begin, end = (
                seconds_since(wanted.filter.since, moment) for moment in (lo, max(lo, hi))
            )
            tests = _comparisons_over(wanted.filter.parsed.items, begin, end)
        if tests is None:
            self._conditions.drop(wanted.id)  # in this slice it wants nothing
        else:
            self._conditions.put(wanted.id, wanted.channel, tests)


def is_bounded(region: Region) -> bool:
    """Is a box around it bounded in x or y?"""
    if isinstance(region, Formula):
        return has_bounded_axis(region.parsed)
    legs = region.legs if isinstance(region, Path) else (region,)
    return any(leg.shape.rx < inf or leg.shape.ry < inf for leg in legs)


def _comparisons_over(
    predicates: tuple[Predicate, ...], begin: float, end: float
) -> list[AttributeComparison] | None:
    """Comparisons that hold whenever the predicates do, for `t` from begin to end; None: never."""
    tests = []
    for predicate in predicates:
        attribute, constant = predicate.attribute, predicate.constant
        if constant is not None:
            tests.append(AttributeComparison(attribute, predicate.operator, constant))
            continue
        side = admitted_interval(predicate, begin, end)
        if side is None:
            return None
        if side.high < inf:
            tests.append(AttributeComparison(attribute, "<=", side.high))
        if side.low > -inf or side.high == inf:  # at the least, it must be a number
            tests.append(AttributeComparison(attribute, ">=", side.low))
    return tests
