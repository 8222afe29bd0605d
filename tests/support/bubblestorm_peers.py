"""Peers of BubbleStorm that stand where they are told."""

from random import Random
from typing import Any

from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.space.shapes import disc
from support.bubblestorm_worlds import Crowd


def party(places: list[tuple[float, float]], radius: float = 10.0, **parameters: Any) -> Crowd:
    """Peers that stand there, have joined, and have measured how many they are."""
    crowd = Crowd(**parameters)
    for node, (x, y) in enumerate(places):
        crowd.come(node, disc(x, y, radius))
    for _ in range(30):
        crowd.pass_seconds(4)
        if all(peer.ready for peer in crowd.peers()):
            return crowd
    raise AssertionError("they never were ready")


def somewhere(count: int, size: float, seed: int = 1) -> list[tuple[float, float]]:
    rng = Random(seed)
    return [(rng.uniform(0, size), rng.uniform(0, size)) for _ in range(count)]


def peer_of(crowd: Crowd, node: int) -> BubbleStormPeer:
    peer = crowd.simulation.nodes[node]
    assert isinstance(peer, BubbleStormPeer)
    return peer
