"""Whom a newcomer asks first: the bootstrap that every overlay needs from somewhere."""

from random import Random

from nearcast.protocols.drtree.messages import Address
from nearcast.space.motion import Time


class Directory:
    """Members that sit in the tree, as far as is known.

    A crowd that joins at once waits in line, and the line moves faster as the tree grows: in one
    period e times as many join as are there. Requests find their place by boxes that follow only
    after the messages of a split, so most of the tree must be older than the requests under way.
    Without a line, all of a crowd ends in the first node, which splits into ever smaller ones.
    """

    def __init__(self, period: Time) -> None:
        self._period = period
        self._addresses: list[Address] = []
        self._places: dict[Address, int] = {}
        self._next_turn: Time = 0
        self._in_line = 0  # or in the tree

    def add(self, address: Address) -> None:
        if address not in self._places:
            self._places[address] = len(self._addresses)
            self._addresses.append(address)

    def remove(self, address: Address) -> None:
        place = self._places.pop(address, None)
        if place is not None:
            last = self._addresses.pop()
            if last != address:
                self._addresses[place] = last
                self._places[last] = place

    def any(self, rng: Random, besides: Address) -> Address | None:
        """One of them by chance, or None if nobody else is known."""
        if len(self._addresses) - (besides in self._places) < 1:
            return None
        while (address := rng.choice(self._addresses)) == besides:
            pass
        return address

    def turn(self, now: Time) -> Time:
        """How long a newcomer waits before it joins; a lone one not at all."""
        if now > self._next_turn:
            self._next_turn, self._in_line = now, len(self._addresses)
        wait = self._next_turn - now
        self._in_line += 1
        self._next_turn += self._period // self._in_line
        return wait
