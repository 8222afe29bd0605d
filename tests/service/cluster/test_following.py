"""An area that follows an entity across a cluster: both change nodes, and nothing is missed."""

from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.messages import SubscribeRequest
from nearcast.model.commands import Subscribe
from nearcast.model.subscription import Formula, Region
from nearcast.space.motion import Moving
from nearcast.space.shapes import disc
from support.cluster_scripts import ClusterScript, ScriptedClient
from support.examples import seeds

RADIUS = 30.0


class FollowScript(ClusterScript):
    """A walker, and somebody whose only area follows it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.others = [self.client(one, *one.service.cluster.site.place) for one in self.servers]
        self.walker = self.client(self.servers[0], *self.servers[0].service.cluster.site.place)
        self.follower = self.world.add_client(self.servers[0].url, retains=False)
        self.world.wait("the follower is not served", lambda: self.follower.is_served)
        request = SubscribeRequest(0, Area(r=RADIUS), follow=self.walker.host.name)
        region = Moving(disc(0, 0, RADIUS))
        _, state, effects = self.follower.core.subscribe(self.world.now, request, region)
        # Workloads have no command for this: the host learns what it has asked for.
        self.follower._wanted[1], self.follower._numbers[1] = Subscribe(1, region), state.number
        self.follower._apply(effects)

    @property
    def region(self) -> Region | None:
        """As the node of the follower has it."""
        connection = self.follower.connection
        client = None if connection is None else connection.client
        active = list(client.subscriptions.values()) if client else []
        return active[0].subscription.region if active else None

    @property
    def is_beside(self) -> bool:
        region, there = self.region, disc(self.walker.x, self.walker.y, RADIUS)
        return isinstance(region, Moving) and region.shape == there

    def heard(self, by: ScriptedClient) -> int:
        self.world.recorder.flush()
        published = self.memory.table("publications").to_pylist()
        numbers = {row["publication"] for row in published if row["node"] == by.host.entity}
        deliveries = self.memory.table("deliveries").to_pylist()
        me = self.follower.entity
        return sum(row["node"] == me and row["publication"] in numbers for row in deliveries)


@seeds([1], [2, 3])
def test_an_area_follows_from_node_to_node(seed: int) -> None:
    script = FollowScript(seed)
    homes = set()
    for other in script.others:
        script.walker.walk(other.x, other.y)
        script.world.wait("the area does not follow", lambda: script.is_beside)
        before = script.heard(other)
        other.publish()
        script.world.wait("nothing is heard", lambda o=other, b=before: script.heard(o) > b)
        script.run(12.0)
        homes.add(script.follower.connection.server)
        assert script.is_beside
    assert len(homes) > 1, "the follower has not changed nodes"
    script.leave(script.walker)
    gone = "the area is still somewhere"
    script.world.wait(gone, lambda: isinstance(script.region, Formula))
    assert script.check()
