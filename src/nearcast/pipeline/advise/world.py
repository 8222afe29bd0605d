"""The recorded world that is simulated: a window of a recording, as a trace of its own.

A trace is taken as it is, with its subscriptions, filters, channels and payload sizes. In a file of
fixes every entity wants what is within a radius of its last fix, and publishes at each fix. The cut
is up to three times as long as the window, because the copies of a larger crowd begin elsewhere in
it. What was in force when the cut begins is written as if it had been subscribed to just then.
"""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from nearcast.field_checks import between
from nearcast.model.subscription import Formula
from nearcast.pipeline import importers
from nearcast.scenario import SCHEMA
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.outlines import outline_text
from nearcast.storage import AnyPath, remove_tree
from nearcast.trace import reader
from nearcast.trace.row_values import subscription_of
from nearcast.trace.schema import SHAPES, TABLES
from nearcast.trace.sinks import SUMMARY, MemoryTrace, TraceFolder, holds_trace
from nearcast.workloads import fixes as fixes_
from nearcast.workloads.replayed import filter_at, region_at

STEP: Time = SECOND  # windows begin at whole seconds of the recording
LONGEST_CUT = 3  # times the window


class WorldOptions(Struct, frozen=True, kw_only=True):
    """What of the recording is replayed, and what a file of fixes does not say."""

    seconds: float | None = None  # None: a minute, or half of a shorter recording
    start_s: float | None = None  # None: where most is published
    radius: float | None = None
    payload: int = 64
    faster: float = 1.0

    def __post_init__(self) -> None:
        between("payload", self.payload, 0, 1_000_000)
        between("faster", self.faster, 1e-6, 1e6)
        if self.radius is not None:
            between("radius", self.radius, 0, 1e15)


class WorldFacts(Struct, frozen=True, kw_only=True):
    """What the world that was cut out is like, as far as overlays depend on it."""

    source: str
    entities: int
    recorded_s: float  # length of the whole recording
    window_at_s: float  # where the window begins in the recording
    seconds: float  # length of the window
    start_s: float  # where it begins in the cut
    spare_s: float  # copies begin within so much of the cut
    publications: int  # in the window
    payload: float  # mean bytes
    radius: float  # median half-extent of areas
    speed: float  # of moving areas in units per second, 95th percentile
    low: tuple[float, float, float]
    high: tuple[float, float, float]
    shapes: tuple[str, ...]
    subscriptions: int
    has_filters: bool
    has_formulas: bool
    channels: int
    has_areas: bool  # are there publications to areas?
    is_file: bool  # a file of fixes: interests are assumed
    radius_given: bool
    faster: float
    geometry: str = reader.PLANE  # of its coordinates

    @property
    def is_deep(self) -> bool:
        return self.high[2] > self.low[2]

    @property
    def side(self) -> float:
        """The longest of the two horizontal sides."""
        return max(self.high[0] - self.low[0], self.high[1] - self.low[1])

    @property
    def rate(self) -> float:
        """Publications of an entity per second."""
        return self.publications / self.seconds / self.entities


def prepare_world(
    source: AnyPath, folder: AnyPath, options: WorldOptions
) -> tuple[WorldFacts, AnyPath]:
    """Cut the window out of a trace or a file of fixes and write it into `folder`, as a trace."""
    is_file = not source.is_dir() and not holds_trace(source)
    if is_file:
        interests, publications = tables_of_fixes(source, options)
    else:
        if options.radius is not None or options.faster != 1:
            raise ValueError("--radius and --faster are for files of fixes; a trace has interests")
        interests, publications = (
            reader.read(source, name) for name in ("interests", "publications")
        )
    if not len(publications):
        raise ValueError(f"{source} has no publications: nothing could be delivered")
    if not len(interests):
        raise ValueError(f"{source} has no subscriptions: nobody would receive anything")
    times = publications["t"].to_numpy()
    first, last = int(times.min()), int(times.max())
    window, begin = choose_window(source, times, options)
    low, high = cut_around(begin, window, first, last)
    interests = cut_interests(interests, low, high)
    publications = shifted(in_span(publications, low, high), low)
    if is_file:  # before its first fix and after its last one, an entity is not there
        interests = interests.filter(pc.is_in(interests["node"], pc.unique(publications["node"])))
    world = write_world(folder, source, interests, publications)
    facts = describe(interests, publications, begin - low, window)
    facts = replace(
        facts, source=str(source), recorded_s=(last - first) / SECOND,
        window_at_s=(begin - first) / SECOND, is_file=is_file,
        radius_given=options.radius is not None, faster=options.faster,
        geometry=reader.PLANE if is_file else reader.trace_geometry(source),
    )  # fmt: skip
    return facts, world


def tables_of_fixes(file: AnyPath, options: WorldOptions) -> tuple[pa.Table, pa.Table]:
    """Discs around the fixes of a file, and a publication at each."""
    fixes = fixes_.read(file, options.faster)
    radius = options.radius
    if radius is None:
        radius = max(high - low for low, high in zip(*fixes.corners, strict=True)) / 100
    area = importers.interest_columns(fixes, radius, "disc") | {"channel": "", "echo": False}
    interests, made = (
        pa.concat_tables([part[name] for part in parts])
        for name, parts in (
            ("interests", importers.interest_tables(fixes, area, False)),
            ("publications", importers.publication_tables(fixes, "")),
        )
    )
    sizes = pa.repeat(pa.scalar(options.payload, pa.int64()), len(made))
    return interests, made.set_column(
        made.schema.get_field_index("bytes"), made.schema.field("bytes"), sizes
    )


# The window.


def choose_window(source: AnyPath, times: Any, options: WorldOptions) -> tuple[Time, Time]:
    """Its length and its beginning: the first of those with the most publications."""
    ordered = np.sort(times)
    first, whole = int(ordered[0]), int(ordered[-1] - ordered[0])
    if options.seconds is not None:
        window = round(options.seconds * SECOND)
        if not 0 < window <= max(whole, SECOND):
            raise ValueError(
                f"{source} is {whole / SECOND:,.6g} s long; a window of {options.seconds:,.6g} s"
                " does not fit"
            )
    else:
        window = min(60 * SECOND, max(whole // 2, SECOND))
    if options.start_s is not None:
        begin = first + round(options.start_s * SECOND)
        if not first <= begin <= max(first, int(ordered[-1]) - window):
            raise ValueError(
                f"{source} is {whole / SECOND:,.6g} s long; no window of {window / SECOND:,.6g} s"
                f" begins at {options.start_s:,.6g} s"
            )
        return window, begin
    begins = np.arange(first, max(first, int(ordered[-1]) - window) + 1, STEP)
    made = np.searchsorted(ordered, begins + window) - np.searchsorted(ordered, begins)
    return window, int(begins[made.argmax()])


def cut_around(begin: Time, window: Time, first: Time, last: Time) -> tuple[Time, Time]:
    """The window with what was recorded before and after it, up to three times as long."""
    length = min(LONGEST_CUT * window, max(last - first, window))
    low = max(first, min(begin - (length - window) // 2, last - length))
    return low, low + length


def in_span(rows: pa.Table, low: Time, high: Time) -> pa.Table:
    t = rows["t"]
    return rows.filter(pc.and_(pc.greater_equal(t, low), pc.less_equal(t, high)))


def shifted(rows: pa.Table, by: Time) -> pa.Table:
    t = pc.subtract(rows["t"], by)
    return rows.set_column(rows.schema.get_field_index("t"), rows.schema.field("t"), t)


def cut_interests(interests: pa.Table, low: Time, high: Time) -> pa.Table:
    """The changes of a span of time, after what was in force when it began; from 0 on."""
    before = interests.filter(pc.less(interests["t"], low))
    numbers = before["subscription"].to_numpy()
    # Rows are in order of time: the last one of a subscription is what was in force.
    _, places = np.unique(numbers[::-1], return_index=True)
    latest = before.take(np.sort(len(numbers) - 1 - places))
    within = in_span(interests, low, high)
    has_clock = pc.is_valid(within["since"])
    rewritten = [row_at(row, low) for row in latest.to_pylist() if not row["ended"]]
    rewritten += [row_at(row, row["t"]) for row in within.filter(has_clock).to_pylist()]
    schema = TABLES["interests"]
    rows = pa.concat_tables(
        [pa.Table.from_pylist(rewritten, schema), within.filter(pc.invert(has_clock))]
    )
    for name in ("t", "until", "since"):
        place = schema.get_field_index(name)
        rows = rows.set_column(place, schema.field(name), pc.subtract(rows[name], low))
    return rows.sort_by([("t", "ascending"), ("subscription", "ascending")])


def row_at(row: dict[str, Any], t: Time) -> dict[str, Any]:
    """What a row says, as a row of the moment `t`; formulas and filters begin to count there."""
    wanted = subscription_of(row)
    if wanted is None:
        return row
    region, condition = region_at(wanted.region, t), filter_at(wanted.filter, t)
    changed: dict[str, Any] = {
        "t": t, "filter": condition.text if condition else None,
        "since": None if row["since"] is None else t,
    }  # fmt: skip
    if isinstance(region, Formula):
        return {**row, **changed, "formula": region.text}
    assert isinstance(region, Moving)
    shape, lasts = region.shape, region.duration
    return {
        **row, **changed, "shape": SHAPES[shape.kind], "x": shape.x, "y": shape.y, "z": shape.z,
        "rx": shape.rx, "ry": shape.ry, "rz": shape.rz,
        **dict(zip(("vx", "vy", "vz"), region.velocity, strict=True)),
        **dict(zip(("gx", "gy", "gz"), region.growth, strict=True)),
        "until": None if lasts is None else t + lasts,
        "outline": None if shape.outline is None else outline_text(shape.outline),
    }  # fmt: skip


def write_world(
    folder: AnyPath, source: AnyPath, interests: pa.Table, publications: pa.Table
) -> AnyPath:
    """Write the world, under a name that says what is in it: another one has other runs."""
    tables = {"interests": interests, "publications": publications}
    content = MemoryTrace()
    content.write(tables)
    out = folder / f"world-{reader.digest(content)[:12]}"
    if not (out / SUMMARY).exists():
        remove_tree(out)  # what a killed command has left of it
        scenario = {"schema": SCHEMA, "workload": source.name}
        trace = TraceFolder(out, msgspec.json.encode(scenario))
        trace.write(tables)
        trace.finish({name: len(rows) for name, rows in tables.items()})
    return out


# What it is like.


def describe(interests: pa.Table, publications: pa.Table, begins: Time, window: Time) -> WorldFacts:
    """The facts of a cut whose window begins at `begins`."""
    origin = min(pc.min(rows["t"]).as_py() for rows in (interests, publications))
    end = max(pc.max(rows["t"]).as_py() for rows in (interests, publications))
    made = in_span(publications, begins, begins + window - 1)
    live = interests.filter(pc.invert(interests["ended"]))
    plain = live.filter(pc.is_null(live["formula"]))
    low, high = corners(plain, publications)
    nodes = pc.unique(pa.concat_arrays([
        chunk for rows in (interests, publications) for chunk in rows["node"].chunks
    ]))  # fmt: skip
    return WorldFacts(
        source="", entities=len(nodes), recorded_s=0.0, window_at_s=0.0,
        seconds=window / SECOND, start_s=max(0, begins - origin) / SECOND,
        spare_s=max(0, end - origin - window) / SECOND,
        publications=len(made), payload=pc.mean(publications["bytes"]).as_py() or 0.0,
        radius=median_radius(plain), speed=typical_speed(plain), low=low, high=high,
        shapes=tuple(sorted(pc.unique(plain["shape"]).to_pylist())),
        subscriptions=len(pc.unique(live["subscription"])),
        has_filters=len(live) > live["filter"].null_count,
        has_formulas=len(live) > len(plain),
        channels=len(pc.unique(live["channel"])),
        has_areas=bool(pc.any(pc.not_equal(publications["shape"], "point")).as_py()),
        is_file=False, radius_given=True, faster=1.0,
    )  # fmt: skip


def corners(
    plain: pa.Table, publications: pa.Table
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    ends = [
        [float(end(np.concatenate([rows[axis].to_numpy() for rows in (plain, publications)])))
         for axis in "xyz"]
        for end in (np.min, np.max)
    ]  # fmt: skip
    return (ends[0][0], ends[0][1], ends[0][2]), (ends[1][0], ends[1][1], ends[1][2])


def median_radius(plain: pa.Table) -> float:
    extents = plain["rx"].to_numpy()
    extents = extents[np.isfinite(extents)]
    return float(np.median(extents)) if len(extents) else 0.0


def typical_speed(plain: pa.Table) -> float:
    """How fast areas move: by themselves, or from one change to the next of the same one."""
    if not len(plain):
        return 0.0
    rows = plain.sort_by([("subscription", "ascending"), ("t", "ascending")])
    t, number = rows["t"].to_numpy(), rows["subscription"].to_numpy()
    place = np.stack([rows[axis].to_numpy() for axis in "xyz"])
    own = np.sqrt(sum(rows[f"v{axis}"].to_numpy() ** 2 for axis in "xyz"))
    follows = (number[1:] == number[:-1]) & (t[1:] > t[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.sqrt(((place[:, 1:] - place[:, :-1]) ** 2).sum(0)) / ((t[1:] - t[:-1]) / SECOND)
    speeds = np.concatenate([own, steps[follows]])
    speeds = speeds[np.isfinite(speeds)]
    return float(np.quantile(speeds, 0.95)) if len(speeds) else 0.0
