"""Random areas and places of small worlds, on Earth and in a plane."""

from collections.abc import Callable
from math import cos, pi, sin
from random import Random

from nearcast.space.earth_shapes import (
    earth_ball,
    earth_bounds,
    earth_disc,
    earth_point,
)
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
from nearcast.space.shapes import Shape, box, disc, point

Ring = list[tuple[float, float]]


def star(rng: Random, x: float, y: float, size: float, inner: float = 0.3) -> Ring:
    """A ring around a place that crosses nowhere: one vertex in each direction."""
    count = rng.randint(4, 12)
    radii = [size * rng.uniform(inner, 1.0) for _ in range(count)]
    turns = [2 * pi * k / count for k in range(count)]
    return [(x + r * cos(a), y + r * sin(a)) for r, a in zip(radii, turns, strict=True)]


def rings_with_hole(rng: Random, x: float, y: float, size: float) -> list[Ring]:
    """Sides of a square are 0.7 times as far away as its corners, and farther than the hole."""
    return [star(rng, x, y, size, 0.8), star(rng, x, y, size / 2, 0.5)[::-1]]


class PlaneAreas:
    """A plane of 100 by 100."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def centre(self) -> tuple[float, float]:
        return self._rng.uniform(0, 100), self._rng.uniform(0, 100)

    def place(self) -> Shape:
        return point(*self.centre()) if self._rng.random() < 0.8 else disc(*self.centre(), 5)

    def area(self) -> Shape:
        rng = self._rng
        kinds: list[Callable[[float, float], Shape]] = [
            lambda x, y: disc(x, y, 20),
            lambda x, y: box(x, y, 15, 10),
            lambda x, y: polygon(rings_with_hole(rng, x, y, 30)),
            lambda x, y: multipolygon([[star(rng, x, y, 15)], [star(rng, x + 40, y, 15)]]),
            lambda x, y: corridor([(x, y), self.centre(), self.centre()], 5),
            lambda x, y: sector(x, y, rng.uniform(0, 360), rng.uniform(20, 360), 40),
        ]
        return rng.choice(kinds)(*self.centre())


class EarthAreas:
    """Two degrees around a place, which may be at the antimeridian or a pole."""

    def __init__(self, rng: Random, lon: float, lat: float) -> None:
        self._rng, self._lon, self._lat = rng, lon, lat

    def centre(self) -> tuple[float, float]:
        lon = self._lon + self._rng.uniform(-1, 1)
        lat = min(max(self._lat + self._rng.uniform(-1, 1), -90.0), 90.0)
        return (lon + 180.0) % 360.0 - 180.0, lat

    def place(self) -> Shape:
        rng, (lon, lat) = self._rng, self.centre()
        alt = rng.choice([None, rng.uniform(0, 1000)])
        if rng.random() < 0.8:
            return earth_point(lon, lat, alt)
        return earth_disc(lon, lat, 5000, alt, alt)

    def heights(self) -> tuple[float | None, float | None]:
        low = self._rng.uniform(0, 800)
        return self._rng.choice([(None, None), (low, low + 400), (None, low), (low, None)])

    def area(self) -> Shape:
        rng, (low, high) = self._rng, self.heights()
        near = min(max(self._lat, -88.0), 88.0)
        kinds: list[Callable[[float, float], Shape]] = [
            lambda lon, lat: earth_disc(lon, lat, 50_000, low, high),
            lambda lon, lat: earth_ball(lon, lat, rng.uniform(0, 1000), 50_000),
            lambda lon, _: earth_polygon(
                rings_with_hole(rng, lon, near, 0.8), low, high
            ),
            lambda lon, _: earth_multipolygon(
                [[star(rng, lon, near, 0.3)], [star(rng, lon + 1, near, 0.3)]], low, high
            ),
            lambda lon, lat: earth_corridor([(lon, lat), self.centre()], 20_000, low, high),
            lambda lon, _: earth_bounds(
                (lon + 179.5) % 360 - 180, near - 0.5, (lon + 180.5) % 360 - 180, near + 0.5,
                low, high,
            ),
        ]  # fmt: skip
        if abs(self._lat) < 80:
            kinds.append(
                lambda lon, lat: earth_sector(
                    lon, lat, rng.uniform(0, 360), rng.uniform(20, 360), 80_000, low, high
                )
            )
        return rng.choice(kinds)(*self.centre())
