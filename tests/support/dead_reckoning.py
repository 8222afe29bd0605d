"""How wrong beliefs about ships are, in plain Python: the oracle of the table of errors."""

from collections.abc import Iterable, Iterator
from math import dist
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector
from nearcast.workloads.planetpi4_reckoning import predict


class ReceivedUpdate(NamedTuple):
    """An update that a node has received: from `known` on it knew the ship's motion at `made`."""

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
