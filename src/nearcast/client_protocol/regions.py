"""Where clients listen: from shapes, motions, paths and formulas to areas as words carry them."""

from math import dist
from typing import TypeAlias

from msgspec.structs import replace

from nearcast.client_protocol import geometry_json
from nearcast.client_protocol.geometry_json import Area
from nearcast.model.expressions import TIME, Parser
from nearcast.model.subscription import Formula, Region
from nearcast.space.motion import SECOND, Moving, Path, path
from nearcast.space.shapes import Shape, Vector

Where: TypeAlias = Shape | Region | str  # text is a formula, perhaps with variables in it


def region_of(where: Where) -> Region | str:
    """TypeError for what is none of these: a client's mistake, told before anything is sent."""
    if not isinstance(where, Shape | Moving | Path | Formula | str):
        kind = type(where).__name__
        raise TypeError(f"an area is a shape, a motion, a path or a formula's text, not a {kind}")
    if isinstance(where, Formula):
        return where.text
    return Moving(where) if isinstance(where, Shape) else where


def area_of(region: Region | str) -> Area:
    """As words carry it. ValueError for a path that they cannot tell."""
    if isinstance(region, str):
        return Area(formula=region)
    return walk(region) if isinstance(region, Path) else geometry_json.area(region)


def walk(way: Path) -> Area:
    """A path as places to walk through at one speed, which must be that of all its legs."""
    legs = [leg for leg in way.legs if leg.moves]
    if not legs:
        return geometry_json.area(Moving(way.legs[-1].shape))
    stops = [centre(leg.at(leg.until)) for leg in legs]
    seconds = sum(leg.until - leg.since for leg in legs) / SECOND
    starts = [centre(leg.shape) for leg in legs]
    speed = sum(map(dist, starts, stops)) / seconds
    again = path(legs[0].shape, stops, speed)
    # Durations are rounded to whole microseconds, and so is the speed that they imply.
    if any(
        leg.growth != (0, 0, 0) or abs((leg.until - leg.since) - (same.until - same.since)) > 2
        for leg, same in zip(legs, again.legs, strict=True)
    ):
        raise ValueError("the legs of a path must have one speed, and no growth")
    return replace(
        geometry_json.area(Moving(legs[0].shape)), to=[list(stop) for stop in stops], speed=speed
    )


def centre(shape: Shape) -> Vector:
    return shape.x, shape.y, shape.z


def unstamped(region: Region) -> Region:
    """The same motion, told from its beginning."""
    return region.stamped(0)


def later(text: str, seconds: float, variables: frozenset[str]) -> str:
    """The formula or filter as it goes on when its `t` begins anew after so many seconds."""
    if seconds == 0:
        return text
    cursor, pieces, copied = Parser(text, variables), [], 0
    while cursor.token.kind != "end":
        token = cursor.take()
        if token.kind == "name" and token.text == TIME:
            pieces += [text[copied : token.position], f"({TIME} + {seconds!r})"]
            copied = cursor.taken
    return "".join([*pieces, text[copied:]])
