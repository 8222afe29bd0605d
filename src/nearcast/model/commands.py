"""Commands of an application to its node.

Regions and filters in a command are not stamped yet: the node that accepts the command does that.
A subscription may give its region, its filter or both as plain text with variables in it, and
their numbers beside it; `Tune` changes the numbers (see `variables`).
"""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.evolution import Evolution
from nearcast.model.publication import Publication
from nearcast.model.rates import check_rates
from nearcast.model.subscription import (
    Filter,
    Formula,
    NodeId,
    PublicationId,
    Region,
    Subscription,
    SubscriptionId,
    Value,
)
from nearcast.model.variables import bind, check_variables
from nearcast.space.motion import Moving, Path, Time
from nearcast.space.shapes import Shape


def continue_region(region: Region, now: Time) -> Region:
    """The same motion, described from `now` on, as a new row of the trace needs it."""
    if isinstance(region, Formula) or region.since >= now:
        return region
    if isinstance(region, Path):
        leg = region.leg(now)
        later = tuple(further for further in region.legs if further.since > now)
        return Path((_continue_leg(leg, now), *later))
    return _continue_leg(region, now)


def _continue_leg(leg: Moving, now: Time) -> Moving:
    if leg.until <= now:
        return Moving(leg.at(now), since=now)
    left = None if leg.duration is None else leg.until - now
    return Moving(leg.at(now), leg.velocity, leg.growth, left, now)


class Subscribe(Struct, frozen=True):
    """Begin a subscription, or replace the one with this id."""

    subscription: SubscriptionId
    region: Region | str
    filter: Filter | str | None = None
    channel: str = ""
    echo: bool = False
    variables: dict[str, float] = {}
    evolution: Evolution | None = None  # for brokers
    rates: tuple[tuple[float, float], ...] = ()  # for overlays that offer them

    def __post_init__(self) -> None:
        check_variables(self.variables)
        check_rates(self.rates, self.region)
        if isinstance(self.region, str):
            Formula(bind(self.region, self.variables))
        if isinstance(self.filter, str):
            Filter(bind(self.filter, self.variables))

    def stamped(self, node: NodeId, now: Time) -> Subscription:
        """The subscription that `node` accepts at `now`."""
        region, condition = self.region, self.filter
        if isinstance(region, str):
            region = Formula(bind(region, self.variables))
        if isinstance(condition, str):
            condition = Filter(bind(condition, self.variables))
        return Subscription(
            self.subscription,
            node,
            region.stamped(now),
            condition.stamped(now) if condition else None,
            self.channel,
            self.echo,
            self.evolution,
        )

    def moved(self, region: Region) -> "Subscribe":
        """The command as if it had this region."""
        return replace(self, region=region)

    def tuned(self, variables: dict[str, float]) -> "Subscribe":
        """The command as if it had these variables; ValueError if a bound then has no value."""
        return replace(self, variables=self.variables | variables)

    def rebound(self, current: Subscription, now: Time) -> Subscription:
        """The subscription with the present variables; its clocks and its motion go on."""
        region, condition = current.region, current.filter
        if isinstance(self.region, str):
            region = Formula(bind(self.region, self.variables), region.since)
        else:
            region = continue_region(region, now)
        if isinstance(self.filter, str) and condition is not None:
            condition = Filter(bind(self.filter, self.variables), condition.since)
        return replace(current, region=region, filter=condition)


class Move(Struct, frozen=True):
    """The subscription's region is this one from now on; channel, filter and echo stay."""

    subscription: SubscriptionId
    region: Region


class Tune(Struct, frozen=True):
    """These variables of the subscription have these numbers from now on; the others stay."""

    subscription: SubscriptionId
    variables: dict[str, float]

    def __post_init__(self) -> None:
        check_variables(self.variables)


class Unsubscribe(Struct, frozen=True):
    """End this subscription."""

    subscription: SubscriptionId


class Publish(Struct, frozen=True):
    """Publish to a shape; the node adds its name and the time."""

    publication: PublicationId
    shape: Shape
    channel: str = ""
    attributes: dict[str, Value] = {}
    payload: bytes = b""

    def stamped(self, node: NodeId, now: Time) -> Publication:
        return Publication(
            self.publication, node, now, self.shape, self.channel, self.attributes, self.payload
        )


class SendDirect(Struct, frozen=True):
    """Send a message to one entity. Hosts carry it from peer to peer; no protocol knows of it."""

    message: PublicationId
    to: NodeId
    payload: bytes = b""


class Leave(Struct, frozen=True):
    """Leave the overlay and stop."""


Command: TypeAlias = Subscribe | Move | Tune | Unsubscribe | Publish | Leave
