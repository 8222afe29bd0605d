"""Fences as a few arrays: read from GeoJSON, packed into bytes, and sent to workers once.

A million polygons of 36 vertices are 0.8 GB. So many do not travel with each task: they are a file
of the Spark session, which each machine fetches once, and each worker process reads once.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from nearcast.fences.areas import Fence, FenceColumns, columns_of, join_columns
from nearcast.fences.feature_areas import areas_of_features
from nearcast.space.geojson import shape_from_geojson
from nearcast.space.motion import Moving
from nearcast.space.shapes import POINT, Shape
from nearcast.storage import PathInput, locate

FEW_BYTES = 2**20  # so many travel with the function that uses them
AT_ONCE = 10_000  # fences that are Python objects at the same time
SHOWN = 40  # characters of an id that an error quotes


class _FeatureCollection(Struct):
    type: str
    features: list[msgspec.Raw]


class _Labels(Struct):
    """What a feature is called, and what is known about it."""

    type: str
    properties: dict[str, Any] | None = None
    id: str | int | float | None = None


_read_collection = msgspec.json.Decoder(_FeatureCollection).decode
_read_labels = msgspec.json.Decoder(_Labels).decode
_read_feature = msgspec.json.Decoder(dict[str, Any]).decode


class PackedFences(NamedTuple):
    """Fences that stand still, by number, with the texts by which people know them."""

    columns: FenceColumns
    ids: pa.Array  # texts
    kept: dict[str, pa.Array]  # properties, as texts; null: the fence has none


def read_fences(file: PathInput, earth: bool, keep: Sequence[str] = ()) -> PackedFences:
    """The features of a GeoJSON FeatureCollection.

    A feature without an id is known by its property `id`, else by its place in the file, from 0.
    Raises ValueError with one clear sentence, or OSError.
    """
    place = locate(file)
    try:
        content = _read_collection(place.read_bytes())
        if content.type != "FeatureCollection":
            raise ValueError(f"it is a {content.type[:SHOWN]!r}")
    except (msgspec.MsgspecError, ValueError, RecursionError) as why:
        raise ValueError(f"{place} is no GeoJSON FeatureCollection: {why}") from None
    kept: dict[str, list[str | None]] = {name: [] for name in keep}
    ids: list[str] = []

    for number, text in enumerate(content.features):
        try:
            labels = _read_labels(text)
        except msgspec.MsgspecError as why:
            raise ValueError(f"{place}, feature {number}: it is no Feature: {why}") from None
        properties = labels.properties or {}
        name = properties.get("id") if labels.id is None else labels.id
        ids.append(str(number if name is None else name))
        for each, values in kept.items():
            values.append(text_of(properties.get(each)))

    def read_one(number: int) -> Shape:
        text = content.features[number]
        try:
            return read_area(text, earth)
        except ValueError as why:
            raise ValueError(f"{place}, feature {number}{_known_as(text)}: {why}") from None

    columns = areas_of_features(content.features, earth, read_one)
    columns.areas["number"] = np.arange(len(columns.areas))
    return checked(PackedFences(columns, texts(ids), {n: texts(v) for n, v in kept.items()}))


def read_area(text: msgspec.Raw, earth: bool) -> Shape:
    """A feature that is an area."""
    feature = _read_feature(text)
    if feature["type"] != "Feature":
        raise ValueError(f"it is no Feature, but a {str(feature['type'])[:SHOWN]!r}")
    shape = shape_from_geojson(feature, earth)
    if shape.kind == POINT:
        raise ValueError("a Point needs the property radius to be an area")
    return shape


def _known_as(text: msgspec.Raw) -> str:
    """How people know a feature that cannot be read, if that can be."""
    try:
        name = _read_labels(text).id
    except msgspec.MsgspecError:
        return ""
    return "" if name is None else f" ({str(name)[:SHOWN]!r})"


def text_of(value: Any) -> str | None:
    """A property as a text: what is none is written as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def fences_of_shapes(fences: Sequence[tuple[Any, Shape]], earth: bool) -> PackedFences:
    """Fences from pairs of an id and a shape."""
    for name, shape in fences:
        known_as = f"fence {str(name)[:SHOWN]!r}"
        if not isinstance(shape, Shape):
            raise ValueError(f"{known_as} must be a Shape, not {type(shape).__name__}")
        if shape.outline is not None and shape.outline.earth != earth:
            where = ("in a plane", "on Earth")
            raise ValueError(f"{known_as} is {where[not earth]}, the fixes are {where[earth]}")
    columns = columns_of_shapes(shape for _, shape in fences)
    return checked(PackedFences(columns, texts([str(name) for name, _ in fences]), {}))


def texts(values: Sequence[str | None]) -> pa.Array:
    return pa.array(values, pa.large_string())


def checked(fences: PackedFences) -> PackedFences:
    """Refuse two fences of the same id."""
    counts = fences.ids.value_counts()
    repeated = counts.field("values").filter(pa.array(counts.field("counts").to_numpy() > 1))
    if len(repeated):
        raise ValueError(f"two fences have the id {repeated[0].as_py()[:SHOWN]!r}")
    return fences


def columns_of_shapes(shapes: Iterable[Shape]) -> FenceColumns:
    """Areas with numbers from 0. What is asked about them is set where they are used."""
    blocks = []
    fences = (Fence(number, Moving(shape)) for number, shape in enumerate(shapes))
    while some := list(islice(fences, AT_ONCE)):
        blocks.append(columns_of(some, 0))
    return join_columns(blocks)


# Their way to workers.


class SentFences(NamedTuple):
    """Fences as a function takes them to workers: as they are, or in a file of the session."""

    digest: str
    fences: PackedFences | None

    @property
    def file(self) -> str:
        return f"nearcast-fences-{self.digest}.pickle"

    def receive(self) -> PackedFences:
        if self.fences is not None:
            return self.fences
        with open(SparkFiles.get(self.file), "rb") as file:
            found: PackedFences = pickle.load(file)
            return found


def send_fences(spark: SparkSession, fences: PackedFences) -> SentFences:
    """Make fences known to the workers of this session; the same ones travel once."""
    digest = sha256()
    size = 0
    for buffer in buffers_of(fences):
        digest.update(buffer)
        size += memoryview(buffer).nbytes
    name = digest.hexdigest()[:32]
    if size <= FEW_BYTES:
        return SentFences(name, fences)
    sent = SentFences(name, None)
    file = Path(_folder_until_exit().name) / sent.file
    if not file.exists():
        with file.open("wb") as opened:
            pickle.dump(fences, opened, pickle.HIGHEST_PROTOCOL)
    spark.addArtifacts(str(file), file=True)
    return sent


def buffers_of(fences: PackedFences) -> Iterator[Any]:
    """All bytes that tell these fences from others."""
    for column in fences.columns:
        yield np.ascontiguousarray(column).view(np.uint8)
    for name, texts in {"": fences.ids, **fences.kept}.items():
        yield name.encode()
        yield from (buffer for buffer in texts.buffers() if buffer is not None)


@cache
def _folder_until_exit() -> TemporaryDirectory[str]:
    """Executors that start later get their files from there."""
    return TemporaryDirectory(prefix="nearcast-")
