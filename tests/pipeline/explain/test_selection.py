"""Only rows that concern a question are read, and all of them, in whatever files they are."""

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nearcast.errors import TraceError
from nearcast.pipeline.explain import selection
from nearcast.pipeline.explain.selection import has_ways, select_interests, select_rows
from support.small_traces import Row, add_part, begin_trace, interest, message


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["subscription"], row["t"]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("in_order", [True, False])
def test_interests_in_force_and_before_are_found(seed: int, in_order: bool, tmp_path: Path) -> None:
    chance = Random(seed)
    trace = begin_trace(tmp_path / "trace")
    times = chance.sample(range(1000), 300)
    rows = [interest(t, chance.randrange(12)) for t in times]
    rows.sort(key=lambda row: row["t"] if in_order else chance.random())
    for number in range(3):
        add_part(trace, "interests", rows[number * 100 : (number + 1) * 100], number)
    low, high, before = 400, 500, 2
    history = defaultdict(list)
    for row in ordered(rows):
        history[row["subscription"]].append(row)
    for sought in (None, [3], [1, 2, 3, 99], []):
        due = []
        for subscription, versions in history.items():
            if sought is None or subscription in sought:
                due += [row for row in versions if row["t"] < low][-before:]
                due += [row for row in versions if low <= row["t"] <= high]
        found = select_interests(trace, sought, low, high, before)
        assert ordered(found.to_pylist()) == ordered(due)


def test_row_groups_that_cannot_have_a_row_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = begin_trace(tmp_path / "trace")
    rows = [message(t, publication=t // 10 if t % 2 else None) for t in range(500)]
    add_part(trace, "messages", rows, 0)  # ten row groups
    read: list[int] = []
    original = selection._read_group

    def counted(table: str, group: selection.TableGroup, *more: Any) -> Any:
        read.append(group.number)
        return original(table, group, *more)

    monkeypatch.setattr(selection, "_read_group", counted)
    found = select_rows(trace, "messages", {"publication": [12]}).to_pylist()
    assert found == [row for row in rows if row["publication"] == 12] != []
    assert read == [2]
    read.clear()
    assert select_rows(trace, "messages", {"node": [8]}, 120, 130).num_rows == 11
    assert read == [2]
    assert select_rows(trace, "messages", {"kind": ["publish"]}, 0, 9).num_rows == 10
    assert select_rows(trace, "messages", {"kind": ["other"]}).num_rows == 0


def test_invalid_rows_and_files_do_not_count(tmp_path: Path) -> None:
    trace = begin_trace(tmp_path / "trace")
    good, bad = message(5), message(6, arrived=1)
    part = add_part(trace, "messages", [good, bad], 0)
    assert select_rows(trace, "messages", {"publication": [1]}).to_pylist() == [good]
    (trace / "messages" / "part-00001.parquet").write_bytes(b"PAR1 and then nothing")
    assert select_rows(trace, "messages", {"publication": [1]}).to_pylist() == [good]
    groups = selection.table_groups(trace, "messages")
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(TraceError, match=r"^cannot read .*part-00000\.parquet: [^\n]*$"):
        select_rows(trace, "messages", {"publication": [1]}, groups=groups)


def test_sums_of_messages_are_no_ways(tmp_path: Path) -> None:
    trace = begin_trace(tmp_path / "trace")
    assert not has_ways(trace)
    add_part(trace, "messages", [message(5, publication=None, copies=3)], 0)
    assert not has_ways(trace)
    add_part(trace, "messages", [message(5)], 1)
    assert has_ways(trace)
