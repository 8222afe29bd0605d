"""Foreign movement becomes a trace: sound, complete, and with the places that the file has."""

import json
from collections import defaultdict
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import TraceError
from nearcast.pipeline.importers import ImportSummary, import_movement
from nearcast.scenario import Scenario, from_json
from nearcast.sim.run import simulate
from nearcast.trace.reader import NAMES_FILE, read
from nearcast.trace.validate import validate
from support.brute_force import expected
from support.examples import examples

S = 1_000_000
WALK = {
    "t": [5.0, 6.0, 7.5, 9.0, 5.25, 8.75, 7.0],
    "entity": ["bob", "bob", "bob", "bob", "ann", "ann", "zoe"],
    "x": [0.0, 10.0, 10.0, 40.0, 100.0, 100.0, 7.0],
    "y": [0.0, 0.0, 3.0, 3.0, 50.0, 15.0, 7.0],
}


def parquet(folder: Path, columns: dict[str, Any] | pa.Table, name: str = "walk.parquet") -> Path:
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def rows(trace: str, table: str) -> list[dict[str, Any]]:
    return read(trace, table).to_pylist()


def sound(done: ImportSummary) -> ImportSummary:
    report = validate(done.trace)
    assert report.problems == ()
    assert report.warnings == ()
    assert report.finished
    assert {name: table.rows for name, table in report.tables.items() if table.rows} == done.rows
    return done


def test_every_fix_is_an_interest_and_a_publication(tmp_path: Path) -> None:
    done = sound(import_movement(parquet(tmp_path, WALK), tmp_path / "trace", radius=7.0))
    assert json.loads((tmp_path / "trace" / NAMES_FILE).read_text()) == ["ann", "bob", "zoe"]
    fixes = sorted(
        (round((t - 5) * S), ["ann", "bob", "zoe"].index(who), x, y)
        for t, who, x, y in zip(*WALK.values(), strict=True)
    )
    interests, publications = rows(done.trace, "interests"), rows(done.trace, "publications")
    for found in (interests, publications):
        assert sorted((row["t"], row["node"], row["x"], row["y"]) for row in found) == fixes
    assert all((row["shape"], row["rx"], row["ry"]) == ("disc", 7.0, 0.0) for row in interests)
    assert all(row["vx"] == row["vy"] == 0 and row["until"] is None for row in interests)
    assert all(row["subscription"] == row["node"] for row in interests)
    assert [row["publication"] for row in publications] == list(range(len(fixes)))
    assert {row["shape"] for row in publications} == {"point"}


def test_the_scenario_names_what_was_imported(tmp_path: Path) -> None:
    file = parquet(tmp_path, WALK)
    done = import_movement(file, tmp_path / "trace", shape="box", motion="line", channel="c")
    assert done.radius == 1.0  # a hundredth of the longest side
    scenario = from_json((tmp_path / "trace" / "scenario.json").read_bytes())
    assert (scenario.protocol, scenario.workload) == ("imported", "walk.parquet")
    assert (scenario.nodes, scenario.seconds) == (3, 4.0)
    told = {"radius": 1.0, "shape": "box", "motion": "line", "channel": "c", "echo": False}
    assert scenario.settings.items() >= told.items()
    pq.write_table(pa.table(WALK | {"x": [1.0] * 7}), file)
    import_movement(file, tmp_path / "other", radius=1.0, shape="box", motion="line", channel="c")
    other = from_json((tmp_path / "other" / "scenario.json").read_bytes())
    assert other.run != scenario.run  # the same name and settings, but another file


def test_boxes_are_flat_in_a_flat_world_and_cubes_in_a_deep_one(tmp_path: Path) -> None:
    for name, z, rz in (("flat", 0.0, 0.0), ("deep", 2.0, 3.0)):
        file = parquet(tmp_path, WALK | {"z": [z] * 7}, name)
        done = sound(
            import_movement(file, tmp_path / f"{name}-trace", 3.0, "box", echo=True, channel="c")
        )
        extents = {(row["rx"], row["ry"], row["rz"]) for row in rows(done.trace, "interests")}
        assert extents == {(3.0, 3.0, rz)}
        assert all(row["echo"] and row["channel"] == "c" for row in rows(done.trace, "interests"))
        assert {(row["channel"], row["z"]) for row in rows(done.trace, "publications")} == {
            ("c", z)
        }


def test_on_a_line_the_area_arrives_with_the_next_fix(tmp_path: Path) -> None:
    done = sound(import_movement(parquet(tmp_path, WALK), tmp_path / "t", 7.0, motion="line"))
    lives = defaultdict(list)
    for row in rows(done.trace, "interests"):
        lives[row["node"]].append(row)
    for life in lives.values():
        for here, there in pairwise(life):
            assert here["until"] == there["t"]
            for axis in "xyz":
                moved = here[axis] + here[f"v{axis}"] * (there["t"] - here["t"]) / S
                assert isclose(moved, there[axis], abs_tol=1e-9)
        assert life[-1]["until"] is None
        assert life[-1]["vx"] == life[-1]["vy"] == life[-1]["vz"] == 0


def place(fixes: list[tuple[int, float]], t: float) -> float:
    return float(np.interp(t, [at for at, _ in fixes], [x for _, x in fixes]))


@examples(40)
@given(
    moments=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 8_000), st.floats(-1e3, 1e3)),
        min_size=1,
        max_size=12,
        unique_by=lambda fix: fix[:2],
    ),
    sample_s=st.sampled_from([0.001, 0.25, 1.0, 1.5, 100.0]),
)
def test_positions_lie_between_the_fixes_at_common_instants(
    moments: list[tuple[int, int, float]], sample_s: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("import")
    columns = {
        "t": [ms / 1000 for _, ms, _ in moments],
        "entity": [entity for entity, _, _ in moments],
        "x": [x for _, _, x in moments],
        "y": [0.0] * len(moments),
    }
    done = import_movement(parquet(folder, columns), folder / "trace", 1.0, sample_s=sample_s)
    assert done.sample_s == sample_s
    began, every = min(ms for _, ms, _ in moments), round(sample_s * S)
    names = json.loads((folder / "trace" / NAMES_FILE).read_text())
    assert names == sorted({entity for entity, _, _ in moments})
    wanted = []
    for node, entity in enumerate(names):
        fixes = sorted(((ms - began) * 1000, x) for who, ms, x in moments if who == entity)
        for k in range(-(-fixes[0][0] // every), -(-fixes[-1][0] // every) + 1):
            wanted.append((k * every, node, pytest.approx(place(fixes, k * every), abs=1e-6)))
    found = [(row["t"], row["node"], row["x"]) for row in rows(done.trace, "positions")]
    assert sorted(found) == sorted(wanted, key=lambda row: row[:2])


def test_a_long_recording_is_sampled_more_rarely_instead_of_exploding(tmp_path: Path) -> None:
    year = 365 * 86_400.0
    file = parquet(tmp_path, {"t": [0.0, year], "entity": [1, 1], "x": [0.0, 1.0], "y": [0.0, 0.0]})
    done = sound(import_movement(file, tmp_path / "trace"))
    assert done.sample_s == 32.0
    assert 500_000 < done.rows["positions"] <= 1_000_000
    told = json.loads((tmp_path / "trace" / "scenario.json").read_text())
    assert told["settings"]["sample_s"] == 32.0


def test_csv_and_parquet_of_the_same_rows_give_the_same_trace(tmp_path: Path) -> None:
    lines = [
        "entity,x,t,y",
        *(f"{e},{x},{t},{y}" for t, e, x, y in zip(*WALK.values(), strict=True)),
    ]
    (tmp_path / "walk.csv").write_text("\n".join(lines))
    one = sound(import_movement(tmp_path / "walk.csv", tmp_path / "one"))
    two = sound(import_movement(parquet(tmp_path, WALK), tmp_path / "two"))
    for table in ("interests", "publications", "positions"):
        assert rows(one.trace, table) == rows(two.trace, table)
    assert (tmp_path / "one" / NAMES_FILE).read_bytes() == (
        tmp_path / "two" / NAMES_FILE
    ).read_bytes()


@pytest.mark.parametrize("motion", ["steps", "line"])
def test_importing_means_the_same_as_replaying(tmp_path: Path, motion: str) -> None:
    """The same pairs should hear each other as when the file is simulated as `recorded`."""
    rng = np.random.default_rng(7)
    count, entities = 120, 6
    columns = {
        "t": np.round(rng.uniform(0, 8, count), 2),
        "entity": rng.integers(0, entities, count),
        "x": rng.uniform(0, 30, count),
        "y": rng.uniform(0, 30, count),
    }
    file = parquet(tmp_path, columns)
    done = sound(import_movement(file, tmp_path / "imported", 9.0, motion=motion))
    settings = {"file": str(file), "radius": 9.0, "motion": motion, "drain_s": 0.0}
    scenario = Scenario(
        protocol="client-server", workload="recorded", nodes=entities, seconds=9, settings=settings
    )
    simulate(scenario, tmp_path / "replayed")

    def deliveries_of(trace: Path) -> set[tuple[int, int, int]]:
        """By moment, publisher and subscriber: ids of publications and subscriptions may differ."""
        interests, publications = read(trace, "interests"), read(trace, "publications")
        subscriber = {row["subscription"]: row["node"] for row in interests.to_pylist()}
        published = {row["publication"]: row for row in publications.to_pylist()}
        begin = min(row["t"] for row in published.values())
        return {
            (published[p]["t"] - begin, published[p]["node"], subscriber[s])
            for p, s in expected(interests, publications)
        }

    assert len(deliveries_of(tmp_path / "imported")) > 50
    assert deliveries_of(Path(done.trace)) == deliveries_of(tmp_path / "replayed")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"radius": -1.0}, "radius must be between 0 and"),
        ({"radius": float("nan")}, "radius must be between 0 and"),
        ({"shape": "point"}, "shape must be one of disc, box, not 'point'"),
        ({"motion": "jumps"}, "motion must be one of steps, line, not 'jumps'"),
        ({"sample_s": 0.0}, "sample_s must be between"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        import_movement(parquet(tmp_path, WALK), tmp_path / "trace", **changes)
    assert not (tmp_path / "trace").exists()


def test_broken_files_and_taken_places_get_one_clear_sentence(tmp_path: Path) -> None:
    file = parquet(tmp_path, WALK)
    with pytest.raises(FileNotFoundError):
        import_movement(tmp_path / "nowhere.csv", tmp_path / "trace")
    (tmp_path / "bad.csv").write_text("t,entity,x,y\n0,a,left,1\n")
    with pytest.raises(ValueError, match="has x = 'left' in row 1, not a number"):
        import_movement(tmp_path / "bad.csv", tmp_path / "trace")
    import_movement(file, tmp_path / "trace")
    with pytest.raises(TraceError, match="already holds a trace"):
        import_movement(file, tmp_path / "trace")


def test_many_fixes_are_written_in_blocks_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcast.pipeline.importers.ROWS_PER_BLOCK", 1000)
    rng = np.random.default_rng(3)
    columns = {
        "t": rng.uniform(0, 50, 4500), "entity": rng.integers(0, 40, 4500),
        "x": rng.normal(size=4500), "y": rng.normal(size=4500),
    }  # fmt: skip
    done = sound(import_movement(parquet(tmp_path, columns), tmp_path / "trace"))
    for table, parts in (("interests", 5), ("publications", 5), ("positions", 2)):
        files = sorted((tmp_path / "trace" / table).iterdir())
        assert len(files) == parts
        t = np.concatenate([pq.read_table(file)["t"].to_numpy() for file in files])
        assert len(t) == done.rows[table]
        assert (np.diff(t) >= 0).all()
    summary = msgspec.json.decode((tmp_path / "trace" / "summary.json").read_bytes())
    assert summary["rows"] == done.rows
