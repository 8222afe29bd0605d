"""Nothing is missed, repeated or overtaken in a cluster, whatever links and nodes take for it."""

import pytest

from played_cluster import check


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_delays_everybody_hears_everything_once_and_in_order(seed: int) -> None:
    check(seed)
