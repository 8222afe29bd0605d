"""Which settings a scenario may have, and the parameters that they become."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from nearcast.field_checks import between
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario, Setting
from nearcast.sim import faults as faults_
from nearcast.sim import network as network_
from nearcast.sim.cluster.parameters import ClusterFaultParameters, ClusterParameters
from nearcast.workloads import WORKLOADS, churn

Part = TypeVar("Part", bound=Struct)
CLUSTER = "cluster"  # beside the overlays: the service itself, see `sim.cluster`


class Sampling(Struct, frozen=True, kw_only=True):
    """How often positions are recorded, and what else of a run is kept."""

    sample_ms: float = 1000.0  # how often positions and views are recorded; 0: never
    drain_s: float = 60.0  # after the workload stops, how long publications may travel at most
    one_in: int = 16  # record=sampled keeps one publication in so many, with all that belongs to it

    def __post_init__(self) -> None:
        if self.sample_ms and not 1 <= self.sample_ms <= 1e9:
            raise ValueError(f"sample_ms must be 0 (never) or at least 1, not {self.sample_ms}")
        between("drain_s", self.drain_s, 0, 1e6)
        between("one_in", self.one_in, 1, 1_000_000)


def _choose(what: str, name: str, choices: Mapping[str, Any], *more: str) -> Any:
    if name not in choices:
        raise ValueError(f"no {what} {name!r}; there are {', '.join((*choices, *more))}")
    return choices[name]


def parameters_of(protocol: str, workload: str) -> dict[str, type[Struct]]:
    """What can be set for this protocol and workload, part by part."""
    parameters: type[Struct] = ClusterParameters
    faults: type[Struct] = ClusterFaultParameters
    if protocol != CLUSTER:
        parameters = _choose("protocol", protocol, PROTOCOLS, CLUSTER).parameters
        faults = faults_.FaultParameters
    return {
        "protocol": parameters,
        "workload": _choose("workload", workload, WORKLOADS).parameters,
        "churn": churn.Parameters,
        "network": network_.NetworkParameters,
        "faults": faults,
        "sampling": Sampling,
    }


def fill_settings(scenario: Scenario) -> tuple[Scenario, dict[str, Any]]:
    """Hand each setting to the part that knows it; return the scenario with all of them filled in.

    A setting that nobody knows, or of the wrong type or range, is a ValueError with one sentence.
    """
    kinds = parameters_of(scenario.protocol, scenario.workload)
    known = [field.name for kind in kinds.values() for field in fields(kind)]
    for name in scenario.settings:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(
                f"no setting {name!r} for {scenario.protocol} with {scenario.workload}{hint}"
            )
    parts = {part: _part(kind, scenario.settings) for part, kind in kinds.items()}
    settings = {name: value for part in parts.values() for name, value in asdict(part).items()}
    return replace(scenario, settings=settings), parts


def _part(kind: type[Part], settings: dict[str, Setting]) -> Part:
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in settings:
            try:
                values[field.name] = msgspec.convert(settings[field.name], field.type, strict=False)
            except msgspec.ValidationError:
                wanted = getattr(field.type, "__name__", field.type)
                raise ValueError(
                    f"{field.name} must be {wanted}, not {settings[field.name]!r}"
                ) from None
    return kind(**values)
