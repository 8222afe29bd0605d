"""What the contract cannot see of `swept`: its thrift, its fallbacks and its faults."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import FormulaError
from nearcast.matching import MATCHERS
from nearcast.matching.grid import GridMatcher
from nearcast.matching.lazy import LazyMatcher
from nearcast.matching.matcher import Matcher, make_batch
from nearcast.matching.scan import ScanMatcher
from nearcast.matching.swept import SweptMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Region, Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, box, point
from support.examples import examples

ANYWHERE = Moving(EVERYWHERE)


def square(x: float, y: float, vx: float, vy: float, formula: bool) -> Region:
    if not formula:
        return Moving(box(x, y, 5, 5), (vx, vy, 0.0))
    return Formula(
        f"x >= {x - 5} + {vx} * t, x <= {x + 5} + {vx} * t, "
        f"y >= {y - 5} + {vy} * t, y <= {y + 5} + {vy} * t"
    )


@pytest.mark.parametrize("formula", [False, True], ids=["motion", "formula"])
def test_swept_matches_like_lazy_with_few_of_its_evaluations(formula: bool) -> None:
    rng = Random(5)
    swept, lazy = SweptMatcher(), LazyMatcher()
    for i in range(300):
        corner = rng.uniform(0, 300), rng.uniform(0, 300)
        region = square(*corner, rng.uniform(-1, 1), rng.uniform(-1, 1), formula)
        for engine in (swept, lazy):
            engine.put(Subscription(i, i, region))
    matched = 0
    for k in range(400):
        publication = Publication(
            k, 999, k * SECOND // 50, point(rng.uniform(0, 300), rng.uniform(0, 300))
        )
        answer = swept.match(publication, publication.t)
        assert answer == lazy.match(publication, publication.t)
        matched += len(answer)
    assert matched > 100
    assert lazy.evaluations == 300 * 400
    assert swept.evaluations < lazy.evaluations / 10
    assert swept.fallbacks == 0


def test_price_bands_that_evolve_are_found_by_their_symbols_and_bounds() -> None:
    rng = Random(6)
    swept, lazy, oracle = SweptMatcher(), LazyMatcher(), ScanMatcher()
    for i in range(400):
        low, drift = rng.uniform(50, 150), rng.uniform(-1, 1)
        text = (
            f'symbol == "S{i % 20}", price >= {low} + {drift} * t, price <= {low + 5} + {drift} * t'
        )
        for engine in (swept, lazy, oracle):
            engine.put(Subscription(i, i, ANYWHERE, Filter(text)))
    matched = 0
    for k in range(200):
        attributes = {"symbol": f"S{k % 20}", "price": rng.uniform(50, 150)}
        publication = Publication(k, 999, k * SECOND // 20, point(0, 0), attributes=attributes)
        answer = swept.match(publication, publication.t)
        assert (
            answer
            == oracle.match(publication, publication.t)
            == lazy.match(publication, publication.t)
        )
        matched += len(answer)
    assert matched > 50
    assert swept.evaluations < lazy.evaluations / 10
    together = [
        Publication(k, 999, 11 * SECOND, point(0, 0), attributes={"symbol": "S3", "price": 60 + k})
        for k in range(60)
    ]
    matches = swept.match_many(make_batch(together))
    pairs = zip(matches.publication.tolist(), matches.subscription.tolist(), strict=True)
    expected = [(k, s) for k, p in enumerate(together) for s in oracle.match(p, p.t)]
    assert sorted(pairs) == expected


def test_an_unbounded_formula_is_evaluated_every_time_and_reported() -> None:
    engine = SweptMatcher()
    for i in range(20):
        engine.put(Subscription(i, i, Formula(f"x >= {10 * i} + t, x <= {10 * i + 5} + t")))
    engine.put(Subscription(20, 20, Formula("x < 1 + 0.5 * t")))
    engine.put(Subscription(21, 21, Formula("x > 1 / (t - 0.5), x < 2 / (t - 0.5)")))
    assert engine.match(Publication(1, 99, 0, point(-1000, 0)), 0) == [20]
    assert engine.fallbacks == 2
    engine.drop(20)
    late = 1000 * SECOND  # by then, the other one's divisor is far from nothing
    assert engine.match(Publication(1, 99, late, point(0.0015, 0)), late) == [21]
    assert engine.fallbacks == 0


def test_topics_are_found_without_evaluating_others() -> None:
    engine = SweptMatcher()
    for i in range(500):
        engine.put(Subscription(i, i, ANYWHERE, channel=f"tile {i % 50}"))
    for tile in (3, 49):
        publication = Publication(1, 999, 0, point(0, 0), channel=f"tile {tile}")
        assert engine.match(publication, 0) == list(range(tile, 500, 50))
    assert engine.match(Publication(1, 999, 0, point(0, 0), channel="elsewhere"), 0) == []


@pytest.mark.parametrize("name", ["grid", "swept", "lazy", "cached", "periodic"])
def test_a_fault_at_matching_time_is_no_match_and_is_counted(name: str) -> None:
    engine = MATCHERS[name]()
    engine.put(Subscription(1, 1, Formula("x >= 1 / (t - 1), x <= 9, y <= 9, y > -9")))
    engine.put(Subscription(2, 2, ANYWHERE, Filter("weight > 1 / (t - 1)")))
    engine.put(Subscription(3, 3, ANYWHERE, Filter("weight > 1 + t")))
    if engine.due() is not None:
        engine.refresh(SECOND)
    faults = engine.faults
    heavy = Publication(1, 99, SECOND, point(5, 5), attributes={"weight": 5})
    assert engine.match(heavy, SECOND) == [3]
    assert engine.faults >= 2
    publication = Publication(1, 99, SECOND, point(500, 5), attributes={"weight": "heavy"})
    before = engine.faults
    assert engine.match(publication, SECOND) == []
    assert engine.faults > before >= faults


# Anything that a stranger may write, as long as it is let in at all.
PIECES = st.sampled_from(
    ["x", "y", "weight", "kind", "t", "1e308", "0", "-", "3", "/", "*", "+", "sqrt(", "sin(",
     "min(", "(", ")", ",", "<", ">=", "==", "!=", '"apple"', "true", "t - 2", "5e-324"]
)  # fmt: skip
BOUNDS = st.recursive(
    st.sampled_from(["t", "0", "2", "1e308", "5e-324", "(t - 2)", "(2 - t)", "0.5"]),
    lambda parts: st.one_of(
        st.builds("({} {} {})".format, parts, st.sampled_from("+-*/"), parts),
        st.builds("{}({})".format, st.sampled_from(["sqrt", "sin", "cos", "abs"]), parts),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), parts, parts),
    ),
    max_leaves=6,
)


def predicates(names: list[str]) -> st.SearchStrategy[str]:
    one = st.builds(
        "{} {} {}".format, st.sampled_from(names), st.sampled_from(["<", "<=", ">", ">=", "=="]),
        BOUNDS,
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=3).map(", ".join) | st.lists(
        PIECES, min_size=1, max_size=9
    ).map(" ".join)


@examples(150)
@given(
    texts=st.lists(st.tuples(predicates(["x", "y"]), predicates(["weight", "kind"])), max_size=8),
    moments=st.lists(
        st.sampled_from([0, SECOND, 2 * SECOND, 2 * SECOND + 1, 9 * SECOND, 2**52]), min_size=1
    ),
    weight=st.sampled_from([0, 3, -1.5, "heavy", True, 2**62]),
)
def test_any_text_is_refused_with_the_place_of_its_error_or_evaluated(
    texts: list[tuple[str, str]], moments: list[int], weight: int | float | str
) -> None:
    engines: list[Matcher] = [ScanMatcher(), GridMatcher(), SweptMatcher(), LazyMatcher()]
    stale = [MATCHERS["periodic"](), MATCHERS["cached"]()]
    for i, (place, condition) in enumerate(texts):
        try:
            subscription = Subscription(
                i, i, Formula(place) if i % 3 else ANYWHERE, Filter(condition) if i % 2 else None
            )
        except FormulaError as refused:
            assert 0 <= refused.position <= len(refused.text)
            continue
        except ValueError:  # a filter that speaks of places, or the other way round
            continue
        for engine in (*engines, *stale):
            engine.put(subscription)
    for moment in sorted(moments):
        publication = Publication(
            1, 99, moment, point(1, 2), attributes={"weight": weight, "kind": "a"}
        )
        answers = [engine.match(publication, moment) for engine in engines]
        assert all(answer == answers[0] for answer in answers)
        for engine in stale:
            engine.refresh(moment)
            engine.match(publication, moment)
