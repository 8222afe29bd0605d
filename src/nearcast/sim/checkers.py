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
from nearcast.space.motion import FOREVER, Time


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
    """No publication is delivered twice for one subscription within `memory`: a long run must not
    need more and more of this machine's."""

    def __init__(self, memory: Time = FOREVER) -> None:
        self._memory, self._forgets_at = memory, memory
        self._recent: dict[SubscriptionId, dict[PublicationId, None]] = {}
        self._before: dict[SubscriptionId, dict[PublicationId, None]] = {}

    def delivered(
        self, now: Time, node: NodeId, publication: Publication, subscription: SubscriptionId
    ) -> None:
        if now >= self._forgets_at:
            self._before, self._recent = self._recent, {}
            self._forgets_at = now + self._memory
        recent = self._recent.get(subscription)
        if recent is None:
            recent = self._recent[subscription] = {}
        number = publication.id
        if number in recent or number in self._before.get(subscription, ()):
            raise InvariantError(
                f"at {now} node {node} received publication {number} twice "
                f"for subscription {subscription}"
            )
        recent[number] = None


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
