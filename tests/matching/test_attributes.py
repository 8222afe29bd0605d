"""The counting index: nothing is missed, and little else is found."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching import attributes as counting
from nearcast.matching.attributes import AttributeComparison, AttributeIndex
from nearcast.model.predicates import COMPARISONS
from nearcast.model.subscription import Value
from support.examples import examples

VALUES = st.one_of(
    st.integers(-3, 3),
    st.integers(-3, 3).map(float),
    st.sampled_from(["", "a", "b", "apple"]),
    st.booleans(),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), -(2**63)]),
)
NAMES = st.sampled_from(["a", "b", "c"])
TESTS = st.builds(AttributeComparison, NAMES, st.sampled_from(list(COMPARISONS)), VALUES).filter(
    lambda test: not isinstance(test.bound, bool) or test.operator in ("==", "!=")
)


def kind(value: Value) -> str:
    return type(value).__name__ if isinstance(value, str | bool) else "number"


def holds(test: AttributeComparison, attributes: dict[str, Value]) -> bool:
    value = attributes.get(test.attribute)
    return (
        value is not None
        and kind(value) == kind(test.bound)
        and COMPARISONS[test.operator](value, test.bound)
    )


@examples(150)
@given(
    wanted=st.lists(
        st.tuples(st.lists(TESTS, max_size=4), st.sampled_from(["", "chat"])),
        min_size=1, max_size=60,
    ),
    said=st.lists(
        st.tuples(st.dictionaries(NAMES, VALUES), st.sampled_from(["", "chat", "none"])),
        min_size=1, max_size=6,
    ),
    gone=st.lists(st.integers(0, 59), max_size=10),
)  # fmt: skip
def test_a_built_index_finds_exactly_the_filters_whose_comparisons_all_hold(
    wanted: list[tuple[list[AttributeComparison], str]],
    said: list[tuple[dict[str, Value], str]],
    gone: list[int],
) -> None:
    index = AttributeIndex()
    for i, (tests, channel) in enumerate(wanted):
        index.put(i, channel, tests)
    index.find("", {})
    for i in gone:
        index.drop(i)
    alive = [i for i in range(len(wanted)) if i not in gone]
    assert len(index) == len(alive)
    for attributes, channel in said:
        assert index.find(channel, attributes) == [
            i
            for i in alive
            if wanted[i][1] == channel and all(holds(test, attributes) for test in wanted[i][0])
        ]


def test_changed_filters_are_always_candidates_until_the_index_is_rebuilt() -> None:
    index = AttributeIndex()
    for i in range(100):
        index.put(i, "", [AttributeComparison("price", "==", i)])
    assert index.find("", {"price": 7}) == [7]
    index.put(7, "", [AttributeComparison("price", "==", 1000)])
    index.put(100, "", [AttributeComparison("price", "==", 1000)])
    assert index.find("", {"price": 7}) == [7, 100]
    for i in range(100, 200):
        index.put(i, "", [AttributeComparison("price", "==", 1000)])
    assert index.find("", {"price": 7}) == []
    assert index.find("", {"price": 1000}) == [7, *range(100, 200)]


def test_only_filters_whose_rarest_equality_holds_are_counted(monkeypatch) -> None:
    index, rng = AttributeIndex(), Random(1)
    for i in range(2000):
        tests = [
            AttributeComparison("symbol", "==", f"S{i % 100}"), AttributeComparison("exchange",
            "==", "X"),
            AttributeComparison("price", ">=", rng.random()),
        ]  # fmt: skip
        index.put(i, "", tests)
    index.find("", {})
    counted = []
    find = counting.CountingBucket.find

    def count(bucket: counting.CountingBucket, attributes: dict[str, Value]) -> list[int]:
        counted.append(len(bucket._ids))
        return find(bucket, attributes)

    monkeypatch.setattr(counting.CountingBucket, "find", count)
    found = index.find("", {"symbol": "S7", "exchange": "X", "price": 2.0})
    assert found == list(range(7, 2000, 100))
    assert counted == [20]


def test_attributes_of_another_type_are_counted_and_match_nothing() -> None:
    index = AttributeIndex()
    index.put(1, "", [AttributeComparison("price", ">=", 3.0)])
    index.put(2, "", [AttributeComparison("symbol", "==", "IBM")])
    index.find("", {"price": 4, "symbol": "IBM"})
    assert index.clashes == 0
    assert index.find("", {"price": "4", "symbol": 3}) == []
    assert index.clashes == 2
    index.find("", {"price": True, "volume": "much"})
    assert index.clashes == 3
