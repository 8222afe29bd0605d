"""How many random examples a property is tried on: some in `make test`, many in `make soak`."""

import os
from typing import Any

from hypothesis import settings

EFFORT = float(os.environ.get("NEARCAST_EFFORT", "0.4"))
FEWEST = 4


def examples(number: int, **more: Any) -> settings:
    """So many, times the effort of this run of the tests."""
    return settings(max_examples=max(min(number, FEWEST), round(number * EFFORT)), **more)
