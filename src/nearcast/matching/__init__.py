"""Matching engines by the names that a scenario uses.

All but scan and rtree compile or load kernels, which takes a while, so they are imported when they
are first used. Parameters are keywords: `interval_us` of periodic, `threshold_us` of cached.
"""

from collections.abc import Callable

from nearcast.matching.matcher import Matcher
from nearcast.matching.rtree import RTreeMatcher
from nearcast.matching.scan import ScanMatcher
from nearcast.space.motion import SECOND, Time


def _grid() -> Matcher:
    from nearcast.matching.grid import GridMatcher

    return GridMatcher()


def _periodic(interval_us: Time = SECOND) -> Matcher:
    from nearcast.matching.periodic import PeriodicMatcher

    return PeriodicMatcher(interval_us)


def _lazy() -> Matcher:
    from nearcast.matching.lazy import LazyMatcher

    return LazyMatcher()


def _cached(threshold_us: Time = SECOND // 10) -> Matcher:
    from nearcast.matching.cached import CachedMatcher

    return CachedMatcher(threshold_us)


def _swept() -> Matcher:
    from nearcast.matching.swept import SweptMatcher

    return SweptMatcher()


def _keyed() -> Matcher:
    from nearcast.matching.keyed import KeyedMatcher

    return KeyedMatcher()


MATCHERS: dict[str, Callable[..., Matcher]] = {
    "scan": ScanMatcher,
    "grid": _grid,
    "rtree": RTreeMatcher,
    "periodic": _periodic,
    "lazy": _lazy,
    "cached": _cached,
    "swept": _swept,
    "keyed": _keyed,
}
STALE = ("periodic", "cached")  # may answer as of a little earlier; all others are exact
EXACT = tuple(name for name in MATCHERS if name not in STALE)
