"""What is tried: each overlay with the settings that fit the world, and its main parameters.

Distances that overlays know in advance (rooms, margins, spacings) are in units of the world, so
their defaults would be wrong for a recording in metres or degrees; here they follow from the
recorded areas and speeds.
"""

from math import ceil

from msgspec import Struct

from nearcast.pipeline.advise.world import WorldFacts
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Setting
from nearcast.sim.settings import CLUSTER


class OverlayCandidate(Struct, frozen=True, kw_only=True):
    """An overlay with settings. A variant differs from the overlay's main form by one thing."""

    name: str
    protocol: str
    settings: dict[str, Setting] = {}
    needs_server: bool = False
    servers: int = 0
    variant_of: str = ""
    about: str = ""

    @property
    def is_variant(self) -> bool:
        return bool(self.variant_of)


def reach_ahead(facts: WorldFacts, one_way_ms: float) -> float:
    """Units in which others must be known already: what two of them walk in a step (200 ms) and a
    round trip, and at least a twentieth of an area."""
    return max(2 * facts.speed * (0.2 + 2 * one_way_ms / 1000), facts.radius / 20, 1e-6)


def make_candidates(
    facts: WorldFacts, uplink_kbit: float, one_way_ms: float
) -> list[OverlayCandidate]:
    """All of them, the main forms first."""
    ahead = float(f"{reach_ahead(facts, one_way_ms):.3g}")
    whole = facts.has_filters or facts.has_formulas or facts.channels > 1 or "box" in facts.shapes
    main = [
        OverlayCandidate(
            name="node", protocol=CLUSTER, needs_server=True, servers=1,
            settings={"servers": 1, "retain": 0.0, "capacity": 1e6},
            about="one live node (`nearcast node`), its own code, clients connected to it",
        ),
        OverlayCandidate(
            name="client-server", protocol="client-server", needs_server=True, servers=1,
            about="one server in its simplest form: no flushes, no limits",
        ),
        OverlayCandidate(
            name="brokers", protocol="brokers", needs_server=True, servers=5,
            about="a tree of five brokers that forward to each other",
        ),
        OverlayCandidate(
            name="drtree", protocol="drtree",
            settings={"dimensions": "x,y,z" if facts.is_deep else "x,y"},
            about="the areas of peers form an R-tree",
        ),
        OverlayCandidate(
            name="bubblestorm", protocol="bubblestorm",
            settings={"interests": "whole" if whole else "circle", "upload_kbit": uplink_kbit},
            about="subscriptions meet by chance in a random graph of peers",
        ),
        OverlayCandidate(
            name="psense", protocol="psense",
            settings={"dimensions": 3 if facts.is_deep else 2,
                      "limit": min(5000, psense_limit(uplink_kbit))},
            about="peers know those around them, and a sensor in each direction",
        ),
        OverlayCandidate(
            name="von", protocol="von", settings={"room": ahead},
            about="peers are sites of a Voronoi diagram",
        ),
        OverlayCandidate(
            name="vso", protocol="vso",
            settings={"world": float(ceil(max(1.0, min(facts.side, 1e9)))), "margin": ahead,
                      "buffer": ahead, "spacing": ahead / 4, "limit": 20.0, "least": 2},
            about="some peers match for the others, as sites of a Voronoi diagram",
        ),
        OverlayCandidate(
            name="relays", protocol="relays",
            settings={"directory": "mesh", "room": ahead,
                      "uplink_min": uplink_kbit, "uplink_max": uplink_kbit},
            about="sites of a Voronoi diagram, which forward for each other where uplinks are slow",
        ),
    ]  # fmt: skip
    return [*main, *make_variants({each.name: each for each in main}, uplink_kbit)]


def make_variants(main: dict[str, OverlayCandidate], uplink_kbit: float) -> list[OverlayCandidate]:
    """The main parameters: few, each with a reason."""

    def variant(of: str, name: str, about: str, **settings: Setting) -> OverlayCandidate:
        base = main[of]
        servers = settings.get("servers", settings.get("brokers", base.servers))
        assert isinstance(servers, int)
        return OverlayCandidate(
            name=name, protocol=base.protocol, settings={**base.settings, **settings},
            needs_server=base.needs_server, servers=servers, variant_of=of, about=about,
        )  # fmt: skip

    return [
        variant("node", "cluster-2", "two live nodes that share the space", servers=2),
        variant("node", "cluster-4", "four live nodes", servers=4),
        variant("brokers", "brokers-covering", "brokers keep covered interests back",
                covering="active"),
        variant("drtree", "drtree-brothers", "publications go to brothers in the tree too",
                strategy="brothers"),
        variant("drtree", "drtree-wide", "8 to 16 children: a lower tree", least=8, most=16),
        variant("bubblestorm", "bubblestorm-surer", "larger bubbles (λ 1.5), twice as often",
                **{"lambda": 1.5, "round_ms": 500.0}),
        variant("psense", "psense-quick", "rounds of 100 ms", round_ms=100.0,
                limit=min(1500, psense_limit(uplink_kbit, 0.1))),
        variant("psense", "psense-generous", "peers may fill their uplinks",
                limit=psense_limit(uplink_kbit)),
        variant("von", "von-vorocast", "publications go along a tree of sites", cast="vorocast"),
        variant("vso", "vso-few-matchers", "a matcher may own 100 subscriptions", limit=100.0),
    ]  # fmt: skip


def psense_limit(uplink_kbit: float, round_s: float = 0.333) -> int:
    """Bytes that a peer may send in a round: what its uplink carries in that time."""
    return max(200, round(uplink_kbit * 1000 / 8 * round_s))


def left_out(candidates: list[OverlayCandidate]) -> dict[str, str]:
    """The protocols of the registry that no candidate has; none, unless one was added since."""
    tried = {each.protocol for each in candidates}
    return {
        name: "it is new, and no settings for recorded worlds are known for it"
        for name in (*PROTOCOLS, CLUSTER)
        if name not in tried
    }
