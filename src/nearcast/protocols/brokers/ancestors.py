"""Where a broker hangs in the tree, and where it turns when the broker above it is silent.

The tree has a root. Each broker chooses the one above it, and that one takes in whoever asks; so
links stay a tree whoever is wrong about whom. With its heartbeats a broker tells those below which
brokers are above it (`above`, nearest first, the last is the root), and which are directly below
the root (`beside`). When its parent is silent, a broker turns to the next one above. When all of
them are silent, the brokers below the root turn to the one of least number among them, which acts
as root until the former root answers again. Those that were above it once come last. No broker
takes in one that is above itself, and one that hears that it is above itself turns away.
"""

from collections.abc import Sequence

from nearcast.model.subscription import NodeId

MOST_NAMED = 64  # brokers in each of the two lists


class Ancestors:
    """The brokers above one broker, in the order in which it turns to them."""

    def __init__(self, me: NodeId, above: Sequence[NodeId], beside: Sequence[NodeId] = ()) -> None:
        self._me = me
        self._turns = tuple(above[:1])
        self._turn = 0
        self.above: tuple[NodeId, ...] = ()  # as the parent has told
        self.beside: tuple[NodeId, ...] = ()
        if above:
            self.learn(tuple(above[1:]), tuple(beside))

    @property
    def parent(self) -> NodeId | None:
        """None: this is the root."""
        return self._turns[self._turn] if self._turns else None

    def learn(self, above: tuple[NodeId, ...], beside: tuple[NodeId, ...]) -> bool:
        """What the parent tells. False: this broker is above its parent, so links form a ring."""
        assert self.parent is not None, "the root has no parent"
        if self._me in above:
            return False
        self.above, self.beside = (self.parent, *above), beside
        # Below the root, whoever turns to one of its own kind turns to a lower number: no ring.
        last = beside if above else (other for other in beside if other < self._me)
        turns = dict.fromkeys((*self.above, *sorted(last), *self._turns))
        turns.pop(self._me, None)
        self._turns, self._turn = tuple(turns)[: 2 * MOST_NAMED], 0
        return True

    def turn(self) -> NodeId | None:
        """The parent does not answer: the next one to ask, and in the end the same again."""
        if self._turns:
            self._turn = (self._turn + 1) % len(self._turns)
            self.above, self.beside = (self._turns[self._turn],), ()
        return self.parent
