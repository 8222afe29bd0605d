"""Worlds and measures for tests of advice."""

from nearcast.pipeline.advise.measures import Measures
from nearcast.pipeline.advise.world import WorldFacts

GOOD = Measures(
    recall=1.0, precision=1.0, expected=100, missed=0, spurious=0, duplicates=0, p50_ms=50.0,
    p99_ms=100.0, peer_bytes_s=1e3, peer_p99_bytes_s=2e3, peer_max_bytes_s=3e3,
    peer_received_bytes_s=1e3, server_max_bytes_s=0.0, servers=0, cpu_s=1.0, wall_s=1.0,
    cpu_ms_per_node_s=1.0, messages=100,
)  # fmt: skip
FACTS = WorldFacts(
    source="walk", entities=50, recorded_s=300.0, window_at_s=60.0, seconds=60.0, start_s=60.0,
    spare_s=120.0, publications=3000, payload=64.0, radius=100.0, speed=5.0, low=(0.0, 0.0, 0.0),
    high=(1000.0, 900.0, 0.0), shapes=("disc",), subscriptions=50, has_filters=False,
    has_formulas=False, channels=1, has_areas=False, is_file=False, radius_given=True, faster=1.0,
)  # fmt: skip
