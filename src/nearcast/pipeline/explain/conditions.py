"""Why a subscription wants a publication, or does not: each of its conditions, with numbers.

Whether a condition holds is decided by the model alone (`model`, `space`); distances and bounds are
only there to be read.
"""

from math import inf, sqrt

from msgspec import Struct

from nearcast.model import predicates
from nearcast.model.predicates import Predicate
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription, seconds_since
from nearcast.space.shapes import BOX, DISC, Shape, half_extents


class WantedCondition(Struct, frozen=True, kw_only=True):
    """One condition of a subscription, and whether a publication meets it."""

    name: str  # time, publisher, channel, place or filter
    holds: bool
    detail: str
    distance: float | None = None  # to the region's border; below 0 inside


def check_conditions(
    subscription: Subscription | None, publication: Publication
) -> list[WantedCondition]:
    """All conditions of what was in force at the publication's moment (None: nothing was)."""
    if subscription is None:
        return [WantedCondition(name="time", holds=False, detail="it was not in force then")]
    return [
        WantedCondition(name="time", holds=True, detail="it was in force then"),
        _check_publisher(subscription, publication),
        _check_channel(subscription, publication),
        _check_place(subscription, publication),
        *_check_filter(subscription.filter, publication),
    ]


def _check_publisher(subscription: Subscription, publication: Publication) -> WantedCondition:
    if subscription.node != publication.node:
        return WantedCondition(name="publisher", holds=True, detail="the publisher is another node")
    detail = (
        "it also wants its own publications"
        if subscription.echo
        else ("it does not want its own publications (echo)")
    )
    return WantedCondition(name="publisher", holds=subscription.echo, detail=detail)


def _check_channel(subscription: Subscription, publication: Publication) -> WantedCondition:
    same = subscription.channel == publication.channel
    detail = (
        f"both on channel {publication.channel!r}"
        if same
        else (
            f"it is on channel {subscription.channel!r}, the publication on {publication.channel!r}"
        )
    )
    return WantedCondition(name="channel", holds=same, detail=detail)


def _check_place(subscription: Subscription, publication: Publication) -> WantedCondition:
    region, t = subscription.region, publication.t
    holds = region.touches(publication.shape, t)
    if isinstance(region, Formula):
        return WantedCondition(
            name="place", holds=holds, detail=_describe_formula(region, publication)
        )
    shape = region.at(t)
    distance = border_distance(shape, publication.shape)
    where = "inside its region" if holds else "outside its region"
    return WantedCondition(
        name="place", holds=holds, distance=None if distance == -inf else distance,
        detail=f"{describe_shape(publication.shape)} is {where}, {describe_shape(shape)}:"
        f" {abs(distance):.6g} from the border",
    )  # fmt: skip


def _describe_formula(region: Formula, publication: Publication) -> str:
    at = seconds_since(region.since, publication.t)
    bounds = ", ".join(
        f"{item.attribute} {item.operator} {_shown(item.evaluate(at))}"
        for item in region.parsed.items
    )
    return (
        f"{describe_shape(publication.shape)}; the region is {region.text}, which after {at:.6f} s"
        f" is {bounds}"
    )


def _check_filter(condition: Filter | None, publication: Publication) -> list[WantedCondition]:
    """Each predicate of the filter is a condition; those with `or` between them are one."""
    if condition is None:
        return []
    at = seconds_since(condition.since, publication.t)
    found = []
    for text, clause in predicates.parse_with_text(condition.text):
        parts = [_describe_predicate(one, publication, at) for one in clause]
        holds = predicates.accepts(predicates.Predicates((), (clause,)), publication.attributes, at)
        detail = f"{text}: the publication {'; '.join(dict.fromkeys(parts))}"
        found.append(WantedCondition(name="filter", holds=holds, detail=detail))
    return found


def _describe_predicate(predicate: Predicate, publication: Publication, at: float) -> str:
    value = publication.attributes.get(predicate.attribute)
    has = "has none" if value is None else f"has {_shown(value)}"
    if predicate.evolves:
        has += f", and the bound is {_shown(predicate.evaluate(at))}"
    return has


def _shown(value: object) -> str:
    if value is None:
        return "without a value"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def describe_shape(shape: Shape) -> str:
    axes = (shape.x, shape.y, shape.z) if shape.z or shape.rz else (shape.x, shape.y)
    place = f"({', '.join(f'{axis:.6g}' for axis in axes)})"
    if shape.kind == DISC:
        return f"the disc at {place} with radius {shape.rx:.6g}"
    if shape.kind == BOX:
        extents = (shape.rx, shape.ry, shape.rz)[: len(axes)]
        if all(extent == inf for extent in extents):
            return "everywhere"
        return f"the box at {place} ± ({', '.join(f'{extent:.6g}' for extent in extents)})"
    return f"the point {place}"


def border_distance(region: Shape, other: Shape) -> float:
    """How far apart two shapes are; below 0, by how much they overlap. For people."""
    (ax, ay, az), (bx, by, bz) = half_extents(region), half_extents(other)
    offsets = abs(region.x - other.x), abs(region.y - other.y), abs(region.z - other.z)
    if region.kind != BOX and other.kind != BOX:
        return sqrt(sum(offset * offset for offset in offsets)) - region.rx - other.rx
    # Of a disc its radius is no extent along an axis: it is subtracted at the end.
    radius = region.rx if region.kind == DISC else other.rx if other.kind == DISC else 0.0
    reach = (ax + bx - radius, ay + by - radius, az + bz - radius)
    gaps = [offset - r for offset, r in zip(offsets, reach, strict=True)]
    outside = sqrt(sum(gap * gap for gap in gaps if gap > 0))
    if outside:
        return outside - radius
    flat = not (region.z or region.rz or other.z or other.rz)
    return max(gaps[:2] if flat else gaps) - radius
