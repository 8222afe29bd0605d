"""A peer's locations and the links that they make, without what makes them change."""

from random import Random
from typing import Protocol

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.bubblestorm.location import Location, State
from nearcast.protocols.bubblestorm.messages import End, Number
from nearcast.protocols.bubblestorm.sizes import Census
from nearcast.space.motion import Time

NUMBERS = 2**40  # locations are numbered by chance: one of an earlier life is not taken for a new


class Host(Protocol):
    """What the circuit sees of the node that it is a part of."""

    id: NodeId
    rng: Random
    now: Time

    def post(self, to: NodeId, message: Message) -> None: ...
    def note(self, fact: str, about: NodeId) -> None: ...
    def contact(self) -> NodeId | None: ...
    def suspect(self, contact: NodeId) -> None: ...
    def known_network(self) -> tuple[Number, Census]: ...
    def learn_network(self, round_: Number, census: Census) -> None: ...


class Links:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.locations: dict[Number, Location] = {}
        self._ways: list[tuple[Number, End]] | None = None

    @property
    def ways(self) -> list[tuple[Number, End]]:
        """All links, each as a location and the end on its other side."""
        if self._ways is None:
            self._ways = [
                (location.number, end)
                for location in self.locations.values()
                if location.is_in
                for end in (location.master, location.slave)
                if end is not None
            ]
        return self._ways

    @property
    def degree(self) -> int:
        return len(self.ways)

    def is_linked(self, number: Number, sender: NodeId) -> bool:
        """Is this a word on a link, from whom it should come?"""
        location = self.locations.get(number)
        return location is not None and (
            (location.slave is not None and location.slave[0] == sender)
            or (location.master is not None and location.master[0] == sender)
        )

    def _new(self, state: State) -> Location:
        number = self._host.rng.randrange(NUMBERS)
        location = self.locations[number] = Location(number, state, self._host.now)
        return location

    def _end(self, location: Location) -> End:
        return self._host.id, location.number

    def _drop(self, location: Location) -> None:
        self._put(location, None, is_master=True)
        self._put(location, None, is_master=False)
        self.locations.pop(location.number, None)
        self._ways = None

    def _put(self, location: Location, end: End | None, *, is_master: bool) -> None:
        """This is its master, or its slave, from now on."""
        before = location.master if is_master else location.slave
        if is_master:
            location.master, location.heard_master = end, self._host.now
        else:
            location.slave, location.heard_slave = end, self._host.now
        self._ways = None
        if before != end:
            if before is not None and before[0] != self._host.id:
                self._host.note("unlinked", before[0])
            if end is not None and end[0] != self._host.id:
                self._host.note("linked", end[0])
