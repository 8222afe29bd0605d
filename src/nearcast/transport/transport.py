"""What carries bytes between nodes: all that a host knows of sockets.

One transport belongs to one node and bears its name. Frames between a pair of nodes are reliable,
and in order with those of equal priority; or reliable without an order; or lossy. Nothing blocks
and nothing raises: a peer that cannot be reached is silence, as it is in the simulator, and
protocols have to live with that anyway.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from nearcast.model.subscription import NodeId
from nearcast.node import Priority

# The sender, proven, and its frames that arrived together, in the order in which they were sent.
Receive: TypeAlias = Callable[[NodeId, Sequence[bytes]], None]


class Transport(Protocol):
    """Sends and receives the frames of one node."""

    @property
    def name(self) -> NodeId:
        """The node whose transport this is."""
        ...

    async def open(self, on_receive: Receive) -> None:
        """Begin to listen; OSError if that cannot be. Once more only changes who hears."""
        ...

    def send(
        self,
        to: NodeId,
        frame: bytes,
        lossy: bool,
        priority: Priority = Priority.UPKEEP,
        ordered: bool = True,
    ) -> None:
        """Soon, and never again: a frame that is lost with its link is not repeated."""
        ...

    def knows(self, node: NodeId) -> bool:
        """Is it known where that node listens? It may have gone since."""
        ...

    async def close(self) -> None:
        """Send what links still take, then end them all."""
        ...
