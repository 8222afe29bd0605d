"""How many seeds does the simulated cluster need to find each fault that is planted into it?"""

import re
import sys

import pytest

from nearcast.errors import InvariantError
from support.cluster_scenarios import run_cluster
from support.planted_faults import PLANTED

pytestmark = pytest.mark.soak

SEEDS = 200  # by then each is found


def test_each_planted_fault_is_found_by_some_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {what: _seeds_needed(what, monkeypatch) for what in PLANTED}
    with capsys.disabled():
        lines = [f"{seeds or 'not':>4}  {what}\n" for what, seeds in needed.items()]
        sys.stdout.write("\nseeds until it was found\n" + "".join(lines))
    assert None not in needed.values()


@pytest.mark.parametrize("what", PLANTED)
def test_without_the_planted_fault_the_same_seed_finds_nothing(what: str) -> None:
    fault = PLANTED[what]
    run_cluster(fault.scenario(fault.seed))


def _seeds_needed(what: str, monkeypatch: pytest.MonkeyPatch) -> int | None:
    fault = PLANTED[what]
    with monkeypatch.context() as planted:
        fault.plant(planted)
        for seed in range(SEEDS):
            try:
                run_cluster(fault.scenario(seed))
            except InvariantError as why:
                if re.search(fault.found, str(why)):
                    return seed + 1
    return None
