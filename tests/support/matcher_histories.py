"""Random histories of a matching engine, played beside the scan."""

from functools import cache

from hypothesis import strategies as st

from nearcast.matching.matcher import Matcher, make_batch
from nearcast.matching.scan import ScanMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from support.evolving_cases import evolving
from support.strategies import TIMES, publications, subscriptions


@cache
def _histories(dims: int) -> st.SearchStrategy[list[tuple[str, object]]]:
    act = st.one_of(
        st.tuples(st.just("put"), subscriptions(dims)),
        st.tuples(st.just("put"), evolving(dims)),
        st.tuples(st.just("drop"), st.integers(0, 12)),
        st.tuples(st.just("match"), st.tuples(publications(dims), TIMES)),
        st.tuples(st.just("many"), st.lists(publications(dims), max_size=6)),
    )
    return st.lists(act, min_size=1, max_size=40)


def histories() -> st.SearchStrategy[list[tuple[str, object]]]:
    """Any sequence of puts (new or replacing), drops, single matches and batches."""
    return st.sampled_from([2, 3]).flatmap(_histories)


def answers(matcher: Matcher, several: list[Publication]) -> list[tuple[int, int]]:
    matches = matcher.match_many(make_batch(several))
    return sorted(zip(matches.publication.tolist(), matches.subscription.tolist(), strict=True))


def play(engine: Matcher, history: list[tuple[str, object]]) -> None:
    """Let the engine and the scan live through the same history; every answer must be equal."""
    oracle = ScanMatcher()
    for act, argument in history:
        match act, argument:
            case "put", Subscription() as subscription:
                engine.put(subscription)
                oracle.put(subscription)
            case "drop", int(subscription_id):
                engine.drop(subscription_id)
                oracle.drop(subscription_id)
            case "match", (Publication() as publication, int(at)):
                assert engine.match(publication, at) == oracle.match(publication, at)
            case "many", list(several):
                assert answers(engine, several) == answers(oracle, several)
