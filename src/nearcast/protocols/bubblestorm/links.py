"""A peer's locations and the links that they make, without what makes them change."""

from random import Random
from typing import Protocol

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.bubblestorm.location import Location, LocationState
from nearcast.protocols.bubblestorm.messages import LocationRef, Number
from nearcast.protocols.bubblestorm.sizes import NetworkEstimate
from nearcast.space.motion import Time

NUMBERS = 2**40  # random numbers of locations: those from before a restart are not used again


class CircuitNode(Protocol):
    """The node, as the circuit uses it."""

    id: NodeId
    rng: Random
    now: Time

    def post(self, to: NodeId, message: Message) -> None: ...
    def note(self, fact: str, about: NodeId) -> None: ...
    def contact(self) -> NodeId | None: ...
    def suspect(self, contact: NodeId) -> None: ...
    def known_network(self) -> tuple[Number, NetworkEstimate]: ...
    def learn_network(self, round_: Number, network: NetworkEstimate) -> None: ...


class CircuitLinks:
    """The locations of a peer, each with its master and its slave."""

    def __init__(self, node: CircuitNode) -> None:
        self._node = node
        self.locations: dict[Number, Location] = {}
        self._links: list[tuple[Number, LocationRef]] | None = None

    @property
    def links(self) -> list[tuple[Number, LocationRef]]:
        """All links, each as a location and the location on its other side."""
        if self._links is None:
            self._links = [
                (location.number, end)
                for location in self.locations.values()
                if location.is_in
                for end in (location.master, location.slave)
                if end is not None
            ]
        return self._links

    @property
    def degree(self) -> int:
        return len(self.links)

    def is_linked(self, number: Number, sender: NodeId) -> bool:
        """Is the sender at the other side of a link of this location?"""
        location = self.locations.get(number)
        return location is not None and (
            (location.slave is not None and location.slave[0] == sender)
            or (location.master is not None and location.master[0] == sender)
        )

    def _new(self, state: LocationState) -> Location:
        number = self._node.rng.randrange(NUMBERS)
        location = self.locations[number] = Location(number, state, self._node.now)
        return location

    def _end(self, location: Location) -> LocationRef:
        return self._node.id, location.number

    def _drop(self, location: Location) -> None:
        self._put(location, None, is_master=True)
        self._put(location, None, is_master=False)
        self.locations.pop(location.number, None)
        self._links = None

    def _put(self, location: Location, end: LocationRef | None, *, is_master: bool) -> None:
        """Set its master, or its slave."""
        before = location.master if is_master else location.slave
        if is_master:
            location.master, location.master_received = end, self._node.now
        else:
            location.slave, location.slave_received = end, self._node.now
        self._links = None
        if before != end:
            if before is not None and before[0] != self._node.id:
                self._node.note("unlinked", before[0])
            if end is not None and end[0] != self._node.id:
                self._node.note("linked", end[0])
