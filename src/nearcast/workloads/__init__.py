"""Who does what, when: the workloads by the names that a scenario uses."""

from typing import TYPE_CHECKING, Any

from nearcast.registry import LazyRegistry

if TYPE_CHECKING:
    from nearcast.workloads.workload import WorkloadKind


def _kind(module: Any) -> "WorkloadKind":
    from nearcast.workloads.workload import WorkloadKind

    return WorkloadKind(module.Parameters, module.make)


WORKLOADS: "LazyRegistry[WorkloadKind]" = LazyRegistry(
    {
        "hotspots": "nearcast.workloads.hotspots",
        "waypoint": "nearcast.workloads.waypoint",
        "clustering": "nearcast.workloads.clustering",
        "mammoth": "nearcast.workloads.mammoth",
        "planetpi4": "nearcast.workloads.planetpi4",
        "trading": "nearcast.workloads.trading",
        "notifications": "nearcast.workloads.notifications",
        "virtual-reality": "nearcast.workloads.virtual_reality",
        "interest-graph": "nearcast.workloads.interest_graph",
        "recorded": "nearcast.workloads.recorded",
        "replayed": "nearcast.workloads.replayed",
    },
    _kind,
)
