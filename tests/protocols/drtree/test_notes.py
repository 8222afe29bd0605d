"""Notes of the steps that publications take between nodes of the tree: against a tree small enough
to do by hand, and against the boxes of larger ones."""

from collections import Counter

import pytest

from nearcast.model.commands import Publish
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.sim.simulation import Simulation
from nearcast.space.shapes import box, point
from nearcast.trace.sinks import MemoryTrace
from support.drtree_worlds import DRTreeWorld, members, run


def steps(
    trace: MemoryTrace, fact: str, publication: int | None = None
) -> Counter[tuple[int, int]]:
    """How often which peer noted which level."""
    return Counter(
        (row["node"], round(row["value"]))
        for row in trace.table("notes").to_pylist()
        if row["fact"] == fact and publication in (None, row["about"])
    )


def visited(simulation: Simulation, x: float, y: float) -> Counter[tuple[int, int]]:
    """By brute force: the nodes of the tree, by owner and level, whose box holds a place."""
    return Counter(
        (address // 256, level)
        for address, member in members(simulation).items()
        for level, node in enumerate(member.levels)
        if node.box.low[0] <= x <= node.box.high[0] and node.box.low[1] <= y <= node.box.high[1]
    )


@pytest.mark.parametrize("strategy", ["double-wave", "brothers", "root-link", "ancestors"])
def test_every_node_whose_box_holds_the_place_is_reached_once(strategy: str) -> None:
    """But for the publisher's leaf, unless the root sends to it, and the root where brothers need
    none.
    """
    world, trace = run(
        nodes=150, strategy=strategy, note_levels=True, hotspots="hot", sample_ms=0.0, seconds=1.0
    )
    (root,) = [m for m in members(world.simulation).values() if m.is_root]
    should: Counter[tuple[int, int]] = Counter()
    for row in trace.table("publications").to_pylist():
        holding = visited(world.simulation, row["x"], row["y"])
        if strategy != "root-link":
            del holding[row["node"], 0]
        if strategy == "brothers":
            del holding[root.address // 256, root.top]
        should += holding
    assert len(should) > 80
    assert steps(trace, "arrives") == should
    assert steps(trace, "leaves").total() == should.total()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trace_has_no_such_notes_unless_they_are_wanted(strategy: str) -> None:
    _, trace = run(nodes=20, sample_ms=0.0, seconds=2.0, strategy=strategy)
    assert not {"leaves", "arrives"} & set(trace.table("notes").column("fact").to_pylist())


def west_and_east(strategy: str) -> DRTreeWorld:
    """Level 1 has two nodes: peers 0, 1, 2 in the west, of which 0 is the largest and owns the root
    too, and 3, 4, 5 in the east, owned by 3. All want the point in the middle.
    """
    world = DRTreeWorld(
        Parameters(strategy=strategy, least=2, most=4, note_levels=True, check_ms=1000.0)
    )
    for node, (x, width) in enumerate(
        [(-90, 95), (-80, 82), (-81, 82), (85, 88), (80, 82), (81, 82)]
    ):
        world.join(node, box(x, 0, width, 10))
        world.pass_periods(2)
    world.settle()
    for number, publisher in enumerate([5, 1, 0]):
        world.simulation.obey(publisher, Publish(1_000_000 + number, point(0, 0)))
    world.pass_periods(2)
    world.simulation.recorder.close()
    return world


# Who noted it, from which level, to which.
BY_HAND = {
    # 5 tells its brother and its father; the father its own leaf, which is a brother of 5, and, as
    # its own father is the root, its brother in the west, and that one its children.
    ("brothers", 0): [
        (4, 0, 0), (3, 0, 1), (3, 0, 0), (0, 1, 1), (1, 1, 0), (2, 1, 0), (0, 1, 0),
    ],
    # The father of 1 owns the root too, yet it is the node in the west that tells the east.
    ("brothers", 1): [
        (2, 0, 0), (0, 0, 1), (0, 0, 0), (3, 1, 1), (4, 1, 0), (5, 1, 0), (3, 1, 0),
    ],
    ("brothers", 2): [
        (0, 0, 1), (1, 0, 0), (2, 0, 0), (3, 1, 1), (4, 1, 0), (5, 1, 0), (3, 1, 0),
    ],
    # Up from node to node, and down wherever it has not come from.
    ("double-wave", 0): [
        (3, 0, 1), (3, 1, 0), (4, 1, 0), (0, 1, 2), (0, 2, 1), (0, 1, 0), (1, 1, 0), (2, 1, 0),
    ],
    # From the leaf to all nodes above it at once.
    ("ancestors", 1): [
        (0, 0, 1), (0, 0, 2), (0, 1, 0), (2, 1, 0), (3, 2, 1), (3, 1, 0), (4, 1, 0), (5, 1, 0),
    ],
    # To the root, and from there down, back to the publisher too.
    ("root-link", 2): [
        (0, 0, 2), (0, 2, 1), (0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 2, 1), (3, 1, 0), (4, 1, 0),
        (5, 1, 0),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("strategy", "number"), BY_HAND)
def test_the_noted_steps_are_those_computed_by_hand(strategy: str, number: int) -> None:
    trace = west_and_east(strategy).memory
    by_hand = BY_HAND[strategy, number]
    publication = 1_000_000 + number
    assert steps(trace, "leaves", publication) == Counter((who, a) for who, a, _ in by_hand)
    assert steps(trace, "arrives", publication) == Counter((who, b) for who, _, b in by_hand)
