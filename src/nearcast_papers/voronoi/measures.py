"""The measures of [VSO], read from result tables."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from msgspec import Struct

from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.vso.messages import (
    Cast,
    Inventory,
    Notify,
    RecordCopies,
    RegionUpdates,
    ReplicaMatch,
    Transfer,
)
from nearcast.scenario import Scenario
from nearcast_papers.fits import percentile
from nearcast_papers.paper import NotMeasuredError, PaperMeasures
from nearcast_papers.voronoi.scenarios import (
    BUFFERS,
    JOIN_RATE,
    LIMIT,
    MIN_MATCHERS,
    OUR_RECOVERY,
    SERVER_LIMIT,
    SERVERS,
    SETTLED_BEFORE_S,
    SQUARES,
    STABLE,
    STAYING,
    VAST_RECOVERY,
    measured_from,
)

SETTLED_S = 10  # after the last has joined
GROUPED_S = 10  # a snapshot of consistency is of so many seconds, as VAST's


class MatcherLoad(Struct, frozen=True):
    """Bytes per second of matchers: on average, of the busiest, of the idlest."""

    mean: float
    most: float
    least: float

    @property
    def excess(self) -> float:
        return self.most - self.mean


class OverloadPeriod(Struct, frozen=True):
    """Seconds in which a matcher had too many subscriptions."""

    first: int
    last: int
    most: int

    @property
    def seconds(self) -> int:
        return self.last - self.first + 1


class TideResult(Struct, frozen=True):
    """By second: entities, and nodes that match; and what became of the matchers."""

    entities: dict[int, int]
    matchers: dict[int, int]
    resigned: int
    gateway_resigned: int
    idle_at_end: int  # matchers that own nothing then, besides the gateway


class CandidateResult(Struct, frozen=True):
    """Mean consistency during churn; by second, servers and clients that match."""

    consistency: float
    servers: dict[int, int]
    clients: dict[int, int]


class ServedResult(Struct, frozen=True):
    """What serving some nodes was like: bytes are for each publication."""

    wrong: int  # missed, spurious or duplicate deliveries
    latency_ms: float
    to_servers: float
    to_clients: float


class VSOMeasures(PaperMeasures):
    """The measures of the paper, over all seeds."""

    recovery: Mapping[str, float] = VAST_RECOVERY  # of clients, in the runs of figure 8 that count
    whole = "whole_"  # bandwidths over the whole run; empty: over the end of it
    # Bandwidths that are compared with the paper's bytes: with VAST's notifications, or `program_`.
    sizes_of = "vast_"
    # Units by which areas are extended, by publications per second, in the runs of figures 9 and 10
    # that count.
    buffers: Mapping[float, float] = BUFFERS

    def _runs(self, **settings: Any) -> list[Scenario]:
        return self._counted.require(**settings)

    def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        return self._counted.rows(table, **settings)

    @property
    def rate(self) -> float:
        """Publications per second and node of the scalability runs."""
        return float(self._runs(**scale_runs())[0].settings["rate"])

    def _scale_runs(self, **settings: Any) -> dict[str, Any]:
        """With the areas that count."""
        buffer = self.buffers.get(self.rate)
        if buffer is None:
            raise NotMeasuredError(f"other areas and {self.rate:g} publications per second")
        return {**scale_runs(), "buffer": buffer, **settings}

    # Figure 7.

    def nine(self, partitioning: str, nodes: int, way: str) -> MatcherLoad:
        """Nine matchers; `way` is up or down."""
        rows = self.rows("matcher_bandwidth", **nine_matcher_runs(partitioning), nodes=nodes)
        return MatcherLoad(
            *(mean(row[f"{way}_{what}"] for row in rows) for what in ("mean", "max", "min"))
        )

    def nine_by_node(self, partitioning: str, nodes: int, way: str) -> MatcherLoad:
        """The other reading: each matcher's own average over time; then of the nine."""
        rows = self.rows("bandwidth_by_node", **nine_matcher_runs(partitioning), nodes=nodes)
        by_run: dict[str, list[float]] = {}
        for row in rows:
            if row["matches"] and row["late_seconds"]:
                by_run.setdefault(row["run"], []).append(row[f"{way}_mean"])
        runs = by_run.values()
        return MatcherLoad(mean(map(mean, runs)), mean(map(max, runs)), mean(map(min, runs)))

    def nine_by_kind(self, partitioning: str) -> tuple[float, float]:
        """Bytes of notifications, and of all that matchers say to each other, of all sizes."""
        rows = self.rows("traffic_by_kind", **nine_matcher_runs(partitioning))
        notifications = sum(row["bytes"] for row in rows if row["kind"] == Notify.kind)
        between_matchers = [
            message.kind
            for message in (RegionUpdates, ReplicaMatch, RecordCopies, Cast, Transfer, Inventory)
        ]
        return float(notifications), float(
            sum(row["bytes"] for row in rows if row["kind"] in between_matchers)
        )

    # Figure 8.

    def phase(self, nodes: int) -> float:
        """How long nodes join, and churn thereafter."""
        return float(self._runs(**self._churn_runs(nodes))[0].settings["churn_from"])

    def churn_ends(self, nodes: int) -> float:
        """The last second of these runs."""
        return self._runs(**self._churn_runs(nodes))[0].seconds

    def _churn_runs(self, nodes: int, least: int = 1) -> dict[str, Any]:
        """With the recovery that counts; where the gateway crashes too, there is ours alone."""
        return {**churn_runs(nodes, least), **(self.recovery if least == 1 else OUR_RECOVERY)}

    def churn_rates(self, nodes: int, least: int = 1) -> list[float]:
        runs = self._runs(**self._churn_runs(nodes, least))
        return sorted({float(run.settings["churn_rate"]) for run in runs})

    def churn(self, nodes: int, rate: float, least: int = 1) -> dict[int, float]:
        """Consistency by second, of all seeds together."""
        return self._consistency(**self._churn_runs(nodes, least), churn_rate=rate)

    def churn_matchers(self, nodes: int, rate: float) -> float:
        """How many match on average while nodes churn; one of them, the gateway, never dies."""
        rows = self.rows("population_by_second", **self._churn_runs(nodes), churn_rate=rate)
        phase = self.phase(nodes)
        return mean(float(row["matchers"]) for row in rows if phase <= row["second"] < 2 * phase)

    def _consistency(self, **settings: Any) -> dict[int, float]:
        sums: dict[int, tuple[int, int]] = {}
        for row in self.rows("consistency_by_second", **settings):
            seen, due = sums.get(row["second"], (0, 0))
            sums[row["second"]] = seen + row["seen"], due + row["due"]
        return {second: seen / due for second, (seen, due) in sorted(sums.items()) if due}

    # Figures 9 and 10, table I.

    def sizes(self) -> list[int]:
        return sorted({run.nodes for run in self._runs(**self._scale_runs())})

    def bandwidths(self, nodes: int, matches: bool, column: str) -> list[float]:
        """Of all matchers, or of all clients, in order."""
        rows = self.rows("bandwidth_by_node", **self._scale_runs(nodes=nodes))
        found = [row for row in rows if row["matches"] == matches and row["late_seconds"] >= 5]
        if not matches:  # servers that only match are no clients
            found = [row for row in found if row["node"] < FIRST_SERVER]
        if not found:
            raise NotMeasuredError(f"{nodes} nodes")
        return sorted(float(row[column]) for row in found)

    def peak_ratio(self, nodes: int) -> float:
        """How many times their average matchers upload in their busiest second, of 90 %."""
        if self.whole and self.settling(nodes):
            raise NotMeasuredError("one rate of publications during the whole run")
        most, average = (
            percentile(self.bandwidths(nodes, True, f"{self.whole}up_{what}"), 90)
            for what in ("max", "mean")
        )
        return most / average

    def matchers(self, nodes: int) -> float:
        """On average over the seconds that are measured."""
        rows = self.rows("population_by_second", **self._scale_runs(nodes=nodes))
        return mean(
            float(row["matchers"]) for row in rows if row["second"] >= measured_from(row["seconds"])
        )

    def consistency(self, nodes: int) -> float:
        """From when all have joined, and publish as they do in the end."""
        rows = self.rows("consistency_by_second", **self._scale_runs(nodes=nodes))
        begins = max(nodes / JOIN_RATE + SETTLED_S, self.settling(nodes) + SETTLED_BEFORE_S)
        late = [row for row in rows if row["second"] >= begins]
        return float(sum(row["seen"] for row in late) / max(1, sum(row["due"] for row in late)))

    def settling(self, nodes: int) -> float:
        """Seconds in which a run of so many nodes does not yet publish in every step."""
        return float(self._runs(**self._scale_runs(nodes=nodes))[0].settings["settle_s"])

    def overloads(self, nodes: int) -> list[OverloadPeriod]:
        rows = self.rows("overloads", **self._scale_runs(nodes=nodes))
        return [OverloadPeriod(row["first"], row["last"], row["most"]) for row in rows]

    def lasted(self, nodes: int) -> float:
        """Seconds of a run of so many nodes."""
        return self._runs(**self._scale_runs(nodes=nodes))[0].seconds

    # What the paper left open, and what holds everywhere.

    def delivered(self, blast: float) -> dict[str, float]:
        """What became of publications of this radius, and how many messages of some kinds."""
        rows = self.rows("delivery_totals", **area_runs(), blast=blast)
        found = {
            name: sum(row[name] for row in rows)
            for name in ("expected", "correct", "missed", "spurious", "duplicates")
        }
        made = self.rows("publications_made", **area_runs(), blast=blast)
        found["publications"] = sum(row["publications"] for row in made)
        kinds = self.rows("traffic_by_kind", **area_runs(), blast=blast)
        for kind in (Cast.kind, ReplicaMatch.kind, Notify.kind):
            found[kind] = sum(row["messages"] for row in kinds if row["kind"] == kind)
        return found

    def tide(self, idle: float) -> TideResult:
        """What became of matchers while a crowd came and went."""
        rows = self.rows("population_by_second", **tide_runs(), idle=idle)
        roles = self.rows("roles", **tide_runs(), idle=idle)
        staying = [row for row in roles if row["began"] > row["resigned"] + row["gone"]]
        return TideResult(
            {row["second"]: row["entities"] for row in rows},
            {row["second"]: row["matchers"] for row in rows},
            sum(row["resigned"] for row in roles),
            sum(row["resigned"] for row in roles if row["node"] == FIRST_SERVER),
            sum(row["owned"] == 0 and row["node"] != FIRST_SERVER for row in staying),
        )

    def candidates(self, who: str, rate: float) -> CandidateResult:
        """Clients, servers or both as candidates: what came of it while nodes churned."""
        if who == "clients":  # nobody is spared
            chosen = churn_runs(STABLE[0], MIN_MATCHERS)
        else:
            chosen = {"candidates": who, "server_limit": SERVER_LIMIT}
        chosen["churn_rate"] = rate
        phase = float(self._runs(**chosen)[0].settings["churn_from"])
        seen = values_between(self._consistency(**chosen), phase, 2 * phase)
        rows = sorted(self.rows("population_by_second", **chosen), key=lambda row: row["second"])
        return CandidateResult(
            mean(seen.values()),
            {row["second"]: row["servers"] for row in rows},
            {row["second"]: row["matchers"] - row["servers"] for row in rows},
        )

    def served(self, protocol: str, nodes: int) -> ServedResult:
        """The same nodes, served by matchers of VSO or by a cluster."""
        chosen = served_runs(protocol) | {"nodes": nodes}
        (totals,) = self.rows("delivery_totals", **chosen)
        (sent,) = self.rows("server_traffic", **chosen)
        (made,) = self.rows("publications_made", **chosen)
        publications = made["publications"]
        return ServedResult(
            totals["missed"] + totals["spurious"] + totals["duplicates"],
            totals["latency_mean_ms"],
            sent["to_servers"] / publications,
            sent["to_clients"] / publications,
        )

    def everywhere(self, table: str) -> list[dict[str, Any]]:
        return self.rows(table)


# Which runs are meant.


def nine_matcher_runs(partitioning: str) -> dict[str, Any]:
    return {"matchers": SQUARES, "insertion_trigger": 0, "partitioning": partitioning}


def churn_runs(nodes: int, least: int = 1) -> dict[str, Any]:
    """`least` matchers: 1 in the paper's set-up, more where its gateway crashes too."""
    return {"churn_by": "crash", "nodes": nodes, "least": least, "server_limit": 0.0}


def scale_runs() -> dict[str, Any]:
    return {
        "matchers": 1, "churn_by": "leave", "join_rate": JOIN_RATE, "limit": LIMIT,
        "insertion_trigger": 5,
    }  # fmt: skip


def served_runs(protocol: str) -> dict[str, Any]:
    chosen = {"matchers": SERVERS, "insertion_trigger": 0} if protocol == "vso" else {}
    return {"protocol": protocol, **chosen}


def area_runs() -> dict[str, Any]:
    return {"matchers": SQUARES, "insertion_trigger": 5, "partitioning": "dynamic"}


def tide_runs() -> dict[str, Any]:
    return {"candidates": "servers", "nodes": STAYING}


# Small arithmetic.


def values_between(points: Mapping[int, float], first: float, last: float) -> dict[int, float]:
    return {second: value for second, value in points.items() if first <= second < last}


def snapshots(points: Mapping[int, float]) -> dict[int, float]:
    """The mean of every ten seconds, at their end: single seconds jump."""
    groups: dict[int, list[float]] = {}
    for second, value in points.items():
        groups.setdefault((second // GROUPED_S + 1) * GROUPED_S, []).append(value)
    return {end: mean(values) for end, values in groups.items()}
