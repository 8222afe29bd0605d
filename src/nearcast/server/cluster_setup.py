"""How a node becomes a member of a cluster, by its settings."""

from pathlib import Path

from nearcast.client_protocol.limits import Limits
from nearcast.matching.matcher import Matcher
from nearcast.peer.peer import parse_address
from nearcast.protocols.voronoi.vso_parameters import Parameters
from nearcast.server.cluster_links import ClusterLinks, cluster_key
from nearcast.server.config import ClusterSettings
from nearcast.server.gateway import Gateway
from nearcast.service.cluster.cluster_node import ClusterNode
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import first_number
from nearcast.trace.recorder import Recorder
from nearcast.transport.identity import new_identity


class ClusterSetup:
    """Makes a server a node of a cluster: its key, links, realm and `ClusterNode`."""

    def __init__(self, cluster: ClusterSettings) -> None:
        self._cluster = cluster
        key = cluster_key(Path(cluster.key), make=not cluster.join)
        self._links = ClusterLinks(new_identity(serves=True), cluster.host, cluster.port, key)

    def realm(self, engine: Matcher, limits: Limits, recorder: Recorder | None) -> ClusterRealm:
        """The node's realm. Its numbers are in the node's own block."""
        self._realm = ClusterRealm(engine, limits, recorder, first_number(self._links.name))
        return self._realm

    async def join_cluster(self, gateway: Gateway, url: str) -> ClusterNode:
        """Join the other nodes. Clients are served meanwhile."""
        cluster, links = self._cluster, self._links
        # A crash is told by links that break, at once; a machine that stands still for a moment has
        # not crashed. So sites take their time.
        parameters = Parameters(
            limit=float(cluster.subscriptions), margin=cluster.margin, spacing=cluster.spacing,
            f_adjust=cluster.adjust, adjust_ms=1000 * cluster.adjust_s, insertion_trigger=0,
            departure_trigger=1000, site_beat_ms=1000.0,
        )  # fmt: skip
        member = ClusterNode(gateway, self._realm, links, cluster.advertise or url, parameters)
        await member.start([parse_address(one) for one in cluster.join.split(",") if one])
        gateway.number, gateway.cluster = links.name, member
        return member
