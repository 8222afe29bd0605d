"""Polygons as somebody gives them, checked: what is refused names its ring and vertex.

A part is an outer ring and the rings of its holes. Rings may touch at vertices, as maps have it,
but their edges neither cross nor lie on each other, a hole is inside its part and in no other hole,
and parts do not overlap: then "inside an odd number of rings" is what everybody means. Winding
does not matter (RFC 7946 3.1.6): outer rings are turned counter-clockwise here, holes clockwise.

Crossing edges are found by a sweep from left to right ([Shamos, Hoey 1976]): only edges that are
neighbours at some x can be the first to cross. All comparisons are exact.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise, permutations
from math import fsum, isfinite
from typing import NamedTuple, TypeAlias

from nearcast.space.outline_touch import rings_contain, settle, turn
from nearcast.space.outlines import FARTHEST, MOST_VERTICES

Vertex = tuple[float, float]
Ring = list[Vertex]
Part = list[Ring]  # the outer ring, then holes


def checked_parts(given: Sequence[Sequence[Sequence[Sequence[float]]]]) -> list[Part]:
    """The parts of a polygon without closing vertices, or a ValueError that says what is wrong."""
    if not given:
        raise ValueError("a polygon has at least one part")
    if sum(len(ring) for part in given for ring in part) > MOST_VERTICES + sum(map(len, given)):
        raise ValueError(f"a polygon may have {MOST_VERTICES} vertices")
    parts: list[Part] = []
    for number, rings in enumerate(given):
        if not rings:
            raise ValueError(f"part {number} has no ring")
        part = []
        for k, ring in enumerate(rings):
            vertices = _checked_ring(ring, _name(number if len(given) > 1 else None, k))
            part.append(vertices)
        parts.append(part)
    touching = _refuse_crossings(parts)
    _refuse_misplaced_rings(parts, touching)
    for part in parts:
        for k, ring in enumerate(part):
            if (signed_area(ring) < 0) == (k == 0):
                ring.reverse()
    return parts


def checked_line(given: Sequence[Sequence[float]]) -> list[Vertex]:
    """The vertices of a line, or a ValueError that says what is wrong."""
    if len(given) > MOST_VERTICES:
        raise ValueError(f"a line may have {MOST_VERTICES} vertices, not {len(given)}")
    line = _checked_vertices(given, "the line")
    if len(set(line)) < 2:
        raise ValueError("a line has at least 2 different vertices")
    return line


def signed_area(ring: Ring) -> float:
    """Positive if the ring runs counter-clockwise."""
    x0, y0 = ring[0]
    following = chain(ring[1:], ring[:1])
    return fsum(
        (ax - x0) * (by - y0) - (bx - x0) * (ay - y0)
        for (ax, ay), (bx, by) in zip(ring, following, strict=True)
    )


def _name(part: int | None, ring: int) -> str:
    return f"ring {ring}" if part is None else f"ring {ring} of part {part}"


def _checked_vertices(given: Iterable[Sequence[float]], where: str) -> list[Vertex]:
    vertices = []
    for k, vertex in enumerate(given):
        try:
            x, y = map(float, vertex[:2])
        except (TypeError, ValueError):
            raise ValueError(f"vertex {k} of {where} is no pair of numbers: {vertex}") from None
        if not (isfinite(x) and isfinite(y) and max(abs(x), abs(y)) <= FARTHEST):
            raise ValueError(f"vertex {k} of {where} must be within ±{FARTHEST}, not {x}, {y}")
        vertices.append((settle(x), settle(y)))
    return vertices


def _checked_ring(given: Sequence[Sequence[float]], where: str) -> Ring:
    vertices = _checked_vertices(given, where)
    if len(vertices) > 1 and vertices[-1] == vertices[0]:
        vertices.pop()
    ring = [vertex for k, vertex in enumerate(vertices) if k == 0 or vertex != vertices[k - 1]]
    if len(set(ring)) < 3:
        raise ValueError(f"{where} has fewer than 3 different vertices")
    return ring


# Edges that cross.


class _Edge(NamedTuple):
    """From its left to its right end, and whose it is."""

    left: Vertex
    right: Vertex
    low: float  # the range of its y
    high: float
    part: int
    ring: int
    vertex: int  # at which it begins in its ring

    def name(self, several: bool) -> str:
        where = _name(self.part if several else None, self.ring)
        return f"the edge after vertex {self.vertex} of {where}, {self.left} - {self.right}"


# By part and ring: which edges touch another ring, or are next to one that does.
Touching: TypeAlias = defaultdict[tuple[int, int], set[int]]


def _refuse_crossings(parts: list[Part]) -> Touching:
    """Returns what touches."""
    edges = [
        _Edge(min(a, b), max(a, b), min(a[1], b[1]), max(a[1], b[1]), p, r, k)
        for p, part in enumerate(parts)
        for r, ring in enumerate(part)
        for k, (a, b) in enumerate(zip(ring, ring[1:] + ring[:1], strict=True))
    ]
    # At a place, edges that end there go before others come.
    ends = sorted(
        [(edge.left, 1, edge) for edge in edges] + [(edge.right, 0, edge) for edge in edges],
        key=lambda end: end[:2],
    )
    status: list[_Edge] = []  # edges at the sweep's x, from below to above
    touching: Touching = defaultdict(set)
    several = len(parts) > 1
    for _, begins, edge in ends:
        place = _place(status, edge)
        if begins:
            for neighbour in status[max(place - 1, 0) : place + 1]:
                _compare(neighbour, edge, several, touching)
            status.insert(place, edge)
        else:
            if place == len(status) or status[place] is not edge:
                place = next(k for k, other in enumerate(status) if other is edge)
            del status[place]
            if 0 < place < len(status):
                _compare(status[place - 1], status[place], several, touching)
    return touching


def _place(status: list[_Edge], edge: _Edge) -> int:
    """Where the edge is among the others, or belongs."""
    low, high = 0, len(status)
    while low < high:
        middle = (low + high) // 2
        other = status[middle]
        if other is edge:
            return middle
        if _is_above(edge, other):
            low = middle + 1
        else:
            high = middle
    return low


def _is_above(edge: _Edge, other: _Edge) -> bool:
    """At the left end of the one that begins later; if that is on the other, at its right end."""
    if edge.low > other.high or edge.high < other.low:
        return edge.low > other.high
    later, earlier = (edge, other) if edge.left >= other.left else (other, edge)
    side = _side(earlier, later.left) or _side(earlier, later.right)
    return side > 0 if later is edge else side < 0


def _side(edge: _Edge, place: Vertex) -> float:
    return turn(*edge.left, *edge.right, *place)


def _compare(one: _Edge, other: _Edge, several: bool, touching: Touching) -> None:
    """Refuse two edges that cross or lie on each other; note whose touch."""
    if one.low > other.high or one.high < other.low:
        return
    if max(one.left, other.left) > min(one.right, other.right):
        return  # as pairs: by x, and by y where both are vertical
    from_one = _side(one, other.left), _side(one, other.right)
    if max(from_one) < 0 or min(from_one) > 0:
        return
    from_other = _side(other, one.left), _side(other, one.right)
    if max(from_other) < 0 or min(from_other) > 0:
        return
    on_one_line = not any(from_one)
    meet_in_a_place = max(one.left, other.left) == min(one.right, other.right)
    if (on_one_line and not meet_in_a_place) or (all(from_one) and all(from_other)):
        verb = "lies on" if on_one_line else "crosses"
        raise ValueError(f"{one.name(several)}, {verb} {other.name(several)}")
    if (one.part, one.ring) != (other.part, other.ring):
        for edge in one, other:
            k = edge.vertex
            touching[edge.part, edge.ring] |= {k - 1, k, k + 1}


# Rings where they must not be; no edges cross.


def _refuse_misplaced_rings(parts: list[Part], touching: Touching) -> None:
    several = len(parts) > 1
    for p, part in enumerate(parts):
        number = p if several else None
        for r in range(1, len(part)):
            vertex = _outside(part[r], part[:1], touching[p, r])
            if vertex is not None:
                raise ValueError(f"vertex {vertex} of {_name(number, r)}, a hole, is outside")
        for one, other in permutations(range(1, len(part)), 2):
            if _enters(part[one], [part[other]], touching[p, one]):
                raise ValueError(f"{_name(number, one)}, a hole, is inside {_name(number, other)}")
    for one, other in permutations(range(len(parts)), 2):
        if _enters(parts[one][0], parts[other], touching[one, 0]):
            raise ValueError(f"part {min(one, other)} and part {max(one, other)} overlap")


def _outside(hole: Ring, outer: Part, touching: set[int]) -> int | None:
    """A vertex of a hole that is outside, or after which an edge is. One tells, if none touch."""
    flat = [number for vertex in outer[0] for number in vertex]
    for k in range(len(hole) if touching else 1):
        if not rings_contain(flat, (0,), *hole[k]):
            return k
        middles = _middles(hole, k, outer) if touching else ()
        if not all(rings_contain(flat, (0,), *middle) for middle in middles):
            return k
    return None


def _enters(ring: Ring, part: Part, touching: set[int]) -> bool:
    """Is some of the ring in the interior of a part whose edges it does not cross? Where they touch
    it may pass from outside to inside; elsewhere one place tells."""
    if not _bounds_meet(ring, part[0]):
        return False
    flat = [number for other in part for vertex in other for number in vertex]
    starts = [sum(map(len, part[:k])) for k in range(len(part))]
    places = (
        middle
        for k in (sorted(k % len(ring) for k in touching) or range(len(ring)))
        for middle in (_middles(ring, k, part) if touching else [ring[k]])
        if not _is_on(middle, part)
    )
    if touching:
        return any(rings_contain(flat, starts, *place) for place in places)
    place = next(places, None)
    return place is None or rings_contain(flat, starts, *place)


def _middles(ring: Ring, edge: int, part: Part) -> list[Vertex]:
    """A place on each piece of an edge, between all vertices of the part that are on the edge."""
    a, b = ring[edge], ring[(edge + 1) % len(ring)]
    (ax, ay), (bx, by) = a, b
    on_edge = {
        (x, y)
        for ring in part
        for x, y in ring
        if min(ax, bx) <= x <= max(ax, bx)
        and min(ay, by) <= y <= max(ay, by)
        and turn(ax, ay, bx, by, x, y) == 0
    }
    along = sorted({a, b} | on_edge)
    return [(cx / 2 + dx / 2, cy / 2 + dy / 2) for (cx, cy), (dx, dy) in pairwise(along)]


def _is_on(place: Vertex, part: Part) -> bool:
    x, y = place
    return any(
        min(ax, bx) <= x <= max(ax, bx)
        and min(ay, by) <= y <= max(ay, by)
        and turn(ax, ay, bx, by, x, y) == 0
        for ring in part
        for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True)
    )


def _bounds_meet(ring: Ring, other: Ring) -> bool:
    for axis in (0, 1):
        inner, outer = [v[axis] for v in ring], [v[axis] for v in other]
        if max(inner) < min(outer) or min(inner) > max(outer):
            return False
    return True
