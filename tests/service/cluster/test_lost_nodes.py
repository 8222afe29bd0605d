"""What a node keeps of others that are no members any more: their addresses, not their states."""

from collections.abc import Iterable
from random import Random

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.matching import MATCHERS
from nearcast.node import Effect, Send
from nearcast.protocols.voronoi.mesh_messages import NearestSiteQuery
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.service.access.grants import Grant
from nearcast.service.cluster.messages import (
    CLIENTS_ONLY,
    ClusterJoinRequest,
    NodeHeartbeat,
    NodeStopping,
    PublicationBatch,
    RemotePublication,
    RetainedStatesRequest,
)
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_entities import UNCHECKED
from nearcast.service.cluster.remote_subscriptions import first_number
from nearcast.service.cluster.service import CLUSTER_TICK, CLUSTER_TICK_EVERY, ClusterService
from nearcast.service.connection import Connection
from nearcast.service.effects import Reply
from nearcast.service.service import FLUSH
from nearcast.space.motion import SECOND, Time
from support.cluster_flushes import ELSEWHERE, ME, THERE


class OneNode:
    """A node with another one, which sends what a test wants it to send."""

    def __init__(self) -> None:
        self.now: Time = SECOND
        self.realm = ClusterRealm(MATCHERS["scan"](), Limits(), None, first_number(ME))
        self.service = ClusterService(ME, Random(1), self.realm, Limits(), Parameters())
        self.service.start(self.now)
        self.service.found_cluster(self.now, "ws://me")
        self.service.receive(self.now, THERE, ClusterJoinRequest("ws://there"))

    def run(self, until: Time) -> list[Effect]:
        effects: list[Effect] = []
        while self.now < until:
            self.now += CLUSTER_TICK_EVERY
            effects += self.service.wake(self.now, CLUSTER_TICK)
        return effects

    def listed(self) -> list[int]:
        everywhere = messages.NearbyRequest(Area())
        return [one.entity for one in self.realm.nearby(self.now, everywhere, messages.JSON)]


def _node_lists(effects: Iterable[Effect]) -> list[list[str]]:
    notices = [effect.notice for effect in effects if isinstance(effect, Reply)]
    return [one.nodes for one in notices if isinstance(one, messages.NodesNotice)]


def test_clients_of_a_node_that_has_lost_all_others_keep_their_addresses() -> None:
    one, connection = OneNode(), Connection(100, 0.0)
    connection.encoding = messages.JSON
    one.service.open(one.now, connection)
    (welcome,) = one.service.join(one.now, connection, messages.JoinRequest("ann"), Grant())[-1:]
    assert isinstance(welcome, Reply) and isinstance(welcome.notice, messages.WelcomeNotice)
    assert welcome.notice.nodes == ["ws://there"]
    told = one.service.receive(one.now, ELSEWHERE, ClusterJoinRequest("ws://elsewhere"))
    assert _node_lists(told) == [["ws://elsewhere", "ws://there"]]
    told = one.service.receive(one.now, THERE, NodeStopping())
    assert _node_lists(told) == [["ws://elsewhere"]]
    assert _node_lists(one.service.probed(one.now, ELSEWHERE, accepts=False)) == []
    assert one.service.cluster.nodes == {}
    assert one.service.connections.urls == ["ws://elsewhere"]


def test_a_state_that_came_late_of_a_node_that_is_no_member_ends_and_is_asked_for() -> None:
    one = OneNode()
    one.service.receive(one.now, ELSEWHERE, ClusterJoinRequest("ws://elsewhere"))
    one.service.receive(one.now, THERE, NodeStopping())
    entity = first_number(THERE)
    late = RemotePublication(entity, entity, one.now, False, 3.0, 4.0, retain=True, name="ann")
    one.service.receive(one.now, THERE, PublicationBatch(bytes((CLIENTS_ONLY,)), (late,)))
    one.service.wake(one.now, FLUSH)
    assert one.listed() == [entity]
    asked = []
    while one.now < 2 * UNCHECKED:
        one.service.receive(one.now, ELSEWHERE, one.service.cluster.nodes[ELSEWHERE].beat)
        asked += one.run(one.now + SECOND)
    assert one.listed() == []
    wanted = [e for e in asked if getattr(e, "message", None) == RetainedStatesRequest((entity,))]
    assert len(wanted) == 1


def test_a_node_whose_site_is_in_another_mesh_is_asked_who_is_nearest() -> None:
    """Its site was never a neighbour, so the mesh by itself would never find it."""
    one, asked = OneNode(), []
    beat = NodeHeartbeat("ws://there", 0.0, None, (ME,), site=(500.0, 0.0))
    while one.now < 15 * SECOND:
        one.service.receive(one.now, THERE, beat)
        asked += one.run(one.now + SECOND)
    queries = [e for e in asked if isinstance(e, Send) and isinstance(e.message, NearestSiteQuery)]
    assert [query.to for query in queries] == [THERE]
