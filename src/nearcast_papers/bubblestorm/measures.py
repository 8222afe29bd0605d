"""The measures of [Lucas2011], read from result tables; runs of several seeds count together.

Traffic: the thesis plots one growing number and does not say of what. In the mobility model, where
its client/server needs 100 KiB in 15 minutes, it cannot contain the updates that every peer sends
ten times a second; in the game, where client/server needs 10 MiB, it must. So `own` traffic, which
an overlay sends besides publications, is compared in the mobility model, and `all` traffic in the
game. Both are bytes sent per peer on its line, headers of UDP and IP included, at the rate of the
settled part, for the duration of the thesis' runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, pstdev
from typing import Any, Self

from msgspec import Struct

from nearcast.protocols import client_server
from nearcast.protocols.bubblestorm.messages import (
    DirectPublication,
    PublicationBubble,
    RendezvousPublication,
)
from nearcast.protocols.psense.bandwidth_budget import HEADERS
from nearcast.protocols.psense.messages import PublicationMessage
from nearcast.scenario import Scenario
from nearcast_papers.bubblestorm.scenarios import (
    BOTS,
    CHURN,
    CRASH_AT_S,
    EXPLANATION_RATE,
    GAME_JOIN,
    LONG_TIMEOUT_S,
    MOBILITY_JOIN,
    PAPER_SETTINGS,
    PEERS,
    RADIUS,
    RATE,
    SHIP_RADIUS,
    SHIP_SPEED,
    SIZE,
)
from nearcast_papers.fits import line_fit
from nearcast_papers.paper import NotMeasuredError, PaperMeasures

MIB = 2**20
PUBLISHED = tuple(  # kinds of messages with a publication
    message.kind
    for message in (
        client_server.Post, client_server.Notify, DirectPublication, PublicationBubble,
        RendezvousPublication, PublicationMessage,
    )
)  # fmt: skip
PAPER_RUN_S = {"waypoint": 900.0, "planetpi4": 600.0}  # the thesis' runs
JOINING_S = {"waypoint": 128.0, "planetpi4": 240.0}
OUR_SHIPS = {"radius": SHIP_RADIUS, "speed": SHIP_SPEED, "bounded": True}
NAMES = {
    ("bubblestorm", 1.0): "Pub/Sub, λ = 1",
    ("bubblestorm", 2.0): "Pub/Sub, λ = 2",
    ("bubblestorm", 3.0): "Pub/Sub, λ = 3",
    ("psense", 2): "pSense",
    ("psense", 3): "pSense3D",
    ("client-server", 0): "client/server",
}
Overlay = tuple[str, float]
PUB_SUB = [overlay for overlay in NAMES if overlay[0] == "bubblestorm"]
ONE, TWO, THREE = PUB_SUB
PSENSE, PSENSE3D, SERVER = ("psense", 2), ("psense", 3), ("client-server", 0)


class ConfusionCounts(Struct, frozen=True):
    """Who was known, of whom, added up (table 5.1)."""

    true_positives: float
    false_positives: float
    false_negatives: float
    true_negatives: float

    @property
    def known(self) -> float:
        return self.true_positives + self.false_positives

    @property
    def should(self) -> float:
        return self.true_positives + self.false_negatives

    @property
    def accuracy(self) -> float:
        right = self.true_positives + self.true_negatives
        return right / max(1, right + self.false_positives + self.false_negatives)

    @property
    def precision(self) -> float:
        return self.true_positives / max(1, self.known)

    @property
    def recall(self) -> float:
        return self.true_positives / max(1, self.should)

    @property
    def specificity(self) -> float:
        return self.true_negatives / max(1, self.true_negatives + self.false_positives)

    @property
    def wrongly_known(self) -> float:
        """Of all errors, how many are false positives."""
        return self.false_positives / max(1, self.false_positives + self.false_negatives)


def sum_counts(rows: Iterable[Mapping[str, Any]]) -> ConfusionCounts:
    found = list(rows)
    return ConfusionCounts(
        *(float(sum(row[name] for row in found)) for name in ConfusionCounts.__struct_fields__)
    )


class BubbleStormMeasures(PaperMeasures):
    """The measures of the paper, over all seeds."""

    psense: Mapping[str, Any] = PAPER_SETTINGS["psense"]  # the runs of pSense that count
    headers = HEADERS  # bytes around each message
    ends = 1  # 2: what is received counts, too

    def _chosen(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What is compared has joined in the same way: λ = 1 alone was run in more than one."""
        if settings.get("protocol") == "psense":
            settings = {**settings, **self.psense}
        if not settings.pop("compared", False):
            return settings
        like = {name: settings[name] for name in ("workload", "nodes", "rate")} | overlay_settings(
            THREE
        )
        ways = {run.settings["join_rate"] for run in self._counted.runs(**like)}
        return settings | ({"join_rate": min(ways)} if ways else {})

    def runs(self, **settings: Any) -> list[Scenario]:
        settings = self._chosen(settings)
        return self._counted.require(**settings)

    def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        return self._counted.rows(table, **self._chosen(settings))

    def _settled(self, **settings: Any) -> dict[str, int]:
        return {row["run"]: row["second"] for row in self.rows("settled_since", **settings)}

    def _late(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        """Rows of the settled seconds; the last second is not whole."""
        since = self._settled(**settings)
        return [
            row
            for row in self.rows(table, **settings)
            if since[row["run"]] <= row["second"] < int(row["seconds"])
        ]

    def each_seed(self, **settings: Any) -> dict[int, Self]:
        """The measures of each seed alone, of those that have such runs."""
        return {run.seed: self.of_seed(run.seed) for run in self.runs(**settings)}

    # Who is known.

    def confusion(self, **settings: Any) -> ConfusionCounts:
        """Of all nodes, once a run has settled."""
        return sum_counts(self._late("sights_by_second", **settings))

    def by_node(self, **settings: Any) -> dict[int, ConfusionCounts]:
        found: dict[int, list[Mapping[str, Any]]] = {}
        for row in self.rows("sights_by_node", **settings):
            found.setdefault(row["node"], []).append(row)
        return {node: sum_counts(rows) for node, rows in sorted(found.items())}

    def follows(self, **settings: Any) -> float:
        """How known neighbours follow those that should be: correlation over time, of all nodes."""
        rows = self.rows("sights_by_node", **settings)
        return float(mean(row["follows"] for row in rows if row["follows"] is not None))

    def accuracy(self, **settings: Any) -> dict[int, float]:
        """By second, of the first seed."""
        return {s: one.accuracy for s, one in self.seconds("sights_by_second", **settings).items()}

    def seconds(self, table: str, **settings: Any) -> dict[int, ConfusionCounts]:
        run = self.runs(**settings)[0]
        rows = self._counted.table(table, run).to_pylist()
        ended = int(run.seconds)
        return {row["second"]: sum_counts([row]) for row in rows if 0 <= row["second"] < ended}

    def common_seconds(self, table: str, **settings: Any) -> dict[int, ConfusionCounts]:
        """By second, of all seeds together, for as long as all of them run."""
        ended = min(int(run.seconds) for run in self.runs(**settings))
        found: dict[int, list[Mapping[str, Any]]] = {}
        for row in self.rows(table, **settings):
            if 0 <= row["second"] < ended:
                found.setdefault(row["second"], []).append(row)
        return {second: sum_counts(rows) for second, rows in sorted(found.items())}

    def spread(self, **settings: Any) -> float:
        """Standard deviation of accuracy over settled seconds; the mean of runs."""
        by_run: dict[str, list[float]] = {}
        for row in self._late("sights_by_second", **settings):
            by_run.setdefault(row["run"], []).append(sum_counts([row]).accuracy)
        return mean(pstdev(values) for values in by_run.values())

    def difference(self, **settings: Any) -> float:
        """Mean distance between where neighbours are known to be and where they are."""
        rows = self._late("sights_by_second", **settings)
        known = [row for row in rows if row["difference"] is not None]
        weighted = sum(row["difference"] * row["known"] for row in known)
        return float(weighted / sum(row["known"] for row in known))

    # Peers.

    def running(self, **settings: Any) -> dict[int, int]:
        run = self.runs(**settings)[0]
        rows = self._counted.table("running_by_second", run).to_pylist()
        return {max(0, row["second"]): row["running"] for row in rows}

    # Traffic.

    def rate(self, kinds: Sequence[str] | None = None, **settings: Any) -> float:
        """Bytes per second and peer in the settled part; of these kinds, or all but updates."""
        since, runs = self._settled(**settings), self.runs(**settings)
        ended = {run.run: self._sent_until(run) for run in runs}
        rows = [
            row
            for row in self._late("traffic_by_second", **settings)
            if row["second"] < ended[row["run"]]
        ]
        seconds = sum((ended[run.run] - since[run.run]) * run.nodes for run in runs)
        wanted = (
            self._on_line(row)
            for row in rows
            if (row["kind"] in kinds if kinds is not None else row["kind"] not in PUBLISHED)
        )
        return float(sum(wanted) / seconds)

    def _sent_until(self, run: Scenario) -> int:
        """The first second that is not whole: nodes are looked at for the last time before it."""
        looks = self._counted.table("sights_by_second", run).column("second").to_pylist()
        return 1 + int(max(looks))

    def _on_line(self, row: Mapping[str, Any]) -> int:
        return int(self.ends * (row["bytes"] + self.headers * row["messages"]))

    def all_rate(self, **settings: Any) -> float:
        return self.rate(**settings) + self.rate(PUBLISHED, **settings)

    def own_mib(self, **settings: Any) -> float:
        """Per peer, in the time of the thesis, without updates."""
        return self.rate(**settings) * _paper_seconds(settings) / MIB

    def all_mib(self, **settings: Any) -> float:
        return self.all_rate(**settings) * _paper_seconds(settings) / MIB

    def grown(self, updates: bool, **settings: Any) -> dict[int, float]:
        """MiB sent until each second, per peer of the whole run: of the first seed."""
        run = self.runs(**settings)[0]
        ended = self._sent_until(run)
        by_second: dict[int, float] = {}
        for row in self._counted.table("traffic_by_second", run).to_pylist():
            if 0 <= row["second"] < ended and (updates or row["kind"] not in PUBLISHED):
                by_second[row["second"]] = by_second.get(row["second"], 0.0) + self._on_line(row)
        total, curve = 0.0, {}
        for second in range(ended):
            total += by_second.get(second, 0.0)
            curve[second] = total / run.nodes / MIB
        return curve

    def kinds(self, **settings: Any) -> dict[str, float]:
        """Bytes per second and peer by kind, in the settled part."""
        rows = self._late("traffic_by_second", **settings)
        names = sorted({row["kind"] for row in rows})
        return {name: self.rate((name,), **settings) for name in names}

    # Single tables.

    def reckoned(self) -> dict[str, Any]:
        return self.rings()["all"]

    def rings(self, rates: str = "") -> dict[str, dict[str, Any]]:
        """How far from the truth others are believed to be, by thirds of the area and of all."""
        rows = self.rows("position_difference", record="sums", rates=rates)
        if not rows:
            raise NotMeasuredError("deliveries")
        return {row["ring"]: row for row in rows}

    def inner_recall(self, radius: float) -> float:
        """Of those within the usual radius, how many are known if areas have this one."""
        rows = self.rows("inner_circle", **explanation_runs(radius=radius))
        return float(sum(row["known"] for row in rows) / sum(row["within"] for row in rows))

    def fallen(self, share: float) -> dict[int, ConfusionCounts]:
        """By second, of runs in which such a share crashes."""
        return self.common_seconds("sights_by_second", **crash_runs(share))

    def churned(self, protocol: str, dead_s: float = LONG_TIMEOUT_S) -> dict[int, ConfusionCounts]:
        return self.common_seconds("sights_by_second", **churn_runs(protocol, dead_s))


def _paper_seconds(settings: Mapping[str, Any]) -> float:
    """Of the thesis' run, as if all peers had been there from the middle of joining on."""
    workload = settings["workload"]
    return PAPER_RUN_S[workload] - JOINING_S[workload] / 2


# Which runs are meant.


def overlay_settings(overlay: Overlay) -> dict[str, Any]:
    protocol, number = overlay
    chosen: dict[str, Any] = {"protocol": protocol}
    if protocol == "bubblestorm":
        chosen |= {"lambda": number}
    elif protocol == "psense":
        chosen |= {"dimensions": number}
    return chosen


def mobility_runs(overlay: Overlay) -> dict[str, Any]:
    chosen = {"workload": "waypoint", "nodes": PEERS, "rate": RATE, "radius": RADIUS, "size": SIZE}
    return chosen | overlay_settings(overlay) | {"compared": True}


def game_runs(overlay: Overlay) -> dict[str, Any]:
    chosen: dict[str, Any] = {"workload": "planetpi4", "nodes": BOTS, "rate": RATE} | OUR_SHIPS
    return chosen | overlay_settings(overlay) | {"compared": True}


def joining_runs(world: Callable[[Overlay], dict[str, Any]], overlay: Overlay) -> dict[str, Any]:
    """The runs in which peers come one by one; brief ones have fewer updates."""
    chosen = world(overlay)
    del chosen["rate"]
    rate = {"waypoint": MOBILITY_JOIN, "planetpi4": GAME_JOIN}[chosen["workload"]]
    return chosen | {"compared": False, "join_rate": rate}


def explanation_settings() -> dict[str, Any]:
    """The plain run of those that explain; each of the others differs in one thing."""
    return {
        "workload": "waypoint", "protocol": "bubblestorm", "nodes": PEERS, "rate": EXPLANATION_RATE,
        "lambda": 1.0, "cache_s": 5.0, "linger_s": 5.0, "crash_share": 0.0, "churn_rate": 0.0,
        "radius": RADIUS, "join_rate": 0.0,
    }  # fmt: skip


def explanation_runs(**other: Any) -> dict[str, Any]:
    return explanation_settings() | other


def crash_runs(share: float) -> dict[str, Any]:
    return explanation_runs(crash_share=share)


def churn_runs(protocol: str, dead_s: float = LONG_TIMEOUT_S) -> dict[str, Any]:
    chosen = {"workload": "waypoint", "protocol": protocol, "churn_rate": CHURN}
    return chosen | ({"dead_s": dead_s} if protocol == "bubblestorm" else {})


def scale_runs(peers: int) -> dict[str, Any]:
    return {
        "workload": "waypoint", "protocol": "bubblestorm", "nodes": peers, "rate": RATE,
        "lambda": 1.0, "join_rate": 0.0, "churn_rate": 0.0,
    }  # fmt: skip


# Small arithmetic.


def fit_line(curve: Mapping[int, float], first: float, last: float) -> tuple[float, float]:
    """R² and slope of the straight line that fits best between two seconds."""
    points = [(float(x), y) for x, y in curve.items() if first <= x < last]
    if len(points) < 10:
        raise NotMeasuredError(f"ten seconds between {first:g} and {last:g}")
    slope, r_squared = line_fit(points)
    return r_squared, slope


def values_between(curve: Mapping[int, float], first: float, last: float) -> list[float]:
    found = [value for second, value in curve.items() if first <= second < last]
    if not found:
        raise NotMeasuredError(f"seconds between {first:g} and {last:g}")
    return found


def recovery_seconds(curve: Mapping[int, float], points: float) -> int | None:
    """Seconds after the crash until a mean of ten is back near what it was; None: it is not."""
    before = mean(values_between(curve, CRASH_AT_S - 10, CRASH_AT_S))
    for second in range(int(CRASH_AT_S), max(curve) - 9):
        if mean(values_between(curve, second, second + 10)) >= before - points:
            return second - int(CRASH_AT_S)
    return None
