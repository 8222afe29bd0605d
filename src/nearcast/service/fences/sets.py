"""Named sets of fences, as GeoJSON: read and checked here, which needs no state of the node.

A host may read a large set in a thread of its own and hand over the result.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct

from nearcast.client_protocol.geometry_json import EARTH, Geometry
from nearcast.client_protocol.limits import Limits, check_geometry
from nearcast.client_protocol.messages import DECODE_ERRORS, FeatureId
from nearcast.errors import Refused
from nearcast.fences.areas import FenceColumns, join_columns, select_columns
from nearcast.fences.feature_areas import areas_of_features
from nearcast.space.geojson import shape_from_geojson
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape, ShapeKind


class FeatureCollection(Struct, frozen=True, tag="FeatureCollection", tag_field="type"):
    """A set as HTTP gives it. `remove`: ids of features that end, when a set is changed."""

    features: list[Raw] = []
    remove: list[FeatureId] = []


class PreparedFences(NamedTuple):
    """Features that are valid: ids, the JSON of each, and columns without numbers."""

    ids: list[FeatureId]
    texts: list[bytes]
    columns: FenceColumns


class FenceSet:
    """A set as it is now. A fence has a number in engines, which is never used again."""

    def __init__(self) -> None:
        self.numbers: dict[FeatureId, int] = {}
        self.ids: dict[int, FeatureId] = {}
        self.texts: dict[int, bytes] = {}
        self.changed: Time = 0  # when, and later than the change before
        self._put: list[FenceColumns] = []  # of a fence that was put twice, the last row counts
        self._changed = False  # something else than these is in the set

    def __len__(self) -> int:
        return len(self.numbers)

    def put(self, prepared: PreparedFences, numbers: list[int]) -> FenceColumns:
        """Take these over under these numbers; returns their columns."""
        prepared.columns.areas["number"] = numbers
        before = len(self)
        self.numbers.update(zip(prepared.ids, numbers, strict=True))
        self.ids.update(zip(numbers, prepared.ids, strict=True))
        self.texts.update(zip(numbers, prepared.texts, strict=True))
        if len(numbers) == len(self):
            self._put, self._changed = [prepared.columns], False
        elif numbers:
            self._put.append(prepared.columns)
            self._changed |= len(self) < before + len(numbers)
        if sum(len(columns.areas) for columns in self._put) > 2 * len(self):
            self.columns()
        return prepared.columns

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.numbers[self.ids.pop(number)], self.texts[number]
            self._changed = True

    def columns(self) -> FenceColumns:
        """Of all its fences."""
        if len(self._put) != 1 or self._changed:
            all_put = join_columns(self._put)
            if self._changed:
                numbers = all_put.areas["number"].tolist()
                row_of = {number: row for row, number in enumerate(numbers)}
                rows = np.array([row_of[number] for number in self.ids], np.int64)
                all_put = select_columns(all_put, rows)
            self._put, self._changed = [all_put], False
        return self._put[0]

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
    return prepare_fences(texts, limits, geometry, numbered), collection.remove


class _Identified(Struct):
    id: Any = UNSET


_decode_collection = msgspec.json.Decoder(FeatureCollection).decode
_decode_identified = msgspec.json.Decoder(_Identified).decode
_decode_feature = msgspec.json.Decoder(dict[str, Any]).decode


def prepare_fences(
    texts: list[bytes], limits: Limits, geometry: Geometry, numbered: bool
) -> PreparedFences:
    """Features as JSON, checked; Refused names the one that is wrong."""
    if len(texts) > limits.fences:
        raise Refused(f"the sets of this node have at most {limits.fences} fences")
    known: dict[FeatureId, None] = {}
    unnamed: list[int] = []
    for place, text in enumerate(texts):
        which = _read_id(text, place)
        if which is None and numbered:
            which = place
            unnamed.append(place)
        if which is None:
            raise Refused(f"feature {place}: an id is a text or an integer")
        if which in known:
            raise Refused(f"feature {place}: its id {str(which)[:64]!a} occurs twice")
        known[which] = None
    ids = list(known)

    def read_one(place: int) -> Shape:
        try:
            return _read_shape(_decode_feature(texts[place]), limits, geometry)
        except (*DECODE_ERRORS, Refused) as why:
            reason = " ".join(str(why)[:300].split())
            raise Refused(f"feature {str(ids[place])[:64]!a}: {reason}") from None

    columns = areas_of_features(texts, geometry == EARTH, read_one, limits.vertices)
    if unnamed:  # whoever gets the set needs their ids to change them
        texts = texts.copy()
        for place in unnamed:
            texts[place] = b'{"id":%d,' % place + texts[place].lstrip().removeprefix(b"{")
    return PreparedFences(ids, texts, columns)


def _read_id(text: bytes, place: int) -> FeatureId | None:
    """None if it has none."""
    try:
        which = _decode_identified(text).id
    except DECODE_ERRORS as why:
        raise Refused(f"feature {place}: {str(why)[:200]}") from None
    if which is UNSET:
        return None
    if isinstance(which, bool) or not isinstance(which, str | int):
        raise Refused(f"feature {place}: an id is a text or an integer")
    if isinstance(which, int) and abs(which) >= 2**53:
        raise Refused(f"feature {place}: an id as an integer is below 2**53")
    return which


def read_features(
    texts: Mapping[FeatureId, bytes], limits: Limits, geometry: Geometry
) -> PreparedFences:
    """Features that another node has accepted, by ids: all but those that are refused here."""
    given = list(texts.values())

    def read_one(place: int) -> Shape:
        return _read_shape(_decode_feature(given[place]), limits, geometry)

    with suppress(*DECODE_ERRORS, Refused):
        columns = areas_of_features(given, geometry == EARTH, read_one, limits.vertices)
        return PreparedFences(list(texts), given, columns)
    accepted = {}
    for place, which in enumerate(texts):
        with suppress(*DECODE_ERRORS, Refused):
            read_one(place)
            accepted[which] = given[place]
    return read_features(accepted, limits, geometry)


def _read_shape(feature: Mapping[str, Any], limits: Limits, geometry: Geometry) -> Shape:
    if feature.get("type") != "Feature":
        raise ValueError("the type of a fence is Feature")
    if isinstance(feature.get("geometry"), dict):
        check_geometry(feature["geometry"], limits, geometry)
    shape = shape_from_geojson(feature, geometry == EARTH)
    if shape.kind == ShapeKind.POINT:
        raise ValueError("a Point needs the property radius to be an area")
    return shape
