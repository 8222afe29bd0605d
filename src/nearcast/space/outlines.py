"""Forms that a centre and half-extents cannot express: polygons, corridors, sectors, heights.

A `Shape` with an outline is the box around it, and the outline decides. So an index needs to know
nothing of outlines: it finds candidates by their boxes, and whoever decides about a candidate asks
`outline_pairs.touches_outline`, or `outline_touch.contains_point` in a compiled kernel. In the
plane coordinates are relative to the shape's centre, so a shape that moves takes its outline
along. On Earth (`earth`) the outline of a polygon has degrees, longitude first, and stays where it
is; its edges are straight in longitude and latitude (RFC 7946).

| form | coordinates |
|---|---|
| POLYGON | x, y of each vertex, or longitude, latitude; rings are not closed by a repeated vertex |
| CORRIDOR | x, y of each vertex, or ECEF x, y, z, at most 1 km apart |
| SECTOR | apex (x, y, or ECEF x, y, z and the unit vectors to the east and to the north), direction and angle in degrees, unit vectors of the right and the left border |
"""  # noqa: E501

from array import array
from math import inf, isfinite

import msgspec
from msgspec import Struct

# What an outline is: plain integers, which kernels compare.
WHOLE = 0  # all of the box or ball: the outline only bounds heights
POLYGON = 1  # with holes and several parts: what is inside an odd number of rings
CORRIDOR = 2  # what is within `size` of a line
SECTOR = 3  # a part of a disc: apex, direction, angle, range (`size`)
BALL = 4  # on Earth, in height too: chord² + difference of heights² <= size²

MOST_VERTICES = 10_000  # of a polygon or a line, as somebody gives it
MOST_NUMBERS = 300_000  # of an outline: a corridor on Earth has a vertex for each km
FARTHEST = 1e150  # of coordinates: their products are still numbers


class Outline(Struct, frozen=True, array_like=True):
    """The exact form of a shape inside its box, in plain numbers that kernels can read."""

    form: int
    earth: bool = False
    coordinates: bytes = b""  # doubles, as `memoryview(...).cast("d")` reads them
    starts: tuple[int, ...] = ()  # the first vertex of each ring or line
    size: float = 0.0
    low: float = -inf  # heights, in metres above the ellipsoid; only on Earth
    high: float = inf

    def __post_init__(self) -> None:
        """Refuse what no kernel could read. Whether rings cross is checked where they are made."""
        if not (self.low <= self.high and self.low < inf and self.high > -inf):
            raise ValueError(f"heights must be numbers, low to high, not {self.low}, {self.high}")
        if not self.earth and (self.low > -inf or self.high < inf):
            raise ValueError("only outlines on Earth have heights")
        if not 0 <= self.size <= FARTHEST:
            raise ValueError(f"the size of an outline must be from 0 to {FARTHEST}")
        if len(self.coordinates) % 8 or len(self.coordinates) > 8 * MOST_NUMBERS:
            raise ValueError(f"an outline has at most {MOST_NUMBERS} numbers of 8 bytes")
        if not all(abs(number) <= FARTHEST for number in numbers(self)):
            raise ValueError(f"the coordinates of an outline must be within ±{FARTHEST}")
        if not self._is_complete():
            raise ValueError(
                f"an outline of form {self.form} cannot have"
                f" {len(numbers(self))} coordinates in {len(self.starts)} rings or lines"
            )

    def _is_complete(self) -> bool:
        count = len(self.coordinates) // 8
        if self.form == POLYGON:
            ends = (*self.starts[1:], count // 2)
            sizes = [end - start for start, end in zip(self.starts, ends, strict=False)]
            return count % 2 == 0 and self.starts[:1] == (0,) and min(sizes) >= 3
        if self.form == CORRIDOR:
            dims = 3 if self.earth else 2
            return count % dims == 0 and count >= 2 * dims and self.starts == (0,)
        if self.form == SECTOR:
            return count == (15 if self.earth else 8) and self.starts == (0,)
        ball = self.form == BALL and self.earth and isfinite(self.low) and self.low == self.high
        return (self.form == WHOLE or ball) and count == 0 and not self.starts


def check_motion(outline: Outline, moves: bool, grows: bool) -> None:
    """Refuse a motion that the outline cannot follow. One that only has heights follows any."""
    if outline.form == WHOLE:
        return
    if grows:
        raise ValueError("a shape with an outline does not grow")
    if moves and outline.earth and outline.form != BALL:
        raise ValueError("on Earth polygons, corridors and sectors stay where they are")


def numbers(outline: Outline) -> "memoryview[float]":
    """The coordinates, as numbers."""
    return memoryview(outline.coordinates).cast("d")


def rings(outline: Outline) -> list[list[tuple[float, float]]]:
    """Of a polygon: the vertices of each ring, without a closing one."""
    flat = list(numbers(outline))
    vertices = list(zip(flat[::2], flat[1::2], strict=True))
    ends = (*outline.starts[1:], len(vertices))
    return [vertices[start:end] for start, end in zip(outline.starts, ends, strict=True)]


_Columns = tuple[int, bool, list[float], tuple[int, ...], float, float | None, float | None]
_decoder = msgspec.json.Decoder(_Columns)


def outline_text(outline: Outline) -> str:
    """For traces and the wire: a JSON array that gives back the same numbers, bit by bit."""
    heights = [None if abs(height) == inf else height for height in (outline.low, outline.high)]
    columns = (
        outline.form, outline.earth, numbers(outline).tolist(), outline.starts, outline.size,
        *heights,
    )  # fmt: skip
    return msgspec.json.encode(columns).decode()


def outline_from_text(text: str) -> Outline:
    """What `outline_text` has written; anything else is refused with a ValueError."""
    try:
        form, earth, flat, starts, size, low, high = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no outline: {error}") from None
    return Outline(
        form, earth, pack(flat), starts, size,
        -inf if low is None else low, inf if high is None else high,
    )  # fmt: skip


def pack(flat: list[float]) -> bytes:
    """Numbers as the coordinates of an outline."""
    return array("d", flat).tobytes()
