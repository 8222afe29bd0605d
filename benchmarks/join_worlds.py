"""Traces for the benchmark of the join: as large as asked, written as a recorder writes them.

Once a second, at a moment of its own, everyone's box is somewhere else (a new interest row), and
meanwhile things are published at points: about HITS boxes hear each. So every row holds for one
second, the last ones until the end.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.space.motion import SECOND
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder

TICKS = 80
HITS = 10
HALF = 10.0  # of a box's side; a disc's radius
SHRUNK = 0.452  # of boxes in a skewed world, for as many hits in all as in a uniform one
LARGER = 1.15  # of discs that move, for about as many
Floats = NDArray[np.float64]


def side_of(people: int) -> float:
    """The world in which points are in HITS boxes, on average."""
    return float((people * (2 * HALF) ** 2 / HITS) ** 0.5)


class Places:
    """Uniform over the world, or (skewed) half of all in crowds that cover little of it."""

    def __init__(self, people: int, skewed: bool, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.skewed = skewed
        self.side = side_of(people)
        self.spots = np.random.default_rng(7).uniform(0, self.side, (12, 2))

    def __call__(self, count: int) -> Floats:
        places = self.rng.uniform(0, self.side, (count, 2))
        if self.skewed:
            half = count // 2
            spots = self.spots[self.rng.integers(len(self.spots), size=half)]
            places[:half] = spots + self.rng.normal(0, self.side / 50, (half, 2))
            self.rng.shuffle(places)
        return places


def table(name: str, count: int, **columns: object) -> pa.Table:
    """A table of that many rows; what is not given is nothing."""
    arrays = []
    for field in TABLES[name]:
        if field.name in columns:
            value = columns[field.name]
            if isinstance(value, str | bool | float | int):
                arrays.append(pa.repeat(pa.scalar(value, field.type), count))
            else:
                arrays.append(pa.array(value, field.type))
        elif field.nullable:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(_nothing(field.type), field.type), count))
    return pa.Table.from_arrays(arrays, schema=TABLES[name])


def _nothing(kind: pa.DataType) -> object:
    return {pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}.get(kind, 0)


def write_world(
    folder: Path, rows: int, skewed: bool = False, moving: bool = False, ordered: bool = True
) -> None:
    """`rows` interests and as many publications, in order of time or (not ordered) in none."""
    people = rows // TICKS
    half = HALF * (SHRUNK if skewed else LARGER if moving else 1.0)
    scenario = {"schema": 1, "half": half, "side": side_of(people)}
    sink = TraceFolder(folder, json.dumps(scenario).encode())
    step = max(500_000, people)
    waiting: dict[str, list[pa.Table]] = {"interests": [], "publications": []}
    for each in ticks(people, half, skewed, moving):
        for name, some in each.items():
            waiting[name].append(some)
        # In order of time, no more is in memory than what is written at once.
        if ordered and len(waiting["interests"]) * people >= step:
            sink.write({name: pa.concat_tables(tables) for name, tables in waiting.items()})
            waiting = {name: [] for name in waiting}
    rng = np.random.default_rng(4)
    left = {name: pa.concat_tables(tables) for name, tables in waiting.items() if tables}
    if not ordered:
        left = {name: table.take(rng.permutation(len(table))) for name, table in left.items()}
    for first in range(0, max(map(len, left.values()), default=0), step):
        sink.write({name: table.slice(first, step) for name, table in left.items()})


def ticks(people: int, half: float, skewed: bool, moving: bool) -> Iterator[dict[str, pa.Table]]:
    """The interests and publications of each second."""
    at, there = Places(people, skewed, 1), Places(people, skewed, 2)
    rng = np.random.default_rng(3)
    who = rng.permutation(people)
    phase = np.sort(rng.integers(0, SECOND, people))
    for tick in range(TICKS):
        place, heard = at(people), there(people)
        motion = dict(zip(("vx", "vy"), rng.uniform(-5, 5, (2, people)), strict=True))
        interests = table(
            "interests", people, t=tick * SECOND + phase, node=who, subscription=who,
            x=place[:, 0], y=place[:, 1], rx=half, ry=0.0 if moving else half,
            shape="disc" if moving else "box", **(motion if moving else {}),
        )  # fmt: skip
        publications = table(
            "publications", people, t=np.sort(rng.integers(0, SECOND, people)) + tick * SECOND,
            node=rng.permutation(people), publication=tick * people + np.arange(people),
            x=heard[:, 0], y=heard[:, 1], shape="point", bytes=60,
        )  # fmt: skip
        yield {"interests": interests, "publications": publications}
