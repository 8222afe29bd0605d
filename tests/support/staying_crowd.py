"""Clients of a simulated cluster that stay on their servers, without any excuse for a miss."""

from functools import partial

from nearcast.model.commands import Move, Subscribe
from nearcast.service.cluster.messages import HandoverOffer
from nearcast.sim.cluster.server_host import ServerHost
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc
from support.cluster_scripts import SIDE, ClusterScript

CLIENTS = 8  # of each server


class StayingCrowd(ClusterScript):
    """Clients stay on their servers, wherever they walk; so publications take every route that
    there is. Messages are late and servers stand still for a moment, which is no fault: nothing
    excuses what is missed or overtaken."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, servers=3 + seed % 3, slow=0.03, slow_ms=400, jitter_ms=2)
        self.world.loses = lambda _, __, message: isinstance(message, HandoverOffer)
        for server in self.servers:
            for number in range(CLIENTS):
                client = self.client(server, *self.place(), retains=False)
                client.host.obey(Move(1, self._area()))
                if number % 3 == 0:
                    client.host.obey(Subscribe(2, self._area()))
        self.run(1.0)

    def _area(self) -> Moving:
        if self.random.random() < 0.3:
            velocity = (self.random.uniform(-30, 30), self.random.uniform(-30, 30), 0.0)
            return Moving(disc(*self.place(), 30.0), velocity)
        return Moving(disc(*self.place(), self.random.uniform(20.0, 60.0)))

    def live(self, seconds: float, burst: int = 1) -> None:
        """Clients walk and publish, some change their subscriptions, servers stand still."""
        random, end = self.random, self.world.now + round(seconds * SECOND)
        while self.world.now < end:
            self.run(random.uniform(0.0, 0.01))
            if random.random() < 0.02:
                self._halt(random.choice(self.servers))
            client = random.choice(self.clients)
            client.x = min(max(client.x + random.uniform(-20, 20), 0.0), SIDE)
            client.y = min(max(client.y + random.uniform(-20, 20), 0.0), SIDE)
            radius = 25.0 if random.random() < 0.1 else None
            for _ in range(random.randrange(burst) + 1):
                client.publish(r=radius)
            if random.random() < 0.2:
                client.host.obey(Move(1, self._area()))

    def _halt(self, server: ServerHost) -> None:
        if not server.halted:
            server.halt()
            resume = partial(server.resume, self.random.random() < 0.5)
            self.world.plan(self.random.randrange(300_000), resume)


def check_staying_crowd(seed: int, busy: bool = False) -> None:
    """Every client receives everything, once and in order. `busy`: a flush publishes one thing at a
    time, so that much is left for later ones."""
    crowd = StayingCrowd(seed)
    if busy:
        for server in crowd.servers:
            server.realm.accounts.bound = 1
        crowd.live(1.5, burst=6)
        assert all(server.realm.accounts.cut_short > 10 for server in crowd.servers)
    else:
        crowd.live(4.0)
    assert crowd.check(crowd.world.begins) > 500
    assert crowd.world.faults.spans == []
