"""A publication: a message to a point or an area, with attributes and a payload."""

from math import isfinite

from msgspec import Struct

from nearcast.model.subscription import (
    NodeId,
    PublicationId,
    Subscription,
    Value,
    check_moment,
    check_text,
)
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape

RESERVED = frozenset({"x", "y", "z", "t"})  # the place and the time are not attributes


def check_attributes(attributes: dict[str, Value]) -> None:
    """ValueError if a name or a value is not allowed."""
    for name, value in attributes.items():
        if name in RESERVED:
            raise ValueError(f"{name!r} cannot be an attribute: it is the place or the time")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"attribute {name!r} must be finite, not {value}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"attribute {name!r} must fit 64 bits")
        check_text("an attribute's name", name)
        if isinstance(value, str):
            check_text(f"attribute {name!r}", value)


class Publication(Struct, frozen=True, array_like=True):
    """Made by `node` at `t`, for everyone whose region at `t` touches `shape`."""

    id: PublicationId
    node: NodeId
    t: Time
    shape: Shape
    channel: str = ""
    attributes: dict[str, Value] = {}
    payload: bytes = b""

    def __post_init__(self) -> None:
        check_moment(self.t)
        check_text("a channel", self.channel)
        if self.attributes:
            check_attributes(self.attributes)


def wants(subscription: Subscription, publication: Publication, at: Time) -> bool:
    """Does the subscription want the publication? The definition for all engines and overlays.

    `at` is the moment at which the region is evaluated: the publication's own `t`, unless a broker
    deliberately uses its own clock ([Evolving]).
    """
    return (
        subscription.channel == publication.channel
        and (subscription.echo or subscription.node != publication.node)
        and subscription.region.touches(publication.shape, at)
        and (subscription.filter is None or subscription.filter.accepts(publication.attributes, at))
    )
