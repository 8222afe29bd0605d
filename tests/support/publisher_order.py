"""A checker for overlays that keep the order of a publisher; not all of them promise it."""

from nearcast.errors import InvariantError
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.sim.checkers import Checker
from nearcast.space.motion import Time


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
