"""Engines by the names that a scenario uses. Each is loaded when it is first wanted."""

from collections.abc import Callable

from nearcast.matching.matcher import Matcher
from nearcast.matching.rtree import RTree
from nearcast.matching.scan import Scan


def _grid() -> Matcher:
    from nearcast.matching.grid import Grid  # compiles (or loads) kernels: late on purpose

    return Grid()


MATCHERS: dict[str, Callable[[], Matcher]] = {"scan": Scan, "grid": _grid, "rtree": RTree}
