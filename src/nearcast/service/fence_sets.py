"""Named sets of fences, as GeoJSON: read and checked here, which needs no state of the node.

A host may read a large set in a thread of its own and hand over the result.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from nearcast.client_protocol.geometry_json import EARTH, Geometry
from nearcast.client_protocol.limits import Limits, check_geometry
from nearcast.client_protocol.messages import DECODE_ERRORS, FeatureId
from nearcast.errors import Refused
from nearcast.fences.areas import Fence, FenceColumns, columns_of
from nearcast.space.geojson import shape_from_geojson
from nearcast.space.motion import Moving
from nearcast.space.shapes import Shape


class FeatureCollection(Struct, frozen=True, tag="FeatureCollection", tag_field="type"):
    """A set as HTTP gives it. `remove`: ids of features that end, when a set is changed."""

    features: list[Raw] = []
    remove: list[FeatureId] = []


class PreparedFences(NamedTuple):
    """Features that are valid: ids, shapes, the JSON of each, and columns without numbers."""

    ids: list[FeatureId]
    shapes: list[Shape]
    texts: list[bytes]
    columns: FenceColumns


class FenceSet:
    """A set as it is now. A fence has a number in engines, which is never used again."""

    def __init__(self) -> None:
        self.numbers: dict[FeatureId, int] = {}
        self.ids: dict[int, FeatureId] = {}
        self.shapes: dict[int, Shape] = {}
        self.texts: dict[int, bytes] = {}
        self._columns: FenceColumns | None = None  # of all, until something changes

    def __len__(self) -> int:
        return len(self.numbers)

    def put(self, prepared: PreparedFences, numbers: list[int]) -> FenceColumns:
        """Take these over under these numbers; returns their columns."""
        prepared.columns.areas["number"] = numbers
        whole = not self.numbers
        self.numbers.update(zip(prepared.ids, numbers, strict=True))
        self.ids.update(zip(numbers, prepared.ids, strict=True))
        self.shapes.update(zip(numbers, prepared.shapes, strict=True))
        self.texts.update(zip(numbers, prepared.texts, strict=True))
        self._columns = prepared.columns if whole or len(numbers) == len(self) else None
        return prepared.columns

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.numbers[self.ids.pop(number)], self.shapes[number], self.texts[number]
            self._columns = None

    def columns(self) -> FenceColumns:
        """Of all its fences."""
        if self._columns is None:
            fences = [Fence(number, Moving(shape)) for number, shape in self.shapes.items()]
            self._columns = columns_of(fences, 0)
        return self._columns

    def geojson(self) -> bytes:
        """As a FeatureCollection."""
        features = b",\n".join(self.texts.values())
        return b'{"type":"FeatureCollection","features":[\n' + features + b"]}\n"


def read_collection(
    body: bytes, limits: Limits, geometry: Geometry, numbered: bool
) -> tuple[PreparedFences, list[FeatureId]]:
    """A FeatureCollection as JSON, and the ids that it removes. Refused says what is wrong where.

    `numbered`: a feature without an id is called by its place, from 0 on.
    """
    try:
        collection = _decode_collection(body)
    except DECODE_ERRORS as why:
        raise Refused(f"this is no GeoJSON FeatureCollection: {str(why)[:200]}") from None
    texts = [bytes(text) for text in collection.features]
    features = (_decode_object(text, place) for place, text in enumerate(texts))
    return prepare_fences(features, texts, limits, geometry, numbered), collection.remove


_decode_collection = msgspec.json.Decoder(FeatureCollection).decode
_decode_feature = msgspec.json.Decoder(dict[str, Any]).decode


def _decode_object(text: bytes, place: int) -> dict[str, Any]:
    try:
        return _decode_feature(text)
    except DECODE_ERRORS as why:
        raise Refused(f"feature {place}: {str(why)[:200]}") from None


def prepare_fences(
    features: Iterable[Mapping[str, Any]], texts: list[bytes], limits: Limits, geometry: Geometry,
    numbered: bool,
) -> PreparedFences:  # fmt: skip
    """Checked features with their texts; Refused names the one that is wrong."""
    if len(texts) > limits.fences:
        raise Refused(f"the sets of this node have at most {limits.fences} fences")
    ids: dict[FeatureId, None] = {}
    shapes = []
    for place, feature in enumerate(features):
        which = feature.get("id", place if numbered else None)
        if isinstance(which, bool) or not isinstance(which, str | int):
            raise Refused(f"feature {place}: an id is a text or an integer")
        if isinstance(which, int) and abs(which) >= 2**53:
            raise Refused(f"feature {place}: an id as an integer is below 2**53")
        if which in ids:
            raise Refused(f"feature {place}: its id {str(which)[:64]!a} occurs twice")
        try:
            shapes.append(_read_shape(feature, limits, geometry))
        except (ValueError, Refused) as why:
            reason = " ".join(str(why)[:300].split())
            raise Refused(f"feature {str(which)[:64]!a}: {reason}") from None
        ids[which] = None
    columns = columns_of([Fence(0, Moving(shape)) for shape in shapes], 0)
    return PreparedFences(list(ids), shapes, texts, columns)


def _read_shape(feature: Mapping[str, Any], limits: Limits, geometry: Geometry) -> Shape:
    if feature.get("type") != "Feature":
        raise ValueError("the type of a fence is Feature")
    if isinstance(feature.get("geometry"), dict):
        check_geometry(feature["geometry"], limits, geometry)
    return shape_from_geojson(feature, geometry == EARTH)
