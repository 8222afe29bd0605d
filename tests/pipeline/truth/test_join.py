"""The exact join on Arrow columns, against brute force; no Spark, so many examples."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.pipeline.truth import join, kernels
from nearcast.space.motion import FOREVER, SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import expected
from support.examples import examples
from support.strategies import TIMES, publications, subscriptions

# To make a strategy takes longer than to draw from it.
DIMENSIONS = st.sampled_from([2, 3])
CHANGES = {
    dims: st.lists(st.tuples(TIMES, subscriptions(dims), st.booleans()), max_size=12)
    for dims in (2, 3)
}
PUBLICATIONS = {dims: st.lists(publications(dims), max_size=12) for dims in (2, 3)}


@st.composite
def traces(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Interests and publications of a run, as a host would have recorded them."""
    memory = MemoryTrace()
    recorder = Recorder(memory)
    dims = draw(DIMENSIONS)
    owner: dict[int, int] = {}
    changes = draw(CHANGES[dims])
    for t, wanted, ends in sorted(changes, key=lambda change: change[0]):
        node = owner.setdefault(wanted.id, wanted.node)
        if ends:
            recorder.ended(t, node, wanted.id)
            continue
        region = wanted.region.stamped(t)
        condition = wanted.filter.stamped(t) if wanted.filter else None
        recorder.interest(
            t, Subscription(wanted.id, node, region, condition, wanted.channel, wanted.echo)
        )
    for number, said in enumerate(draw(PUBLICATIONS[dims])):
        recorder.published(
            Publication(number, said.node, said.t, said.shape, said.channel, said.attributes)
        )
    recorder.close()
    return memory.table("interests"), memory.table("publications")


@pytest.fixture(autouse=True, scope="module")
def slices_of_a_few_rows() -> Iterator[None]:
    """Little traces must be cut too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "MIN_CHANGED_ROWS", 3)
        yield


def joined(interests: pa.Table, said: pa.Table) -> list[tuple[int, int]]:
    said = said.take(np.argsort(join.column_or_zeros(said, "t"), kind="stable"))
    ids = join.column_or_zeros(said, "publication")
    return sorted(
        (int(ids[i]), int(s))
        for which, subscription in join.find_pairs(join.interest_spans(interests), said)
        for i, s in zip(which, subscription, strict=True)
    )


@examples(400)
@given(trace=traces())
def test_the_join_finds_exactly_what_brute_force_finds(trace: tuple[pa.Table, pa.Table]) -> None:
    interests, said = trace
    assert joined(interests, said) == sorted(expected(interests, said))


@examples(100)
@given(trace=traces(), cut=st.integers(0, 20 * SECOND))
def test_cutting_time_changes_nothing(trace: tuple[pa.Table, pa.Table], cut: int) -> None:
    interests, said = trace
    t = join.column_or_zeros(said, "t")
    pieces = []
    for begin, end in ((-(2**62), cut), (cut, 2**62)):
        part = said.filter(pa.array((t >= begin) & (t < end)))
        held = join.interest_spans(interests, begin, end)
        part = part.take(np.argsort(join.column_or_zeros(part, "t"), kind="stable"))
        ids = join.column_or_zeros(part, "publication")
        for which, subscription in join.find_pairs(held, part):
            pieces += [(int(ids[i]), int(s)) for i, s in zip(which, subscription, strict=True)]
    assert sorted(pieces) == joined(interests, said)


@examples(60)
@given(trace=traces(), rng=st.randoms(use_true_random=False))
def test_the_order_of_rows_means_nothing(trace: tuple[pa.Table, pa.Table], rng: object) -> None:
    interests, said = trace
    order = list(range(interests.num_rows))
    rng.shuffle(order)
    assert joined(interests.take(pa.array(order, pa.int64())), said) == joined(interests, said)


@examples(60)
@given(
    said=st.lists(st.integers(0, 8), max_size=40), apart=st.sampled_from([1, 2**30]),
    begin=st.sampled_from([0, 2**20]),
)  # fmt: skip
def test_an_interest_row_holds_until_the_next_of_its_subscription(
    said: list[int], apart: int, begin: int
) -> None:
    subscription = begin + apart * np.array(said, np.int64)
    t = 7 * np.arange(len(said))
    later = [
        next((int(t[j]) for j in range(i + 1, len(said)) if said[j] == said[i]), FOREVER)
        for i in range(len(said))
    ]
    assert kernels.find_ends(subscription, t).tolist() == later


def test_areas_that_move_in_steps_are_cut_into_slices_and_joined_exactly() -> None:
    rng = np.random.default_rng(1)
    steps, walkers = 40, 60
    place = np.cumsum(rng.normal(0, 3, (steps, walkers, 2)), axis=0) + rng.uniform(
        0, 80, (walkers, 2)
    )
    zeros = np.zeros(steps * walkers)
    t = np.repeat(np.arange(steps) * 100_000, walkers)
    names = ["z", "ry", "rz", "vx", "vy", "vz", "gx", "gy", "gz"]
    count = steps * walkers
    interests = pa.table(
        {"t": t, "node": np.tile(np.arange(walkers), steps),
         "subscription": np.tile(np.arange(walkers), steps), "shape": ["disc"] * count,
         "x": place[..., 0].ravel(), "y": place[..., 1].ravel(), "rx": zeros + 10.0,
         **dict.fromkeys(names, zeros), "until": pa.nulls(count, pa.int64()),
         "formula": pa.nulls(count, pa.string()), "since": pa.nulls(count, pa.int64()),
         "channel": [""] * count, "filter": pa.nulls(count, pa.string()),
         "echo": [False] * count, "ended": [False] * count}
    )  # fmt: skip
    said = pa.table(
        {"t": t + 50_000, "node": np.tile(np.arange(walkers), steps),
         "publication": np.arange(count), "shape": ["point"] * count,
         "x": place[..., 0].ravel(), "y": place[..., 1].ravel(), "z": zeros, "rx": zeros,
         "ry": zeros, "rz": zeros, "channel": [""] * count,
         "attributes": pa.nulls(count, pa.string()), "bytes": np.zeros(count, np.int64)}
    )  # fmt: skip
    held = join.interest_spans(interests)
    assert len(list(join.time_slices(join.interest_columns(held, pa.array([""])), t + 50_000))) > 5
    found = joined(interests, said)
    assert len(found) > 1000
    assert found == sorted(expected(interests, said))
