"""The decisions of an R-tree, as pure functions in any number of dimensions.

Which child takes a new box (`choose`), and how an overfull node falls in two (`SPLITS`). A tree in
main memory and a tree spread over peers (the DR-tree) differ in everything but these decisions, so
both call them here. After A. Guttman, "R-trees", SIGMOD 1984 (linear and quadratic split), and
N. Beckmann et al., "The R*-tree", SIGMOD 1990 (R* split).

Both papers tell how much room a box takes by its volume. That fails for points and flat boxes,
whose volume is always zero, and for boxes without end, whose volume is infinite. We therefore
measure by `Size`, which has an answer for each, and all decisions compare sizes.

Ties fall to the smaller index. A caller that sorts its boxes by id gets the same tree everywhere.
"""

from collections.abc import Callable, Sequence
from heapq import nlargest, nsmallest
from itertools import accumulate, combinations, compress
from math import inf, isfinite, isnan, prod
from operator import sub
from typing import NamedTuple

from nearcast.space.boxes import BoxBounds, overlaps, require_one_dimension


class Size(NamedTuple):
    """How much room a box takes; sizes compare as tuples.

    Unbounded sides come first, since no finite extent outweighs one. Then comes the volume spanned
    by the bounded dimensions, and last their margin, which decides where volume is blind: when it
    is zero, or beyond the floats and thus infinite.
    """

    unbounded: int
    volume: float
    margin: float


Split = Callable[[Sequence[BoxBounds], int], tuple[list[int], list[int]]]
"""From boxes and the least length of a group to two groups of indices, each in rising order."""

NOTHING = Size(0, 0.0, 0.0)


# Boxes


def volume(box: BoxBounds) -> Size:
    """The size of a box, to be compared with other sizes of the same dimension."""
    if len(box[0]) == 2:  # in the plane it is written out, unless a side or the area is not finite
        (west, south), (east, north) = box[0], box[1]
        width, height = east - west, north - south
        if width * height < inf:
            return Size(0, width * height, width + height)
    unbounded, extents = _extents(box)
    product = prod(extents, start=1.0)
    if isnan(product):
        product = 0.0  # Only zero times an overflow is NaN, and a flat box has no volume.
    return Size(unbounded, product, sum(extents))


def margin(box: BoxBounds) -> tuple[int, float]:
    """The unbounded sides of a box, and the sum of its bounded extents; margins compare too."""
    unbounded, extents = _extents(box)
    return unbounded, sum(extents)


def enlargement(box: BoxBounds, added: BoxBounds) -> Size:
    """The room that `box` gains when it grows to contain `added`; none exactly if it already does.

    Its margin is the way that the bounded sides move.
    """
    require_one_dimension((box, added))
    return _growth(box, volume(box), added)


def _growth(box: BoxBounds, before: Size, added: BoxBounds) -> Size:
    joined = _join(box, added)
    if joined == box:
        return NOTHING
    after = volume(joined)
    # With more sides unbounded the two volumes span different dimensions (an area and a width,
    # say) and have no difference. Beside what is now unbounded, what was before is as nothing.
    comparable = after.unbounded == before.unbounded
    gained = _less(after.volume, before.volume) if comparable else after.volume
    # Not the difference of the margins, which misses the end of a half-line, and the small step
    # of a huge box: a box that grows must never look like one that contains what is added.
    sides = zip(box.low + joined.high, joined.low + box.high, strict=True)
    moved = sum([above - below for above, below in sides if below > -inf and above < inf])
    return Size(after.unbounded, gained, moved)


def _join(a: BoxBounds, b: BoxBounds) -> BoxBounds:
    if len(a[0]) == 2:  # in the plane it is written out
        (ax, ay), (bx, by) = a[0], b[0]
        low = bx if bx < ax else ax, by if by < ay else ay
        (ax, ay), (bx, by) = a[1], b[1]
        return BoxBounds(low, (bx if bx > ax else ax, by if by > ay else ay))
    return BoxBounds(tuple(map(min, a.low, b.low)), tuple(map(max, a.high, b.high)))


def _shared_size(a: BoxBounds, b: BoxBounds) -> Size:
    if not overlaps(a, b):
        return NOTHING
    return volume(BoxBounds(tuple(map(max, a.low, b.low)), tuple(map(min, a.high, b.high))))


def _extents(box: BoxBounds) -> tuple[int, list[float]]:
    """The number of unbounded sides, and the extents of the dimensions that have none."""
    low, high = box
    extents = list(map(sub, high, low))
    if inf not in extents:
        return 0, extents
    bounded = [start > -inf and end < inf for start, end in zip(low, high, strict=True)]
    return low.count(-inf) + high.count(inf), list(compress(extents, bounded))


def _plus(a: Size, b: Size) -> Size:
    return Size(a.unbounded + b.unbounded, a.volume + b.volume, a.margin + b.margin)


def _minus(a: Size, b: Size) -> Size:
    return Size(a.unbounded - b.unbounded, _less(a.volume, b.volume), _less(a.margin, b.margin))


def _less(amount: float, taken: float) -> float:
    # An overflow stays one, whatever is taken away: infinity less infinity would be NaN, and zero
    # would make the growth of the hugest boxes look free.
    return amount - taken if amount < inf else inf


# Choice


def choose(boxes: Sequence[BoxBounds], added: BoxBounds) -> int:
    """The index of the box that should take `added` (Guttman, ChooseLeaf CL3).

    It is the one that needs least enlargement, and of several such the smallest.
    """
    if not boxes:
        raise ValueError("there is no box to choose from")
    require_one_dimension([*boxes, added])
    if len(added.low) == 2:
        chosen = _choose_in_plane(boxes, added)
        if chosen is not None:
            return chosen
    sizes = [volume(box) for box in boxes]
    costs = [(_growth(box, size, added), size) for box, size in zip(boxes, sizes, strict=True)]
    return costs.index(min(costs))


def _choose_in_plane(boxes: Sequence[BoxBounds], added: BoxBounds) -> int | None:
    """The same choice, written out for rectangles, which is ten times as fast.

    None if a side or an area is not finite: then it takes the whole of `Size` to compare.
    """
    (west, south), (east, north) = added
    chosen, best = 0, (inf, inf, inf, inf)
    for index, ((left, bottom), (right, top)) in enumerate(boxes):
        width, height = right - left, top - bottom
        area = width * height
        low_x, low_y = min(left, west), min(bottom, south)
        high_x, high_y = max(right, east), max(top, north)
        gained = (high_x - low_x) * (high_y - low_y) - area
        moved = left - low_x + (bottom - low_y) + (high_x - right) + (high_y - top)
        if not moved:
            gained = 0.0
        cost = gained, moved, area, width + height
        if not gained < inf or not area < inf:
            return None
        if cost < best:
            chosen, best = index, cost
    return chosen


# Guttman's splits: two seeds, each of which gathers a group


def split_linear(boxes: Sequence[BoxBounds], least: int) -> tuple[list[int], list[int]]:
    """Seeds lie farthest apart along some dimension; the rest join in index order."""
    _require_splittable(boxes, least)
    dimensions = range(len(boxes[0].low))
    # Points are separated by the full width in every dimension, so the ratio alone always ties
    # and the separation itself must tell the dimensions apart.
    _, _, seeds = max(
        (_farthest_pair(boxes, dimension) for dimension in dimensions), key=lambda found: found[:2]
    )
    return _gather(boxes, seeds, least, _pick_first)


def split_quadratic(boxes: Sequence[BoxBounds], least: int) -> tuple[list[int], list[int]]:
    """Seeds waste most room when put together; then the most decided box joins next."""
    _require_splittable(boxes, least)
    sizes = [volume(box) for box in boxes]

    def waste(pair: tuple[int, int]) -> Size:
        one, other = pair
        together = volume(_join(boxes[one], boxes[other]))
        return _minus(together, _plus(sizes[one], sizes[other]))

    seeds = max(combinations(range(len(boxes)), 2), key=waste)  # PickSeeds PS1, PS2
    return _gather(boxes, seeds, least, _pick_most_decided)


def _farthest_pair(
    boxes: Sequence[BoxBounds], dimension: int
) -> tuple[float, float, tuple[int, int]]:
    """Separation over width, separation, and indices of the two boxes farthest apart.

    Guttman, LinearPickSeeds LPS1 and LPS2: the pair of highest low side and lowest high side. One
    box may have both, when it lies inside all others; hence the best two of each.
    """
    # Halves, because the distance between two floats may overflow where half of it does not.
    lows = [box.low[dimension] / 2 for box in boxes]
    highs = [box.high[dimension] / 2 for box in boxes]
    latest = nlargest(2, range(len(boxes)), key=lows.__getitem__)
    earliest = nsmallest(2, range(len(boxes)), key=highs.__getitem__)
    separation, one, other = max(
        ((lows[i] - highs[j], i, j) for i in latest for j in earliest if i != j),
        key=lambda found: found[0],
    )
    # Unbounded sides are left out of the width: over an infinite one, all separations are zero.
    sides = [side for side in (*lows, *highs) if isfinite(side)]
    width = max(sides, default=0.0) - min(sides, default=0.0)
    # A dimension in which all boxes are alike says nothing, so any other goes before it.
    ratio = separation / width if width > 0 else -inf
    return ratio, separation, (min(one, other), max(one, other))


class _Group(NamedTuple):
    members: list[int]
    cover: BoxBounds
    size: Size


def _gather(
    boxes: Sequence[BoxBounds],
    seeds: tuple[int, int],
    least: int,
    pick_next: Callable[[Sequence[BoxBounds], list[int], list[_Group]], int],
) -> tuple[list[int], list[int]]:
    """Let the boxes join, one by one, the seed whose group grows least (Guttman, QS1 to QS3)."""
    groups = [_Group([seed], boxes[seed], volume(boxes[seed])) for seed in seeds]
    rest = [index for index in range(len(boxes)) if index not in seeds]
    while rest:
        needy = [members for members, _, _ in groups if len(members) + len(rest) == least]
        if needy:
            needy[0].extend(rest)  # QS2: only all of the rest brings this group to `least`.
            break
        index = pick_next(boxes, rest, groups)
        rest.remove(index)
        # QS3: least enlargement, then the smaller group by size, then by number of entries.
        preferences = [
            (_growth(cover, size, boxes[index]), size, len(members))
            for members, cover, size in groups
        ]
        home = preferences.index(min(preferences))
        members, cover, _ = groups[home]
        cover = _join(cover, boxes[index])
        groups[home] = _Group([*members, index], cover, volume(cover))
    first, second = groups
    return sorted(first.members), sorted(second.members)


def _pick_first(_boxes: Sequence[BoxBounds], rest: list[int], _groups: list[_Group]) -> int:
    return rest[0]


def _pick_most_decided(boxes: Sequence[BoxBounds], rest: list[int], groups: list[_Group]) -> int:
    """The box for which it matters most which group it joins (Guttman, PickNext PN1 and PN2)."""

    def difference(index: int) -> Size:
        smaller, larger = sorted(_growth(cover, size, boxes[index]) for _, cover, size in groups)
        return _minus(larger, smaller)

    return max(rest, key=difference)


# The R* split: a cut through the boxes in their order along one axis


class _Cut(NamedTuple):
    groups: tuple[list[int], list[int]]
    covers: tuple[BoxBounds, BoxBounds]


def split_rstar(boxes: Sequence[BoxBounds], least: int) -> tuple[list[int], list[int]]:
    """The axis whose cuts have least margin, and on it the cut with least overlap."""
    _require_splittable(boxes, least)
    dimensions = range(len(boxes[0].low))
    cuts_by_axis = [_cuts(boxes, axis, least) for axis in dimensions]
    cuts = min(cuts_by_axis, key=_margin_sum)  # ChooseSplitAxis CSA1, CSA2
    best = min(cuts, key=_overlap_then_volume)  # ChooseSplitIndex CSI1
    return sorted(best.groups[0]), sorted(best.groups[1])


def _cuts(boxes: Sequence[BoxBounds], axis: int, least: int) -> list[_Cut]:
    """The ways to cut the boxes in order of low side and of high side, `least` on each hand."""
    count = len(boxes)
    by_low = sorted(range(count), key=lambda i: (boxes[i].low[axis], boxes[i].high[axis]))
    by_high = sorted(range(count), key=lambda i: (boxes[i].high[axis], boxes[i].low[axis]))
    cuts = []
    for order in (by_low, by_high):
        ahead = list(accumulate((boxes[i] for i in order), _join))
        behind = list(accumulate((boxes[i] for i in reversed(order)), _join))
        for at in range(least, count - least + 1):
            covers = (ahead[at - 1], behind[count - at - 1])
            cuts.append(_Cut((order[:at], order[at:]), covers))
    return cuts


def _margin_sum(cuts: list[_Cut]) -> tuple[int, float]:
    margins = [margin(cover) for cut in cuts for cover in cut.covers]
    return sum(unbounded for unbounded, _ in margins), sum(length for _, length in margins)


def _overlap_then_volume(cut: _Cut) -> tuple[Size, Size]:
    first, second = cut.covers
    return _shared_size(first, second), _plus(volume(first), volume(second))


SPLITS: dict[str, Split] = {
    "linear": split_linear,
    "quadratic": split_quadratic,
    "rstar": split_rstar,
}


# Wrong use


def _require_splittable(boxes: Sequence[BoxBounds], least: int) -> None:
    if least < 1:
        raise ValueError(f"each group needs at least one box, not {least}")
    if len(boxes) < 2 * least:
        raise ValueError(f"{len(boxes)} boxes cannot fill two groups of at least {least}")
    require_one_dimension(boxes)
