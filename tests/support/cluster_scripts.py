"""A simulated cluster whose clients and faults a test directs, step by step."""

from collections.abc import Callable
from typing import Any

from nearcast.client.core import Phase
from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.scenario import stream
from nearcast.sim.cluster.agreement import disagreement
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.server_host import ServerHost
from nearcast.sim.cluster.world import ClusterWorld
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.cluster_scenarios import cluster_scenario

SIDE, RADIUS = 200.0, 60.0  # of the world; of what a client listens to, around itself


class ScriptedClient:
    """A client that listens around itself, and goes and publishes where a test says."""

    def __init__(self, script: "ClusterScript", host: ClientHost, x: float, y: float) -> None:
        self._script, self.host, self.x, self.y = script, host, x, y
        script.world.wait(f"{host.name} is not served", lambda: host.is_served)
        host.obey(Subscribe(1, Moving(disc(x, y, RADIUS))))
        self.publish()

    @property
    def server(self) -> ServerHost:
        assert self.host.connection is not None
        return self.host.connection.server

    @property
    def stayed(self) -> bool:
        """Was it asked to go, and stayed where it was?"""
        host = self.host
        return host.core.phase is Phase.SERVED and host.offers > host.handovers

    def walk(self, x: float, y: float) -> None:
        """Go there with its area of interest, and say so."""
        self.x, self.y = x, y
        self.host.obey(Move(1, Moving(disc(x, y, RADIUS))))
        self.publish()

    def publish(
        self, x: float | None = None, y: float | None = None, r: float | None = None
    ) -> None:
        """Where it is, or elsewhere; with `r` to a disc."""
        x, y = self.x if x is None else x, self.y if y is None else y
        self.host.obey(Publish(0, point(x, y) if r is None else disc(x, y, r)))


class ClusterScript:
    """Servers that know each other, and clients as a test brings them. All checkers watch."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.memory = MemoryTrace()
        self.world = ClusterWorld(
            cluster_scenario(seed, 1, 1, **settings), lambda _: Recorder(self.memory, "all")
        )
        self.random = stream(seed, "script")
        self.clients: list[ScriptedClient] = []
        self.world.set_up_servers()

    @property
    def servers(self) -> list[ServerHost]:
        return self.world.servers

    def place(self) -> tuple[float, float]:
        return self.random.uniform(0, SIDE), self.random.uniform(0, SIDE)

    def client(
        self, server: ServerHost, x: float, y: float, *, retains: bool = True
    ) -> ScriptedClient:
        """One more client, by this server at first."""
        host = self.world.add_client(server.url, retains=retains)
        self.clients.append(ScriptedClient(self, host, x, y))
        return self.clients[-1]

    def come_back(
        self, client: ScriptedClient, server: ServerHost, x: float, y: float
    ) -> ScriptedClient:
        """A client that has left is there again: the same name on another connection."""
        host = self.world.add_client(server.url, retains=True, returns=client.host.number)
        self.clients.append(ScriptedClient(self, host, x, y))
        return self.clients[-1]

    def crash(self, client: ScriptedClient) -> None:
        """A client is no more, without a request to leave."""
        self.clients.remove(client)
        self.world.crash_client(client.host)

    def leave(self, client: ScriptedClient) -> None:
        self.clients.remove(client)
        self.world.leave_client(client.host)

    def run(self, seconds: float) -> None:
        self.world.queue.run(self.world.now + round(seconds * SECOND))

    def talk(self, seconds: float, walk: float = 0.05) -> None:
        """Clients publish, here and elsewhere, and walk with this probability."""
        end = self.world.now + round(seconds * SECOND)
        while self.world.now < end:
            if self.clients:
                client, chance = self.random.choice(self.clients), self.random.random()
                if chance < walk:
                    client.walk(*self.place())
                elif chance < walk + 0.2:
                    client.publish(*self.place(), r=25.0)
                else:
                    client.publish()
            self.run(0.05)

    def talk_until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        end = self.world.now + round(seconds * SECOND)
        while not condition():
            assert self.world.now < end, "it never came true"
            self.talk(0.5)

    def wait_exactly(self, condition: Callable[[], bool]) -> None:
        """Until the first millisecond in which it is true."""
        end = self.world.now + 60 * SECOND
        while not condition():
            assert self.world.now < end, "it never came true"
            self.run(0.001)

    def check(self, since: Time | None = None) -> int:
        """All that must hold holds, and nobody has lost a connection; what was made from `since` on
        is exact, or else from now on. Gives how many deliveries were expected."""
        world = self.world
        if since is None:
            world.wait("servers and clients do not agree", self.agree)
            since = world.now
            for _ in range(3):
                for client in self.clients:
                    client.publish()
                    self.run(0.02)
        world.exact_since = since
        lost = [span for span in world.faults.spans if span.fact == "disconnected"]
        assert lost == []
        world.judge()
        world.recorder.close()
        assert world.checker is not None
        return world.checker.expected

    def agree(self) -> bool:
        """Is each client on the one server that it thinks it is on, and do all know so?"""
        return disagreement(self.world.clients, self.servers) is None
