"""Publications in a DR-tree of a million peers: the simulator's messages, simulated part by part.

The tree has settled before and is cut into parts (`tree_parts`). A Spark task simulates one part,
with the simulator and with the overlay's own nodes: it plays the publications of its peers, follows
all messages inside the part and the top, and returns those for other parts, as bytes. The next
round begins with these, and the rounds end when nothing has left. A publication climbs in the part
of its publisher, whose task knows the top, and comes down from there: two rounds.

The parts leave one trace, as `nearcast simulate` does: tables that `analyse` counts. In a tree at
rest no peer gets a second copy of a publication, and delays are constant. So it does not matter
that parts do not share a clock, and each row is that of the whole simulation, to the microsecond.
"""

from collections.abc import Iterator
from time import monotonic, process_time
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.extras import keep_pandas_out
from nearcast.pipeline.spark import storage
from nearcast.protocols.drtree.messages import CODEC
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.scenario import Scenario, from_json, to_json
from nearcast.sim.network import MILLISECOND, ConstantDelay
from nearcast.sim.run import RunSummary
from nearcast.sim.simulation import Arrival, Simulation
from nearcast.sim.workload_player import WorkloadPlayer
from nearcast.space.motion import SECOND, Time
from nearcast.storage import AnyPath, list_names, locate, write_whole
from nearcast.trace.recorder import Level, Recorder
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TABLE_ORDER, MemoryTrace, TraceFolder
from nearcast_papers.drtree.prepared_tree import (
    INTERESTS,
    PreparedTree,
    Show,
    make_workload,
    resolve_at_rest,
    silent,
    write_part,
)
from nearcast_papers.drtree.tree_parts import PartPeers, TreePart

LEFT = pa.schema(
    [
        ("part", pa.int64()), ("t", pa.int64()), ("to", pa.int64()), ("sender", pa.int64()),
        ("message", pa.binary()),
    ]
)  # fmt: skip


class PartNumber(Struct, frozen=True):
    """A part that a task simulates."""

    number: int


class Dissemination(Struct, frozen=True):
    """What a run has done, and how many messages left their part in each round."""

    summary: RunSummary
    left: tuple[int, ...]


# The rounds.


class CutRun(Struct, frozen=True):
    """A run in a tree that is cut, as its tasks need it."""

    scenario: bytes
    begins: Time  # of the workload
    tree: str  # folder
    parts: int
    trace: str


def disseminate(
    spark: SparkSession,
    scenario: Scenario,
    prepared: PreparedTree,
    out: AnyPath,
    *,
    begins: Time = 0,
    show: Show | None = None,
) -> Dissemination:
    """Run a scenario in a prepared tree and write its trace. `begins`: when the workload does."""
    began, began_cpu, out = monotonic(), process_time(), out.absolute()
    resolved, _ = resolve_at_rest(scenario)
    if resolved.nodes != prepared.peers:
        raise ValueError(f"the tree has {prepared.peers:,} peers, the scenario {resolved.nodes:,}")
    trace = TraceFolder(out, to_json(resolved))
    copy_interests(locate(prepared.folder) / INTERESTS, out / INTERESTS)
    run = CutRun(to_json(resolved), begins, prepared.folder, prepared.parts, str(out))
    left = play_rounds(spark, run, show or silent)
    traces = storage.open_traces([out])
    groups = {name: storage.list_row_groups(traces, name)[0] for name in TABLES}
    rows = {name: sum(group.rows for group in some) for name, some in groups.items()}
    summary = RunSummary(
        resolved.run, resolved, str(out), resolved.seconds, monotonic() - began,
        process_time() - began_cpu, rows["messages"], rows,
    )  # fmt: skip
    trace.finish(asdict(summary))
    return Dissemination(summary, tuple(left))


def play_rounds(spark: SparkSession, run: CutRun, show: Show) -> list[int]:
    """Until no message leaves its part; how many have left in each round."""
    counts: list[int] = []
    left: DataFrame | None = None
    while not counts or counts[-1]:
        show(f"round {len(counts) + 1}: {counts[-1] if counts else 0:,} messages between parts")
        before, left = left, play_round(spark, run, len(counts), left).cache()
        counts.append(left.count())
        if before is not None:
            before.unpersist()
    if left is not None:
        left.unpersist()
    return counts


def copy_interests(source: AnyPath, target: AnyPath) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in list_names(source):
        write_whole(target / name, (source / name).read_bytes())


def play_round(spark: SparkSession, run: CutRun, number: int, left: DataFrame | None) -> DataFrame:
    """The messages that leave their parts in the first round, in which peers publish, or in the
    next one after that in which these have left."""

    def first(part: PartNumber) -> Iterator[pa.RecordBatch]:
        yield play_part(run, part.number, 0, [])

    def later(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        rows = pa.Table.from_batches(batches, LEFT)
        for part in sorted(set(rows["part"].to_pylist())):
            arrivals = decoded(rows.filter(pc.equal(rows["part"], part)))
            yield play_part(run, part, number, arrivals)

    if left is None:
        numbers = [PartNumber(part) for part in range(run.parts)]
        return storage.map_items(spark, numbers, PartNumber, first, LEFT)
    together = left.repartitionById(run.parts, left["part"].cast("int"))
    return together.mapInArrow(later, from_arrow_schema(LEFT))


# Inside a task.

Due: TypeAlias = tuple[Time, Arrival]


def decoded(rows: pa.Table) -> list[Due]:
    columns = (rows[name].to_pylist() for name in ("t", "to", "sender", "message"))
    return [
        (t, (to, sender, CODEC.decode(message)))
        for t, to, sender, message in zip(*columns, strict=True)
    ]


def play_part(run: CutRun, number: int, round_number: int, arrivals: list[Due]) -> pa.RecordBatch:
    """Simulate a part and write what it records; the messages that leave it. In the first round
    its peers act, later messages arrive."""
    scenario, settings = resolve_at_rest(from_json(run.scenario))
    part = TreePart(locate(run.tree), number)
    workload = make_workload(scenario, settings)
    parameters = cast(Parameters, settings.protocol)
    peers = PartPeers(part, parameters, workload, publish=round_number == 0)
    trace = MemoryTrace()
    recorder = Recorder(trace, cast(Level, scenario.record), one_in=settings.sampling.one_in)
    delay = ConstantDelay(round(settings.network.latency_ms * MILLISECOND))
    simulation = Simulation(delay, CODEC, recorder)
    simulation.nodes = peers
    ends = run.begins + round(scenario.seconds * SECOND)
    if round_number:
        for t, arrival in sorted(arrivals, key=lambda due: due[0]):
            simulation.at(t, arrival)
    else:
        player = WorkloadPlayer(simulation, run.begins, ends)
        for peer, acts in part.publishers:
            if run.begins + acts < ends:
                player.enter(peer, workload.life(peer, 0, 0), settled=True)
    simulation.run(max([ends, *(t for t, _ in arrivals)]))
    while simulation.now < simulation.latest_arrival:
        simulation.run(simulation.latest_arrival)
    recorder.close()
    for name in TABLE_ORDER:
        file = round_number * run.parts + number
        write_part(locate(run.trace) / name, file, trace.table(name))
    return pa.RecordBatch.from_pylist(
        [
            {"part": home, "t": t, "to": to, "sender": sender, "message": CODEC.encode(message)}
            for home, t, to, sender, message in peers.left
        ],
        LEFT,
    )
