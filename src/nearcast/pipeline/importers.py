"""Movement recorded elsewhere, as a trace: what `nearcast import` does.

At every fix an entity says where it is, and its area of interest is moved there, or moves straight
on to the next fix; after its last fix it stays, as it does when `recorded` replays the file. Where
it truly was is sampled at common instants between its fixes. Everything is columns: ten million
fixes are a few arrays, written in blocks in the order of time.
"""

import os
from collections.abc import Iterator
from hashlib import sha256
from math import isfinite
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from msgspec import Struct

from nearcast.scenario import SCHEMA
from nearcast.space.motion import SECOND
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import Folder
from nearcast.workloads import fixes as fixes_
from nearcast.workloads.fixes import FARTHEST, Fixes, Numbers, Whole
from nearcast.workloads.limits import between, one_of

NAMES = "names.json"  # in the trace: the entities' names in the file, in the order of their numbers
BLOCK = 500_000  # rows that are columns of a table at once
FEW_POSITIONS = 1_000_000


class Import(Struct, frozen=True):
    """What came of it. Positions are sampled every `sample_s`."""

    trace: str
    entities: int
    seconds: float
    radius: float
    sample_s: float
    rows: dict[str, int]


def import_movement(
    file: str | os.PathLike[str],
    trace: str | os.PathLike[str],
    radius: float | None = None,
    shape: str = "disc",
    channel: str = "",
    motion: str = "steps",
    echo: bool = False,
    sample_s: float = 1.0,
) -> Import:
    """Make a trace of a CSV or Parquet file with t (seconds), entity, x, y and perhaps z.

    Without a radius it is a hundredth of the longest side of the world. Positions are sampled every
    `sample_s`, or, where that would make more of them than a million and than there are fixes,
    every 2, 4, 8, … times that: between two fixes there is nothing more to know. Raises ValueError,
    OSError or TraceError, each with one sentence.
    """
    file = os.fspath(file)
    one_of("shape", shape, ("disc", "box"))
    one_of("motion", motion, ("steps", "line"))
    if radius is not None:
        between("radius", radius, 0, FARTHEST)
    between("sample_s", sample_s, 1e-6, 1e9)
    fixes = fixes_.read(file, 1.0)
    low, high = fixes.corners
    if radius is None:
        radius = max(end - begin for begin, end in zip(low, high, strict=True)) / 100
    deep = low[2] != 0 or high[2] != 0
    every = sampling_interval(fixes, round(sample_s * SECOND))
    seconds = int(fixes.t.max()) / SECOND
    scenario = {
        "schema": SCHEMA, "protocol": "imported", "workload": Path(file).name,
        "nodes": fixes.entities, "seconds": max(seconds, 1 / SECOND), "seed": 0, "record": "all",
        "settings": {
            "radius": float(radius), "shape": shape, "channel": channel, "motion": motion,
            "echo": echo, "sample_s": every / SECOND, "content": digest(file),
        },
    }  # fmt: skip
    folder = Folder(trace, msgspec.json.encode(scenario, order="sorted"))
    write_names(folder.path, names(file))
    return folder
