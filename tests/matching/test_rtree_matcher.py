"""What the contract of engines cannot see of the R-tree: its shape, its boxes and its thrift."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching import rtree
from nearcast.matching.rtree import MARGIN, NOWHERE, RTreeMatcher, TreeNode, slice_seconds
from nearcast.model.publication import Publication
from nearcast.model.subscription import Region, Subscription
from nearcast.space.boxes import BoxBounds, box_around, union
from nearcast.space.motion import FASTEST, LATEST, SECOND, Moving, Path
from nearcast.space.rtree import SPLITS
from nearcast.space.shapes import EVERYWHERE, LARGEST, Shape, box, disc, point
from support.examples import examples
from support.strategies import TIMES, regions, shapes

PATHS = regions(3).filter(lambda region: isinstance(region, Path))
all_splits = pytest.mark.parametrize("split", SPLITS)


def bounds(shape: Shape) -> BoxBounds:
    return box_around(shape, MARGIN)


# The tree is legal


def assert_legal(engine: RTreeMatcher, least: int, most: int, expected: list[int]) -> None:
    """Guttman, section 2: the properties of an R-tree, which hold at any time."""
    root = engine.tree.root
    assert root.parent is None
    assert root.level == 1 or len(root.children) >= 2
    entries: list[int] = []
    nodes = [root]
    while nodes:
        node = nodes.pop()
        assert len(node.children) <= most
        assert node is root or len(node.children) >= least
        assert node.box == union([NOWHERE, *(child.box for child in node.children)])
        for child in node.children:
            assert child.parent is node
            assert child.level == node.level - 1  # so all entries lie at one depth
        if node.level == 1:
            entries.extend(entry.subscription for entry in node.children)
        else:
            nodes.extend(node.children)
    assert sorted(entries) == expected


# What happens to a subscription: it gets a region, or goes; or time passes for all.
Act = tuple[int, Region | None] | int
IDS = st.integers(0, 59)
ACTS: st.SearchStrategy[Act] = st.one_of(
    st.tuples(IDS, regions(3)),
    st.tuples(IDS, shapes(3).map(Moving)),
    st.tuples(IDS, st.none()),
    st.tuples(IDS, st.none()),
    TIMES,
)


@all_splits
@examples(100)
@given(
    size=st.sampled_from([(2, 4), (2, 5), (3, 7), (4, 8)]),
    crowd=st.integers(0, 60),
    acts=st.lists(ACTS, min_size=1, max_size=60),
)
def test_the_tree_is_legal_after_any_history(
    split: str, size: tuple[int, int], crowd: int, acts: list[Act]
) -> None:
    engine = RTreeMatcher(*size, split)
    # A crowd on a small lattice, to have tall trees with ties and duplicates from the beginning.
    lattice: list[Act] = [(i, Moving(box(i * 7 % 10, i * 3 % 6, 1, i % 3))) for i in range(crowd)]
    indexed: dict[int, None] = {}
    for act in lattice + acts:
        if isinstance(act, int):
            engine.match(Publication(0, 0, act, point(0, 0)), act)
        else:
            subscription, region = act
            indexed.pop(subscription, None)
            if region is None:
                engine.drop(subscription)
            else:
                engine.put(Subscription(subscription, 0, region))
            if isinstance(region, Moving | Path):
                indexed[subscription] = None
        assert_legal(engine, *size, sorted(indexed))


@all_splits
def test_a_tall_tree_is_legal_while_it_grows_and_until_nothing_is_left(split: str) -> None:
    rng, engine = Random(split), RTreeMatcher(2, 4, split)
    ids = list(range(400))
    for i in ids:
        engine.put(Subscription(i, i, Moving(disc(rng.gauss(0, 50), rng.gauss(0, 50), 3.0))))
        if i % 20 == 0:
            assert_legal(engine, 2, 4, ids[: i + 1])
    assert engine.tree.root.level >= 5
    rng.shuffle(ids)
    while ids:
        engine.drop(ids.pop())
        if len(ids) % 20 == 0:
            assert_legal(engine, 2, 4, sorted(ids))
    assert engine.tree.root.level == 1
    assert engine.tree.root.box == NOWHERE


def test_an_overfull_root_is_split_by_the_chosen_rule() -> None:
    rng = Random(5)  # a crowd that each split parts in its own way
    crowd = [box(rng.uniform(0, 9), rng.uniform(0, 9), 1, rng.uniform(0, 5)) for _ in range(9)]
    groups = {}
    for split, decide in SPLITS.items():
        engine = RTreeMatcher(2, 8, split)
        for i, shape in enumerate(crowd):
            engine.put(Subscription(i, i, Moving(shape)))
        leaves = engine.tree.root.children
        groups[split] = tuple([entry.subscription for entry in leaf.children] for leaf in leaves)
        assert groups[split] == decide([bounds(shape) for shape in crowd], 2)
    assert groups["linear"] != groups["quadratic"] != groups["rstar"] != groups["linear"]


@pytest.mark.parametrize(("least", "most"), [(1, 8), (0, 8), (5, 8), (3, 5)])
def test_nodes_that_cannot_be_split_in_two_legal_ones_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        RTreeMatcher(least, most)


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'cubic'"):
        RTreeMatcher(split="cubic")


# Moving regions


def test_the_fastest_are_found_at_the_end_of_time_where_they_are_then() -> None:
    engine, fast = RTreeMatcher(), (FASTEST, 0.0, 0.0)
    runner = Moving(disc(0, 0, 1), velocity=fast)
    engine.put(Subscription(1, 1, Moving(EVERYWHERE, velocity=fast)))
    engine.put(Subscription(2, 1, runner))
    engine.put(Subscription(3, 1, Moving(disc(0, 0, 1), growth=fast)))
    late = LATEST - 1
    there = runner.at(late)
    assert there.x > 1e109
    assert engine.match(Publication(1, 2, late, point(0, 0)), late) == [1, 3]
    assert engine.match(Publication(2, 2, late, point(there.x, 0)), late) == [1, 2, 3]
    assert engine.match(Publication(3, 2, 0, point(0, 0)), 0) == [1, 2, 3]


# Slices of time


def test_a_typical_region_travels_its_own_width_in_a_slice() -> None:
    def walker(r: float, speed: float) -> Moving:
        return Moving(disc(0, 0, r), (speed, 0.0, 0.0))

    assert slice_seconds([walker(10.0, 4.0)], 0) == 5.0
    assert slice_seconds([walker(1.0, 4.0), walker(10.0, 4.0), walker(100.0, 4.0)], 0) == 5.0
    assert slice_seconds([walker(1e-9, 4.0)], 0) == rtree.SHORTEST
    assert slice_seconds([walker(LARGEST, 1e-300)], 0) == rtree.LONGEST
    assert slice_seconds([Moving(point(0, 0), (4.0, 0.0, 0.0))], 0) == rtree.USUAL


def test_regions_that_have_arrived_do_not_shorten_a_slice() -> None:
    arrived = Moving(disc(0, 0, 1), (4.0, 0.0, 0.0), duration=SECOND)
    assert slice_seconds([arrived], SECOND - 1) == 0.5
    assert slice_seconds([arrived], SECOND) == rtree.LONGEST


def test_only_what_moved_since_the_last_slice_is_inserted_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = RTreeMatcher()
    engine.put(Subscription(1, 1, Moving(disc(0, 0, 1))))
    engine.put(Subscription(2, 2, Moving(disc(0, 0, 1), (1.0, 0.0, 0.0), duration=SECOND)))
    engine.put(Subscription(3, 3, Moving(disc(0, 0, 1), (1.0, 0.0, 0.0))))
    inserted: list[int] = []
    insert = engine.tree.insert

    def note(subscription: int, around: BoxBounds) -> None:
        inserted.append(subscription)
        insert(subscription, around)

    monkeypatch.setattr(engine.tree, "insert", note)
    for t in (100 * SECOND, 100 * SECOND + 1, 200 * SECOND):
        engine.match(Publication(1, 9, t, point(0, 0)), t)
    assert inserted == [2, 3, 3]  # the second arrived before the first slice, which saw it moved


# Thrift


@all_splits
def test_a_search_in_a_large_world_looks_at_few_of_its_boxes(
    split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, engine = Random(split), RTreeMatcher(split=split)
    for i in range(2000):
        where = disc(rng.uniform(0, 1000), rng.uniform(0, 1000), 10.0)
        engine.put(Subscription(i, i, Moving(where)))
    looked_at = 0
    touching = rtree.touching

    def count(nodes: list[TreeNode], wanted: BoxBounds) -> list[TreeNode]:
        nonlocal looked_at
        looked_at += len(nodes)
        return touching(nodes, wanted)

    monkeypatch.setattr(rtree, "touching", count)
    for k in range(100):
        where = point(rng.uniform(0, 1000), rng.uniform(0, 1000))
        engine.match(Publication(k, 9999, 0, where), 0)
    assert 0 < looked_at < 100 * 2000 / 10
