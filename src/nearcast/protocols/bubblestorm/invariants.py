"""What must be true of all BubbleStorm peers together: the circuit is one closed walk.

Following `slave` from any location leads once around the circuit, at every moment, through all
locations except those that are just joining or leaving. That holds while no peer crashes. A crash
cuts the circuit; after the repair, both ends of every link know it and the graph is connected.
"""

from collections.abc import Iterator, Mapping

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.bubblestorm.location import Location, LocationState
from nearcast.protocols.bubblestorm.messages import LocationRef
from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.protocols.overlay import Invariant
from nearcast.space.motion import SECOND, Time

UNDER_WAY: Time = 2 * SECOND  # the last message of a join or a leave takes no longer


def locations_of(nodes: Mapping[NodeId, Node]) -> Iterator[tuple[LocationRef, Location]]:
    """All locations of all peers."""
    for node in nodes.values():
        if isinstance(node, BubbleStormPeer):
            for number, location in node.overlay.circuit.locations.items():
                yield (node.id, number), location


def broken_circuit(nodes: Mapping[NodeId, Node], now: Time) -> list[str]:
    """Where the circuit is not one closed walk. Empty while no peer has crashed."""
    locations = dict(locations_of(nodes))
    standing = {end: one for end, one in locations.items() if one.is_in}
    # Whoever has just settled may be known to its master a moment later.
    sure = [
        end
        for end, one in standing.items()
        if one.state == LocationState.SETTLED and now - one.since > UNDER_WAY
    ]
    if not sure:
        return []
    visited: dict[LocationRef, None] = {}
    at: LocationRef | None = sure[0]
    while at not in visited:
        if at not in standing:
            return [f"the walk leads from {list(visited)[-1:]} to {at}, which is nowhere"]
        visited[at] = None
        at = standing[at].slave
    if at != sure[0]:
        return [f"the walk from {sure[0]} comes back to {at} instead"]
    return [f"the walk misses {end}" for end in sure if end not in visited]


def asymmetric(nodes: Mapping[NodeId, Node]) -> list[str]:
    """Links that one end knows and the other does not."""
    locations = {end: one for end, one in locations_of(nodes) if one.is_in}
    found = []
    for end, one in locations.items():
        if one.slave is not None:
            slave = locations.get(one.slave)
            if slave is None or slave.master != end:
                found.append(f"{end} has a slave {one.slave} that does not know it")
        if one.master is not None:
            master = locations.get(one.master)
            if master is None or master.slave != end:
                found.append(f"{end} has a master {one.master} that does not know it")
    return found


def islands(nodes: Mapping[NodeId, Node]) -> list[list[NodeId]]:
    """The parts of the graph between which there is no link; one if all is well."""
    peers = {node.id: node for node in nodes.values() if isinstance(node, BubbleStormPeer)}
    found: list[list[NodeId]] = []
    left = dict.fromkeys(peers)
    while left:
        island, edge = [], [next(iter(left))]
        del left[edge[0]]
        while edge:
            node = edge.pop()
            island.append(node)
            for _, (other, _) in peers[node].overlay.circuit.links:
                if other in left:
                    del left[other]
                    edge.append(other)
        found.append(island)
    return found


class ClosedCircuit:
    """At every moment at which a pointer has changed, the circuit is one closed walk."""

    def __init__(self) -> None:
        self._seen: object = None

    def violations(self, nodes: Mapping[NodeId, Node], now: Time) -> list[str]:
        seen = [(end, one.slave, one.state) for end, one in locations_of(nodes)]
        if seen == self._seen:
            return []
        self._seen = seen
        return broken_circuit(nodes, now)


def invariants(*, calm: bool) -> list[Invariant]:
    """A crash cuts the circuit until it is repaired, so only calm runs are checked."""
    return [ClosedCircuit()] if calm else []
