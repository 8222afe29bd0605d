"""Two nodes that cannot reach each other are served by a third that reaches both."""

import pytest

from nearcast.service.cluster.relaying import RELAY_AFTER, find_relay
from nearcast.space.motion import SECOND
from support.simulated_cluster_clients import HandoverCluster, place

CUT_S = 20.0


@pytest.mark.parametrize("seed", range(4))
def test_while_two_nodes_cannot_reach_each_other_everything_is_delivered_by_the_third(
    seed: int,
) -> None:
    sim_cluster = HandoverCluster(seed, nodes=3)
    one, other, _ = homes = list(sim_cluster.nodes.values())
    for number in range(8):
        sim_cluster.client(homes[number % 3], *place(sim_cluster), retains=number % 2 == 0)
    sim_cluster.run(2.0)
    sim_cluster.cut(one, other, CUT_S)
    sim_cluster.live(RELAY_AFTER / SECOND + 3.0)
    assert other.number in one.member._out.relays and one.number in other.member._out.relays
    assert len(one.member.nodes) == len(other.member.nodes) == 2
    since = sim_cluster.live(8.0)
    relayed = sim_cluster.now
    sim_cluster.calm()
    assert not one.member._out.relays and not other.member._out.relays
    sim_cluster.live(2.0)
    sim_cluster.calm()
    assert relayed < sim_cluster.now
    assert sim_cluster.check(since) > 200


def test_a_node_that_crashed_is_not_kept_alive_by_two_that_remember_it() -> None:
    heard = {2: (3, 4), 3: (2,)}
    assert find_relay(4, heard) == 2
    assert find_relay(5, heard) is None
    assert find_relay(2, {2: (3,)}) is None
