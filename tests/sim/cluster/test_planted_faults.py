"""The simulated cluster is judged itself: it finds faults that are planted into the cores.

How many seeds each of them needs, `tests/soak/test_long_planted_faults.py` tells.
"""

import pytest

from nearcast.errors import InvariantError
from support.cluster_scenarios import run_cluster
from support.planted_faults import PLANTED


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_fault_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = PLANTED[what]
    fault.plant(monkeypatch)
    with pytest.raises(InvariantError, match=fault.found):
        run_cluster(fault.scenario(fault.seed))
