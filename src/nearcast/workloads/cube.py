"""The square (in 3-D: cubic) world from the origin to (size, size[, size])."""

from random import Random

from msgspec import Struct

from nearcast.space.shapes import Vector


class Cube(Struct, frozen=True):
    """A world of this size, to draw positions from."""

    size: float
    dims: int  # 2 or 3; a square keeps z at 0

    @property
    def corners(self) -> tuple[Vector, Vector]:
        return (0.0, 0.0, 0.0), (self.size, self.size, self.height)

    @property
    def height(self) -> float:
        return self.size if self.dims == 3 else 0.0

    def anywhere(self, rng: Random) -> Vector:
        """A place drawn uniformly."""
        x, y = rng.random() * self.size, rng.random() * self.size
        return x, y, (rng.random() * self.size if self.dims == 3 else 0.0)

    def inside(self, place: Vector) -> Vector:
        """The nearest place within the world."""
        x, y, z = place
        return (
            min(max(x, 0.0), self.size),
            min(max(y, 0.0), self.size),
            min(max(z, 0.0), self.height),
        )
