"""A mesh of sites: everyone finds its neighbours and keeps them, whoever comes, moves and goes."""

from functools import cache
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.node import Send
from nearcast.protocols.voronoi.mesh import MeshEvent, Parameters, SiteInfo
from nearcast.protocols.voronoi.mesh_messages import (
    Bye,
    Hello,
    Moved,
    NearestSiteQuery,
    SiteIntroduction,
)
from nearcast.sim.network import ConstantDelay, Duplication, FaultyNetwork, Loss, Reordering
from nearcast.space import voronoi
from nearcast.space.motion import SECOND
from nearcast.space.shapes import BOX, DISC, POINT
from support.examples import crossed, examples, seeds
from support.mesh_nodes import CODEC, MeshNetwork, SiteNode, settled_mesh
from support.message_strategies import messages


@crossed("count, reach", [1, 2, 3, 4, 30, 100], [0.0, 80.0])
def test_sites_that_join_at_once_find_all_their_neighbours(count: int, reach: float) -> None:
    net = settled_mesh(count, reach=reach)
    net.pass_seconds(1)
    assert net.wrong() == []
    noticed = [notice for node in range(count) for notice in net.site_node(node).noticed]
    assert sorted(n.site for n in noticed if n.what == "joined") == list(range(count))


def test_a_request_goes_to_the_nearest_site_which_answers_whom_to_greet() -> None:
    net = settled_mesh(30)
    rng = Random(5)
    for node in range(100, 110):
        place = rng.uniform(0, 500), rng.uniform(0, 500)
        sites = {n: m.me.place for n, m in net.meshes().items() if m.me}
        net.join(node, place, rng.randrange(30))
        net.pass_seconds(1.5)
        assert voronoi.nearest(sites, *place) in net.meshes()[node].known
        assert net.wrong() == []


def test_sites_in_line_at_a_grid_and_at_one_place_are_neighbours_too() -> None:
    for places in (
        [(10.0 * n, 0.0) for n in range(12)],
        [(10.0 * (n % 4), 10.0 * (n // 4)) for n in range(16)],
        [(7.0, 7.0)] * 5 + [(0.0, 0.0), (20.0, 3.0)],
    ):
        net = MeshNetwork()
        for node, place in enumerate(places):
            net.join(node, place, 0 if node else None)
        net.settle(20)
        net.pass_seconds(10)
        assert net.wrong() == []


def test_neighbours_no_longer_needed_are_dropped_but_not_at_once() -> None:
    net = settled_mesh(40, linger_s=2.0, room=1.0)
    net.pass_seconds(6)
    mesh = net.meshes()[7]
    before = dict(mesh.known)
    net.act(7, lambda mesh: mesh.move_to((900.0, 900.0), 0.0))
    net.pass_seconds(1.5)
    assert all(node in mesh.known for node in before), "hysteresis: nobody is dropped at once"
    net.pass_seconds(6)
    assert net.wrong() == []
    assert len(mesh.known) < 8
    assert {n.what for n in net.site_node(7).noticed} >= {"came", "parted"}


def test_sites_that_walk_know_their_new_neighbours_while_they_walk() -> None:
    net, rng = settled_mesh(40, reach=60.0, room=20.0), Random(9)
    lacking = 0
    for _ in range(60):
        for node, mesh in net.meshes().items():
            assert mesh.me is not None
            x, y = (c + rng.uniform(-4, 4) for c in mesh.me.place)
            net.act(node, lambda mesh, x=x, y=y: mesh.move_to((x, y), 60.0))
        net.pass_seconds(0.2)
        places = {n: m.me.place for n, m in net.meshes().items() if m.me}
        for node, mesh in net.meshes().items():
            near = [
                o
                for o in places
                if o != node
                and np.hypot(places[o][0] - places[node][0], places[o][1] - places[node][1]) <= 60.0
            ]
            lacking += sum(other not in mesh.known for other in near)
    assert lacking == 0
    assert net.settle(10) <= 4


def test_who_leaves_is_forgotten_and_the_gap_is_closed() -> None:
    net, rng = settled_mesh(60), Random(4)
    for node in rng.sample(range(60), 20):
        net.act(node, lambda mesh: mesh.leave())
        assert net.site_node(node).mesh.known == {}
        net.pass_seconds(0.3)
        del net.simulation.nodes[node]
    assert net.settle(10) <= 2
    assert {n.what for node in net.meshes() for n in net.site_node(node).noticed} >= {"left"}


@seeds([1], [2, 3])
def test_after_a_quarter_has_crashed_at_once_the_mesh_is_whole_within_seconds(seed: int) -> None:
    """Silence is noticed after 3 beats; those around the dead know each other by then. Where
    several neighbours die at once it takes the next beats, or a probe."""
    net, rng = settled_mesh(60, seed=seed), Random(seed)
    net.pass_seconds(3)
    for node in rng.sample(range(60), 15):
        net.simulation.crash(node)
    assert net.settle(30) <= 16
    assert {n.what for node in net.meshes() for n in net.site_node(node).noticed} >= {"lost"}


def test_two_partitions_of_the_network_become_one_mesh_again() -> None:
    network = FaultyNetwork(ConstantDelay(50_000))
    net = settled_mesh(30, network=network)
    net.pass_seconds(3)
    network.group.update(dict.fromkeys(range(0, 30, 2), 1))
    net.pass_seconds(10)
    assert all(o % 2 == n % 2 for n, mesh in net.meshes().items() for o in mesh.known)
    network.group.clear()
    assert net.settle(40) <= 25


def test_on_a_bad_network_sites_find_each_other_all_the_same() -> None:
    rng = Random(3)
    bad = Loss(
        0.1, rng, Duplication(0.1, rng, Reordering(0.1, 300_000, rng, ConstantDelay(50_000)))
    )
    net = settled_mesh(60, network=bad, reach=50.0)
    for _ in range(5):
        net.settle(15)
        net.pass_seconds(5)


def test_a_first_contact_that_is_dead_can_be_replaced() -> None:
    net = settled_mesh(5)
    mesh = net.join(50, (3.0, 3.0), 99)
    net.pass_seconds(5)
    assert not mesh.joined
    net.act(50, lambda mesh: mesh.join_at((3.0, 3.0), 2))
    net.pass_seconds(2)
    assert net.wrong() == []


def test_a_site_that_others_mention_is_no_neighbour_before_it_answers() -> None:
    node = SiteNode(1)
    node.start(0)
    node.mesh.join_at((0.0, 0.0), None)
    ghost = SiteInfo(9, 5.0, 5.0, 0.0, 7)
    assert node.receive(10, 2, SiteIntroduction((ghost,))) == [
        Send(9, Hello(node.mesh.me, asks=True))
    ]
    assert node.receive(11, 2, SiteIntroduction((ghost,))) == [], "it was greeted a moment ago"
    assert node.mesh.neighbours() == {}
    node.receive(12, 9, Hello(ghost, asks=False))
    assert node.mesh.neighbours() == {9: (5.0, 5.0)}


def test_messages_in_the_name_of_another_and_old_messages_are_ignored() -> None:
    node = SiteNode(1)
    node.start(0)
    node.mesh.join_at((0.0, 0.0), None)
    node.receive(1, 2, Moved(SiteInfo(3, 5.0, 5.0, 0.0, 7)))
    assert node.mesh.neighbours() == {}
    node.receive(2, 2, Moved(SiteInfo(2, 5.0, 5.0, 0.0, 7)))
    node.receive(3, 2, Moved(SiteInfo(2, 6.0, 6.0, 0.0, 6)))
    assert node.mesh.neighbours() == {2: (5.0, 5.0)}
    node.receive(4, 2, Bye(7, ()))
    node.receive(5, 2, Moved(SiteInfo(2, 5.0, 5.0, 0.0, 7)))
    assert node.mesh.neighbours() == {}, "its goodbye was later"
    node.receive(6, 2, Moved(SiteInfo(2, 5.0, 5.0, 0.0, 8)))
    assert node.mesh.neighbours() == {2: (5.0, 5.0)}, "a later life"
    assert node.mesh.drain() == [
        MeshEvent("joined", 1), MeshEvent("came", 2), MeshEvent("left", 2), MeshEvent("came", 2)
    ]  # fmt: skip


def test_ways_to_a_point_end_at_its_owner_and_shortcuts_make_them_shorter() -> None:
    hops = {}
    for shortcuts in (0, 8):
        net, rng = MeshNetwork(shortcuts=shortcuts, probe_s=1.0), Random(2)
        for node in range(144):
            x, y = 10.0 * (node % 12), 10.0 * (node // 12)
            place = x + rng.uniform(-4, 4), y + rng.uniform(-4, 4)
            net.join(node, place, 0 if node else None)
        net.settle(30)
        net.pass_seconds(20)
        places = {n: m.me.place for n, m in net.meshes().items() if m.me}
        count = 0
        for _ in range(200):
            point = rng.uniform(0, 110), rng.uniform(0, 110)
            at = rng.randrange(144)
            while (hop := net.meshes()[at].next_hop(point)) is not None:
                at, count = hop, count + 1
            assert at == voronoi.nearest(places, *point)
        hops[shortcuts] = count / 200
    assert hops[8] < 0.75 * hops[0]


@cache
def sites_at_a_grid() -> MeshNetwork:
    net = MeshNetwork()
    for node in range(16):
        net.join(node, (10.0 * (node % 4), 10.0 * (node // 4)), 0 if node else None)
    net.settle(20)
    return net


@given(
    points=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20),
    reach=st.integers(0, 30),
    kind=st.sampled_from([POINT, DISC, BOX]),
)
@examples(100)
def test_owners_and_touched_regions_of_many_are_those_of_each(
    points: list[tuple[int, int]], reach: int, kind: int
) -> None:
    mesh = sites_at_a_grid().meshes()[0]
    places = mesh.diagram.places
    assert mesh.owners(points).tolist() == [voronoi.nearest(places, *map(float, p)) for p in points]
    x, y = np.array(points, float).T
    r = np.full(len(points), float(reach if kind != POINT else 0))
    found = mesh.touched(np.full(len(points), kind), x, y, r, r / 2)
    for row, (a, b) in enumerate(points):
        for column, site in enumerate(mesh.ids().tolist()):
            region = mesh.diagram.region(site)
            exact, more = (
                region.touches_box(a, b, r[row] + w, r[row] / 2 + w)
                if kind == BOX
                else region.touches_disc(a, b, r[row] + w)
                for w in (0.0, 1e-3)
            )
            assert exact <= found[row, column] <= more


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(*map(messages, CODEC.messages))), max_size=8)
)
@examples(80)
def test_no_message_in_any_order_breaks_a_site(messages: list[tuple[int, Any]]) -> None:
    node = SiteNode(1, Parameters(shortcuts=2))
    node.start(0)
    now = 0
    node.mesh.join_at((0.0, 0.0), None, 5.0)
    node.receive(1, 2, Hello(SiteInfo(2, 5.0, 5.0, 3.0, 7), asks=True))
    for sender, message in messages:
        now += SECOND // 2
        node.receive(now, sender, message)
        if hasattr(message, "site"):  # as its own sender would say it
            node.receive(now, message.site.id, message)
        node.mesh.tick(now)
        node.mesh.next_hop((3.0, 4.0))
        node.mesh.enclosing()
    node.mesh.move_to((1.0, 1.0), 9.0)
    node.receive(now + 1, 3, NearestSiteQuery(SiteInfo(3, 1.0, 2.0, 0.0, 1)))
    node.mesh.leave()
    assert node.mesh.neighbours() == {}
