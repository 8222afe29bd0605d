"""One scenario, one trace, one summary: what `nearcast simulate` does."""

from collections.abc import Callable
from time import monotonic, process_time
from typing import cast

from msgspec import Struct
from msgspec.structs import asdict

from nearcast.scenario import Scenario, to_json
from nearcast.sim.cluster.world import ClusterWorld
from nearcast.sim.settings import CLUSTER
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import Time
from nearcast.storage import AnyPath
from nearcast.trace.recorder import Level, Recorder
from nearcast.trace.sinks import TraceFolder

FLUSH_EVERY_S = 5.0  # of wall time: at most so much of a slow run is lost when it is killed


class RunSummary(Struct, frozen=True):
    """What a finished run has done; it is written as summary.json."""

    run: str
    scenario: Scenario
    trace: str
    simulated_s: float  # of the workload
    wall_s: float
    cpu_s: float  # of this process
    messages: int
    rows: dict[str, int]


class SimulationProgress(Struct, frozen=True):
    """How much of the simulated time is done."""

    done: Time
    whole: Time
    messages: int


def make_world(
    scenario: Scenario, recorder: Callable[[Scenario], Recorder], *, check: bool
) -> SimulatedWorld | ClusterWorld:
    """The world of a scenario: of an overlay, or of a cluster."""
    if scenario.protocol == CLUSTER:
        return ClusterWorld(scenario, recorder, check=check)
    return SimulatedWorld(scenario, recorder, check=check)


def simulate(
    scenario: Scenario,
    trace: AnyPath,
    show: Callable[[SimulationProgress], None] | None = None,
    *,
    check: bool = False,
    flush_every_s: float = FLUSH_EVERY_S,
) -> RunSummary:
    """Run a scenario and write its trace; `check` the invariants of its protocol meanwhile.

    A run that is interrupted or fails leaves the trace of what happened until then.
    """
    folder: list[TraceFolder] = []

    def recorder(resolved: Scenario) -> Recorder:
        folder.append(TraceFolder(trace, to_json(resolved)))
        level, one_in = cast(Level, resolved.record), cast(int, resolved.settings["one_in"])
        return Recorder(folder[0], level, one_in=one_in)

    began, began_cpu = monotonic(), process_time()
    flushed = began
    world = make_world(scenario, recorder, check=check)

    def progress(done: Time, whole: Time) -> None:
        nonlocal flushed
        if monotonic() - flushed > flush_every_s:
            world.recorder.flush()
            flushed = monotonic()
        if show is not None:
            show(SimulationProgress(done, whole, world.messages))

    try:
        world.run(progress)
    finally:
        world.recorder.close()
    summary = RunSummary(
        world.scenario.run, world.scenario, str(trace), scenario.seconds,
        monotonic() - began, process_time() - began_cpu, world.messages, world.recorder.counts,
    )  # fmt: skip
    folder[0].finish(asdict(summary))
    return summary
