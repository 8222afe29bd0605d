"""Checkers watch a simulation and change nothing in it.

Some check what every protocol must guarantee (a publication is delivered once, in order, not before
it was published); `InvariantChecker` asks the invariants of one protocol. A violation is a bug of
ours: the checker raises InvariantError, and the run ends with its seed in the message.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from nearcast.errors import InvariantError
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.node import Node
from nearcast.protocols.overlay import Invariant
from nearcast.space.motion import Time


class Checker:
    """Override what is to be checked."""

    checks_deliveries: ClassVar[bool] = True

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        """A node has delivered a publication to its application, for this subscription."""

    def passed(self, now: Time) -> None:
        """All that happens at the moment `now` has happened."""


class InvariantChecker(Checker):
    """Asks invariants of all nodes: at every moment, or once in `every` of simulated time."""

    checks_deliveries = False

    def __init__(
        self, nodes: Mapping[NodeId, Node], invariants: Sequence[Invariant], every: Time = 0
    ) -> None:
        self._nodes, self._invariants, self._every = nodes, tuple(invariants), every
        self._due: Time = 0

    def passed(self, now: Time) -> None:
        if now < self._due:
            return
        self._due = now + self._every
        for invariant in self._invariants:
            for violation in invariant.violations(self._nodes, now):
                raise InvariantError(f"at {now} {violation}")


class DeliveredOnce(Checker):
    """No publication is delivered twice for one subscription."""

    def __init__(self) -> None:
        self._delivered: dict[SubscriptionId, dict[PublicationId, None]] = {}

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        delivered = self._delivered.setdefault(subscription, {})
        if publication.id in delivered:
            raise InvariantError(
                f"at {now} node {node} received publication {publication.id} twice "
                f"for subscription {subscription}"
            )
        delivered[publication.id] = None


class PublisherOrder(Checker):
    """Each subscription gets the publications of one publisher in the order of their making."""

    def __init__(self) -> None:
        self._latest: dict[tuple[SubscriptionId, NodeId], Time] = {}

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        key = (subscription, publication.node)
        if publication.t < self._latest.get(key, 0):
            raise InvariantError(
                f"at {now} node {node} received publication {publication.id} of {publication.node} "
                "after a later one"
            )
        self._latest[key] = publication.t


class NotBeforePublished(Checker):
    """Nothing is delivered before it was published."""

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        if now < publication.t:
            raise InvariantError(
                f"at {now} node {node} received publication {publication.id} for subscription "
                f"{subscription}, which was made at {publication.t}"
            )
