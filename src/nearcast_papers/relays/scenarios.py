"""The runs for [Lehn]: its round model, and the message protocol.

The paper's set-up (V): uplinks of 100 to 500 kbit/s, sources of 512 bytes per second, headers of
about as much. The round model has exactly that, also in the quick form. Peers that exchange real
messages publish 16 bytes eight times a second; with our encoding and 28 bytes of headers that is a
direct stream of about 1,100 bytes per second. The quick form publishes half as often on uplinks of
half the rate, for less time, with fewer peers. An interval of 500 ms is a round.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from nearcast.scenario import Scenario, Setting
from nearcast_papers.relays.model import CLUSTER_SLOWDOWN, SHARED_HEADER, RoundScenario

TYPICAL = 150  # nodes of figure 4
SIZES = 50, 100, 150, 200
WEIGHTS = tuple(tenth / 10 for tenth in range(11))
CLUSTERINGS = tuple(tenth / 10 for tenth in range(1, 10))
EPSILONS = 0.0, 0.0001, 0.001, 0.01, 0.1
WALKS = 0.0, 1.0, 2.0, 5.0, 10.0, 20.0  # units between two rounds
REPLACED = 0.0, 0.01, 0.02, 0.05, 0.1  # of all nodes, after each round
FACTORS = 1.0, 3.0, 10.0, 30.0
VIOLATIONS = 0.0, 0.2, 0.4
OTHER_SHARES = 1.0, 0.8, 0.0  # of a header that sources share: other readings of figures 4 and 5
LONG_ROUNDS = 40  # rounds of what must come to rest: ε, the clustering scenario, worlds that change
RATE = 8.0  # updates per second
PAYLOAD = 16
DEGREE = 25.0
WALK_SPEED = 10.0
WALKING_ROOM, CHURN_ROOM = 1.7, 1.3
CHURN_RATE = 1.0
INTERVAL_S = 0.5
GAME_PLAYERS = 60
GAME_INTERVAL_MS, GAME_STEPS = 250.0, 8


# By overlay, on one radio channel: its protocol, and what is set. A radio of 6 Mbit/s is heard by
# about 18 others over two hops, so 200 kbit/s is what a peer may take of it.
MANET_OVERLAYS: dict[str, tuple[str, dict[str, Setting]]] = {
    "client-server": ("client-server", {}),
    "psense": ("psense", {}),
    "direct": (
        "relays",
        {"directory": "mesh", "relays": "off", "uplink_min": 200.0, "uplink_max": 200.0},
    ),
    "relays": (
        "relays",
        {"directory": "mesh", "relays": "on", "uplink_min": 200.0, "uplink_max": 200.0},
    ),
}
MANET_RATES = 5.0, 10.0, 20.0  # updates of each in a second
MANET_NODES, MANET_SECONDS, MANET_SEEDS = 40, 5.0, (1, 2, 3)

SEEDS = 1, 2, 3, 4, 5  # of most rounds in the quick form


class RelayPreset(Struct, frozen=True):
    """How much is run."""

    seeds: tuple[int, ...]  # of the round model
    many: tuple[int, ...]  # of figure 6, and of other readings
    few: tuple[int, ...]  # of the clustering scenario, and of what is ours
    vertices: int  # of the clustering scenario
    rate: float  # of messages, as all below
    seconds: float
    brief_s: float  # where nothing has to settle
    peers: tuple[int, ...]
    sizes: tuple[int, ...]
    usual: int  # peers where the size is not what is varied; see `reality_scenario`
    weights: tuple[float, ...]
    clusterings: tuple[float, ...]
    graph: int  # peers of the clustering scenario
    degree: float


QUICK = RelayPreset(
    seeds=tuple(range(1, 11)), many=SEEDS, few=SEEDS, vertices=500, rate=4.0,
    seconds=12.0, brief_s=5.0, peers=(1,), sizes=(50, 100), usual=80, weights=(0.0, 0.1, 0.5, 1.0),
    clusterings=(0.3, 0.6, 0.9), graph=80, degree=12.0,
)  # fmt: skip
FULL = RelayPreset(
    seeds=tuple(range(1, 31)), many=tuple(range(1, 31)), few=tuple(range(1, 11)), vertices=1000,
    rate=RATE, seconds=20.0, brief_s=5.0, peers=(1,), sizes=SIZES, usual=TYPICAL,
    weights=(0.0, 0.1, 0.5, 1.0), clusterings=(0.1, 0.5, 0.9), graph=150, degree=DEGREE,
)  # fmt: skip


# The round model.


def round_scenarios(preset: RelayPreset) -> dict[str, list[RoundScenario]]:
    """By figure."""
    seeds = {SHARED_HEADER: preset.seeds, **dict.fromkeys(OTHER_SHARES, preset.many)}
    return {
        "4": [
            RoundScenario(nodes=TYPICAL, seed=seed, shared=shared)
            for shared, some in seeds.items()
            for seed in some
        ],
        "5": [
            RoundScenario(nodes=nodes, seed=seed, shared=shared)
            for shared, some in seeds.items()
            for nodes in SIZES
            for seed in some
        ],
        "6": [
            RoundScenario(nodes=TYPICAL, seed=seed, weight=weight)
            for weight in WEIGHTS
            for seed in preset.many
        ],
        "7": [
            RoundScenario(
                nodes=preset.vertices, seed=seed, clustering=clustering, rounds=LONG_ROUNDS
            )
            for clustering in CLUSTERINGS
            for seed in preset.few
        ],
        "threshold": [
            RoundScenario(nodes=TYPICAL, seed=seed, epsilon=epsilon, rounds=LONG_ROUNDS)
            for epsilon in EPSILONS
            for seed in preset.few
        ],
        "moving": [
            RoundScenario(nodes=TYPICAL, seed=seed, walk=walk, rounds=LONG_ROUNDS)
            for walk in WALKS
            for seed in preset.few
        ],
        "churn": [
            RoundScenario(nodes=TYPICAL, seed=seed, replaced=share, rounds=LONG_ROUNDS)
            for share in REPLACED
            for seed in preset.few
        ],
        "rates": [
            RoundScenario(nodes=TYPICAL, seed=seed, factor=factor)
            for factor in FACTORS
            for seed in preset.few
        ],
        "violations": [
            RoundScenario(nodes=TYPICAL, seed=seed, violations=share)
            for share in VIOLATIONS
            for seed in preset.few
        ],
    }


# The message protocol.


def scenario(
    preset: RelayPreset,
    nodes: int,
    seed: int,
    *,
    relays: str = "on",
    seconds: float | None = None,
    workload: str = "virtual-reality",
    slower: float = 1.0,
    **more: Any,
) -> Scenario:
    """`slower`: so many times are uplinks."""
    slower *= RATE / preset.rate
    settings: dict[str, Setting] = {
        "relays": relays,
        "network": "embedding",
        "rate": preset.rate,
        "uplink_min": 100.0 / slower,
        "uplink_max": 500.0 / slower,
        "interval_ms": 1000 * INTERVAL_S,
        "sample_ms": 1e9,  # at the beginning, and never again
        **({} if workload == "planetpi4" else {"payload": PAYLOAD}),
        **more,
    }
    return Scenario(
        protocol="relays", workload=workload, nodes=nodes, seed=seed,
        seconds=preset.seconds if seconds is None else seconds, settings=settings,
    )  # fmt: skip


def scenarios(figure: str, full: bool) -> Iterator[Scenario]:
    if figure == "manet":
        yield from radio_scenarios()
        return
    preset = FULL if full else QUICK
    for seed in preset.peers:
        yield from scenarios_of_seed(figure, preset, seed)


def scenarios_of_seed(figure: str, preset: RelayPreset, seed: int) -> Iterator[Scenario]:
    """The runs of one seed that a figure needs."""
    match figure:
        case "4" | "threshold" | "rates" | "violations":
            for relays in ("on", "off"):
                yield scenario(preset, TYPICAL, seed, relays=relays)
        case "5":
            for nodes in preset.sizes:
                yield scenario(preset, nodes, seed)
                yield scenario(preset, nodes, seed, relays="off", seconds=preset.brief_s)
        case "6":
            for x in preset.weights:
                yield weighted_scenario(preset, seed, x)
        case "7":
            for clustering in preset.clusterings:
                yield clustered_scenario(preset, seed, clustering, relays="on")
                yield clustered_scenario(
                    preset, seed, clustering, relays="off", seconds=preset.brief_s
                )
        case "game":
            for relays in ("on", "off"):
                yield game_scenario(preset, seed, relays)
        case "moving":
            for relays in ("on", "off"):
                yield reality_scenario(
                    preset, seed, WALKING_ROOM, relays=relays, walking=1.0, speed=WALK_SPEED
                )
        case "churn":
            for relays in ("on", "off"):
                yield reality_scenario(
                    preset, seed, CHURN_ROOM, relays=relays, churn_rate=CHURN_RATE,
                    churn_from=preset.seconds / 3, churn_by="crash",
                )  # fmt: skip


def reality_scenario(preset: RelayPreset, seed: int, room: float = 1.0, **more: Any) -> Scenario:
    """Fewer peers have fewer neighbours, and get slower uplinks: as busy as those of 150.

    `room`: uplinks are so many times faster than that, where more is said than among peers who
    stand still. Relays move load; where all uplinks together are too slow, they cannot help.
    """
    return scenario(preset, preset.usual, seed, slower=TYPICAL / preset.usual / room, **more)


def weighted_scenario(preset: RelayPreset, seed: int, x: float) -> Scenario:
    return reality_scenario(preset, seed, w_sender=64 * x, w_forwarder=64 * x, w_latency=1 - x)


def clustered_scenario(preset: RelayPreset, seed: int, clustering: float, **more: Any) -> Scenario:
    """Uplinks are so slow that the mean utilisation is above 2 at first (V-B)."""
    return scenario(
        preset, preset.graph, seed, workload="interest-graph", clustering=clustering,
        degree=preset.degree, slower=CLUSTER_SLOWDOWN * DEGREE / preset.degree, **more,
    )  # fmt: skip


def radio_scenarios() -> Iterator[Scenario]:
    """All walk; where they are in the world, there their radios are."""
    for seed in MANET_SEEDS:
        for protocol, chosen in MANET_OVERLAYS.values():
            for rate in MANET_RATES:
                settings: dict[str, Setting] = {
                    "network": "radio", "walking": 1.0, "speed": 5.0, "rate": rate,
                    "payload": PAYLOAD, "sample_ms": 1e9, **chosen,
                }  # fmt: skip
                yield Scenario(
                    protocol=protocol, workload="virtual-reality", nodes=MANET_NODES, seed=seed,
                    seconds=MANET_SECONDS, settings=settings,
                )  # fmt: skip


def game_scenario(preset: RelayPreset, seed: int, relays: str) -> Scenario:
    """Planet π4: fleets crowd, so whoever is overloaded takes more steps; uplinks differ by twenty,
    as homes' do."""
    slower = RATE / preset.rate
    return scenario(
        preset, GAME_PLAYERS, seed, relays=relays, workload="planetpi4", radius=350.0, room=40.0,
        uplink_min=60.0 / slower, uplink_max=1200.0 / slower, interval_ms=GAME_INTERVAL_MS,
        steps=GAME_STEPS,
    )  # fmt: skip
