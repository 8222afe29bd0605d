"""Which tests run in which process, and in which order: `make test` has several processes.

One process has all tests that need Spark, because a session takes long to start. The other tests
are shared out by file; those of the longest files one by one, and first, so that no process is
left with a long file when the others have finished.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent

# Tests that wait for other processes and tests that compute take turns, the longest first.
LONG_FILES = (
    "tests/sim/cluster/test_cluster_faults.py",
    "tests/service/cluster/test_scaling.py",
    "tests/service/cluster/test_handover.py",
    "tests/sim/cluster/test_planted_faults.py",
    "tests/sim/cluster/test_standbys.py",
    "tests/sim/cluster/test_calm_cluster.py",
    "tests/protocols/voronoi/vso/test_heals.py",
    "tests/matching/test_contract.py",
    "tests/pipeline/truth/test_join.py",
    "tests/protocols/voronoi/vso/test_client_columns.py",
    "tests/service/cluster/test_cluster.py",
    "tests/test_docs.py",
    "tests/test_packaging.py",
    "tests/client/test_several_nodes.py",
    "tests/client/test_terminal.py",
    "tests/monitor/test_cluster_page.py",
    "tests/protocols/voronoi/test_von.py",
    "tests/monitor/test_page.py",
    "tests/pipeline/report/test_reports.py",
    "tests/protocols/voronoi/vso/test_calm.py",
    "tests/peer/test_peer.py",
    "tests/demo/test_up.py",
    "tests/workloads/test_planetpi4.py",
    "tests/service/cluster/test_stopped_node.py",
    "tests/service/cluster/test_ordering.py",
    "tests/fuzz/test_fuzz.py",
    "tests/demo/test_ship_page.py",
    "tests/protocols/psense/test_peer.py",
    "tests/cli/test_cli.py",
    "tests/protocols/psense/test_faults.py",
    "tests/service/cluster/test_bad_messages.py",
    "tests/protocols/bubblestorm/test_circuit.py",
    "tests/peer/test_peers.py",
    "tests/protocols/bubblestorm/test_pubsub.py",
    "tests/client/test_client.py",
    "tests/protocols/voronoi/test_mesh.py",
    "tests/client/test_javascript.py",
    "tests/protocols/relays/test_layer.py",
    "tests/protocols/relays/test_peer.py",
    "tests/peer/test_bad_peers.py",
    "tests/protocols/drtree/test_faults.py",
    "tests/demo/test_peer_bots.py",
    "tests/protocols/drtree/test_placement.py",
    "tests/service/test_realm.py",
    "tests/service/fences/test_watches.py",
    "tests/matching/test_rtree_matcher.py",
    "tests/papers/test_relays_paper.py",
    "tests/service/cluster/test_parts.py",
    "tests/space/test_voronoi.py",
)


class FileFacts(NamedTuple):
    """What must be known of a file of tests before it is imported."""

    on_spark: frozenset[str]  # functions that need the Spark session, directly or by a fixture
    shares: bool  # a fixture is set up once for several tests
    crowded: bool  # tests start several processes each: at the same time, they would be late


@cache
def read_file(file: str) -> FileFacts:
    text = (ROOT / file).read_text(encoding="utf-8")
    functions = [
        (name, set(re.findall(r"\w+", parameters)))
        for name, parameters in re.findall(r"^def (\w+)\(([^)]*)\)", text, re.MULTILINE)
    ]
    on_spark = {"spark"}
    for _ in functions:
        on_spark |= {name for name, parameters in functions if parameters & on_spark}
    shares = 'scope="module"' in text or any("browser" in parameters for _, parameters in functions)
    return FileFacts(frozenset(on_spark), shares, "cluster_processes" in text)


def work_unit(nodeid: str) -> str:
    """Tests of one unit run one after the other in one process."""
    file, _, test = nodeid.partition("::")
    facts = read_file(file)
    needs_spark = test.partition("[")[0] in facts.on_spark
    if needs_spark or (facts.shares and len(facts.on_spark) > 1):
        return "spark"
    one_by_one = file in LONG_FILES and not facts.shares and not facts.crowded
    return nodeid if one_by_one else file


def rank(nodeid: str) -> int:
    """The lowest comes first."""
    file = nodeid.partition("::")[0]
    if work_unit(nodeid) == "spark":
        return -1
    return LONG_FILES.index(file) if file in LONG_FILES else len(LONG_FILES)
