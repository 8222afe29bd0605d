"""How many peers a pSense peer can serve with the bytes of a round."""

from math import sqrt

import pyarrow as pa
import pytest

from nearcast.space.motion import SECOND
from nearcast.space.shapes import Shape, box, disc
from nearcast.workloads import walker
from support.brute_force import delivered, expected
from support.psense_peers import run

SETTLED = 3 * SECOND  # after the first publication


def square(x: float, y: float, _: float, radius: float) -> Shape:
    return box(x, y, radius, radius)


def disc_around_square(x: float, y: float, _: float, radius: float) -> Shape:
    return disc(x, y, sqrt(2) * radius)


def share_missed(limit: int) -> float:
    """Of 16 peers that stand and all see each other."""
    trace = run(16, 6.0, 3, size=200.0, radius=100.0, speed=1e-6, rate=2.0, limit=limit)
    made = trace.table("publications")
    times = made.column("t").to_numpy()
    made = made.filter(pa.array(times >= times.min() + SETTLED))
    should = expected(trace.table("interests"), made)
    return len(should - set(delivered(trace.table("deliveries")))) / len(should)


@pytest.mark.parametrize("shape", [square, disc_around_square])
def test_what_does_not_fit_into_a_round_is_missed_whatever_the_form_of_areas(
    shape: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round with a publication takes 15 positions of 103 bytes, 15 publications of 240, and 960
    bytes for sensors: 6,100 in all. A box is seen as the disc around it."""
    monkeypatch.setattr(walker, "ball", shape)
    assert share_missed(5_000) > 0.1
    assert share_missed(6_500) == 0
