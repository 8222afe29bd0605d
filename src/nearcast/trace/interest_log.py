"""What every entity wants right now, and the interest rows that say so.

Hosts obey commands; the ledger turns them into rows of the trace. A row replaces its predecessor
whole. Each leg of a path is a row of its own, written when it begins. A command about a
subscription that is not there changes nothing and leaves no row; nor does a Tune that leaves its
predicates without a value.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from nearcast.model.commands import Command, Leave, Move, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import NodeId, Subscription, SubscriptionId
from nearcast.space.motion import Path, Time
from nearcast.trace.recorder import Recorder

Schedule: TypeAlias = Callable[[Time, Callable[[], None]], None]


class InterestLog:
    def __init__(self, recorder: Recorder, schedule: Schedule) -> None:
        self._recorder = recorder
        self._schedule = schedule  # calls back at a moment: for the legs of paths
        self._wanted: dict[NodeId, dict[SubscriptionId, Subscription]] = {}
        self._asked: dict[NodeId, dict[SubscriptionId, Subscribe]] = {}  # those with variables

    def obey(self, now: Time, node: NodeId, command: Command) -> None:
        mine, asked = self._wanted.setdefault(node, {}), self._asked.setdefault(node, {})
        match command:
            case Move(subscription, region):
                if subscription in mine:
                    self._change(now, mine[subscription].moved(region, now))
                    if subscription in asked:
                        asked[subscription] = asked[subscription].moved(region)
            case Subscribe(subscription):
                self._change(now, command.stamped(node, now))
                asked.pop(subscription, None)
                if command.variables:
                    asked[subscription] = command
            case Tune(subscription, variables) if subscription in asked:
                try:
                    tuned = asked[subscription].tuned(variables)
                    changed = tuned.rebound(mine[subscription], now)
                except ValueError:
                    return
                asked[subscription] = tuned
                self._change(now, changed)
            case Unsubscribe(subscription):
                asked.pop(subscription, None)
                if mine.pop(subscription, None) is not None:
                    self._recorder.ended(now, node, subscription)
            case Leave():
                self.gone(now, node)

    def gone(self, now: Time, node: NodeId) -> None:
        """Leaving and crashing end all that a node wanted."""
        self._asked.pop(node, None)
        for subscription in self._wanted.pop(node, {}):
            self._recorder.ended(now, node, subscription)

    def _change(self, now: Time, subscription: Subscription) -> None:
        self._wanted[subscription.node][subscription.id] = subscription
        self._recorder.interest(now, subscription)
        if isinstance(subscription.region, Path):
            for leg in subscription.region.legs[1:]:
                self._schedule(leg.since, partial(self._begin_leg, leg.since, subscription))

    def _begin_leg(self, now: Time, subscription: Subscription) -> None:
        if self._wanted.get(subscription.node, {}).get(subscription.id) is subscription:
            self._recorder.interest(now, subscription)
