"""A square divided into quarters until no part holds too many points: what VSO is compared with.

[VSO] figure 2: fifty entities in a few clusters, ten to a region, need about ten such parts and
six Voronoi regions. Parts without a point count as well: somebody must answer for them.
"""

from collections.abc import Sequence

from nearcast.space.voronoi import Point

Part = tuple[float, float, float]  # low corner and side; its low borders belong to it
DEEPEST = 48  # points at one place can never be parted


def quadtree(points: Sequence[Point], capacity: int, low: Point, side: float) -> list[Part]:
    """The leaves over the square that begins at `low`; each holds at most `capacity` points."""
    if capacity < 1:
        raise ValueError(f"a part must have room for a point, not for {capacity}")
    leaves: list[Part] = []
    waiting = [((*low, side), list(points), 0)]
    while waiting:
        (x, y, size), inside, depth = waiting.pop()
        if len(inside) <= capacity or depth == DEEPEST:
            leaves.append((x, y, size))
            continue
        half = size / 2
        quarters: dict[tuple[bool, bool], list[Point]] = {}
        for px, py in inside:
            quarters.setdefault((px >= x + half, py >= y + half), []).append((px, py))
        for right in (True, False):
            for up in (True, False):
                corner = x + half * right, y + half * up
                waiting.append(((*corner, half), quarters.get((right, up), []), depth + 1))
    return leaves
