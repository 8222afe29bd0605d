"""Update rates by distance: fewer messages of publishers that are far away.

A rule says: of each publisher farther than this from the area's centre, at most so many messages a
second. Of several rules that of the greatest distance holds. [Lucas2011] names such rings (near,
medium and far) as future work.
"""

from collections.abc import Sequence
from math import ceil, inf
from typing import TypeAlias

from nearcast.model.subscription import Formula, Region
from nearcast.space.motion import SECOND, Path, Time
from nearcast.space.shapes import EVERYWHERE

RULES = 4  # of one subscription
SLOWEST = 0.01  # messages a second, unless none
NEVER_AGAIN: Time = 2**63 - 1
Rates: TypeAlias = Sequence[tuple[float, float]]  # (beyond this distance, at most so many a second)


def check_rates(rates: Rates, region: Region | str) -> None:
    """ValueError if a value is out of range, or if the region has no centre."""
    if len(rates) > RULES:
        raise ValueError(f"a subscription has at most {RULES} rates")
    for beyond, most in rates:
        if not 0 <= beyond < inf:
            raise ValueError(f"a rate holds beyond a distance of 0 or more, not {beyond}")
        if most != 0 and not SLOWEST <= most < inf:
            raise ValueError(f"a rate is 0 or at least {SLOWEST} messages a second, not {most}")
    if rates and not has_centre(region):
        raise ValueError("rates and closest need an area with a centre")


def has_centre(region: Region | str) -> bool:
    if isinstance(region, str | Formula):
        return False
    return isinstance(region, Path) or region.shape != EVERYWHERE


def min_interval(most: float) -> Time:
    """Microseconds between two messages, so that there are at most so many a second."""
    return NEVER_AGAIN if most == 0 else ceil(SECOND / most)


def parse_rates(text: str) -> tuple[tuple[float, float], ...]:
    """`133:2, 267:1`: beyond 133 two a second, beyond 267 one. ValueError if it is not that."""
    rates = []
    for rule in filter(None, (part.strip() for part in text.split(","))):
        beyond, _, most = rule.partition(":")
        try:
            rates.append((float(beyond), float(most)))
        except ValueError:
            raise ValueError(
                f"{rule!r} is no rate: write DISTANCE:MESSAGES, as in 133:2, 267:1"
            ) from None
    return tuple(rates)
