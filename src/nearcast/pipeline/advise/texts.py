"""An advice in words, for the terminal."""

from collections.abc import Sequence

from nearcast.pipeline.advise.advise import Advice
from nearcast.pipeline.advise.deployment import Deployment
from nearcast.pipeline.advise.measures import warm_up
from nearcast.pipeline.advise.recommendation import Growth, Recommendation, RunRecord, group_records
from nearcast.pipeline.report.formatting import milliseconds, number, rate, share
from nearcast.sim.settings import CLUSTER

HEADS: tuple[str, ...] = (
    "overlay", "crowd", "recall", "p99", "peer sends", "busiest", "server sends", "CPU",
    "holds to", "what breaks first",
)  # fmt: skip
CPU_NOTE = (
    "CPU is that of the simulating process per node and simulated second, with joining and the"
    " simulator's own work: compare overlays roughly, and take it for no machine's load"
)


def advice_lines(advice: Advice) -> list[str]:
    """The recommendation, the world, one line for each overlay, and what was not tried."""
    lines = [*recommendation_lines("Run", advice.recommendation, advice.deployment), ""]
    if advice.without_server is not None:
        lines += [
            *recommendation_lines(
                "Without a server", advice.without_server, advice.without_server_deployment
            ),
            "",
        ]
    lines += [world_line(advice), limits_line(advice), ""]
    lines += table_lines(advice.growths)
    lines += ["", *(f"note: {text}" for text in notes(advice))]
    return lines


def recommendation_lines(
    head: str, what: Recommendation, deployment: Deployment | None
) -> list[str]:
    name = what.candidate.name if what.candidate else "nothing that was tried"
    lines = [f"{head}: {name}", *(f"  - {reason}" for reason in what.reasons)]
    if deployment is not None:
        if deployment.settings_file:
            lines += ["  nearcast.toml:"]
            lines += [f"    {line}" for line in deployment.settings_file.splitlines()]
        lines += [f"  $ {command}" for command in deployment.commands]
        lines += [f"  ({note})" for note in deployment.notes]
    return lines


def world_line(advice: Advice) -> str:
    f = advice.facts
    return (
        f"world: {f.entities:,} entities, {f.seconds:g} s from second {f.window_at_s:,.6g} of"
        f" {f.recorded_s:,.6g}, {f.publications:,} publications of {number(f.payload)} bytes, areas"
        f" of radius {number(f.radius)}{' in 3-D' if f.is_deep else ''}"
    )


def limits_line(advice: Advice) -> str:
    limits = advice.options.limits
    return (
        f"limits: recall {share(limits.recall)}, p99 {milliseconds(limits.latency_ms)} (a message"
        f" takes {milliseconds(advice.options.one_way_ms)}), {limits.uplink_kbit:,g} kbit/s up for"
        f" a peer, {limits.server_mbit:,g} Mbit/s for a server"
    )


def table_lines(growths: Sequence[Growth]) -> list[str]:
    """One line for each candidate, with what was measured at the smallest crowd that was."""
    rows = [HEADS, *map(table_row, growths)]
    widths = [max(len(row[k]) for row in rows) for k in range(9)]
    return [
        "  ".join([
            row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in range(1, 9)), row[9]
        ]).rstrip()
        for row in rows
    ]  # fmt: skip


def table_row(growth: Growth) -> tuple[str, ...]:
    if not growth.at:
        return growth.candidate.name, *["–"] * 8, end_of(growth)
    crowd = shown_crowd(growth)
    m = growth.at[crowd]
    return (
        growth.candidate.name, f"{crowd:.4g}×", share(m.recall), milliseconds(m.p99_ms),
        rate(m.peer_bytes_s), rate(m.peer_max_bytes_s),
        rate(m.server_max_bytes_s) if m.server_max_bytes_s else "–",
        f"{m.cpu_ms_per_node_s:.3g} ms", f"{growth.holds_to:.4g}×" if growth.holds_to else "–",
        end_of(growth),
    )  # fmt: skip


def shown_crowd(growth: Growth) -> float:
    """The recorded crowd, or the largest part of it that was measured."""
    return 1.0 if 1.0 in growth.at else max(growth.at, default=1.0)


def end_of(growth: Growth) -> str:
    """What breaks first, or why that is not known."""
    if growth.breaks_at is not None:
        return f"{growth.breaks_at:.4g}×: {growth.breaks[0]}"
    if growth.unknown:
        return f"not measured at {growth.unknown}"
    return f"nothing up to {growth.holds_to:.4g}×; more was not tried"


def notes(advice: Advice) -> list[str]:
    """What a reader must know to judge the advice: what is assumed, and what was not tried."""
    f = advice.facts
    found = []
    if advice.interrupted:
        found.append("interrupted: rounds are missing")
    if f.is_file:
        found.append(
            f"the file has positions only: every entity is assumed to want what is within"
            f" {number(f.radius)} units"
            + ("" if f.radius_given else " (a hundredth of the world; say it with --radius)")
            + f" of its last fix, and to publish {number(f.payload)} bytes at each"
        )
    if f.faster != 1:
        found.append(f"time runs {f.faster:g} times as fast as recorded (--faster): so do rates")
    found.append(
        f"the first {warm_up(f.seconds):.3g} s of the window are not judged: in the simulation"
        " everybody has just arrived"
    )
    found.append(
        "a crowd grows denser: copies of recorded entities, displaced by up to a tenth of an area,"
        f" begin elsewhere within {f.spare_s:g} s, in the same space. A wider world was not tried"
    )
    if f.is_deep:
        found.append(
            "no overlay refuses a 3-D world; von, vso and cluster divide space by x and y, and"
            " check z where a publication arrives"
        )
    if f.has_formulas:
        found.append("areas by formulas are not displaced: their copies differ in time alone")
    found.append(
        "not tried: lost messages, jitter, slow lines, crashes, other networks than"
        f" {advice.options.one_way_ms:g} ms for every message (1 ms between servers), other seeds,"
        " parameters that are not in the table"
    )
    found.append(CPU_NOTE)
    if any(each.protocol == CLUSTER for each in advice.candidates):
        found.append(
            "a node's trace begins when a publication reaches it: the way from the client"
            f" ({advice.options.one_way_ms:g} ms) was added to its latencies"
        )
    found += missing_runs(advice.records)
    tried = {each.candidate for each in advice.records}
    if untried := [each.name for each in advice.candidates if each.name not in tried]:
        found.append(
            f"not tried, because the main form was not measured with the recorded crowd:"
            f" {', '.join(untried)}"
        )
    found += [f"{name} was not tried: {why}" for name, why in advice.left_out.items()]
    return found


def missing_runs(records: Sequence[RunRecord]) -> list[str]:
    """For each candidate that lacks runs: which crowds, and why the first of them."""
    found = []
    for name, runs in group_records(records).items():
        lost = [each for each in runs if each.measures is None]
        if lost:
            crowds = ", ".join(f"{each.crowd:.4g}×" for each in lost)
            found.append(f"{name} was not measured at {crowds}: {lost[0].status}, {lost[0].reason}")
    return found
