"""How a node becomes a member of a cluster, by its settings."""

from pathlib import Path
from random import SystemRandom

from nearcast.matching.matcher import Matcher
from nearcast.peer.peer import parse_address
from nearcast.protocols.voronoi.local_diagram import warm_up
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.server.cluster_host import ClusterHost
from nearcast.server.cluster_links import ClusterLinks, cluster_key
from nearcast.server.config import ClusterSettings, Settings
from nearcast.server.service_host import ServiceHost
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import first_number
from nearcast.service.cluster.scaling import ScalingParameters
from nearcast.service.cluster.service import ClusterService
from nearcast.trace.recorder import Recorder
from nearcast.transport.identity import new_identity


class ClusterSetup:
    """Makes a server a node of a cluster: its key, links and service."""

    def __init__(self, cluster: ClusterSettings) -> None:
        self._cluster = cluster
        key = cluster_key(Path(cluster.key), make=not cluster.join)
        self._links = ClusterLinks(new_identity(serves=True), cluster.host, cluster.port, key)
        self.host: ClusterHost

    def service(
        self, engine: Matcher, settings: Settings, recorder: Recorder | None
    ) -> ClusterService:
        """The node's service. Its numbers are in the node's own block."""
        cluster, node, limits = self._cluster, self._links.name, settings.limits
        realm = ClusterRealm(engine, limits, recorder, first_number(node), settings.geometry)
        # A crash is told by links that break, at once; a machine that stands still for a moment has
        # not crashed. So sites take their time.
        capacity = float(cluster.capacity or cluster.subscriptions)
        # Where a node would call in another, its neighbours move closer first.
        limit = max(1.0, cluster.high * capacity) if cluster.capacity else capacity
        parameters = Parameters(
            limit=limit, margin=cluster.margin, spacing=cluster.spacing, f_adjust=cluster.adjust,
            adjust_ms=1000 * cluster.adjust_s, insertion_trigger=0, departure_trigger=1000,
            site_beat_ms=1000.0,
        )  # fmt: skip
        scaling = ScalingParameters(
            standby=cluster.standby, capacity=capacity, cpu_limit=cluster.cpu_limit,
            high=cluster.high, high_s=cluster.high_s, low=cluster.low, low_s=cluster.low_s,
        )  # fmt: skip
        return ClusterService(
            node, SystemRandom(), realm, limits, parameters, scaling=scaling,
            name=settings.name, clients=limits.clients, requests=limits.requests,
        )  # fmt: skip

    async def enter(self, host: ServiceHost, service: ClusterService, url: str) -> ClusterHost:
        """Join the other nodes. Clients are served meanwhile."""
        warm_up()
        cluster = self._cluster
        entered = ClusterHost(host, service, self._links)
        contacts = [parse_address(one) for one in cluster.join.split(",") if one]
        await entered.enter(cluster.advertise or url, contacts)
        return entered
