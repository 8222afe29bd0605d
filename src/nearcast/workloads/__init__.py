"""Who does what, when: the movement workloads by the names used on the command line."""

from nearcast.workloads import (
    clustering,
    hotspots,
    interest_graph,
    mammoth,
    planetpi4,
    recorded,
    trading,
    virtual_reality,
    waypoint,
)
from nearcast.workloads.workload import WorkloadKind

WORKLOADS: dict[str, WorkloadKind] = {
    "hotspots": WorkloadKind(hotspots.Parameters, hotspots.make),
    "waypoint": WorkloadKind(waypoint.Parameters, waypoint.make),
    "clustering": WorkloadKind(clustering.Parameters, clustering.make),
    "mammoth": WorkloadKind(mammoth.Parameters, mammoth.make),
    "planetpi4": WorkloadKind(planetpi4.Parameters, planetpi4.make),
    "trading": WorkloadKind(trading.Parameters, trading.make),
    "virtual-reality": WorkloadKind(virtual_reality.Parameters, virtual_reality.make),
    "interest-graph": WorkloadKind(interest_graph.Parameters, interest_graph.make),
    "recorded": WorkloadKind(recorded.Parameters, recorded.make),
}
