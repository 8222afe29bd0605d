"""The size of a bubble, so that two bubbles meet with a wanted probability ([Lucas2011] 3.3.1.1).

Two bubbles of d and q replicas among n peers meet with probability 1 - e^(-dq/n), the birthday
paradox. The thesis asks for dq = λ²n with a *certainty factor* λ, so r = 1 - e^(-λ²) (its table
3.1). BubbleStorm's own programs ask for Λ directly, r = 1 - e^(-Λ). The two conventions are one:
Λ = λ², and the thesis' λ = 1, 2, 3 are Λ = 1, 4, 9. Here λ is the thesis'.

That formula is the limit of large networks. Exactly: a walk on the multigraph comes to a peer in
proportion to its degree, so of x steps none comes to the strongest with probability e^(-xw), where
w is its share of all link ends. Two bubbles meet as often as wanted if

    (1 - e^(-xw)) (1 - e^(-yw)) >= 1 - e^(-Λ w² / S),    S = Σ degree² / (Σ degree)²

which for small bubbles is xy >= Λ / S. The steps of a bubblecast are links of one graph and not
drawn one by one: bubbles that have met go on to meet again in the neighbourhood, which is wasted.
BubbleStorm's T = D1² / (D2 - 2 D1) says by how much: the product of both sizes takes D2 / (D2 - 2
D1) times as many, so each size takes the square root of that. Measured on graphs of 128 to 4,000
peers this is 0.7 replicas more than needed, so sizes are rounded down: what is asked for is what is
met, within two points.
"""

from math import expm1, inf, log1p, sqrt
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

MOST = 100_000  # replicas of one bubble, whatever the estimate says


Sum: TypeAlias = Annotated[float, Meta(ge=0)]  # NaN is no number, and refused


class NetworkEstimate(Struct, frozen=True, array_like=True):
    """Sums of degree⁰, degree¹ and degree² over all peers, and the largest degree."""

    peers: Sum
    ends: Sum
    squares: Sum
    largest: Sum

    @property
    def sound(self) -> bool:
        """Is such a network possible?"""
        return (
            1 <= self.peers <= 1e12
            and 1 <= self.largest <= self.ends <= 1e15
            and self.ends <= self.squares <= 1e18
        )


ALONE = NetworkEstimate(1.0, 16.0, 256.0, 16.0)


def regular(peers: int, degree: int) -> NetworkEstimate:
    """A network in which all peers have the same degree."""
    return NetworkEstimate(
        float(peers), float(peers * degree), float(peers * degree**2), float(degree)
    )


def rendezvous(certainty: float) -> float:
    """The probability that two bubbles meet (table 3.1)."""
    return -expm1(-(certainty**2))


def rendezvous_exponent(certainty: float, network: NetworkEstimate) -> float:
    """Λ w² / S: how surely one peer, the strongest, must hold both."""
    return certainty**2 * network.largest**2 / network.squares


def equal(certainty: float, network: NetworkEstimate) -> float:
    """Steps of each of two bubbles of one size; the merged bubble of the thesis is this case.

    From (1 - e^(-xw))² = 1 - e^(-a) follows x = (a + ln(1 + √(1 - e^(-a)))) / w.
    """
    a = rendezvous_exponent(certainty, network)
    return (a + log1p((-expm1(-a)) ** 0.5)) * network.ends / network.largest


def partner(steps: float, certainty: float, network: NetworkEstimate) -> float:
    """Steps of the other bubble if one has so many; infinite if it is too small for any."""
    share = network.largest / network.ends
    needed = -expm1(-rendezvous_exponent(certainty, network)) / -expm1(-steps * share)
    return -log1p(-needed) / share if needed < 1 else inf


def waste(network: NetworkEstimate) -> float:
    """√(D2 / (D2 - 2 D1)): what a cast over the topology takes more than independent steps."""
    spare = network.squares - 2 * network.ends
    return sqrt(network.squares / spare) if spare > 0 else inf


def replicas(steps: float, network: NetworkEstimate) -> int:
    """The weight of a bubblecast that is worth so many independent steps.

    The first replica is the origin, which is any peer and not one in proportion to its degree: it
    is worth D1² / (n D2) of a step.
    """
    first = network.ends**2 / (network.peers * network.squares)
    return max(1, int(min(MOST, steps * waste(network) + 1 - min(1.0, first))))


def bubble_size(certainty: float, network: NetworkEstimate) -> int:
    """The weight of a subscription's bubble."""
    return replicas(equal(certainty, network), network)
