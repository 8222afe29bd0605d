"""Watching from outside: invariants that must hold at every step, whatever the protocol.

A checker sees what a host sees and touches nothing. What it finds wrong is our bug, not weather:
it raises, and the run ends with its seed in the message.
"""

from nearcast.errors import InvariantError
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.space.motion import Time


class Checker:
    """Fill in what you want to see."""

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        """An application was handed something."""

    def passed(self, now: Time) -> None:
        """All that happens at this moment has happened."""


class DeliveredOnce(Checker):
    """No application hears the same publication twice for one subscription."""

    def __init__(self) -> None:
        self._heard: dict[SubscriptionId, dict[PublicationId, None]] = {}

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        heard = self._heard.setdefault(subscription, {})
        if publication.id in heard:
            raise InvariantError(
                f"at {now} node {node} heard publication {publication.id} twice "
                f"for subscription {subscription}"
            )
        heard[publication.id] = None


class PublisherOrder(Checker):
    """What one publisher says arrives at each subscription in the order in which it was said."""

    def __init__(self) -> None:
        self._latest: dict[tuple[SubscriptionId, NodeId], Time] = {}

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        key = (subscription, publication.node)
        if publication.t < self._latest.get(key, 0):
            raise InvariantError(
                f"at {now} node {node} heard publication {publication.id} of {publication.node} "
                "after a later one"
            )
        self._latest[key] = publication.t


class NotBeforePublished(Checker):
    """Nothing is heard before it was published."""

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        if now < publication.t:
            raise InvariantError(
                f"at {now} node {node} heard publication {publication.id} for subscription "
                f"{subscription}, which was made at {publication.t}"
            )
