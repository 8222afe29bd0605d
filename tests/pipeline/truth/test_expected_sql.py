"""The truth in plain SQL, on twenty thousand rows of each side: an oracle that shares no code."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.spark import storage
from nearcast.pipeline.truth.expected import JoinStrategy, expected_deliveries
from nearcast.space.motion import SECOND
from nearcast.trace import reader
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder

COUNT, PEOPLE, SECONDS = 20_000, 2_000, 10
SHAPES = np.array(["point", "disc", "box"])
CHANNELS = np.array(["", *"abcdefghijk"])

TRUTH = """
WITH held AS (
    SELECT *, coalesce(lead(t) OVER (PARTITION BY subscription ORDER BY t), 99000000) AS "end"
    FROM interests
), met AS (
    SELECT p.publication, h.subscription, h.shape AS a, p.shape AS b, p.rx AS brx, p.ry AS bry,
        p.rz AS brz, h.vx, h.vy, h.vz,
        h.x AS hx, h.y AS hy, h.z AS hz, p.x AS px, p.y AS py, p.z AS pz,
        h.rx, h.ry, h.rz, h.gx, h.gy, h.gz,
        (min(p.t, coalesce(h.until, p.t)) - h.t) / 1e6 AS dt
    FROM held h
    JOIN publications p ON h.channel = p.channel AND p.t BETWEEN h.t AND h."end" - 1
    WHERE NOT h.ended AND (h.node != p.node OR h.echo)
), there AS (
    SELECT publication, subscription, a, b, brx, bry, brz,
        abs(hx + vx * dt - px) AS dx, abs(hy + vy * dt - py) AS dy, abs(hz + vz * dt - pz) AS dz,
        max(rx + gx * dt, 0.0) AS arx, max(ry + gy * dt, 0.0) AS ary,
        max(rz + gz * dt, 0.0) AS arz
    FROM met
), apart AS (
    SELECT *,
        max(dx - iif(a = 'box', arx, brx), 0.0) AS ox,
        max(dy - iif(a = 'box', ary, bry), 0.0) AS oy,
        max(dz - iif(a = 'box', arz, brz), 0.0) AS oz,
        iif(a = 'box', brx, arx) AS r
    FROM there
)
SELECT publication, subscription FROM apart WHERE CASE
    WHEN a != 'disc' AND b != 'disc' THEN dx <= arx + brx AND dy <= ary + bry AND dz <= arz + brz
    WHEN a != 'box' AND b != 'box' THEN sqrt(dx * dx + dy * dy + dz * dz) <= arx + brx
    ELSE sqrt(ox * ox + oy * oy + oz * oz) <= r
END
"""


def table(name: str, rng: np.random.Generator, **columns: object) -> pa.Table:
    """Rows of all shapes, in whole numbers, so that many just touch."""
    kind = rng.integers(0, 3, COUNT)
    round_or_square, square = kind > 0, kind == 2
    values = {
        "shape": SHAPES[kind],
        "channel": CHANNELS[rng.integers(0, len(CHANNELS), COUNT)],
        "node": rng.integers(0, PEOPLE, COUNT),
        **{axis: rng.integers(0, 60, COUNT).astype(float) for axis in "xy"},
        "z": rng.integers(0, 8, COUNT).astype(float),
        "rx": rng.integers(0, 9, COUNT) * 1.0 * round_or_square,
        **{r: rng.integers(0, 9, COUNT) * 1.0 * square for r in ("ry", "rz")},
        **{v: rng.integers(-3, 4, COUNT) * 1.0 for v in ("vx", "vy", "vz")},
        "gx": rng.integers(-2, 3, COUNT) * 1.0 * round_or_square,
        **{g: rng.integers(-2, 3, COUNT) * 1.0 * square for g in ("gy", "gz")},
        "bytes": np.zeros(COUNT, np.int64),
        **columns,
    }
    nothing = pa.nulls(COUNT)
    return pa.table(
        {f.name: pa.array(values[f.name], f.type) if f.name in values else nothing.cast(f.type)
         for f in TABLES[name]}, schema=TABLES[name],
    )  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everybody changes ten times; some stop moving before, some end, half stand still."""
    rng = np.random.default_rng(2024)
    folder = tmp_path_factory.mktemp("mid") / "world"
    sink = TraceFolder(folder, b'{"schema": 1}')
    who = np.tile(np.arange(PEOPLE), COUNT // PEOPLE)
    # One row of each in each second, at a moment of its own that no other row of it has.
    t = np.repeat(np.arange(SECONDS), PEOPLE) * SECOND + rng.integers(0, 1000, COUNT) * 1000
    stands = rng.random(COUNT) < 0.5
    still = dict.fromkeys(("vx", "vy", "vz", "gx", "gy", "gz"), np.zeros(COUNT))
    moving = table("interests", rng, t=t, node=who, subscription=who)
    kept = {name: np.where(stands, 0.0, moving.column(name).to_numpy()) for name in still}
    until = np.where(rng.random(COUNT) < 0.3, t + rng.integers(0, SECOND, COUNT), -1)
    interests = table(
        "interests", rng, t=t, node=who, subscription=who,
        shape=moving.column("shape").to_pylist(),
        **{name: moving.column(name).to_numpy() for name in ("rx", "ry", "rz")}, **kept,
        until=pa.array(until, mask=until < 0), echo=rng.random(COUNT) < 0.2,
        ended=rng.random(COUNT) < 0.1,
    )  # fmt: skip
    publications = table(
        "publications", rng, publication=rng.permutation(COUNT),
        t=rng.integers(0, SECONDS * 1000, COUNT) * 1000,
    )  # fmt: skip
    for first in range(0, COUNT, 5_000):
        sink.write(
            {
                "interests": interests.slice(first, 5_000),
                "publications": publications.slice(first, 5_000),
            }
        )
    return folder


@pytest.fixture(scope="module")
def truth(world: Path) -> set[tuple[int, int]]:
    """By SQLite, which takes a fraction of the time that Spark does for so few rows."""
    with closing(sqlite3.connect(":memory:")) as database:
        for name in ("interests", "publications"):
            rows = reader.read(world, name)
            database.execute(f"CREATE TABLE {name} ({', '.join(map(quoted, rows.column_names))})")
            marks = ", ".join("?" * rows.num_columns)
            columns = [column.to_pylist() for column in rows.columns]
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*columns, strict=True))
        database.execute("CREATE INDEX said ON publications (channel, t)")
        return set(database.execute(TRUTH))


def quoted(name: str) -> str:
    return f'"{name}"'


@pytest.mark.parametrize("strategy", ["direct", "shuffle"])
def test_the_join_finds_exactly_what_plain_sql_finds(
    spark: SparkSession, world: Path, truth: set[tuple[int, int]], strategy: JoinStrategy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("nearcast.pipeline.truth.expected.PUBLICATIONS_PER_PART", 6_000)
    monkeypatch.setattr("nearcast.pipeline.truth.expected.INTERESTS_PER_BUCKET", 6_000)
    monkeypatch.setattr("nearcast.pipeline.truth.expected.MIN_PUBLICATIONS_PER_PART", 10_000)
    rows = expected_deliveries(spark, storage.open_traces([world]), strategy).toArrow()
    found = list(zip(*(rows.column(i).to_pylist() for i in (1, 2)), strict=True))
    assert len(found) == len(set(found)) > 50_000
    assert set(found) == truth
