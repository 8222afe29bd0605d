"""Evolving subscriptions for engines that cannot match them directly ([Evolving] section 4).

`split_evolving` separates the predicates that do not depend on time, which a standard engine can
index, from those that do. A `Snapshot` is what the latter were at one moment.
"""

from itertools import compress
from operator import not_
from typing import NamedTuple

from msgspec.structs import replace

from nearcast.model import predicates
from nearcast.model.predicates import PredicateBox
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Filter,
    Formula,
    Subscription,
    evolves,
    region_evolves,
    seconds_since,
)
from nearcast.space.motion import Moving, Time
from nearcast.space.shapes import EVERYWHERE


def has_fault(subscription: Subscription, at: Time) -> bool:
    """Does it want nothing then because a bound has no value?"""
    picture = snapshot(subscription, at)
    return not picture.valued or any(
        all(bound is None for *_, bound in clause) for clause in picture.tests
    )


class SplitSubscription(NamedTuple):
    """The static and the evolving part of a subscription, with the same id; None: it has none."""

    still: Subscription | None
    evolving: Subscription | None


def split_evolving(subscription: Subscription) -> SplitSubscription:
    """[Evolving] 4.2: separate the evolving predicates from the others.

    A region is never divided: a disc may touch what each of two predicates leaves and yet nothing
    of what both leave together.
    """
    if not evolves(subscription):
        return SplitSubscription(subscription, None)
    everywhere = Moving(EVERYWHERE, since=subscription.region.since)
    moves = region_evolves(subscription.region)
    region, still_region = (
        (subscription.region, everywhere) if moves else (everywhere, subscription.region)
    )
    changing, lasting = None, None
    if subscription.filter is not None:
        since = subscription.filter.since
        parts = predicates.parse_with_text(subscription.filter.text)
        changes = [any(one.evolves for one in clause) for _, clause in parts]
        pieces = [piece for piece, _ in parts]
        evolving_text = ", ".join(compress(pieces, changes))
        still_text = ", ".join(compress(pieces, map(not_, changes)))
        changing = Filter(evolving_text, since) if evolving_text else None
        lasting = Filter(still_text, since) if still_text else None
    still = None
    if lasting is not None or not moves:
        still = replace(subscription, region=still_region, filter=lasting)
    return SplitSubscription(still, replace(subscription, region=region, filter=changing))


class Snapshot(NamedTuple):
    """An evolving part as it was at one moment: the time-independent version of [Evolving]."""

    made: Time
    zone: PredicateBox | None  # of a formula
    tests: predicates.FrozenTests
    valued: bool  # False: some bound had no value, so nothing matches


def snapshot(half: Subscription, at: Time) -> Snapshot:
    """Evaluate the evolving part at that moment."""
    region, condition = half.region, half.filter
    zone, valued = None, True
    tests: predicates.FrozenTests = ()
    if isinstance(region, Formula):
        seconds = seconds_since(region.since, at)
        zone = predicates.box_at(region.parsed, seconds)
        valued = zone is not None or predicates.has_values(region.parsed, seconds)
    if condition is not None:
        tests = predicates.freeze_tests(condition.parsed, seconds_since(condition.since, at))
    return Snapshot(at, zone, tests, valued)


def snapshot_wants(half: Subscription, picture: Snapshot, publication: Publication) -> bool | None:
    """Does the part, as it was then, want the publication? None: no, because of a fault."""
    s = publication.shape
    if half.channel != publication.channel:
        return False
    if half.node == publication.node and not half.echo:
        return False
    if not picture.valued:
        return None
    if not isinstance(half.region, Formula):
        if not half.region.touches(s, picture.made):
            return False
    elif picture.zone is None or not picture.zone.touches_shape(s):
        return False
    return predicates.run_frozen_tests(picture.tests, publication.attributes)
