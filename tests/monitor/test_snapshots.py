"""Areas as the page is told of them."""

from math import inf

import pytest

from nearcast.monitor import snapshots
from nearcast.monitor.snapshots import area_row, drawn_outline, vertex_rows
from nearcast.space.earth import ecef
from nearcast.space.earth_shapes import earth_ball, earth_bounds, earth_disc, great_circle_line
from nearcast.space.motion import SECOND, Moving
from nearcast.space.outlines import POLYGON, Outline, pack
from nearcast.space.shapes import EVERYWHERE, Shape, ShapeKind, box


def test_a_disc_on_earth_has_degrees_and_metres_and_moves_in_degrees() -> None:
    way = great_circle_line(earth_disc(179.999, 0.0, 500.0), (-179.999, 0.0), 10.0)
    assert isinstance(way, Moving)
    row = area_row(7, way.stamped(0), 5 * SECOND, earth=True)
    assert row is not None
    owner, kind, lon, lat, rx, ry, vx, vy, _, _, left = row
    assert (owner, kind) == (7, ShapeKind.DISC)
    degrees = 10.0 / 111_319.49  # of longitude in a second, on the equator
    assert (lon, lat) == pytest.approx((179.999 + 5 * degrees, 0.0), abs=1e-9)
    assert (vx, vy) == pytest.approx((degrees, 0.0), rel=1e-6), "across the antimeridian, too"
    assert rx == ry == pytest.approx(500.0, rel=1e-6)
    assert left == pytest.approx(0.002 / degrees - 5, rel=1e-4)


def test_a_ball_in_the_air_is_drawn_as_a_disc() -> None:
    row = area_row(1, Moving(earth_ball(8.5, 47.4, 900.0, 250.0)), 0, earth=True)
    assert row is not None
    assert row[1:6] == pytest.approx((ShapeKind.DISC, 8.5, 47.4, 250.0, 250.0))
    assert drawn_outline(earth_ball(8.5, 47.4, 900.0, 250.0).outline) is None


def test_what_has_no_bounds_or_no_drawing_on_earth_is_left_out() -> None:
    assert area_row(1, Moving(EVERYWHERE), 0, earth=True) is None
    assert area_row(1, Moving(EVERYWHERE), 0) is None
    ecef_box = Shape(ShapeKind.BOX, *ecef(8.5, 47.4), 10.0, 10.0, 10.0)
    assert area_row(1, Moving(ecef_box), 0, earth=True) is None


def test_bounds_across_the_antimeridian_are_one_piece() -> None:
    shape = earth_bounds(179.0, -18.0, -179.0, -16.0)
    row = area_row(1, Moving(shape), 0, earth=True)
    assert row is not None
    assert row[2] % 360 == pytest.approx(180.0)
    assert row[3:6] == pytest.approx((-17.0, 1.0, 1.0))
    vertices = vertex_rows([(4, shape.outline)])
    assert sorted(map(tuple, vertices.tolist())) == [
        (4, 0, dx, dy) for dx in (-1.0, 1.0) for dy in (-1.0, 1.0)
    ]


def test_parts_that_were_cut_at_the_antimeridian_are_side_by_side() -> None:
    east = [178.0, 0.0, 180.0, 0.0, 180.0, 2.0, 178.0, 2.0]
    west = [-180.0, 0.0, -179.0, 0.0, -179.0, 2.0, -180.0, 2.0]
    drawn = drawn_outline(Outline(POLYGON, True, pack([*east, *west]), (0, 4)))
    assert drawn is not None
    assert (drawn.x, drawn.y, drawn.rx, drawn.ry) == pytest.approx((179.5, 1.0, 1.5, 1.0))
    assert [ring for ring, _, _ in drawn.vertices] == [0] * 4 + [1] * 4
    assert {dx for _, dx, _ in drawn.vertices} == {-1.5, 0.5, 1.5}


def test_in_a_plane_rings_are_relative_to_the_centre_which_may_move() -> None:
    outline = Outline(POLYGON, False, pack([-1.0, -1.0, 3.0, 0.0, 0.0, 2.0]), (0,))
    shape = Shape(ShapeKind.BOX, 10.0, 20.0, 0.0, 3.0, 2.0, 0.0, outline)
    row = area_row(1, Moving(shape, velocity=(2.0, 0.0, 0.0), since=0), 3 * SECOND)
    assert row is not None
    assert row[2:4] == (16.0, 20.0) and row[-1] == inf
    assert vertex_rows([(0, outline)]).tolist() == [[0, 0, -1, -1], [0, 0, 3, 0], [0, 0, 0, 2]]
    assert vertex_rows([(0, box(0, 0, 1, 1).outline)]).tolist() == []


def test_a_snapshot_has_a_bounded_number_of_vertices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_VERTICES", 10)
    four = earth_bounds(1.0, 2.0, 3.0, 4.0).outline
    three = Outline(POLYGON, True, pack([0.0, 0.0, 1.0, 0.0, 0.0, 1.0]), (0,))
    rows = vertex_rows([(0, four), (1, four), (2, four), (3, None), (4, three)])
    assert sorted(set(rows[:, 0])) == [0, 1], "further areas are drawn as boxes"
