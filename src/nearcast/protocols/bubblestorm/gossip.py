"""Measuring the network: push-sum in rounds, without knowing who begins.

Every peer begins a round with its own values (one peer, its degree, its degree squared) and a
weight of one under a random token. With each message to a neighbour it gives away a share of both.
Sums are added; weights are added if the tokens are equal, else the larger token wins. In the end a
total weight of one is left, and sum / weight is the sum over all peers, at every peer.

A round is over when the estimate has not changed for some messages. A peer that receives a message
of a newer round joins it; a peer that was not there at its beginning contributes nothing.
"""

from random import Random

from nearcast.protocols.bubblestorm.messages import Gossip, Number
from nearcast.protocols.bubblestorm.parameters import LEAST_DEGREE
from nearcast.protocols.bubblestorm.sizes import ALONE, NetworkEstimate

CALM_WITHIN = 0.01  # relative: an estimate that changes by less has not changed
LATEST_ROUND = 2**52
TOKENS = 2**53
LEAST_WEIGHT = 1e-12


class Measurement:
    """One peer's part in the measurement, and its latest estimate."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.round: Number = 0
        self.took_part = 0  # rounds that have ended and to which this peer contributed
        self.finished = ALONE  # the estimate of the last round
        self._network = ALONE
        self.begin(0, 0, contributes=False)

    @property
    def network(self) -> NetworkEstimate:
        """The larger of the last round's estimate and this round's, once that is stable."""
        return self._network

    def join(self, round_: Number, network: NetworkEstimate) -> None:
        """Take over the estimate that a joiner gets."""
        if network.sound and round_ >= self.round:
            self.begin(round_, 0, contributes=False)
            self.finished = self._network = network

    def begin(self, round_: Number, degree: int, *, contributes: bool) -> None:
        self.round = round_
        self._contributed = contributes
        self._token: Number = self._rng.randrange(1, TOKENS) if contributes else 0
        self._weight = 1.0 if contributes else 0.0
        mine = (1.0, float(degree), float(degree**2)) if contributes else (0.0, 0.0, 0.0)
        self._peers, self._ends, self._squares = mine
        self._largest = float(degree)
        self._calm = 0
        self._before = 0.0

    def share(self, location: Number, degree: int, neighbour_degree: int) -> Gossip:
        """Give away deg_j / (deg_i + deg_j) of the sums and the weight."""
        part = neighbour_degree / (degree + neighbour_degree) if neighbour_degree else 0.5
        gossip = Gossip(
            location, self.round, self._token, part * self._weight, part * self._peers,
            part * self._ends, part * self._squares, self._largest, degree,
        )  # fmt: skip
        self._weight -= gossip.weight
        self._peers -= gossip.peers
        self._ends -= gossip.ends
        self._squares -= gossip.squares
        return gossip

    def receive(self, gossip: Gossip, degree: int) -> None:
        """Add a share from a neighbour."""
        if not _sound(gossip) or gossip.round < self.round:
            return
        if gossip.round > self.round:
            self._finish()
            self.begin(gossip.round, degree, contributes=gossip.round == self.round + 1)
        if gossip.token == self._token:
            self._weight += gossip.weight
        elif gossip.token > self._token:
            self._token, self._weight = gossip.token, gossip.weight
        self._peers += gossip.peers
        self._ends += gossip.ends
        self._squares += gossip.squares
        self._largest = max(self._largest, gossip.largest)
        self._judge(degree)

    def _judge(self, degree: int) -> None:
        """Count messages that did not change the estimate; after enough, begin the next round."""
        estimate = self._peers / self._weight if self._weight > LEAST_WEIGHT else 0.0
        same = estimate > 0 and abs(estimate - self._before) <= CALM_WITHIN * estimate
        self._calm = self._calm + 1 if same else 0
        self._before = estimate
        if self._calm >= LEAST_DEGREE and (now := self._estimate()) is not None:
            self._network = _larger(now, self.finished)
        if self._calm >= degree + LEAST_DEGREE and self.round < LATEST_ROUND:
            self._finish()
            self.begin(self.round + 1, degree, contributes=True)

    def _finish(self) -> None:
        estimate = self._estimate()
        if estimate is None:
            return  # too early to tell
        if self._contributed:
            self.took_part += 1
        self.finished = self._network = estimate

    def _estimate(self) -> NetworkEstimate | None:
        if self._weight <= LEAST_WEIGHT:
            return None
        network = NetworkEstimate(
            max(1.0, self._peers / self._weight), self._ends / self._weight,
            self._squares / self._weight, self._largest,
        )  # fmt: skip
        return network if network.sound else None


def _larger(one: NetworkEstimate, other: NetworkEstimate) -> NetworkEstimate:
    return one if one.peers >= other.peers else other


def _sound(gossip: Gossip) -> bool:
    """Are the numbers possible? NaN compares as false."""
    return (
        0 <= gossip.weight <= 1 + 1e-9
        and 0 <= gossip.peers <= 1e12
        and 0 <= gossip.ends <= 1e15
        and 0 <= gossip.squares <= 1e18
        and 0 <= gossip.largest <= 1e6
    )
