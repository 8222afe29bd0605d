"""GeoJSON with times: each feature is an entity's way, or a place of it.

A way is a LineString or MultiPoint whose property `datetimes` (or `times`, `timestamps`,
`coordTimes`) has a time for each position, as `nearcast export` writes it; a Point has one as its
property `t`, `timestamp`, `time` or `datetime`.
"""

from collections.abc import Callable
from io import BufferedReader
from math import nan
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from nearcast.pipeline.movement.fix_collector import FixCollector
from nearcast.pipeline.movement.tables import NAMES
from nearcast.pipeline.movement.times import read_unix_time
from nearcast.storage import AnyPath, open_input

TIMES = ("datetimes", "times", "timestamps", "coordTimes")
TIME = (*NAMES["time"], "datetime")
ENTITY = ("name", *NAMES["entity"])  # an export has numbers, too
Positions = list[list[float]]


class _Geometry(Struct):
    type: str
    coordinates: Any = None


class _Feature(Struct):
    geometry: _Geometry
    properties: dict[str, Any] | None = None
    id: str | int | None = None


class _Collection(Struct, tag="FeatureCollection", tag_field="type"):
    features: list[Raw]
    crs: Any = UNSET  # of the standard before RFC 7946; null: a plane


def read_tracks(file: AnyPath, found: FixCollector, progress: Callable[[int], None]) -> None:
    """All places with times. `progress` is told how many features are read. Raises ValueError."""
    with BufferedReader(open_input(file)) as whole:
        try:
            collection = msgspec.json.decode(whole.read(), type=_Collection)
        except (msgspec.DecodeError, RecursionError) as why:
            raise ValueError(f"{file} is no GeoJSON FeatureCollection: {why}") from None
    if collection.crs is None:
        raise ValueError(
            f"{file} has places of a plane (its crs is null): import a CSV file with x and y"
        )
    for number, text in enumerate(collection.features):
        try:
            _add_feature(msgspec.json.decode(text, type=_Feature), number, found)
        except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError) as why:
            found.skip(f"feature {number} is no movement: {why}")
        if number % 1000 == 0:
            progress(number)


def _add_feature(feature: _Feature, number: int, found: FixCollector) -> None:
    """Raises ValueError, and nothing is added then."""
    properties = feature.properties or {}
    positions, times = _read_way(feature.geometry, properties)
    if len(positions) != len(times):
        raise ValueError(f"it has {len(positions)} positions and {len(times)} times")
    moments = [read_unix_time(str(time)) for time in times]
    named = [properties[key] for key in ENTITY if properties.get(key) is not None]
    name = str([*named, *([] if feature.id is None else [feature.id]), f"feature {number}"][0])
    heights = _heights(properties, len(positions))
    for place, (position, t) in enumerate(zip(positions, moments, strict=True)):
        where = f"position {place} of feature {number}"
        if len(position) < 2:
            found.skip(f"{where} has fewer than two numbers")
            continue
        height = position[2] if len(position) > 2 else heights[place]
        found.add_one(where, name, t, position[0], position[1], height)


def _heights(properties: dict[str, Any], count: int) -> list[float]:
    """The property `altitudes`, if it has one for each position."""
    given = properties.get("altitudes")
    if not isinstance(given, list) or len(given) != count:
        return [nan] * count
    return [nan if one is None else msgspec.convert(one, float) for one in given]


def _read_way(geometry: _Geometry, properties: dict[str, Any]) -> tuple[Positions, list[Any]]:
    if geometry.type == "Point":
        one = next((properties[key] for key in TIME if properties.get(key) is not None), None)
        times = _times(properties) if one is None else [one]
        return [msgspec.convert(geometry.coordinates, list[float])], times
    if geometry.type in ("LineString", "MultiPoint"):
        return msgspec.convert(geometry.coordinates, Positions), _times(properties)
    raise ValueError(f"it is a {geometry.type[:40]}, neither Point, LineString nor MultiPoint")


def _times(properties: dict[str, Any]) -> list[Any]:
    for key in TIMES:
        if isinstance(properties.get(key), list):
            return list(properties[key])
    raise ValueError(f"it has no times: a property {', '.join(TIMES)}")
