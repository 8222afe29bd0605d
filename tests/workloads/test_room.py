"""Unless its size is set, a world grows with its population, so that its density stays."""

from math import dist

import pytest

from nearcast.cli.simulate import with_world_size
from nearcast.workloads import WORKLOADS


@pytest.mark.parametrize("name", ["waypoint", "hotspots", "clustering", "mammoth"])
def test_area_or_volume_grows_with_the_entities_beyond_a_thousand(name: str) -> None:
    kind = WORKLOADS[name]
    usual = kind.parameters().size
    assert kind.size_for(10, 2) == kind.size_for(1000, 2) == usual
    assert kind.size_for(100_000, 2) == pytest.approx(10 * usual)
    assert kind.size_for(64_000, 3) == pytest.approx(4 * usual)


def test_a_size_that_is_set_stays_and_a_world_without_a_size_gets_none() -> None:
    assert with_world_size("waypoint", 4000, {}) == {"size": "2000.0"}
    assert with_world_size("waypoint", 8000, {"dims": "3"}) == {"dims": "3", "size": "2000.0"}
    assert with_world_size("waypoint", 4000, {"size": "7"}) == {"size": "7"}
    for name in ("trading", "recorded", "nowhere"):
        assert with_world_size(name, 4000, {"rate": "1"}) == {"rate": "1"}


def test_four_times_as_many_walkers_meet_about_as_many_others() -> None:
    def met(entities: int) -> float:
        """Others within reach of the first hundred at the beginning, on average."""
        kind = WORKLOADS["waypoint"]
        size = kind.size_for(entities, 2)
        walking = kind.make(kind.parameters(size=size), entities, 1.0, 1)
        places = [walking.life(entity, 0, 0).position(0) for entity in range(entities)]
        return sum(dist(a, b) <= 50.0 for a in places[:100] for b in places) / 100 - 1

    assert met(4000) == pytest.approx(met(1000), rel=0.15)
