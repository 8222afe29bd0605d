"""Whom a newcomer asks first: the bootstrap that every overlay needs from somewhere."""

from random import Random

from nearcast.model.subscription import NodeId


class Contacts:
    """Peers that are in the overlay, as far as is known."""

    def __init__(self) -> None:
        self._nodes: list[NodeId] = []
        self._places: dict[NodeId, int] = {}

    def add(self, node: NodeId) -> None:
        if node not in self._places:
            self._places[node] = len(self._nodes)
            self._nodes.append(node)

    def remove(self, node: NodeId) -> None:
        place = self._places.pop(node, None)
        if place is not None:
            last = self._nodes.pop()
            if last != node:
                self._nodes[place] = last
                self._places[last] = place

    def any(self, rng: Random, besides: NodeId) -> NodeId | None:
        """One of them by chance, or None if nobody else is known."""
        if len(self._nodes) - (besides in self._places) < 1:
            return None
        while (node := rng.choice(self._nodes)) == besides:
            pass
        return node

    def some(self, rng: Random, most: int, besides: NodeId) -> list[NodeId]:
        """So many of them by chance, or as many as there are."""
        others = [node for node in self._nodes if node != besides]
        return rng.sample(others, min(most, len(others)))
