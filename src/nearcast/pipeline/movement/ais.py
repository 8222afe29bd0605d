"""What ships send (AIS), as receivers log it: sentences of NMEA 0183 like !AIVDM.

Position reports are read: types 1, 2, 3, 18, 19 and 27; pyais decodes them. A report says at most
the second of a minute, so its time must stand in the line: in a tag block (`\\c:1641168000*54\\`),
or before the sentence, as ISO 8601 or Unix time.
"""

from collections.abc import Callable
from io import BufferedReader
from typing import Any

from nearcast.pipeline.movement.fix_collector import SHOWN, FixCollector
from nearcast.pipeline.movement.times import read_unix_time
from nearcast.storage import AnyPath, open_input

REPORTS = (
    b"123BCK"  # types 1, 2, 3, 18, 19, 27: the first six bits of a report, as NMEA writes them
)
LONGEST_LINE = 1_000
OPEN_REPORTS = 64  # of which the second part may still come; receivers do not mix more
NO_TIME = "has no time: neither a tag block (c:…) nor a timestamp before the sentence"
PROGRESS_LINES = 10_000


class _ReportAssembler:
    """Puts reports of two sentences (type 19) together. Both have a number and a channel."""

    def __init__(self, found: FixCollector) -> None:
        self.found = found
        self.others = 0  # sentences of other messages
        self.open: dict[tuple[bytes, bytes], tuple[int | None, str, list[bytes]]] = {}

    def read_line(self, where: str, line: bytes) -> None:
        """Take a line of the log."""
        start = line.find(b"!")
        if start < 0:
            if line.lstrip().startswith((b"$", b"\\")):
                self.others += 1  # another sentence of NMEA: a compass, a GPS receiver
            else:
                text = line.strip()[:SHOWN].decode("ascii", "replace")
                self.found.skip(f"{where} has no sentence: {text!r}")
            return
        sentence = line[start:].split()[0]
        fields = sentence.split(b",")
        try:
            if len(fields) < 7 or fields[0][-3:] not in (b"VDM", b"VDO"):
                raise ValueError("is no sentence of AIS")
            parts, part = int(fields[1]), int(fields[2])
            t = line_time(line[:start])
        except ValueError as why:
            self.found.skip(f"{where} {why}")
            return
        self._take(where, (fields[3], fields[4]), parts, part, fields[5][:1], t, sentence)

    def _take(
        self, where: str, key: tuple[bytes, bytes], parts: int, part: int, kind: bytes,
        t: int | None, sentence: bytes,
    ) -> None:  # fmt: skip
        if part == 1:
            if not kind or kind not in REPORTS:
                self.others += 1
                return
            if parts == 1:
                self.add_report(where, t, [sentence])
                return
            self._leave_out(self.open.pop(key, None))
            if len(self.open) >= OPEN_REPORTS:
                self._leave_out(self.open.pop(next(iter(self.open))))
            self.open[key] = t, where, [sentence]
            return
        began = self.open.pop(key, None)
        if began is None:
            self.others += 1
            return
        first_time, first_where, sentences = began
        sentences.append(sentence)
        if part < parts:
            self.open[key] = began
            return
        self.add_report(first_where, t if first_time is None else first_time, sentences)

    def _leave_out(self, report: tuple[int | None, str, list[bytes]] | None) -> None:
        if report is not None:
            self.found.skip(f"{report[1]} begins a report that does not go on")

    def end(self) -> None:
        for report in self.open.values():
            self._leave_out(report)

    def add_report(self, where: str, t: int | None, sentences: list[bytes]) -> None:
        """Decode a complete report, and take its fix."""
        from pyais import decode
        from pyais.exceptions import AISBaseException

        try:
            report: Any = decode(*sentences, error_if_checksum_invalid=True).asdict()
        except (AISBaseException, ValueError, IndexError, TypeError, KeyError) as why:
            self.found.skip(f"{where} cannot be decoded: {' '.join(str(why).split())}")
            return
        lon, lat = (float(report.get(name) or 0.0) for name in ("lon", "lat"))
        if report.get("lat") is None or abs(lon) > 180 or abs(lat) > 90:
            self.found.skip(f"{where} reports no position")
        elif t is None:
            self.found.skip(f"{where} {NO_TIME}")
        else:
            self.found.add_one(where, f"{report['mmsi']:09}", t, lon, lat)


def line_time(before: bytes) -> int | None:
    """The time that stands before a sentence, in microseconds; None if none does.

    Raises ValueError if something else does.
    """
    text = before.decode("ascii", "replace").strip(" \t,;|[]")
    head, slash, block = text.partition("\\")
    if slash:
        if block.find("\\") != len(block) - 1:
            raise ValueError("has a tag block that does not end just before its sentence")
        content, star, checksum = block.rstrip("\\").partition("*")
        if star and checksum_of(content) != checksum.strip().upper():
            raise ValueError(f"has a tag block of a wrong checksum: {content[:SHOWN]!r}")
        for field in content.split(","):
            if field.startswith("c:"):
                return read_unix_time(field[2:])
        text = head.strip(" \t,;|[]")
    try:
        return read_unix_time(text[:SHOWN]) if text else None
    except ValueError as why:
        raise ValueError(f"has something else before its sentence: {why}") from None


def checksum_of(content: str) -> str:
    total = 0
    for letter in content.encode("ascii", "replace"):
        total ^= letter
    return f"{total:02X}"


def read_ais(file: AnyPath, found: FixCollector, progress: Callable[[int], None]) -> None:
    """All position reports of a log. `progress` is told how many lines are read."""
    assembler = _ReportAssembler(found)
    number = 0
    with BufferedReader(open_input(file)) as lines:
        while line := lines.readline(LONGEST_LINE):
            number += 1
            if line.strip():
                assembler.read_line(f"line {number}", line)
            if number % PROGRESS_LINES == 0:
                progress(number)
    assembler.end()
    if assembler.others:
        found.notes.append(f"{assembler.others:,} sentences are no position reports")
