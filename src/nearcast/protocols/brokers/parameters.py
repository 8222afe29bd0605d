"""What can be set for a network of brokers."""

from collections.abc import Callable

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.matching import MATCHERS
from nearcast.matching.chosen import ChosenMatcher
from nearcast.matching.matcher import Matcher
from nearcast.protocols.brokers.topology import TOPOLOGIES

MILLISECOND = 1_000
RESUBSCRIBE = "resubscribe"


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for a network of brokers."""

    # Brokers, 1 to 10,000; each serves fewer clients, and ways are longer, as there are more.
    brokers: int = 5
    # line, star or tree: how they are linked; the longer the ways, the later an interest is known.
    topology: str = "tree"
    # The number of the broker that all clients attach to; -1: theirs modulo the brokers.
    attach: int = -1
    # off, lazy or active: do brokers keep interests back that others cover, or take back as well?
    covering: str = "off"
    # scan, grid or rtree: the matching engine for interests that do not move.
    matcher: str = "grid"
    # resubscribe, or the engine that evolves interests by itself: periodic, lazy, cached or swept
    # (or scan, grid, rtree, which are exact too); for interest=area alone, and for subscribers that
    # have not chosen one for themselves.
    evolving: str = "swept"
    # area, parametric, tile or object: does a client send its area, new numbers of it alone, the
    # tiles that it touches, or the entities that it has found near it?
    interest: str = "area"
    # Milliseconds, 1 to 1e7, between two updates of a client whose broker does not compute where
    # its area is, or two evolutions of engine periodic; fewer messages and staler knowledge as it
    # grows.
    interval_ms: float = 500.0
    # Milliseconds, 0 to 1e7, for which engine cached uses what it has computed.
    threshold_ms: float = 500.0
    # travels: the moment of submission goes with an interest. arrival: each broker takes its own
    # clock when it arrives, and is late by the interest's time under way.
    stamp: str = "travels"
    # publication or arrival: is a publication matched with an interest as it was when the
    # publication was made, or as it is when it arrives, by the broker's clock ([Evolving] 4.2)?
    moment: str = "publication"
    # Milliseconds, 0 to 1e7, by which a broker's clock is wrong at most.
    skew_ms: float = 0.0
    # Half the side of the box that a client advertises around itself, in units, 0 to 1e9; interests
    # go less far, and are late for a client that has left its box. 0: it may publish everywhere.
    advertise: float = 0.0
    # Side of a tile in units, above 0 to 1e9, for interest=tile; for interest=object, how far
    # beyond its area a client looks for others.
    tile: float = 50.0
    # Milliseconds, 1 to 1e7, between two heartbeats; 0: none, and no failure is noticed.
    heartbeat_ms: float = 2000.0
    # Missed heartbeats after which a neighbour is given up, 1 to 100.
    misses: int = 3
    # Seconds for which a client remembers publishers; its view grows with it.
    memory_s: float = 2.0

    def __post_init__(self) -> None:
        between("brokers", self.brokers, 1, 10_000)
        one_of("topology", self.topology, list(TOPOLOGIES))
        between("attach", self.attach, -1, self.brokers - 1)
        one_of("covering", self.covering, ("off", "lazy", "active"))
        one_of("matcher", self.matcher, list(MATCHERS))
        one_of("evolving", self.evolving, [RESUBSCRIBE, *MATCHERS])
        one_of("interest", self.interest, ("area", "parametric", "tile", "object"))
        between("interval_ms", self.interval_ms, 1, 1e7)
        between("threshold_ms", self.threshold_ms, 0, 1e7)
        one_of("stamp", self.stamp, ("travels", "arrival"))
        one_of("moment", self.moment, ("publication", "arrival"))
        between("skew_ms", self.skew_ms, 0, 1e7)
        between("advertise", self.advertise, 0, 1e9)
        between("tile", self.tile, 1e-6, 1e9)
        if self.heartbeat_ms:
            between("heartbeat_ms", self.heartbeat_ms, 1, 1e7)
        between("misses", self.misses, 1, 100)
        between("memory_s", self.memory_s, 1e-6, 1e6)

    @property
    def interval(self) -> int:
        return round(self.interval_ms * MILLISECOND)

    @property
    def heartbeat(self) -> int:
        return round(self.heartbeat_ms * MILLISECOND)

    def engine(self) -> ChosenMatcher:
        """What a broker matches with. Interests that stand still need none that follows them."""
        follows = self.interest == "area" and self.evolving != RESUBSCRIBE
        return ChosenMatcher(self.evolving if follows else self.matcher, self._make_engine)

    def _make_engine(self, name: str) -> Matcher:
        make: Callable[..., Matcher] = MATCHERS[name]
        if name == "periodic":
            return make(interval_us=self.interval)
        if name == "cached":
            return make(threshold_us=round(self.threshold_ms * MILLISECOND))
        return make()
