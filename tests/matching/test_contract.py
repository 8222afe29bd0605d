"""One contract for every engine: for every history, it answers as the scan does.

Engines that trade freshness for speed answer as the scan does with each subscription as it was at
the moment that the engine's own rule says, which is never further away than it promises.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching import EXACT, MATCHERS
from nearcast.matching.matcher import Matcher, make_batch
from nearcast.matching.scan import ScanMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.space.motion import FASTEST, LATEST, SECOND, Moving, line
from nearcast.space.shapes import LARGEST, Shape, ShapeKind, ball, box, cuboid, disc, point
from support.examples import crossed, examples
from support.matcher_histories import answers, histories, play

ENGINES = [pytest.param(MATCHERS[name], id=name) for name in EXACT if name != "scan"]


@pytest.mark.parametrize("make", ENGINES)
@examples(120)
@given(history=histories())
def test_every_engine_matches_like_the_scan_after_any_history(
    make: Callable[[], Matcher], history: list[tuple[str, object]]
) -> None:
    play(make(), history)


# As far, as fast and as late as anything may be.
ENDS = st.sampled_from([-LARGEST, -1.0, 0.0, 1.0, 2.0, 1e109, LARGEST])
RATES = st.sampled_from([-FASTEST, -1.0, 0.0, 0.0, 1.0, FASTEST])
EVERS = st.sampled_from([0, 1, SECOND, 10**15, LATEST - 2, LATEST - 1])


KINDS = st.sampled_from(list(ShapeKind))
LASTS = st.none() | EVERS
COUNTS = st.integers(1, 8)


@st.composite
def extremes(draw: st.DrawFn) -> tuple[list[Subscription], list[Publication]]:
    def shape() -> Shape:
        kind, r = draw(KINDS), abs(draw(ENDS))
        sizes = {
            ShapeKind.POINT: (0.0, 0.0),
            ShapeKind.DISC: (r, 0.0),
            ShapeKind.BOX: (r, abs(draw(ENDS))),
        }
        return Shape(kind, draw(ENDS), draw(ENDS), 0.0, *sizes[kind])

    def moving() -> Moving:
        begins = shape()
        growth = 0.0 if begins.kind == ShapeKind.POINT else draw(RATES)
        lasts = draw(LASTS)
        return Moving(begins, (draw(RATES), draw(RATES), 0.0), (growth, 0.0, 0.0), lasts)

    many = range(draw(COUNTS))
    wanted = [Subscription(i, 1, moving().stamped(draw(EVERS))) for i in many]
    return wanted, [Publication(i, 2, draw(EVERS), shape()) for i in many]


@pytest.mark.parametrize("make", ENGINES)
@examples(100)
@given(world=extremes())
def test_every_engine_matches_like_the_scan_at_extreme_places_and_times(
    make: Callable[[], Matcher], world: tuple[list[Subscription], list[Publication]]
) -> None:
    wanted, published = world
    history: list[tuple[str, object]] = [("put", subscription) for subscription in wanted]
    history += [("match", (publication, publication.t)) for publication in published]
    play(make(), [*history, ("many", published), ("many", published[::-1])])


def random_subscriptions(rng: Random, n: int, dims: int, spread: str) -> list[Subscription]:
    """Subscriptions as worlds have them: uniform, crowded, of all sizes, near and far."""
    result = []
    for i in range(n):
        if spread == "uniform":
            x, y, r = rng.uniform(0, 1000), rng.uniform(0, 1000), 20.0
        elif spread == "burning":
            hotspot = rng.randrange(3)
            x, y, r = rng.gauss(hotspot * 400, 5), rng.gauss(500, 5), rng.uniform(1, 4)
        elif spread == "sizes":
            x, y, r = rng.uniform(-500, 500), rng.uniform(-500, 500), 10 ** rng.uniform(-3, 4)
        else:  # "far": coordinates at which a float's steps are wider than some regions
            far = rng.choice([0.0, -1e7, 1e12, 1e15])
            x, y, r = far + rng.uniform(-50, 50), -far + rng.uniform(-50, 50), rng.choice([1, 30.0])
        z = rng.uniform(0, 100) if dims == 3 else 0.0
        round_one = rng.random() < 0.6
        if dims == 2:
            shape = disc(x, y, r) if round_one else box(x, y, r, r / 2)
        else:
            shape = ball(x, y, z, r) if round_one else cuboid(x, y, z, r, r / 2, r)
        region = Moving(shape)
        if rng.random() < 0.5:
            region = line(shape, (x + rng.gauss(0, 50), y + rng.gauss(0, 50), z), 10.0)
        result.append(Subscription(i, i, region.stamped(rng.randrange(SECOND))))
    return result


@pytest.mark.parametrize("make", ENGINES)
@crossed("dims, spread", [2, 3], ["uniform", "burning", "sizes", "far"])
def test_hundreds_of_moving_subscriptions_match_exactly_what_the_scan_matches(
    make: Callable[[], Matcher], dims: int, spread: str
) -> None:
    rng = Random(f"{dims}/{spread}")
    engine, oracle = make(), ScanMatcher()
    inhabitants = random_subscriptions(rng, 400, dims, spread)
    matched = 0
    for tick in range(4):
        for subscription in inhabitants if tick == 0 else rng.sample(inhabitants, 100):
            moved = random_subscriptions(rng, 1, dims, spread)[0].region.stamped(tick * SECOND)
            put = subscription if tick == 0 else subscription.moved(moved, tick * SECOND)
            engine.put(put)
            oracle.put(put)
        for gone in rng.sample(range(400), 10):
            engine.drop(gone)
            oracle.drop(gone)
        several = []
        for k in range(40):
            at = inhabitants[rng.randrange(400)].region.at(tick * SECOND)
            where = point(at.x, at.y, at.z) if k % 3 else disc(at.x, at.y, 30.0)
            several.append(Publication(k, 10_000, tick * SECOND + k * 10_000 * (tick % 2), where))
        expected = answers(oracle, several)
        assert answers(engine, several) == expected
        matched += len(expected)
        for publication in several[:10]:
            assert engine.match(publication, publication.t) == oracle.match(
                publication, publication.t
            )
    assert matched > 50, "a world without deliveries proves nothing"


@pytest.mark.parametrize("make", ENGINES)
def test_dropping_an_unknown_subscription_is_no_error(make: Callable[[], Matcher]) -> None:
    engine = make()
    engine.drop(7)
    assert engine.match(Publication(1, 1, 0, point(0, 0)), 0) == []


@pytest.mark.parametrize("make", ENGINES)
def test_one_publication_over_all_subscriptions_is_answered_in_full(
    make: Callable[[], Matcher],
) -> None:
    engine = make()
    for i in range(3000):
        engine.put(Subscription(i, i, Moving(disc(i % 50, i // 50, 1.0))))
    everywhere = Publication(1, 9999, 0, disc(25, 30, 500.0))
    assert engine.match(everywhere, 0) == list(range(3000))
    matches = engine.match_many(make_batch([everywhere] * 200))
    assert len(matches.subscription) == 600_000
