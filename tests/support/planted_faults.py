"""Faults to plant into the shipped cores, one line each, which a simulated cluster must find.

A fault is a text of one method and what replaces it. If the method does not contain that text any
more, plant another one there, which breaks the same.
"""

import inspect
import textwrap
from typing import Any

import pytest
from msgspec import Struct

from nearcast.client.core import ClientCore
from nearcast.client.message_order import MessageOrder
from nearcast.protocols.voronoi.ownership import Ownership
from nearcast.scenario import Scenario
from nearcast.service.cluster.cluster_node import ClusterNode
from nearcast.service.cluster.handover import Handover
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.recent_history import RecentHistory
from nearcast.service.cluster.remote_entities import RemoteEntities
from nearcast.service.cluster.routing import Routing
from nearcast.service.cluster.subscription_registry import SubscriptionRegistry
from support.cluster_scenarios import BORDERS, cluster_scenario

FEW: dict[str, Any] = {"nodes": 8, "seconds": 4}
COME_AND_GO: dict[str, Any] = {**FEW, "retain": 1, "churn_rate": 2, "churn_by": "leave"}


class PlantedFault(Struct):
    """A fault of one method, and a scenario in which a checker's words tell of it."""

    owner: type
    method: str
    old: str
    new: str
    found: str
    settings: dict[str, Any]
    seed: int  # the first one that finds it

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on the method has this fault."""
        method = getattr(self.owner, self.method)
        source = textwrap.dedent(inspect.getsource(method))
        assert source.count(self.old) == 1, f"{method.__qualname__} has changed: {self.old}"
        made: dict[str, Any] = {}
        code = compile(source.replace(self.old, self.new), inspect.getfile(method), "exec")
        exec(code, method.__globals__, made)
        monkeypatch.setattr(self.owner, self.method, made[self.method])

    def scenario(self, seed: int) -> Scenario:
        return cluster_scenario(seed, **self.settings)


PLANTED = {
    "states of entities that are nowhere any more stay known": PlantedFault(
        RemoteEntities, "on_absent", "self._end([entity])", "pass",
        "have no client", {**COME_AND_GO, "link_break": 1, "latency_ms": 150, "jitter_ms": 50}, 1,
    ),
    "no node hears that a client was taken in": PlantedFault(
        Handover, "_on_taken", "unanswered = self._unanswered.pop(ticket, None)", "return",
        "two servers have sent|not where they believe to be", FEW, 0,
    ),
    "of two owners the one with the lower epoch counts": PlantedFault(
        Ownership, "_merge", "(record.epoch, record.owner) > (", "(record.epoch, record.owner) < (",
        "its area is another site's", BORDERS, 2,
    ),
    "publications that have arrived are not remembered": PlantedFault(
        RecentHistory, "is_new", "self._seen[publication] = None", "pass",
        "twice|could not be passed on", FEW, 0,
    ),
    "a new home does not know what its client has received": PlantedFault(
        Handover, "_start_serving", "frozenset(transfer.delivered)", "frozenset()",
        "two servers have sent", BORDERS, 0,
    ),
    "a new home does not deliver what its client has missed": PlantedFault(
        Handover, "_start_serving", "self._catching_up.append(", "tuple(",
        "are missing", BORDERS, 0,
    ),
    "a client's recent publications do not go along": PlantedFault(
        Routing, "send_recent_to", "self._send_outgoing(outgoing)", "pass",
        r", after \d+", BORDERS, 16,
    ),
    "former versions of subscriptions are not kept": PlantedFault(
        ClusterRealm, "_before_change",
        "self.history.versions.add(self.now, active.slot, was, since, t)", "pass",
        "are missing", {**FEW, "motion": "steps"}, 0,
    ),
    "no node hears that a client has left": PlantedFault(
        ClusterNode, "tick",
        "self._out.send_many(list(self.nodes), EntitiesLeft(tuple(left)))", "pass",
        "who have left", COME_AND_GO, 0,
    ),
    "a client does not wait for the last messages of its former node": PlantedFault(
        MessageOrder, "message", "self.former is not None and", "False and",
        r", after \d+", BORDERS, 2,
    ),
    "a client that joins again does not subscribe again": PlantedFault(
        ClientCore, "_restore", "self.subscriptions.values()", "()",
        "its server knows", {**FEW, "disconnect": 0.2}, 0,
    ),
    "a new home does not say who is in the areas of its client": PlantedFault(
        Handover, "_start_serving", "realm.restart_fences(client, fences)", "()",
        "believes that", {**BORDERS, "retain": 1, "watch": 1}, 0,
    ),
    "what nobody confirms to own is not announced again": PlantedFault(
        SubscriptionRegistry, "_resend_unconfirmed", "self._send_updates(now, again)", "pass",
        "no owner", {**FEW, "crash": 0.15}, 0,
    ),
}  # fmt: skip
