"""Settings of BubbleStorm and its publish/subscribe layer."""

from math import ceil, log, sqrt

from nearcast.field_checks import between, one_of
from nearcast.protocols.relays.layer import RelayLayerParameters

LEAST_DEGREE = 16  # links of the weakest peer
JOINED = LEAST_DEGREE // 4  # with so many links a peer counts as joined
CASTS = ("bubblecast", "flooding")
BUBBLES = ("fading", "managed")
INTERESTS = ("circle", "whole")


class Parameters(RelayLayerParameters, frozen=True, kw_only=True):
    """Settings of every peer."""

    # λ of the thesis, above 0 to 6: two subscriptions meet in a round with probability 1 - e^(-λ²).
    # Traffic of subscriptions grows with it.
    vars()["lambda"] = 1.0
    vars()["__annotations__"]["lambda"] = float  # a word of Python's own, so not as the others
    # Links to which a peer divides a bubblecast, 1 to 16; 1 is a plain random walk, and slower.
    split: int = 2
    # bubblecast, or flooding: every subscription to every peer (section 3.2), as a baseline.
    cast: str = "bubblecast"
    # fading: subscriptions are cast anew every round; managed: their holders are told directly, and
    # two that have not met never will, so it wants a larger λ.
    bubble: str = "fading"
    # circle: a subscription is a place and a radius (table 4.2); whole: it travels with its filter
    # and its motion too, and is larger.
    interests: str = "circle"
    # Milliseconds between two subscriptions of a peer, 10 to 1e6: the low-frequency interval.
    round_ms: float = 1000.0
    # Seconds for which a subscription is cached, 0 to 1e6; 0: a peer answers for itself alone.
    cache_s: float = 5.0
    # Seconds outside the area of interest until a connection is closed, 0 to 1e6.
    linger_s: float = 5.0
    # Seconds of silence until a connection is closed, above round_ms to 1e6.
    silent_s: float = 5.0
    # Seconds after which an attempt to connect may be repeated, 0 to 1e6.
    address_s: float = 5.0
    # Seconds between two signs of life on a link, and until a silent link is given up; until then
    # all that is cast to the dead is lost. BubbleStorm itself has 15 and 45. While a link is being
    # split no signs are given on it, for up to patience_s and a second: with a beat before and one
    # after, that must fit into dead_s, or links to the living are given up.
    beat_s: float = 2.0
    dead_s: float = 10.0
    # Seconds until a join, a split or a contraction that got stuck is tried again.
    patience_s: float = 5.0
    # Seconds in which a peer of 16 links tells each of them once of its measurement; sizes follow
    # changes later as it grows.
    gossip_s: float = 8.0
    # How many times as often a new peer does so during its first measurements, 1 to 100: an overlay
    # is ready once all have taken part in one. BubbleStorm itself has 1.
    gossip_boost: float = 1.0
    # Upload of a peer in kbit/s, and the share of peers that have `strength` times as much: degree
    # grows with bandwidth, so they carry so many times the load.
    upload_kbit: float = 1000.0
    strong: float = 0.0
    strength: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, chosen, choices in (
            ("cast", self.cast, CASTS),
            ("bubble", self.bubble, BUBBLES),
            ("interests", self.interests, INTERESTS),
        ):
            one_of(name, chosen, choices)
        for name, value, low, high in (
            ("lambda", self.certainty, 1e-3, 6),
            ("split", self.split, 1, LEAST_DEGREE),
            ("round_ms", self.round_ms, 10, 1e6),
            ("cache_s", self.cache_s, 0, 1e6),
            ("linger_s", self.linger_s, 0, 1e6),
            ("silent_s", self.silent_s, self.round_ms / 1000, 1e6),
            ("address_s", self.address_s, 0, 1e6),
            ("beat_s", self.beat_s, 0.1, 1e6),
            # Two beats must fit, or a link dies of one that is late.
            ("dead_s", self.dead_s, 2 * self.beat_s, 1e7),
            ("patience_s", self.patience_s, 0.1, self.dead_s),
            ("gossip_s", self.gossip_s, 0.1, 1e6),
            ("gossip_boost", self.gossip_boost, 1, 100),
            ("upload_kbit", self.upload_kbit, 1, 1e9),
            ("strong", self.strong, 0, 1),
            ("strength", self.strength, 1, 64),
        ):
            between(name, value, low, high)

    @property
    def certainty(self) -> float:
        value: float = getattr(self, "lambda")
        return value

    def desired(self, strength: float) -> int:
        """Links that a peer of so many times the least bandwidth wants; always even."""
        return 2 * round(LEAST_DEGREE * strength / 2)


def tolerance(desired: int) -> int:
    """Links that may be lacking or too many before a peer does something about it."""
    return round(sqrt(desired / LEAST_DEGREE))


SPREADING = 4 / (log(16) - 2 * log(2))  # b = 2.885: how fast a walk forgets where it began
FORGOTTEN = SPREADING * (log(2) - log(0.01))  # a = 15.29: to within 1 %


def walk_length(peers: float) -> int:
    """Hops after which a random walk may be anywhere: a + b ln n, 30 for 128 peers."""
    return ceil(FORGOTTEN + SPREADING * log(max(1.0, peers)))
