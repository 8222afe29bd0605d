"""A location: one visit of a peer on the circuit, and its states.

    JOINING   a walk is out for a place
    LINKING   a place was found; the slave has yet to agree
    SETTLED   in the circuit
    LEAVING   in the circuit still; the master is asked to close the gap

The slave pointers are the circuit. Only the location itself changes its slave, and only when the
new slave has agreed. So following slaves leads once around the circuit at any moment, whatever is
joining or leaving. Master pointers are updated one message later.
"""

from enum import IntEnum

from nearcast.protocols.bubblestorm.messages import LocationRef, Number
from nearcast.space.motion import Time


class LocationState(IntEnum):
    """How far a location is in joining or leaving."""

    JOINING = 0
    LINKING = 1
    SETTLED = 2
    LEAVING = 3


class Location:
    """One visit of a peer on the circuit, between its master and its slave."""

    __slots__ = (
        "changing", "changing_since", "degree", "leaver", "master", "master_received", "number",
        "since", "slave", "slave_received", "sought", "state",
    )  # fmt: skip

    def __init__(self, number: Number, state: LocationState, now: Time) -> None:
        self.number = number
        self.state = state
        self.since = now  # in this state
        self.master: LocationRef | None = None
        self.slave: LocationRef | None = None
        self.master_received = self.slave_received = now
        # The next slave: a joiner that comes before the present one, or the slave of a leaver.
        self.changing: LocationRef | None = None
        self.leaver: LocationRef | None = None
        self.changing_since: Time = now
        self.sought: Time = now  # when it last searched a missing half
        self.degree = 0  # of a neighbour, as last reported

    @property
    def is_in(self) -> bool:
        return self.state >= LocationState.SETTLED

    @property
    def may_split(self) -> bool:
        """Can a joiner be put between it and its slave?"""
        settled = self.state == LocationState.SETTLED
        return settled and self.slave is not None and self.changing is None

    def become(self, state: LocationState, now: Time) -> None:
        self.state, self.since = state, now

    def change(self, to: LocationRef, leaver: LocationRef | None, now: Time) -> None:
        self.changing, self.leaver, self.changing_since = to, leaver, now

    def stay(self) -> None:
        self.changing = self.leaver = None
