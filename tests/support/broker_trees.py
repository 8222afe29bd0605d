"""Whether brokers are one tree, for tests in which they should be."""

from collections.abc import Mapping

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.invariants import chosen_links, find_rings


def find_tree_faults(nodes: Mapping[NodeId, Node]) -> list[str]:
    """Where the brokers are not one tree, or a link is known at one end alone."""
    brokers = {name: node for name, node in nodes.items() if isinstance(node, Broker)}
    above = chosen_links(nodes)
    roots = [name for name in brokers if name not in above]
    faults = find_rings(nodes)
    if len(roots) != 1:
        faults.append(f"brokers {sorted(roots)} have nobody above them")
    linked = {frozenset(pair) for pair in above.items()}
    for name, broker in brokers.items():
        for other, link in broker.links.items():
            if link.theirs and frozenset((name, other)) not in linked:
                faults.append(f"broker {name} has a link with {other}, which is not of the tree")
    return faults
