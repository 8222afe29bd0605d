"""Settings of the relays."""

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.protocols.relays.cost_model import Weights


class Parameters(Struct, frozen=True, kw_only=True):
    """Settings of the optimisation at each peer."""

    # Milliseconds between two steps of a peer's optimisation, 50 to 1e6; traffic of its own shrinks
    # and adaptation and repair slow down as it grows.
    interval_ms: float = 500.0
    # Steps in one interval while the uplink is overloaded, 1 to 100; the paper has one. With more,
    # peers adapt faster to neighbours that come and go, and agree on what does not last.
    steps: int = 1
    # Intervals of silence after which a forwarder is believed to be gone, 2 to 100. What it
    # forwarded is restored within misses + 1 intervals.
    misses: int = 3
    # What an operation must gain at least (the paper's ε), 0 to 1e6; fewer are done as it grows.
    epsilon: float = 0.001
    # Milliseconds for which what is passed on waits for company in its packet, 0 to 1,000; packets
    # become fewer and latency grows.
    hold_ms: float = 40.0
    # on or off: are updates compressed? They lose a fifth to a third of their bytes, signed a
    # tenth to a fifth.
    compress: str = "off"
    # Weights of cost factors, 0 to 1e6 ([Lehn] IV-A): utilisation of the sender and of the
    # forwarder, latency, queueing, chance that a forwarder fails, effort for subscriptions that may
    # end soon.
    w_sender: float = 64.0
    w_forwarder: float = 64.0
    w_latency: float = 1.0
    w_queueing: float = 0.0
    w_reliability: float = 0.0
    w_lifetime: float = 0.0
    # Seconds at interest 0, 0 to 1e6; a quarter of that at interest 1: what is aimed at, what is
    # too early (0: nothing is), and what is far too late.
    target_s: float = 0.5
    lower_s: float = 0.0
    upper_s: float = 1e6

    def __post_init__(self) -> None:
        one_of("compress", self.compress, ("on", "off"))
        factors = [name for name in self.__struct_fields__ if name.startswith("w_")]
        for name, low, high in (
            ("interval_ms", 50, 1e6),
            ("steps", 1, 100),
            ("misses", 2, 100),
            ("epsilon", 0, 1e6),
            ("hold_ms", 0, 1000),
            *((name, 0, 1e6) for name in factors),
            ("target_s", 0, 1e6),
            ("lower_s", 0, 1e6),
            ("upper_s", 0, 1e6),
        ):
            between(name, getattr(self, name), low, high)

    @property
    def weights(self) -> Weights:
        return Weights(
            sender=self.w_sender,
            forwarder=self.w_forwarder,
            latency=self.w_latency,
            queueing=self.w_queueing,
            reliability=self.w_reliability,
            lifetime=self.w_lifetime,
            target=self.target_s,
            lower=self.lower_s,
            upper=self.upper_s,
        )
