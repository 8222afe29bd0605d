"""Brokers link around one that is silent: they are one tree again; nothing is delivered twice."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Publish, Subscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.node import Note, Send
from nearcast.protocols.brokers.ancestors import Ancestors
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.interests import EVERYTHING
from nearcast.protocols.brokers.messages import Bye, Heartbeat, Hello, Interest, Pass
from nearcast.protocols.brokers.parameters import Parameters
from nearcast.protocols.brokers.topology import ancestors, line, neighbours, tree
from nearcast.space.motion import SECOND
from nearcast.space.shapes import point
from support.broker_network import B, BrokerNetwork
from support.broker_trees import find_tree_faults
from support.examples import examples

ALIVE = {"delay": 1_000, "heartbeat_ms": 100.0}
LONG = 3 * SECOND  # to notice a silence, to link anew, to repair what was told meanwhile


def alive(net: BrokerNetwork) -> list[int]:
    return [number for number in range(10) if B[number] in net.simulation.nodes]


def everyone_hears_everyone(net: BrokerNetwork, entities: list[int], first: int) -> None:
    """Each publishes once, and all others have it, once."""
    for k, entity in enumerate(entities):
        net.obey(entity, Publish(first + k, point(0, 0)), then=SECOND // 10)
    net.run(SECOND)
    received = Counter(d for d in net.delivered() if d[0] >= first)
    wanted = {
        (first + k, other) for k, one in enumerate(entities) for other in entities if one != other
    }
    assert set(received) == wanted
    assert set(received.values()) <= {1}


def test_the_way_up_leads_from_neighbour_to_neighbour_to_the_first_broker() -> None:
    assert [ancestors(neighbours(4, line(4)), k) for k in range(4)] == [[], [0], [1, 0], [2, 1, 0]]
    assert ancestors(neighbours(7, tree(7)), 5) == [2, 0]
    assert ancestors(neighbours(4, [(3, 1), (1, 0), (2, 1)]), 3) == [1, 0]


def test_whom_a_broker_turns_to() -> None:
    deep = Ancestors(B[5], (B[2],))
    assert deep.learn((B[1], B[0]), (B[1], B[4]))
    assert [deep.parent, *(deep.turn() for _ in range(4))] == [B[2], B[1], B[0], B[4], B[2]]
    below_root = Ancestors(B[4], (B[0],))
    assert below_root.learn((), (B[1], B[4], B[6]))
    assert [below_root.parent, below_root.turn(), below_root.turn()] == [B[0], B[1], B[0]]
    assert not below_root.learn((B[7], B[4]), ()), "it is above itself"
    assert below_root.learn((B[7],), (B[8],))
    turns = [below_root.parent, *(below_root.turn() for _ in range(4))]
    assert turns == [B[0], B[7], B[8], B[1], B[0]], "who was above it once comes last"
    root = Ancestors(B[0], ())
    assert root.parent is None and root.turn() is None


@pytest.mark.parametrize("topology", ["line", "star", "tree"])
@pytest.mark.parametrize("dead", range(5))
def test_whichever_broker_crashes_the_others_are_one_tree_again(topology: str, dead: int) -> None:
    entities = list(range(5))
    net = BrokerNetwork(entities, brokers=5, topology=topology, **ALIVE)
    for entity in entities:
        net.obey(entity, Subscribe(entity, EVERYTHING))
    net.run(LONG)
    assert find_tree_faults(net.simulation.nodes) == []
    everyone_hears_everyone(net, entities, 100)
    net.crash(B[dead])
    net.run(LONG)
    assert find_tree_faults(net.simulation.nodes) == []
    everyone_hears_everyone(net, entities, 200)
    net.restart(dead)
    net.run(LONG)
    assert find_tree_faults(net.simulation.nodes) == []
    everyone_hears_everyone(net, entities, 300)


@examples(20)
@given(seed=st.integers(0, 10**6), covering=st.sampled_from(["off", "active"]))
def test_brokers_that_crash_and_return_one_after_the_other_stay_one_tree(
    seed: int, covering: str
) -> None:
    rng = Random(seed)
    brokers = rng.randint(2, 8)
    links = [(rng.randrange(k), k) for k in range(1, brokers)]
    entities = list(range(4))
    net = BrokerNetwork(entities, brokers=brokers, links=links, covering=covering, **ALIVE)
    for entity in entities:
        net.obey(entity, Subscribe(entity, EVERYTHING))
    net.run(LONG)
    for step in range(4):
        living = alive(net)
        gone = [number for number in range(brokers) if number not in living]
        if gone and (len(living) == 1 or rng.random() < 0.5):
            net.restart(rng.choice(gone))
        else:
            net.crash(B[rng.choice(living)])
        if not alive(net):
            net.restart(0)
        net.run(2 * LONG)
        assert find_tree_faults(net.simulation.nodes) == [], f"after step {step}"
        everyone_hears_everyone(net, entities, 100 * (step + 1))


@pytest.mark.parametrize("dead", [(1, 2), (0, 1), (0, 1, 2), (1, 3)])
def test_brokers_may_be_gone_together(dead: tuple[int, ...]) -> None:
    entities = [0, 1, 2]
    net = BrokerNetwork(entities, brokers=5, topology="line", **ALIVE)
    for entity in entities:
        net.obey(entity, Subscribe(entity, EVERYTHING))
    net.run(LONG)
    for number in dead:
        net.crash(B[number])
    net.run(2 * LONG)
    assert find_tree_faults(net.simulation.nodes) == []
    everyone_hears_everyone(net, entities, 100)
    for number in dead:
        net.restart(number)
    net.run(2 * LONG)
    assert find_tree_faults(net.simulation.nodes) == []
    everyone_hears_everyone(net, entities, 200)


def test_the_first_broker_takes_its_place_again_when_it_returns() -> None:
    net = BrokerNetwork((1, 2), brokers=3, topology="star", **ALIVE)
    net.run(LONG)
    net.crash(B[0])
    net.run(LONG)
    assert net.broker(2).parent == B[1], "of those below the root, the one of least number"
    net.restart(0)
    net.run(LONG)
    assert (net.broker(1).parent, net.broker(2).parent) == (B[0], B[1])


# Rings.


def linked(*names: int, above: tuple[int, ...] = ()) -> Broker:
    """A broker with these neighbours and one interest from each."""
    broker = Broker(B[0], Random(1), Parameters(matcher="scan", evolving="scan"), names, above)
    broker.start(0)
    for number, name in enumerate(names):
        broker.receive(1, name, Hello(number + 1, None, name not in above))
        broker.receive(1, name, Interest(Subscription(number, number, EVERYTHING), 1, 1))
    return broker


def test_a_publication_that_comes_a_second_way_goes_no_further() -> None:
    broker = linked(B[1], B[2], B[3])
    made = Publication(7, 9, 2, point(0, 0))
    first = broker.receive(2, B[1], Pass(made, 1))
    assert [effect.to for effect in first if isinstance(effect, Send)] == [B[2], B[3]]
    assert broker.receive(3, B[3], Pass(made, 4)) == [Note("ignored", 7)]


def test_a_broker_that_is_above_itself_leaves_the_one_above_it() -> None:
    broker = linked(B[1], above=(B[1], B[5]))
    effects = broker.receive(3, B[1], Heartbeat(0, (B[4], B[0]), ()))
    sent = {(effect.to, type(effect.message)) for effect in effects if isinstance(effect, Send)}
    assert {(B[1], Bye), (B[5], Hello)} <= sent
    assert broker.parent == B[5] and B[1] not in broker.links


def test_who_is_not_linked_is_told_so_and_looks_for_another() -> None:
    broker = linked(B[1])
    assert Send(B[7], Bye()) in broker.receive(3, B[7], Heartbeat(0))
    assert Send(B[7], Bye()) in broker.receive(3, B[7], Hello(5))
    assert B[7] not in broker.links
    below = linked(B[1], above=(B[1], B[2]))
    effects = below.receive(3, B[1], Bye())
    assert [effect.to for effect in effects if isinstance(effect, Send)] == [B[1], B[2]]
    assert below.parent == B[2]


def test_a_broker_takes_in_nobody_who_is_above_it() -> None:
    broker = linked(B[1], above=(B[1], B[2]))
    for sender in (B[1], B[2]):
        effects = broker.receive(3, sender, Hello(9, None, True))
        assert effects == [Note("refused", sender), Send(sender, Bye())]
    assert list(broker.links) == [B[1]]


@pytest.mark.parametrize(("me", "other"), [(B[3], B[4]), (B[4], B[3])])
def test_of_two_brokers_that_ask_each_other_the_lower_number_is_above(me: int, other: int) -> None:
    broker = Broker(me, Random(1), Parameters(matcher="scan"), [other], [other, B[0]])
    broker.start(0)
    broker.receive(1, other, Hello(9, None, True))
    if me < other:
        assert broker.parent == B[0]
        assert broker.links[other].theirs == 9
    else:
        assert broker.parent == other
        assert broker.links[other].theirs is None, "it waits for the answer"
