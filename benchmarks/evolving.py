"""Evolving subscriptions: `swept` against an equally compiled LEES, and against regions that stand.

Every subscription is a disc of radius 10 that walks at up to 5 units a second along each axis, and
was submitted once. Every entity publishes its position five times a second, so n subscriptions hear
n / 2 publications (points) every tenth of a second, for two seconds. `few`: only so many that the
slow engines come to an end; there an engine that prepares anything has few to prepare it for.
About 20 discs touch each publication; in the crowded world log2(n) crowds of standard deviation 30
share the place. `lazy` is LEES with the very loop that verifies for the grid, over all rows;
`grid, still` has the same discs where they begin. `formulas` are squares as in [Evolving].

Printed: publications a second of CPU, the cost of one as a multiple of what it is where regions
stand still, how many times faster than LEES, and the bytes that a subscription takes with all its
objects. The pairs that swept and lazy find must be the same.

Run: python benchmarks/evolving.py [most subscriptions, default 100000]
"""

import sys
import tracemalloc
from collections.abc import Callable
from math import log2, pi
from time import process_time

import numpy as np
from numpy.typing import NDArray

from nearcast.matching.cached import CachedMatcher
from nearcast.matching.grid import GridMatcher
from nearcast.matching.lazy import LazyMatcher
from nearcast.matching.matcher import Batch, Matcher, make_batch
from nearcast.matching.periodic import PeriodicMatcher
from nearcast.matching.swept import SweptMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Formula, Region, Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point

TICK, TICKS = SECOND // 10, 20
NOBODY = 10**9  # a publisher that is nobody's own
Floats = NDArray[np.float64]
Shapes = Callable[[float, float, float, float, float], Region]  # x, y, radius and velocity


class World:
    def __init__(self, n: int, crowded: bool) -> None:
        rng = np.random.default_rng(n)
        self.n, self.radius = n, 10.0
        side = (n * pi * self.radius**2 / 20) ** 0.5
        if crowded:
            spots = rng.uniform(0, side, (max(1, round(log2(n))), 2))
            self.start = spots[rng.integers(len(spots), size=n)] + rng.normal(0, 30, (n, 2))
            # Crowds are denser, so areas are smaller: again about 20 hits in the middle.
            self.radius = (20 * len(spots) * 2 * 30**2 * 2 / n) ** 0.5
        else:
            self.start = rng.uniform(0, side, (n, 2))
        self.velocity = rng.uniform(-5, 5, (n, 2)) * self.radius / 10

    def publications(self, tick: int, share: int, still: bool) -> Batch:
        rng = np.random.default_rng(tick)
        who = rng.integers(self.n, size=max(1, self.n // 2 // share))
        moment = 0.0 if still else tick * TICK / 1e6
        places = self.start[who] + self.velocity[who] * moment
        places += rng.normal(0, self.radius / 3, places.shape)
        return make_batch(
            [
                Publication(i, NOBODY, tick * TICK, point(x, y))
                for i, (x, y) in enumerate(places.tolist())
            ]
        )

    def fill(self, engine: Matcher, region: Shapes) -> None:
        rows = np.hstack([self.start, self.velocity]).tolist()
        for i, (x, y, vx, vy) in enumerate(rows):
            engine.put(Subscription(i, i, region(x, y, self.radius, vx, vy)))


def walking(x: float, y: float, r: float, vx: float, vy: float) -> Region:
    return Moving(disc(x, y, r), (vx, vy, 0.0))


def standing(x: float, y: float, r: float, _vx: float, _vy: float) -> Region:
    return Moving(disc(x, y, r))


def formula(x: float, y: float, r: float, vx: float, vy: float) -> Region:
    """The square around the disc, in the predicates of [Evolving]."""
    return Formula(
        f"x >= {x - r} + {vx} * t, x <= {x + r} + {vx} * t, "
        f"y >= {y - r} + {vy} * t, y <= {y + r} + {vy} * t"
    )


class Outcome:
    def __init__(
        self, world: World, make: Callable[[], Matcher], region: Shapes, share: int
    ) -> None:
        tracemalloc.start()
        engine = make()
        world.fill(engine, region)
        still = region is standing
        engine.match_many(world.publications(0, share, still))
        self.memory = tracemalloc.get_traced_memory()[0] / world.n
        tracemalloc.stop()
        self.answers: list[bytes] = []
        self.hits = self.count = 0
        cpu = 0.0
        for tick in range(1, TICKS // (1 if share == 1 else 4) + 1):
            said = world.publications(tick, share, still)
            begin = process_time()
            due = engine.due()
            if due is not None and due <= tick * TICK:
                engine.refresh(tick * TICK)
            found = engine.match_many(said)
            cpu += process_time() - begin
            self.count += len(said)
            self.hits += len(found.subscription)
            order = np.lexsort((found.subscription, found.publication))
            self.answers.append(
                found.publication[order].tobytes() + found.subscription[order].tobytes()
            )
        self.cost = cpu / self.count


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    compile_all()
    print(
        f"{'world':16}{'engine':18}{'pub/s':>12}{'times still':>15}{'times LEES':>14}"
        f"{'bytes/sub':>11}{'hits/pub':>10}"
    )
    for crowded in (False, True):
        for n in (1_000, 10_000, 100_000):
            if n <= most:
                compare(World(n, crowded), f"{'crowded' if crowded else 'uniform'} {n:,}")


def compile_all() -> None:
    """Load the kernels, so that nobody's memory is charged with them."""
    for make in (SweptMatcher, LazyMatcher, CachedMatcher):
        engine = make()
        World(100, False).fill(engine, walking)
        engine.match_many(World(100, False).publications(1, 1, False))


def compare(world: World, label: str) -> None:
    few = max(1, world.n // 500)
    outcomes = {
        name: Outcome(world, make, region, share)
        for name, make, region, share in (
            ("grid, still", GridMatcher, standing, 1),
            ("swept", SweptMatcher, walking, 1),
            ("periodic", PeriodicMatcher, walking, 1),
            ("grid, still, few", GridMatcher, standing, few),
            ("swept, few", SweptMatcher, walking, few),
            ("lazy, few", LazyMatcher, walking, few),
            ("cached, few", CachedMatcher, walking, few),
            ("swept, formulas", SweptMatcher, formula, 5 * few),
            ("lazy, formulas", LazyMatcher, formula, 5 * few),
        )
    }
    assert outcomes["swept, few"].answers == outcomes["lazy, few"].answers
    assert outcomes["swept, formulas"].answers == outcomes["lazy, formulas"].answers
    for name, outcome in outcomes.items():
        still = outcomes["grid, still, few" if "few" in name else "grid, still"]
        lazy = outcomes["lazy, formulas" if "formulas" in name else "lazy, few"]
        print(
            f"{label:16}{name:18}{1 / outcome.cost:>12,.0f}{outcome.cost / still.cost:>15.2f}"
            f"{lazy.cost / outcome.cost:>14.1f}{outcome.memory:>11,.0f}"
            f"{outcome.hits / outcome.count:>10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
