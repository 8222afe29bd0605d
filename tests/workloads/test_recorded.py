"""Replaying movement from files, good and bad."""

import random
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Command, Move, Publish, Subscribe
from nearcast.space.motion import SECOND, STILL, Moving
from nearcast.space.shapes import ball, disc, point
from nearcast.workloads import fixes
from nearcast.workloads.recorded import Parameters, Recorded, make
from nearcast.workloads.workload import Scheduled, first_id
from support.examples import examples

WALK = {
    "t": [0.0, 1.0, 2.0, 2.0, 4.0, 6.0],
    "entity": ["ann", "ann", "bob", "ann", "ann", "bob"],
    "x": [0.0, 10.0, 50.0, 10.0, 30.0, 100.0],
    "y": [0.0, 0.0, 50.0, 0.0, 40.0, 50.0],
}
S = SECOND


def parquet(folder: Path, columns: dict[str, Any]) -> str:
    file = folder / "walk.parquet"
    pq.write_table(pa.table(columns), file)
    return str(file)


def text(folder: Path, words: str | bytes, name: str = "walk.csv") -> str:
    file = folder / name
    file.write_bytes(words if isinstance(words, bytes) else words.encode())
    return str(file)


def rows(columns: dict[str, list[Any]]) -> str:
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def opened(file: str, entities: int = 0, **chosen: Any) -> Recorded:
    workload = make(Parameters(file=file, **chosen), entities, 60.0, 1)
    assert isinstance(workload, Recorded)
    return workload


def lived(workload: Recorded, entity: int, begins: int = 0, stay: int = 0) -> list[Scheduled]:
    return list(workload.life(entity, stay, begins).commands())


def published(commands: list[Scheduled]) -> list[tuple[int, float, float]]:
    return [(t, c.shape.x, c.shape.y) for t, c in commands if isinstance(c, Publish)]


def test_steps_move_the_disc_to_each_fix_and_publish_there(tmp_path: Path) -> None:
    workload = opened(parquet(tmp_path, WALK), radius=7.0, payload=3)
    assert workload.entities == 2

    def publish_at(number: int, x: float, y: float) -> Command:
        return Publish(number, point(x, y), payload=bytes(3))

    def stands(x: float, y: float) -> Moving:
        return Moving(disc(x, y, 7.0))

    assert lived(workload, 0) == [
        (0, Subscribe(0, stands(0, 0))),
        (0, publish_at(1, 0, 0)),
        (1 * S, Move(0, stands(10, 0))),
        (1 * S, publish_at(2, 10, 0)),
        (2 * S, Move(0, stands(10, 0))),
        (2 * S, publish_at(3, 10, 0)),
        (4 * S, Move(0, stands(30, 40))),
        (4 * S, publish_at(4, 30, 40)),
    ]
    first = first_id(1, 2)
    assert lived(workload, 1, stay=2) == [
        (2 * S, Subscribe(first, stands(50, 50))),
        (2 * S, publish_at(first + 1, 50, 50)),
        (6 * S, Move(first, stands(100, 50))),
        (6 * S, publish_at(first + 2, 100, 50)),
    ]


def test_lines_move_from_fix_to_fix_and_rest_where_nothing_moves(tmp_path: Path) -> None:
    workload = opened(parquet(tmp_path, WALK), radius=7.0, motion="line")
    interests = [(t, c) for t, c in lived(workload, 0) if not isinstance(c, Publish)]
    assert interests == [
        (0, Subscribe(0, Moving(disc(0, 0, 7.0), (10.0, 0.0, 0.0), STILL, S))),
        (2 * S, Move(0, Moving(disc(10, 0, 7.0), (10.0, 20.0, 0.0), STILL, 2 * S))),
    ]
    assert len(published(lived(workload, 0))) == 4


def test_between_fixes_an_entity_moves_straight(tmp_path: Path) -> None:
    life = opened(parquet(tmp_path, WALK)).life(0, 0, 0)
    assert life.position(0) == (0, 0, 0)
    assert life.position(S // 2) == (5, 0, 0)
    assert life.position(3 * S // 2) == (10, 0, 0)
    assert life.position(3 * S) == pytest.approx((20, 20, 0))
    assert life.position(9 * S) == pytest.approx((30, 40, 0))
    bob = opened(parquet(tmp_path, WALK)).life(1, 0, 0)
    assert bob.position(0) == (50, 50, 0)


@pytest.mark.parametrize("motion", ["steps", "line"])
def test_an_entity_that_joins_between_two_fixes_appears_where_the_recording_has_it(
    tmp_path: Path, motion: str
) -> None:
    workload = opened(parquet(tmp_path, WALK), motion=motion)
    (t, subscribe), *rest = lived(workload, 0, begins=3 * S)
    assert t == 3 * S
    assert isinstance(subscribe, Subscribe)
    here = subscribe.region.stamped(t).at(t)
    assert (here.x, here.y) == pytest.approx((20, 20))
    assert published(rest) == [(4 * S, 30, 40)]
    arrived = subscribe.region.stamped(t).at(4 * S)
    assert (arrived.x, arrived.y) == pytest.approx((30, 40) if motion == "line" else (20, 20))


def test_an_entity_that_joins_at_a_fix_publishes_it_and_after_the_last_nothing(
    tmp_path: Path,
) -> None:
    workload = opened(parquet(tmp_path, WALK))
    (t, subscribe), *rest = lived(workload, 0, begins=1 * S)
    assert t == 1 * S
    assert isinstance(subscribe, Subscribe)
    assert rest[0] == (1 * S, Publish(1, point(10, 0), payload=bytes(64)))
    ((t, subscribe),) = lived(workload, 0, begins=5 * S)
    assert t == 5 * S
    assert isinstance(subscribe, Subscribe)
    assert (subscribe.region.shape.x, subscribe.region.shape.y) == pytest.approx((30, 40))


def test_csv_and_parquet_of_the_same_fixes_are_the_same_workload(tmp_path: Path) -> None:
    flat, csv = opened(parquet(tmp_path, WALK)), opened(text(tmp_path, rows(WALK)))
    shuffled = {"note": ["a b"] * 6, **dict(sorted(WALK.items(), reverse=True))}
    mixed = opened(text(tmp_path, rows(shuffled), "mixed.CSV"))
    for other in (csv, mixed):
        assert other.world == flat.world == ((0, 0, 0), (100, 50, 0))
        assert [lived(other, e) for e in (0, 1)] == [lived(flat, e) for e in (0, 1)]


def test_a_third_coordinate_makes_balls(tmp_path: Path) -> None:
    columns = {**WALK, "z": [1, 2, 3, 4, 5, 6]}
    workload = opened(parquet(tmp_path, columns), radius=2.0)
    assert workload.world == ((0, 0, 1), (100, 50, 6))
    commands = lived(workload, 0)
    assert commands[0] == (0, Subscribe(0, Moving(ball(0, 0, 1, 2.0))))
    assert commands[1] == (0, Publish(1, point(0, 0, 1), payload=bytes(64)))


@pytest.mark.parametrize(("names", "ordered"), [
    ([10, 9, 200], [9, 10, 200]),
    (["10", "9", "200"], ["9", "10", "200"]),
    (["10", "b", "200"], ["10", "200", "b"]),
    (["7", "007", "1"], ["1", "007", "7"]),
])  # fmt: skip
def test_entities_are_numbered_by_their_sorted_names(
    tmp_path: Path, names: list[Any], ordered: list[Any]
) -> None:
    columns = {"t": [0, 0, 0], "entity": names, "x": [0, 1, 2], "y": [0, 0, 0]}
    kinds = {parquet(tmp_path, columns), text(tmp_path, rows(columns))}
    encoded = {**columns, "entity": pa.array(names).dictionary_encode()}
    (tmp_path / "encoded").mkdir()
    kinds.add(parquet(tmp_path / "encoded", encoded))
    for file in sorted(kinds):
        workload = opened(file)
        places = [workload.life(e, 0, 0).position(0)[0] for e in range(3)]
        assert [names[int(x)] for x in places] == ordered


def test_the_first_to_appear_are_taken_and_the_rest_wait_for_churn(tmp_path: Path) -> None:
    columns = {
        "t": [5, 1, 3, 0, 9], "entity": [1, 2, 3, 4, 4], "x": [1, 2, 3, 4, 5], "y": [0] * 5,
    }  # fmt: skip
    workload = opened(parquet(tmp_path, columns), entities=2)
    assert workload.entities == 2
    places = [workload.life(e, 0, 0).position(0)[0] for e in range(4)]
    assert places == [2, 4, 1, 3]
    with pytest.raises(ValueError, match="holds 4 entities; there is no recording for one more"):
        workload.life(4, 0, 0)
    with pytest.raises(ValueError, match="holds 4 entities; 5 were asked for"):
        opened(workload.parameters.file, entities=5)


def test_time_begins_at_the_first_fix_and_may_run_faster(tmp_path: Path) -> None:
    late = {**WALK, "t": [1.7e9 + t for t in WALK["t"]]}
    assert lived(opened(parquet(tmp_path, late)), 0) == lived(opened(parquet(tmp_path, WALK)), 0)
    quick = lived(opened(parquet(tmp_path, WALK), faster=8.0), 1)
    assert [t for t, _ in quick] == [S // 4, S // 4, 3 * S // 4, 3 * S // 4]


def test_of_two_fixes_at_the_same_microsecond_the_last_in_the_file_counts(tmp_path: Path) -> None:
    columns = {
        "t": [1.0000001, 0, 1.0000003, 1.0000002, 1.000001], "entity": [1] * 5,
        "x": [1, 0, 2, 3, 4], "y": [0] * 5,
    }  # fmt: skip
    found = published(lived(opened(parquet(tmp_path, columns)), 0))
    assert found == [(0, 0, 0), (S, 3, 0), (S + 1, 4, 0)]


def test_the_radius_is_a_hundredth_of_the_longest_side_unless_set(tmp_path: Path) -> None:
    assert opened(parquet(tmp_path, WALK)).radius == pytest.approx(1.0)
    assert opened(parquet(tmp_path, WALK), radius=3.0).radius == 3.0


@examples(30)
@given(
    drawn=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(-9, 9)), min_size=1)
)
def test_every_fix_is_published_once_in_order_of_time(
    drawn: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    columns = {
        "t": [t / 10 for t, _, _ in drawn],
        "entity": [entity for _, entity, _ in drawn],
        "x": [float(x) for _, _, x in drawn],
        "y": [0.0] * len(drawn),
    }
    workload = opened(parquet(tmp_path_factory.mktemp("drawn"), columns))
    begin = min(t for t, _, _ in drawn)
    last = {(entity, (t - begin) * S // 10): x for t, entity, x in drawn}  # a later one replaces
    for number, entity in enumerate(sorted({entity for _, entity, _ in drawn})):
        expected = sorted((t, float(x), 0.0) for (who, t), x in last.items() if who == entity)
        assert published(lived(workload, number)) == expected


def test_long_recordings_are_read_in_blocks_without_a_seam(tmp_path: Path) -> None:
    many = 2 * fixes.BLOCK + 5
    columns = {
        "t": [t / 100 for t in range(many)], "entity": ["a"] * many,
        "x": [float(x) for x in range(many)], "y": [0.0] * many,
    }  # fmt: skip
    found = published(lived(opened(parquet(tmp_path, columns)), 0))
    assert found == [(t * S // 100, float(t), 0.0) for t in range(many)]


GOOD = "t,entity,x,y\n0,a,1,2\n1,a,2,3\n"
BAD_TEXTS = [
    ("", "is not a readable CSV file"),
    ("t,entity,x,y\n", "holds no fixes"),
    ("t,x,y\n0,1,2\n", "lacks entity among its columns"),
    ("a,b\n0,1\n", "lacks t, entity, x, y among its columns"),
    ("t,entity,x,y,x\n0,a,1,2,3\n", "more than one column x"),
    (GOOD + "2,a,north,3\n", "has x = 'north' in row 3, not a number"),
    (GOOD + "\n2,a,north,3\n", "has x = 'north' in row 3, not a number"),
    (GOOD + "2,a,,3\n3,a,north,3\n", "has x = '' in row 3, not a number"),
    (GOOD + "2,a,,3\n", "has x = nan in row 3, not a usable number"),
    (GOOD + "\n2,a,1,inf\n3,a,nan,1\n", "has y = inf in row 3, not a usable number"),
    (GOOD + "nan,a,1,3\n", "has t = nan in row 3"),
    (GOOD + "2,,1,3\n", "has no entity in row 3"),
    (GOOD + "2,a,1\n", "has 3 cells in row 3 and 4 in its header"),
    (GOOD + "2,a,1,1e16\n", "has y = 1e\\+16 in row 3"),
    (GOOD + "1e14,a,1,1\n", "is t in seconds"),
    (b"t,entity,x,y\n0,\xff\xfe,1,2\n", "is not a readable CSV file"),
    (random.Random(1).randbytes(2000), "walk.csv "),
    (b"\0" * 300_000, "walk.csv "),
]


@pytest.mark.parametrize(("words", "complaint"), BAD_TEXTS)
def test_a_bad_csv_file_is_refused_in_one_sentence(
    tmp_path: Path, words: str | bytes, complaint: str
) -> None:
    file = text(tmp_path, words)
    with pytest.raises(ValueError, match=complaint) as refused:
        opened(file)
    assert str(refused.value).startswith(file)
    assert "\n" not in str(refused.value)


BAD_COLUMNS = [
    ({"x": [0.0, nan, 0.0, inf, 0.0, 0.0]}, "has x = nan in row 2, not a usable number"),
    ({"y": [0.0, 0.0, None, 0.0, 0.0, 0.0]}, "has y = nan in row 3, not a usable number"),
    ({"t": [0.0, 1.0, -inf, 3.0, 4.0, 5.0]}, "has t = -inf in row 3, not a usable number"),
    ({"z": [0.0, 1.0, 2.0, 3.0, nan, 5.0]}, "has z = nan in row 5, not a usable number"),
    ({"x": ["a"] * 6}, "must have numbers in its column x, not string"),
    ({"entity": [1.5] * 6}, "must have integers or strings in its column entity, not double"),
    ({"entity": ["a", "b", None, "c", "d", None]}, "has no entity in row 3"),
]


@pytest.mark.parametrize(("columns", "complaint"), BAD_COLUMNS)
def test_bad_values_in_a_parquet_file_are_refused_with_their_row(
    tmp_path: Path, columns: dict[str, list[Any]], complaint: str
) -> None:
    file = parquet(tmp_path, {**WALK, **columns})
    with pytest.raises(ValueError, match=complaint) as refused:
        opened(file)
    assert str(refused.value).startswith(file)


def test_files_that_are_no_parquet_are_refused(tmp_path: Path) -> None:
    whole = Path(parquet(tmp_path, WALK)).read_bytes()
    for words in (b"", b"garbage", whole[:-20], whole[: len(whole) // 2], b"PAR1" + whole[40:]):
        file = text(tmp_path, words, "bad.parquet")
        with pytest.raises(ValueError, match=r"bad\.parquet is not a readable Parquet file"):
            opened(file)
    with pytest.raises(ValueError, match="lacks x, y among its columns"):
        opened(parquet(tmp_path, {"t": [0.0], "entity": [1]}))
    with pytest.raises(ValueError, match="holds no fixes"):
        opened(parquet(tmp_path, {name: pa.array([], pa.float64()) for name in WALK}))


@pytest.mark.parametrize("name", ["none.parquet", "none.csv"])
def test_a_missing_file_is_refused_with_the_message_of_the_system(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        opened(str(tmp_path / name))
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        opened(str(tmp_path))


def test_more_fixes_than_identifiers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixes, "NUMBERS", 5)
    with pytest.raises(ValueError, match="one entity has more than the 3 fixes"):
        opened(parquet(tmp_path, WALK))
