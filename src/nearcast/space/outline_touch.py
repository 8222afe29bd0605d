"""Is a point inside an outline? Exactly, in plain numbers, for Python and for compiled kernels.

Everything here is a pure function of numbers and flat sequences of numbers, so that `matching` and
the pipeline compile the very same source. What is exact:

- A point's place relative to the centre of a planar outline is rounded once, as the vertices' were.
  From there on a polygon is decided without rounding: a point on an edge or vertex is inside, also
  on the border of a hole; one beside it by the smallest difference is decided truly.
- Corridors and sectors compare a distance with their size, rounded as `shapes.overlap` rounds.
- On Earth the longitude and latitude of a point are rounded, to about a nanometre on the ground.
"""

from collections.abc import Sequence
from math import inf, sqrt

from nearcast.space.earth import lon_lat
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, SECTOR

AT_POLE = 1e-12  # m²: the square of the distance from the axis below which a point is the pole
# Smaller differences count as none. All others are multiples of 2**-500, and their products
# multiples of 2**-1000, so that no step of `turn` loses anything below the smallest number.
TINY = 2.0**-448
SPLITTER = 2.0**27 + 1
DOUBTFUL = 3.3306690738754716e-16  # (3 + 16ε)ε: the relative error of a rounded determinant


def contains_point(
    form: int, earth: bool, coordinates: Sequence[float], starts: Sequence[int],
    size: float, low: float, high: float, cx: float, cy: float, cz: float,
    x: float, y: float, z: float, height_low: float, height_high: float,
) -> bool:  # fmt: skip
    """Is the point inside the closed outline of a shape with this centre?

    The point must be in the shape's box or ball already: that decides what the outline does not
    (z in a plane world; all but the heights if the outline is WHOLE). Without an altitude the
    point's heights are -inf and inf.
    """
    if form == BALL:
        dx, dy, dz = x - cx, y - cy, z - cz
        dh = height_gap(low, high, height_low, height_high)
        return sqrt(dx * dx + dy * dy + dz * dz + dh * dh) <= size
    if not heights_touch(low, high, height_low, height_high):
        return False
    if form == POLYGON:
        if earth:
            return earth_rings_contain(coordinates, starts, x, y, z)
        return rings_contain(coordinates, starts, settle(x - cx), settle(y - cy))
    if form == CORRIDOR:
        if earth:
            return line_is_near(coordinates, 3, size, x, y, z)
        return line_is_near(coordinates, 2, size, x - cx, y - cy, 0.0)
    if form == SECTOR:
        if earth:
            return earth_sector_contains(coordinates, size, x, y, z)
        dx, dy = x - cx - coordinates[0], y - cy - coordinates[1]
        return sqrt(dx * dx + dy * dy) <= size and sector_faces(coordinates, 2, dx, dy)
    return True  # WHOLE


def heights_touch(low: float, high: float, other_low: float, other_high: float) -> bool:
    """An area without heights touches any other; one with heights only what has heights too."""
    if low == -inf and high == inf:
        return True
    if other_low == -inf and other_high == inf:
        return False
    return other_low <= high and low <= other_high


def height_gap(low: float, high: float, other_low: float, other_high: float) -> float:
    """Between two intervals of heights; infinite if the other has none."""
    if other_low == -inf and other_high == inf:
        return inf
    if other_low > high:
        return other_low - high
    return low - other_high if low > other_high else 0.0


def settle(difference: float) -> float:
    return 0.0 if abs(difference) < TINY else difference


# Polygons: a point is inside if a ray from it to the right crosses an odd number of edges.


def rings_contain(coordinates: Sequence[float], starts: Sequence[int], x: float, y: float) -> bool:
    """Is the point inside an odd number of rings, or on the border of one?

    Most edges are above or below the point, and cost one comparison.
    """
    inside = False
    rings, vertices = len(starts), len(coordinates) // 2
    for ring in range(rings):
        end = 2 * (starts[ring + 1] if ring + 1 < rings else vertices)
        j = end - 2
        above = coordinates[j + 1] > y
        for k in range(2 * starts[ring], end, 2):
            by = coordinates[k + 1]
            if (by > y) != above:
                above = not above
                ax, bx = coordinates[j], coordinates[k]
                if ax > x and bx > x:
                    inside = not inside
                elif ax >= x or bx >= x:
                    side = turn(ax, coordinates[j + 1], bx, by, x, y)
                    if side == 0.0:
                        return True
                    if (side > 0.0) == above:
                        inside = not inside
            elif by == y:
                bx = coordinates[k]
                if bx == x or (coordinates[j + 1] == y and (coordinates[j] < x) != (bx < x)):
                    return True
            j = k
    return inside


def earth_rings_contain(
    coordinates: Sequence[float], starts: Sequence[int], x: float, y: float, z: float
) -> bool:
    """By degrees. Longitudes may be beyond 180, up to 360, where a ring crosses the antimeridian.

    At a pole all longitudes meet: it is inside if any vertex is at it.
    """
    if x * x + y * y <= AT_POLE:
        return latitude_occurs(coordinates, 90.0 if z > 0 else -90.0)
    lon, lat = lon_lat(x, y, z)
    lon, lat = settle(lon), settle(lat)
    if rings_contain(coordinates, starts, lon, lat):
        return True
    west, east = 180.0, -180.0
    for k in range(0, len(coordinates), 2):
        west, east = min(west, coordinates[k]), max(east, coordinates[k])
    if lon + 360.0 <= east and rings_contain(coordinates, starts, lon + 360.0, lat):
        return True
    return lon - 360.0 >= west and rings_contain(coordinates, starts, lon - 360.0, lat)


def latitude_occurs(coordinates: Sequence[float], latitude: float) -> bool:
    for k in range(1, len(coordinates), 2):  # noqa: SIM110 (numba compiles no generators here)
        if coordinates[k] == latitude:
            return True
    return False


def turn(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> float:
    """Positive if the point is to the left of the way from a to b, 0 exactly if it is on its line.

    The sign is that of the true determinant: a rounded one is taken only where its error cannot
    change the sign, otherwise products and sums keep what rounding loses (Dekker, Shewchuk).
    """
    left = (ax - x) * (by - y)
    right = (ay - y) * (bx - x)
    rounded = left - right
    if abs(rounded) >= DOUBTFUL * (abs(left) + abs(right)):
        return rounded  # also 0, of factors that are 0
    terms = [0.0] * 12
    terms[0], terms[1] = product(ax, by)
    terms[2], terms[3] = product(-ax, y)
    terms[4], terms[5] = product(-x, by)
    terms[6], terms[7] = product(-ay, bx)
    terms[8], terms[9] = product(ay, x)
    terms[10], terms[11] = product(y, bx)
    return leading_term(terms)


def product(a: float, b: float) -> tuple[float, float]:
    """Rounded, and what rounding has lost. (Dekker 1971: halves whose products are exact.)"""
    p = a * b
    t = SPLITTER * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = SPLITTER * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)


def leading_term(terms: list[float]) -> float:
    """A number with the sign of the exact sum: parts that do not overlap, the largest last."""
    count = 0  # of parts, which replace the terms that have been added
    for i in range(len(terms)):
        total = terms[i]
        kept = 0
        for j in range(count):
            part = terms[j]
            rounded = total + part
            of_part = rounded - total
            lost = (total - (rounded - of_part)) + (part - of_part)
            if lost != 0.0:
                terms[kept] = lost
                kept += 1
            total = rounded
        if total != 0.0:
            terms[kept] = total
            kept += 1
        count = kept
    return terms[count - 1] if count else 0.0


# Corridors.


def line_is_near(
    coordinates: Sequence[float], dims: int, reach: float, x: float, y: float, z: float
) -> bool:
    """Does the line come within `reach` of the point? In the plane z is 0."""
    ax, ay = x - coordinates[0], y - coordinates[1]
    az = z - coordinates[2] if dims == 3 else 0.0
    for k in range(dims, len(coordinates), dims):
        bx, by = x - coordinates[k], y - coordinates[k + 1]
        bz = z - coordinates[k + 2] if dims == 3 else 0.0
        ux, uy, uz = ax - bx, ay - by, az - bz
        along, length = ax * ux + ay * uy + az * uz, ux * ux + uy * uy + uz * uz
        if along <= 0.0:  # nearest is a, or the leg has no length
            dx, dy, dz = ax, ay, az
        elif along >= length:
            dx, dy, dz = bx, by, bz
        else:
            s = along / length
            dx, dy, dz = ax - s * ux, ay - s * uy, az - s * uz
        if sqrt(dx * dx + dy * dy + dz * dz) <= reach:
            return True
        ax, ay, az = bx, by, bz
    return False


# Sectors: `direction` and `angle` in degrees, then the unit vectors of the right and left border.


def sector_faces(coordinates: Sequence[float], first: int, dx: float, dy: float) -> bool:
    """Is this direction from the apex between the borders? `first` is the index of `direction`."""
    angle = coordinates[first + 1]
    right_x, right_y = coordinates[first + 2], coordinates[first + 3]
    left_x, left_y = coordinates[first + 4], coordinates[first + 5]
    after_right = right_x * dy - right_y * dx >= 0.0
    before_left = dx * left_y - dy * left_x >= 0.0
    if angle > 180.0:
        return after_right or before_left
    if angle <= 90.0 and dx * (right_x + left_x) + dy * (right_y + left_y) < 0.0:
        return False  # behind the apex of a sector that may be as narrow as a line
    return after_right and before_left


def earth_sector_contains(
    coordinates: Sequence[float], size: float, x: float, y: float, z: float
) -> bool:
    """The direction is that in the tangent plane at the apex, the distance the chord."""
    dx, dy, dz = x - coordinates[0], y - coordinates[1], z - coordinates[2]
    if sqrt(dx * dx + dy * dy + dz * dz) > size:
        return False
    east = dx * coordinates[3] + dy * coordinates[4] + dz * coordinates[5]
    north = dx * coordinates[6] + dy * coordinates[7] + dz * coordinates[8]
    return sector_faces(coordinates, 9, east, north)
