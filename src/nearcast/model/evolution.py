"""How brokers follow an evolving subscription, chosen by its subscriber ([Evolving] section 4).

periodic  PES: a version of it is made every evolution interval (EI) and matched until the next
lazy      LEES: it is evaluated at each publication
cached    CLEES: as lazy, but a value serves until it is older than the time threshold (TT)
swept     as exact as lazy, with an index over slices of time

Without a choice, brokers do what their own parameters say.
"""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from nearcast.space.motion import SECOND, Time

EvolutionKind: TypeAlias = Literal["periodic", "lazy", "cached", "swept"]
KINDS: tuple[EvolutionKind, ...] = get_args(EvolutionKind)
SHORTEST_INTERVAL: Time = SECOND // 100  # a broker works for every interval, published or not
LONGEST: Time = 10_000 * SECOND


class Evolution(Struct, frozen=True, array_like=True):
    """What a subscriber chooses for one subscription."""

    kind: EvolutionKind
    # Microseconds for which a version serves: the EI of periodic, the TT of cached. None: those of
    # the broker's parameters.
    serves: Time | None = None

    def __post_init__(self) -> None:
        if self.serves is not None:
            _check_seconds(self.kind, self.serves / SECOND)


def _check_seconds(kind: EvolutionKind, seconds: float) -> None:
    if kind in ("lazy", "swept"):
        raise ValueError(f"a {kind} subscription is exact: it has no interval or threshold")
    name, shortest = ("interval", SHORTEST_INTERVAL) if kind == "periodic" else ("threshold", 0)
    low, high = shortest / SECOND, LONGEST / SECOND
    if not low <= seconds <= high:
        raise ValueError(f"{name} is from {low:g} to {high:g} seconds, not {seconds:g}")


def chosen_evolution(
    evolve: EvolutionKind | Literal[""], interval: float | None, threshold: float | None
) -> Evolution | None:
    """The choice of an application, in seconds; "": none. ValueError if it makes no sense."""
    if interval is not None and evolve != "periodic":
        raise ValueError('interval is of a subscription with evolve="periodic"')
    if threshold is not None and evolve != "cached":
        raise ValueError('threshold is of a subscription with evolve="cached"')
    return _evolution(evolve, threshold if interval is None else interval) if evolve else None


def parse_evolution(text: str) -> Evolution:
    """The choice as text: `lazy`, `periodic:0.5`, `cached:0.2`; ValueError if it is none."""
    name, colon, number = text.strip().partition(":")
    for kind in KINDS:
        if name == kind:
            try:
                seconds = float(number) if colon else None
            except ValueError:
                raise ValueError(f"{number!r} is no number of seconds") from None
            return _evolution(kind, seconds)
    raise ValueError(f"subscriptions evolve in one of these ways, not {name!r}: {', '.join(KINDS)}")


def _evolution(kind: EvolutionKind, seconds: float | None) -> Evolution:
    if seconds is None:
        return Evolution(kind)
    _check_seconds(kind, seconds)  # before it is rounded: it may be infinite
    return Evolution(kind, round(seconds * SECOND))
