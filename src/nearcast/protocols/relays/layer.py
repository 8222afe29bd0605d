"""Relays under another overlay: the overlay finds the audience, the relays bring publications.

What a peer sends directly goes over its uplink. If the uplink is limited, publications queue there
and are withheld if they wait too long, with relays and without, so that both can be compared.
Without relays and without a limit the overlay behaves as if this module did not exist.
"""

from collections.abc import Callable
from math import exp, log
from random import Random

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.relays.cost_model import interest_at
from nearcast.protocols.relays.parameters import Parameters
from nearcast.protocols.relays.relays import Relays

SWITCH = ("on", "off")
KBIT = 1000 / 8  # bytes
UNLIMITED = 2.0**40 - 1  # bytes per second: the largest that PeerStatus can hold
LEAST_INTEREST = 0.01  # of a peer just outside, which may have come nearer meanwhile


class RelayLayerParameters(Struct, frozen=True, kw_only=True):
    """Settings of the layer; an overlay's own parameters include them."""

    # on or off: do neighbours forward what is sent directly otherwise?
    relays: str = "off"
    # Uplinks of peers in kbit/s, 1 to 1e7, for what they tell directly: between these, by chance;
    # the logarithm is uniform ([Lehn] V). Both 0: without a limit.
    uplink_min: float = 0.0
    uplink_max: float = 0.0
    # Milliseconds between two steps of a peer's optimisation, 50 to 1e6; traffic of its own shrinks
    # and adaptation and repair slow down as it grows.
    interval_ms: float = 500.0

    def __post_init__(self) -> None:
        one_of("relays", self.relays, SWITCH)
        if self.uplink_min != 0 or self.uplink_max != 0:
            check_uplinks(self.uplink_min, self.uplink_max)
        self.steps  # noqa: B018  it checks the rest

    @property
    def steps(self) -> Parameters:
        return Parameters(interval_ms=self.interval_ms)


def check_uplinks(least: float, most: float) -> None:
    between("uplink_max", most, 1, 1e7)
    between("uplink_min", least, 1, most)


def capacity_of(least: float, most: float, rng: Random) -> float:
    """A random uplink capacity in bytes per second, given the range in kbit/s."""
    return exp(rng.uniform(log(least), log(most))) * KBIT


def relays_of(
    node: Node,
    layer: RelayLayerParameters,
    is_acquainted: Callable[[NodeId], bool],
    *,
    for_others: bool = False,
) -> Relays | None:
    """The relays of a node; None: the node sends directly. `for_others`: see `Relays`."""
    is_limited = layer.uplink_max > 0
    if layer.relays == "off" and not is_limited:
        return None
    capacity = UNLIMITED
    if is_limited:
        capacity = capacity_of(layer.uplink_min, layer.uplink_max, node.rng)
    # A random stream of its own: all other draws of a run are the same without relays.
    return Relays(
        node.id, node.out, Random(node.id), lambda: node.now, layer.steps, capacity, is_acquainted,
        optimises=layer.relays == "on", for_others=for_others,
    )  # fmt: skip


def interest_of(away: float, radius: float) -> float:
    """Interest of a peer with this vision radius in a publication at this distance."""
    return max(interest_at(away, radius), LEAST_INTEREST)
