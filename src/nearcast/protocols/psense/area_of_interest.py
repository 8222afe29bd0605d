"""The area of interest of a peer."""

from typing import NamedTuple

from nearcast.protocols.interests import PeerInterests
from nearcast.protocols.psense.layouts import WIDEST, within
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector


class AreaOfInterest(NamedTuple):
    """A ball around a place, or a disc in the plane, that holds all of a peer's interests."""

    place: Vector
    radius: float


def vision_of(interests: PeerInterests, now: Time, dimensions: int) -> AreaOfInterest | None:
    """The area of all interests; None: there are none."""
    area = interests.area(now, flat=dimensions == 2)
    if area is None:
        return None
    x, y, z = map(within, area.place)
    return AreaOfInterest((x, y, z), min(area.radius, WIDEST))
