"""What a ship of Planet π4 says of itself, and where others may believe it to be meanwhile.

An update carries "the coordinates and rotation of the player" and "the velocity of both position
and rotation which is required for dead reckoning" ([Lucas2011] section 4.4): twelve numbers of four
bytes. Between two updates a receiver either leaves the ship where it was, or lets it fly on.

What a run recorded suffices to compare the two: a publication tells where the ship was, the row of
interests of the same ship and moment how it flew (its velocity is the region's), deliveries who
knew that and from when, and positions where the ship truly was.
"""

from collections.abc import Iterable, Iterator
from math import dist
from struct import Struct as Layout
from typing import NamedTuple

from nearcast.model.subscription import NodeId
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


class ReceivedUpdate(NamedTuple):
    """An update that a node has received: from `known` on it knew the ship's motion at `said`."""

    known: Time
    by: NodeId
    ship: NodeId
    made: Time
    place: Vector
    velocity: Vector


class PositionError(NamedTuple):
    """How far from the truth somebody believed a ship to be, without dead reckoning and with."""

    t: Time
    by: NodeId
    ship: NodeId
    plain: float
    reckoned: float


def position_errors(
    received: Iterable[ReceivedUpdate], truth: Iterable[tuple[Time, NodeId, Vector]], memory: Time
) -> Iterator[PositionError]:
    """At each instant of the truth, for all who heard of a ship at most `memory` ago."""
    due = sorted(received)
    beliefs: dict[tuple[NodeId, NodeId], ReceivedUpdate] = {}
    instants: dict[Time, dict[NodeId, Vector]] = {}
    for t, ship, place in truth:
        instants.setdefault(t, {})[ship] = place
    at = 0
    for t in sorted(instants):
        while at < len(due) and due[at].known <= t:
            belief = due[at]
            before = beliefs.get((belief.by, belief.ship))
            if before is None or before.made < belief.made:  # an older one may come later
                beliefs[belief.by, belief.ship] = belief
            at += 1
        for (by, ship), belief in beliefs.items():
            if ship in instants[t] and t - belief.known <= memory:
                truly = instants[t][ship]
                reckoned = predict(belief.place, belief.velocity, belief.made, t)
                yield PositionError(t, by, ship, dist(belief.place, truly), dist(reckoned, truly))
