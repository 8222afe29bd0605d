"""Nodes that stand by come when the load needs them and leave when it does not; nobody notices."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.node import Note, Stop
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
from nearcast.space.motion import SECOND
from support.simulated_cluster_clients import (
    FaultInjector,
    HandoverCluster,
    HomeNode,
    SimulatedClient,
    place,
)

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


class ScalingNode(HomeNode):
    """Notes what it decides."""

    scaling = ScalingParameters(capacity=CAPACITY, high_s=2.0, low_s=6.0)
    parameters = replace(HomeNode.parameters, limit=0.8 * CAPACITY)

    def serve(self) -> None:
        super().serve()
        self.gateway.handlers[Note] = self._note

    def _note(self, note: Note) -> None:
        if note.fact in ("called in", "stood down", "returned"):
            self.sim_cluster.decided.append((note.fact, self.number))


class ScalingCluster(HandoverCluster):
    """One node that is always active, and some that stand by."""

    def __init__(self, seed: int, standbys: int = 2) -> None:
        self.decided: list[tuple[str, int]] = []
        super().__init__(seed, 1, ScalingNode, standbys)

    def roles(self) -> Counter[Role]:
        return Counter(node.member.scaling.role for node in self.nodes.values())

    def active(self) -> list[int]:
        return [n for n, node in self.nodes.items() if node.member.scaling.role is ACTIVE]

    def talk(self, seconds: float) -> None:
        """Those who are there publish, and walk a little."""
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            there = [
                one
                for one in self.clients
                if one.subscription is not None and not one.connection.over
            ]
            if not there:
                self.run(0.05)
                continue
            client = self.random.choice(there)
            if self.random.random() < 0.05:
                client.walk(*place(self))
            elif self.random.random() < 0.2:
                client.publish(*place(self), r=25.0)
            else:
                client.publish()
            self.run(0.05)

    def talk_until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        end = self.now + int(seconds * SECOND)
        while not condition():
            assert self.now < end, (self.roles(), self.decided)
            self.talk(0.5)

    def come(self, count: int) -> list[SimulatedClient]:
        """By any node that clients are told of."""
        found = []
        for number in range(count):
            home = self.nodes[self.random.choice(self.active())]
            found.append(self.client(home, *place(self), retains=number % 2 == 0))
            self.talk(0.1)
        return found

    def role(self, number: int) -> Role:
        return self.nodes[number].member.scaling.role

    def crash(self, number: int) -> None:
        """It stands still for good."""
        self.halt(self.nodes[number], 1e6)


@pytest.mark.parametrize("seed", [1, 2])
def test_load_that_rises_and_falls_three_times_calls_in_and_stands_down_three_times(
    seed: int,
) -> None:
    cluster = ScalingCluster(seed)
    assert cluster.roles() == Counter({ACTIVE: 1, STANDING_BY: 2})
    since, stay = cluster.now, cluster.come(3)
    for times in (1, 2, 3):
        crowd = cluster.come(15)
        cluster.talk_until(lambda: cluster.roles()[ACTIVE] == 3)
        cluster.talk(15.0)  # and so it stays
        facts = Counter(fact for fact, _ in cluster.decided)
        assert (facts["called in"], facts["stood down"]) == (2 * times, 2 * times - 2)
        homes = Counter(one.home.number for one in [*stay, *crowd])
        assert len(homes) == 3, "each serves some of them"
        for client in crowd:
            client.leave()
        cluster.talk_until(lambda: cluster.roles() == Counter({ACTIVE: 1, STANDING_BY: 2}))
        cluster.talk(15.0)
        assert [one.home.number for one in stay] == [1, 1, 1]
    assert Counter(fact for fact, _ in cluster.decided) == {"called in": 6, "stood down": 6}
    assert sum(client.came for client in cluster.clients) > 10, "clients were handed over"
    cluster.calm()
    assert cluster.check(since) > 300


def test_clients_are_told_of_active_nodes_or_if_there_are_no_others_of_standbys() -> None:
    cluster = ScalingCluster(3)
    first = cluster.nodes[1].member
    assert first.urls() == ["ws://2", "ws://3"], "should it fail, one of them takes over"
    assert cluster.nodes[2].member.urls() == ["ws://1"]
    cluster.come(10)
    cluster.talk_until(lambda: cluster.roles()[ACTIVE] == 2)
    cluster.talk(1.0)
    (called,) = (number for number in (2, 3) if cluster.role(number) is ACTIVE)
    assert first.urls() == [f"ws://{called}"]
    scaling = cluster.nodes[called].member.scaling
    assert "of 10 subscriptions" in scaling.reason and "ws://1" in scaling.reason
    assert first.nodes[called].beat.reason == scaling.reason


def test_a_client_that_comes_to_a_node_that_stands_by_is_handed_over_to_an_active_one() -> None:
    cluster = ScalingCluster(4)
    since = cluster.now
    client = cluster.client(cluster.nodes[2], *place(cluster))
    cluster.come(2)
    cluster.talk_until(lambda: client.home.number == 1)
    cluster.talk(2.0)
    assert cluster.roles() == Counter({ACTIVE: 1, STANDING_BY: 2})
    cluster.calm()
    assert cluster.check(since) > 10


def test_a_standby_that_does_not_come_is_passed_over() -> None:
    cluster = ScalingCluster(5)
    cluster.come(3)
    cluster.loses = lambda kind: kind is CallIn and cluster.between[1].number == 2
    cluster.come(12)
    cluster.talk_until(lambda: cluster.role(3) is ACTIVE)
    assert cluster.role(2) is STANDING_BY


@pytest.mark.parametrize("resigns", [False, True])
def test_a_node_that_is_called_in_while_it_leaves_returns_and_loses_nobody(resigns: bool) -> None:
    """Whether it still has its part, or must enter again."""
    cluster = ScalingCluster(6, standbys=1)
    since, stay = cluster.now, cluster.come(3)
    crowd = cluster.come(11)
    cluster.talk_until(lambda: cluster.roles()[ACTIVE] == 2)
    cluster.talk(8.0)
    for client in crowd[:-1]:
        client.leave()
    scaling = cluster.nodes[2].member.scaling
    cluster.wait(lambda: scaling.role is LEAVING, step_s=0.05)
    if resigns:
        cluster.wait(lambda: cluster.nodes[2].member.site.ownership.leaving)
    assert scaling.role is LEAVING
    call = CallIn(place(cluster), 1, 1.0, "needed again")
    cluster.carry(1, 2, CODEC.encode(call))
    cluster.talk_until(lambda: scaling.role is ACTIVE and scaling.reason == "needed again", 20)
    again = cluster.come(8)
    cluster.talk(6.0)
    facts = Counter(fact for fact, _ in cluster.decided)
    if resigns:
        assert facts == {"called in": 2, "stood down": 1}
    else:
        assert facts == {"called in": 1, "returned": 1}
    assert len({one.home.number for one in [*stay, *again]}) == 2
    cluster.calm()
    assert cluster.check(since) > 100


def test_if_the_only_active_node_crashes_a_standby_takes_over() -> None:
    cluster = ScalingCluster(7)
    cluster.crash(1)
    cluster.wait(lambda: cluster.roles()[ACTIVE] == 2, step_s=0.1)  # the crashed one is no more
    assert (cluster.role(2), cluster.role(3)) == (ACTIVE, STANDING_BY)
    assert cluster.nodes[2].member.scaling.reason == "no node was active"
    since = cluster.now
    clients = [cluster.client(cluster.nodes[number], 50.0, 50.0) for number in (2, 3)]
    cluster.run(2.0)
    cluster.talk(8.0)
    assert [client.home.number for client in clients] == [2, 2]
    cluster.recorder.close()
    assert cluster.check_deliveries(since) > 10


def test_if_the_only_active_node_stops_a_standby_takes_its_clients_and_nothing_is_lost() -> None:
    cluster = ScalingCluster(8)
    since, stay = cluster.now, cluster.come(5)
    first, stopped = cluster.nodes[1], []
    first.gateway.handlers[Stop] = stopped.append
    first.apply(first.service.leave_cluster(cluster.now))
    cluster.talk_until(lambda: bool(stopped), 30)
    assert [one.home.number for one in stay] == [2] * 5
    assert cluster.nodes[2].member.scaling.reason == "ws://1 stops"
    cluster.talk(3.0)
    cluster.recorder.close()
    assert cluster.check_deliveries(since) > 30
    cluster.check_repetition()


def test_a_node_that_stops_waits_as_long_as_its_clients_leave_one_after_the_other() -> None:
    """On a busy machine each takes seconds; together far longer than any one may take."""
    cluster = HandoverCluster(9, nodes=2)
    first, second = cluster.nodes.values()
    clients = [cluster.client(first, *first.member.site.place) for _ in range(6)]
    cluster.run(2.0)
    stopped: list[Stop] = []
    first.gateway.handlers[Stop] = stopped.append
    read, told = SimulatedClient.on_notice, Counter[SimulatedClient]()

    def read_later(self: SimulatedClient, connection: Any, kind: type, message: Any) -> None:
        """Each is offered several times, and misses one more offer than the one before it."""
        told[self] += kind is messages.MovedNotice
        if kind is not messages.MovedNotice or told[self] > clients.index(self):
            read(self, connection, kind, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedClient, "on_notice", read_later)
        began = cluster.now
        first.apply(first.service.leave_cluster(cluster.now))
        cluster.wait(lambda: bool(stopped), 100.0, step_s=0.1)
    assert cluster.now - began > 2 * WITHOUT_PROGRESS
    assert [client.home for client in clients] == [second] * 6
    assert [client.losses for client in clients] == [[]] * 6


@pytest.mark.parametrize("seed", [1, 2])
def test_under_faults_no_client_is_lost_and_afterwards_all_is_exact_again(seed: int) -> None:
    """Nodes stand still and links are cut while they enter and leave."""
    cluster = ScalingCluster(seed)
    faults = FaultInjector(cluster)
    cluster.come(3)
    for _ in (1, 2):
        crowd = cluster.come(15)
        faults.left = 3
        cluster.talk_until(lambda: cluster.roles()[ACTIVE] == 3)
        cluster.talk(5.0)
        faults.left = 3
        for client in crowd:
            client.leave()
        cluster.talk_until(lambda: cluster.roles() == Counter({ACTIVE: 1, STANDING_BY: 2}), 300)
    faults.left = 0
    cluster.calm()
    since = cluster.now
    cluster.talk(5.0)
    cluster.run(2.0)
    cluster.calm()
    assert cluster.check(since) > 10
