"""What a peer may send in a round: so many bytes, headers of UDP and IP included."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.psense.messages import CODEC

HEADERS = 28  # bytes of UDP and IPv4 around each message


def size(message: Message) -> int:
    return CODEC.size(message) + HEADERS


class SendRequest(NamedTuple):
    """Something for these receivers that costs at most so many bytes for each."""

    receivers: Sequence[NodeId]
    cost: int


class BandwidthBudget:
    def __init__(self, limit: int, rng: Random) -> None:
        self.limit = limit
        self.rng = rng
        self.spent = 0

    def renew(self) -> None:
        self.spent = 0

    def take(self, message: Message, receivers: int) -> None:
        self.spent += size(message) * receivers
        assert self.spent <= self.limit, f"{self.spent} bytes in a round of {self.limit}"

    def grant(self, wishes: Sequence[SendRequest], kept: int = 0) -> list[list[NodeId]]:
        """Who of each wish's receivers is served: all, or as many as fit, drawn by chance.

        `kept` bytes are left for what else this round may bring.
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
