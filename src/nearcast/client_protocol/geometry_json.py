"""Areas as clients write them: one flat object of numbers instead of nested shapes and motions.

{"x": 3, "y": 4}                                    a point
{"x": 3, "y": 4, "r": 50}                           a disc; a ball if "z" is given
{"x": 3, "y": 4, "rx": 6, "ry": 4}                  a box by its centre and half-extents
{"x": 3, "y": 4, "r": 50, "sector": [90, 60]}       a view in +y (90°), 60° wide
{"geometry": {"type": "Polygon", …}}                GeoJSON; a line has a "half_width" too
{..., "vx": 1, "vy": 2, "gx": 0.5, "lasts": 10}     moving and growing, for ten seconds
{..., "to": [[9, 4], [9, 9]], "speed": 2}           a path through these places, which it then keeps
{"formula": "x >= -3 + t, x <= 3 + t"}              predicates, `t` in seconds from now
{}                                                  everywhere

On Earth (`earth_json`):
{"lon": 8.5, "lat": 47.4}                           a place, in degrees
{"lon": 8.5, "lat": 47.4, "r": 500}                 a disc, in metres; a true ball if "alt" is given
{"bounds": [5.9, 45.8, 10.5, 47.8]}                 west, south, east, north
{..., "low": 0, "high": 120}                        heights, in metres above the ellipsoid
{..., "to": [[8.6, 47.4]], "speed": 20}             along great circles, in metres per second
and "sector", "geometry" and {} as above; directions are degrees clockwise from north.

A node reads an area with `region_from_area`; a client writes one with `area_from_region`.
"""

from math import dist, inf
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.client_protocol import earth_json
from nearcast.model.expressions import TIME, ExpressionParser
from nearcast.model.subscription import Formula, Region
from nearcast.space.earth import is_on_surface
from nearcast.space.geojson import geojson_from_shape, shape_from_geojson
from nearcast.space.motion import SECOND, Moving, Path, path
from nearcast.space.outline_shapes import sector
from nearcast.space.outlines import SECTOR, numbers
from nearcast.space.shapes import EVERYWHERE, Shape, ShapeKind, Vector

Geometry: TypeAlias = Literal["plane", "earth"]  # of a world: what its coordinates are
PLANE: Geometry = "plane"
EARTH: Geometry = "earth"
NO_FORMULA = "a world on Earth has no formulas: say an area; a filter may say the rest"
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
    geometry: dict[str, Any] | None = None  # GeoJSON, longitude or x first
    half_width: float | None = None  # of a corridor around a LineString
    sector: tuple[float, float] | None = None  # direction and angle, in degrees
    lon: float | None = None
    lat: float | None = None
    alt: float | None = None
    low: float | None = None
    high: float | None = None
    bounds: tuple[float, float, float, float] | None = None


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


def place_shape(publication: Any) -> Shape:
    """Where something was published: by its fields lon and lat on Earth, else by x and y.

    On Earth it is a place on the surface in ECEF metres, and its altitude is an outline.
    """
    p = publication
    if p.lon is not None or p.lat is not None:
        return earth_json.earth_place_shape(p.lon, p.lat, p.alt, p.r)
    if p.x is None or p.y is None:
        raise ValueError("a publication needs x and y")
    return shape_from_fields(p.x, p.y, p.z, p.r, p.rx, p.ry, p.rz)


def publication_fields(shape: Shape, geometry: Geometry = PLANE) -> dict[str, Any]:
    """The fields of a request that publishes at this shape; `place_shape` reads them."""
    if geometry == EARTH:
        return earth_json.earth_publication_fields(shape)
    refuse_earth_shape("a publication", shape)
    if shape.outline is not None:
        raise ValueError("a publication in a plane is a point, a disc or a box")
    r, rx, ry, rz = extent_fields(shape)
    return {"x": shape.x, "y": shape.y, "z": shape.z, "r": r, "rx": rx, "ry": ry, "rz": rz}


def refuse_earth_fields(what: str, given: Any) -> None:
    """Refuse fields that only mean something on Earth: this world is a plane."""
    for name, instead in _INSTEAD.items():
        if getattr(given, name, None) is not None:
            raise ValueError(f"this world is a plane: {what} has {instead} there, not {name}")


def refuse_earth_shape(what: str, shape: Shape) -> None:
    """Refuse a point or disc that was made of degrees: it would be millions of units away."""
    if is_on_surface(shape.x, shape.y, shape.z):
        raise ValueError(f"this world is a plane: {what} has x and y there, not lon and lat")


_INSTEAD = {
    "lon": "x and y", "lat": "x and y", "alt": "z", "low": "z and rz", "high": "z and rz",
    "bounds": "x, y, rx and ry",
}  # fmt: skip


def region_from_area(area: Area, geometry: Geometry = PLANE) -> Region:
    """The region of a request, not stamped yet. ValueError says what is wrong with the area."""
    if area.formula is not None:
        if area != Area(formula=area.formula):
            raise ValueError("an area with a formula has no other field")
        if geometry == EARTH:
            raise ValueError(NO_FORMULA)
        return Formula(area.formula)
    if area == Area():
        return Moving(EVERYWHERE)
    if geometry == EARTH:
        return earth_json.earth_region(area)
    refuse_earth_fields("an area", area)
    shape = _planar_shape(area)
    velocity, growth = (area.vx, area.vy, area.vz), (area.gx, area.gy, area.gz)
    if area.to is not None:
        if any(velocity) or any(growth) or area.lasts is not None:
            raise ValueError("a path (to, speed) has no velocity, growth or duration beside it")
        if area.speed is None:
            raise ValueError("a path needs a speed")
        if not all(2 <= len(place) <= 3 for place in area.to):
            raise ValueError("a place of a path is two or three numbers")
        dx, dy = _offset(shape)
        stops = [(place[0] + dx, place[1] + dy, (*place, area.z)[2]) for place in area.to]
        return path(shape, stops, area.speed)
    if area.speed is not None:
        raise ValueError("a speed needs a path (to)")
    if area.lasts is not None and not 0 <= area.lasts < inf:
        raise ValueError(f"a motion cannot last {area.lasts} seconds")
    duration = None if area.lasts is None else round(area.lasts * SECOND)
    return Moving(shape, velocity, growth, duration)


def _planar_shape(area: Area) -> Shape:
    if area.half_width is not None and area.geometry is None:
        raise ValueError("a half_width needs a geometry, which is a LineString")
    if area.geometry is not None:
        beside = (area.x, area.y, area.r, area.rx, area.ry, area.sector)
        if any(value is not None for value in beside):
            raise ValueError("an area with a geometry has no x, y, r, rx, ry or sector beside it")
        more = {"half_width": area.half_width, "z": area.z or None, "rz": area.rz}
        return shape_from_geojson(earth_json.as_feature(area.geometry, more), earth=False)
    if area.x is None or area.y is None:
        raise ValueError("an area needs x and y")
    if area.sector is not None:
        if area.r is None or area.rx is not None or area.ry is not None:
            raise ValueError("a sector has a radius r, and no rx or ry")
        return sector(area.x, area.y, *area.sector, area.r, area.z, area.rz or 0.0)
    return shape_from_fields(area.x, area.y, area.z, area.r, area.rx, area.ry, area.rz)


def _offset(shape: Shape) -> tuple[float, float]:
    """From what goes along a path, the apex of a sector or else the middle, to the middle."""
    if shape.outline is None or shape.outline.form != SECTOR:
        return 0.0, 0.0
    x, y = numbers(shape.outline)[:2]
    return -x, -y


def as_region(where: AreaLike) -> Region | str:
    """A region, or the text of a formula. TypeError for any other value, before it is sent."""
    if not isinstance(where, Shape | Moving | Path | Formula | str):
        kind = type(where).__name__
        raise TypeError(f"an area is a shape, a motion, a path or a formula's text, not a {kind}")
    if isinstance(where, Formula):
        return where.text
    return Moving(where) if isinstance(where, Shape) else where


def area_from_region(region: Region | str, geometry: Geometry = PLANE) -> Area:
    """The area of a request. ValueError for a path that an area cannot express."""
    if isinstance(region, str):
        return Area(formula=region)
    if isinstance(region, Formula):
        return Area(formula=region.text)
    if isinstance(region, Moving) and region.shape == EVERYWHERE:
        return Area()
    if geometry == EARTH:
        return Area(**earth_json.area_fields(region))
    return _area_from_path(region) if isinstance(region, Path) else _area_from_moving(region)


def _area_from_moving(moving: Moving) -> Area:
    shape = moving.shape
    lasts = None if moving.duration is None else moving.duration / SECOND
    velocity, growth = moving.velocity, moving.growth
    if shape.outline is None:
        refuse_earth_shape("an area", shape)
        return Area(
            shape.x, shape.y, shape.z, *extent_fields(shape), *velocity, *growth, lasts
        )  # fmt: skip
    return replace(
        _outlined_area(shape), vx=velocity[0], vy=velocity[1], vz=velocity[2], lasts=lasts
    )


def _outlined_area(shape: Shape) -> Area:
    outline = shape.outline
    assert outline is not None
    if outline.earth:
        raise ValueError("this world is a plane: an area of the Earth has no place there")
    feature = geojson_from_shape(shape)
    geometry, properties = feature["geometry"], feature["properties"]
    z, rz = shape.z, shape.rz or None
    if outline.form != SECTOR:
        return Area(z=z, rz=rz, geometry=geometry, half_width=properties.get("half_width"))
    x, y, direction, angle = numbers(outline)[:4]
    view = direction, angle
    return Area(shape.x + x, shape.y + y, z, outline.size, rz=rz, sector=view)


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
    dx, dy = _offset(legs[0].shape)
    return replace(start, to=[[x - dx, y - dy, z] for x, y, z in stops], speed=speed)


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
