"""Shapes made of polygons, lines and views: their boxes are around them, and what is refused."""

from collections.abc import Callable
from math import cos, dist, inf, nan, pi, sin
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.space.earth import ecef
from nearcast.space.earth_shapes import earth_bounds, earth_point
from nearcast.space.motion import line
from nearcast.space.outline_drawing import drawing_rings, unit_vector
from nearcast.space.outline_shapes import (
    corridor,
    earth_corridor,
    earth_multipolygon,
    earth_polygon,
    earth_sector,
    multipolygon,
    polygon,
    sector,
)
from nearcast.space.outline_touch import TINY, contains_point
from nearcast.space.outlines import (
    BALL,
    CORRIDOR,
    POLYGON,
    SECTOR,
    WHOLE,
    Outline,
    numbers,
    outline_from_text,
    outline_text,
    pack,
)
from nearcast.space.shapes import BOX, Shape, ball, box, disc, overlap, point
from support.examples import examples

NUMBERS = st.floats(-1e6, 1e6) | st.floats(-1e150, 1e150)
TRIANGLE = [(0.1, 0.2), (0.7, 0.3), (0.4, 1.9)]
SHAPES = [
    polygon([TRIANGLE]),
    multipolygon([[TRIANGLE], [[(5, 5), (6, 5), (6, 6)]]], z=4, rz=2),
    corridor([(0.1, 0.3), (1.7, 0.9)], 0.3),
    sector(0.3, 0.7, 30, 60, 9.1),
    earth_polygon([TRIANGLE], low=3),
    earth_corridor([(0, 0), (0.05, 0.02)], 30, high=9.5),
    earth_sector(10, 50, 30, 60, 1000, low=-1, high=1),
    Shape(0, 1.0, 2.0, 3.0, outline=Outline(WHOLE, True, low=5.0, high=5.0)),
]


def box_has(shape: Shape, *place: float) -> bool:
    x, y, z = (*place, 0.0)[:3]
    return overlap(
        BOX, shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz, 0, x, y, z, 0.0, 0.0, 0.0
    )


@examples(300)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=3))
def test_a_polygon_has_its_vertices_and_its_box_no_more(ring: list[tuple[float, float]]) -> None:
    try:
        shape = polygon([ring])
    except ValueError:
        return  # all in a line
    assert all(shape.touches(point(*vertex)) for vertex in ring)
    flat = numbers(shape.outline or Outline(WHOLE))
    assert shape.rx == max(TINY, *map(abs, flat[::2]))
    assert shape.ry == max(TINY, *map(abs, flat[1::2]))


@examples(300)
@given(st.integers(0, 2**32), st.sampled_from([1e-3, 1.0, 1e7]))
def test_what_is_in_an_outline_is_in_its_box(seed: int, far: float) -> None:
    """Places at the very end of what the outline contains."""
    random = Random(seed)
    x, y, size = (random.uniform(-far, far) for _ in range(3))
    size = abs(size) + 1e-9
    direction, angle = random.uniform(-360, 360), random.uniform(1, 360)
    view = sector(x, y, direction, angle, size)
    road = corridor([(x, y), (x + size, y - size)], size)
    # Towards the axes the box is nearest.
    for degrees in [direction - angle / 2, direction, direction + angle / 2, 0, 90, 180, 270]:
        ux, uy = unit_vector(degrees)
        for share in (1.0, 1 - 1e-15):
            place = x + ux * size * share, y + uy * size * share
            for shape in (view, road):
                o = shape.outline
                assert o is not None
                inside = contains_point(
                    o.form, False, numbers(o), o.starts, o.size, -inf, inf,
                    shape.x, shape.y, 0.0, *place, 0.0, -inf, inf,
                )  # fmt: skip
                assert not inside or box_has(shape, *place)


@examples(200)
@given(
    st.floats(-180, 180), st.floats(-90, 70), st.floats(0.01, 179), st.floats(0.01, 19), st.data()
)
def test_a_polygon_on_earth_is_in_its_box(
    west: float, south: float, wide: float, high: float, data: st.DataObject
) -> None:
    area = earth_polygon([[(west, south), (west + wide, south), (west + wide, south + high)]])
    share = data.draw(st.floats(0, 1))
    lon, lat = west + wide * (1 - share**2), south + high * share * (1 - share)
    assert box_has(area, *ecef(lon, min(lat, 90.0)))


def test_boxes_on_earth_are_around_corridors_and_sectors() -> None:
    road = earth_corridor([(0, 0), (1, 0)], 1000)
    assert box_has(road, *ecef(0.5, 0.0089)) and not box_has(road, *ecef(0.5, 0.02))
    view = earth_sector(0, 0, 0, 90, 1000)
    assert dist((view.rx,), (1000,)) < 1e-3


def test_a_polygon_round_the_earth_has_all_longitudes() -> None:
    belt = earth_polygon([[(-180, -10), (180, -10), (180, 10), (-180, 10)]])
    for lon in (-180, -91, 0, 77, 180):
        assert belt.touches(earth_point(lon, 5)) and not belt.touches(earth_point(lon, 11))
    far = earth_multipolygon(
        [[[(-350, 0), (-340, 0), (-340, 10)]], [[(340, 0), (350, 0), (350, 10)]]]
    )
    assert far.touches(earth_point(15, 1)) and far.touches(earth_point(-15, 1))
    assert not far.touches(earth_point(0, 1))


def test_a_planar_outline_moves_and_one_on_earth_stays() -> None:
    moving = line(polygon([[(0, 0), (2, 0), (2, 2), (0, 2)]]), (11, 1), 1.0).stamped(0)
    assert moving.touches(point(0, 0), 0) and not moving.touches(point(0, 0), 5_000_000)
    assert moving.touches(point(5, 2), 5_000_000) and not moving.touches(point(3, 2), 5_000_000)
    with pytest.raises(ValueError, match="stay where they are"):
        line(earth_bounds(0, 0, 1, 1), (0.0, 0.0, 0.0), 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: corridor([(0, 0), (1, 1)], 0), "half-width"),
        (lambda: corridor([(0, 0), (1, 1)], nan), "half-width"),
        (lambda: corridor([(0, 0), (1, 1)], inf), "half-width"),
        (lambda: sector(0, 0, 0, 0, 1), "angle"),
        (lambda: sector(0, 0, 0, 361, 1), "angle"),
        (lambda: sector(0, 0, nan, 1, 1), "direction"),
        (lambda: sector(0, 0, 0, 1, -1), "radius"),
        (lambda: sector(nan, 0, 0, 1, 1), "centre|coordinates"),
        (lambda: earth_polygon([[(0, 0), (1, 0), (1, 91)]]), "ring 0 of part 0.*latitude.*91"),
        (lambda: earth_polygon([[(0, 0), (361, 0), (1, 9)]]), "ring 0 of part 0.*longitude.*361"),
        (lambda: earth_polygon([[(-200, 0), (200, 0), (1, 9)]]), "round the Earth once"),
        (lambda: earth_polygon([TRIANGLE], low=5, high=4), "heights"),
        (lambda: earth_corridor([(0, 0), (0, 99)], 5), "latitude"),
        (lambda: earth_corridor([(0, 0), (0, 1)], 0), "half-width"),
        (lambda: earth_sector(0, 89.9, 0, 90, 20_000), "pole"),
        (lambda: earth_sector(0, 0, 0, 90, 2e6), "radius"),
    ],
)
def test_what_is_no_area_is_refused(make: Callable[[], Shape], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_outline_comes_back_from_text_and_bytes_bit_by_bit(shape: Shape) -> None:
    assert shape.outline is not None
    assert outline_from_text(outline_text(shape.outline)) == shape.outline
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(shape), type=Shape) == shape


@examples(300)
@given(st.lists(st.floats(-1e150, 1e150), min_size=6, max_size=6), st.floats(0, 1e150))
def test_any_numbers_come_back_from_text(flat: list[float], size: float) -> None:
    outline = Outline(POLYGON, False, pack(flat), (0,), size)
    text = outline_text(outline)
    assert "\n" not in text and outline_from_text(text) == outline


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", "[1,false,[0,0,1,0],[0],0,null,null]",
        "[1,false,[0,0,1,0,1],[0],0,null,null]", '[1,false,["a"],[0],0,null,null]',
        "[1,false,[0,0,1,0,1,1],[1],0,null,null]", "[1,false,[0,0,1,0,1,1],[0,0],0,null,null]",
        "[1,false,[0,0,1,0,1,1],[0,3],0,null,null]", "[1,false,[0,0,1,0,1,1],[],0,null,null]",
        "[1,false,[0,0,1,0,1,1e200],[0],0,null,null]", "[1,false,[0,0,1,0,1,1],[0],-1,null,null]",
        "[1,false,[0,0,1,0,1,1],[0],0,5,null]", "[1,true,[0,0,1,0,1,1],[0],0,5,4]",
        "[7,false,[],[],0,null,null]", "[0,false,[1,2],[0],0,null,null]",
        "[4,true,[],[],5,1,2]", "[4,false,[],[],5,null,null]", "[2,true,[0,0,1,1],[0],5,null,null]",
        "[3,true,[0,0,1,1],[0],5,null,null]", "[1,false,[0,0,1,0,1,1],[0,-3,3],0,null,null]",
    ],
)  # fmt: skip
def test_a_text_that_is_no_outline_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        outline_from_text(text)


def test_forms_that_only_bound_heights_have_no_coordinates() -> None:
    assert outline_from_text("[4,true,[],[],5,1,1]") == Outline(BALL, True, size=5, low=1, high=1)
    with pytest.raises(ValueError, match="form 4"):
        Outline(BALL, True, size=5.0, low=1.0, high=2.0)
    with pytest.raises(ValueError, match="form"):
        Outline(CORRIDOR, False, pack([1.0, 2.0]), (0,))
    with pytest.raises(ValueError, match="form"):
        Outline(SECTOR, False, pack([1.0, 2.0]), (0,))


# Drawings.


@pytest.mark.parametrize(
    ("shape", "count"),
    [(point(1, 2), 1), (disc(1, 2, 3), 72), (box(1, 2, 3, 4), 4), (polygon([TRIANGLE]), 3)],
)
def test_a_drawing_is_rings_of_places(shape: Shape, count: int) -> None:
    (ring,) = drawing_rings(shape)
    assert len(ring) == count


def test_a_drawn_arc_is_at_its_radius_and_a_drawn_corridor_at_its_half_width() -> None:
    (ring,) = drawing_rings(sector(3, 4, 30, 60, 2))
    assert ring[0] == pytest.approx((3, 4))
    assert all(dist(vertex, (3, 4)) == pytest.approx(2) for vertex in ring[1:])
    bent = corridor([(0, 0), (5, 0), (5, 5), (9, 5)], 1)
    (ring,) = drawing_rings(bent)
    inner = corridor([(0, 0), (5, 0), (5, 5), (9, 5)], 0.999)
    for vertex in ring:
        assert bent.touches(disc(*vertex, 1e-9))
    assert any(not inner.touches(point(*vertex)) for vertex in ring)
    assert {round(max(v[axis] for v in ring), 6) for axis in (0, 1)} == {10, 6}


def test_drawings_on_earth_are_degrees() -> None:
    (ring,) = drawing_rings(earth_corridor([(179.9, 10), (-179.9, 10)], 1000))
    assert max(lon for lon, _ in ring) - min(lon for lon, _ in ring) < 0.3
    assert max(lat for _, lat in ring) == pytest.approx(10 + 1000 / 110_600, abs=1e-4)
    place = ball(*ecef(30, 60), 10_000)
    (ring,) = drawing_rings(place, earth=True)
    for lon, lat in ring:
        assert dist(ecef(lon, lat), ecef(30, 60)) == pytest.approx(10_000, abs=1e-3)
    (ring,) = drawing_rings(ball(*ecef(30, 89.9), 100_000), earth=True)
    assert ring[-1][1] == 90 and abs(ring[-2][0] - ring[-1][0]) == pytest.approx(360, abs=30)
    (ring,) = drawing_rings(earth_point(5, 6), earth=True)
    assert ring == [pytest.approx((5, 6))]


def test_directions_of_the_axes_are_exact() -> None:
    assert [unit_vector(degrees) for degrees in (0, 90, 180, 270, 360, -90)] == [
        (1, 0), (0, 1), (-1, 0), (0, -1), (1, 0), (0, -1),
    ]  # fmt: skip
    assert unit_vector(30) == pytest.approx((cos(pi / 6), sin(pi / 6)))
