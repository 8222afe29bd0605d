"""An R-tree in main memory: boxes within boxes, so that a search skips all that is far away.

The tree is Guttman's ("R-trees", SIGMOD 1984): it grows and shrinks with every put and drop and is
never built anew. Its decisions are those of `space.rtree`. It holds a box around each region.
Regions that move by themselves have a box around all that they touch in a slice of time; when a
publication's moment lies outside the slice, they are inserted anew for another one. What the tree
finds are candidates: `wants` has the last word on each, at the asked moment.
"""

from collections.abc import Iterable
from math import hypot, inf

import numpy as np
from msgspec import Struct

from nearcast.matching.matcher import Batch, Matches
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, Subscription, SubscriptionId
from nearcast.space.motion import SECOND, Moving, Path, Time, elapsed, grown
from nearcast.space.rtree import SPLITS, Bounds, choose, overlaps, union
from nearcast.space.shapes import DISC, Shape, Vector

NOWHERE = Bounds((inf, inf, inf), (-inf, -inf, -inf))  # the box of nothing: unions ignore it

# Seconds of a slice. Inserting anew costs as much as many searches, however tight the boxes are.
SHORTEST, USUAL, LONGEST = 0.1, 1.0, 60.0


# Boxes around regions


def room(middle: float, half: float) -> float:
    """A half-extent that certainly covers every overlap that rounds to yes.

    `overlap` rounds its differences and sums, and corners are rounded too: one part in 1e12 of the
    extent and four units of rounding of the coordinate are more than all of it. 1e-160, because
    the squares of smaller distances underflow to nothing. Both boxes of a pair take their room, for
    neither knows the numbers of the other.
    """
    return half * 1.000000000001 + abs(middle) * 4.5e-16 + 1e-160


def enclosing(kind: int, begin: Vector, end: Vector, extents: Vector) -> Bounds:
    """The box around a shape of at most these half-extents wherever it is from begin to end."""
    rx, ry, rz = extents
    if kind == DISC:
        ry = rz = rx
    sides = [
        # A centre that has left the floats may still touch what is unbounded.
        (low - room(low, half), high + room(high, half)) if low > -inf and high < inf else (-inf, inf)
        for low, high, half in (
            (min(begin[0], end[0]), max(begin[0], end[0]), rx),
            (min(begin[1], end[1]), max(begin[1], end[1]), ry),
            (min(begin[2], end[2]), max(begin[2], end[2]), rz),
        )
    ]
    return Bounds(*zip(*sides, strict=True))
