"""What an application asks of its node.

Regions and filters in a command are not stamped yet: the node that accepts the command does that.
"""

from typing import TypeAlias

from msgspec import Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Filter,
    NodeId,
    PublicationId,
    Region,
    Subscription,
    SubscriptionId,
    Value,
)
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape


class Subscribe(Struct, frozen=True):
    subscription: SubscriptionId
    region: Region
    filter: Filter | None = None
    channel: str = ""
    echo: bool = False

    def stamped(self, node: NodeId, now: Time) -> Subscription:
        return Subscription(
            self.subscription,
            node,
            self.region.stamped(now),
            self.filter.stamped(now) if self.filter else None,
            self.channel,
            self.echo,
        )


class Move(Struct, frozen=True):
    """The subscription's region is this one from now on; channel, filter and echo stay."""

    subscription: SubscriptionId
    region: Region


class Unsubscribe(Struct, frozen=True):
    subscription: SubscriptionId


class Publish(Struct, frozen=True):
    publication: PublicationId
    shape: Shape
    channel: str = ""
    attributes: dict[str, Value] = {}
    payload: bytes = b""

    def stamped(self, node: NodeId, now: Time) -> Publication:
        return Publication(
            self.publication, node, now, self.shape, self.channel, self.attributes, self.payload
        )


class Leave(Struct, frozen=True):
    """Say goodbye and stop."""


Command: TypeAlias = Subscribe | Move | Unsubscribe | Publish | Leave
