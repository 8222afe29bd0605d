"""The runs for the figures of [VSO], and for its open questions.

The paper's set-up (V): steps of 100 ms, every message takes one step, a world of 768 x 768, areas
of 192, 3 units per step, 1.5 ln(n) hotspots, at most 20 subscriptions per matcher. In the full form
nodes publish their position in every step, as in the paper, and runs of figures 8 to 10 with up to
200 nodes have 3,000 steps. More nodes publish in one of ten steps until shortly before the end, and
only then in every step: 1,000 nodes in every step would take two hours, and the matchers, which the
number of subscriptions calls in, need minutes to come. They are there after 210 s, so these runs
have 2,400 steps. Runs of figure 7 do likewise, whatever their size: nine matchers are there at
once. What else is not of figures 8 to 10 is shorter, too. In the quick form nodes publish twice a
second, for less time, with fewer nodes. Areas are then extended by 32 units (VON's own buffer)
instead of VAST's 10, because nodes move farther between two publications.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from msgspec import Struct

from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.scenario import Scenario, Setting
from nearcast.sim.settings import CLUSTER

STEP_MS = 100.0
STEP_RATE = 10.0  # publications per second: one in each step
JOIN_RATE = 10.0  # nodes per second
LIMIT = 20.0
MEASURED_S = 25.0  # of the last third of a run at most so much is measured: its end
# The full form's nodes of figure 7, and more than MANY of figures 9 and 10, publish in one of so
# many steps until so long before.
SETTLING_ONE_IN = 10
MANY, SETTLED_BEFORE_S = 200, 5.0
# VON's own buffer (the class's default) in every step, beside the 10 units of VAST's simulation: so
# many nodes for so long; most of the 40 matchers of 500 nodes are there by then.
WIDE_BUFFER, WIDE_SIZES, WIDE_S, WIDE_SETTLE_S = 32.0, (200, 500), 140.0, 125.0
SQUARES = 9  # matchers of figure 7
# Nodes of figure 7, and of figures 9 and 10, that are run on several seeds.
SEVERAL_NINE, SEVERAL = (100, 200), (50, 100)
PARTITIONINGS = "static", "dynamic"
STABLE = 50, 100  # nodes under churn
# The paper extends VAST (V): there a client asks again after 5 s, does not ask whether its matcher
# lives, and is told of others as they move. Ours recover faster.
VAST_RECOVERY = {"retry_ms": 5000.0, "doubt_ms": 1e7, "recall_ms": 0.0}
OUR_RECOVERY = {name: getattr(Parameters(), name) for name in VAST_RECOVERY}
MIN_MATCHERS = 6  # matchers that there shall be where the gateway may crash; the paper's never does
CROWD, STAYING = 120, 30  # nodes that come and go, and that are there all the time
# Provisioned servers besides the gateway, by who may become a matcher. They do not crash, and each
# takes so many subscriptions.
CANDIDATES = {"servers": 3, "both": 1}
SERVER_LIMIT = 40.0
SERVERS = 4  # that serve all, where matching at owners is compared with matching at homes
IDLE = 0.0, 0.5  # share of its limit up to which a matcher leaves


class VSOPreset(Struct, frozen=True):
    """How much is run."""

    rate: float
    buffer: float
    sizes: tuple[int, ...]  # of the scalability runs
    nine: tuple[int, ...]  # nodes with nine matchers
    nine_s: float
    churn: dict[int, tuple[float, ...]]  # rates, by stable size
    # Of churn with VAST's recovery, at the rates of `mortal`; of SEVERAL and SEVERAL_NINE.
    seeds: tuple[int, ...]
    mortal: tuple[float, ...]  # rates of the runs in which nobody is spared
    phase_s: float  # of joining, and of churning
    calm_s: float  # of stabilising, for which 20 s are judged
    blasts: tuple[float, ...]
    blast_s: float
    served: tuple[int, ...]  # nodes that SERVERS serve
    served_s: float
    one_in: int  # publications of which deliveries are kept
    sample_ms: float

    def seconds(self, nodes: int) -> float:
        """Of a scalability run: its end is measured, after all have joined and settled."""
        if self.rate != STEP_RATE:
            return nodes / JOIN_RATE + 80.0
        return 300.0 if nodes <= MANY else 240.0


QUICK = VSOPreset(
    rate=2.0, buffer=32.0, sizes=(50, 100, 200), nine=(50, 100, 200), nine_s=45.0,
    churn={50: (1.0, 2.0, 5.0, 10.0), 100: (1.0, 5.0, 10.0)}, seeds=(1, 2, 3, 4, 5),
    mortal=(1.0, 5.0, 10.0),
    phase_s=60.0, calm_s=30.0,
    blasts=(0.0, 64.0, 192.0), blast_s=40.0,
    served=(50, 100), served_s=30.0, one_in=4, sample_ms=1000.0,
)  # fmt: skip
FULL = VSOPreset(
    rate=STEP_RATE, buffer=10.0, sizes=(50, 100, 200, 500, 1000),
    nine=(50, 100, 200, 300, 400, 500), nine_s=45.0,
    churn={50: (1.0, 2.0, 5.0, 10.0), 100: (1.0, 5.0, 10.0)}, seeds=(1, 2, 3),
    mortal=(1.0, 5.0, 10.0), phase_s=100.0, calm_s=100.0,
    blasts=(0.0, 32.0, 64.0, 128.0, 192.0), blast_s=40.0,
    served=(50, 100, 200), served_s=30.0, one_in=64, sample_ms=2000.0,
)  # fmt: skip
SIZES, NINE = FULL.sizes, FULL.nine
CHURN = FULL.churn[50]
BLASTS = FULL.blasts
BUFFERS = {preset.rate: preset.buffer for preset in (QUICK, FULL)}  # by publications per second


def measured_from(seconds: float) -> float:
    """The second of a run from which on loads are measured: in its last third."""
    return max(seconds * 2 / 3, seconds - MEASURED_S)


def scenario(preset: VSOPreset, nodes: int, seconds: float, seed: int = 1, **more: Any) -> Scenario:
    """A run with the paper's set-up, and some settings changed."""
    settings = {
        "latency_ms": STEP_MS,
        "rate": preset.rate,
        "buffer": preset.buffer,
        "motion": "steps",
        "payload": 0,
        "limit": LIMIT,
        "join_rate": JOIN_RATE,
        "sample_ms": preset.sample_ms,
        "one_in": preset.one_in,
        **more,
    }
    return Scenario(
        protocol="vso", workload="clustering", nodes=nodes, seconds=seconds, seed=seed,
        record="brief", settings=settings,
    )  # fmt: skip


def scenarios(figure: str, full: bool) -> Iterator[Scenario]:
    """The runs that a figure needs."""
    preset = FULL if full else QUICK
    match figure:
        case "2":
            # The same rule at work: fifty that stand nearly still, at most ten to a matcher.
            yield scenario(preset, 50, 90.0, limit=10.0, speed=0.1, join_rate=0.0)
        case "7":
            for nodes, partitioning in product(preset.nine, PARTITIONINGS):
                for seed in preset.seeds if nodes in SEVERAL_NINE else preset.seeds[:1]:
                    yield nine_scenario(preset, nodes, partitioning, seed)
        case "8":
            for nodes, rates in preset.churn.items():
                for rate in rates:
                    yield churn_scenario(preset, nodes, rate)
                    for seed in preset.seeds if rate in preset.mortal else preset.seeds[:1]:
                        yield churn_scenario(preset, nodes, rate, seed, **VAST_RECOVERY)
            yield from (mortal_scenario(preset, rate) for rate in preset.mortal)
        case "9" | "10" | "table":
            for nodes in preset.sizes:
                for seed in preset.seeds if nodes in SEVERAL else preset.seeds[:1]:
                    yield scale_scenario(preset, nodes, seed)
            if preset.rate == STEP_RATE:
                yield from (wide_scenario(preset, nodes) for nodes in WIDE_SIZES)
        case "areas":
            for blast in preset.blasts:
                yield scenario(
                    preset, 100, preset.blast_s, blast=blast, matchers=SQUARES, join_rate=0.0,
                    one_in=1,
                )  # fmt: skip
        case "candidates":
            for rate in preset.mortal:
                yield mortal_scenario(preset, rate)
                for who, servers in CANDIDATES.items():
                    yield churn_scenario(
                        preset, STABLE[0], rate, candidates=who, servers=servers,
                        server_limit=SERVER_LIMIT, least=MIN_MATCHERS,
                    )  # fmt: skip
        case "servers":
            for nodes in preset.served:
                yield scenario(
                    preset, nodes, preset.served_s, matchers=SERVERS, candidates="servers",
                    insertion_trigger=0, join_rate=0.0, one_in=1,
                )  # fmt: skip
                yield cluster_scenario(preset, nodes)
        case "tide":
            for idle in IDLE:
                yield tide_scenario(preset, idle)


def nine_scenario(preset: VSOPreset, nodes: int, partitioning: str, seed: int = 1) -> Scenario:
    """V-A: nine matchers from the beginning, and nobody is inserted."""
    return scenario(
        preset, nodes, preset.nine_s, seed, partitioning=partitioning, matchers=SQUARES,
        insertion_trigger=0, join_rate=0.0, **settling_settings(preset, preset.nine_s),
    )  # fmt: skip


def scale_scenario(preset: VSOPreset, nodes: int, seed: int = 1) -> Scenario:
    """V-C: nodes join one after the other, and matchers come as the load needs them."""
    seconds = preset.seconds(nodes)
    settling = settling_settings(preset, seconds) if nodes > MANY else {}
    return scenario(preset, nodes, seconds, seed, **settling)


def wide_scenario(preset: VSOPreset, nodes: int) -> Scenario:
    """The same with areas that are extended farther; for discovery consistency alone."""
    return scenario(
        preset, nodes, WIDE_S, buffer=WIDE_BUFFER, settle_s=WIDE_SETTLE_S,
        settle_one_in=SETTLING_ONE_IN,
    )  # fmt: skip


def settling_settings(preset: VSOPreset, seconds: float) -> dict[str, Any]:
    """Until shortly before it is measured, a run that publishes in every step does so less."""
    if preset.rate != STEP_RATE:
        return {}
    return {
        "settle_s": measured_from(seconds) - SETTLED_BEFORE_S,
        "settle_one_in": SETTLING_ONE_IN,
    }


def cluster_scenario(preset: VSOPreset, nodes: int) -> Scenario:
    """The same world, served by a cluster of `nearcast node`."""
    settings: dict[str, Setting] = {
        "latency_ms": STEP_MS, "rate": preset.rate, "motion": "steps", "payload": 0,
        "servers": SERVERS, "retain": 0.0, "sample_ms": preset.sample_ms, "one_in": 1,
    }  # fmt: skip
    return Scenario(
        protocol=CLUSTER, workload="clustering", nodes=nodes, seconds=preset.served_s,
        record="brief", settings=settings,
    )  # fmt: skip


def churn_scenario(
    preset: VSOPreset, nodes: int, rate: float, seed: int = 1, **more: Any
) -> Scenario:
    """V-B: as many join per second, then one leaves for each that joins; nobody says goodbye."""
    phase = preset.phase_s
    return scenario(
        preset, nodes, 2 * phase + preset.calm_s, seed, join_rate=rate, churn_rate=rate,
        churn_from=phase, churn_until=2 * phase, churn_by="crash", **more,
    )  # fmt: skip


def mortal_scenario(preset: VSOPreset, rate: float) -> Scenario:
    """Nobody is spared: the gateway crashes as churn begins, and whoever follows it may."""
    return churn_scenario(preset, STABLE[0], rate, servers_until=preset.phase_s, least=MIN_MATCHERS)


def tide_scenario(preset: VSOPreset, idle: float) -> Scenario:
    """A crowd comes and goes again; servers are the candidates, so that they do not go with it."""
    return scenario(
        preset, STAYING, 300.0, join_rate=0.0, rate=0.5, flash_at=30.0, flash_nodes=CROWD,
        crash_at=150.0, crash_share=CROWD / (CROWD + STAYING), idle=idle, candidates="servers",
        servers=30, sample_ms=10_000.0,
    )  # fmt: skip
