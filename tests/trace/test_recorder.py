"""What a host records is what the tables say."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Region, Subscription
from nearcast.space.motion import FASTEST, LATEST, Moving, line, path
from nearcast.space.outlines import POLYGON, Outline, outline_text, pack
from nearcast.space.shapes import LARGEST, Shape, ball, box, cuboid, disc, point
from nearcast.trace.reader import digest, read
from nearcast.trace.recorder import Recorder
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import MemoryTrace, TraceFolder
from support.examples import examples
from support.recorders import rows_held

LAST_ID = 2**53 - 1
LATE = LATEST - 1
HUGE, TINY = LARGEST, 5e-324
ODD = 'a "quoted" näme 😀\n\x00 end'


@dataclass
class Recorded:
    """A recorder and a memory behind it."""

    sink: MemoryTrace
    recorder: Recorder

    def rows(self, table: str) -> list[dict[str, Any]]:
        self.recorder.close()
        rows: list[dict[str, Any]] = self.sink.table(table).to_pylist()
        return rows


@pytest.fixture
def recorded() -> Recorded:
    sink = MemoryTrace()
    return Recorded(sink, Recorder(sink))


def shape_columns(shape: Shape, name: str) -> dict[str, Any]:
    return {
        "shape": name, "x": shape.x, "y": shape.y, "z": shape.z,
        "rx": shape.rx, "ry": shape.ry, "rz": shape.rz,
        "outline": None if shape.outline is None else outline_text(shape.outline),
    }  # fmt: skip


NO_MOTION = dict.fromkeys(("vx", "vy", "vz", "gx", "gy", "gz"), 0.0)


def record_extremes(recorder: Recorder) -> dict[str, list[dict[str, Any]]]:
    """Calls with the smallest and largest values, and the rows that must come of them."""
    everywhere = cuboid(-HUGE, HUGE, TINY, inf, inf, inf)
    recorder.interest(
        LATE,
        Subscription(
            LAST_ID, LAST_ID, Moving(everywhere, since=LATE), Filter('a == "é"'), ODD, True
        ),
    )
    fence = box(0.0, 0.0, 1.0, 1.0)
    triangle = replace(fence, outline=Outline(POLYGON, False, pack([-1, 0, 1, TINY, 0, 1]), (0,)))
    recorder.interest(2, Subscription(1, 0, Moving(triangle, since=2)))
    moving = Moving(ball(HUGE, -HUGE, 0.0, TINY), (-FASTEST, TINY, 0.0), (FASTEST, 0.0, 0.0), LATE)
    recorder.interest(0, Subscription(0, 0, moving))
    recorder.ended(1, LAST_ID, 0)
    attributes = {"z2": False, "a": ODD, "m": -(2**63), "f": 1e308}
    recorder.published(Publication(LAST_ID, 0, LATE, disc(-0.0, TINY, HUGE), ODD, attributes))
    recorder.published(Publication(0, LAST_ID, 0, point(HUGE, -HUGE, TINY), "", {}, b"12345"))
    recorder.delivered(LATE, LAST_ID, 0, [LAST_ID, 0], 2**62)
    recorder.delivered(0, 0, 0, [], 0)
    recorder.sent(LATE, LAST_ID, 0, ODD, 2**62, None, None, True)
    recorder.sent(0, 0, LAST_ID, "", 0, 0, 0, False)
    recorder.position(0, LAST_ID, HUGE, -HUGE, TINY)
    recorder.view(LATE, 0, LAST_ID, -TINY, -0.0, HUGE)
    recorder.note(0, 0, ODD, -(2**63) + 1, -inf)
    recorder.note(LATE, LAST_ID, "", None, None)
    recorder.note(LATE, LAST_ID, "zero", 0, 0.0)
    still: dict[str, Any] = {**NO_MOTION, "until": None, "formula": None, "since": None}
    return {
        "interests": [
            {"t": 0, "node": 0, "subscription": 0, **shape_columns(moving.shape, "disc"),
             "vx": -FASTEST, "vy": TINY, "vz": 0.0, "gx": FASTEST, "gy": 0.0, "gz": 0.0,
             "until": LATE, "formula": None, "since": None,
             "channel": "", "filter": None, "echo": False, "ended": False},
            {"t": 1, "node": LAST_ID, "subscription": 0, **shape_columns(point(0.0, 0.0), "point"),
             **still, "channel": "", "filter": None, "echo": False, "ended": True},
            {"t": 2, "node": 0, "subscription": 1, **shape_columns(triangle, "box"),
             **still, "channel": "", "filter": None, "echo": False, "ended": False},
            {"t": LATE, "node": LAST_ID, "subscription": LAST_ID,
             **shape_columns(everywhere, "box"), **still,
             "channel": ODD, "filter": 'a == "é"', "echo": True, "ended": False},
        ],
        "publications": [
            {"t": 0, "node": LAST_ID, "publication": 0,
             **shape_columns(point(HUGE, -HUGE, TINY), "point"),
             "channel": "", "attributes": None, "bytes": 5},
            {"t": LATE, "node": 0, "publication": LAST_ID,
             **shape_columns(disc(-0.0, TINY, HUGE), "disc"), "channel": ODD, "bytes": 0,
             "attributes": '{"a":"a \\"quoted\\" näme 😀\\n\\u0000 end",'
                           '"f":1e308,"m":-9223372036854775808,"z2":false}'},
        ],
        "deliveries": [
            {"t": LATE, "node": LAST_ID, "publication": 0, "subscription": s, "hops": 2**62}
            for s in (LAST_ID, 0)
        ],
        "messages": [
            {"t": 0, "node": 0, "to": LAST_ID, "kind": "", "bytes": 0, "publication": 0,
             "arrived": 0, "lost": False, "copies": 1},
            {"t": LATE, "node": LAST_ID, "to": 0, "kind": ODD, "bytes": 2**62,
             "publication": None, "arrived": None, "lost": True, "copies": 1},
        ],
        "positions": [{"t": 0, "node": LAST_ID, "x": HUGE, "y": -HUGE, "z": TINY}],
        "views": [{"t": LATE, "node": 0, "other": LAST_ID, "x": -TINY, "y": -0.0, "z": HUGE}],
        "notes": [
            {"t": 0, "node": 0, "fact": ODD, "about": -(2**63) + 1, "value": -inf},
            {"t": LATE, "node": LAST_ID, "fact": "", "about": None, "value": None},
            {"t": LATE, "node": LAST_ID, "fact": "zero", "about": 0, "value": 0.0},
        ],
        **record_fences(recorder),
    }  # fmt: skip


def record_fences(recorder: Recorder) -> dict[str, list[dict[str, Any]]]:
    """The same for states, fences and direct messages."""
    recorder.direct_sent(0, LAST_ID, 0, LAST_ID, 2**62)
    recorder.direct_delivered(LATE, LAST_ID, LAST_ID)
    recorder.states_made(0, [0, LAST_ID], [LAST_ID, 0], [None, LATE])
    recorder.state_ended(LATE, LAST_ID, 0)
    wanted = Subscription(LAST_ID, 0, Moving(point(0.0, 0.0)), Filter('a == "é"'), ODD, True)
    recorder.fence_interest(0, wanted, ODD, ("enter", "dwell"), LATE, 0)
    recorder.fence_interest_ended(LATE, 0, LAST_ID)
    walk = path(disc(0, 0, 1), [(1.0, 0.0, 0.0), (1.0, 2.0, 0.0)], 1.0).stamped(5)
    recorder.fence_area(5 + 1_000_000, 0, LAST_ID, walk)
    recorder.set_fence(LATE, ODD, '"é"', None)
    place = (HUGE, -HUGE, TINY)
    recorder.fence_event(LATE, 0, LAST_ID, None, 0, "leave", "gone", 0, None, place)
    recorder.fence_event(LATE, 0, LAST_ID, ODD, 0, "cross", None, 0, LATE, place)
    axes = dict(zip("xyz", place, strict=True))
    told = {"t": LATE, "node": 0, "subscription": LAST_ID, "entity": 0, "event_t": 0, **axes}
    second = walk.legs[1]
    return {
        "direct_messages": [
            {"t": 0, "node": LAST_ID, "publication": 0, "to": LAST_ID, "bytes": 2**62}
        ],
        "direct_deliveries": [{"t": LATE, "node": LAST_ID, "publication": LAST_ID}],
        "states": [
            {"t": 0, "node": 0, "publication": LAST_ID, "ttl": None, "ended": False},
            {"t": 0, "node": LAST_ID, "publication": 0, "ttl": LATE, "ended": False},
            {"t": LATE, "node": LAST_ID, "publication": 0, "ttl": None, "ended": True},
        ],
        "fence_interests": [
            {"t": 0, "node": 0, "subscription": LAST_ID, "set": ODD, "events": "enter,dwell",
             "dwell": LATE, "linger": 0, "channel": ODD, "filter": 'a == "é"', "echo": True,
             "ended": False},
            {"t": LATE, "node": 0, "subscription": LAST_ID, "set": None, "events": "",
             "dwell": None, "linger": 0, "channel": "", "filter": None, "echo": False,
             "ended": True},
        ],
        "fence_areas": [  # the first leg is over
            {"t": 5 + 1_000_000, "node": 0, "subscription": LAST_ID, "set": None, "fence": None,
             **shape_columns(second.shape, "disc"), **NO_MOTION, "vx": second.velocity[0],
             "vy": 1.0, "since": second.since, "until": second.until, "ended": False},
            {"t": LATE, "node": 0, "subscription": None, "set": ODD, "fence": '"é"', "since": 0,
             **shape_columns(point(0.0, 0.0), "point"), **NO_MOTION, "until": None,
             "ended": True},
        ],
        "fence_events": [
            {**told, "fence": None, "kind": "leave", "reason": "gone", "out_t": None},
            {**told, "fence": ODD, "kind": "cross", "reason": None, "out_t": LATE},
        ],
    }  # fmt: skip


def test_every_table_comes_back_from_disk_with_extreme_values(tmp_path: FilePath) -> None:
    recorder = Recorder(TraceFolder(tmp_path / "trace", b"{}"))
    expected = record_extremes(recorder)
    recorder.close()
    for name, schema in TABLES.items():
        table = read(tmp_path / "trace", name)
        assert table.schema == schema
        # repr, because 0.0 == -0.0
        assert repr(table.to_pylist()) == repr(
            [{column: row[column] for column in schema.names} for row in expected[name]]
        )
    assert recorder.counts == {name: len(rows) for name, rows in expected.items()}


def test_the_schema_is_the_one_of_the_design() -> None:
    described = {
        name: " ".join(field.name + "?" * field.nullable for field in schema)
        for name, schema in TABLES.items()
    }
    assert described == {
        "interests": "t node subscription shape x y z rx ry rz vx vy vz gx gy gz"
        " until? formula? since? channel filter? echo ended outline?",
        "publications": "t node publication shape x y z rx ry rz channel attributes? bytes"
        " outline?",
        "deliveries": "t node publication subscription hops",
        "messages": "t node to kind bytes publication? arrived? lost copies",
        "positions": "t node x y z",
        "views": "t node other x y z",
        "notes": "t node fact about? value?",
        "states": "t node publication ttl? ended",
        "fence_interests": "t node subscription set? events dwell? linger channel filter? echo"
        " ended",
        "fence_areas": "t node subscription? set? fence? since shape x y z rx ry rz vx vy vz"
        " gx gy gz until? outline? ended",
        "fence_events": "t node subscription fence? entity kind reason? event_t out_t? x y z",
        "direct_messages": "t node publication to bytes",
        "direct_deliveries": "t node publication",
    }
    kinds = {field.name: str(field.type) for schema in TABLES.values() for field in schema}
    assert {kinds[name] for name in ("shape", "channel", "kind", "fact", "filter")} == {"string"}
    assert {kinds[name] for name in ("t", "to", "other", "until", "about")} == {"int64"}
    assert {kinds[name] for name in ("echo", "ended", "lost")} == {"bool"}
    assert {kinds[name] for name in ("x", "rx", "vx", "gz", "value")} == {"double"}


# Interests.


def test_a_region_that_is_under_way_is_written_where_it_is(recorded: Recorded) -> None:
    region = Moving(disc(0, 0, 5), (2.0, 0.0, 0.0), (-1.0, 0.0, 0.0), 4_000_000, 1_000_000)
    recorded.recorder.interest(2_000_000, Subscription(1, 2, region))
    [row] = recorded.rows("interests")
    assert (row["x"], row["rx"], row["vx"], row["gx"]) == (2.0, 4.0, 2.0, -1.0)
    assert row["until"] == 5_000_000


def test_a_motion_that_is_over_leaves_a_standing_region(recorded: Recorded) -> None:
    region = Moving(box(0, 0, 1, 1), (2.0, 0.0, 0.0), duration=1_000_000)
    recorded.recorder.interest(1_000_000, Subscription(1, 2, region))
    [row] = recorded.rows("interests")
    assert (row["x"], row["vx"], row["until"]) == (2.0, 0.0, None)


def test_until_is_left_out_where_nothing_moves_or_the_motion_never_ends(
    recorded: Recorded,
) -> None:
    recorded.recorder.interest(0, Subscription(1, 2, Moving(disc(0, 0, 1), duration=9)))
    endless = Moving(disc(0, 0, 1), growth=(1.0, 0.0, 0.0))
    recorded.recorder.interest(0, Subscription(3, 2, endless))
    assert [row["until"] for row in recorded.rows("interests")] == [None, None]


def test_each_leg_of_a_path_is_a_row_of_its_own(recorded: Recorded) -> None:
    region = path(point(0, 0), [(1.0, 0.0, 0.0), (1.0, 2.0, 0.0)], 1.0).stamped(500)
    for leg in region.legs:
        recorded.recorder.interest(leg.since, Subscription(1, 2, region))
    first, second = recorded.rows("interests")
    assert (first["t"], first["x"], first["y"], first["vx"]) == (500, 0.0, 0.0, 1.0)
    assert (second["t"], second["x"], second["y"], second["vy"]) == (1_000_500, 1.0, 0.0, 1.0)
    assert (first["until"], second["until"]) == (1_000_500, 3_000_500)


@pytest.mark.parametrize(
    ("region", "condition", "since"),
    [
        (Moving(point(0, 0)), None, None),
        (Moving(point(0, 0)), Filter("price > 3", 4), None),
        (Moving(point(0, 0)), Filter("price > 3 + t", 4), 4),
        (Formula("x > 3", 6), None, 6),
        (Formula("x > 3", 6), Filter("price > 3", 4), 6),
        (Formula("x > t", 6), Filter("price > t", 6), 6),
    ],
)
def test_since_is_the_beginning_of_what_evolves(
    recorded: Recorded, region: Region, condition: Filter | None, since: int | None
) -> None:
    recorded.recorder.interest(9, Subscription(1, 2, region, condition))
    [row] = recorded.rows("interests")
    assert row["since"] == since
    assert row["filter"] == (condition.text if condition else None)


def test_a_formula_is_a_box_without_bounds(recorded: Recorded) -> None:
    recorded.recorder.interest(9, Subscription(1, 2, Formula("x > 3 + t", 6)))
    [row] = recorded.rows("interests")
    assert row["formula"] == "x > 3 + t"
    assert row["shape"] == "box"
    assert [row[name] for name in ("x", "y", "z", "rx", "ry", "rz")] == [0, 0, 0, inf, inf, inf]
    assert {row[name] for name in NO_MOTION} == {0.0}


@given(
    since=st.integers(0, 10**7),
    delay=st.integers(0, 10**7),
    later=st.integers(0, 10**7),
    duration=st.none() | st.integers(0, 10**7),
    numbers=st.lists(st.floats(-100, 100), min_size=5, max_size=5),
)
@examples(80)
def test_the_row_says_where_the_region_is_at_any_later_time(
    since: int, delay: int, later: int, duration: int | None, numbers: list[float]
) -> None:
    x, y, vx, vy, gx = numbers
    region = Moving(disc(x, y, 50.0), (vx, vy, 0.0), (gx, 0.0, 0.0), duration, since)
    sink = MemoryTrace()
    recorder = Recorder(sink)
    recorder.interest(since + delay, Subscription(1, 2, region))
    recorder.close()
    [row] = sink.table("interests").to_pylist()
    # The design's own words: centre(p) = c + v · ((min(p, until) − t) / 1e6).
    p = since + delay + later
    seconds = (min(p, p if row["until"] is None else row["until"]) - row["t"]) / 1e6
    place = region.at(p)
    assert row["x"] + row["vx"] * seconds == pytest.approx(place.x, abs=1e-6)
    assert row["y"] + row["vy"] * seconds == pytest.approx(place.y, abs=1e-6)
    assert max(0.0, row["rx"] + row["gx"] * seconds) == pytest.approx(place.rx, abs=1e-6)


@pytest.mark.parametrize("limit", [1, 1000])
def test_of_two_rows_of_one_subscription_at_one_instant_the_last_is_written(limit: int) -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, limit=limit)
    recorder.interest(5, Subscription(1, 2, Moving(point(0, 0))))
    recorder.interest(6, Subscription(1, 2, Moving(point(1, 0))))
    recorder.interest(6, Subscription(3, 2, Moving(point(2, 0))))
    recorder.sent(6, 2, 3, "move", 10, None, None, False)
    recorder.interest(6, Subscription(1, 2, Moving(point(3, 0))))
    recorder.ended(7, 2, 1)
    recorder.close()
    written = [(r["t"], r["subscription"], r["x"]) for r in sink.table("interests").to_pylist()]
    assert sorted(written) == [(5, 1, 0.0), (6, 1, 3.0), (6, 3, 2.0), (7, 1, 0.0)]
    assert recorder.counts["interests"] == 4


def test_a_region_that_begins_later_is_refused(recorded: Recorded) -> None:
    region = line(point(0, 0), (1.0, 0.0, 0.0), 1.0).stamped(10)
    with pytest.raises(AssertionError):
        recorded.recorder.interest(9, Subscription(1, 2, region))


# Messages.

identifiers = st.integers(0, LAST_ID)
times = st.integers(0, LATE)


@given(
    to=st.lists(identifiers, max_size=30),
    publication=st.none() | identifiers,
    arrived=st.none() | times | st.lists(times, min_size=30, max_size=30),
    as_arrays=st.booleans(),
    limit=st.sampled_from([1, 10, 1000]),
)
@examples(80)
def test_sent_many_is_a_loop_of_sent(
    to: list[int],
    publication: int | None,
    arrived: int | list[int] | None,
    as_arrays: bool,
    limit: int,
) -> None:
    arrivals = arrived[: len(to)] if isinstance(arrived, list) else [arrived] * len(to)
    block, loop = MemoryTrace(), MemoryTrace()
    many, one = Recorder(block, limit=limit), Recorder(loop, limit=limit)
    several: Any = arrivals if isinstance(arrived, list) else arrived
    if as_arrays:
        several = np.array(several, np.int64) if isinstance(arrived, list) else several
    many.sent(1, 2, 3, "first", 4, None, None, True)
    many.sent_many(5, 6, np.array(to, np.int64) if as_arrays else to, "k", 7, publication, several)
    one.sent(1, 2, 3, "first", 4, None, None, True)
    for target, arrival in zip(to, arrivals, strict=True):
        one.sent(5, 6, target, "k", 7, publication, arrival, False)
    many.close()
    one.close()
    assert block.table("messages").equals(loop.table("messages"))
    assert block.table("messages").num_rows == len(to) + 1


# Flushing.


def test_rows_are_handed_over_before_more_than_the_limit_are_held() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, limit=50)
    acts: list[tuple[str, Callable[[int], None]]] = [
        ("positions", lambda t: recorder.position(t, 1, 0.0, 0.0, 0.0)),
        ("views", lambda t: recorder.view(t, 1, 2, 0.0, 0.0, 0.0)),
        ("notes", lambda t: recorder.note(t, 1, "fact")),
        ("messages", lambda t: recorder.sent(t, 1, 2, "k", 1, None, None, False)),
        ("messages", lambda t: recorder.sent_many(t, 1, range(7), "k", 1, None, None)),
        ("deliveries", lambda t: recorder.delivered(t, 1, 2, [3, 4, 5], 1)),
        ("publications", lambda t: recorder.published(Publication(t, 1, t, point(0, 0)))),
        ("interests", lambda t: recorder.interest(t, Subscription(t, 1, Moving(point(0, 0))))),
        ("interests", lambda t: recorder.ended(t, 1, t)),
    ]
    for number, (table, act) in enumerate(acts):
        before = recorder.counts[table]
        for t in range(1000 * number, 1000 * number + 120):
            act(t)
            assert rows_held(recorder) <= 50
        assert recorder.counts[table] == sink.table(table).num_rows >= before + 100 - 50


def test_what_is_recorded_does_not_depend_on_the_limit() -> None:
    digests = set()
    for limit in (1, 3, 1000):
        sink = MemoryTrace()
        recorder = Recorder(sink, limit=limit)
        record_extremes(recorder)
        recorder.close()
        digests.add(digest(sink))
    assert len(digests) == 1


def test_texts_are_forgotten_once_they_are_written() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink)
    for number, name in enumerate(["one", "two", "one", "three"]):
        recorder.published(Publication(number, 1, number, point(0, 0), name, {"n": name}))
        recorder.note(number, 1, name)
        recorder.sent(number, 1, 2, name, 3, None, None, False)
        recorder.flush()
    for table, column in (("publications", "channel"), ("notes", "fact"), ("messages", "kind")):
        assert sink.table(table).column(column).to_pylist() == ["one", "two", "one", "three"]
    attributes = sink.table("publications").column("attributes").to_pylist()
    assert attributes == ['{"n":"one"}', '{"n":"two"}', '{"n":"one"}', '{"n":"three"}']
    assert not any(recorder._rows["publications"].texts.values())


def test_the_level_none_keeps_nothing() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, "none", limit=1)
    record_extremes(recorder)
    recorder.sent_many(0, 0, list(range(20)), "k", 0, None, None)
    assert rows_held(recorder) == 0
    recorder.close()
    assert all(sink.table(name).equals(pa.table(TABLES[name].empty_table())) for name in TABLES)


def test_an_unknown_level_and_an_impossible_sample_are_refused() -> None:
    unknown: Any = "some"
    with pytest.raises(ValueError, match="all, sampled, sums, brief, none"):
        Recorder(MemoryTrace(), unknown)
    with pytest.raises(ValueError, match="one in 0"):
        Recorder(MemoryTrace(), "sampled", one_in=0)
