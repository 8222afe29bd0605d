"""Subscriptions that evolve in every way: strategies for the tests of engines."""

from functools import cache

from hypothesis import strategies as st

from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import Moving
from nearcast.space.shapes import EVERYWHERE
from support.strategies import CHANNELS, TIMES, regions

REGIONS = [
    "x >= -3 + t, x <= 3 + t, y >= -2 + t, y <= 2 + t",
    "x >= -3 - 2 * t, x <= 3 - 2 * t",
    "x > 5 * sin(t), x < 5 * sin(t) + 4, y >= cos(2 * t) - 3, y < 3",
    "x >= min(t, 4) - 2, x <= max(t, 4) + 2",
    "x == t, y <= 3",
    "x >= abs(t - 5), x <= abs(t - 5) + 3, y >= 0, y <= 8",
    "x > -4, x < 4, y > 1 / (t - 3), y < 8",
    "x >= 1 / (t - 2) - 3, x <= 1 / (t - 2) + 3",
    "x >= sqrt(t - 4), x <= sqrt(t - 4) + 5",
    "x >= 0 * t, x <= 10 / t",
    "x < 1 + 0.5 * t",
    "x <= 1e200 * t * t, x >= -1",
    "x > 1e308 * t * 1e5, x < 1e308 * t * 1e5 + 1",
    "x >= 3 + t, x <= 3 - t",
    "x >= 2, x <= 2, y >= 1, y <= 4",
]
CONDITIONS = [
    'kind == "apple"',
    'kind != "pear", weight > 3',
    "weight >= 3, weight < 7",
    "weight == 4",
    "weight != 4",
    "ripe == true",
    "ripe != true, weight <= 5",
    'kind > "b"',
    'kind <= "apple", kind >= "apple"',
    "weight <= t",
    "weight > 9 - t, weight < 12 - t, ripe == true",
    'kind == "pear", weight == 2 * t',
    "weight != t",
    "weight >= 1 / (t - 2)",
    "weight < sqrt(t - 5), ripe == false",
    "weight > sin(t) * 9",
    "ripe == true, ripe == true",
    "weight < 3 or weight > 7",
    'kind == "apple" or ripe == true, weight <= 5 + t',
    'weight < t or kind != "pear"',
    "weight >= 1 / (t - 2) or ripe == true or weight == 4",
]


@cache
def evolving(dims: int = 3) -> st.SearchStrategy[Subscription]:
    """Formulas and filters of every kind; often without a region, as in stock trading."""
    region = st.one_of(
        st.builds(Formula, st.sampled_from(REGIONS), TIMES),
        st.builds(lambda since: Moving(EVERYWHERE, since=since), TIMES),
        regions(dims),
    )
    condition = st.none() | st.builds(Filter, st.sampled_from(CONDITIONS), TIMES)
    parts = st.tuples(
        st.integers(0, 12), st.integers(0, 3), region, condition, CHANNELS, st.booleans()
    )
    return parts.map(lambda drawn: Subscription(*drawn))
