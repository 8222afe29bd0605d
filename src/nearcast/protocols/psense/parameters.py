"""Settings of pSense. Defaults are those of its authors' later programs."""

from msgspec import Struct

from nearcast.field_checks import between, one_of

VIEWS = ("receivers", "connections", "near")
MOST_HOPS = 15


class Parameters(Struct, frozen=True, kw_only=True):
    """Settings of every peer."""

    # 2 or 3: eight sectors of 45 degrees, or the eight octants of pSense3D. With 2, z is a further
    # condition that the receiver checks.
    dimensions: int = 2
    # Milliseconds between two rounds, 10 to 1e6; traffic shrinks and neighbours are found later as
    # it grows.
    round_ms: float = 333.0
    # Bytes that a peer sends in a round at most, UDP and IP headers included, 200 to 1e9. What does
    # not fit is not sent, and left to others. A round with a publication takes some 1000 bytes, and
    # 350 for each peer in view: for more than a dozen of them, the usual limit is too small.
    limit: int = 5000
    # How often news of a position or a publication may be passed on, 0 to 15; reach and traffic
    # grow with it.
    hops: int = 3
    # Seconds of silence after which a peer is believed to be gone, two rounds to 300.
    silent_s: float = 9.0
    # Seconds for which somebody is still known who is neither near nor a sensor any more, 0 to
    # silent_s ([Lucas2011] 5.4.1: 2 s).
    linger_s: float = 2.0
    # Seconds until a join that nobody has answered is tried again, above a round to 1e6.
    retry_s: float = 2.5
    # Seconds of solitude after which a peer joins anew, above a round to 1e6.
    alone_s: float = 20.0
    # receivers: a peer's view is all whom it sends its position to, sensors too; connections: also
    # all who have sent it a message themselves within linger_s, as [Lucas2011] counts connections
    # (5.4.2); near: those in its area of interest alone.
    view: str = "receivers"

    def __post_init__(self) -> None:
        one_of("dimensions", self.dimensions, (2, 3))
        one_of("view", self.view, VIEWS)
        round_s = self.round_ms / 1000
        for name, value, low, high in (
            ("round_ms", self.round_ms, 10, 1e6),
            ("limit", self.limit, 200, 1e9),
            ("hops", self.hops, 0, MOST_HOPS),
            ("silent_s", self.silent_s, 2 * round_s, 300),
            ("linger_s", self.linger_s, 0, self.silent_s),
            ("retry_s", self.retry_s, round_s, 1e6),
            ("alone_s", self.alone_s, round_s, 1e6),
        ):
            between(name, value, low, high)
