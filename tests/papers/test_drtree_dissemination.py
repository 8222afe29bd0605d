"""A tree cut into parts leaves the trace of the whole simulation; a grown tree is a legal one."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from nearcast.node import Node
from nearcast.protocols.drtree.contacts import MemberContacts
from nearcast.protocols.drtree.invariants import find_violations, members_of
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.scenario import Scenario, to_json
from nearcast.sim.world import SimulatedWorld
from nearcast.space.boxes import BoxBounds
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast_papers.drtree.dissemination import CutRun, decoded, disseminate, play_part
from nearcast_papers.drtree.measures import STRATEGIES
from nearcast_papers.drtree.prepared_tree import first_act, prepare_tree, resolve_at_rest
from nearcast_papers.drtree.tree_columns import TOP, TreeColumns, cut_tree, grow_tree, read_tree
from nearcast_papers.drtree.tree_parts import PartPeers, TreePart, subscribed_peer, write_parts
from support.brute_force import delivered, expected
from support.drtree_worlds import members, run
from support.examples import examples

ALL = [*STRATEGIES, "by-root"]


def rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def assert_same_trace(whole: MemoryTrace, parts: Path, at_least: int) -> None:
    """But for upkeep, which a tree at rest does not have."""
    for name in ("publications", "messages", "deliveries"):
        wanted = whole.table(name)
        if name == "messages":
            wanted = wanted.filter(pc.is_valid(wanted["publication"]))
        assert wanted.num_rows >= at_least
        assert rows(ds.dataset(parts / name).to_table()) == rows(wanted), name


@pytest.mark.parametrize("strategy", ALL)
def test_parts_leave_the_trace_of_the_whole(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    world, whole = run(
        nodes=300, seconds=2.0, seed=3, hotspots="hot", strategy=strategy, sample_ms=0.0
    )
    tree = read_tree(members(world.simulation))
    prepared = prepare_tree(spark, world.scenario, tmp_path / "tree", tree=tree, parts=7)
    assert 1 < prepared.at_top < 100
    with pytest.raises(ValueError, match="not empty"):
        prepare_tree(spark, world.scenario, tmp_path / "tree", tree=tree, parts=7)
    done = disseminate(spark, world.scenario, prepared, tmp_path / "trace", begins=world.begins)
    assert done.left[0] > 20
    assert done.left[1:] == (0,)
    assert_same_trace(whole, tmp_path / "trace", at_least=200)
    found = {
        name: ds.dataset(tmp_path / "trace" / name).to_table()
        for name in ("interests", "publications", "deliveries")
    }
    due = expected(found["interests"], found["publications"])
    assert sorted(delivered(found["deliveries"])) == sorted(due)


def play(world: SimulatedWorld, tree: TreeColumns, parts: int, folder: Path, begins: int) -> int:
    """The rounds, in this process; how many messages have left their part."""
    scenario, _ = resolve_at_rest(world.scenario)
    lives = (world.workload.life(peer, 0, 0) for peer in range(scenario.nodes))
    write_parts(tree, cut_tree(tree, parts), np.array([*map(first_act, lives)]), folder / "tree")
    cut = CutRun(to_json(scenario), begins, str(folder / "tree"), parts, str(folder / "trace"))
    left = pa.Table.from_batches([play_part(cut, part, 0, []) for part in range(parts)])
    for part in range(parts):
        arrivals = decoded(left.filter(pc.equal(left["part"], part)))
        assert not play_part(cut, part, 1, arrivals).num_rows
    return left.num_rows


@given(st.integers(0, 10**6), st.integers(40, 160), st.integers(1, 12), st.sampled_from(ALL))
@examples(40)
def test_random_trees_in_any_number_of_parts(
    seed: int, nodes: int, parts: int, strategy: str
) -> None:
    world, whole = run(
        nodes=nodes, seconds=0.5, seed=seed, strategy=strategy, size=400.0, sample_ms=0.0
    )
    with TemporaryDirectory() as folder:
        tree = read_tree(members(world.simulation))
        left = play(world, tree, parts, Path(folder), world.begins)
        assert parts > 1 or not left
        assert_same_trace(whole, Path(folder) / "trace", at_least=1)


@given(st.integers(0, 10**6), st.integers(2, 250), st.integers(1, 9), st.sampled_from(ALL))
@examples(40)
def test_a_grown_tree_is_legal_and_delivers_exactly(
    seed: int, nodes: int, parts: int, strategy: str
) -> None:
    scenario = Scenario(
        protocol="drtree", workload="hotspots", nodes=nodes, seconds=0.5, seed=seed,
        settings={"strategy": strategy, "size": 300.0, "sample_ms": 0.0, "rate": 2.0},
    )  # fmt: skip
    parameters, contacts = Parameters(strategy=strategy), MemberContacts(0)
    world = SimulatedWorld(scenario, lambda _: Recorder(MemoryTrace()))  # it does not run
    peers = [subscribed_peer(n, parameters, world.workload, contacts) for n in range(nodes)]
    tree = grow_tree({peer.id: peer.members[0].levels[0].box for peer in peers}, parameters)
    interests = MemoryTrace()
    recorder = Recorder(interests)
    for peer in peers:
        for subscription in peer.active.current.values():
            recorder.interest(0, subscription)
    recorder.close()
    with TemporaryDirectory() as folder:
        play(world, tree, parts, Path(folder), 0)
        assert_legal(tree, parts, Path(folder) / "tree", world, parameters)
        trace = Path(folder) / "trace"
        if (trace / "publications").exists():
            published = ds.dataset(trace / "publications").to_table()
            made = ds.dataset(trace / "deliveries").to_table()
            due = expected(interests.table("interests"), published)
            assert sorted(delivered(made)) == sorted(due)
            assert len(due) >= published.num_rows  # each publishes within its own area


def assert_legal(
    tree: TreeColumns, parts: int, folder: Path, world: SimulatedWorld, parameters: Parameters
) -> None:
    """All peers, each as its part restores it, are a tree in its legal state, by the overlay's own
    definition, with the links that the strategy needs."""
    restored: dict[int, Node] = {}
    for part in range(parts):
        known = TreePart(folder, part)
        peers = PartPeers(known, parameters, world.workload, publish=True)
        restored |= {peer: peers[peer] for peer, home in known.home.items() if home in (part, TOP)}
    assert len(restored) == len(np.unique(tree.owner))
    assert not find_violations(members_of(restored), parameters)


@pytest.mark.parametrize(
    ("changed", "settings", "why"),
    [
        ({"protocol": "client-server"}, {}, "the protocol must be drtree"),
        ({"workload": "waypoint"}, {}, "nobody moves"),
        ({}, {"jitter_ms": 5.0}, "delays must be constant"),
        ({}, {"loss": 0.1}, "delays must be constant"),
        ({}, {"network": "embedding"}, "delays must be constant"),
        ({}, {"churn_rate": 1.0}, "nobody may come or go"),
        ({}, {"crash": 0.1}, "nobody may fail"),
        ({}, {"sample_ms": 100.0}, "sample_ms=0"),
    ],
)
def test_a_world_that_changes_its_tree_is_refused(
    changed: dict[str, str], settings: dict[str, Any], why: str
) -> None:
    kind = {"protocol": "drtree", "workload": "hotspots", **changed}
    scenario = Scenario(**kind, nodes=9, seconds=1.0, settings={"sample_ms": 0.0, **settings})
    with pytest.raises(ValueError, match=why):
        resolve_at_rest(scenario)


def test_a_grown_tree_does_not_know_latencies() -> None:
    boxes = {peer: BoxBounds((0.0, 0.0), (1.0, 1.0)) for peer in range(9)}
    with pytest.raises(ValueError, match="by latency"):
        grow_tree(boxes, Parameters(promotes="latency"))
