"""Filters give in a kernel what they give in Python, pair by pair, faults included."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching import indexed_engine, keyed
from nearcast.matching.filters import EXACT, count_steps
from nearcast.matching.grid import GridMatcher
from nearcast.matching.keyed import KeyedMatcher
from nearcast.matching.matcher import make_batch
from nearcast.matching.residual_check import check_subscription
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, disc, point
from support.examples import examples

NAMES = ["a", "b", "c"]
TEXTS = ["", "a", "aa", "ab", "b", "z", "ä", "aä", "日本", "a\x7f", "\U0001f600", "\ue000"]
NUMBERS = ["0", "1", "-1", "2.5", "9007199254740992", "-9007199254740992", "1e300", "0.1 + 0.2"]
MOVING = [
    "t", "2 * t - 3", "1 / (t - 2)", "sqrt(t - 1)", "sin(t) * 3", "min(t, 1, 2)", "abs(t - 2)",
    "1e308 * t * 10", "t + 9007199254740992",
]  # fmt: skip
OPERATORS = ["<", "<=", ">", ">=", "==", "!="]


# To make a strategy takes longer than to draw from it.
ANY_NAME, ANY_OPERATOR = st.sampled_from(NAMES), st.sampled_from(OPERATORS)
KINDS = st.sampled_from(["text", "truth", "number", "moving"])
EQUALITIES, TRUTHS = st.sampled_from(["==", "!="]), st.sampled_from(["true", "false"])
LITERALS = st.sampled_from([text for text in TEXTS if "\x7f" not in text])
ANY_NUMBER, ANY_MOVING = st.sampled_from(NUMBERS), st.sampled_from(MOVING)


@st.composite
def predicate(draw: st.DrawFn) -> str:
    name, operator = draw(ANY_NAME), draw(ANY_OPERATOR)
    kind = draw(KINDS)
    if kind == "truth":
        operator = draw(EQUALITIES)
        return f"{name} {operator} {draw(TRUTHS)}"
    if kind == "text":
        text = draw(LITERALS)
        return f'{name} {operator} "{text}"'
    return f"{name} {operator} {draw(ANY_NUMBER if kind == 'number' else ANY_MOVING)}"


CLAUSES = st.lists(predicate(), min_size=1, max_size=3).map(" or ".join)
FILTERS = st.lists(predicate() | CLAUSES, min_size=1, max_size=4).map(", ".join)
VALUES = st.one_of(
    st.sampled_from(TEXTS),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([EXACT - 1, EXACT, EXACT + 1, -EXACT - 1, 2**63 - 1, -(2**63)]),
    st.sampled_from([0.0, -0.0, 0.5, 2.5, 0.30000000000000004, 1e300, -1e300, 5e-324, 1e308]),
)
ATTRIBUTES = st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES, max_size=4)
TIMES = st.sampled_from([0, 1, SECOND, 2 * SECOND, 3 * SECOND, 5_500_000])
REGIONS = st.sampled_from(
    [
        Moving(EVERYWHERE),
        Moving(disc(0, 0, 5)),
        Moving(disc(0, 0, 5), (1.0, 0.0, 0.0)),
        Formula("x >= -5 + t, x <= 5 - 1 / (t - 2)"),
    ]
)


OWNERS, COUNTS, FLAGS = st.integers(0, 1), st.integers(1, 6), st.booleans()
CONDITIONS = st.none() | st.builds(Filter, FILTERS, TIMES)
PLACES = st.sampled_from([0, 4, 9])
ALL_ATTRIBUTES = st.lists(ATTRIBUTES, min_size=1, max_size=6)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Subscription], list[Publication]]:
    wanted = [
        Subscription(
            i, draw(OWNERS), draw(REGIONS).stamped(draw(TIMES)),
            draw(CONDITIONS), echo=draw(FLAGS),
        )
        for i in range(draw(COUNTS))
    ]  # fmt: skip
    published = [
        Publication(i, 1, draw(TIMES), point(draw(PLACES), 0), "", attributes)
        for i, attributes in enumerate(draw(ALL_ATTRIBUTES))
    ]
    return wanted, published


def expected(
    wanted: list[Subscription], published: list[Publication]
) -> tuple[list[tuple[int, int]], int]:
    """Pairs that Python lets through, and how many faults it finds."""
    outcomes = {
        (i, s.id): check_subscription(s, publication, publication.t)
        for i, publication in enumerate(published)
        for s in wanted
    }
    found = sorted(pair for pair, outcome in outcomes.items() if outcome)
    return found, sum(outcome is None for outcome in outcomes.values())


def answers(
    engine: GridMatcher | KeyedMatcher, published: list[Publication]
) -> list[tuple[int, int]]:
    matches = engine.match_many(make_batch(published))
    return sorted(zip(matches.publication.tolist(), matches.subscription.tolist(), strict=True))


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels judge every pair, however few there are."""
    monkeypatch.setattr(indexed_engine, "FEW", 1)


@pytest.mark.parametrize("make", [GridMatcher, KeyedMatcher])
@examples(250)
@given(worlds(), st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=6))
def test_a_kernel_evaluates_filters_as_python_does(
    make: type[GridMatcher | KeyedMatcher],
    world: tuple[list[Subscription], list[Publication]],
    later: list[tuple[int, bool]],
) -> None:
    wanted, published = world
    there: dict[int, Subscription] = {}
    engine = make()
    for subscription in wanted:
        engine.put(subscription)
        there[subscription.id] = subscription
    found, faults = expected(wanted, published)
    assert answers(engine, published) == found
    assert engine.faults == faults or make is KeyedMatcher, "which finds fewer candidates"
    for number, stays in later:  # puts and drops, which use tables again
        if number in there and not stays:
            engine.drop(number)
            del there[number]
        elif number < len(wanted):
            engine.put(wanted[number])
            there[number] = wanted[number]
        before = engine.faults
        found, faults = expected(list(there.values()), published)
        assert answers(engine, published) == found
        assert engine.faults - before == faults or make is KeyedMatcher


def test_many_filters_are_evaluated_at_many_moments() -> None:
    rng = Random(5)
    texts = ["a > t", 'b == "x", a < 3', "a >= 1 / (t - 2), b != true", "c == true", 'b > "m"']
    wanted = [
        Subscription(i, 2, Moving(EVERYWHERE), Filter(rng.choice(texts), rng.randrange(4) * SECOND))
        for i in range(200)
    ]
    values = [1, 2.5, True, "x", "y", EXACT + 1]
    published = [
        Publication(
            i, 1, rng.randrange(5) * SECOND, point(0, 0), "",
            {name: rng.choice(values) for name in rng.sample(NAMES, rng.randrange(4))},
        )
        for i in range(60)
    ]  # fmt: skip
    engine = GridMatcher()
    for subscription in wanted:
        engine.put(subscription)
    found, faults = expected(wanted, published)
    assert answers(engine, published) == found and engine.faults == faults
    assert len(found) > 100 and faults > 100


def test_tables_do_not_grow_with_changes() -> None:
    engine = GridMatcher()
    for i in range(2_000):
        text = f'name{i} == "{i % 10}", a > t'
        engine.put(Subscription(i % 4, 0, Moving(disc(0, 0, 1)), Filter(text, i)))
    filters = engine._rows.filters
    assert len(filters.tests.array) <= 64 and len(filters.texts.array) <= 64
    assert len(engine._rows.programs.array) <= 64 and len(filters._columns) <= 2 * 6


def test_a_subscription_that_moves_keeps_its_filter() -> None:
    engine = GridMatcher()
    wanted = Subscription(1, 0, Moving(disc(0, 0, 1)), Filter("a > t, b == 3", 5))
    engine.put(wanted)
    start = engine._rows.array[0]["filter"]
    engine.put(wanted.moved(Moving(disc(9, 9, 1)), 7))
    assert engine._rows.array[0]["filter"] == start
    published = Publication(1, 1, SECOND, point(9, 9), "", {"a": 2, "b": 3})
    assert engine.match(published, SECOND) == [1]


def test_what_formulas_and_filters_cost_is_counted_by_pair() -> None:
    engine = GridMatcher()
    plain = Subscription(1, 0, Moving(disc(0, 0, 1)))
    wanted = Subscription(2, 0, Moving(disc(0, 0, 1)), Filter("a > 3, b == 4"))
    formula = Subscription(3, 0, Formula("x > -1 + sin(t), x < 1"))
    for subscription in (plain, wanted, formula):
        engine.put(subscription)
    assert [count_steps(one) for one in (plain, wanted, formula)] == [(0, 0), (2, 0), (2, 12)]
    published = [Publication(i, 1, 0, point(0, 0), "", {"a": 1}) for i in range(2)]
    effort = engine.match_many(make_batch(published)).cost
    assert effort is not None
    columns = (effort.publication.tolist(), effort.subscription.tolist(), effort.steps.tolist())
    assert sorted(zip(*columns, strict=True)) == [(0, 2, 2), (0, 3, 14), (1, 2, 2), (1, 3, 2)]
    engine.drop(2)
    engine.drop(3)
    assert engine.match_many(make_batch(published)).cost is None


def test_of_filters_with_an_equality_only_those_with_the_same_value_are_tested() -> None:
    engine = KeyedMatcher()
    for i in range(300):
        text = f'symbol == "S{i % 30}", price > 3, kind == "share"'
        engine.put(Subscription(i, 9, Moving(EVERYWHERE), Filter(text)))
    attributes = {"symbol": "S7", "price": 5, "kind": "share"}
    published = [Publication(1, 1, 0, point(0, 0), "", attributes)]
    matches = engine.match_many(make_batch(published))
    assert sorted(matches.subscription.tolist()) == list(range(7, 300, 30))
    assert matches.cost is not None
    assert len(matches.cost.subscription) < 30, "the first few were put when all was rare"


def test_however_many_pairs_there_are_all_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "AT_ONCE", 10)
    engine = KeyedMatcher()
    for i in range(25):
        engine.put(Subscription(i, 9, Moving(EVERYWHERE), Filter("a == 1, b > 3")))
    published = [Publication(i, 1, 0, point(0, 0), "", {"a": 1, "b": i}) for i in range(7)]
    matches = engine.match_many(make_batch(published))
    assert len(matches.publication) == 3 * 25 and set(matches.publication.tolist()) == {4, 5, 6}
