"""Traces of several nodes as one: nothing is lost or doubled, and who was killed takes its own."""

import json
from pathlib import Path

import pytest

from nearcast.errors import TraceError
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.scenario import Scenario, to_json
from nearcast.space.motion import Moving
from nearcast.space.shapes import disc, point
from nearcast.trace.merge import merge
from nearcast.trace.reader import read
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder

SCENARIO = to_json(Scenario(protocol="live", workload="live", nodes=1, seconds=1.0))


class Node:
    """A node's trace in the making; `end` says that it was not killed."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, TraceFolder(path, SCENARIO)
        self.record = Recorder(self.folder)

    def note(self, t: int, entity: int, fact: str = "joined") -> None:
        self.record.note(t, entity, fact)

    def wants(self, t: int, entity: int, subscription: int, x: float = 0.0) -> None:
        region = Moving(disc(x, 0, 10), since=t)
        self.record.interest(t, Subscription(subscription, entity, region))

    def publish(self, t: int, entity: int, number: int) -> None:
        self.record.published(Publication(number, entity, t, point(1, 1)))

    def deliver(self, t: int, entity: int, number: int, subscription: int) -> None:
        self.record.delivered(t, entity, number, (subscription,), 2)

    def end(self, *, killed: bool = False) -> Path:
        self.record.close()
        if not killed:
            self.folder.finish({})
        return self.path


def pairs(trace: Path, table: str, *names: str) -> list[tuple[object, ...]]:
    rows = read(trace, table)
    return sorted(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def test_what_each_node_recorded_is_there_once(tmp_path: Path) -> None:
    one, two = Node(tmp_path / "one"), Node(tmp_path / "two")
    one.note(1, 11)
    one.wants(2, 11, 101)
    two.note(3, 22)
    two.wants(4, 22, 202)
    two.publish(5, 22, 900)
    one.deliver(6, 11, 900, 101)
    two.publish(7, 22, 901)
    summary = merge(one.end(), [two.end()], tmp_path / "all")
    assert (summary["nodes"], summary["killed"], summary["unrecorded"]) == (2, 0, 0)
    whole = tmp_path / "all"
    assert pairs(whole, "interests", "t", "subscription", "ended") == [
        (2, 101, False), (4, 202, False),
    ]  # fmt: skip
    assert pairs(whole, "publications", "publication", "node") == [(900, 22), (901, 22)]
    assert pairs(whole, "deliveries", "t", "publication", "subscription") == [(6, 900, 101)]
    assert json.loads((whole / "summary.json").read_text())["rows"]["deliveries"] == 1


def test_interests_end_with_a_crashed_node_unless_the_client_was_handed_over(
    tmp_path: Path,
) -> None:
    lives, dies = Node(tmp_path / "lives"), Node(tmp_path / "dies")
    for entity, subscription in ((11, 101), (12, 102)):
        dies.note(1, entity)
        dies.wants(2, entity, subscription)
    dies.note(10, 12, "departed")
    lives.note(11, 12, "arrived")
    lives.wants(20, 12, 102, x=5.0)
    lives.note(1, 13)
    lives.wants(3, 13, 103)
    lives.note(5, 13, "departed")  # to the node that died before it could say so
    dies.publish(30, 11, 900)
    lives.deliver(31, 12, 900, 102)
    lives.deliver(32, 12, 999, 102)  # of which the dead node has recorded nothing
    summary = merge(lives.end(), [dies.end(killed=True)], tmp_path / "all")
    assert (summary["killed"], summary["unrecorded"]) == (1, 1)
    ends = pairs(tmp_path / "all", "interests", "subscription", "t", "ended")
    assert [(subscription, t) for subscription, t, ended in ends if ended] == [(101, 31), (103, 31)]
    assert pairs(tmp_path / "all", "deliveries", "publication") == [(900,)]


def test_what_is_no_trace_of_a_node_is_refused(tmp_path: Path) -> None:
    whole = Node(tmp_path / "one")
    whole.note(1, 11)
    whole.wants(2, 11, 101)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError):
        merge(tmp_path / "empty", [whole.end()], tmp_path / "all")
