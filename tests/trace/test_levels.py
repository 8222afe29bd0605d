"""Recording levels, each against a naive recomputation from everything."""

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.space.motion import Moving
from nearcast.space.shapes import point
from nearcast.trace.recorder import Level, Recorder, is_sampled
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import MemoryTrace
from support.examples import examples
from support.recorders import rows_held

few = st.integers(0, 3)
numbers = st.integers(0, 40)  # of publications: about half are kept at one in two

calls = st.one_of(
    st.tuples(st.just("published"), numbers),
    st.tuples(st.just("delivered"), few, numbers, st.lists(few, max_size=3, unique=True), few),
    st.tuples(
        st.just("sent"), few, few, st.sampled_from(["publish", "ack"]), numbers,
        st.none() | numbers, st.none() | numbers, st.booleans(),
    ),
    st.tuples(
        st.just("sent_many"), few, st.lists(few, max_size=12), st.just("publish"), numbers,
        st.none() | numbers, st.none() | numbers,
    ),
    st.tuples(st.just("note"), few, st.just("withheld"), numbers),
    st.tuples(st.just("interest"), numbers),
    st.tuples(st.just("flush")),
)  # fmt: skip
# A call, and how long after the one before: often within a second, sometimes beyond.
histories = st.lists(st.tuples(st.integers(0, 700_000), calls), max_size=40)
History = list[tuple[int, tuple[Any, ...]]]


def record(history: History, level: Level, one_in: int = 16, limit: int = 400_000) -> MemoryTrace:
    sink = MemoryTrace()
    recorder = Recorder(sink, level, one_in=one_in, limit=limit)
    t = 0
    for pause, (act, *arguments) in history:
        t += pause
        if act == "published":
            recorder.published(Publication(arguments[0], 1, t, point(0, 0)))
        elif act == "interest":
            recorder.interest(t, Subscription(arguments[0], 1, Moving(point(0, 0))))
        elif act == "flush":
            t += 1  # a host flushes between instants
            recorder.flush()
        else:
            getattr(recorder, act)(t, *arguments)
    recorder.close()
    return sink


def rows(sink: MemoryTrace, table: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in sink.table(table).to_pylist())


def kept(publication: int | None, one_in: int) -> bool:
    """The rule as it is written down, in exact fractions."""
    if publication is None:
        return True
    return publication * 0x9E3779B97F4A7C15 % 2**64 < Fraction(2**64, one_in)


@given(histories, st.sampled_from([1, 2, 3, 16]), st.sampled_from([5, 400_000]))
@examples(60)
def test_a_sample_is_what_everything_holds_of_the_chosen_publications(
    history: History, one_in: int, limit: int
) -> None:
    everything, sample = record(history, "all"), record(history, "sampled", one_in, limit)
    for name, schema in TABLES.items():
        expected = rows(everything, name)
        if "publication" in schema.names:
            place = schema.get_field_index("publication")
            expected = Counter({r: n for r, n in expected.items() if kept(r[place], one_in)})
        assert rows(sample, name) == expected


@given(histories, st.sampled_from([5, 400_000]))
@examples(60)
def test_sums_are_the_sums_of_everything(history: History, limit: int) -> None:
    everything, sums = record(history, "all"), record(history, "sums", limit=limit)
    size: Counter[tuple[Any, ...]] = Counter()
    copies: Counter[tuple[Any, ...]] = Counter()
    for row in everything.table("messages").to_pylist():
        second = row["t"] // 1_000_000 * 1_000_000
        alike = (second, row["node"], row["to"], row["kind"], row["lost"])
        size[alike] += row["bytes"]
        copies[alike] += 1
    assert rows(sums, "messages") == Counter(
        (t, node, to, kind, size[t, node, to, kind, lost], None, None, lost, n)
        for (t, node, to, kind, lost), n in copies.items()
    )
    for name in TABLES.keys() - {"messages"}:
        assert rows(sums, name) == rows(everything, name)


@given(histories, st.sampled_from([1, 2, 16]), st.sampled_from([5, 400_000]))
@examples(40)
def test_brief_is_the_sums_of_all_messages_and_a_sample_of_everything_else(
    history: History, one_in: int, limit: int
) -> None:
    brief = record(history, "brief", one_in, limit)
    sums, sample = record(history, "sums"), record(history, "sampled", one_in)
    assert rows(brief, "messages") == rows(sums, "messages")
    for name in TABLES.keys() - {"messages"}:
        assert rows(brief, name) == rows(sample, name)


@given(st.lists(st.integers(0, 2**53 - 1)), st.integers(1, 10**6))
@examples(100)
def test_the_sampling_rule_is_the_same_for_one_and_for_a_column(
    publications: list[int], one_in: int
) -> None:
    expected = [kept(publication, one_in) for publication in publications]
    assert [is_sampled(publication, one_in) for publication in publications] == expected
    assert is_sampled(np.array(publications, np.int64), one_in).tolist() == expected


@pytest.mark.parametrize("one_in", [2, 16])
def test_consecutive_publications_are_sampled_evenly(one_in: int) -> None:
    share = is_sampled(np.arange(100_000), one_in).mean()
    assert share == pytest.approx(1 / one_in, rel=0.01)


def test_sums_of_a_second_wait_until_it_is_over() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, "sums")
    recorder.sent(999_999, 1, 2, "k", 10, 7, None, False)
    recorder.flush()
    assert sink.table("messages").num_rows == 0
    recorder.sent(999_999, 1, 2, "k", 20, 7, None, False)
    recorder.sent(1_000_000, 1, 2, "k", 40, 7, None, False)
    recorder.flush()
    assert sink.table("messages").select(["t", "bytes", "copies"]).to_pylist() == [
        {"t": 0, "bytes": 30, "copies": 2}
    ]
    assert rows_held(recorder) == 1
