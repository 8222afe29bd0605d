"""`nearcast import`: makes a trace from movement that was recorded elsewhere.

At every fix an entity publishes its position, and its area of interest is set there, or moves in a
straight line to the next fix. After its last fix it stays, as when the workload `recorded` replays
the file. True positions are sampled at common instants from the first fix to the last. All data are
columns: ten million fixes are a few arrays, and are written block by block in time order.

Files with latitude and longitude (`movement`) become traces of the Earth: in ECEF metres, with the
setting `geometry` = "earth", and with the Unix time of t = 0 as `epoch_us` if the file has it.
"""

import hashlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.field_checks import between, one_of
from nearcast.pipeline.movement.files import earth_reader, read_earth
from nearcast.pipeline.movement.fix_collector import ImportedFixes
from nearcast.scenario import SCHEMA, Setting
from nearcast.space.earth import LEG, chord_of, require_radius
from nearcast.space.motion import SECOND
from nearcast.space.outlines import WHOLE, Outline, outline_text
from nearcast.storage import (
    AnyPath,
    PathInput,
    arrow_source,
    locate,
    open_input,
    open_parquet,
    write_whole,
)
from nearcast.trace.earth_columns import lon_lat_columns, raised_to_surface
from nearcast.trace.reader import EARTH, EPOCH, GEOMETRY, NAMES_FILE, PLANE
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder
from nearcast.workloads import fixes as fixes_
from nearcast.workloads.fixes import FARTHEST, LONGEST, Fixes, Numbers, Whole

ROWS_PER_BLOCK = 500_000  # rows that are columns of a table at once
POSITION_LIMIT = 1_000_000  # so many are no burden, however few the fixes
MOST_LEGS = 1_000  # between two fixes on Earth; a longer way has longer legs


Progress = Callable[[str, int, int], None]  # what is done, and how many of how many steps


class ImportSummary(Struct, frozen=True):
    """What was written. Positions are `sample_s` apart, which may be more than requested."""

    trace: str
    entities: int
    seconds: float
    radius: float
    sample_s: float
    rows: dict[str, int]
    geometry: str = PLANE
    epoch_us: int | None = None  # Unix time of t = 0, if the file has a calendar
    skipped: int = 0  # rows or lines of the file that could not be used
    first_skipped: str = ""  # what was wrong with the first of them
    notes: tuple[str, ...] = ()


def import_movement(
    file: PathInput,
    trace: PathInput,
    radius: float | None = None,
    shape: str = "disc",
    channel: str = "",
    motion: str = "steps",
    echo: bool = False,
    sample_s: float = 1.0,
    progress: Progress = lambda *_: None,
) -> ImportSummary:
    """Make a trace from a file of movement.

    In a plane: a CSV or Parquet file with columns t (seconds), entity, x, y, perhaps z. On Earth:
    one with latitude and longitude, or another of `movement.files`. The default radius is a
    hundredth of the longest side of the world. Positions are sampled every `sample_s`; if these
    were more than a million and more than there are fixes, every 2, 4, 8, … times that. Raises
    ValueError, OSError or TraceError, each with one clear sentence.
    """
    file = locate(file)
    one_of("shape", shape, ("disc", "box"))
    one_of("motion", motion, ("steps", "line"))
    between("sample_s", sample_s, 1 / SECOND, LONGEST)
    if radius is not None:
        between("radius", radius, 0, FARTHEST)
    found = read_file(file, radius, shape, progress)
    fixes, earth = found.fixes, found.earth
    if radius is None:
        radius = max(high - low for low, high in zip(*fixes.corners, strict=True)) / 100
    every = sampling_interval(fixes, round(sample_s * SECOND))
    seconds = int(fixes.t.max()) / SECOND
    settings: dict[str, Setting] = {
        "radius": float(radius), "shape": shape, "channel": channel, "motion": motion,
        "echo": echo, "sample_s": every / SECOND, "content": file_digest(file),
        **({GEOMETRY: EARTH} if earth else {}),
        **({} if found.epoch_us is None else {EPOCH: found.epoch_us}),
    }  # fmt: skip
    scenario = {
        "schema": SCHEMA, "protocol": "imported", "workload": file.name,
        "nodes": fixes.entities, "seconds": seconds or 1 / SECOND, "seed": 0, "record": "all",
        "settings": settings,
    }  # fmt: skip
    folder = TraceFolder(trace, msgspec.json.encode(scenario, order="sorted"))
    write_whole(folder.path / NAMES_FILE, msgspec.json.encode(found.names))
    line = motion == "line"
    route = with_short_legs(fixes) if earth and line else fixes
    area = interest_columns(fixes, radius, shape) | {"channel": channel, "echo": echo}
    rows = dict.fromkeys(("interests", "publications", "positions"), 0)
    for tables in chain(
        interest_tables(route, area, line, earth),
        publication_tables(fixes, channel),
        position_tables(fixes, every, earth),
    ):
        folder.write(tables)
        for name, table in tables.items():
            rows[name] += table.num_rows
        progress(f"{sum(rows.values()):,} rows written", 1, 2)
    done = ImportSummary(
        str(folder.path), fixes.entities, seconds, radius, every / SECOND, rows,
        EARTH if earth else PLANE, found.epoch_us, found.skipped, found.first_skipped, found.notes,
    )  # fmt: skip
    folder.finish(msgspec.structs.asdict(done))
    return done


def read_file(file: AnyPath, radius: float | None, shape: str, progress: Progress) -> ImportedFixes:
    """The fixes of a plane or of the Earth, whichever the file has."""
    with open_input(file):
        pass  # a missing or forbidden file gets the system's own words, not Arrow's
    reader = earth_reader(file)
    if reader is None:
        return ImportedFixes(fixes_.read(file, 1.0), entity_names(file), earth=False)
    if shape != "disc":
        raise ValueError(f"{file} has places on Earth, where areas of interest are discs")
    if radius is not None:
        require_radius(radius)
    return read_earth(file, reader, lambda rows: progress(f"{rows:,} rows read", 0, 2))


def file_digest(file: AnyPath) -> str:
    """A digest of the content, so that two files of the same name are two runs."""
    with BufferedReader(open_input(file)) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def entity_names(file: AnyPath) -> list[Any]:
    """The entities' names in the order of the numbers that `Fixes` gives them."""
    if fixes_.is_csv(file):
        only = pa.csv.ConvertOptions(
            include_columns=["entity"], column_types={"entity": pa.string()}
        )
        column = pa.csv.read_csv(arrow_source(file), convert_options=only)["entity"]
    else:
        with open_parquet(file) as parquet:
            column = parquet.read(columns=["entity"])["entity"]
    names = column.unique().to_pylist()
    return [names[place] for place in fixes_.in_order(names)]


def table_of(name: str, rows: int, columns: dict[str, Any]) -> pa.Table:
    """A table of the trace. A single value fills its column; a missing column is null or 0."""
    zeros = {pa.string(): "", pa.bool_(): False}
    arrays = []
    for field in TABLES[name]:
        value = columns.get(field.name, None if field.nullable else zeros.get(field.type, 0))
        single = not isinstance(value, np.ndarray | pa.Array)
        arrays.append(
            pa.repeat(pa.scalar(value, field.type), rows) if single else pa.array(value, field.type)
        )
    return pa.Table.from_arrays(arrays, schema=TABLES[name])


def interest_columns(fixes: Fixes, radius: float, shape: str) -> dict[str, Any]:
    """The columns that are the same in all interests. In a flat world boxes are flat."""
    low, high = fixes.corners
    if shape == "disc":
        return {"shape": shape, "rx": radius}
    deep = low[2] != 0 or high[2] != 0
    return {"shape": shape, "rx": radius, "ry": radius, "rz": radius if deep else 0.0}


def interest_tables(
    fixes: Fixes, area: dict[str, Any], line: bool, earth: bool = False
) -> Iterator[dict[str, pa.Table]]:
    """An interest for each fix, in time order, block by block."""
    for _, rows, here in blocks_in_time_order(fixes):
        moving: dict[str, Any] = {}
        if line:
            velocities, arrival, goes_on = legs_to_next_fix(fixes, rows)
            moving = dict(zip(("vx", "vy", "vz"), velocities, strict=True))
            moving["until"] = pa.array(arrival, mask=~goes_on)
        interest = here | area | moving | {"subscription": here["node"]}
        if earth:
            interest["rx"] = chords(area["rx"], here["x"], here["y"], here["z"])
        yield {"interests": table_of("interests", len(rows), interest)}


def publication_tables(fixes: Fixes, channel: str) -> Iterator[dict[str, pa.Table]]:
    """A publication for each fix, in time order, block by block."""
    for first, rows, here in blocks_in_time_order(fixes):
        number = np.arange(first, first + len(rows))
        publication = here | {"publication": number, "shape": "point", "channel": channel}
        if fixes.altitude is not None:
            publication["outline"] = altitude_outlines(fixes.altitude[rows])
        yield {"publications": table_of("publications", len(rows), publication)}


def blocks_in_time_order(fixes: Fixes) -> Iterator[tuple[int, Whole, dict[str, Any]]]:
    """The number of a block's first fix in time, its rows, and what all tables say of them."""
    order = np.argsort(fixes.t, kind="stable")
    for first in range(0, len(order), ROWS_PER_BLOCK):
        rows = order[first : first + ROWS_PER_BLOCK]
        here = {
            "t": fixes.t[rows],
            "node": entities_of_rows(fixes, rows),
            "x": fixes.x[rows],
            "y": fixes.y[rows],
            "z": fixes.z[rows],
        }
        yield first, rows, here


def chords(metres: float, x: Numbers, y: Numbers, z: Numbers) -> Numbers:
    """The radii in ECEF of discs on Earth; they depend a little on the latitude."""
    latitudes = lon_lat_columns(x, y, z)[1]
    return np.fromiter((chord_of(metres, lat) for lat in latitudes.tolist()), np.float64, len(x))


def altitude_outlines(altitude: Numbers) -> pa.Array:
    """How publications say their altitudes; null where they have none."""
    values, codes = np.unique(altitude, return_inverse=True)
    texts = [
        None if value != value else outline_text(Outline(WHOLE, True, low=value, high=value))
        for value in values.tolist()
    ]
    return pa.array(texts, pa.string()).take(pa.array(codes))


def with_short_legs(fixes: Fixes) -> Fixes:
    """With places between fixes, so that straight ways stay near the surface of the Earth.

    A leg of at most 1 km is nowhere more than 2 cm below it. Ways of more than 1,000 km have 1,000
    legs; one of 5,000 km is up to half a metre below.
    """
    goes_on = np.ones(len(fixes.t), np.bool_)
    goes_on[fixes.starts[1:] - 1] = False
    there = np.where(goes_on, np.arange(1, len(goes_on) + 1), np.arange(len(goes_on)))
    axes = fixes.x, fixes.y, fixes.z
    metres = np.sqrt(sum((axis[there] - axis) ** 2 for axis in axes))
    takes = fixes.t[there] - fixes.t  # no two legs may begin at the same microsecond
    legs = np.clip(np.ceil(metres / LEG), 1, np.clip(takes, 1, MOST_LEGS)).astype(np.int64)
    first = np.cumsum(legs) - legs
    row = np.repeat(np.arange(len(legs)), legs)
    leg = np.arange(len(row)) - first[row]
    share = leg / legs[row]
    x, y, z = raised_to_surface(*(axis[row] + (axis[there] - axis)[row] * share for axis in axes))
    for axis, own in zip((x, y, z), axes, strict=True):
        axis[first] = own  # the fixes themselves, bit by bit
    starts = np.append(first, len(row))[fixes.starts]
    return Fixes(starts, fixes.t[row] + leg * takes[row] // legs[row], x, y, z)


def entities_of_rows(fixes: Fixes, rows: Whole) -> Whole:
    return np.searchsorted(fixes.starts, rows, side="right") - 1


def legs_to_next_fix(fixes: Fixes, rows: Whole) -> tuple[list[Numbers], Whole, NDArray[np.bool_]]:
    """From these fixes straight to the next: velocity, arrival, and whether there is a next.

    It computes as `recorded.leg` does, so that both give the same position to the last bit.
    """
    last_rows = fixes.starts[1:] - 1
    goes_on = last_rows[entities_of_rows(fixes, rows)] != rows
    there = np.where(goes_on, rows + 1, rows)
    arrival = fixes.t[there]
    per_second = SECOND / np.where(goes_on, arrival - fixes.t[rows], SECOND)
    axes = fixes.x, fixes.y, fixes.z
    velocities = [(axis[there] - axis[rows]) * per_second for axis in axes]
    return velocities, arrival, goes_on


# True positions.


def sampling_interval(fixes: Fixes, every: int) -> int:
    """The smallest of `every`, 2 · `every`, 4 · `every`, … that gives few enough positions."""
    most = max(POSITION_LIMIT, len(fixes.t))
    while int(sampling_instants(fixes, every)[1].sum()) > most:
        every *= 2
    return every


def sampling_instants(fixes: Fixes, every: int) -> tuple[Whole, Whole]:
    """For each fix: its first sampling instant, and how many there are until the next fix.

    After its last fix an entity is sampled once more, so that every entity has a position.
    """
    first = -(-fixes.t // every)
    count = np.append(first[1:] - first[:-1], 1)
    count[fixes.starts[1:] - 1] = 1
    return first, count


def position_tables(fixes: Fixes, every: int, earth: bool = False) -> Iterator[dict[str, pa.Table]]:
    """Positions between fixes, in time order, block by block; on Earth along great circles."""
    first, count = sampling_instants(fixes, every)
    fix = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    t = (first[fix] + np.arange(len(fix)) - before[fix]) * every
    order = np.argsort(t, kind="stable")
    for start in range(0, len(order), ROWS_PER_BLOCK):
        some = order[start : start + ROWS_PER_BLOCK]
        rows = fix[some]
        velocities, _, _ = legs_to_next_fix(fixes, rows)
        passed = (t[some] - fixes.t[rows]) / SECOND
        places = [
            axis[rows] + velocity * passed
            for axis, velocity in zip((fixes.x, fixes.y, fixes.z), velocities, strict=True)
        ]
        if earth:
            places = raised_to_surface(*places)
        columns: dict[str, Any] = dict(zip("xyz", places, strict=True))
        columns |= {"t": t[some], "node": entities_of_rows(fixes, rows)}
        yield {"positions": table_of("positions", len(some), columns)}
