"""Nodes compare the retained states that they know, and send again what differs.

Every node knows all states of the cluster. Whatever tells of one may be lost: with a link, or while
no link can be made. So each heartbeat has a digest of the states that its sender knows, without
those of the last seconds, which may be under way. A node that knows others asks the sender about
its clients (`StatesInventory`), which then sends what differs.
"""

from typing import TYPE_CHECKING

from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Outbox
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.messages import (
    NodeHeartbeat,
    StatesDigest,
    StatesInventory,
    StatesWithdrawn,
)
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import block_of
from nearcast.space.motion import SECOND, Time

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

UNDER_WAY: Time = 2 * SECOND  # for which a state may still be
# At most: while many states change, digests differ most of the time, and an inventory is long.
ASK_EVERY: Time = 5 * SECOND


class StateComparison:
    """Compares the states of one node with those of the others."""

    def __init__(self, node: "ClusterNode", out: Outbox, realm: ClusterRealm) -> None:
        self._node, self._out, self._realm = node, out, realm
        self._differs: dict[NodeId, None] = {}  # nodes whose last digest was different
        self._asked: dict[NodeId, Time] = {}

    def digest(self, now: Time) -> StatesDigest:
        """For the next heartbeat."""
        return self._digest(max(0, now - UNDER_WAY))

    def _digest(self, until: Time) -> StatesDigest:
        return StatesDigest(until, *self._realm.states_digest(until))

    def on_heartbeat(self, beat: NodeHeartbeat, sender: NodeId) -> None:
        """Asks when two digests in a row differ: a state that has just changed there may follow."""
        theirs = beat.states
        if theirs is None or theirs == self._digest(theirs.until):
            self._differs.pop(sender, None)
        elif sender not in self._differs:
            self._differs[sender] = None
        elif self._realm.now - self._asked.get(sender, -ASK_EVERY) >= ASK_EVERY:
            del self._differs[sender]
            self._asked[sender] = self._realm.now
            known = self._realm.remote_entities.states_of(block_of(sender), theirs.until)
            departed = self._departed(theirs.until)
            self._out.send(sender, StatesInventory(theirs.until, tuple(known), tuple(departed)))

    def _departed(self, until: Time) -> dict[tuple[NodeId, str, PublicationId], ClientState]:
        """States of those who have left the cluster, made until then."""
        return {
            (client.entity, state.accepted.request.channel, state.accepted.id): client
            for client in self._realm.departed_clients()
            for state in self._realm.retained_states(client)
            if state.t <= until
        }

    def on_inventory(self, inventory: StatesInventory, sender: NodeId) -> None:
        """Sends what differs from the states that the sender has of this node's clients, and of
        those who have left."""
        known: dict[tuple[NodeId, str], PublicationId] = {
            (entity, channel): publication for entity, channel, publication in inventory.states
        }
        clients = [client for client in self._realm.clients if client is not None]
        changed = []
        for client in clients:
            for state in self._realm.retained_states(client):
                theirs = known.pop((client.entity, state.accepted.request.channel), None)
                if state.t <= inventory.until and theirs != state.accepted.id:
                    changed.append(client)
        theirs_departed = dict.fromkeys(inventory.departed)
        changed += [
            client
            for state, client in self._departed(inventory.until).items()
            if state not in theirs_departed
        ]
        if changed:
            self._node.send_states(list(dict.fromkeys(changed)), [sender])
        here = {client.entity for client in clients}
        over = [(entity, channel, inventory.until) for entity, channel in known if entity in here]
        over += self._realm.remote_entities.withdrawals(inventory.departed)
        if over:
            self._out.send(sender, StatesWithdrawn(tuple(over)))
        self._node.answer_check([entity for entity, _ in known if entity not in here], sender)
