"""A subscription: a region, static or evolving, and conditions on attributes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from nearcast.model import predicates
from nearcast.model.evolution import Evolution
from nearcast.space.motion import FOREVER, LATEST, Moving, Path, Time
from nearcast.space.shapes import Shape

# Identifiers fit a double exactly, so that JSON and JavaScript keep them whole.
NodeId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
SubscriptionId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
PublicationId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Value: TypeAlias = bool | int | float | str


def check_moment(t: Time) -> None:
    if not 0 <= t < LATEST:
        raise ValueError(f"{t} is no moment: microseconds from 0 to {LATEST}")


def check_text(what: str, text: str) -> None:
    """Can it be sent? Half of a surrogate pair cannot."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{what} must be text that can be encoded, not {text!a}")


def seconds_since(since: Time, t: Time) -> float:
    """The `t` of a formula: seconds since it was submitted, never below 0."""
    return (t - since) / 1e6 if t > since else 0.0


class Formula(Struct, frozen=True, array_like=True, tag=3, dict=True):
    """A region by predicates over x, y and z, with bounds that are functions of `t`."""

    text: str
    since: Time = 0

    def __post_init__(self) -> None:
        check_moment(self.since)
        if predicates.others(self.parsed):
            raise ValueError(f"a region's formula speaks of x, y and z alone: {self.text[:80]!r}")

    @cached_property
    def parsed(self) -> predicates.Predicates:
        """The predicates of the text, parsed once."""
        return predicates.parse(self.text)

    def stamped(self, now: Time) -> "Formula":
        return replace(self, since=now)

    def touches(self, other: Shape, t: Time) -> bool:
        zone = predicates.box_at(self.parsed, seconds_since(self.since, t))
        return zone is not None and zone.touches_shape(other)


class Filter(Struct, frozen=True, array_like=True, dict=True):
    """Conditions on a publication's attributes; they may evolve with `t` too."""

    text: str
    since: Time = 0

    def __post_init__(self) -> None:
        check_moment(self.since)
        if predicates.spatial(self.parsed):
            raise ValueError(f"a filter cannot speak of x, y or z: {self.text[:80]!r}")

    @cached_property
    def parsed(self) -> predicates.Predicates:
        """The predicates of the text, parsed once."""
        return predicates.parse(self.text)

    def stamped(self, now: Time) -> "Filter":
        return replace(self, since=now)

    def accepts(self, attributes: Mapping[str, Value], t: Time) -> bool:
        return predicates.accepts(self.parsed, attributes, seconds_since(self.since, t))


Region: TypeAlias = Moving | Path | Formula


class Subscription(Struct, frozen=True, array_like=True):
    """One subscription of one entity. Region and filter carry the moment of their submission."""

    id: SubscriptionId
    node: NodeId
    region: Region
    filter: Filter | None = None
    channel: str = ""
    echo: bool = False  # True: also receive the own publications
    evolution: Evolution | None = None  # how brokers follow it; None: as they are set

    def __post_init__(self) -> None:
        check_text("a channel", self.channel)

    def moved(self, region: Region, now: Time) -> "Subscription":
        """The same subscription with another region from `now` on.

        A filter's clock goes on, unless the new region has a formula: the two share one `t`.
        """
        restarted = isinstance(region, Formula) and self.filter is not None
        return replace(
            self,
            region=region.stamped(now),
            filter=self.filter.stamped(now) if restarted and self.filter else self.filter,
        )


def evolves(subscription: Subscription) -> bool:
    """Does its region or its filter change with time?"""
    condition = subscription.filter
    return region_evolves(subscription.region) or (
        condition is not None and condition.parsed.evolves
    )


def region_evolves(region: Region) -> bool:
    """Does it move, grow or depend on `t`?"""
    if isinstance(region, Formula):
        return region.parsed.evolves
    return isinstance(region, Path) or region.moves


def stops_evolving_at(subscription: Subscription) -> Time:
    """The moment from which on it stays as it is; FOREVER for a function of time."""
    region, condition = subscription.region, subscription.filter
    if condition is not None and condition.parsed.evolves:
        return FOREVER
    if isinstance(region, Formula):
        return FOREVER if region.parsed.evolves else 0
    last = region.legs[-1] if isinstance(region, Path) else region
    return last.until if last.moves else last.since
