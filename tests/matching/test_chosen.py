"""Engines side by side find exactly what each of them finds by itself."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.matching import MATCHERS
from nearcast.matching.cached import CachedMatcher
from nearcast.matching.chosen import ChosenMatcher
from nearcast.matching.matcher import Matcher
from nearcast.matching.periodic import PeriodicMatcher
from nearcast.matching.scan import ScanMatcher
from nearcast.model.evolution import Evolution
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from support.evolving_cases import evolving
from support.examples import examples
from support.matcher_histories import histories, play
from support.strategies import TIMES, publications

CHOICES = (
    None,
    Evolution("periodic"),
    Evolution("periodic", SECOND // 3),
    Evolution("periodic", 4 * SECOND),
    Evolution("lazy"),
    Evolution("cached"),
    Evolution("cached", SECOND),
    Evolution("swept"),
)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.tuples(evolving(), st.sampled_from(CHOICES))),
        st.tuples(st.just("drop"), st.integers(0, 12)),
        st.tuples(st.just("match"), st.tuples(publications(), TIMES)),
        st.tuples(st.just("refresh"), TIMES),
    ),
    min_size=1,
    max_size=30,
)


class EnginesApart:
    """The oracle: an engine of each kind, which hears of everything but has only its own."""

    def __init__(self, usual: str) -> None:
        self.usual = usual
        self.engines = {name: MATCHERS[name]() for name in MATCHERS}

    def put(self, subscription: Subscription) -> None:
        choice = subscription.evolution
        kind = self.usual if choice is None else choice.kind
        for name, engine in self.engines.items():
            if name != kind:
                engine.drop(subscription.id)
        engine = self.engines[kind]
        if choice is None or choice.serves is None:
            engine.put(subscription)
        else:
            assert isinstance(engine, PeriodicMatcher | CachedMatcher)
            engine.put(subscription, choice.serves)

    def drop(self, subscription: int) -> None:
        for engine in self.engines.values():
            engine.drop(subscription)

    def match(self, publication: Publication, at: int) -> list[int]:
        return sorted(s for engine in self.engines.values() for s in engine.match(publication, at))

    def refresh(self, now: int) -> None:
        for engine in self.engines.values():
            due = engine.due()
            if due is not None and due <= now:
                engine.refresh(now)


@examples(80)
@given(usual=st.sampled_from(["scan", "swept", "periodic", "cached"]), history=ACTS)
def test_together_they_find_the_union_of_what_each_finds_alone(
    usual: str, history: list[tuple[str, object]]
) -> None:
    together, apart = ChosenMatcher(usual, lambda name: MATCHERS[name]()), EnginesApart(usual)
    exact, inexact = ScanMatcher(), set[int]()
    for act, argument in history:
        match act, argument:
            case "put", (Subscription() as subscription, choice):
                wanted = replace(subscription, evolution=choice)
                for engine in (together, apart, exact):
                    engine.put(wanted)
                kind = usual if choice is None else choice.kind
                (inexact.add if kind in ("periodic", "cached") else inexact.discard)(wanted.id)
            case "drop", int(number):
                for engine in (together, apart, exact):
                    engine.drop(number)
            case "match", (Publication() as publication, int(at)):
                found = together.match(publication, at)
                assert found == apart.match(publication, at)
                right = exact.match(publication, at)
                assert [s for s in found if s not in inexact] == [
                    s for s in right if s not in inexact
                ]
            case "refresh", int(now):
                together.refresh(now)
                apart.refresh(now)


@examples(20)
@given(history=histories())
def test_without_a_choice_it_matches_like_the_scan(history: list[tuple[str, object]]) -> None:
    play(ChosenMatcher("swept", lambda name: MATCHERS[name]()), history)


def test_whoever_chooses_otherwise_is_in_the_new_engine_alone() -> None:
    made: list[Matcher] = []

    def make(name: str) -> Matcher:
        made.append(MATCHERS[name]())
        return made[-1]

    engine = ChosenMatcher("scan", make)
    going = Subscription(1, 1, Moving(disc(0, 0, 1), (1.0, 0.0, 0.0)))
    stale = Evolution("periodic", 90 * SECOND)
    for k, choice in enumerate((None, stale, Evolution("lazy"), None)):
        engine.put(replace(going, evolution=choice))
        now = 3 * SECOND * (k + 1)
        found = engine.match(Publication(1, 2, now, point(3.0 * (k + 1), 0)), now)
        assert found == ([] if choice == stale else [1])
    assert len(made) == 3, "one of a kind, made when it is first chosen"
    assert engine.count("evaluations") == sum(getattr(one, "evaluations", 0) for one in made) > 0
