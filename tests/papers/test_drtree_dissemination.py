"""A tree cut into parts leaves the trace of the whole simulation."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from nearcast.trace.sinks import MemoryTrace
from nearcast_papers.drtree.dissemination import disseminate, prepare_tree
from nearcast_papers.drtree.measures import STRATEGIES
from nearcast_papers.drtree.tree_columns import read_tree
from support.brute_force import delivered, expected
from support.drtree_worlds import members, run

WORLD = {"nodes": 300, "seconds": 2.0, "seed": 3, "hotspots": "hot", "sample_ms": 0.0}


def rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def kept(trace: MemoryTrace, name: str) -> pa.Table:
    """What a tree at rest has, too: no upkeep."""
    table = trace.table(name)
    return table.filter(pc.is_valid(table["publication"])) if name == "messages" else table


@pytest.mark.parametrize("strategy", [*STRATEGIES, "by-root"])
def test_parts_leave_the_trace_of_the_whole(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    world, whole = run(**WORLD, strategy=strategy)
    tree = read_tree(members(world.simulation))
    prepared = prepare_tree(spark, world.scenario, tmp_path / "tree", tree=tree, parts=7)
    assert 1 < prepared.at_top < 100
    done = disseminate(spark, world.scenario, prepared, tmp_path / "trace", begins=world.begins)
    assert done.left[0] > 20
    assert done.left[1:] == (0,)
    for name in ("publications", "messages", "deliveries"):
        found = ds.dataset(tmp_path / "trace" / name).to_table()
        assert rows(found) == rows(kept(whole, name)), name
        assert found.num_rows == done.summary.rows[name] > 100
    interests = ds.dataset(tmp_path / "trace" / "interests").to_table()
    published = whole.table("publications")
    assert sorted(delivered(found)) == sorted(expected(interests, published))
