"""Notes of the levels between which publications go, against a tree small enough to do by hand."""

from collections import Counter

import pytest

from grove import Grove, run
from nearcast.model.commands import Publish
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.shapes import box, point


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_message_that_arrives_with_a_publication_is_noted_once_at_each_end(
    strategy: str,
) -> None:
    _, trace = run(nodes=60, strategy=strategy, note_levels=True, hotspots="hot", sample_ms=0.0)
    rows = trace.table("messages").to_pylist()
    assert {row["copies"] for row in rows} == {1}
    arrived = Counter(
        (row["to"], row["publication"], row["arrived"])
        for row in rows
        if row["publication"] is not None
    )
    assert len(arrived) > 100
    notes = trace.table("notes").to_pylist()
    for fact in ("leaves", "arrives"):
        noted = [row for row in notes if row["fact"] == fact]
        assert Counter((row["node"], row["about"], row["t"]) for row in noted) == arrived


def test_a_trace_has_no_such_notes_unless_they_are_wanted() -> None:
    _, trace = run(nodes=20, sample_ms=0.0)
    assert not {"leaves", "arrives"} & set(trace.table("notes").column("fact").to_pylist())


def west_and_east() -> Grove:
    """Level 1 has two nodes: peers 0, 1, 2 in the west, of which 0 is the largest and owns the root
    too, and 3, 4, 5 in the east, owned by 3. All want the point in the middle.
    """
    grove = Grove(
        Parameters(strategy="brothers", least=2, most=4, note_levels=True, check_ms=1000.0)
    )
    for node, (x, width) in enumerate(
        [(-90, 95), (-80, 82), (-81, 82), (85, 88), (80, 82), (81, 82)]
    ):
        grove.plant(node, box(x, 0, width, 10))
        grove.pass_periods(2)
    grove.settle()
    return grove


def ways(grove: Grove, publication: int) -> dict[tuple[int, int], tuple[float, float]]:
    """From peer to peer: from level to level."""
    ends = {
        (row["fact"], row["node"]): row["value"]
        for row in grove.memory.table("notes").to_pylist()
        if row["about"] == publication and row["fact"] in ("leaves", "arrives")
    }
    return {
        (row["node"], row["to"]): (ends["leaves", row["to"]], ends["arrives", row["to"]])
        for row in grove.memory.table("messages").to_pylist()
        if row["publication"] == publication
    }


def test_the_levels_of_brothers_are_those_found_by_hand() -> None:
    grove = west_and_east()
    for number, node in enumerate([5, 1, 0]):
        grove.simulation.obey(node, Publish(1_000_000 + number, point(0, 0)))
    grove.pass_periods(2)
    grove.simulation.recorder.close()
    # 5 tells its brother and its father; the father, whose own father is the root, its brother in
    # the west, and that one its children.
    assert ways(grove, 1_000_000) == {
        (5, 4): (0, 0), (5, 3): (0, 1), (3, 0): (1, 1), (0, 1): (1, 0), (0, 2): (1, 0),
    }  # fmt: skip
    # The father of 1 owns the root too, so it serves the east from there.
    assert ways(grove, 1_000_001) == {
        (1, 2): (0, 0), (1, 0): (0, 1), (0, 3): (2, 1), (3, 4): (1, 0), (3, 5): (1, 0),
    }  # fmt: skip
    # The root's owner has nobody above and serves the children of both its nodes.
    assert ways(grove, 1_000_002) == {
        (0, 1): (1, 0), (0, 2): (1, 0), (0, 3): (2, 1), (3, 4): (1, 0), (3, 5): (1, 0),
    }  # fmt: skip
