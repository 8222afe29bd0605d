"""Relays under another overlay, which finds out who wants to hear whom and leaves the rest to them.

What a peer tells its neighbours directly goes over its uplink. Where that is limited, all of it
waits for its turn there and is withheld if the turn does not come, with relays and without, so that
both can be compared. Without relays and without a limit, nothing is as it would not be otherwise.
"""

from collections.abc import Callable
from math import exp, log
from random import Random

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.relays.cost_model import interest_at
from nearcast.protocols.relays.parameters import Parameters
from nearcast.protocols.relays.relays import Relays

SWITCH = ("on", "off")
KBIT = 1000 / 8  # bytes
UNLIMITED = 2.0**40 - 1  # bytes per second: the most that a peer can say of its uplink
LEAST_INTEREST = 0.01  # of somebody just outside, who may have come nearer meanwhile


class RelayLayerParameters(Struct, frozen=True, kw_only=True):
    """What can be chosen of it; an overlay's parameters have these too."""

    # on or off: do neighbours pass on what others tell directly?
    relays: str = "off"
    # Uplinks of peers in kbit/s, 1 to 1e7, for what they tell directly: between these, by chance;
    # the logarithm is uniform (seed 004, V). Both 0: without a limit.
    uplink_min: float = 0.0
    uplink_max: float = 0.0
    # Milliseconds between two steps of a peer's optimisation, 50 to 1e6; traffic of its own shrinks
    # and adaptation and repair slow down as it grows.
    interval_ms: float = 500.0

    def __post_init__(self) -> None:
        if self.relays not in SWITCH:
            raise ValueError(f"relays must be one of {', '.join(SWITCH)}, not {self.relays!r}")
        if self.uplink_min != 0 or self.uplink_max != 0:
            check_uplinks(self.uplink_min, self.uplink_max)
        self.steps  # noqa: B018  it checks the rest

    @property
    def steps(self) -> Parameters:
        return Parameters(interval_ms=self.interval_ms)


def check_uplinks(least: float, most: float) -> None:
    for name, value, low, high in (("uplink_max", most, 1, 1e7), ("uplink_min", least, 1, most)):
        if not low <= value <= high:
            raise ValueError(f"{name} must be between {low:g} and {high:g}, not {value}")


def capacity_of(least: float, most: float, rng: Random) -> float:
    """Of one peer's uplink in bytes per second, given the range in kbit/s."""
    return exp(rng.uniform(log(least), log(most))) * KBIT


def relays_of(
    node: Node,
    layer: RelayLayerParameters,
    is_acquainted: Callable[[NodeId], bool],
    *,
    for_others: bool = False,
) -> Relays | None:
    """What disseminates for a node; None: it does so itself. `for_others`: see `Speech`."""
    is_limited = layer.uplink_max > 0
    if layer.relays == "off" and not is_limited:
        return None
    capacity = UNLIMITED
    if is_limited:
        capacity = capacity_of(layer.uplink_min, layer.uplink_max, node.rng)
    # A chance of its own: all others of a run are the same with relays and without.
    return Relays(
        node.id, node.out, Random(node.id), lambda: node.now, layer.steps, capacity, is_acquainted,
        optimises=layer.relays == "on", for_others=for_others,
    )  # fmt: skip


def interest_of(away: float, radius: float) -> float:
    """Of somebody who sees so far, in what is said so far away."""
    return max(interest_at(away, radius), LEAST_INTEREST)
