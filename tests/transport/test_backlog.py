"""What waits for a connection leaves by priority, and in order within one."""

import pytest

from nearcast.node import Priority
from nearcast.transport.backlog import LinkBacklog, WaitingPart

UPKEEP, PUBLICATION, BULK = Priority


def taken(backlog: LinkBacklog) -> list[bytes]:
    return [bytes(backlog.take().part) for _ in range(backlog.parts)]


def test_the_most_urgent_leaves_first_and_of_equals_the_oldest() -> None:
    backlog = LinkBacklog()
    for part, priority in ((b"1", BULK), (b"2", UPKEEP), (b"3", PUBLICATION), (b"4", UPKEEP)):
        backlog.put(WaitingPart(part, priority))
    assert (backlog.parts, backlog.bytes) == (4, 4)
    assert taken(backlog) == [b"2", b"4", b"3", b"1"]
    assert (backlog.parts, backlog.bytes) == (0, 0)
    with pytest.raises(IndexError):
        backlog.take()


def test_the_rest_of_a_part_is_the_next_of_its_priority() -> None:
    backlog = LinkBacklog()
    for part in (b"abc", b"de"):
        backlog.put(WaitingPart(part, BULK))
    one = backlog.take()
    backlog.put_back(WaitingPart(one.part[1:], BULK))
    backlog.put(WaitingPart(b"urgent", UPKEEP))
    assert taken(backlog) == [b"urgent", b"bc", b"de"]


def test_of_too_many_lossy_frames_the_oldest_of_the_least_urgent_are_dropped() -> None:
    backlog = LinkBacklog()
    for number in range(6):
        priority = UPKEEP if number < 2 else PUBLICATION
        backlog.put_lossy(WaitingPart(b"%d" % number, priority, lossy=True), most=4)
    backlog.put(WaitingPart(b"ordered", PUBLICATION))
    assert (backlog.lossy_bytes, backlog.bytes) == (4, 7)
    assert taken(backlog) == [b"0", b"1", b"ordered", b"4", b"5"]
    assert (backlog.parts, backlog.lossy_bytes) == (0, 0)
