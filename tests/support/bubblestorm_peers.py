"""Peers of BubbleStorm at given places."""

from random import Random
from typing import Any

from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.space.shapes import disc
from support.bubblestorm_worlds import BubbleStormWorld


def joined_world(
    places: list[tuple[float, float]], radius: float = 10.0, **parameters: Any
) -> BubbleStormWorld:
    """Peers that stand there, have joined, and have measured how many they are."""
    world = BubbleStormWorld(**parameters)
    for node, (x, y) in enumerate(places):
        world.join(node, disc(x, y, radius))
    for _ in range(30):
        world.pass_seconds(4)
        if all(peer.ready for peer in world.peers()):
            return world
    raise AssertionError("the peers did not become ready")


def somewhere(count: int, size: float, seed: int = 1) -> list[tuple[float, float]]:
    rng = Random(seed)
    return [(rng.uniform(0, size), rng.uniform(0, size)) for _ in range(count)]


def peer_of(world: BubbleStormWorld, node: int) -> BubbleStormPeer:
    peer = world.simulation.nodes[node]
    assert isinstance(peer, BubbleStormPeer)
    return peer
