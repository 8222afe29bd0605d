"""Replaying traces: as recorded, with fewer entities, and with copies in a denser world."""

from math import dist
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.space.motion import SECOND as S
from nearcast.trace import reader
from nearcast.trace.schema import TABLES
from nearcast.workloads.replayed import Parameters, Replayed, clock_ahead, make
from nearcast.workloads.workload import NUMBERS, first_id
from support.brute_force import delivered, expected
from support.small_traces import interest, publication, write_trace

BASE = 1_700_000_000 * S  # a live trace has Unix time
LONG = 20


def around(t: int, subscription: int, **changes: Any) -> dict[str, Any]:
    return interest(t, subscription, shape="disc", ry=0.0, rz=0.0, **changes)


def everything() -> dict[str, list[dict[str, Any]]]:
    """Subscriptions of all kinds, and publications all over the place; times as in a live trace."""
    interests = [
        around(0, 1, node=10, x=0.0, y=0.0, rx=6.0, vx=1.0),
        around(9 * S, 1, node=10, x=9.0, y=0.0, rx=6.0, vx=-1.0, until=14 * S),
        interest(2 * S, 2, node=10, shape="box", x=5.0, y=5.0, rx=4.0, ry=1.0, gy=0.5),
        interest(12 * S, 2, node=10, ended=True),
        interest(0, 3, node=20, shape="box", formula="x >= t - 3, x <= t + 4", since=0,
                 rx=float("inf"), ry=float("inf"), rz=float("inf")),
        around(1 * S, 4, node=30, x=3.0, y=3.0, rx=9.0, filter="speed > 8 - t", since=1 * S),
        around(6 * S, 4, node=30, x=4.0, y=3.0, rx=9.0, filter="speed > 8 - t", since=1 * S),
        around(8 * S, 4, node=30, x=4.0, y=3.0, rx=9.0, channel="chat", echo=True),
    ]  # fmt: skip
    publications = []
    for number in range(120):
        t, node = number * S // 6 + 1, (10, 20, 30, 40)[number % 4]
        publications.append(
            publication(
                t, number, node=node, x=(number * 7) % 13 - 2.5, y=(number * 5) % 11 - 2.25,
                channel="chat" if number % 5 == 0 else "", attributes=f'{{"speed": {number % 9}}}',
                bytes=number % 50,
            )
        )  # fmt: skip
    for row in (*interests, *publications):
        row["t"] += BASE
        for clock in ("until", "since"):
            if row.get(clock) is not None:
                row[clock] += BASE
    return {"interests": interests, "publications": publications}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("replayed") / "live", everything())


def opened(trace: Path, entities: int = 0, seconds: float = 8.0, **chosen: Any) -> Replayed:
    workload = make(Parameters(trace=str(trace), **chosen), entities, seconds, 3)
    assert isinstance(workload, Replayed)
    return workload


def by_hand(workload: Replayed, trace: Path, seconds: float) -> tuple[pa.Table, pa.Table]:
    """The trace that a replay must leave, from the rows of the recording: each entity's are shifted
    in time and displaced. What began before the replay keeps its earlier time."""
    ends = round(seconds * S)
    nodes = sorted({r["node"] for name in TABLES for r in reader.read(trace, name).to_pylist()
                    if name in ("interests", "publications")})  # fmt: skip
    tables: dict[str, list[dict[str, Any]]] = {"interests": [], "publications": []}
    for entity in range(workload.entities):
        original, start, (dx, dy, _) = workload.role(entity)
        numbers: dict[int, int] = {}
        for name, rows in tables.items():
            mine = (r for r in reader.read(trace, name).to_pylist() if r["node"] == nodes[original])
            for count, row in enumerate(mine):
                shift = start
                there = {clock: row[clock] - shift for clock in ("t", "until", "since")
                         if row.get(clock) is not None}  # fmt: skip
                there |= {"node": entity, "x": row["x"] + dx, "y": row["y"] + dy}
                first = first_id(entity, 0)
                if name == "interests":
                    numbers.setdefault(row["subscription"], len(numbers))
                    there["subscription"] = first + numbers[row["subscription"]]
                else:
                    there["publication"] = first + NUMBERS // 2 + count
                    if not BASE <= there["t"] < BASE + ends:
                        continue
                rows.append({**row, **there})
    interests, publications = (pa.Table.from_pylist(tables[n], TABLES[n]) for n in tables)
    return interests, publications


@pytest.mark.parametrize(
    ("entities", "start_s", "displace"),
    [(4, 0.0, 0.0), (4, 5.5, 0.0), (3, 2.0, 0.0), (4, 12.0, 0.0), (9, 3.0, 0.5), (40, 0.0, 2.0)],
)
def test_a_replay_delivers_what_the_recording_would_by_brute_force(
    trace: Path, tmp_path: Path, entities: int, start_s: float, displace: float
) -> None:
    """Of formulas the replay does not displace the region, so it is left out of denser worlds."""
    seconds = 8.0
    if displace:
        rows = everything()
        rows["interests"] = [row for row in rows["interests"] if not row.get("formula")]
        trace = write_trace(tmp_path / "plain", rows)
    chosen = {"start_s": start_s, "displace": displace}
    scenario = Scenario(
        protocol="client-server", workload="replayed", nodes=entities, seconds=seconds, seed=3,
        settings={"trace": str(trace), "matcher": "scan", "latency_ms": 1.0, **chosen},
    )  # fmt: skip
    simulate(scenario, tmp_path / "again", check=True)
    got = delivered(reader.read(tmp_path / "again", "deliveries"))
    due = expected(*by_hand(opened(trace, entities, seconds, **chosen), trace, seconds))
    assert len(due) > 10
    assert sorted(got) == sorted(due)


def test_payloads_have_the_recorded_lengths_and_attributes_stay(
    trace: Path, tmp_path: Path
) -> None:
    scenario = Scenario(
        protocol="client-server", workload="replayed", nodes=4, seconds=20.0,
        settings={"trace": str(trace), "matcher": "scan"},
    )  # fmt: skip
    simulate(scenario, tmp_path / "again")
    both = [reader.read(path, "publications").to_pylist() for path in (trace, tmp_path / "again")]
    told = [sorted((r["x"], r["y"], r["bytes"], r["channel"]) for r in rows) for rows in both]
    assert told[0] == told[1]


def test_copies_follow_recorded_entities_at_other_times_and_places(trace: Path) -> None:
    workload = opened(trace, 400, seconds=8.0, displace=3.0)
    roles = [workload.role(entity) for entity in range(400)]
    assert [role[0] for role in roles] == [entity % 4 for entity in range(400)]
    assert [role[1:] for role in roles[:4]] == [(0, (0.0, 0.0, 0.0))] * 4
    spare = workload.recording.length - 8 * S
    assert all(0 <= start <= spare for _, start, _ in roles)
    assert len({start for _, start, _ in roles}) > 390
    assert max(dist(away, (0, 0, 0)) for _, _, away in roles) <= 3.0
    assert roles == [opened(trace, 400, seconds=8.0, displace=3.0).role(e) for e in range(400)]


def test_a_part_of_the_entities_is_chosen_by_the_seed(trace: Path) -> None:
    parameters = Parameters(trace=str(trace))
    made = [make(parameters, 2, 8.0, seed) for seed in range(30)]
    chosen = {tuple(each.taken) for each in made if isinstance(each, Replayed)}
    assert len(chosen) > 3
    assert all(len(set(taken)) == 2 for taken in chosen)


def test_an_entity_is_where_its_area_is_or_else_where_it_publishes(trace: Path) -> None:
    workload = opened(trace)
    assert workload.life(0, 0, 0).position(4 * S) == pytest.approx((4.0, 0.0, 0.5))
    assert workload.life(0, 0, 0).position(18 * S) == pytest.approx((4.0, 0.0, 0.5))
    published = [row for row in everything()["publications"] if row["node"] == 40]
    assert workload.life(3, 0, 0).position(0)[0] == published[0]["x"]
    assert workload.life(3, 0, 0).position(LONG * S)[0] == published[-1]["x"]


def test_the_clock_of_a_formula_can_be_ahead() -> None:
    assert clock_ahead("x >= t * 2, y < start", 3 * S // 2) == "x >= (t + 1.5) * 2, y < start"
    assert clock_ahead("x >= t", 0) == "x >= t"


def test_what_cannot_be_replayed_is_refused(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs its trace"):
        Parameters()
    with pytest.raises(ValueError, match="cannot begin at 99 s"):
        opened(trace, start_s=99.0)
    empty = write_trace(tmp_path / "empty", {})
    with pytest.raises(ValueError, match="neither subscriptions nor publications"):
        opened(empty)
