"""Areas on Earth in every overlay: whoever is inside hears it, and nobody else.

Peers compute with ECEF places. Those that cut a plane route by x and y, which decides who may be
concerned and never who receives.
"""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario, Setting, to_json
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace, TraceFolder
from support.brute_force import delivered, expected
from support.earth_areas import EarthAreas

PEERS, SETTLED, SECONDS = 14, 12, 16.0
# Bubbles meet by chance, and each peer has others in view as far as its area reaches.
SETTINGS: dict[str, dict[str, Setting]] = {
    "bubblestorm": {"lambda": 6.0},
    "psense": {"limit": 40_000},
}


def recorded(folder: Path, lon: float, lat: float) -> str:
    """A trace in which each entity wants an area and publishes near it, when all have come."""
    areas = EarthAreas(Random(5), lon, lat)
    scenario = Scenario(protocol="live", workload="live", nodes=PEERS, seconds=SECONDS)
    sink = TraceFolder(folder, to_json(scenario))
    recorder = Recorder(sink)
    for node in range(PEERS):
        recorder.interest(0, Subscription(node, node, Moving(areas.area())))
    for number in range(12 * PEERS):
        t = SETTLED * SECOND + number * 20_000
        recorder.published(Publication(number, number % PEERS, t, areas.place()))
    recorder.close()
    sink.finish({})
    return str(folder)


@pytest.mark.parametrize("place", [(180.0, 52.0), (10.0, 89.5)], ids=["antimeridian", "pole"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_areas_on_earth_receive_exactly_what_touches_them(
    protocol: str, place: tuple[float, float], tmp_path: Path
) -> None:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol=protocol, workload="replayed", nodes=PEERS, seconds=SECONDS, seed=3,
        settings={"trace": recorded(tmp_path / "earth", *place)} | SETTINGS.get(protocol, {}),
    )  # fmt: skip
    world = SimulatedWorld(scenario, lambda _: Recorder(memory), check=True)
    world.run()
    world.recorder.close()
    interests, publications = memory.table("interests"), memory.table("publications")
    received = delivered(memory.table("deliveries"))
    should = expected(interests, publications)
    anywhere = interests.schema.get_field_index("outline")
    in_boxes = expected(
        interests.set_column(anywhere, "outline", pa.nulls(len(interests), pa.string())),
        publications,
    )
    assert len(should) > 100 and len(should) < 0.8 * len(in_boxes), "outlines decide"
    assert len(set(received)) == len(received) and set(received) <= should
    missed = should - set(received)
    assert len(missed) <= (0.02 * len(should) if protocol == "bubblestorm" else 0)
