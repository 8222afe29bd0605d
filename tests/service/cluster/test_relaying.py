"""Two nodes that cannot reach each other are served by a third that reaches both."""

from nearcast.service.cluster.relaying import RELAY_AFTER, find_relay
from nearcast.space.motion import SECOND, Time
from support.cluster_scripts import ClusterScript
from support.examples import seeds

CUT: Time = 20 * SECOND


@seeds([0], range(1, 4))
def test_while_two_nodes_cannot_reach_each_other_everything_is_delivered_by_the_third(
    seed: int,
) -> None:
    """Also when the link between them breaks in the meantime."""
    script = ClusterScript(seed, slow=0.03)
    servers = script.servers
    one, other, _ = (server.service.cluster for server in servers)
    for number in range(8):
        script.client(servers[number % 3], *script.place(), retains=number % 2 == 0)
    script.run(2.0)
    ends = script.world.now + CUT
    script.world.inject.cut(servers[0], servers[1], CUT)
    script.talk(RELAY_AFTER / SECOND + 3.0, walk=0.1)
    assert other.id in one._out.relays and one.id in other._out.relays
    assert len(one.nodes) == len(other.nodes) == 2
    since = script.world.now
    script.talk(8.0, walk=0.1)
    assert script.world.now < ends, "so much has been relayed"
    assert other.id in one._out.relays and one.id in other._out.relays
    script.world.wait("it is relayed still", lambda: not one._out.relays and not other._out.relays)
    assert script.world.now > ends
    script.talk(2.0, walk=0.1)
    assert script.check(since) > 200


def test_a_node_that_crashed_is_not_kept_alive_by_two_that_remember_it() -> None:
    heard = {2: (3, 4), 3: (2,)}
    assert find_relay(4, heard) == 2
    assert find_relay(5, heard) is None
    assert find_relay(2, {2: (3,)}) is None
