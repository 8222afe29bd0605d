"""A form of outlines that only `space` knows, in a process of its own (`space.test_forms`).

Its two places in `space` are changed before anything else is imported: which outlines there may be,
and whether a point is inside. Then all exact engines, the truth and all overlays are asked about
areas of this form, and the answers are compared with those of plain Python here. Printed: of the
pairs that each has found, how many are right and wrong, and how many there are. Kernels must be
compiled for this process alone.

Run: NUMBA_CACHE_DIR=$(mktemp -d) PYTHONPATH=tests python -m support.new_form
"""

import json
import sys
from collections.abc import Iterable
from random import Random
from typing import Any

from nearcast.space import outline_touch, outlines

FRAME = 9  # what is at least `size` away from the middle of its box, along x or along y
_contains_point, _is_complete = outline_touch.contains_point, outlines.Outline._is_complete


def contains_point(form: int, *numbers: Any) -> bool:
    """The first of the numbers are those of the outline; then come its middle and the point."""
    if form == FRAME:
        size, cx, cy, x, y = numbers[3], *numbers[6:8], *numbers[9:11]
        return bool(max(abs(x - cx), abs(y - cy)) >= size)
    return _contains_point(form, *numbers)


def is_complete(outline: outlines.Outline) -> bool:
    return outline.form == FRAME or _is_complete(outline)


vars(outline_touch)["contains_point"] = contains_point
setattr(outlines.Outline, _is_complete.__name__, is_complete)

# Only now: who imports `space` has the form.
from nearcast.matching import EXACT, MATCHERS  # noqa: E402
from nearcast.matching.matcher import make_batch  # noqa: E402
from nearcast.model.publication import Publication  # noqa: E402
from nearcast.model.subscription import Subscription  # noqa: E402
from nearcast.pipeline.truth import join  # noqa: E402
from nearcast.protocols import PROTOCOLS  # noqa: E402
from nearcast.scenario import Scenario, Setting  # noqa: E402
from nearcast.sim.world import SimulatedWorld  # noqa: E402
from nearcast.space.motion import SECOND, Moving  # noqa: E402
from nearcast.space.shapes import Shape, ShapeKind, point  # noqa: E402
from nearcast.trace.recorder import Recorder  # noqa: E402
from nearcast.trace.sinks import MemoryTrace  # noqa: E402
from nearcast.workloads import walker  # noqa: E402
from support.brute_force import delivered  # noqa: E402

Pairs = set[tuple[int, int]]  # publication, subscription
INNER = 0.75  # of the half-extent
SETTINGS: dict[str, dict[str, Setting]] = {
    "bubblestorm": {"lambda": 6.0},
    "psense": {"limit": 20_000},
}


def frame(x: float, y: float, _: float, radius: float) -> Shape:
    outline = outlines.Outline(FRAME, size=INNER * radius)
    return Shape(ShapeKind.BOX, x, y, 0.0, radius, radius, 0.0, outline)


def is_in_frame(x: float, y: float, middle: tuple[float, float], radius: float) -> bool:
    away = max(abs(x - middle[0]), abs(y - middle[1]))
    return INNER * radius <= away <= radius


def ask_engines() -> Iterable[tuple[str, Pairs, Pairs]]:
    rng = Random(1)
    middles = [(rng.uniform(0, 20), rng.uniform(0, 20)) for _ in range(40)]
    places = [(rng.uniform(0, 20), rng.uniform(0, 20)) for _ in range(40)]
    wanted = [Subscription(i, 1, Moving(frame(*m, 0.0, 4.0))) for i, m in enumerate(middles)]
    said = [Publication(i, 2, SECOND, point(*place)) for i, place in enumerate(places)]
    right = {
        (p, s)
        for p, place in enumerate(places)
        for s, middle in enumerate(middles)
        if is_in_frame(*place, middle, 4.0)
    }
    for name in EXACT:
        engine = MATCHERS[name]()
        for subscription in wanted:
            engine.put(subscription)
        found = engine.match_many(make_batch(said))
        pairs = zip(found.publication.tolist(), found.subscription.tolist(), strict=True)
        yield name, set(pairs), right
    memory = MemoryTrace()
    recorder = Recorder(memory)
    for subscription in wanted:
        recorder.interest(0, subscription)
    for publication in said:
        recorder.published(publication)
    recorder.close()
    spans = join.interest_spans(memory.table("interests"))
    truth = join.find_pairs(spans, memory.table("publications"))
    joined = {(int(p), int(s)) for ps, ss in truth for p, s in zip(ps, ss, strict=True)}
    yield "truth", joined, right


def ask_overlay(protocol: str) -> tuple[Pairs, Pairs]:
    """Of publications from the third second on: then the overlay has settled."""
    memory = MemoryTrace()
    settings: dict[str, Setting] = {"size": 100.0, "radius": 50.0, "speed": 1e-6, "rate": 2.0}
    scenario = Scenario(
        protocol=protocol, workload="waypoint", nodes=10, seconds=5.0, seed=3,
        settings=settings | SETTINGS.get(protocol, {}),
    )  # fmt: skip
    world = SimulatedWorld(scenario, lambda _: Recorder(memory), check=True)
    world.run()
    world.recorder.close()
    interests = memory.table("interests").to_pylist()
    said = memory.table("publications").to_pylist()
    begins = min(row["t"] for row in said) + 3 * SECOND
    late = {row["publication"]: row for row in said if row["t"] >= begins}
    right = {
        (number, wanted["subscription"])
        for number, row in late.items()
        for wanted in {row["subscription"]: row for row in interests}.values()
        if wanted["node"] != row["node"]
        and is_in_frame(row["x"], row["y"], (wanted["x"], wanted["y"]), 50.0)
    }
    found = {pair for pair in delivered(memory.table("deliveries")) if pair[0] in late}
    return found, right


def main() -> None:
    walker.ball = frame
    answers = list(ask_engines())
    answers += [(name, *ask_overlay(name)) for name in PROTOCOLS]
    sys.stdout.write(json.dumps({
        name: {"right": len(found & right), "wrong": len(found - right), "wanted": len(right)}
        for name, found, right in answers
    }))  # fmt: skip


if __name__ == "__main__":
    main()
