"""The R-tree's decisions against naive ones: all pairs, all cuts, whole groups measured anew.

The oracles compute on small integers, where floats are exact, and share no code with the module.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.space.boxes import BoxBounds, contains, overlaps, union
from nearcast.space.rtree import (
    NOTHING,
    SPLITS,
    Split,
    choose,
    enlargement,
    margin,
    split_linear,
    split_quadratic,
    split_rstar,
    volume,
)
from support.examples import examples

# Worlds of boxes

SMALL = st.integers(-8, 8).map(float)
HUGE = st.sampled_from([-1.7e308, -1e200, -1.0, 0.0, 5e-324, 1e-200, 1.0, 1e200, 1.7e308])
WILD = HUGE | st.floats(allow_nan=False, allow_infinity=False)

all_splits = pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
some = examples(50)
many = examples(150)


@st.composite
def bounds(
    draw: st.DrawFn, dimensions: int, coordinates: st.SearchStrategy[float], *, unbounded: bool
) -> BoxBounds:
    sides = []
    for _ in range(dimensions):
        low, high = sorted([draw(coordinates), draw(coordinates)])
        bounded = [(low, high), (low, high), (low, low)]
        endless = [(low, inf), (-inf, high), (-inf, inf)]
        sides.append(draw(st.sampled_from(bounded + endless if unbounded else bounded)))
    return box(*sides)


@st.composite
def worlds(
    draw: st.DrawFn, coordinates: st.SearchStrategy[float], *, unbounded: bool
) -> list[BoxBounds]:
    """Two or more boxes of one to five dimensions, in part duplicates of each other."""
    one = bounds(draw(st.integers(1, 5)), coordinates, unbounded=unbounded)
    distinct = draw(st.lists(one, min_size=1, max_size=9))
    repeats = draw(st.lists(st.sampled_from(distinct), min_size=1, max_size=3))
    return draw(st.permutations(distinct + repeats))


small_worlds = worlds(SMALL, unbounded=False)
endless_worlds = worlds(SMALL, unbounded=True)
wild_worlds = worlds(WILD, unbounded=True)

Case = tuple[list[BoxBounds], int]


def cases(world: st.SearchStrategy[list[BoxBounds]]) -> st.SearchStrategy[Case]:
    """A world, and a least length that its groups can have."""
    return world.flatmap(lambda boxes: st.tuples(st.just(boxes), st.integers(1, len(boxes) // 2)))


def box(*sides: tuple[float, float]) -> BoxBounds:
    return BoxBounds(tuple(low for low, _ in sides), tuple(high for _, high in sides))


# Oracles

Measure = tuple[int, int, int]
Groups = tuple[list[int], list[int]]


def naive_union(boxes: Sequence[BoxBounds]) -> BoxBounds:
    dimensions = range(len(boxes[0].low))
    return box(*((min(b.low[d] for b in boxes), max(b.high[d] for b in boxes)) for d in dimensions))


def measure(b: BoxBounds) -> Measure:
    """Unbounded sides, exact volume and exact margin of the bounded dimensions."""
    unbounded, product, total = 0, 1, 0
    for low, high in zip(*b, strict=True):
        unbounded += (low == -inf) + (high == inf)
        if low != -inf and high != inf:
            product *= int(high) - int(low)
            total += int(high) - int(low)
    return unbounded, product, total


def less(a: Measure, b: Measure) -> Measure:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def more(a: Measure, b: Measure) -> Measure:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def naive_waste(a: BoxBounds, b: BoxBounds) -> Measure:
    return less(measure(naive_union([a, b])), more(measure(a), measure(b)))


def naive_growth(boxes: Sequence[BoxBounds], added: BoxBounds) -> Measure:
    return less(measure(naive_union([*boxes, added])), measure(naive_union(boxes)))


def naive_gather(
    boxes: Sequence[BoxBounds], seeds: tuple[int, int], least: int, *, by_preference: bool
) -> Groups:
    """Guttman's distribution of the rest to two seeds, every cover computed anew."""
    groups = [[seeds[0]], [seeds[1]]]
    rest = [i for i in range(len(boxes)) if i not in seeds]

    def growths(index: int) -> list[Measure]:
        return [naive_growth([boxes[i] for i in group], boxes[index]) for group in groups]

    def preference(index: int) -> Measure:
        one, other = growths(index)
        return less(max(one, other), min(one, other))

    while rest:
        if min(len(group) for group in groups) + len(rest) <= least:
            min(groups, key=len).extend(rest)
            break
        index = max(rest, key=preference) if by_preference else rest[0]
        rest.remove(index)
        ranks = [
            (growth, measure(naive_union([boxes[i] for i in group])), len(group))
            for growth, group in zip(growths(index), groups, strict=True)
        ]
        groups[0 if ranks[0] <= ranks[1] else 1].append(index)
    return sorted(groups[0]), sorted(groups[1])


def naive_linear_seeds(boxes: Sequence[BoxBounds]) -> list[tuple[int, int]]:
    """All pairs that are farthest apart, relative to the width of the world they lie in."""
    worth: dict[tuple[int, int], list[tuple[Fraction, float]]] = {}
    for dimension in range(len(boxes[0].low)):
        lows = [b.low[dimension] for b in boxes]
        highs = [b.high[dimension] for b in boxes]
        width = max(highs) - min(lows)
        for i, j in permutations(range(len(boxes)), 2):
            gap = lows[i] - highs[j]
            if width > 0:
                pair = (min(i, j), max(i, j))
                worth.setdefault(pair, []).append((Fraction(gap) / Fraction(width), gap))
    best = max((max(found) for found in worth.values()), default=None)
    pairs = combinations(range(len(boxes)), 2)
    return [pair for pair in pairs if best is None or max(worth[pair]) == best]


def naive_rstar(boxes: Sequence[BoxBounds], least: int) -> Groups:
    """All cuts on all axes, each group measured anew (Beckmann et al., section 4.2)."""

    def cuts(axis: int) -> Iterator[Groups]:
        sides = [(b.low[axis], b.high[axis]) for b in boxes]
        for key in (sides, [side[::-1] for side in sides]):
            order = [i for _, i in sorted((side, i) for i, side in enumerate(key))]
            for length in range(least, len(boxes) - least + 1):
                yield order[:length], order[length:]

    def covers(cut: Groups) -> tuple[BoxBounds, BoxBounds]:
        first, second = (naive_union([boxes[i] for i in group]) for group in cut)
        return first, second

    def margins(axis: int) -> tuple[int, int]:
        found = [measure(cover) for cut in cuts(axis) for cover in covers(cut)]
        return sum(m[0] for m in found), sum(m[2] for m in found)

    def cost(cut: Groups) -> tuple[Measure, Measure]:
        first, second = covers(cut)
        shared = [
            (max(a, c), min(b, d))
            for a, b, c, d in zip(first.low, first.high, second.low, second.high, strict=True)
        ]
        disjoint = any(low > high for low, high in shared)
        overlap = (0, 0, 0) if disjoint else measure(box(*shared))
        return overlap, more(measure(first), measure(second))

    axis = min(range(len(boxes[0].low)), key=margins)
    first, second = min(cuts(axis), key=cost)
    return sorted(first), sorted(second)


# Boxes


def test_touching_boxes_overlap_and_a_border_is_contained() -> None:
    square = box((0, 2), (0, 2))
    assert overlaps(square, box((2, 3), (2, 3)))
    assert not overlaps(square, box((2.1, 3), (0, 2)))
    assert not overlaps(square, box((0, 2), (2.1, 3)))
    assert contains(square, box((2, 2), (0, 2)))
    assert not contains(square, box((1, 2.1), (0, 1)))
    assert not contains(square, box((0, 1), (-0.1, 1)))


@some
@given(endless_worlds)
def test_boxes_overlap_if_intervals_share_an_end_and_contain_if_joining_adds_nothing(
    boxes: list[BoxBounds],
) -> None:
    a, b = boxes[:2]
    assert overlaps(a, b) == all(
        any(low <= end <= high and start <= end <= stop for end in (low, high, start, stop))
        for low, high, start, stop in zip(*a, *b, strict=True)
    )
    assert contains(a, b) == (naive_union([a, b]) == a)


@some
@given(wild_worlds)
def test_the_union_is_the_least_box_that_contains_all(boxes: list[BoxBounds]) -> None:
    assert union(boxes) == naive_union(boxes)


# Sizes


@some
@given(endless_worlds)
def test_size_and_margin_are_exact_on_integers(boxes: list[BoxBounds]) -> None:
    for b in boxes:
        assert volume(b) == measure(b)
        assert margin(b) == (measure(b)[0], measure(b)[2])


@some
@given(wild_worlds)
def test_no_size_is_ever_nan_and_a_part_is_never_larger_than_the_whole(
    boxes: list[BoxBounds],
) -> None:
    whole = union(boxes)
    for b in boxes:
        growths = [enlargement(b, other) for other in boxes]
        assert not any(isnan(number) for size in [volume(b), *growths] for number in size)
        assert volume(b) <= volume(whole)
        assert margin(b) <= margin(whole)
        assert all(min(growth) >= 0 for growth in growths)
        assert enlargement(whole, b) == NOTHING


@some
@given(endless_worlds | wild_worlds)
def test_a_box_needs_no_enlargement_exactly_when_it_contains_the_other(
    boxes: list[BoxBounds],
) -> None:
    a, b = boxes[:2]
    assert (enlargement(a, b) == NOTHING) == contains(a, b)


@some
@given(small_worlds)
def test_enlargement_is_what_the_union_takes_more(boxes: list[BoxBounds]) -> None:
    a, b = boxes[:2]
    assert enlargement(a, b) == naive_growth([a], b)


def test_sizes_order_by_unbounded_sides_then_volume_then_margin() -> None:
    rising = [
        box((5, 5), (5, 5)),
        box((0, 9), (5, 5)),
        box((0, 1), (0, 1)),
        box((0, 2), (0, 1)),
        box((-1e200, 1e200), (-1e200, 1e200)),
        box((-1e300, 1e300), (-1e200, 1e200)),
        box((-1.7e308, 1.7e308), (-1.7e308, 1.7e308)),
        box((0, inf), (5, 5)),
        box((0, inf), (0, 9)),
        box((-inf, inf), (0, 3)),
        box((-inf, inf), (-inf, inf)),
    ]
    sizes = [volume(b) for b in rising]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)


def test_a_flat_box_has_no_volume_however_large() -> None:
    assert volume(box((0, 1e200), (0, 1e200), (3, 3))).volume == 0
    assert volume(box((3, 3), (-1.7e308, 1.7e308))).volume == 0


# Choice


@some
@given(small_worlds)
def test_choose_finds_the_least_enlargement_then_the_least_size(boxes: list[BoxBounds]) -> None:
    *boxes, added = boxes
    costs = [(naive_growth([b], added), measure(b), i) for i, b in enumerate(boxes)]
    assert choose(boxes, added) == min(costs)[2]


@some
@given(endless_worlds)
def test_choose_finds_the_smallest_box_that_need_not_grow(boxes: list[BoxBounds]) -> None:
    *boxes, added = boxes
    ready = [(measure(b), i) for i, b in enumerate(boxes) if contains(b, added)]
    assert not ready or choose(boxes, added) == min(ready)[1]


def test_choose_does_not_take_the_growth_of_a_huge_box_for_free() -> None:
    huge, tiny = box(*[(0, 1e200)] * 3), box(*[(0, 1)] * 3)
    assert choose([huge, tiny], box(*[(-5, -5)] * 3)) == 1
    assert choose([huge, tiny], box(*[(5, 5)] * 3)) == 0
    assert enlargement(huge, box(*[(-1e200, 0)] * 3)) > enlargement(huge, box(*[(-1e199, 0)] * 3))


def test_choose_gives_a_strip_to_the_box_that_becomes_the_narrowest_strip() -> None:
    wide_and_large, narrow = box((0, 100), (0, 10)), box((0, 1), (0, 4))
    assert choose([wide_and_large, narrow], box((-inf, inf), (2, 3))) == 1


def test_choose_widens_a_bounded_box_rather_than_a_strip() -> None:
    strip, bounded = box((-inf, inf), (0, 1)), box((0, 9), (30, 40))
    assert choose([strip, bounded], box((0, 9), (2, 3))) == 1
    assert choose([strip, bounded], box((0, 9), (0, 1))) == 0
    assert choose([strip, bounded], box((-inf, 9), (2, 3))) == 1


def test_choose_sees_how_far_the_end_of_a_half_line_moves() -> None:
    assert choose([box((20, inf)), box((13, inf)), box((15, inf))], box((11, 12))) == 1


# Splits


@all_splits
@some
@given(case=cases(wild_worlds))
def test_a_split_is_a_partition_and_the_same_each_time(split: Split, case: Case) -> None:
    boxes, least = case
    first, second = split(boxes, least)
    assert sorted(first + second) == list(range(len(boxes)))
    assert first == sorted(first)
    assert second == sorted(second)
    assert min(len(first), len(second)) >= least
    assert split(tuple(boxes), least) == (first, second)


@many
@given(cases(small_worlds))
def test_the_quadratic_split_is_that_of_guttman(case: Case) -> None:
    boxes, least = case
    pairs = combinations(range(len(boxes)), 2)
    seeds = max(pairs, key=lambda pair: naive_waste(boxes[pair[0]], boxes[pair[1]]))
    assert split_quadratic(boxes, least) == naive_gather(boxes, seeds, least, by_preference=True)


@some
@given(endless_worlds)
def test_the_quadratic_split_parts_the_pair_that_wastes_most(boxes: list[BoxBounds]) -> None:
    first, second = split_quadratic(boxes, 1)
    parted = [naive_waste(boxes[i], boxes[j]) for i in first for j in second]
    assert max(parted) == max(naive_waste(a, b) for a, b in combinations(boxes, 2))


@many
@given(cases(small_worlds))
def test_the_linear_split_is_that_of_guttman_for_some_farthest_pair(case: Case) -> None:
    boxes, least = case
    assert split_linear(boxes, least) in [
        naive_gather(boxes, seeds, least, by_preference=False)
        for seeds in naive_linear_seeds(boxes)
    ]


@many
@given(cases(endless_worlds))
def test_the_rstar_split_is_the_best_of_all_cuts(case: Case) -> None:
    boxes, least = case
    assert split_rstar(boxes, least) == naive_rstar(boxes, least)


@all_splits
@some
@given(case=cases(endless_worlds), step=st.tuples(*[st.integers(-(10**6), 10**6)] * 5))
def test_a_split_does_not_depend_on_where_the_world_lies(
    split: Split, case: Case, step: tuple[int, ...]
) -> None:
    boxes, least = case

    def move(corner: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(x + by for x, by in zip(corner, step, strict=False))

    moved = [BoxBounds(move(b.low), move(b.high)) for b in boxes]
    assert split(moved, least) == split(boxes, least)
    assert choose(moved[1:], moved[0]) == choose(boxes[1:], boxes[0])


@all_splits
@pytest.mark.parametrize(
    "same", [box((1, 1)), box((0, 2), (1, 3)), box((-inf, inf), (0, 1)), box(*[(0, 1e200)] * 3)]
)
def test_identical_boxes_are_split_fairly(split: Split, same: BoxBounds) -> None:
    first, second = split([same] * 9, 4)
    assert sorted(first + second) == list(range(9))
    assert sorted([len(first), len(second)]) == [4, 5]


def test_the_linear_split_parts_points_along_their_widest_dimension() -> None:
    for far in (9, 1.7e308):
        points = [box((x, x), (y, y)) for y in (-far, far) for x in (0, 1)]
        assert split_linear(points, 2) == ([0, 1], [2, 3])


def test_the_linear_split_finds_seeds_though_one_box_lies_inside_all_others() -> None:
    assert split_linear([box((1, 9)), box((4, 5)), box((4, 9))], 1) == ([1], [0, 2])
    assert split_linear([box((3, 4)), box((3, 5)), box((1, 4))], 1) == ([0, 1], [2])


def test_the_linear_split_looks_past_unbounded_and_flat_dimensions() -> None:
    """Only the second dimension tells these apart; the others must neither win nor be NaN."""
    boxes = [box((-inf, inf), (at, at + 5), (7, 7)) for at in (3, 0, 4, 1)]
    assert split_linear(boxes, 2) == ([1, 3], [0, 2])


def test_the_linear_split_measures_separation_against_the_bounded_width() -> None:
    boxes = [box((0, 0), (0, 2)), box((10, inf), (1, 3)), box((1, 1), (5, 6)), box((9, 9), (5, 6))]
    assert split_linear(boxes, 2) == ([0, 2], [1, 3])


# A tree of points


@pytest.mark.parametrize("direction", [(1,), (1, 1), (0, 1), (1, 1, 1), (0, 1, 0)])
@all_splits
@examples(5)
@given(st.data())
def test_a_tree_of_points_keeps_distant_clusters_apart(
    split: Split, direction: tuple[int, ...], data: st.DataObject
) -> None:
    """Where `direction` is zero the world is flat, and only margins tell its boxes apart."""
    offsets = st.tuples(*(st.integers(0, 9 * d) for d in direction))
    near = data.draw(st.lists(offsets, min_size=20, max_size=40))
    far = [tuple(x + 999 * d for x, d in zip(p, direction, strict=True)) for p in near]
    points = [BoxBounds(p, p) for pair in zip(near, far, strict=True) for p in pair]
    home = union(points[::2])

    nodes = [points[:9]]  # One too many, and from both clusters: the first split must part them.
    for point in points[9:]:
        nodes = [part for node in nodes for part in halves(node, split)]
        nodes[choose([union(node) for node in nodes], point)].append(point)
    for node in nodes:
        assert len({contains(home, point) for point in node}) == 1

    covers = [union(node) for node in nodes]
    at_home = [i for i, cover in enumerate(covers) if contains(home, cover)]
    away = [i for i, cover in enumerate(covers) if not overlaps(home, cover)]
    assert sorted(split(covers, 2)) == sorted([at_home, away])


def halves(node: list[BoxBounds], split: Split) -> list[list[BoxBounds]]:
    if len(node) <= 8:
        return [node]
    return [[node[i] for i in group] for group in split(node, 4)]


# Wrong use


def test_boxes_of_different_dimensions_are_refused() -> None:
    line, square = box((0, 1)), box((0, 1), (0, 1))
    wrong_uses: list[Callable[[], object]] = [
        lambda: union([line, square]),
        lambda: overlaps(line, square),
        lambda: contains(square, line),
        lambda: enlargement(line, square),
        lambda: choose([line, line], square),
        *(partial(split, [line, square], 1) for split in SPLITS.values()),
    ]
    for wrong_use in wrong_uses:
        with pytest.raises(ValueError, match="dimensions cannot be mixed"):
            wrong_use()


def test_operations_on_no_boxes_are_refused() -> None:
    with pytest.raises(ValueError, match="union of no boxes"):
        union([])
    with pytest.raises(ValueError, match="no box to choose from"):
        choose([], box((0, 1)))


@all_splits
def test_a_split_needs_enough_boxes_and_a_sensible_least(split: Split) -> None:
    with pytest.raises(ValueError, match="7 boxes cannot fill two groups of at least 4"):
        split([box((0, 1))] * 7, 4)
    with pytest.raises(ValueError, match="at least one box"):
        split([box((0, 1))] * 7, 0)
