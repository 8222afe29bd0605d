"""The rows of the interest log describe at every moment what everybody wants."""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Unsubscribe
from nearcast.model.predicates import parse
from nearcast.model.subscription import Filter, Formula, Region, Subscription
from nearcast.space.motion import SECOND, Moving, Path, path
from nearcast.space.outlines import outline_from_text
from nearcast.space.shapes import Shape, ShapeKind, box, disc, point
from nearcast.trace.interest_log import InterestLog
from nearcast.trace.recorder import Recorder
from nearcast.trace.schema import SHAPES
from nearcast.trace.sinks import MemoryTrace
from support.examples import examples
from support.strategies import CHANNELS, FILTERS, regions

Row = dict[str, Any]


class Clock:
    """A host that does nothing but keep a ledger and call back when it was asked to."""

    def __init__(self) -> None:
        self.now = 0
        self.sink = MemoryTrace()
        self.recorder = Recorder(self.sink)
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._ages = count()
        self.log = InterestLog(self.recorder, self.at)

    def at(self, t: int, act: Callable[[], None]) -> None:
        assert t >= self.now
        heappush(self._plans, (t, next(self._ages), act))

    def run(self, until: int) -> None:
        while self._plans and self._plans[0][0] <= until:
            self.now, _, act = heappop(self._plans)
            act()
        self.now = until

    def obey(self, t: int, node: int, command: Any) -> None:
        self.run(t)
        self.log.obey(t, node, command)

    def rows(self) -> list[Row]:
        self.run(10**12)
        self.recorder.close()
        found: list[Row] = self.sink.table("interests").to_pylist()
        return found


def keys_of(rows: list[Row]) -> list[tuple[int, int, int, bool]]:
    return [(r["t"], r["node"], r["subscription"], r["ended"]) for r in rows]


STANDING = Moving(disc(3, 4, 5))


def test_subscribing_moving_and_unsubscribing_leave_a_row_each() -> None:
    clock = Clock()
    wanted = Subscribe(70, STANDING, Filter("weight > 3"), "chat", True)
    clock.obey(10, 1, wanted)
    clock.obey(20, 1, Move(70, Moving(box(7, 8, 1, 2), (1.0, 0.0, 0.0), duration=50)))
    clock.obey(30, 1, Unsubscribe(70))
    first, second, last = clock.rows()
    assert keys_of([first, second, last]) == [
        (10, 1, 70, False),
        (20, 1, 70, False),
        (30, 1, 70, True),
    ]
    assert (first["shape"], first["x"], first["y"], first["rx"]) == ("disc", 3.0, 4.0, 5.0)
    assert (second["shape"], second["x"], second["rx"], second["ry"]) == ("box", 7.0, 1.0, 2.0)
    assert (second["vx"], second["until"]) == (1.0, 70)
    for row in (first, second):
        assert (row["channel"], row["filter"], row["echo"]) == ("chat", "weight > 3", True)


def test_publishing_leaves_no_row_of_interest() -> None:
    clock = Clock()
    clock.obey(10, 1, Publish(5, point(0, 0)))
    assert clock.rows() == []


@pytest.mark.parametrize("goes", ["leaves", "crashes"])
def test_leaving_and_crashing_end_all_interests_of_a_node_and_no_others(goes: str) -> None:
    clock = Clock()
    for node, subscription in [(1, 70), (2, 80), (1, 71), (1, 72)]:
        clock.obey(10, node, Subscribe(subscription, STANDING))
    clock.obey(15, 1, Unsubscribe(72))
    if goes == "leaves":
        clock.obey(20, 1, Leave())
    clock.log.gone(20, 1)  # after a farewell, the host forgets the node as well
    clock.log.gone(20, 9)  # who wanted nothing ends nothing
    ended = [row for row in keys_of(clock.rows()) if row[3]]
    assert ended == [(15, 1, 72, True), (20, 1, 70, True), (20, 1, 71, True)]


def test_an_entity_that_returns_may_subscribe_again() -> None:
    clock = Clock()
    clock.obey(10, 1, Subscribe(70, STANDING))
    clock.log.gone(20, 1)
    clock.obey(30, 1, Subscribe(71, STANDING))
    clock.obey(40, 1, Leave())
    assert keys_of(clock.rows()) == [
        (10, 1, 70, False),
        (20, 1, 70, True),
        (30, 1, 71, False),
        (40, 1, 71, True),
    ]


# Paths: legs of 1, 2 and 3 seconds.

WALK = path(disc(0, 0, 1), [(1.0, 0.0, 0.0), (1.0, 2.0, 0.0), (4.0, 2.0, 0.0)], 1.0)
START = 5 * SECOND
LEGS = [START, START + SECOND, START + 3 * SECOND]


def test_each_leg_of_a_path_is_a_row_when_it_begins() -> None:
    clock = Clock()
    clock.obey(START, 1, Subscribe(70, WALK, None, "chat"))
    rows = clock.rows()
    assert [r["t"] for r in rows] == LEGS
    assert [(r["x"], r["y"]) for r in rows] == [(0.0, 0.0), (1.0, 0.0), (1.0, 2.0)]
    assert [(r["vx"], r["vy"]) for r in rows] == [(1.0, 0.0), (0.0, 1.0), (1.0, 0.0)]
    assert [r["until"] for r in rows] == [*LEGS[1:], START + 6 * SECOND]
    assert {r["channel"] for r in rows} == {"chat"}


def test_no_leg_is_written_before_its_time() -> None:
    clock = Clock()
    clock.obey(START, 1, Subscribe(70, WALK))
    clock.run(LEGS[1] - 1)
    clock.recorder.close()
    assert [r["t"] for r in clock.sink.table("interests").to_pylist()] == LEGS[:1]


def test_a_leg_that_begins_after_a_pause_is_written_when_it_begins() -> None:
    first, second = WALK.legs[:2]
    clock = Clock()
    clock.obey(START, 1, Subscribe(70, Path((first, second.stamped(8 * SECOND)))))
    assert [(r["t"], r["until"]) for r in clock.rows()] == [
        (START, START + SECOND),
        (START + 8 * SECOND, START + 10 * SECOND),
    ]


CHANGES: dict[str, Callable[[Clock, int], None]] = {
    "moved": lambda clock, t: clock.obey(t, 1, Move(70, STANDING)),
    "subscribed anew": lambda clock, t: clock.obey(t, 1, Subscribe(70, STANDING)),
    "unsubscribed": lambda clock, t: clock.obey(t, 1, Unsubscribe(70)),
    "left": lambda clock, t: clock.obey(t, 1, Leave()),
    "crashed": lambda clock, t: clock.log.gone(t, 1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("after", [1, SECOND - 1, SECOND, SECOND + 1, 3 * SECOND, 4 * SECOND])
@pytest.mark.parametrize("first", [True, False])
def test_a_path_that_was_replaced_or_ended_writes_no_further_leg(
    change: str, after: int, first: bool
) -> None:
    """At equal moments, whether the leg or the change came first in the host makes no odds."""
    clock = Clock()
    when = START + after
    if first:
        clock.at(when, partial(CHANGES[change], clock, when))
        clock.obey(START, 1, Subscribe(70, WALK))
    else:
        clock.obey(START, 1, Subscribe(70, WALK))
        clock.run(when)
        CHANGES[change](clock, when)
    still = change in ("moved", "subscribed anew")
    before = [(t, 1, 70, False) for t in LEGS if t < when]
    assert keys_of(clock.rows()) == [*before, (when, 1, 70, not still)]


def test_an_equal_path_submitted_again_has_legs_of_its_own_and_no_others() -> None:
    clock = Clock()
    clock.obey(START, 1, Subscribe(70, WALK))
    half = START + SECOND // 2
    clock.obey(half, 1, Move(70, WALK))
    assert [r["t"] for r in clock.rows()] == [START, half, half + SECOND, half + 3 * SECOND]


def test_a_path_that_was_ended_does_not_come_alive_with_a_later_subscription() -> None:
    clock = Clock()
    clock.obey(START, 1, Subscribe(70, WALK))
    clock.obey(START + 1, 1, Unsubscribe(70))
    clock.obey(START + 2, 1, Subscribe(70, STANDING))
    assert [r["t"] for r in clock.rows()] == [START, START + 1, START + 2]


@pytest.mark.parametrize("command", [Move(70, STANDING), Unsubscribe(70)])
def test_a_command_about_nothing_leaves_no_row(command: Command) -> None:
    clock = Clock()
    clock.obey(START, 1, command)
    clock.obey(START + 1, 2, Subscribe(70, STANDING))
    clock.obey(START + 2, 1, command)  # it is another's
    clock.obey(START + 3, 2, Unsubscribe(70))
    clock.obey(START + 4, 2, command)
    rows = [(r["t"], r["node"], r["ended"]) for r in clock.rows()]
    assert rows == [(START + 1, 2, False), (START + 3, 2, True)]


# The design's formula, against the subscription itself.


def shape_at(row: Row, p: int) -> Shape:
    """design.md: centre(p) = c + v · ((min(p, until) − t) / 1e6), half-extents never below 0."""
    end = p if row["until"] is None else min(p, row["until"])
    seconds = (end - row["t"]) / 1e6
    centre = [row[axis] + row["v" + axis] * seconds for axis in "xyz"]
    extents = [max(0.0, row["r" + axis] + row["g" + axis] * seconds) for axis in "xyz"]
    outline = None if row["outline"] is None else outline_from_text(row["outline"])
    return Shape(ShapeKind(SHAPES.index(row["shape"])), *centre, *extents, outline)


def describes(row: Row, wanted: Subscription, p: int) -> bool:
    """Does the row describe the subscription as it is at the moment `p`?"""
    condition = wanted.filter
    since = None
    if condition is not None and parse(condition.text).evolves:
        since = condition.since
    if isinstance(wanted.region, Formula):
        since = wanted.region.since
        same_region = row["formula"] == wanted.region.text
    else:
        same_region = row["formula"] is None and shape_at(row, p) == wanted.region.at(p)
    return bool(
        same_region
        and row["since"] == since
        and row["filter"] == (None if condition is None else condition.text)
        and (row["node"], row["channel"], row["echo"]) == (wanted.node, wanted.channel, wanted.echo)
    )


ACTS = st.tuples(
    st.integers(0, 4 * SECOND) | st.just(0),  # until the next one
    st.sampled_from(["subscribe", "move", "move", "unsubscribe", "gone"]),
    st.integers(0, 3),  # the subscription; two of them belong to each node
    regions(3),
    st.none() | st.sampled_from(FILTERS).map(Filter),
    CHANNELS,
)
MOMENTS = st.lists(st.integers(0, 40 * SECOND), min_size=5, max_size=5)


@examples(120)
@given(acts=st.lists(ACTS, min_size=1, max_size=10), moments=MOMENTS)
def test_the_rows_give_the_region_of_every_subscription_at_every_moment(
    acts: list[tuple[int, str, int, Region, Filter | None, str]], moments: list[int]
) -> None:
    clock = Clock()
    truth: list[tuple[int, dict[int, Subscription]]] = [(0, {})]
    now = 0
    for gap, act, subscription, region, condition, channel in acts:
        now += gap
        wanted = dict(truth[-1][1])
        node = subscription % 2
        if act == "gone":
            clock.run(now)
            clock.log.gone(now, node)
            wanted = {s: want for s, want in wanted.items() if want.node != node}
        elif act == "subscribe":
            command = Subscribe(subscription, region, condition, channel)
            clock.obey(now, node, command)
            wanted[subscription] = command.stamped(node, now)
        elif subscription not in wanted:
            continue
        elif act == "move":
            clock.obey(now, node, Move(subscription, region))
            wanted[subscription] = wanted[subscription].moved(region, now)
        else:
            clock.obey(now, node, Unsubscribe(subscription))
            del wanted[subscription]
        truth.append((now, wanted))
    rows = clock.rows()
    changes = [row["t"] for row in rows]
    for p in [*moments, *changes, *(t - 1 for t in changes if t)]:
        in_force: dict[int, Row] = {}
        for row in sorted(rows, key=lambda row: row["t"]):
            if row["t"] <= p:
                in_force[row["subscription"]] = row
        active = {s: row for s, row in in_force.items() if not row["ended"]}
        wanted = [state for t, state in truth if t <= p][-1]
        assert active.keys() == wanted.keys()
        assert all(describes(row, wanted[s], p) for s, row in active.items())
    assert len({(row["t"], row["subscription"]) for row in rows}) == len(rows)
