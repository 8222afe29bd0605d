"""Interests that are polygons: every overlay delivers exactly what touches them."""

from math import cos, pi, sin

import pyarrow as pa
import pytest

from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario, Setting
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND
from nearcast.space.outline_shapes import polygon
from nearcast.space.shapes import Shape
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads import walker
from support.brute_force import delivered, expected

STANDS = 1e-6  # units a second: the slowest that a walker may be
SETTLED = 3 * SECOND  # after the first publication bubbles are as large as they should be
# Bubbles meet by chance: with this λ, of a thousand pairs two or three do not. All see each other
# here, for which the usual budget of pSense is too small (`psense.test_budget`).
SETTINGS: dict[str, dict[str, Setting]] = {
    "bubblestorm": {"lambda": 6.0},
    "psense": {"limit": 10_000},
}


def star(x: float, y: float, _: float, radius: float) -> Shape:
    """Four arms: a quarter of its box, which has the walker in its middle."""
    reaches = [radius, 0.35 * radius] * 4
    turns = [pi * k / 4 for k in range(8)]
    return polygon(
        [[(x + r * cos(a), y + r * sin(a)) for r, a in zip(reaches, turns, strict=True)]]
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_polygons_receive_exactly_what_touches_them(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walker, "ball", star)
    memory = MemoryTrace()
    settings: dict[str, Setting] = {"size": 200.0, "radius": 100.0, "speed": STANDS, "rate": 2.0}
    scenario = Scenario(
        protocol=protocol, workload="waypoint", nodes=16, seconds=6.0, seed=3,
        settings=settings | SETTINGS.get(protocol, {}),
    )  # fmt: skip
    world = SimulatedWorld(scenario, lambda _: Recorder(memory), check=True)
    world.run()
    world.recorder.close()
    interests, publications = memory.table("interests"), memory.table("publications")
    assert interests.column("outline").null_count == 0
    times = publications.column("t").to_numpy()
    publications = publications.filter(pa.array(times >= times.min() + SETTLED))
    late = set(publications.column("publication").to_pylist())
    received = [pair for pair in delivered(memory.table("deliveries")) if pair[0] in late]
    should = expected(interests, publications)
    in_boxes = expected(interests.set_column(
        interests.schema.get_field_index("outline"), "outline", [[None] * len(interests)]
    ), publications)  # fmt: skip
    assert len(should) > 20 and 2 * len(should) < len(in_boxes), "outlines decide"
    assert len(set(received)) == len(received) and set(received) <= should
    missed = should - set(received)
    assert len(missed) <= (0.02 * len(should) if protocol == "bubblestorm" else 0)
