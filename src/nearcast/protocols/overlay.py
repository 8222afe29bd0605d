"""What a host must know of a protocol to run it: its parameters, its nodes, its messages."""

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.wire import Codec

FIRST_SERVER: NodeId = 2**40  # nodes that serve no entity of their own are numbered from here


class Overlay(Protocol):
    """One deployment. `entity` makes the node of an entity, whenever it joins or returns."""

    def servers(self) -> list[Node]:
        """Nodes that are there from the beginning and serve no entity."""
        ...

    def entity(self, node_id: NodeId, rng: Random) -> Node: ...


class ProtocolKind(Struct, frozen=True):
    """A protocol by name."""

    parameters: type[Struct]
    codec: Codec
    make: Callable[[Any, Callable[[NodeId], Random]], Overlay]
    # Does its structure grow out of interests? Then the world begins when first ones have settled.
    settles: bool = False
    workload: str = "waypoint"  # what it is run with, if nothing else is said
