"""`python -m nearcast.cli.compile_kernels`: compile what is compiled, before anybody waits for it.

numba keeps a compiled kernel beside its source and compiles it again when that file has changed, so
this may run at any time. `make setup` runs it, and `make test` before all tests.
"""

import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from nearcast.demo import engine_comparison
from nearcast.fences.areas import Fence, columns_of, polygon_columns
from nearcast.fences.events import fixes_of
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.near_pairs import NearPairs
from nearcast.fences.sound_polygons import GivenPolygon, Position, sound_polygons
from nearcast.matching.grid import GridMatcher
from nearcast.model.subscription import Subscription
from nearcast.pipeline.jobs.note_replay import FACTS, replay_links, replay_owners
from nearcast.pipeline.truth import join
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.relays import rounds
from nearcast.protocols.relays.cost_model import Weights
from nearcast.protocols.voronoi import local_diagram
from nearcast.scenario import Scenario, Setting
from nearcast.server import server
from nearcast.sim.run import simulate
from nearcast.space.motion import Moving
from nearcast.space.outline_shapes import polygon
from nearcast.space.outlines import outline_text
from nearcast.space.shapes import disc
from nearcast.trace import earth_columns, reader


def use_grid() -> None:
    """What nobody else here calls."""
    grid = GridMatcher()
    grid.put(Subscription(1, 1, Moving(disc(0.0, 0.0, 1.0))))
    grid.move_many(np.array([1]), np.zeros((1, 3)), 0)


def use_fences() -> None:
    """A fence of each kind that has kernels of its own, and an entity that crosses them."""
    engine = FenceEngine()
    square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    engine.put_fences(polygon_columns([1, 2, 3, 4, 5], square * 5, range(0, 20, 4), [1] * 5), 0)
    engine.put_fences(columns_of([Fence(6, Moving(disc(0.0, 0.0, 1.0)), 63, dwell=1)], 0), 0)
    engine.fixes(fixes_of([1, 1], [0, 1], [(-2.0, 0.5), (2.0, 0.5)]))
    engine.move_fences(columns_of([Fence(6, Moving(disc(2.0, 0.0, 1.0)))], 1), np.array([1]))
    engine.withdraw([1], 2)
    many = range(1_000)  # more than there is room for at first
    engine.fixes(fixes_of(many, [3] * len(many), [(0.5, 0.5)] * len(many)))
    ring = [Position(x, y) for x, y in (*square, square[0])]
    sound_polygons([GivenPolygon([[ring]])], False)
    pairs = NearPairs(1.0, 10)
    pairs.fixes(fixes_of(many, [3] * len(many), [(10.0 * one, 0.5) for one in many]))


def use_earth() -> None:
    """Columns of places, as importers and reports have them."""
    ecef = earth_columns.ecef_columns(np.zeros(1), np.zeros(1))
    earth_columns.lon_lat_columns(*earth_columns.raised_to_surface(*ecef))


def use_pipeline(trace: Path) -> None:
    """What the jobs on Spark compute by kernels."""
    interests, publications = (reader.read(trace, name) for name in ("interests", "publications"))
    square = polygon([[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]]).outline
    assert square is not None
    texts = pa.array([outline_text(square)] * len(interests))
    outlined = interests.drop_columns(["outline"]).append_column("outline", texts)
    for areas in (interests, outlined):
        spans = join.interest_spans(areas)
        for _ in join.find_pairs(spans, join.sort_by_time(publications)):
            pass
    count = len(FACTS)
    seconds: dict[str, object] = {"second": [0] * count, "t": range(count)}
    notes = {"node": [1] * count, "other": [2] * count, "value": [0.0] * count, "fact": FACTS}
    replay_links(pa.table(seconds | notes))
    replay_owners(pa.table(seconds | {"subscription": [1] * count, "owner": range(count)}))


def use_round_model() -> None:
    flows = rounds.flows(np.ones((4, 4)), np.ones((4, 4)), np.ones(4))
    for _ in rounds.optimise(flows, Weights(), 0.0, 1, Random(0)):
        pass


def use_simulator(folder: Path) -> None:
    dense: dict[str, Setting] = {"size": 100.0}  # so that one message goes to several
    for protocol in PROTOCOLS:
        small = Scenario(
            protocol=protocol, workload="waypoint", nodes=12, seconds=3.0, settings=dense
        )
        simulate(small, folder / protocol)
    use_pipeline(folder / protocol)


def compile_kernels() -> None:
    """Use everything that has kernels once, in a small world each."""
    server.warm_up()
    local_diagram.warm_up()
    engine_comparison.warm()
    use_grid()
    use_fences()
    use_earth()
    use_round_model()
    with TemporaryDirectory() as folder:
        use_simulator(Path(folder))


if __name__ == "__main__":
    sys.stderr.write("nearcast: compiling kernels; the first time this takes a minute\n")
    compile_kernels()
