"""Owners placed by latency stand in the middle of their brothers, and everyone receives sooner."""

from collections import defaultdict
from random import Random

import pytest

from nearcast.model.commands import Leave, Publish
from nearcast.node import Send
from nearcast.protocols.drtree.messages import SLOTS, ChildState, NodeEntry, Ping, Pong, TakeOver
from nearcast.protocols.drtree.placement import BETTER, ENOUGH_SAMPLES
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.protocols.drtree.tree import adopt_children
from nearcast.sim.network import ConstantDelay, Embedding, Network
from nearcast.space.shapes import point
from nearcast.trace.sinks import MemoryTrace
from support.drtree_worlds import DRTreeWorld, assert_delivered_exactly, faults, run, settled_tree
from support.examples import choices, crossed

STRATEGY_SEEDS = tuple(zip(STRATEGIES, range(1, 6), strict=True))


def mean_total_ms(trace: MemoryTrace) -> float:
    """Until the last of those who want it has it, over all publications that somebody wants."""
    made = {row["publication"]: row["t"] for row in trace.table("publications").to_pylist()}
    last: dict[int, int] = defaultdict(int)
    for row in trace.table("deliveries").to_pylist():
        name = row["publication"]
        last[name] = max(last[name], row["t"] - made[name])
    return sum(last.values()) / len(last) / 1000


@choices("strategy, seed", STRATEGY_SEEDS[:2], STRATEGY_SEEDS[2:])
def test_on_a_map_everyone_receives_sooner_from_owners_placed_by_latency(
    strategy: str, seed: int
) -> None:
    took = {}
    for promotes in ("coverage", "latency"):
        world, trace = run(
            nodes=120, seed=seed, network="embedding", strategy=strategy, hotspots="burning",
            promotes=promotes, sample_ms=0.0,
        )  # fmt: skip
        assert faults(world.simulation) == []
        assert_delivered_exactly(trace)
        took[promotes] = mean_total_ms(trace)
    assert took["latency"] < took["coverage"]


@crossed("strategy, nodes", STRATEGIES, [1, 2, 3, 9, 70])
def test_where_all_are_equally_far_nothing_is_missed_either(strategy: str, nodes: int) -> None:
    world, trace = run(
        nodes=nodes, seconds=2.0, strategy=strategy, promotes="latency", rate=3.0, size=100.0
    )
    assert faults(world.simulation) == []
    assert_delivered_exactly(trace, at_least=3)


def badly_placed(world: DRTreeWorld, network: Network) -> list[str]:
    """By brute force: nodes with a child that is clearly nearer to its brothers than the owner."""

    def mean(address: int, children: list[int]) -> float:
        others = [other for other in children if other != address]
        ways = [(address, other) for other in others] + [(other, address) for other in others]
        trips = [network.route(0, a // SLOTS, b // SLOTS, 0)[0] for a, b in ways]
        return sum(trips) / len(others)

    found = []
    for member in world.members().values():
        for level in range(1, member.top + 1):
            children = list(member.levels[level].children)
            best = min(mean(address, children) for address in children)
            if best < mean(member.address, children) * BETTER - 1:
                found.append(f"node {level} of {member.address}")
    return found


def test_every_owner_comes_to_stand_in_the_middle_of_its_brothers() -> None:
    network = Embedding(4)
    world = settled_tree(80, network=network, promotes="latency", check_ms=1000.0)
    world.settle(good=lambda: not badly_placed(world, network))
    world.pass_periods(3)
    assert badly_placed(world, network) == []
    largest = settled_tree(80, network=network, promotes="coverage", check_ms=1000.0)
    assert badly_placed(largest, network), "else it would prove nothing"


def test_when_the_network_changes_owners_follow() -> None:
    before, after = Embedding(4), Embedding(8)
    world = settled_tree(8, network=before, promotes="latency", check_ms=1000.0)
    world.settle(good=lambda: not badly_placed(world, before))
    world.simulation.network = after
    assert badly_placed(world, after)
    world.settle(500, good=lambda: not badly_placed(world, after))


def test_owners_that_stand_well_keep_their_nodes() -> None:
    world = settled_tree(60, network=Embedding(2), promotes="latency", check_ms=1000.0)
    world.pass_periods(30)
    owners = {address: member.top for address, member in world.members().items()}
    world.pass_periods(30)
    assert {address: member.top for address, member in world.members().items()} == owners
    assert all(peer.ready for peer in world.simulation.nodes.values())


def test_a_peer_is_ready_only_when_its_brothers_are_measured() -> None:
    world = DRTreeWorld(
        settled_tree(1, promotes="latency", check_ms=1000.0).parameters, ConstantDelay(400_000)
    )
    peers = [world.join(node, point(node, 0)) for node in range(4)]
    while not all(peer.ready for peer in peers):
        world.pass_periods(0.2)
    for member in world.members().values():
        near = [*member.brothers, *(member.other_children(1) if member.top else [])]
        assert len(near) == 3
        assert all(member.round_trips[address][0] >= ENOUGH_SAMPLES for address in near)


def test_unrequested_pongs_are_not_measured() -> None:
    world = settled_tree(6, promotes="latency", check_ms=1000.0)
    world.pass_periods(5)
    peer = world.simulation.nodes[3]
    member = world.members()[3 * SLOTS]
    known, now = dict(member.round_trips), world.simulation.now
    assert sorted(known) == [node * SLOTS for node in (0, 1, 2, 4, 5)]
    assert set(known.values()) >= {(ENOUGH_SAMPLES, 100_000)}
    assert peer.receive(now, 9, Pong(9 * SLOTS, now - 5)) == []
    assert peer.receive(now, 1, Pong(1 * SLOTS, now + 5)) == []
    assert member.round_trips == known
    (answer,) = peer.receive(now, 1, Ping(1 * SLOTS, 17))
    assert answer.to == 1
    assert answer.message == Pong(3 * SLOTS, 17)


def test_members_of_one_peer_have_no_latency_between_them() -> None:
    world = DRTreeWorld(
        settled_tree(1, promotes="latency", areas="split", check_ms=1000.0).parameters
    )
    for node in range(2):
        world.join(node, *[point(x, node) for x in range(3)])
    world.pass_periods(12)
    world.settle()
    trips = world.members()[1].round_trips
    assert {a: mean for a, (_, mean) in trips.items() if a < SLOTS} == {0: 0, 2: 0}
    assert {mean for a, (_, mean) in trips.items() if a >= SLOTS} == {100_000}


def test_a_split_promotes_the_best_placed_of_those_who_go() -> None:
    world = settled_tree(8, promotes="latency", check_ms=1000.0)
    (root,) = [member for member in world.members().values() if member.is_root]
    peer = world.simulation.nodes[root.address // SLOTS]
    for address in root.other_children(1):  # they tell that the higher, the nearer
        state = ChildState(0, world.members()[address].entry(0), brother_latency=10**6 - address)
        peer.receive(world.simulation.now, address // SLOTS, state)
    adopt_children(root, 1, [NodeEntry(50 * SLOTS, ((900.0, 900.0), (901.0, 901.0)))])
    sent = [effect for effect in peer.out.drain() if isinstance(effect, Send)]
    (to, (going,)) = next((e.to, e.message.chain) for e in sent if isinstance(e.message, TakeOver))
    known = [entry.address for entry in going if entry.address != 50 * SLOTS]
    assert known
    assert all(address < to * SLOTS < 50 * SLOTS for address in known)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_after_crashes_and_leaves_the_tree_is_legal(strategy: str) -> None:
    world = settled_tree(
        60, strategy=strategy, promotes="latency", check_ms=1000.0, network=Embedding(1)
    )
    rng = Random(3)
    for number, node in enumerate(rng.sample(range(60), 20)):
        if number % 2:
            world.simulation.crash(node)
        else:
            world.simulation.obey(node, Leave())
    world.pass_periods(3)
    world.settle(25)
    nodes = list(world.simulation.nodes)
    for number in range(100):
        shape = point(37.0 * number % 500, 61.0 * number % 500)
        world.simulation.obey(nodes[number % len(nodes)], Publish(number, shape))
    world.pass_periods(2)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory)


def test_the_child_of_least_address_may_own_a_node_whatever_its_size() -> None:
    world = settled_tree(60, promotes="address", check_ms=1000.0)
    (root,) = [member for member in world.members().values() if member.is_root]
    assert root.address == min(world.members())
    world.simulation.crash(root.address // SLOTS)
    world.pass_periods(4)
    world.settle(40)
    (heir,) = [member for member in world.members().values() if member.is_root]
    assert heir.address == min(world.members()) > root.address
