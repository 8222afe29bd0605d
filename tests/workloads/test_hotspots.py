"""The workload of [DRtree] VI.A."""

from itertools import islice
from math import dist
from statistics import mean, stdev

import pytest

from nearcast.model.commands import Publish, Subscribe
from nearcast.space.motion import SECOND
from nearcast.space.shapes import BOX, Shape
from nearcast.workloads.hotspots import Hotspots, Parameters, hotspot_count, make
from nearcast.workloads.workload import Scheduled


def made(entities: int = 1024, seed: int = 1, **chosen: object) -> Hotspots:
    workload = make(Parameters(**chosen), entities, 600.0, seed)
    assert isinstance(workload, Hotspots)
    return workload


def areas(workload: Hotspots) -> list[Shape]:
    return [workload.life(entity, 0, 0).area for entity in range(workload.entities)]


def opening(workload: Hotspots, entity: int, commands: int) -> list[Scheduled]:
    return list(islice(workload.life(entity, 0, 0).commands(), commands))


@pytest.mark.parametrize(
    ("hotspots", "many"), [("cold", 0), ("warm", 128), ("hot", 32), ("burning", 10)]
)
def test_1024_peers_have_the_papers_numbers_of_hotspots(hotspots: str, many: int) -> None:
    assert hotspot_count(hotspots, 1024) == many
    assert len(made(hotspots=hotspots).hotspots) == many


@pytest.mark.parametrize("hotspots", ["warm", "hot", "burning"])
def test_a_single_peer_has_a_hotspot_too(hotspots: str) -> None:
    assert hotspot_count(hotspots, 1) == 1


@pytest.mark.parametrize("hotspots", ["cold", "burning"])
def test_sides_are_uniform_between_5_and_50_and_centres_lie_in_the_world(hotspots: str) -> None:
    boxes = areas(made(hotspots=hotspots))
    assert all(box.kind == BOX and box.z == box.rz == 0 for box in boxes)
    sides = [2 * side for box in boxes for side in (box.rx, box.ry)]
    assert 5 <= min(sides) < 6
    assert 49 < max(sides) <= 50
    assert mean(sides) == pytest.approx(27.5, abs=1)
    assert all(0 <= place <= 1024 for box in boxes for place in (box.x, box.y))


def test_cold_centres_are_spread_over_the_whole_world() -> None:
    boxes = areas(made(hotspots="cold"))
    quarters = [(int(box.x // 512), int(box.y // 512)) for box in boxes]
    assert all(200 < quarters.count((i, j)) < 312 for i in (0, 1) for j in (0, 1))


def test_centres_scatter_about_the_hotspots_with_the_spread() -> None:
    workload = made(hotspots="burning", entities=2, spread=30.0)  # one hotspot: log2(2)
    (x, y, _) = workload.hotspots[0]
    assert all(100 < place < 924 for place in (x, y))  # so that no centre is clamped
    boxes = [workload.life(entity, 0, 0).area for entity in range(2000)]
    assert mean(box.x for box in boxes) == pytest.approx(x, abs=3)
    assert stdev(box.x for box in boxes) == pytest.approx(30, rel=0.1)
    assert stdev(box.y for box in boxes) == pytest.approx(30, rel=0.1)


def test_every_hotspot_draws_about_as_many_as_any_other() -> None:
    workload = made(hotspots="burning", entities=1024, spread=0.0)
    centres = [(box.x, box.y, box.z) for box in areas(workload)]
    assert sorted(set(centres)) == sorted(workload.hotspots)
    assert all(60 < centres.count(place) < 150 for place in workload.hotspots)


def test_hotter_worlds_overlap_more() -> None:
    def overlaps(hotspots: str) -> int:
        boxes = areas(made(hotspots=hotspots, entities=512, size=724.0))
        return sum(box.touches(other) for box in boxes for other in boxes)

    found = [overlaps(hotspots) for hotspots in ("cold", "warm", "hot", "burning")]
    assert found == sorted(set(found))


@pytest.mark.parametrize("dims", [2, 3])
def test_publications_lie_in_the_own_area_and_fill_it(dims: int) -> None:
    workload = made(entities=30, hotspots="hot", dims=dims)
    for entity in range(30):
        (_, subscribe), *rest = opening(workload, entity, 401)
        assert isinstance(subscribe, Subscribe)
        assert subscribe.echo
        area = subscribe.region.at(0)
        assert area.rz > 0 if dims == 3 else area.rz == 0
        places = [command.shape for _, command in rest if isinstance(command, Publish)]
        assert len(places) == 400
        assert all(area.touches(place) for place in places)
        assert max(place.x for place in places) > area.x + 0.9 * area.rx
        assert min(place.y for place in places) < area.y - 0.9 * area.ry
        if dims == 3:
            assert max(place.z for place in places) > area.z + 0.9 * area.rz


def test_each_period_has_one_publication_at_a_moment_of_its_own() -> None:
    _, *rest = opening(made(), 7, 301)
    assert [t // (2 * SECOND) for t, _ in rest] == list(range(300))
    within = [t % (2 * SECOND) / SECOND for t, _ in rest]
    assert mean(within) == pytest.approx(1.0, abs=0.12)
    assert max(within) - min(within) > 1.9


def test_a_peer_is_at_the_centre_of_its_area_and_stays_there() -> None:
    lived = made().life(3, 0, 0)
    assert lived.position(0) == lived.position(500 * SECOND)
    assert dist(lived.position(0), (lived.area.x, lived.area.y, 0.0)) == 0
