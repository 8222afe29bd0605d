"""GPX 1.0 and 1.1: each track is an entity, and its points are fixes.

Routes and single waypoints have no times and are no movement. A document type is refused before
anything in it is read: it could name other files, or entities that grow without bounds.
"""

from collections.abc import Callable
from math import nan
from xml.parsers import expat

from nearcast.pipeline.movement.fix_collector import SHOWN, FixCollector
from nearcast.pipeline.movement.times import read_iso_time
from nearcast.storage import AnyPath, open_input

CHUNK = 2**20
LONGEST_TEXT = 10_000  # characters of a name, time or height; longer ones are nonsense
TEXTS = ("name", "time", "ele")


class _TrackReader:
    """Handlers of the XML parser. They know the names of the elements around what they see."""

    def __init__(self, found: FixCollector) -> None:
        self.found = found
        self.points = 0
        self.tracks = 0
        self.names: set[str] = set()
        self.around: list[str] = []
        self.name = ""  # of the track
        self.point: dict[str, str] = {}
        self.text: list[str] = []
        self.length = 0

    def start(self, element: str, attributes: dict[str, str]) -> None:
        name = element.rpartition(" ")[2]  # without its namespace
        if not self.around and name != "gpx":
            raise ValueError(f"begins with <{name[:SHOWN]}>, not with <gpx>")
        self.around.append(name)
        self.text, self.length = [], 0
        if name == "trk":
            self.tracks += 1
            self.name = ""
        elif name == "trkpt":
            self.points += 1
            self.point = {key: text for key, text in attributes.items() if key in ("lat", "lon")}

    def characters(self, text: str) -> None:
        self.length += len(text)
        if self.around[-1] in TEXTS and self.length <= LONGEST_TEXT:
            self.text.append(text)

    def end(self, _: str) -> None:
        name = self.around.pop()
        inside = self.around[-1] if self.around else ""
        if inside == "trkpt" and name in ("time", "ele"):
            self.point[name] = "".join(self.text).strip()
        elif inside == "trk" and name == "name":
            self.name = self.unique_name("".join(self.text).strip())
        elif name == "trkpt":
            self.name = self.name or self.unique_name("")
            self.add_point()
        self.text = []

    def unique_name(self, name: str) -> str:
        """Of the current track: its own, or one with its number if that is empty or taken."""
        wanted = name or f"track {self.tracks}"
        if wanted in self.names:
            wanted = f"{wanted} ({self.tracks})"
        self.names.add(wanted)
        return wanted

    def add_point(self) -> None:
        where = f"track point {self.points}"
        try:
            for need in ("lat", "lon", "time"):
                if not self.point.get(need):
                    raise ValueError(f"it has no {need}")
            lon, lat = number_of(self.point, "lon"), number_of(self.point, "lat")
            altitude = number_of(self.point, "ele") if self.point.get("ele") else nan
            t = read_iso_time(self.point["time"][:SHOWN])
        except ValueError as why:
            self.found.skip(f"{where}: {why}")
            return
        self.found.add_one(where, self.name, t, lon, lat, altitude)


def number_of(point: dict[str, str], name: str) -> float:
    try:
        return float(point[name])
    except ValueError:
        raise ValueError(f"{name} = {point[name][:SHOWN]!r} is not a number") from None


def read_gpx(file: AnyPath, found: FixCollector, progress: Callable[[int], None]) -> None:
    """All points of all tracks. `progress` is told how many are read. Raises ValueError."""
    reader = _TrackReader(found)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = refuse_document_type
    try:
        with open_input(file) as opened:
            while chunk := opened.read(CHUNK):
                parser.Parse(chunk, False)
                progress(reader.points)
            parser.Parse(b"", True)
    except expat.ExpatError as why:
        raise ValueError(f"{file} is not well-formed XML: {why}") from why
    except ValueError as why:
        raise ValueError(f"{file} {why}") from None
    if not reader.points:
        raise ValueError(f"{file} has no track points")


def refuse_document_type(*_: object) -> None:
    raise ValueError("has a document type, which GPX does not need and which is not read")
