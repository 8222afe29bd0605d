"""Land on maps of reports, against shapely and by places that everybody knows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapely import Point, Polygon, box, make_valid, union_all

from nearcast.pipeline.report import land, maps
from nearcast.pipeline.report.plots import PlotRings, PlotText, png, svg
from nearcast.space.earth import ecef
from support.examples import examples

SIDES = st.floats(0.5, 60)
LAKE_AND_SHORES = [(51.0, 41.5), (-140.0, 33.0), (-175.0, 60.0)]  # the Caspian Sea, and others
ON_LAND = [(-100.0, 41.0), (65.0, 63.0), (133.0, -24.0), (-175.0, 66.8), (20.0, 3.0)]


def density(west: float, south: float, east: float, north: float) -> pa.Table:
    """One entity in each corner."""
    corners = [(0, 0), (63, 0), (0, 63), (63, 63)]
    return pa.Table.from_pylist([
        {"second": 0, "cell_x": x, "cell_y": y, "entities": 1, "x_low": west, "y_low": south,
         "cell_width": (east - west) / 64, "cell_height": (north - south) / 64}
        for x, y in corners
    ])  # fmt: skip


def test_land_and_lakes_are_where_they_are() -> None:
    rings = [Polygon(ring) for ring in land.land_rings()]

    def rings_around(lon: float, lat: float) -> int:
        return sum(
            ring.contains(Point(lon + turn, lat)) for ring in rings for turn in (-360, 0, 360)
        )

    assert [rings_around(*place) % 2 for place in ON_LAND] == [1] * len(ON_LAND)
    assert [rings_around(*place) % 2 for place in LAKE_AND_SHORES] == [0] * len(LAKE_AND_SHORES)
    holes = [ring for ring in land.land_rings() if land.signed_area(ring.tolist()) > 0]
    assert [Polygon(ring).contains(Point(51.0, 41.5)) for ring in holes] == [True]


@given(st.floats(-180, 180), st.floats(-70, 60), SIDES, SIDES)
@examples(30)
def test_a_ring_is_cut_as_shapely_cuts_it(
    west: float, south: float, wide: float, high: float
) -> None:
    east, north = west + wide, south + high
    # Every ring whose vertices shapely finds valid; simplified ones may touch themselves.
    for ring in land.land_rings()[:400:7]:
        whole = Polygon(ring)
        if not whole.is_valid:
            continue
        kept = land._clipped(ring, west, south, east, north)
        wanted = whole.intersection(box(west, south, east, north)).area
        found = abs(land.signed_area(kept.tolist())) if len(kept) > 2 else 0.0
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "bounds", [(-8.0, 47.0, 4.0, 53.0), (170.0, -25.0, 190.0, -10.0), (44.0, 35.0, 58.0, 48.0)]
)
def test_a_map_has_the_land_of_its_part_of_the_earth(bounds: tuple[float, ...]) -> None:
    west, south, east, north = bounds
    plot = maps.world_map("map", "A fleet", density(*bounds), None, [0], 1, earth=True)
    (drawn,) = [mark for mark in plot.marks if isinstance(mark, PlotRings)]
    place = maps.grid_layout(density(*bounds), earth=True)
    (left, bottom), (right, top) = place.at(west, south), place.at(east, north)
    wide, high = right - left, bottom - top
    middle = np.cos(np.radians((south + north) / 2))
    assert wide / high == pytest.approx((east - west) / (north - south) * middle, rel=0.2)
    every = union_all(
        [
            make_valid(Polygon(np.add(ring, (turn, 0.0))))
            for ring in land.land_rings()
            for turn in (-360, 0, 360)
            if land.signed_area(ring.tolist()) < 0
        ]
    )
    lakes = union_all([
        Polygon(ring) for ring in land.land_rings() if land.signed_area(ring.tolist()) > 0
    ])  # fmt: skip
    share = every.difference(lakes).intersection(box(*bounds)).area
    share /= (east - west) * (north - south)
    filled = sum(
        (-1 if hole else 1) * abs(land.signed_area(ring))
        for ring, hole in zip(drawn.rings, drawn.holes, strict=True)
    )
    assert filled / (wide * high) == pytest.approx(share, abs=0.01)
    assert len(svg(plot)) < 30_000
    assert png(plot)


def test_a_map_of_the_whole_earth_stays_small_and_has_degrees() -> None:
    whole = density(-180.0, -60.0, 180.0, 80.0)
    plot = maps.world_map("map", "A fleet", whole, None, [0], 1, earth=True)
    assert len(svg(plot)) < 100_000
    texts = {mark.text for mark in plot.marks if isinstance(mark, PlotText)}
    assert {"100° W", "0°", "100° E", "50° N", "50° S", "longitude and latitude"} <= texts
    plane = maps.world_map("map", "A game", whole, None, [0], 1)
    assert not [mark for mark in plane.marks if isinstance(mark, PlotRings)]


def test_misses_on_earth_are_drawn_on_either_side_of_the_antimeridian() -> None:
    places = [(179.0, -17.0), (-179.0, -17.0), (8.5, 47.4)]
    x, y, z = zip(*(ecef(*place) for place in places), strict=True)
    missed = pa.table({"second": [0, 0, 0], "x": x, "y": y, "z": z})
    place = maps.grid_layout(density(178.0, -19.0, 182.0, -15.0), earth=True)
    ((dots,),), note = maps.missed_marks(missed, place, [0])
    drawn = sorted(spot for (spot,) in dots.strokes)
    wanted = [place.at(lon, -17.0) for lon in (179.0, 181.0)]
    assert [pytest.approx(spot, abs=0.06) for spot in wanted] == drawn, "not what is elsewhere"
    assert "3 in all" in note


def test_a_fleet_that_stands_in_one_place_is_drawn_all_the_same() -> None:
    plot = maps.world_map("a", "b", density(8.5, 47.4, 8.5, 47.4), None, [0], 3, earth=True)
    assert plot.width > 0 and svg(plot)
    line = maps.grid_layout(density(8.0, 47.4, 9.0, 47.4), earth=True)
    assert line.cell_height == line.cell_width, "a fleet on one parallel has a map with both sides"
