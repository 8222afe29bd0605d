"""The random waypoint: walk to a uniform place, pause, and walk on.

The field's plainest movement, and so the one to compare others with. Its known fault is kept: the
middle of the world is fuller than its edges.
"""

from nearcast.field_checks import between
from nearcast.workloads.walker import WalkerParameters, WalkerWorkload
from nearcast.workloads.workload import Workload, fits_identifiers


class Parameters(WalkerParameters, frozen=True, kw_only=True):
    """See `WalkerParameters` for the unit and range of what all walkers share."""

    size: float = 1000.0
    radius: float = 50.0
    speed: float = 10.0
    rate: float = 2.0
    # Mean pause in seconds at the end of a leg, 0 to 1e6 (uniform between 0 and twice that; a path
    # has none); movement becomes rarer as it grows.
    pause: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        between("pause", self.pause, 0, 1e6)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers(parameters.rate * seconds)
    payload = bytes(parameters.payload)
    return WalkerWorkload("waypoint", entities, seed, parameters, parameters.pause, payload)
