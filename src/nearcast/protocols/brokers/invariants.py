"""What must be true of all brokers together: their links are one tree.

While nothing fails, no ring is ever closed. After failures, and once they have had the time to
notice and to link anew, brokers are one tree again.
"""

from collections.abc import Mapping, Sequence

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.overlay import Invariant
from nearcast.space.motion import Time


def chosen_links(nodes: Mapping[NodeId, Node]) -> dict[NodeId, NodeId]:
    """By broker: the one above it, if both are there and linked."""
    brokers = {name: node for name, node in nodes.items() if isinstance(node, Broker)}
    return {
        name: broker.parent
        for name, broker in brokers.items()
        if broker.parent in brokers
        and name in brokers[broker.parent].links
        and broker.links[broker.parent].theirs
    }


def find_rings(nodes: Mapping[NodeId, Node]) -> list[str]:
    """Brokers that are above themselves."""
    above, found = chosen_links(nodes), []
    for name in above:
        way = [name]
        while way[-1] in above and len(way) <= len(above) + 1:
            way.append(above[way[-1]])
            if way[-1] == name:
                found.append(f"broker {name} is above itself")
                break
    return found


class NoRing(Invariant):
    """At no moment is a broker above itself."""

    def violations(self, nodes: Mapping[NodeId, Node], now: Time) -> Sequence[str]:
        del now
        return find_rings(nodes)


def invariants(*, calm: bool) -> Sequence[Invariant]:
    return (NoRing(),) if calm else ()
