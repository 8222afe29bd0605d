"""What can be set for a simulated cluster, and which faults it has."""

from msgspec import Struct

from nearcast.field_checks import between, one_of


class ClusterParameters(Struct, frozen=True, kw_only=True):
    """What can be set for the servers and the clients of a simulated cluster."""

    # Servers from the beginning, 1 to 1,000.
    servers: int = 3
    # Milliseconds, 0.1 to 1,000, that a publication waits for others; one flush matches all.
    flush_ms: float = 20.0
    # Share of clients, 0 to 1, whose publications are retained; `nearby` lists these clients.
    retain: float = 0.25
    # Probability, 0 to 1, that a client withdraws a retained state again within two seconds.
    withdraw: float = 0.0
    # Seconds, 600 to 1e6, for which retained states outlive their clients; 0: they do not.
    ttl_s: float = 0.0
    # Probability, 0 to 1, that a client which publishes also sends a direct message to another.
    direct: float = 0.0
    # Share of clients, 0 to 1, that are also told who is in their areas (presence).
    watch: float = 0.0
    # Subscriptions that a server can serve, 1 to 1e9; above 0.8 of that it gives some of its part
    # to its neighbours, and calls in a server that stands by.
    capacity: float = 1250.0
    # So many of the servers stand by at first, 0 to 999; at least one serves.
    standbys: int = 0
    # Seconds, 0 to 1e6, for which a server must be overloaded until it calls in another one, and
    # for which one that was called in must have little to do until it stands by again.
    high_s: float = 3.0
    low_s: float = 30.0
    # Milliseconds, 0 to 1,000: each server's clock is wrong by a constant of up to so much.
    skew_ms: float = 0.0
    # What coordinates are: "plane", or "earth" if the workload is in ECEF metres.
    geometry: str = "plane"

    def __post_init__(self) -> None:
        one_of("geometry", self.geometry, ("plane", "earth"))
        between("servers", self.servers, 1, 1_000)
        between("flush_ms", self.flush_ms, 0.1, 1_000)
        between("retain", self.retain, 0, 1)
        between("withdraw", self.withdraw, 0, 1)
        between("direct", self.direct, 0, 1)
        if self.ttl_s:
            between("ttl_s", self.ttl_s, 600, 1e6)
        between("watch", self.watch, 0, 1)
        between("capacity", self.capacity, 1, 1e9)
        between("standbys", self.standbys, 0, 999)
        if self.standbys >= self.servers:
            raise ValueError(
                f"standbys ({self.standbys}) must be fewer than servers ({self.servers})"
            )
        between("high_s", self.high_s, 0, 1e6)
        between("low_s", self.low_s, 0, 1e6)
        between("skew_ms", self.skew_ms, 0, 1_000)


class ClusterFaultParameters(Struct, frozen=True, kw_only=True):
    """Which faults happen, and how often. After the last one the cluster recovers, and all clients
    publish again, which must then be exact."""

    # Probability per server and second that it crashes, as if killed.
    crash: float = 0.0
    # Mean seconds until a server starts again at its address, empty and with a new id; 0: never.
    restart_s: float = 3.0
    # Probability per second that servers and clients fall into two groups that cannot talk.
    partition: float = 0.0
    # Probability per second that two servers cannot reach each other, but all the others.
    cut: float = 0.0
    # Mean seconds that a partition or a cut lasts.
    cut_s: float = 3.0
    # Probability per client and second that its connection breaks.
    disconnect: float = 0.0
    # Probability per client and second that it reaches no server, for seconds as a cut.
    client_cut: float = 0.0
    # Probability per second that the link between two servers breaks.
    link_break: float = 0.0
    # Mean seconds after that until the next link can be made; what is sent meanwhile is lost.
    redial_s: float = 0.0
    # Probability per server and second that it stands still, and then reads all that has come.
    halt: float = 0.0
    # Mean seconds that it stands still.
    halt_s: float = 1.0
    # Probability per client and second that it reads nothing for a while.
    slow_reader: float = 0.0
    # Mean seconds that it reads nothing.
    slow_reader_s: float = 2.0
    # Probability that a message between servers is late; those that follow wait for it.
    slow: float = 0.0
    # Milliseconds by which it is late at most.
    slow_ms: float = 400.0
    # Probability per second that a new server joins; there are at most twice as many as at first.
    join: float = 0.0
    # Probability per server and second that it leaves and hands its clients over.
    leave: float = 0.0
    # Probability that a message of a handover makes one of its two servers stand still or lose its
    # link to the other, or to all: each as above.
    handover_fault: float = 0.0
    # Seconds from the beginning until the last fault; 0: to the end of the run.
    faults_until: float = 0.0
    # Seconds after the last fault by which every client is served as if there had been none.
    recovery_s: float = 30.0

    def __post_init__(self) -> None:
        for name in (
            "crash", "partition", "cut", "disconnect", "client_cut", "link_break", "halt",
            "slow_reader", "slow", "join", "leave", "handover_fault",
        ):  # fmt: skip
            between(name, getattr(self, name), 0, 1)
        for name in (
            "restart_s", "cut_s", "redial_s", "halt_s", "slow_reader_s", "faults_until",
            "recovery_s",
        ):  # fmt: skip
            between(name, getattr(self, name), 0, 1e6)
        between("slow_ms", self.slow_ms, 0, 1e6)

    @property
    def any(self) -> bool:
        """Does anything happen that the injector draws?"""
        return any((
            self.crash, self.partition, self.cut, self.disconnect, self.client_cut,
            self.link_break, self.halt, self.slow_reader, self.join, self.leave,
            self.handover_fault,
        ))  # fmt: skip
