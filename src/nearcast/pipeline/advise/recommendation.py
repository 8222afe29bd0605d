"""What a measured table says: which limit each overlay crosses first, and which one to run.

The rules are here, in order, and nowhere else; each gives its reason.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.pipeline.advise.candidates import OverlayCandidate
from nearcast.pipeline.advise.measures import Measures
from nearcast.pipeline.report.formatting import milliseconds, rate, share

NODE = "node"  # one live node; see `candidates`
KBIT, MBIT = 1000 / 8, 1e6 / 8  # bytes


class AdviceLimits(Struct, frozen=True, kw_only=True):
    """What must hold for an overlay to be of use."""

    recall: float = 0.99
    latency_ms: float = 150.0
    uplink_kbit: float = 1000.0
    server_mbit: float = 100.0

    def __post_init__(self) -> None:
        between("recall", self.recall, 0, 1)
        between("latency_ms", self.latency_ms, 0, 1e9)
        between("uplink_kbit", self.uplink_kbit, 1, 1e7)
        between("server_mbit", self.server_mbit, 0.001, 1e7)


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run that was wanted, and what became of it."""

    candidate: str
    crowd: float
    nodes: int
    run: str = ""
    status: str = "not run"  # measured | too slow | failed | not run
    reason: str = ""
    measures: Measures | None = None


class Growth(Struct, frozen=True, kw_only=True):
    """How an overlay fares as the crowd grows."""

    candidate: OverlayCandidate
    holds_to: (
        float  # the largest crowd up to which every one was measured and within limits; 0: none
    )
    breaks_at: float | None  # the first crowd at which a limit is crossed
    breaks: tuple[str, ...]  # which ones, in words
    unknown: str  # why nothing is known beyond `holds_to`, if nothing is
    at: dict[float, Measures]


class Recommendation(Struct, frozen=True, kw_only=True):
    """What to run, and why; no candidate: nothing that was measured is within the limits."""

    candidate: OverlayCandidate | None
    holds_to: float
    reasons: tuple[str, ...]


def crossed_limits(measures: Measures, limits: AdviceLimits) -> tuple[str, ...]:
    """Which limits a run is beyond, in words; the first is the worst for users."""
    m = measures
    found = []
    if m.recall is None:
        found.append("nobody was within reach of any publication, so nothing can be judged")
    elif m.recall < limits.recall:
        found.append(f"recall {share(m.recall)} is below {share(limits.recall)}")
    if m.p99_ms is not None and m.p99_ms > limits.latency_ms:
        found.append(
            f"p99 latency {milliseconds(m.p99_ms)} is above {milliseconds(limits.latency_ms)}"
        )
    if m.peer_max_bytes_s > limits.uplink_kbit * KBIT:
        found.append(
            f"the busiest peer sends {rate(m.peer_max_bytes_s)}, more than its uplink of"
            f" {limits.uplink_kbit:,g} kbit/s"
        )
    if m.server_max_bytes_s > limits.server_mbit * MBIT:
        found.append(
            f"the busiest server sends {rate(m.server_max_bytes_s)}, more than its line of"
            f" {limits.server_mbit:,g} Mbit/s"
        )
    return tuple(found)


def judge_growth(
    candidate: OverlayCandidate, records: Iterable[RunRecord], limits: AdviceLimits
) -> Growth:
    """What is known of one candidate, crowd by crowd."""
    ordered = sorted(records, key=lambda each: each.crowd)
    holds_to, unknown = 0.0, ""
    at = {each.crowd: each.measures for each in ordered if each.measures is not None}
    for each in ordered:
        if each.measures is None:
            unknown = unknown or f"{each.crowd:.4g}×: {each.reason or each.status}"
            continue
        crossed = crossed_limits(each.measures, limits)
        if crossed:
            return Growth(
                candidate=candidate, holds_to=holds_to, breaks_at=each.crowd, breaks=crossed,
                unknown="", at=at,
            )  # fmt: skip
        if not unknown:
            holds_to = each.crowd
    return Growth(
        candidate=candidate, holds_to=holds_to, breaks_at=None, breaks=(), unknown=unknown, at=at
    )


def rank(growth: Growth) -> tuple[float, ...]:
    """The smaller, the better: who holds longer; then fewer servers; then the busiest peer."""
    m = growth.at[growth.holds_to]
    return -growth.holds_to, growth.candidate.servers, m.peer_max_bytes_s, m.p99_ms or 0.0


def recommend(
    growths: Sequence[Growth], limits: AdviceLimits, *, with_server: bool
) -> Recommendation:
    """Rule 1: only what is within all limits with the recorded crowd, or what of it was simulated.
    Rule 2: a server, where one may be run: it is exact, and costs clients least.
    Rule 3: who holds for the largest crowd. Rule 4: the fewest servers. Rule 5: the least bytes of
    the busiest peer.
    """
    usable = [each for each in growths if each.holds_to > 0]
    allowed = [each for each in usable if with_server or not each.candidate.needs_server]
    if not allowed:
        return Recommendation(candidate=None, holds_to=0.0, reasons=why_none(growths, with_server))
    servers = [each for each in allowed if is_served(each.candidate)]
    longest = best = min(servers or allowed, key=rank)
    node = next((each for each in servers if each.candidate.name == NODE), None)
    stands_for_node = best.candidate.protocol == "client-server"
    if stands_for_node and node is not None and node.breaks_at is None and node.holds_to >= 1:
        best = node  # the same service; the other one is less of it, and simulated faster
    reasons = [reason_of(best, limits)]
    if best is not longest:
        reasons.append(
            f"client-server, which stands for it in its simplest form, is within them up to"
            f" {longest.holds_to:.4g}×"
        )
    if servers:
        reasons.append(
            "a server is exact, takes the fewest messages from clients, and is the simplest to"
            " run; --no-server asks for peers only"
        )
    rivals = [
        each
        for each in allowed
        if each.holds_to >= best.holds_to and not is_same_service(each, best)
    ]
    reasons += [text for each in sorted(rivals, key=rank)[:2] for text in compared(best, each)]
    if best.breaks_at is not None:
        reasons.append(f"at {best.breaks_at:.4g}× it breaks: {'; '.join(best.breaks)}")
    elif best.unknown:
        reasons.append(
            f"beyond {best.holds_to:.4g}× nothing is known: not measured at {best.unknown}"
        )
    return Recommendation(candidate=best.candidate, holds_to=best.holds_to, reasons=tuple(reasons))


def is_served(candidate: OverlayCandidate) -> bool:
    """Do servers do all the work? A broker network and a directory leave some to others."""
    return candidate.protocol in ("cluster", "client-server")


def is_same_service(one: Growth, other: Growth) -> bool:
    """Is one the other, or what stands for it?"""
    names = {each.candidate.name for each in (one, other)}
    return len(names) == 1 or names == {NODE, "client-server"}


def reason_of(growth: Growth, limits: AdviceLimits) -> str:
    m = growth.at[growth.holds_to]
    server = (
        f", the busiest server {rate(m.server_max_bytes_s)} of {limits.server_mbit:g} Mbit/s"
        if m.server_max_bytes_s
        else ""
    )
    return (
        f"{growth.candidate.name} is within all limits up to {growth.holds_to:.4g}× the crowd:"
        f" recall {share(m.recall)}, p99 {milliseconds(m.p99_ms)}, the busiest peer sends"
        f" {rate(m.peer_max_bytes_s)}{server}"
    )


def compared(best: Growth, other: Growth) -> list[str]:
    """The other one at the largest crowd that both were measured with, if there is one."""
    crowd = max(best.at.keys() & other.at.keys(), default=None)
    if crowd is None:
        return []
    ours, theirs = best.at[crowd], other.at[crowd]
    return [
        f"{other.candidate.name} holds to {other.holds_to:.4g}×; at {crowd:.4g}× its busiest peer"
        f" sends {rate(theirs.peer_max_bytes_s)} (here {rate(ours.peer_max_bytes_s)}), p99"
        f" {milliseconds(theirs.p99_ms)} (here {milliseconds(ours.p99_ms)})"
    ]


def why_none(growths: Sequence[Growth], with_server: bool) -> tuple[str, ...]:
    """The overlays that came nearest, and what keeps them out."""
    nearest = sorted(
        (each for each in growths
         if each.breaks and (with_server or not each.candidate.needs_server)),
        key=lambda each: (len(each.breaks), -(min(each.at.items())[1].recall or 0.0)),
    )  # fmt: skip
    return (
        "nothing that was measured is within all limits",
        *(f"{each.candidate.name}: {'; '.join(each.breaks)}" for each in nearest[:3]),
    )


def group_records(records: Iterable[RunRecord]) -> Mapping[str, list[RunRecord]]:
    found: dict[str, list[RunRecord]] = {}
    for each in records:
        found.setdefault(each.candidate, []).append(each)
    return found
