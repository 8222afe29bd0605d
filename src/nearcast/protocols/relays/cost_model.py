"""The cost model of an operation ([Lehn] III and IV): pure functions of numbers.

There is no other copy of these rules. The round model runs them compiled (`kernels`), the message
protocol calls the same compiled step with what a peer knows, and tests call them as they are.

    REDIR(s, d, u)   v ─────▶ x   becomes   v ─▶ u ─▶ x      S = v, U = u      (Fig. 2)
    SHORT(s, d)      p ─▶ v ─▶ x  becomes   p ─────▶ x       S = p, U = v      (Fig. 3)

The gain of an option is bandwidth_cost + latency_cost before, less the same after, less its
effort. Utilisations are shares of an uplink, latencies are seconds, interest is between 0 and 1.
"""

from math import exp, inf, log
from typing import NamedTuple

AT_THE_EDGE = 0.1  # interest at the edge of vision, and the usual threshold τ
RELAXED = 0.4  # up to this utilisation an uplink costs nothing ([Lehn] IV-A)
FULL = 0.95  # from here on a queue is taken to grow evenly, so that overload has a price too


class Weights(NamedTuple):
    """What counts, and how much. A factor of weight 0 is left out (c(r) = Σ w_f · c_f, IV-A)."""

    sender: float = 64.0  # utilisation of S
    forwarder: float = 64.0  # utilisation of U
    latency: float = 1.0  # seconds above target, or outside bounds, squared
    queueing: float = 0.0  # seconds that a packet waits at S and at U
    reliability: float = 0.0  # chance that a forwarder fails
    lifetime: float = 0.0  # an operation, spread over the seconds that the subscription will last
    target: float = 0.5  # seconds at interest 0; at interest 1 a quarter of it
    lower: float = 0.0  # what comes earlier is unfair; seconds at interest 0
    upper: float = inf  # what comes later is of little use; seconds at interest 0
    breach: float = 16.0  # how much worse a second above `upper` is than one above `target`
    packet: float = 0.001  # seconds that one packet takes on an average uplink


def interest_at(distance: float, radius: float) -> float:
    """A Gaussian of the distance ([Lehn] V-A) that is `AT_THE_EDGE` where vision ends."""
    if radius <= 0.0:
        return 1.0 if distance <= 0.0 else 0.0
    away = distance / radius
    return exp(log(AT_THE_EDGE) * away * away)


def bound_at(seconds: float, interest: float) -> float:
    """A target or a bound for this interest: 0.5 · 2^(−2 I) ([Lehn] IV-A)."""
    return seconds * exp(-2.0 * log(2.0) * interest)


def utilisation_cost(utilisation: float) -> float:
    """max(U − 0.4, 0)^6 ([Lehn] IV-A)."""
    above = utilisation - RELAXED
    if above <= 0.0:
        return 0.0
    square = above * above
    return square * square * square


class LatencyBounds(NamedTuple):
    """Of a subscription's latency, in seconds."""

    lower: float
    target: float
    upper: float


def bounds_at(interest: float, weights: Weights) -> LatencyBounds:
    return LatencyBounds(
        bound_at(weights.lower, interest),
        bound_at(weights.target, interest),
        bound_at(weights.upper, interest),
    )


def latency_cost(latency: float, bounds: LatencyBounds, weights: Weights) -> float:
    """max(l − target, 0)^2, and penalties outside the bounds ([Lehn] IV-A)."""
    late = max(latency - bounds.target, 0.0)
    far = max(latency - bounds.upper, 0.0)
    early = max(bounds.lower - latency, 0.0)
    return weights.latency * (late * late + weights.breach * far * far + early * early)


def waiting(utilisation: float, packet: float) -> float:
    """Seconds in the queue of an uplink with chance arrivals: packet · U / (1 − U).

    [Lehn] IV-A: queueing "could be modeled more explicitly than only by the bandwidth utilization".
    """
    if utilisation < FULL:
        return packet * utilisation / (1.0 - utilisation)
    steep = 1.0 / ((1.0 - FULL) * (1.0 - FULL))
    return packet * (FULL / (1.0 - FULL) + steep * (utilisation - FULL))


def bandwidth_cost(weights: Weights, sender: float, forwarder: float) -> float:
    """Of the utilisations of S and U."""
    cost = weights.sender * utilisation_cost(sender)
    cost += weights.forwarder * utilisation_cost(forwarder)
    if weights.queueing != 0.0:
        waits = waiting(sender, weights.packet) + waiting(forwarder, weights.packet)
        cost += weights.queueing * waits
    return cost


def effort(weights: Weights, risk: float, remaining: float) -> float:
    """What an operation costs by itself.

    `risk`: what it adds to the chance that a forwarder fails; `remaining`: seconds for which the
    subscription will probably last (both suggested in IV-A).
    """
    cost = weights.reliability * risk
    if weights.lifetime != 0.0:
        cost += weights.lifetime / max(remaining, 1e-3)
    return cost


def stream_cost(payload: float, header: float, same: int, others: int) -> float:
    """Bytes per second that a source's flow costs on a link, beside what runs there already.

    A link carries each source once, however many flows of it there are (`same`), and one stream
    of headers, however many sources (`others` are those beside this one): messages are multiplied
    and piggy-backed ([Lehn] II-A).
    """
    if same > 0:
        return 0.0
    return payload if others > 0 else payload + header
