"""Places of the first matchers, in rows and columns; nine have square regions ([VSO] V-A)."""

from math import ceil, sqrt

from nearcast.protocols.voronoi.vso.messages import Place


def grid(count: int, side: float) -> list[Place]:
    """So many places over a square from (0, 0) on; 9 of them have 3 x 3 squares as regions."""
    rows = ceil(sqrt(count))
    places: list[Place] = []
    for row in range(rows):
        columns = count // rows + (row < count % rows)
        y = (row + 0.5) * side / rows
        places += [((column + 0.5) * side / columns, y) for column in range(columns)]
    return places
