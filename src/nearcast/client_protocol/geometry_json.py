"""Where, as clients write it: one flat set of numbers instead of nested shapes and motions.

{"x": 3, "y": 4}                                    a point
{"x": 3, "y": 4, "r": 50}                           a disc; a ball if "z" is given
{"x": 3, "y": 4, "rx": 6, "ry": 4}                  a box by its centre and half-extents
{..., "vx": 1, "vy": 2, "gx": 0.5, "lasts": 10}     moving and growing, for ten seconds
{..., "to": [[9, 4], [9, 9]], "speed": 2}           walking through these places, and stopping
{"formula": "x >= -3 + t, x <= 3 + t"}              predicates, `t` in seconds from now
{}                                                  everywhere
"""

from math import inf

from msgspec import Struct

from nearcast.model.subscription import Formula, Region
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.shapes import EVERYWHERE, Shape, ShapeKind

Place = list[float]  # two or three numbers


class Area(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
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


def shape(
    x: float,
    y: float,
    z: float = 0.0,
    r: float | None = None,
    rx: float | None = None,
    ry: float | None = None,
    rz: float | None = None,
) -> Shape:
    """A point, a disc or a box: by which numbers are there. ValueError if they do not fit."""
    if r is not None:
        if (rx, ry, rz) != (None, None, None):
            raise ValueError("an area has a radius r or half-extents rx, ry, rz, not both")
        return Shape(ShapeKind.DISC, x, y, z, r)
    if rx is None and ry is None and rz is None:
        return Shape(ShapeKind.POINT, x, y, z)
    if rx is None or ry is None:
        raise ValueError("a box needs both rx and ry")
    return Shape(ShapeKind.BOX, x, y, z, rx, ry, rz or 0.0)


def region(area: Area | str) -> Region:
    """What a subscription listens to, not stamped yet. ValueError says what is wrong with it."""
    if isinstance(area, str):
        return Formula(area)
    if area.formula is not None:
        if area != Area(formula=area.formula):
            raise ValueError("a formula says all there is to say of a region")
        return Formula(area.formula)
    if area == Area():
        return Moving(EVERYWHERE)
    if area.x is None or area.y is None:
        raise ValueError("an area needs x and y")
    where = shape(area.x, area.y, area.z, area.r, area.rx, area.ry, area.rz)
    velocity, growth = (area.vx, area.vy, area.vz), (area.gx, area.gy, area.gz)
    if area.to is not None:
        if any(velocity) or any(growth) or area.lasts is not None:
            raise ValueError("a walk (to, speed) has no velocity, growth or duration beside it")
        if area.speed is None:
            raise ValueError("a walk needs a speed")
        if not all(2 <= len(place) <= 3 for place in area.to):
            raise ValueError("a place to walk to is two or three numbers")
        stops = [(place[0], place[1], (*place, area.z)[2]) for place in area.to]
        return path(where, stops, area.speed)
    if area.speed is not None:
        raise ValueError("a speed needs a place to walk to")
    if area.lasts is not None and not 0 <= area.lasts < inf:
        raise ValueError(f"a motion cannot last {area.lasts} seconds")
    duration = None if area.lasts is None else round(area.lasts * SECOND)
    return Moving(where, velocity, growth, duration)


def area(where: Region) -> Area:
    """The other way round, for clients that hold regions."""
    if isinstance(where, Formula):
        return Area(formula=where.text)
    if isinstance(where, Moving):
        s, (vx, vy, vz), (gx, gy, gz) = where.shape, where.velocity, where.growth
        if s == EVERYWHERE:
            return Area()
        lasts = None if where.duration is None else where.duration / SECOND
        disc, box = s.kind == ShapeKind.DISC, s.kind == ShapeKind.BOX
        return Area(
            s.x, s.y, s.z, s.rx if disc else None,
            s.rx if box else None, s.ry if box else None, s.rz if box else None,
            vx, vy, vz, gx, gy, gz, lasts,
        )  # fmt: skip
    raise ValueError("write a path as an area with `to` and `speed`")
