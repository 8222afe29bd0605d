"""Sectors and sensors of pSense against naive ones, and its packets byte by byte."""

from math import acos, asin, atan2, cos, degrees, dist, radians, sin, sqrt

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.protocols.psense import layouts
from nearcast.protocols.psense.layouts import PositionRecord, SensorSuggestion
from nearcast.protocols.psense.sectors import (
    SECTORS,
    PlacedNode,
    best_sensor,
    best_sensors,
    bisector,
    is_within_wider,
    sector_of,
)
from support.examples import examples

EXAMPLES = examples(200)
DIMENSIONS = pytest.mark.parametrize("dimensions", [2, 3])
COORDINATES = st.floats(-50, 50) | st.integers(-5, 5).map(float)


def naive_sector(direction: tuple[float, float, float]) -> int:
    angle = degrees(atan2(direction[1], direction[0])) % 360
    assume(min(angle % 45, 45 - angle % 45) > 1e-6)
    return int(angle // 45)


def naive_wider(sector: int, direction: tuple[float, float, float], dimensions: int) -> bool:
    if dimensions == 2:
        middle = radians(45 * sector + 22.5)
        cosine = (direction[0] * cos(middle) + direction[1] * sin(middle)) / dist(
            (0, 0), direction[:2]
        )
        off = degrees(acos(max(-1, min(1, cosine)))) - 27
    else:
        signs = [-1 if sector & bit else 1 for bit in (4, 2, 1)]
        length = dist((0, 0, 0), direction)
        off = max(-9 - degrees(asin(s * d / length)) for s, d in zip(signs, direction, strict=True))
    assume(abs(off) > 1e-6)
    return off < 0


@st.composite
def vectors(draw: st.DrawFn, dimensions: int) -> tuple[float, float, float]:
    return draw(COORDINATES), draw(COORDINATES), draw(COORDINATES) if dimensions == 3 else 0.0


@pytest.mark.parametrize(
    ("sector", "direction"),
    list(enumerate([(1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)])),
)
def test_a_sector_begins_with_its_border(sector: int, direction: tuple[int, int]) -> None:
    x, y = map(float, direction)
    assert sector_of((x, y, 0.0), 2) == sector


def test_the_last_sector_ends_where_the_first_begins() -> None:
    assert sector_of((1.0, -1e-300, 0.0), 2) == 7
    assert sector_of((1.0, 0.0, 0.0), 2) == 0
    for angle in (-4.4, 0.0, 22.5, 45.0, 49.4):
        assert is_within_wider(0, (cos(radians(angle)), sin(radians(angle)), 0.0), 2)
        assert is_within_wider(7, (cos(radians(-angle)), sin(radians(-angle)), 0.0), 2)
    for angle in (-4.6, 49.6, 180.0):
        assert not is_within_wider(0, (cos(radians(angle)), sin(radians(angle)), 0.0), 2)


@EXAMPLES
@given(direction=vectors(2))
def test_sectors_are_those_of_the_angle(direction: tuple[float, float, float]) -> None:
    assume(any(direction))
    assert sector_of(direction, 2) == naive_sector(direction)


@EXAMPLES
@given(direction=vectors(3))
def test_octants_follow_from_signs(direction: tuple[float, float, float]) -> None:
    sector = sector_of(direction, 3)
    for bit, number in zip((4, 2, 1), direction, strict=True):
        assert bool(sector & bit) == (number < 0)


@DIMENSIONS
@EXAMPLES
@given(data=st.data())
def test_widened_sectors_reach_a_tenth_of_their_angle_further(
    data: st.DataObject, dimensions: int
) -> None:
    direction = data.draw(vectors(dimensions))
    assume(dist((0, 0, 0), direction) > 1e-3)
    for sector in range(SECTORS):
        expected = naive_wider(sector, direction, dimensions)
        assert is_within_wider(sector, direction, dimensions) == expected
    assert is_within_wider(sector_of(direction, dimensions), direction, dimensions)


@DIMENSIONS
def test_a_bisector_is_in_its_sector_and_has_length_one(dimensions: int) -> None:
    for sector in range(SECTORS):
        middle = bisector(sector, dimensions)
        assert sector_of(middle, dimensions) == sector
        assert dist((0, 0, 0), middle) == pytest.approx(1.0)


def naive_sensor(
    sector: int, here: tuple[float, ...], radius: float, spots: list[PlacedNode], dimensions: int
) -> int | None:
    """As its authors' programs have it."""

    def direction(spot: PlacedNode) -> tuple[float, float, float]:
        x, y, z = (p - h for p, h in zip(spot.place, here, strict=True))
        return x, y, z

    beyond = [spot for spot in spots if dist(spot.place, here) > radius]
    for belongs in (
        lambda spot: sector_of(direction(spot), dimensions) == sector,
        lambda spot: is_within_wider(sector, direction(spot), dimensions),
    ):
        found = [(dist(spot.place, here), spot.node) for spot in beyond if belongs(spot)]
        if found:
            return min(found)[1]
    if dimensions == 2:
        angle = radians(45 * sector + 22.5)
        middle = (cos(angle), sin(angle), 0.0)
    else:
        middle = tuple((-1 if sector & bit else 1) / sqrt(3) for bit in (4, 2, 1))
    edge = tuple(h + radius * m for h, m in zip(here, middle, strict=True))
    ordered = sorted((dist(spot.place, edge), spot.node) for spot in spots)
    if len(ordered) > 1:
        assume(ordered[1][0] - ordered[0][0] > 1e-9 or ordered[0][0] == ordered[1][0])
    return ordered[0][1] if ordered else None


@DIMENSIONS
@EXAMPLES
@given(data=st.data(), radius=st.floats(0, 40))
def test_sensors_are_chosen_as_the_naive_way_has_it(
    data: st.DataObject, radius: float, dimensions: int
) -> None:
    here = data.draw(vectors(dimensions))
    places = data.draw(st.lists(vectors(dimensions), max_size=12, unique=True))
    spots = [PlacedNode(node, place) for node, place in enumerate(places)]
    expected = [naive_sensor(k, here, radius, spots, dimensions) for k in range(SECTORS)]
    assert [best_sensor(k, here, radius, spots, dimensions) for k in range(SECTORS)] == expected
    assert best_sensors(here, radius, spots, dimensions) == expected


# Packets.

NAMES = st.integers(0, 2**32 - 1) | st.integers(0, 2**53 - 1)
SHORT = st.floats(-1e6, 1e6, width=32)


@st.composite
def sightings(draw: st.DrawFn, dimensions: int) -> PositionRecord:
    place = (draw(SHORT), draw(SHORT), draw(SHORT) if dimensions == 3 else 0.0)
    radius = draw(st.floats(0, 1e6, width=32))
    numbers = draw(st.integers(0, 2**16 - 1)), draw(st.integers(0, 255))
    return PositionRecord(draw(NAMES), place, radius, *numbers)


@DIMENSIONS
@EXAMPLES
@given(data=st.data())
def test_packets_contain_what_was_put_into_them(data: st.DataObject, dimensions: int) -> None:
    seen = data.draw(sightings(dimensions))
    receivers = tuple(data.draw(st.lists(NAMES, max_size=5)))
    sector = data.draw(st.integers(0, 7))
    position = layouts.pack_position(seen, receivers, dimensions)
    assert layouts.unpack_position(position, dimensions) == (seen, receivers)
    request = layouts.pack_request(seen, sector, dimensions)
    assert layouts.unpack_request(request, dimensions) == (seen, sector)
    response = SensorSuggestion(
        data.draw(NAMES), sector, seen, data.draw(st.integers(0, 2**16 - 1))
    )
    packet = layouts.pack_response(response, dimensions)
    assert layouts.unpack_response(packet, dimensions) == response
    other = 5 - dimensions
    for one in (position, request, packet):
        assert layouts.unpack_position(one, other) is None
        assert layouts.unpack_request(one, other) is None
        assert layouts.unpack_response(one, other) is None


@pytest.mark.parametrize(("dimensions", "base"), [(2, 16), (3, 20)])
def test_packets_have_the_sizes_of_the_protocol(dimensions: int, base: int) -> None:
    seen = PositionRecord(7, (1.0, 2.0, 0.0), 100.0, 5, 3)
    assert len(layouts.pack_position(seen, (), dimensions)) == base + 4
    assert len(layouts.pack_position(seen, (1, 2, 3), dimensions)) == base + 4 + 3 * 4
    assert len(layouts.pack_request(seen, 7, dimensions)) == base + 4 + 1
    suggestion = SensorSuggestion(9, 1, seen, 2)
    assert len(layouts.pack_response(suggestion, dimensions)) == base + 4 + 1 + 12


@DIMENSIONS
@EXAMPLES
@given(data=st.data())
def test_damaged_packets_are_refused_or_valid(data: st.DataObject, dimensions: int) -> None:
    seen = data.draw(sightings(dimensions))
    honest = data.draw(
        st.sampled_from(
            [
                layouts.pack_position(seen, (1, 2), dimensions),
                layouts.pack_request(seen, 3, dimensions),
                layouts.pack_response(SensorSuggestion(1, 2, seen, 3), dimensions),
            ]
        )
    )
    spoilt = bytearray(honest)
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(honest) - 1), st.integers(0, 255)), max_size=6)
    ):
        spoilt[at] = value
    packet = bytes(spoilt)[: data.draw(st.integers(0, len(honest)))] + data.draw(
        st.binary(max_size=9)
    )
    for read in (layouts.unpack_position, layouts.unpack_request, layouts.unpack_response):
        opened = read(packet, dimensions)
        if opened is not None:
            found = next(part for part in opened if isinstance(part, PositionRecord))
            assert found.radius >= 0
            assert all(abs(c) <= 2e29 for c in found.place)
            assert found.node < 2**53


@given(sequence=st.integers(0, 2**16 - 1), steps=st.integers(1, 2**15 - 1))
def test_sequence_numbers_wrap_around(sequence: int, steps: int) -> None:
    later = (sequence + steps) % 2**16
    assert layouts.is_newer(later, sequence)
    assert not layouts.is_newer(sequence, later)
    assert not layouts.is_newer(sequence, sequence)
