"""Parametric subscriptions: of an interest that stands still, only the numbers travel.

A standing interest is its numbers and a form around them: centre and extents of a shape, bounds of
predicates.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nearcast.model import predicates
from nearcast.model.expressions import Boolean, Text
from nearcast.model.freezing import write_predicate
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import Moving


def values_of(subscription: Subscription) -> tuple[float, ...]:
    """The numbers of a standing interest, in a fixed order."""
    region, filter_ = subscription.region, subscription.filter
    values: list[float] = []
    if isinstance(region, Formula):
        values += _numbers(region.text)
    else:
        s = region.at(region.since)
        values += (s.x, s.y, s.z, s.rx, s.ry, s.rz)
    return (*values, *(_numbers(filter_.text) if filter_ else ()))


def with_values(subscription: Subscription, values: Sequence[float]) -> Subscription:
    """The same form around other numbers; ValueError: they do not fit it."""
    region, filter_ = subscription.region, subscription.filter
    left = list(values)
    if isinstance(region, Formula):
        region = Formula(_renumbered(region.text, left), region.since)
    else:
        if len(left) < 6:
            raise ValueError(f"a shape has six numbers, not {len(left)}")
        x, y, z, rx, ry, rz = left[:6]
        del left[:6]
        shape = region.at(region.since)
        region = Moving(replace(shape, x=x, y=y, z=z, rx=rx, ry=ry, rz=rz), since=region.since)
    if filter_ is not None:
        filter_ = Filter(_renumbered(filter_.text, left), filter_.since)
    if left:
        raise ValueError(f"{len(left)} numbers too many")
    return replace(subscription, region=region, filter=filter_)


def same_form(before: Subscription, after: Subscription) -> bool:
    """Are new numbers all that lies between them?"""
    try:
        return with_values(before, values_of(after)) == after
    except ValueError:
        return False


def _numbers(text: str) -> list[float]:
    clauses = predicates.parse(text).clauses
    bounds_ = (one.evaluate(0.0) for clause in clauses for one in clause)
    return [bound for bound in bounds_ if isinstance(bound, float)]


def _renumbered(text: str, values: list[float]) -> str:
    """Takes as many numbers as it needs from the front."""
    needed = len(known := _numbers(text))
    if values[:needed] == known:
        del values[:needed]
        return text
    clauses = []
    for clause in predicates.parse(text).clauses:
        written = []
        for one in clause:
            if isinstance(one.expression, Text | Boolean):
                written.append(write_predicate(one, one.expression.value))
            elif not values:
                raise ValueError("too few numbers")
            else:
                written.append(write_predicate(one, values.pop(0)))
        clauses.append(" or ".join(written))
    return ", ".join(clauses)
