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
from nearcast.workloads.workload import Kind

WORKLOADS: dict[str, Kind] = {
    "hotspots": Kind(hotspots.Parameters, hotspots.make),
    "waypoint": Kind(waypoint.Parameters, waypoint.make),
    "clustering": Kind(clustering.Parameters, clustering.make),
    "mammoth": Kind(mammoth.Parameters, mammoth.make),
    "planetpi4": Kind(planetpi4.Parameters, planetpi4.make),
    "trading": Kind(trading.Parameters, trading.make),
    "virtual-reality": Kind(virtual_reality.Parameters, virtual_reality.make),
    "interest-graph": Kind(interest_graph.Parameters, interest_graph.make),
    "recorded": Kind(recorded.Parameters, recorded.make),
}
