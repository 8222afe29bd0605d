"""The bytes that a peer may send in a round, headers of UDP and IP included."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.psense.messages import CODEC

HEADERS = 28  # bytes of UDP and IPv4 around each message


def size(message: Message) -> int:
    return CODEC.size(message) + HEADERS


class OutgoingMessage(NamedTuple):
    """A message for these receivers, and its bytes for each."""

    receivers: Sequence[NodeId]
    cost: int


class BandwidthBudget:
    """The limit of a round, and what has been spent of it."""

    def __init__(self, limit: int, rng: Random) -> None:
        self.limit = limit
        self.rng = rng
        self.spent = 0

    def renew(self) -> None:
        self.spent = 0

    def take(self, message: Message, receivers: int) -> None:
        self.spent += size(message) * receivers
        assert self.spent <= self.limit, f"{self.spent} bytes in a round of {self.limit}"

    def grant(self, wishes: Sequence[OutgoingMessage], kept: int = 0) -> list[list[NodeId]]:
        """The receivers of each request that are served: all, or a random selection that fits.

        `kept` bytes are reserved for publications of this round.
        """
        room = self.limit - self.spent - kept
        if sum(len(wish.receivers) * wish.cost for wish in wishes) <= room:
            return [list(wish.receivers) for wish in wishes]
        pairs = [(at, node) for at, wish in enumerate(wishes) for node in wish.receivers]
        self.rng.shuffle(pairs)
        served: list[list[NodeId]] = [[] for _ in wishes]
        for at, node in pairs:
            if wishes[at].cost <= room:
                room -= wishes[at].cost
                served[at].append(node)
        return served
