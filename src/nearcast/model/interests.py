"""What a node is subscribed to: commands become subscriptions, and the past ones are kept.

A publication counts for whoever was subscribed at the moment it was made, and it arrives later. So
whoever matches keeps the versions of a subscription for a while.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from nearcast.model.commands import Move, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import NodeId, Subscription, SubscriptionId
from nearcast.space.motion import Time

InterestCommand: TypeAlias = Subscribe | Move | Tune | Unsubscribe
IGNORED, REFUSED = "ignored", "refused"  # the facts that a node notes in the trace


class ActiveInterests:
    """The subscriptions of one node that are in force, as its application's commands leave them."""

    __slots__ = ("_templates", "current")

    def __init__(self) -> None:
        self.current: dict[SubscriptionId, Subscription] = {}
        # Those with variables as they were asked for, so that a Tune can bind them again.
        self._templates: dict[SubscriptionId, Subscribe] = {}

    def apply(self, command: InterestCommand, node: NodeId, now: Time) -> str | None:
        """Carry out a command of `node`. None: done; else why not, in one word.

        IGNORED: there is no such subscription, or it has no variables. REFUSED: with these
        variables, a bound would have no value.
        """
        number = command.subscription
        if isinstance(command, Subscribe):
            self.current[number] = command.stamped(node, now)
            self._templates.pop(number, None)
            if command.variables:
                self._templates[number] = command
            return None
        subscription, template = self.current.get(number), self._templates.get(number)
        if subscription is None:
            return IGNORED
        if isinstance(command, Unsubscribe):
            del self.current[number]
            self._templates.pop(number, None)
        elif isinstance(command, Move):
            self.current[number] = subscription.moved(command.region, now)
            if template is not None:
                self._templates[number] = template.moved(command.region)
        elif template is None:
            return IGNORED
        else:
            try:
                tuned = template.tuned(command.variables)
                self.current[number] = tuned.rebound(subscription, now)
            except ValueError:
                return REFUSED
            self._templates[number] = tuned
        return None


class InterestVersion(NamedTuple):
    """From `begins` on, until the next version, the node wants this."""

    begins: Time
    subscription: Subscription | None  # None: it has unsubscribed


def version_at(versions: Sequence[InterestVersion], t: Time) -> Subscription | None:
    """What was in force at `t`, of the versions of one subscription in order of time."""
    for begins, subscription in reversed(versions):
        if begins <= t:
            return subscription
    return None
