"""Reads a file of movement as `nearcast import` does, into plain rows."""

from pathlib import Path
from typing import NamedTuple

from nearcast.pipeline.movement.files import earth_reader, read_earth
from nearcast.pipeline.movement.fix_collector import ImportedFixes
from nearcast.trace.earth_columns import lon_lat_columns

SECOND = 1_000_000


class PlainFix(NamedTuple):
    """A fix as people write it; altitude is None if it has none."""

    name: str
    t_us: int  # Unix time, if the file has a calendar
    lon: float
    lat: float
    altitude: float | None = None


def read_movement(file: Path) -> tuple[list[PlainFix], ImportedFixes]:
    """The fixes by entity and time, with degrees to a millionth; and what else was found."""
    reader = earth_reader(file)
    assert reader is not None
    found = read_earth(file, reader, lambda _: None)
    fixes = found.fixes
    lon, lat = lon_lat_columns(fixes.x, fixes.y, fixes.z)
    rows = []
    for entity, name in enumerate(found.names):
        for row in range(*fixes.rows(entity)):
            height = None if fixes.altitude is None else float(fixes.altitude[row])
            rows.append(
                PlainFix(
                    name,
                    int(fixes.t[row]) + (found.epoch_us or 0),
                    round(float(lon[row]), 6) + 0.0,
                    round(float(lat[row]), 6) + 0.0,
                    None if height is None or height != height else height,
                )
            )
    return rows, found
