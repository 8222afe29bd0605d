"""Which reader a file needs: its name decides, and of tables their columns."""

from collections.abc import Callable

from nearcast.pipeline.movement import tables
from nearcast.pipeline.movement.ais import read_ais
from nearcast.pipeline.movement.fix_collector import FixCollector, ImportedFixes
from nearcast.pipeline.movement.geojson_tracks import read_tracks
from nearcast.pipeline.movement.gpx import read_gpx
from nearcast.pipeline.movement.opensky import read_states
from nearcast.storage import AnyPath

Reader = Callable[[AnyPath, FixCollector, Callable[[int], None]], None]

READERS: dict[str, Reader] = {
    ".gpx": read_gpx,
    ".geojson": read_tracks,
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), read_states),
    **dict.fromkeys((".nmea", ".ais", ".aivdm", ".txt", ".log"), read_ais),
}


def earth_reader(file: AnyPath) -> Reader | None:
    """The reader of a file of movement on Earth; None if it is a table of a plane."""
    if reader := READERS.get(file.suffix.lower()):
        return reader
    return tables.read_table if tables.has_degrees(tables.column_names(file)) else None


def read_earth(file: AnyPath, reader: Reader, progress: Callable[[int], None]) -> ImportedFixes:
    """All fixes of a file. Raises ValueError with one clear sentence, or OSError."""
    found = FixCollector(str(file))
    reader(file, found, progress)
    return found.finish()
