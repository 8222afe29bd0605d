"""Messages between two nodes that cannot reach each other, by a third that reaches both.

A node that has not been heard directly for `RELAY_AFTER`, though another node says in its
heartbeats that it hears it, is alive: the link between the two is broken. All messages to it then
go by that other node (`RelayedMessage`). Heartbeats are sent directly, too, so that both ends see
when the link works again. Only nodes that are heard *directly* count as heard: otherwise two nodes
could keep a third alive in each other's eyes when it is dead.

At the moment of either change, messages may overtake each other once: what waits on the broken link
comes late, and `ClusterRealm.receive_remote` drops publications that later ones have overtaken.
"""

from collections.abc import Mapping, Sequence

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox
from nearcast.service.cluster.messages import CODEC, RelayedMessage
from nearcast.space.motion import SECOND, Time

# When a partition begins, a heartbeat that says who was heard until then may still be the last one.
# So what counts as heard ends, with one more heartbeat, before a silent node is relayed to.
HEARD_WITHIN: Time = SECOND * 3 // 4  # heartbeats come every half second
RELAY_AFTER: Time = 2 * SECOND  # sites give each other up after three seconds


class RelayingOutbox(Outbox):
    """An outbox whose messages to some nodes go by another one."""

    __slots__ = ("_me", "relays")

    def __init__(self, me: NodeId) -> None:
        super().__init__()
        self._me = me
        self.relays: dict[NodeId, NodeId] = {}  # by the node that is not reached: by whom it is

    def send(self, to: NodeId, message: Message) -> None:
        via = self.relays.get(to)
        if via is None:
            super().send(to, message)
        else:
            super().send(via, RelayedMessage(to, self._me, CODEC.encode(message)))

    def send_many(self, to: Sequence[NodeId], message: Message) -> None:
        if not self.relays:
            super().send_many(to, message)
            return
        super().send_many([node for node in to if node not in self.relays], message)
        for node in to:
            if node in self.relays:
                self.send(node, message)

    def send_directly(self, to: NodeId, message: Message) -> None:
        """Whether or not it can be reached."""
        super().send(to, message)


def find_relay(node: NodeId, heard: Mapping[NodeId, Sequence[NodeId]]) -> NodeId | None:
    """A node that hears this one, of those that are heard directly, by what each says it hears."""
    return next((other for other in sorted(heard) if other != node and node in heard[other]), None)
