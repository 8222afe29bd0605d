"""Fence events by the definition, naively: one entity and one fence at a time, in fractions.

An entity stands at its last fix until the next, to which it moves on a straight way. First all
transitions (in, out) are listed with their times and with the moment at which they are known; then
visits are formed from them, looking ahead as far as needed.
"""

import itertools
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from nearcast.fences.events import (
    CROSS,
    DWELL,
    ENTER,
    EXPIRED,
    INSIDE,
    LEAVE,
    LEFT,
    NONE,
    OUTSIDE,
)
from nearcast.space.motion import Moving
from nearcast.space.shapes import point

Place = tuple[int, int]
Span = tuple[Fraction, Fraction]
NEVER = 2**62
GRAZED = Fraction(1, 10**6)  # of a way


class Polygon(NamedTuple):
    """Rings of vertices; inside is what is in an odd number of rings, and every border."""

    rings: Sequence[Sequence[Place]]

    def edges(self) -> list[tuple[Place, Place]]:
        return [
            (ring[k - 1], ring[k]) for ring in self.rings for k in range(len(ring))
        ]  # fmt: skip

    def contains(self, x: int, y: int) -> bool:
        return _is_within(self.edges(), x, y, 1)

    def spans(self, p: Place, q: Place) -> list[Span]:
        """All places where the way meets a border, and the pieces between that are inside."""
        (px, py), (dx, dy) = p, (q[0] - p[0], q[1] - p[1])
        edges, cuts = self.edges(), {Fraction(0), Fraction(1)}
        for (ax, ay), (bx, by) in edges:
            ex, ey = bx - ax, by - ay
            den = dx * ey - dy * ex
            if den:
                sign, per = (1 if den > 0 else -1), abs(den)
                on_way = sign * ((ax - px) * ey - (ay - py) * ex)
                on_edge = sign * ((ax - px) * dy - (ay - py) * dx)
                if 0 <= on_way <= per and 0 <= on_edge <= per:
                    cuts.add(Fraction(on_way, per))
            elif dx or dy:
                for vx, vy in ((ax, ay), (bx, by)):
                    if (vx - px) * dy == (vy - py) * dx:
                        s = Fraction((vx - px) * dx + (vy - py) * dy, dx * dx + dy * dy)
                        if 0 <= s <= 1:
                            cuts.add(s)

        def is_inside(s: Fraction) -> bool:
            of, per = s.numerator, s.denominator
            return _is_within(edges, px * per + of * dx, py * per + of * dy, per)

        order = sorted(cuts)
        spans = [(s, s) for s in order if is_inside(s)]
        spans += [(a, b) for a, b in itertools.pairwise(order) if is_inside((a + b) / 2)]
        return join(spans)


def _is_within(edges: Sequence[tuple[Place, Place]], x: int, y: int, per: int) -> bool:
    """Is the place (x / per, y / per) in an odd number of rings, or on a border? In whole numbers,
    which are as exact as fractions, and ten times as fast."""
    odd = False
    for (ax, ay), (bx, by) in edges:
        fx, fy, gx, gy = ax * per, ay * per, bx * per, by * per
        side = (gx - fx) * (y - fy) - (gy - fy) * (x - fx)
        if side == 0 and min(fx, gx) <= x <= max(fx, gx) and min(fy, gy) <= y <= max(fy, gy):
            return True
        if (fy > y) != (gy > y) and (side > 0) == (gy > fy):
            odd = not odd
    return odd


class Disc(NamedTuple):
    """All that is within r of the centre."""

    x: int | Fraction
    y: int | Fraction
    r: int | Fraction

    def contains(self, x: int, y: int) -> bool:
        return (x - self.x) ** 2 + (y - self.y) ** 2 <= self.r**2

    def spans(self, p: Place, q: Place) -> list[Span]:
        fx, fy, dx, dy = p[0] - self.x, p[1] - self.y, q[0] - p[0], q[1] - p[1]
        a, b, c = dx * dx + dy * dy, fx * dx + fy * dy, fx * fx + fy * fy - self.r**2
        if a == 0:
            return [(Fraction(0), Fraction(1))] if c <= 0 else []
        if b * b < a * c:
            return []
        with localcontext(prec=60):
            under = Fraction(b * b - a * c)
            root = Fraction((Decimal(under.numerator) / Decimal(under.denominator)).sqrt())
        low, high = max(Fraction(0), (-b - root) / a), min(Fraction(1), (-b + root) / a)
        return [(low, high)] if low <= high else []


def join(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


class Fix(NamedTuple):
    """Where the entity is at t, for ttl."""

    t: int
    place: Place
    ttl: int = NEVER


class Transition(NamedTuple):
    """In or out at t, known at `known`, by the fix with this index or (-1) without one."""

    comes: bool
    t: int
    known: int
    fix: int
    reason: int = LEFT


class Told(NamedTuple):
    """An event without its place."""

    known: int
    t: int
    kind: int
    reason: int = NONE
    t_out: int = 0


def transitions(area: Polygon | Disc, fixes: Sequence[Fix], until: int) -> list[Transition]:
    """In and out by turns, in the order in which they are known."""
    found: list[Transition] = []
    last: Fix | None = None
    for index, fix in enumerate(fixes):
        inside = area.contains(*fix.place)
        if last is not None and last.t + last.ttl < fix.t:
            if area.contains(*last.place):
                end = last.t + last.ttl
                found.append(Transition(False, end, end, -1, EXPIRED))
            last = None
        if last is None:
            if inside:
                found.append(Transition(True, fix.t, fix.t, index))
        else:
            for low, high in area.spans(last.place, fix.place):
                times = [last.t + round(s * (fix.t - last.t)) for s in (low, high)]
                if low > 0 or not area.contains(*last.place):
                    found.append(Transition(True, times[0], fix.t, index))
                if high < 1 or not inside:
                    found.append(Transition(False, times[1], fix.t, index))
        last = fix
    end = until + 1 if last is None else last.t + last.ttl
    if last is not None and end <= until and area.contains(*last.place):
        found.append(Transition(False, end, end, -1, EXPIRED))
    return found


def when_dwelt(moment: int, came: Transition, went: Transition | None, until: int) -> int | None:
    """When it is known that the entity is inside at `moment` or that the visit goes on later than
    that; None: it is not, as far as this stay from `came` to `went` shows."""
    end = until if went is None else went.t
    if moment <= end and went is not None and came.fix == went.fix:
        return came.known
    if went is not None and came.fix != went.fix and moment < went.known:
        end = max(end, moment)  # it stood inside, as far as was known by then
    return max(moment, came.known) if moment <= end else None


def moving_transitions(region: Moving, fixes: Sequence[Fix], until: int) -> list[Transition]:
    """As `transitions`, for a disc that moves: every microsecond is looked at."""
    found: list[Transition] = []
    last: Fix | None = None
    inside = False

    def look(t: int, known_by: int, place: Place) -> bool:
        now = region.touches(point(*place), t)
        if now != inside:
            found.append(Transition(now, t, t, known_by))
        return now

    for index, fix in enumerate([*fixes, None]):
        end = until if fix is None else fix.t
        if last is not None:
            expires = last.t + last.ttl
            gone = expires <= until if fix is None else expires < fix.t
            for t in range(last.t, min(end, expires) + 1):
                inside = look(t, -2 - t, last.place)
            if gone and inside:
                found.append(Transition(False, expires, expires, -1, EXPIRED))
            if gone:
                last, inside = None, False
        if fix is None:
            break
        if last is None:
            inside = look(fix.t, index, fix.place)
        else:
            shape = region.at(fix.t)
            disc = Disc(Fraction(shape.x), Fraction(shape.y), Fraction(shape.rx))
            ends = inside, region.touches(point(*fix.place), fix.t)
            for low, high in disc.spans(last.place, fix.place):
                if low > 0 or not ends[0]:
                    found.append(Transition(True, fix.t, fix.t, index))
                if high < 1 or not ends[1]:
                    found.append(Transition(False, fix.t, fix.t, index))
            inside = ends[1]
        last = fix
    return found


def grazes(region: Moving, fixes: Sequence[Fix]) -> bool:
    """Does a way just touch the disc as it passes, or all but? That is a matter of the last digits,
    because the disc is at no whole place."""
    for last, fix in itertools.pairwise(fixes):
        shape = region.at(fix.t)
        disc = Disc(Fraction(shape.x), Fraction(shape.y), Fraction(shape.rx))
        spans = disc.spans(last.place, fix.place)
        if any(low > 0 and high < 1 and high - low < GRAZED for low, high in spans):
            return True
    return False


def pair_events(moves: list[Transition], dwell: int | None, linger: int, until: int) -> list[Told]:
    """All events but `inside` and `outside` of an entity at a fence."""
    told: list[Told] = []
    k = 0
    while k < len(moves):
        entry = moves[k]
        assert entry.comes
        dwelt: int | None = None
        stays = 0
        while True:  # over the stays of one visit
            came, went = moves[k], moves[k + 1] if k + 1 < len(moves) else None
            k, stays = k + 2, stays + 1
            if dwell is not None and dwelt is None:
                dwelt = when_dwelt(entry.t + dwell, came, went, until)
            if went is None:
                break
            if dwell is not None and dwelt is not None:  # nothing of this fence happens earlier
                for j in range(k - 1, len(moves)):
                    moves[j] = moves[j]._replace(t=max(moves[j].t, entry.t + dwell))
                went = moves[k - 1]
            left = went.t
            if went.reason != LEFT or (stays == 1 and entry.fix == went.fix):
                break  # it disappears, or has crossed
            back = moves[k] if k < len(moves) else None
            if back is None or back.t >= left + linger:
                break
            if back.fix != went.fix and left + linger < back.known:
                break
        crossed = went is not None and stays == 1 and entry.fix == went.fix
        if crossed:
            assert went is not None
            told.append(Told(entry.known, entry.t, CROSS, NONE, went.t))
        else:
            told.append(Told(entry.known, entry.t, ENTER))
        if dwell is not None and dwelt is not None:
            told.append(Told(dwelt, entry.t + dwell, DWELL))
        if went is not None and not crossed:
            known = went.known
            if went.reason == LEFT:
                back = moves[k] if k < len(moves) else None
                known = max(known, left + linger)
                if back is not None and back.known < known:
                    known = back.known
            if known <= until:
                told.append(Told(known, left, LEAVE, went.reason))
    return sorted(told, key=lambda one: (one.known, one.t, one.kind))


def fix_events(area: Polygon | Disc, fixes: Sequence[Fix]) -> list[Told]:
    """`inside` or `outside` at every fix."""
    return [Told(fix.t, fix.t, INSIDE if area.contains(*fix.place) else OUTSIDE) for fix in fixes]
