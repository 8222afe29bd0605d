"""Areas as clients write them: one flat object of numbers instead of nested shapes and motions.

{"x": 3, "y": 4}                                    a point
{"x": 3, "y": 4, "r": 50}                           a disc; a ball if "z" is given
{"x": 3, "y": 4, "rx": 6, "ry": 4}                  a box by its centre and half-extents
{..., "vx": 1, "vy": 2, "gx": 0.5, "lasts": 10}     moving and growing, for ten seconds
{..., "to": [[9, 4], [9, 9]], "speed": 2}           a path through these places, which it then keeps
{"formula": "x >= -3 + t, x <= 3 + t"}              predicates, `t` in seconds from now
{}                                                  everywhere

A node reads an area with `region_from_area`; a client writes one with `area_from_region`.
"""

from math import dist, inf
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.expressions import TIME, ExpressionParser
from nearcast.model.subscription import Formula, Region
from nearcast.space.motion import SECOND, Moving, Path, path
from nearcast.space.shapes import EVERYWHERE, Shape, ShapeKind, Vector

Place = list[float]  # two or three numbers
AreaLike: TypeAlias = Shape | Region | str  # a text is a formula, which may have variables


class Area(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A region as requests carry it, relative to the moment at which the node accepts it."""

    x: float | None = None
    y: float | None = None
    z: float = 0.0
    r: float | None = None
    rx: float | None = None
    ry: float | None = None
    rz: float | None = None
    vx: float = 0.0
    vy: float = 0.0
    vz: float = 0.0
    gx: float = 0.0
    gy: float = 0.0
    gz: float = 0.0
    lasts: float | None = None  # seconds of motion; None: it goes on
    to: list[Place] | None = None
    speed: float | None = None
    formula: str | None = None


def shape_from_fields(
    x: float,
    y: float,
    z: float = 0.0,
    r: float | None = None,
    rx: float | None = None,
    ry: float | None = None,
    rz: float | None = None,
) -> Shape:
    """A point, a disc or a box, depending on the numbers given. ValueError if they do not fit."""
    if r is not None:
        if (rx, ry, rz) != (None, None, None):
            raise ValueError("an area has a radius r or half-extents rx, ry, rz, not both")
        return Shape(ShapeKind.DISC, x, y, z, r)
    if rx is None and ry is None and rz is None:
        return Shape(ShapeKind.POINT, x, y, z)
    if rx is None or ry is None:
        raise ValueError("a box needs both rx and ry")
    return Shape(ShapeKind.BOX, x, y, z, rx, ry, rz or 0.0)


def extent_fields(
    shape: Shape,
) -> tuple[float | None, float | None, float | None, float | None]:
    """The fields r, rx, ry and rz of a shape."""
    if shape.kind == ShapeKind.POINT:
        return None, None, None, None
    if shape.kind == ShapeKind.DISC:
        return shape.rx, None, None, None
    return None, shape.rx, shape.ry, shape.rz


def region_from_area(area: Area) -> Region:
    """The region of a request, not stamped yet. ValueError says what is wrong with the area."""
    if area.formula is not None:
        if area != Area(formula=area.formula):
            raise ValueError("an area with a formula has no other field")
        return Formula(area.formula)
    if area == Area():
        return Moving(EVERYWHERE)
    if area.x is None or area.y is None:
        raise ValueError("an area needs x and y")
    shape = shape_from_fields(area.x, area.y, area.z, area.r, area.rx, area.ry, area.rz)
    velocity, growth = (area.vx, area.vy, area.vz), (area.gx, area.gy, area.gz)
    if area.to is not None:
        if any(velocity) or any(growth) or area.lasts is not None:
            raise ValueError("a path (to, speed) has no velocity, growth or duration beside it")
        if area.speed is None:
            raise ValueError("a path needs a speed")
        if not all(2 <= len(place) <= 3 for place in area.to):
            raise ValueError("a place of a path is two or three numbers")
        stops = [(place[0], place[1], (*place, area.z)[2]) for place in area.to]
        return path(shape, stops, area.speed)
    if area.speed is not None:
        raise ValueError("a speed needs a path (to)")
    if area.lasts is not None and not 0 <= area.lasts < inf:
        raise ValueError(f"a motion cannot last {area.lasts} seconds")
    duration = None if area.lasts is None else round(area.lasts * SECOND)
    return Moving(shape, velocity, growth, duration)


def as_region(where: AreaLike) -> Region | str:
    """A region, or the text of a formula. TypeError for any other value, before it is sent."""
    if not isinstance(where, Shape | Moving | Path | Formula | str):
        kind = type(where).__name__
        raise TypeError(f"an area is a shape, a motion, a path or a formula's text, not a {kind}")
    if isinstance(where, Formula):
        return where.text
    return Moving(where) if isinstance(where, Shape) else where


def area_from_region(region: Region | str) -> Area:
    """The area of a request. ValueError for a path that an area cannot express."""
    if isinstance(region, str):
        return Area(formula=region)
    if isinstance(region, Formula):
        return Area(formula=region.text)
    return _area_from_path(region) if isinstance(region, Path) else _area_from_moving(region)


def _area_from_moving(moving: Moving) -> Area:
    shape = moving.shape
    if shape == EVERYWHERE:
        return Area()
    lasts = None if moving.duration is None else moving.duration / SECOND
    return Area(
        shape.x, shape.y, shape.z, *extent_fields(shape),
        *moving.velocity, *moving.growth, lasts,
    )  # fmt: skip


def _area_from_path(whole: Path) -> Area:
    """The places of a path and its speed, which must be that of all legs."""
    legs = [leg for leg in whole.legs if leg.moves]
    if not legs:
        return _area_from_moving(Moving(whole.legs[-1].shape))
    stops = [_centre(leg.at(leg.until)) for leg in legs]
    seconds = sum(leg.until - leg.since for leg in legs) / SECOND
    starts = [_centre(leg.shape) for leg in legs]
    speed = sum(map(dist, starts, stops)) / seconds
    again = path(legs[0].shape, stops, speed)
    # Durations are rounded to whole microseconds, and so is the speed that they imply.
    if any(
        leg.growth != (0, 0, 0) or abs((leg.until - leg.since) - (same.until - same.since)) > 2
        for leg, same in zip(legs, again.legs, strict=True)
    ):
        raise ValueError("the legs of a path must have one speed, and no growth")
    start = _area_from_moving(Moving(legs[0].shape))
    return replace(start, to=[list(stop) for stop in stops], speed=speed)


def _centre(shape: Shape) -> Vector:
    return shape.x, shape.y, shape.z


def shift_time(text: str, seconds: float, variables: frozenset[str]) -> str:
    """The same formula or filter for a clock `t` that starts so many seconds later."""
    if seconds == 0:
        return text
    cursor, pieces, copied = ExpressionParser(text, variables), [], 0
    while cursor.token.kind != "end":
        token = cursor.take()
        if token.kind == "name" and token.text == TIME:
            pieces += [text[copied : token.position], f"({TIME} + {seconds!r})"]
            copied = cursor.taken
    return "".join([*pieces, text[copied:]])
