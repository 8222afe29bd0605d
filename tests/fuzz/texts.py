"""Targets: messages of protocols, traces on disk, formulas and areas."""

import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import msgspec

from nearcast.client_protocol.geometry_json import EARTH, PLANE, Area, region_from_area
from nearcast.client_protocol.limits import Limits, checked_region
from nearcast.errors import FormulaError, Refused, TraceError, WireError
from nearcast.model import predicates
from nearcast.model.intervals import swept_box
from nearcast.model.subscription import Filter, Formula
from nearcast.model.variables import bind
from nearcast.protocols import client_server
from nearcast.protocols.brokers import messages as brokers
from nearcast.protocols.bubblestorm import messages as bubblestorm
from nearcast.protocols.drtree import messages as drtree
from nearcast.protocols.psense import messages as psense
from nearcast.protocols.relays import directory
from nearcast.protocols.relays import messages as relay_messages
from nearcast.protocols.voronoi import von
from nearcast.protocols.voronoi.vso import overlay as vso
from nearcast.service.cluster import messages as cluster
from nearcast.space.shapes import disc
from nearcast.trace.reader import digest, read, scenario
from nearcast.trace.schema import TABLES
from nearcast.trace.validate import validate
from nearcast.wire import Codec

MODULES: tuple[ModuleType, ...] = (
    client_server, brokers, bubblestorm, drtree, psense, relay_messages, directory, von, vso,
    cluster,
)  # fmt: skip
CODECS: tuple[Codec, ...] = tuple(module.CODEC for module in MODULES)
LIMITS = Limits()
NAMES = tuple(TABLES)


SEPARATOR = b"\xc1\xc1"  # between the messages of one input


def messages(data: bytes) -> None:
    """Messages of any protocol; the first byte says of which."""
    if not data:
        return
    codec = CODECS[data[0] % len(CODECS)]
    for frame in data[1:].split(SEPARATOR)[:100]:
        try:
            message = codec.decode(frame)
        except WireError as why:
            assert "\n" not in str(why)
            continue
        again = codec.decode(codec.encode(message))
        assert type(again) is type(message)


@cache
def _folder() -> Path:
    """One for all inputs; what is in it is written anew for each."""
    return Path(tempfile.mkdtemp(prefix="nearcast-fuzz-"))


def trace(data: bytes) -> None:
    """A file of a trace, damaged: the first byte says which one. TraceError or sound rows."""
    if not data:
        return
    root, which = _folder(), data[0] % (len(NAMES) + 2)
    for old in root.rglob("*"):
        if old.is_file():
            old.unlink()
    if which < len(NAMES):
        (root / NAMES[which]).mkdir(exist_ok=True)
        (root / NAMES[which] / "part-0.parquet").write_bytes(data[1:])
    else:
        (root / NAMES[0]).mkdir(exist_ok=True)
        file = "scenario.json" if which == len(NAMES) else "summary.json"
        (root / file).write_bytes(data[1:])
    for reads in (lambda: [read(root, name) for name in TABLES], lambda: digest(root)):
        try:
            reads()
        except TraceError as why:
            assert "\n" not in str(why)
    try:
        scenario(root)
    except TraceError as why:
        assert "\n" not in str(why)
    validate(root)


def formulas(data: bytes) -> None:
    """A formula and a filter, as a client may send them, looked at as matchers do."""
    text = data.decode("utf-8", "ignore")[: LIMITS.formula]
    for values in ({}, {"v": 2.5, "limit": -0.0}):
        try:
            bound = bind(text, values)
        except FormulaError as why:
            assert "\n" not in str(why)
            continue
        parsed = predicates.parse(bound)
        for t in (0.0, 1.5, 1e6):
            predicates.accepts(parsed, {"kind": "orc", "level": 3, "ripe": True, "a": 0.5}, t)
            predicates.box_at(parsed, t)
        swept_box(parsed, 0.0, 1e3)
        for kind in (Formula, Filter):
            try:
                made = kind(bound)
            except ValueError:
                continue
            if isinstance(made, Formula):
                made.stamped(5).touches(disc(1, 2, 3), 1_000_000)


def areas(data: bytes) -> None:
    """An area in JSON, as a client may send it."""
    try:
        area = msgspec.json.decode(data, type=Area)
        geometry = PLANE if area.lon is None and area.bounds is None else EARTH
        where = checked_region(area, LIMITS, geometry)
        where = Formula(where) if isinstance(where, str) else region_from_area(area, geometry)
        stamped = where.stamped(1_000_000)
    except (Refused, ValueError, RecursionError, msgspec.MsgspecError):
        return
    for t in (0, 1_000_000, 10**12, 2**53 - 1):
        stamped.touches(disc(1, 2, 3), t)
