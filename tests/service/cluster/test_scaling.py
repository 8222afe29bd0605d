"""Nodes that stand by come when the load needs them and leave when it does not; nobody notices."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.service.cluster.departure import WITHOUT_PROGRESS
from nearcast.service.cluster.messages import CODEC, CallIn, ClusterJoinRequest, NodeHeartbeat
from nearcast.service.cluster.scaling import (
    FALLEN,
    Candidate,
    Load,
    Overload,
    Role,
    ScalingParameters,
    can_carry,
    choose_leaving,
    choose_standby,
    patience,
)
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.server_host import ServerHost
from nearcast.sim.cluster.world import ClusterWorld
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.cluster_scenarios import CROWDS, cluster_scenario, run_cluster
from support.cluster_scripts import ClusterScript, ScriptedClient
from support.examples import choices, seeds

ACTIVE, STANDING_BY, ENTERING, LEAVING = Role
CAPACITY = 10.0

# Decisions.


def active(share: float = 0.5, capacity: float = 10.0, standby: bool = True) -> Candidate:
    return Candidate(ACTIVE, share, capacity, standby)


def waiting(capacity: float = 10.0, role: Role = STANDING_BY) -> Candidate:
    return Candidate(role, 0.0, capacity, True)


def test_a_load_share_is_the_largest_of_subscriptions_deliveries_and_cpu() -> None:
    parameters = ScalingParameters(capacity=20.0, cpu_limit=0.5)
    assert Load(10, 0.0, 0.0).share(parameters) == 0.5
    assert Load(10, 160.0, 0.0).share(parameters) == 0.8
    assert Load(10, 160.0, 0.45).share(parameters) == 0.9
    assert Load(26, 10.0, 0.1).reason(parameters) == "26 of 20 subscriptions"
    assert Load(1, 300.0, 0.1).reason(parameters) == "300 of 200 deliveries a second"
    assert Load(1, 1.0, 0.6).reason(parameters) == "60% of a CPU core"
    assert Load(1, 0.0, 9.0).share(ScalingParameters(capacity=2.0, cpu_limit=0.0)) == 0.5


def test_marks_that_cannot_be_kept_apart_are_refused() -> None:
    with pytest.raises(ValueError, match=r"low \(0.8\) must be below high \(0.8\)"):
        ScalingParameters(low=0.8)


def test_the_most_capable_standby_is_called_in_and_the_next_if_it_does_not_come() -> None:
    nodes = {1: active(), 2: waiting(10.0), 3: waiting(30.0), 4: waiting(30.0)}
    assert choose_standby(nodes) == 3
    assert choose_standby(nodes, {3: None}) == 4
    assert choose_standby(nodes, {3: None, 4: None}) == 2
    assert choose_standby({1: active(), 2: waiting(role=ENTERING)}) is None
    assert choose_standby({1: active(), 2: waiting(role=LEAVING)}) == 2, "it comes back"


def test_the_node_with_the_least_load_leaves_if_it_may() -> None:
    nodes = {1: active(0.0, standby=False), 2: active(0.2), 3: active(0.1), 4: active(0.1)}
    assert choose_leaving(nodes, 0.25) == 3
    assert choose_leaving({**nodes, 5: waiting(role=ENTERING)}, 0.25) is None
    assert choose_leaving({**nodes, 5: waiting(role=LEAVING)}, 0.25) is None
    assert choose_leaving({**nodes, 5: waiting()}, 0.25) == 3
    assert choose_leaving(nodes, 0.1) is None
    assert choose_leaving({3: active(0.0), 5: waiting()}, 0.25) is None, "the only one"


candidates = st.builds(
    Candidate, st.sampled_from(Role), st.floats(0, 2), st.floats(1, 100), st.booleans()
)


@given(nodes=st.dictionaries(st.integers(1, 6), candidates))
def test_all_agree_who_leaves_whatever_order_they_know_each_other_in(
    nodes: dict[int, Candidate],
) -> None:
    chosen = choose_leaving(nodes, 0.25)
    assert choose_leaving(dict(reversed(nodes.items())), 0.25) == chosen
    assert chosen is None or nodes[chosen].standby
    called = choose_standby(nodes)
    assert choose_standby(dict(reversed(nodes.items()))) == called
    assert called is None or nodes[called].role in (STANDING_BY, LEAVING)


def test_a_node_leaves_only_if_the_others_can_carry_its_load_with_room_to_spare() -> None:
    nodes = {1: active(0.4), 2: active(0.4, capacity=30.0), 3: waiting(100.0)}
    carries = partial(can_carry, nodes.values(), nodes=nodes, high=0.8)
    assert carries(0.2, 10.0, {2: 2.0})
    assert not carries(0.9, 10.0, {2: 9.0}), "together they would be above 0.6"
    assert not carries(0.2, 10.0, {1: 4.0}), "one of them would be"
    assert not can_carry([waiting()], 0.0, 10.0, {}, {}, 0.8), "nobody is active"
    busy = {1: active(0.9), 2: active(0.0, capacity=100.0)}
    assert not can_carry(busy.values(), 0.0, 10.0, {}, busy, 0.8), "it may be needed there"


def test_overload_that_falls_is_being_helped_and_its_time_begins_again() -> None:
    overload = Overload()
    assert [overload.lasts(t, share, 0.8) for t, share in ((0, 0.7), (5, 0.9), (9, 1.0))] == [
        0,
        0,
        4,
    ]
    assert overload.lasts(10, 0.9, 0.8) == 5
    assert overload.lasts(11, 0.9 - 2 * FALLEN, 0.8) == 0
    assert overload.lasts(15, 0.95, 0.8) == 4
    assert overload.lasts(16, 0.8, 0.8) == 0


def test_while_others_have_room_a_node_gives_its_neighbours_time_to_help_first() -> None:
    parameters = ScalingParameters(high_s=2.0)
    full, free = {1: active(0.9), 2: active(0.5)}, {1: active(0.9), 2: active(0.2), 3: waiting(99)}
    assert patience(full.values(), parameters) == 2 * SECOND
    assert patience(free.values(), parameters) == 6 * SECOND


def test_a_node_that_does_not_know_of_standbys_is_understood() -> None:
    """Fields were added at the end: what is not there has its default."""
    beat = NodeHeartbeat("ws://old", 0.5, None, (7,))
    frame = CODEC.encode(beat)
    assert CODEC.decode(frame) == beat
    array = msgspec.msgpack.decode(frame)
    old = CODEC.decode(msgspec.msgpack.encode(array[:5]))
    assert old == beat
    assert Candidate.of(beat).role is ACTIVE
    join = msgspec.msgpack.decode(CODEC.encode(ClusterJoinRequest("ws://old")))
    assert CODEC.decode(msgspec.msgpack.encode(join[:2])) == ClusterJoinRequest("ws://old")


# A cluster.


class ScalingScript(ClusterScript):
    """One server that is always active, and some that stand by."""

    def __init__(self, seed: int, standbys: int = 2) -> None:
        super().__init__(
            seed, servers=1 + standbys, standbys=standbys, capacity=CAPACITY, high_s=2, low_s=6,
            flush_ms=20,
        )  # fmt: skip
        self.first, *self.standbys = self.servers
        self.url = {server.id: server.url for server in self.servers}

    def roles(self) -> Counter[Role]:
        return Counter(server.role for server in self.servers)

    def decided(self) -> Counter[str]:
        return decisions(self.memory, self.world)

    def come(self, count: int) -> list[ScriptedClient]:
        """By any server that clients are told of."""
        found = []
        for number in range(count):
            active = [server for server in self.servers if server.role is ACTIVE]
            server = self.random.choice(active)
            found.append(self.client(server, *self.place(), retains=number % 2 == 0))
            self.talk(0.1)
        return found

    def servers_of(self, clients: Sequence[ScriptedClient]) -> list[ServerHost]:
        return [client.server for client in clients]


def decisions(memory: MemoryTrace, world: ClusterWorld) -> Counter[str]:
    world.recorder.flush()
    facts = Counter(memory.table("notes").column("fact").to_pylist())
    return Counter({f: facts[f] for f in ("called in", "stood down", "returned") if facts[f]})


CALM = Counter({ACTIVE: 1, STANDING_BY: 2})


@choices("seed, rises", [(1, 2)], [(1, 3), (2, 3)])
def test_whenever_load_rises_nodes_are_called_in_and_whenever_it_falls_they_stand_down(
    seed: int, rises: int
) -> None:
    crowds = {**CROWDS, "flash_s": 30, "flash_every": 75}
    memory = MemoryTrace()
    world = ClusterWorld(
        cluster_scenario(seed, 3, 2 + rises * 75, **crowds), lambda _: Recorder(memory, "all")
    )
    world.set_up()
    seen: list[tuple[Counter[Role], Counter[str], int]] = []

    def look() -> None:
        roles = Counter(server.role for server in world.servers)
        serving = {client.connection.server for client in world.clients if client.connection}
        seen.append((roles, decisions(memory, world), len(serving)))

    for times in range(rises):
        comes = world.begins + (2 + 75 * times) * SECOND
        for after in (18, 30, 60, 75):  # all are active, and stay; all stand by, and stay
            world.at(comes + after * SECOND - 1, look)
    world.run()
    expected = []
    for times in range(1, rises + 1):
        up = {"called in": 2 * times, "stood down": 2 * times - 2}
        down = {"called in": 2 * times, "stood down": 2 * times}
        # Each server serves some of them; then the first one serves all.
        expected += 2 * [(Counter({ACTIVE: 3}), Counter({k: n for k, n in up.items() if n}), 3)]
        expected += 2 * [(CALM, Counter(down), 1)]
    assert seen == expected
    assert sum(client.handovers for client in world.clients) > 0, "also who stays is handed over"
    facts = Counter(memory.table("notes").column("fact").to_pylist())
    assert facts["arrived"] > 10
    assert world.checker is not None
    assert world.checker.expected > 300
    assert all(span.fact == "left" for span in world.faults.spans)


def test_clients_are_told_of_active_nodes_or_if_there_are_no_others_of_standbys() -> None:
    script = ScalingScript(3)
    first, urls = script.first.service.cluster, [server.url for server in script.standbys]
    assert first.urls() == urls, "should it fail, one of them takes over"
    assert script.standbys[0].service.cluster.urls() == [script.first.url]
    script.come(10)
    script.talk_until(lambda: script.roles()[ACTIVE] == 2)
    script.talk(1.0)
    (called,) = (server for server in script.standbys if server.role is ACTIVE)
    assert first.urls() == [called.url]
    scaling = called.service.cluster.scaling
    assert "of 10 subscriptions" in scaling.reason and script.first.url in scaling.reason
    assert first.nodes[called.id].beat.reason == scaling.reason


def test_a_client_that_comes_to_a_node_that_stands_by_is_handed_over_to_an_active_one() -> None:
    script = ScalingScript(4)
    client = script.client(script.standbys[0], *script.place())
    script.come(2)
    script.talk_until(lambda: client.server is script.first)
    script.talk(2.0)
    assert script.roles() == CALM
    assert script.check(script.world.begins) > 10


def test_a_standby_that_does_not_come_is_passed_over() -> None:
    script = ScalingScript(5)
    deaf, other = script.standbys
    script.come(3)
    script.world.inject.lose(lambda _, to, message: to is deaf and isinstance(message, CallIn))
    script.come(12)
    script.talk_until(lambda: other.role is ACTIVE)
    assert deaf.role is STANDING_BY


@pytest.mark.parametrize("resigns", [False, True])
def test_a_node_that_is_called_in_while_it_leaves_returns_and_loses_nobody(resigns: bool) -> None:
    """Whether it still has its part, or must enter again."""
    script = ScalingScript(6, standbys=1)
    world, (called,) = script.world, script.standbys
    stay, crowd = script.come(3), script.come(11)
    script.talk_until(lambda: script.roles()[ACTIVE] == 2)
    script.talk(8.0)
    for client in crowd[:-1]:
        script.leave(client)
    cluster = called.service.cluster
    scaling = cluster.scaling
    script.wait_exactly(lambda: scaling.role is LEAVING)
    if resigns:
        script.wait_exactly(lambda: cluster.site.ownership.leaving)
    assert scaling.role is LEAVING
    call = CallIn(script.place(), script.first.id, 1.0, "needed again")
    world.faults.add("called in without need", world.now, world.now)
    world.carry(script.first, called.id, call, CODEC.encode(call))
    script.talk_until(lambda: scaling.role is ACTIVE and scaling.reason == "needed again", 20)
    again = script.come(8)
    script.talk(6.0)
    if resigns:
        assert script.decided() == {"called in": 2, "stood down": 1}
    else:
        assert script.decided() == {"called in": 1, "returned": 1}
    assert len(set(script.servers_of([*stay, *again]))) == 2
    assert script.check(world.begins) > 100


def test_if_the_only_active_node_crashes_a_standby_takes_over() -> None:
    script = ScalingScript(7)
    second, third = script.standbys
    script.world.inject.crash(script.first)
    script.world.wait("nobody takes over", lambda: script.roles()[ACTIVE] == 1)
    assert (second.role, third.role) == (ACTIVE, STANDING_BY)
    assert second.service.cluster.scaling.reason == "no node was active"
    since = script.world.now
    clients = [script.client(server, 50.0, 50.0) for server in (second, third)]
    script.run(2.0)
    script.talk(8.0)
    assert script.servers_of(clients) == [second] * 2
    assert script.check(since) > 10


def test_a_mesh_that_was_lost_with_all_who_were_in_it_is_founded_again() -> None:
    """The only active node is restarted at once. One that stands by lets it in, to the mesh of the
    one that has crashed, and then crashes itself."""
    script = ScalingScript(11, standbys=1)
    world, (standby,) = script.world, script.standbys
    world.inject.crash(script.first, restarts_after=SECOND // 100)
    script.run(2.0)
    (again,) = (server for server in script.servers if server is not standby)
    assert list(again.service.cluster.nodes) == [standby.id]
    world.inject.crash(standby, restarts_after=6 * SECOND)
    world.wait("there is no mesh", lambda: again.service.cluster.site.ready, 10 * SECOND)
    world.wait("it is alone", lambda: len(again.service.cluster.nodes) == 1, 10 * SECOND)
    script.client(again, 50.0, 50.0)
    script.check()
    assert script.roles() == {ACTIVE: 1, STANDING_BY: 1}


def test_if_the_only_active_node_stops_a_standby_takes_its_clients_and_nothing_is_lost() -> None:
    script = ScalingScript(8)
    stay, first, second = script.come(5), script.first, script.standbys[0]
    first.leave()
    script.talk_until(lambda: not first.alive, 30)
    assert script.servers_of(stay) == [second] * 5
    assert second.service.cluster.scaling.reason == f"{first.url} stops"
    script.talk(3.0)
    assert script.check(script.world.begins) > 30


def test_a_node_that_stops_waits_as_long_as_its_clients_leave_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine each takes seconds; together far longer than any one may take."""
    script = ClusterScript(9, servers=2)
    world, (first, second) = script.world, script.servers
    x, y = first.service.cluster.site.place
    clients = [script.client(first, x, y) for _ in range(6)]
    hosts = [client.host for client in clients]
    script.run(2.0)
    read, told = ClientHost._on_notice, Counter[ClientHost]()

    def read_later(host: ClientHost, connection: Any, kind: type[Struct], notice: Any) -> None:
        """Each is offered several times, and misses one more offer than the one before it."""
        told[host] += kind is messages.MovedNotice
        if kind is not messages.MovedNotice or told[host] > hosts.index(host):
            read(host, connection, kind, notice)

    monkeypatch.setattr(ClientHost, "_on_notice", read_later)
    began = world.now
    first.leave()
    world.wait("it has not stopped", lambda: not first.alive)
    assert world.now - began > 2 * WITHOUT_PROGRESS
    assert [client.server for client in clients] == [second] * 6
    script.check(world.begins)


def run_under_faults(seed: int) -> tuple[ClusterWorld, MemoryTrace]:
    """Nodes stand still and links are cut while they enter and leave."""
    crowds = {**CROWDS, "flash_s": 20, "flash_every": 50}
    world, memory = run_cluster(
        cluster_scenario(
            seed, 3, 2 + 2 * 50, handover_fault=0.02, halt_s=3, cut_s=3, slow=0.03, **crowds
        ),
        "all",
    )
    assert {span.fact for span in world.faults.spans if span.client is not None} == {"left"}
    assert len([span for span in world.faults.spans if span.client is None]) > 5
    world.wait(
        "not all stand by", lambda: Counter(one.role for one in world.servers) == CALM, 60 * SECOND
    )
    return world, memory


@seeds([1], [2, 7])
def test_under_faults_no_client_is_lost_and_afterwards_all_is_exact_again(seed: int) -> None:
    """With seeds 1 and 7, every confirmation of a handover is lost."""
    world, memory = run_under_faults(seed)
    decided = decisions(memory, world)
    assert decided["called in"] >= 4 and decided["stood down"] >= 3


def test_an_active_node_that_was_cut_off_from_all_that_stand_by_finds_them_again() -> None:
    """They begin anew meanwhile, so there are two clusters."""
    world, memory = run_under_faults(3)
    notes = memory.table("notes").to_pylist()
    lost = {(one["node"], one["about"]) for one in notes if one["fact"] == "node lost"}
    first, *standbys = sorted(server.id for server in world.servers)
    assert lost >= {(first, other) for other in standbys} | {(other, first) for other in standbys}
