"""Settings of VSO. Defaults are those of [VSO] and of the authors' program VAST."""

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.matching import EXACT
from nearcast.protocols.voronoi import mesh
from nearcast.protocols.voronoi.balance import Capacity
from nearcast.space.motion import Time

MILLISECOND = 1_000


class Parameters(Struct, frozen=True, kw_only=True):
    """Settings of all matchers and clients."""

    # dynamic or static: do matchers follow their load, or stay where they began?
    partitioning: str = "dynamic"
    # Matchers from the beginning, 1 to 10,000, in rows and columns over the world; the first is the
    # gateway. 9 and static: the paper's 3 x 3 squares.
    matchers: int = 1
    # Side in units of the square over which they stand, 1 to 1e9: that of the workload's world.
    world: float = 768.0
    # clients, servers or both: who may be called in as a further matcher?
    candidates: str = "clients"
    # Provisioned servers among the candidates, 0 to 10,000; for candidates=servers or both.
    servers: int = 0
    # Subscriptions that a matcher may own before it is overloaded, 1 to 1e9; matchers become fewer.
    limit: float = 20.0
    # The same of a provisioned server, 1 to 1e9; 0: as many as others.
    server_limit: float = 0.0
    # Publications per second that it may handle likewise, above 0 to 1e12; 0: any number.
    activity_limit: float = 0.0
    # Share of its limit, 0 to 1, up to which a matcher is idle and leaves; 0: only without any.
    idle: float = 0.0
    # Part of the gap, 0 to 1, by which a matcher comes closer to an overloaded one: formula (1).
    f_move: float = 0.1
    # Part of the way to its load centre, 0 to 1, by which a matcher moves each time: formula (2).
    f_adjust: float = 0.1
    # Milliseconds, 1 to 1e7, between two such moves.
    adjust_ms: float = 1000.0
    # Milliseconds, 1 to 1e7, of overload (or idleness) that count as one period.
    overload_ms: float = 3000.0
    # Periods of overload until a matcher is inserted, 0 to 1,000; before, neighbours come closer.
    insertion_trigger: int = 5
    # Idle periods until a matcher leaves, 1 to 1,000.
    departure_trigger: int = 5
    # Units, 0 to 1e9, that two sites keep from each other.
    spacing: float = 5.0
    # Milliseconds, 1 to 1e7, for which a centre is outside before its owner changes.
    transfer_ms: float = 300.0
    # Milliseconds, 1 to 1e7, without acknowledgement until the old owner reclaims it.
    reclaim_ms: float = 900.0
    # Milliseconds, 1 to 1e7, between two digests of what a neighbour should have.
    digest_ms: float = 1000.0
    # Milliseconds, 1 to 1e7, without a message of an owner until its records may be claimed; after
    # as long again they are dropped.
    silence_ms: float = 3500.0
    # Units, 0 to 1e9, by which areas are larger when we ask which regions they touch.
    margin: float = 10.0
    # Units, 0 to 1e9, by which a client asks for more than it wants: it knows who is about to come
    # in. No more is delivered, but its traffic grows.
    buffer: float = 10.0
    # Milliseconds, 1 to 1e7, between two checks of a matcher's records.
    tick_ms: float = 100.0
    # Milliseconds, 1 to 1e7, between two heartbeats of clients, matchers and the gateway.
    heartbeat_ms: float = 2000.0
    # Missed heartbeats, 2 to 100, after which a client, matcher or gateway is given up.
    misses: int = 3
    # Milliseconds, 1 to 1e7, between two heartbeats among neighbouring sites; after `misses` missed
    # ones a site is dead. Its clients wait for so long; traffic between sites grows as it shrinks.
    # VAST notices broken connections at once, and beats in 10 s.
    site_beat_ms: float = 300.0
    # Milliseconds, 1 to 1e7, after which a client that nobody serves asks again; then each time
    # twice as long, up to a heartbeat. VAST: 5000 each time.
    retry_ms: float = 500.0
    # Milliseconds, 1 to 1e7, without a message of an owner after which a client that publishes asks
    # whether it lives; unanswered for `misses` times as long, it is given up. Clients that receive
    # little ask more often as it shrinks. 1e7: with a heartbeat only.
    doubt_ms: float = 700.0
    # Milliseconds, 0 to 1e7: an owner sends to a new client the last publication of each publisher
    # within so long, so that it knows who is there. VAST sends all neighbours; 0: nothing.
    recall_ms: float = 1000.0
    # Milliseconds, 1 to 1e7, for which a candidate's offer is fresh. The gateway calls the most
    # capable fresh one, of equals that which has waited longest; without any, the one that offered
    # last. 1e7: VAST's, the first known, which where many crash is nearly always one that has.
    fresh_ms: float = 4000.0
    # Milliseconds, 1 to 1e7, after which another candidate is called if the first has not come. In
    # VAST nobody is until there is overload again.
    answer_ms: float = 2000.0
    # Matchers, 1 to 10,000, below which the gateway calls further ones without any overload. The
    # paper's 1 is enough while the gateway cannot crash: whoever is alone is followed by nobody.
    least: int = 1
    # Far sites that a matcher remembers to forward through, 0 to 100; ways become O(log N) hops.
    shortcuts: int = 0
    # scan | grid | rtree | lazy | swept: how a matcher matches; all give one answer
    matcher: str = "swept"
    # Seconds for which a client remembers publishers, above 0 to 1e6; its view grows with it.
    memory_s: float = 2.0

    def __post_init__(self) -> None:
        one_of("partitioning", self.partitioning, ("dynamic", "static"))
        between("matchers", self.matchers, 1, 10_000)
        between("world", self.world, 1, 1e9)
        one_of("candidates", self.candidates, ("clients", "servers", "both"))
        between("servers", self.servers, 0, 10_000)
        between("limit", self.limit, 1, 1e9)
        if self.server_limit:
            between("server_limit", self.server_limit, 1, 1e9)
        between("activity_limit", self.activity_limit, 0, 1e12)
        for name in ("idle", "f_move", "f_adjust"):
            between(name, getattr(self, name), 0, 1)
        between("insertion_trigger", self.insertion_trigger, 0, 1000)
        between("departure_trigger", self.departure_trigger, 1, 1000)
        for name in ("spacing", "margin", "buffer"):
            between(name, getattr(self, name), 0, 1e9)
        for name in (
            "adjust_ms", "overload_ms", "transfer_ms", "reclaim_ms", "digest_ms", "silence_ms",
            "tick_ms", "heartbeat_ms", "site_beat_ms", "retry_ms", "doubt_ms", "fresh_ms",
            "answer_ms",
        ):  # fmt: skip
            between(name, getattr(self, name), 1, 1e7)
        between("recall_ms", self.recall_ms, 0, 1e7)
        between("least", self.least, 1, 10_000)
        between("misses", self.misses, 2, 100)
        between("shortcuts", self.shortcuts, 0, 100)
        one_of("matcher", self.matcher, EXACT)
        between("memory_s", self.memory_s, 1e-6, 1e6)

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.limit, self.activity_limit or float("inf"))

    @property
    def heartbeat(self) -> Time:
        return microseconds(self.heartbeat_ms)

    @property
    def mesh(self) -> mesh.Parameters:
        return mesh.Parameters(
            room=self.margin,
            beat_s=self.site_beat_ms / 1000,
            misses=self.misses,
            shortcuts=self.shortcuts,
        )

    @property
    def tick(self) -> Time:
        return microseconds(self.tick_ms)


def microseconds(milliseconds: float) -> Time:
    return round(milliseconds * MILLISECOND)
