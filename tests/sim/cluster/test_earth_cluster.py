"""A simulated cluster on Earth: polygons, heights and moving discs are exact across nodes."""

from random import Random

import pytest

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.world import ClusterWorld
from nearcast.space.earth_shapes import earth_disc, great_circle_path
from nearcast.space.motion import SECOND, Moving, Path
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected
from support.cluster_scenarios import cluster_scenario
from support.earth_areas import EarthAreas


def region(rng: Random, areas: EarthAreas) -> Moving | Path:
    if rng.random() < 0.3:
        start = earth_disc(*areas.centre(), 30_000)
        return great_circle_path(start, [areas.centre(), areas.centre()], 20_000.0)
    return Moving(areas.area())


@pytest.mark.parametrize(("seed", "place"), [(1, (8.5, 47.4)), (2, (180.0, 5.0)), (3, (0.0, 90.0))])
def test_an_earth_cluster_delivers_exactly_the_truth(seed: int, place: tuple[float, float]) -> None:
    memory, rng = MemoryTrace(), Random(seed)
    areas = EarthAreas(rng, *place)
    world = ClusterWorld(
        cluster_scenario(seed, 1, 1, servers=3, geometry="earth"),
        lambda _: Recorder(memory, "all"),
    )
    world.set_up_servers()
    clients: list[ClientHost] = []
    for number in range(9):
        clients.append(world.add_client(world.servers[number % 3].url, retains=number % 2 == 0))
        world.wait("a client is not served", lambda: clients[-1].is_served)
        for subscription in (1, 2, 3):
            clients[-1].obey(Subscribe(subscription, region(rng, areas)))
    world.queue.run(world.now + SECOND)
    for _ in range(300):
        client = rng.choice(clients)
        if rng.random() < 0.1:
            client.obey(Move(rng.choice((1, 2, 3)), region(rng, areas)))
        else:
            client.obey(Publish(0, areas.place()))
        world.queue.run(world.now + SECOND // 50)
    world.queue.run(world.now + 3 * SECOND)
    world.recorder.close()
    publications = memory.table("publications")
    truth = expected(memory.table("interests"), publications)
    found = delivered(memory.table("deliveries"))
    assert len(found) == len(set(found)) > 200
    assert set(found) == truth
    assert publications.column("outline").null_count < publications.num_rows
    facts = memory.table("notes").column("fact").to_pylist()
    assert facts.count("arrived") > 0  # clients were handed over


def test_a_node_of_another_geometry_is_not_let_in() -> None:
    world = ClusterWorld(
        cluster_scenario(1, 1, 1, servers=1, geometry="earth"),
        lambda _: Recorder(MemoryTrace(), "none"),
    )
    world.set_up_servers()
    [server] = world.servers
    server.service.realm.geometry = "plane"
    world.add_server()
    newcomer = world.servers[1]
    world.wait("it was not refused", lambda: bool(newcomer.service.cluster.refused))
    assert newcomer.service.cluster.refused == "its geometry is 'plane', that of this node is not"
    assert not newcomer.service.cluster.joined
    assert server.service.cluster.nodes == {}
