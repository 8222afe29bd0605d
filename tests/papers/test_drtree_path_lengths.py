"""Steps counted in the tree alone are those that messages took, and those counted on a graph."""

from collections import defaultdict

from pyspark.sql import SparkSession

from nearcast.protocols.drtree.messages import SLOTS
from nearcast.sim.world import SimulatedWorld
from nearcast.trace.sinks import MemoryTrace
from nearcast_papers.drtree import path_lengths
from nearcast_papers.drtree.measures import STRATEGIES
from support.drtree_worlds import members, run

PAIRS = "run string, publication long, publisher long, node long, outcome string"
NOTES = "run string, t long, node long, fact string, about long, value double"


def pair_rows(strategy: str, trace: MemoryTrace) -> list[tuple[str, int, int, int, str]]:
    made = {row["publication"]: row["node"] for row in trace.table("publications").to_pylist()}
    return [
        (strategy, row["publication"], made[row["publication"]], row["node"], "correct")
        for row in trace.table("deliveries").to_pylist()
    ]


def note_rows(strategy: str, trace: MemoryTrace) -> list[tuple[object, ...]]:
    return [
        (strategy, *(row[name] for name in ("t", "node", "fact", "about", "value")))
        for row in trace.table("notes").to_pylist()
    ]


def lineage(world: SimulatedWorld, leaf: int) -> list[tuple[int, int]]:
    """From a peer's leaf to the root: the nodes of the tree, by owner and level."""
    found = members(world.simulation)
    member, nodes = found[leaf * SLOTS], []
    while True:
        nodes += [(member.address, level) for level in range(len(nodes), member.top + 1)]
        if member.parent is None:
            return nodes
        member = found[member.parent]


def steps(strategy: str, up: list[tuple[int, int]], down: list[tuple[int, int]]) -> int:
    """From leaf to leaf in the tree, along its edges and the links that the strategy adds."""
    if strategy == "root-link":
        return 1 + len(down) - 1  # to the root, and down every level
    meeting = next(node for node in up if node in down)
    rise, fall = up.index(meeting), down.index(meeting)
    if rise == 0:
        return 0
    if strategy == "ancestors":
        return 1 + fall  # a link to the common ancestor
    if strategy == "brothers":
        return (rise - 1) + 1 + (fall - 1)  # a link between its children
    return rise + fall


def test_path_lengths_follow_from_the_tree_for_every_strategy(spark: SparkSession) -> None:
    pairs: list[tuple[str, int, int, int, str]] = []
    notes: list[tuple[object, ...]] = []
    peers: dict[tuple[str, int], int] = {}  # by strategy and publication, of the last one
    nodes: dict[tuple[str, int], int] = {}
    interested: dict[tuple[str, int], int] = defaultdict(int)
    for strategy in STRATEGIES:
        world, trace = run(
            nodes=150, seconds=1.0, strategy=strategy, hotspots="burning", sample_ms=0.0, rate=2.0
        )
        lines = {peer: lineage(world, peer) for peer in world.simulation.nodes}
        pairs += pair_rows(strategy, trace)
        notes += note_rows(strategy, trace)
        hops = [row["hops"] for row in trace.table("deliveries").to_pylist()]
        mine = [pair for pair in pairs if pair[0] == strategy]
        for (_, publication, publisher, node, _), taken in zip(mine, hops, strict=True):
            name = strategy, publication
            interested[name] += 1
            peers[name] = max(peers.get(name, 0), taken)
            far = steps(strategy, lines[publisher], lines[node])
            nodes[name] = max(nodes.get(name, 0), far)
    answer = path_lengths.steps(
        spark.createDataFrame(pairs, PAIRS), spark.createDataFrame(notes, NOTES)
    )
    rows = answer.collect()
    assert sum(row["publications"] for row in rows) == len(interested) > 1000
    for row in rows:
        strategy = row["run"]
        these = [n for n, k in interested.items() if n[0] == strategy and k == row["interested"]]
        assert row["publications"] == len(these)
        column = strategy.replace("-", "_")
        assert row[f"peers_{column}"] == sum(peers[name] for name in these)
        assert row[f"nodes_{column}"] == sum(nodes[name] for name in these)
    assert max(nodes.values()) > max(peers.values()) > 3, "else it would prove little"
