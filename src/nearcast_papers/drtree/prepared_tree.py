"""A DR-tree in files, cut into parts, with the interests of its peers: made before publications go.

Spark makes the interests. The tree is grown in this process, with about a kilobyte for each peer.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from nearcast.model.subscription import NodeId
from nearcast.pipeline.spark import storage
from nearcast.protocols.drtree.contacts import MemberContacts
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.scenario import Scenario, from_json, to_json
from nearcast.sim.workload_player import has_settled
from nearcast.sim.world import ScenarioParts, resolve
from nearcast.space.boxes import BoxBounds
from nearcast.space.motion import FOREVER, Time
from nearcast.storage import AnyPath, list_names, locate, write_whole
from nearcast.trace.recorder import Level, Recorder
from nearcast.trace.sinks import MemoryTrace, encode_rows
from nearcast.workloads import WORKLOADS, churn
from nearcast.workloads.workload import Life, Workload
from nearcast_papers.drtree.tree_columns import TreeColumns, cut_tree, grow_tree
from nearcast_papers.drtree.tree_parts import subscribed_peer, write_parts

Show: TypeAlias = Callable[[str], None]
PEERS_PER_PART = 32_768
FEWEST_PARTS = 4
INTERESTS = "interests"


class PeerRange(Struct, frozen=True):
    """Peers whose interests a task makes, from the first to before the end."""

    number: int
    first: int
    end: int


class PreparedTree(Struct, frozen=True):
    """A tree in files, for runs of all strategies."""

    folder: str
    peers: int
    parts: int
    height: int
    at_top: int  # peers that own a node above the cut


# The scenario.


def resolve_at_rest(scenario: Scenario) -> tuple[Scenario, ScenarioParts]:
    """The scenario with its settings filled in, if it is one of a tree at rest."""
    resolved, parts = resolve(scenario)
    network = parts.network
    disturbed = (
        network.jitter_ms, network.loss, network.packet_loss, network.duplicate, network.reorder
    )  # fmt: skip
    for wrong, why in (
        (scenario.protocol != "drtree", f"the protocol must be drtree, not {scenario.protocol}"),
        (scenario.workload != "hotspots", "the workload must be hotspots, where nobody moves"),
        (network.network != "constant" or any(disturbed), "delays must be constant, without loss"),
        (parts.churn != churn.Parameters(), "nobody may come or go"),
        (parts.faults.any, "nobody may fail"),
        (parts.sampling.sample_ms, "positions are not sampled: set sample_ms=0"),
    ):
        if wrong:
            raise ValueError(f"a tree that is cut into parts stays as it is: {why}")
    return resolved, parts


def make_workload(scenario: Scenario, parts: ScenarioParts) -> Workload:
    workload: Workload = WORKLOADS[scenario.workload].make(
        parts.workload, scenario.nodes, scenario.seconds, scenario.seed
    )
    return workload


def first_act(life: Life) -> Time:
    """When an entity does something for the first time, besides what it wanted from the outset."""
    for t, command in life.commands():
        if t > 0 or not has_settled(command):
            return t
    return FOREVER


# The tree.


def prepare_tree(
    spark: SparkSession,
    scenario: Scenario,
    folder: AnyPath,
    *,
    tree: TreeColumns | None = None,
    parts: int | None = None,
    show: Show | None = None,
) -> PreparedTree:
    """Make the interests of all peers, grow a tree of them unless there is one, and cut it."""
    folder = folder.absolute()
    if list_names(folder):
        raise ValueError(f"{folder} is not empty")
    resolved, settings = resolve_at_rest(scenario)
    told = show or silent
    told(f"interests of {scenario.nodes:,} peers")
    boxes, acts = make_interests(spark, resolved, folder)
    if tree is None:
        told("the tree grows")
        tree = grow_tree(boxes, cast(Parameters, settings.protocol))
    if parts is None:
        parts = max(FEWEST_PARTS, -(-scenario.nodes // PEERS_PER_PART))
    cut = cut_tree(tree, parts)
    write_parts(tree, cut, acts, folder)
    at_top = int(np.count_nonzero(cut.home < 0))
    return PreparedTree(str(folder), scenario.nodes, parts, int(tree.level[0]), at_top)


def make_interests(
    spark: SparkSession, scenario: Scenario, folder: AnyPath
) -> tuple[dict[NodeId, BoxBounds], NDArray[np.int64]]:
    """Write the interests as files of a trace; each peer's box, and when it acts first."""
    (folder / INTERESTS).mkdir(parents=True, exist_ok=True)
    firsts = range(0, scenario.nodes, PEERS_PER_PART)
    ranges = [
        PeerRange(number, first, min(first + PEERS_PER_PART, scenario.nodes))
        for number, first in enumerate(firsts)
    ]
    text, place = to_json(scenario), str(folder / INTERESTS)
    dimensions = len(cast(Parameters, resolve(scenario)[1].protocol).names)
    names = [f"{side}{axis}" for side in ("low", "high") for axis in range(dimensions)]
    schema = pa.schema(
        [("peer", pa.int64()), ("acts", pa.int64()), *((name, pa.float64()) for name in names)]
    )

    def work(some: PeerRange) -> Iterator[pa.RecordBatch]:
        scenario, parts = resolve_at_rest(from_json(text))
        workload = make_workload(scenario, parts)
        trace, contacts, rows = MemoryTrace(), MemberContacts(0), []
        recorder = Recorder(trace, cast(Level, scenario.record))
        for number in range(some.first, some.end):
            peer = subscribed_peer(number, cast(Parameters, parts.protocol), workload, contacts)
            for subscription in peer.active.current.values():
                recorder.interest(0, subscription)
            box = peer.members[0].levels[0].box
            rows.append((number, first_act(workload.life(number, 0, 0)), *box.low, *box.high))
        recorder.close()
        write_part(locate(place), some.number, trace.table(INTERESTS))
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    made = storage.map_items(spark, ranges, PeerRange, work, schema).toArrow().sort_by("peer")
    lows, highs = (
        zip(*(made[name].to_pylist() for name in names if name.startswith(side)), strict=True)
        for side in ("low", "high")
    )
    boxes = dict(zip(made["peer"].to_pylist(), map(BoxBounds, lows, highs), strict=True))
    return boxes, made["acts"].to_numpy()


def write_part(folder: AnyPath, number: int, rows: pa.Table) -> None:
    """A part of a table of a trace; every attempt at a task writes the same."""
    if rows.num_rows:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"part-{number:05}.parquet", encode_rows(rows), uuid4().hex)


def silent(text: str) -> None:
    """Nobody wants to know how far it is."""
