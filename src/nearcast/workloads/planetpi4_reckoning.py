"""What a ship of Planet π4 says of itself, and where others may believe it to be meanwhile.

An update carries "the coordinates and rotation of the player" and "the velocity of both position
and rotation which is required for dead reckoning" ([Lucas2011] section 4.4): twelve numbers of four
bytes. Between two updates a receiver either leaves the ship where it was, or lets it fly on.

What a run recorded suffices to compare the two: a publication tells where the ship was, the row of
interests of the same ship and moment how it flew (its velocity is the region's), deliveries who
knew that and from when, and positions where the ship truly was.
"""

from struct import Struct as Layout
from typing import NamedTuple

from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector

UPDATE = Layout("<12f")


class ShipUpdate(NamedTuple):
    """Position and motion of a ship, as it publishes them."""

    place: Vector
    rotation: Vector  # yaw, pitch and roll in radians
    velocity: Vector  # units per second
    spin: Vector  # radians per second around each axis


def pack(update: ShipUpdate) -> bytes:
    return UPDATE.pack(*update.place, *update.rotation, *update.velocity, *update.spin)


def unpack(payload: bytes) -> ShipUpdate:
    """ValueError: this is no update."""
    if len(payload) != UPDATE.size:
        raise ValueError(f"an update has {UPDATE.size} bytes, not {len(payload)}")
    a, b, c, d, e, f, g, h, i, j, k, n = UPDATE.unpack(payload)
    return ShipUpdate((a, b, c), (d, e, f), (g, h, i), (j, k, n))


def predict(place: Vector, velocity: Vector, since: Time, t: Time) -> Vector:
    """Where a ship is at `t` if it has flown straight on from where it was at `since`."""
    seconds = max(0, t - since) / SECOND
    x, y, z = place
    vx, vy, vz = velocity
    return x + vx * seconds, y + vy * seconds, z + vz * seconds
