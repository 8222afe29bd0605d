"""The checkers of a simulated cluster find what is wrong: each is shown a cluster with that bug."""

from functools import partial
from typing import Any

import pytest

from nearcast.errors import InvariantError
from nearcast.protocols.voronoi.ownership import Ownership
from nearcast.service.cluster.messages import ClientTransfer
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.routing import Routing
from nearcast.service.effects import DeliverFlush
from nearcast.sim.cluster import checkers
from nearcast.sim.cluster.checkers import FaultLog
from nearcast.sim.cluster.server_host import ServerHost
from nearcast.space.motion import SECOND
from support.cluster_scenarios import cluster_scenario, run_cluster
from support.cluster_scripts import ClusterScript


def test_a_failure_names_its_seed_and_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServerHost, "_on_deliver_flush", lambda *_: None)
    with pytest.raises(InvariantError) as failed:
        run_cluster(cluster_scenario(3))
    line = str(failed.value)
    assert "\n" not in line
    assert "deliveries are missing and no fault explains it" in line
    assert "(seed 3)" in line
    assert "nearcast simulate cluster --workload waypoint --nodes 12 --seconds 6 --seed 3" in line


def test_what_is_sent_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = ServerHost._on_deliver_flush

    def twice(self: ServerHost, effect: DeliverFlush) -> None:
        deliver(self, effect)
        deliver(self, effect)

    monkeypatch.setattr(ServerHost, "_on_deliver_flush", twice)
    with pytest.raises(InvariantError, match="twice"):
        run_cluster(cluster_scenario(1))


def test_what_is_delivered_in_vain_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ClusterRealm, "_match_versions",
        lambda _, __, found: (found.publication, found.subscription),
    )  # fmt: skip
    with pytest.raises(InvariantError, match=r"nobody asked for|, after \d+"):
        for seed in range(5):
            run_cluster(cluster_scenario(seed, motion="steps", slow=0.2))


def test_publications_that_are_not_routed_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Routing, "_send_outgoing", lambda *_: None)
    with pytest.raises(InvariantError, match="are missing"):
        run_cluster(cluster_scenario(1, retain=0))


def test_an_internal_error_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Routing, "route_flush", broken)
    with pytest.raises(InvariantError, match="could not be passed on"):
        run_cluster(cluster_scenario(1))


@pytest.mark.parametrize(
    ("deaf", "speaks", "explained"), [(0, 1, True), (0, 2, True), (2, 2, False), (0, 0, False)]
)
def test_a_fault_explains_only_what_it_touched(
    deaf: int, speaks: int, explained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link between the first two servers breaks, and one server delivers nothing. What is
    published and wanted on that one, no link has to carry."""
    script = ClusterScript(1, servers=3)
    world, servers = script.world, script.servers
    place, elsewhere = (servers[number].service.cluster.site.place for number in (deaf, speaks))
    script.client(servers[deaf], *place)
    speaker = script.client(servers[speaks], *elsewhere)
    script.run(2.0)
    world.inject.break_link(*servers[:2])
    monkeypatch.setitem(servers[deaf]._handlers, DeliverFlush, lambda _: None)
    speaker.publish(*place)
    script.run(1.0)
    monkeypatch.undo()
    if explained:
        world.judge()
        assert world.checker is not None and world.checker.missed > 0
    else:
        with pytest.raises(InvariantError, match="no fault explains it"):
            world.judge()


def test_two_owners_are_noticed_if_neither_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkers, "LONGEST_SHARED", 2 * SECOND)  # before their places are looked at
    script = ClusterScript(1, servers=2)
    owner, other = script.servers
    script.client(owner, *owner.service.cluster.site.place)
    script.run(2.0)
    ownership = owner.service.cluster.site.ownership
    (record,) = ownership.records.of(ownership.records.owned_by(owner.id))
    for step in ("tick", "_merge"):
        monkeypatch.setattr(Ownership, step, lambda *_: None)
    other.service.cluster.site.hold(record)
    script.run(1.5)
    with pytest.raises(InvariantError, match=f"both owned subscription {record.id} since"):
        script.run(4.0)


def test_a_fault_of_servers_lasts_until_its_end() -> None:
    faults = FaultLog()
    assert faults.last_of_servers(10) == 0
    faults.add("halted", 20, 40, servers=[1])
    faults.add("isolated", 50, 90, client=3)
    assert [faults.last_of_servers(t) for t in (10, 30, 60)] == [0, 30, 40]


def test_who_left_misses_nothing_though_the_server_it_was_handed_over_to_has_crashed() -> None:
    script = ClusterScript(2, servers=2)
    world, (first, second) = script.world, script.servers
    (x, y), place = first.service.cluster.site.place, second.service.cluster.site.place

    def crash(_: object, __: object, message: object) -> None:
        if isinstance(message, ClientTransfer) and second in world.servers:
            world.plan(0, partial(world.inject.crash, second))

    world.watchers.append(crash)
    stays, leaves = script.client(first, x, y), script.client(first, *place)
    world.wait("no client is handed over", lambda: second not in world.servers)
    script.run(5.0)
    assert leaves.server is first, "it was taken back"
    script.leave(leaves)
    script.run(12.0)  # then no fault explains a miss any more
    stays.publish(*place)
    script.check()
