"""Turns the commands of nodes into the interest rows of the trace.

A row replaces the row before it of the same subscription. Each leg of a path is a row of its own,
written when the leg begins. A command about a subscription that does not exist changes nothing and
leaves no row; nor does a Tune that leaves a predicate without a value.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from nearcast.model.commands import Command, Leave, Publish
from nearcast.model.interests import ActiveInterests
from nearcast.model.subscription import NodeId, Subscription
from nearcast.space.motion import Path, Time
from nearcast.trace.recorder import Recorder

Schedule: TypeAlias = Callable[[Time, Callable[[], None]], None]


class InterestLog:
    """The subscriptions of all nodes of one host, and their rows."""

    def __init__(self, recorder: Recorder, schedule: Schedule) -> None:
        self._recorder = recorder
        self._schedule = schedule  # calls back at a moment: for the legs of paths
        self._active: dict[NodeId, ActiveInterests] = {}

    def obey(self, now: Time, node: NodeId, command: Command) -> None:
        """Record what a command of `node` changes in its subscriptions."""
        if isinstance(command, Leave):
            self.gone(now, node)
        elif not isinstance(command, Publish):
            active = self._active.setdefault(node, ActiveInterests())
            if active.apply(command, node, now) is None:
                subscription = active.current.get(command.subscription)
                if subscription is None:
                    self._recorder.ended(now, node, command.subscription)
                else:
                    self._record(now, subscription)

    def gone(self, now: Time, node: NodeId) -> None:
        """A node has left or crashed: all of its subscriptions end."""
        active = self._active.pop(node, None)
        for subscription in active.current if active is not None else ():
            self._recorder.ended(now, node, subscription)

    def _record(self, now: Time, subscription: Subscription) -> None:
        self._recorder.interest(now, subscription)
        if isinstance(subscription.region, Path):
            for leg in subscription.region.legs[1:]:
                self._schedule(leg.since, partial(self._begin_leg, leg.since, subscription))

    def _begin_leg(self, now: Time, subscription: Subscription) -> None:
        active = self._active.get(subscription.node)
        if active is not None and active.current.get(subscription.id) is subscription:
            self._recorder.interest(now, subscription)
