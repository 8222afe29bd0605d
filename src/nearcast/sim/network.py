"""Network models that wrap each other.

`route` answers with the delays of the copies that arrive: none is loss, two is duplication. So
loss, delay, jitter, duplication, reordering, queues and partitions are each a few lines, and
`Loss(0.02, rng, Jitter(5_000, rng, Constant(50_000)))` says what it does.
"""

from bisect import bisect
from collections.abc import Callable
from math import hypot
from random import Random
from typing import Protocol

from msgspec import Struct

from nearcast.field_checks import one_of
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Priority
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import stream
from nearcast.sim.radio import Places, RadioNetwork
from nearcast.space.motion import SECOND, Time

MILLISECOND: Time = 1_000
PACKET = 1_100  # bytes of messages that fit one


class Network(Protocol):
    """A network model."""

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        """The delay of each copy that arrives of a message of `size` bytes sent now."""
        ...


class ConstantDelay:
    """The same delay for every message. The simulation relies on that to send in blocks."""

    def __init__(self, delay: Time) -> None:
        self.delay = delay
        self._answer = [delay]

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:  # noqa: ARG002
        return self._answer


class DataCentre:
    """The same delay for every message, but 1 ms between servers: they stand beside each other."""

    def __init__(self, delay: Time) -> None:
        self._far, self._beside = [delay], [min(delay, MILLISECOND)]

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:  # noqa: ARG002
        return self._beside if source >= FIRST_SERVER and target >= FIRST_SERVER else self._far


# Weight, mean and standard deviation (ms): six Gaussians that match the pair distances of a
# measured 2-D embedding of 15,000 hosts within 10 % from the 25th percentile up (mean 79 ms).
CONTINENTS = (
    (0.438, (-20.3, -3.0), (14.8, 14.8)),
    (0.276, (-14.5, -70.1), (19.6, 15.4)),
    (0.104, (-57.9, -79.7), (27.5, 24.2)),
    (0.091, (36.8, 91.7), (21.7, 32.0)),
    (0.070, (78.8, 34.8), (24.3, 32.4)),
    (0.022, (-77.1, 53.9), (42.0, 49.1)),
)


class Embedding:
    """Hosts have coordinates in a plane of milliseconds; a delay is a distance, at least 1 ms."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._places: dict[NodeId, tuple[float, float]] = {}

    def place(self, node: NodeId) -> tuple[float, float]:
        if node not in self._places:
            rng = stream(self._seed, "place", node)
            weights = [continent[0] for continent in CONTINENTS]
            _, (x, y), (sx, sy) = rng.choices(CONTINENTS, weights)[0]
            self._places[node] = (rng.gauss(x, sx), rng.gauss(y, sy))
        return self._places[node]

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:  # noqa: ARG002
        (ax, ay), (bx, by) = self.place(source), self.place(target)
        return [round(max(1.0, hypot(ax - bx, ay - by)) * MILLISECOND)]


class Jitter:
    """Up to `most` earlier or later, uniformly (the papers' "± 0.1 cycle"), never before now."""

    def __init__(self, most: Time, rng: Random, inner: Network) -> None:
        self._most, self._rng, self._inner = most, rng, inner

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        delays = self._inner.route(now, source, target, size)
        return [max(0, d + self._rng.randint(-self._most, self._most)) for d in delays]


class AfterSetUp:
    """One network while the overlay is built, another for the workload."""

    def __init__(self, setting_up: Callable[[], bool], set_up: Network, workload: Network) -> None:
        self._setting_up, self._set_up, self._workload = setting_up, set_up, workload

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        network = self._set_up if self._setting_up() else self._workload
        return network.route(now, source, target, size)


class InOrder:
    """A stream between each pair: nothing arrives before what was sent earlier."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner
        self._latest: dict[tuple[NodeId, NodeId], Time] = {}

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        pair, delays = (source, target), []
        for delay in self._inner.route(now, source, target, size):
            arrival = max(now + delay, self._latest.get(pair, 0))
            self._latest[pair] = arrival
            delays.append(arrival - now)
        return delays


class Loss:
    """Some messages never arrive."""

    def __init__(self, probability: float, rng: Random, inner: Network) -> None:
        self._probability, self._rng, self._inner = probability, rng, inner

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        delays = self._inner.route(now, source, target, size)
        return [d for d in delays if self._rng.random() >= self._probability]


class Duplication:
    """Sometimes a second copy arrives, up to as late again as the first."""

    def __init__(self, probability: float, rng: Random, inner: Network) -> None:
        self._probability, self._rng, self._inner = probability, rng, inner

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        delays = self._inner.route(now, source, target, size)
        if delays and self._rng.random() < self._probability:
            return [*delays, delays[0] + self._rng.randint(0, delays[0] + 1)]
        return delays


class Reordering:
    """Sometimes a message is held back for up to `most`, and later ones overtake it."""

    def __init__(self, probability: float, most: Time, rng: Random, inner: Network) -> None:
        self._probability, self._most, self._rng, self._inner = probability, most, rng, inner

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        delays = self._inner.route(now, source, target, size)
        if self._rng.random() < self._probability:
            return [d + self._rng.randint(1, self._most) for d in delays]
        return delays


class AccessLinkRates(Struct, frozen=True):
    """An access link: bits per second up and down, and the delay of the last hop."""

    up: float
    down: float
    last_hop: Time


class AccessLinks:
    """Every node has an access link with a queue each way; what does not fit the queue is lost.

    A message waits for the sender's uplink, crosses the inner network and both last hops, then
    takes the first gap on the receiver's downlink in which it fits. What has a place there keeps
    it, even if something sent later arrives earlier and would have gone first.
    """

    def __init__(
        self, rates: Callable[[NodeId], AccessLinkRates], queue: Time, inner: Network
    ) -> None:
        self._rates, self._queue, self._inner = rates, queue, inner
        self._up_free: dict[NodeId, Time] = {}
        self._down_taken: dict[NodeId, list[tuple[Time, Time]]] = {}

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        here, there = self._rates(source), self._rates(target)
        begin = max(now, self._up_free.get(source, 0))
        if begin - now > self._queue:
            return []
        sent = begin + round(size * 8 / here.up * SECOND)
        self._up_free[source] = sent
        delays = []
        for delay in self._inner.route(sent, source, target, size):
            at_line = sent + here.last_hop + delay + there.last_hop
            length = round(size * 8 / there.down * SECOND)
            received = self._gap(now, target, at_line, length)
            if received is not None:
                delays.append(received + length - now)
        return delays

    def _gap(self, now: Time, target: NodeId, at_line: Time, length: Time) -> Time | None:
        """Take the first free stretch of the downlink; None if that is too long a wait."""
        taken = self._down_taken.setdefault(target, [])
        while taken and taken[0][1] <= now:
            taken.pop(0)
        begin, place = at_line, bisect(taken, (at_line,))
        if place and taken[place - 1][1] > begin:
            begin = taken[place - 1][1]
        while place < len(taken) and taken[place][0] < begin + length:
            begin = taken[place][1]
            place += 1
        if begin - at_line > self._queue:
            return None
        taken.insert(place, (begin, begin + length))
        return begin


class PacketLoss:
    """Packets get lost on links that treat each kind of message as live ones over QUIC do.

    A lossy message is lost with its packet; any other is sent again once its sender has noticed,
    which takes 9/8 of a round trip (RFC 9002 6.1.2) while other packets follow. An ordered message
    waits for those of its priority that were sent before it, one without order for nothing.
    """

    def __init__(self, probability: float, rng: Random) -> None:
        self._probability, self._rng = probability, rng
        self._latest: dict[tuple[NodeId, NodeId, Priority], Time] = {}

    def delays(
        self, message: Message, now: Time, ends: tuple[NodeId, NodeId], size: int, plain: list[Time]
    ) -> list[Time]:
        """Of each copy, from its delay without losses."""
        lost = 1 - (1 - self._probability) ** (1 + size // PACKET)
        if message.lossy:
            return [delay for delay in plain if self._rng.random() >= lost]
        delays = []
        for delay in plain:
            arrival = now + delay
            while self._rng.random() < lost:
                arrival += round(2 * delay * 9 / 8)
            if message.ordered:
                stream_ = (*ends, message.priority)
                arrival = self._latest[stream_] = max(arrival, self._latest.get(stream_, 0))
            delays.append(arrival - now)
        return delays


class FaultyNetwork:
    """The network that faults change: groups of nodes cut off from each other, slow nodes."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner
        self.group: dict[NodeId, int] = {}  # absent: group 0
        self.slow: dict[NodeId, Time] = {}  # what each end adds to every message

    def route(self, now: Time, source: NodeId, target: NodeId, size: int) -> list[Time]:
        if self.group.get(source, 0) != self.group.get(target, 0):
            return []
        delays = self._inner.route(now, source, target, size)
        added = self.slow.get(source, 0) + self.slow.get(target, 0)
        return [d + added for d in delays] if added else delays


class NetworkParameters(Struct, frozen=True, kw_only=True):
    """Which network models are used, and their numbers."""

    # constant | centre (constant, but 1 ms between servers) | embedding (distances) | adsl (lines
    # on the embedding) | radio (an ad-hoc network of moving nodes that share the air)
    network: str = "constant"
    latency_ms: float = 50.0  # one way, of the constant network
    jitter_ms: float = 0.0  # ± uniform; below latency_ms if order is to stay as sent between pairs
    # False: jitter begins with the workload, so that what is built before does not depend on it.
    set_up_jitter: bool = True
    loss: float = 0.0  # probability that a message vanishes, of whatever kind
    # Probability, below 1, that a packet is lost: lossy messages vanish, others are sent again and
    # hold up those behind them that must stay in order.
    packet_loss: float = 0.0
    duplicate: float = 0.0  # probability that a message arrives twice
    reorder: float = 0.0  # probability that a message is held back for up to reorder_ms
    reorder_ms: float = 100.0
    up_mbit: float = 1.0  # adsl: a home line as the BubbleStorm thesis has it (16/1 Mbit/s, 5 ms)
    down_mbit: float = 16.0
    last_hop_ms: float = 5.0
    queue_ms: float = 2000.0  # adsl, radio: longest wait for a turn; what would wait longer is lost
    server_mbit: float = 100.0  # adsl: lines of servers, both ways, without a last hop
    radio_range: float = 250.0  # radio: how far a node is heard, in units of the world
    radio_mbit: float = 6.0  # radio: the channel's rate, shared by all who hear each other
    frame_us: float = 300.0  # radio: air time of a frame besides its bits

    def __post_init__(self) -> None:
        one_of("network", self.network, ("constant", "centre", "embedding", "adsl", "radio"))
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, not {getattr(self, name)}")
        if not 0 <= self.packet_loss < 1:
            raise ValueError(f"packet_loss must be from 0 to below 1, not {self.packet_loss}")
        for name in ("latency_ms", "jitter_ms", "last_hop_ms", "queue_ms", "frame_us"):
            if not 0 <= getattr(self, name) <= 1e7:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in (
            "reorder_ms", "up_mbit", "down_mbit", "server_mbit", "radio_range", "radio_mbit",
        ):  # fmt: skip
            if not 0.001 <= getattr(self, name) <= 1e7:
                raise ValueError(f"{name} must be at least 0.001, not {getattr(self, name)}")


def make_network(
    parameters: NetworkParameters,
    seed: int,
    setting_up: Callable[[], bool] = lambda: False,
    places: Places | None = None,
) -> Network:
    """The network that the parameters describe; each random model has its own stream.

    `setting_up`: is the overlay still being built? `places`: of nodes with radios.
    """
    p = parameters
    network: Network = ConstantDelay(round(p.latency_ms * MILLISECOND))
    if p.network == "centre":
        network = DataCentre(round(p.latency_ms * MILLISECOND))
    elif p.network == "radio":
        if places is None:
            raise ValueError("network=radio is for overlays: nodes of a cluster do not move about")
        network = RadioNetwork(
            places, p.radio_range, p.radio_mbit * 1e6, round(p.frame_us),
            round(p.queue_ms * MILLISECOND),
        )  # fmt: skip
    elif p.network != "constant":
        network = Embedding(seed)
    if p.jitter_ms:
        most = round(p.jitter_ms * MILLISECOND)
        jitter: Network = Jitter(most, stream(seed, "jitter"), network)
        if not p.set_up_jitter:
            jitter = AfterSetUp(setting_up, network, jitter)
        network = InOrder(jitter)
    if p.network == "adsl":
        home = AccessLinkRates(
            p.up_mbit * 1e6, p.down_mbit * 1e6, round(p.last_hop_ms * MILLISECOND)
        )
        server = AccessLinkRates(p.server_mbit * 1e6, p.server_mbit * 1e6, 0)
        queue = round(p.queue_ms * MILLISECOND)
        network = AccessLinks(lambda n: server if n >= FIRST_SERVER else home, queue, network)
    if p.reorder:
        most = round(p.reorder_ms * MILLISECOND)
        network = Reordering(p.reorder, most, stream(seed, "reorder"), network)
    if p.duplicate:
        network = Duplication(p.duplicate, stream(seed, "duplicate"), network)
    if p.loss:
        network = Loss(p.loss, stream(seed, "loss"), network)
    return network
