"""Claims of seed 003 about geometry, ownership and single events: 1 to 6, 15, 29 and 30 to 33."""

from contextlib import suppress
from functools import cache
from statistics import mean

from nearcast.workloads.clustering import attractor_count
from nearcast_papers.paper import NotMeasuredError, Statement
from nearcast_papers.voronoi import examples, geometry
from nearcast_papers.voronoi.measures import Seen
from nearcast_papers.voronoi.scenarios import IDLE, SIZES

SEEDS = 100
CONSISTENT = 0.99
HELP_S = 20  # five periods of 3 s, and time to join


@cache
def regions() -> list[tuple[int, int]]:
    """Of the quad-tree and of VSO's rule."""
    return geometry.compared(SEEDS)


@cache
def ways() -> list[tuple[int, float]]:
    """Hops of greedy forwarding by number of matchers."""
    return [(matchers, geometry.hops(matchers)) for matchers in geometry.MATCHERS]


def fewer_regions(seen: Seen) -> tuple[str, bool]:
    trees, cells = (mean(pair[place] for pair in regions()) for place in (0, 1))
    alive = ""
    with suppress(NotMeasuredError):
        rows = seen.rows("population_by_second", limit=float(geometry.CAPACITY))
        late = [row["matchers"] for row in rows if row["second"] >= row["seconds"] * 2 / 3]
        alive = f"; VSO itself, simulated for one crowd: {mean(late):.1f} matchers"
    return (
        f"quad-tree {trees:.1f}, Voronoi {cells:.1f} regions, ratio {cells / trees:.2f}, of"
        f" {SEEDS} crowds{alive}",
        cells <= 0.75 * trees,
    )


def hotspots(_: Seen) -> tuple[str, bool]:
    return f"{attractor_count(100)} for 100 nodes", attractor_count(100) == 6


def greedy(_: Seen) -> tuple[str, bool]:
    power = geometry.exponent(ways())
    told = ", ".join(f"{hops:.1f} of {matchers:,}" for matchers, hops in ways())
    return f"exponent {power:.2f}; hops: {told}", abs(power - 0.5) <= 0.12


def consistent(seen: Seen) -> tuple[str, bool]:
    found = {nodes: seen.consistency(nodes) for nodes in seen.sizes()}
    told = ", ".join(f"{share:.2%} of {nodes:,}" for nodes, share in found.items())
    missing = [nodes for nodes in SIZES if nodes not in found]
    left = f"; {', '.join(map(str, missing))} not run in this form" if missing else ""
    return told + left, min(found.values()) >= CONSISTENT


def once(seen: Seen) -> tuple[str, bool]:
    rows = seen.everywhere("delivery_totals")
    twice, heard = (sum(row[name] for row in rows) for name in ("duplicates", "delivered"))
    return f"{twice} of {heard:,} deliveries in all runs, churn included", twice == 0


def one_owner(seen: Seen) -> tuple[str, bool]:
    calm = seen.rows("owners_by_epoch", churn_by="leave", crash_share=0.0)
    wild = seen.rows("owners_by_epoch", churn_by="crash")
    (taken, disputed), (rough, clash) = (
        (sum(row["taken"] for row in rows), sum(row["disputed"] for row in rows))
        for rows in (calm, wild)
    )
    return (
        f"{disputed} of {taken:,} epochs were taken by two in calm runs; under churn {clash} of"
        f" {rough:,}",
        disputed == 0,
    )


def relieved(seen: Seen) -> tuple[str, bool]:
    told, good = [], True
    for nodes in seen.sizes():
        begin = seen.lasted(nodes) * 2 / 3
        late = [one for one in seen.overloads(nodes) if one.last >= begin]
        longest = max((one.last - max(one.first, begin) + 1 for one in late), default=0.0)
        most = max((one.most for one in late), default=0)
        told.append(f"{longest:.0f} s (at most {most}) of {nodes:,}")
        good = good and longest <= HELP_S
    return f"longest above 20, in the last third: {', '.join(told)}", good


def idle_leave(seen: Seen) -> tuple[str, bool]:
    found = seen.tide(IDLE[0])
    return (
        f"{found.resigned} matchers resigned, the gateway {found.gateway_resigned} times;"
        f" {found.idle_at_end} without subscriptions were left",
        found.resigned > 0 and not found.gateway_resigned and not found.idle_at_end,
    )


def local(_: Seen) -> tuple[str, bool]:
    found = examples.failure()
    strangers = [site for site in found.changed if site not in found.enclosing]
    return (
        f"{found.adopted} of {found.orphans} subscriptions found a new owner; records changed at"
        f" {len(found.changed)} of {examples.SITES} sites, {len(strangers)} of which do not"
        f" enclose the dead one ({len(found.enclosing)} do)",
        not strangers and found.adopted == found.orphans > 0,
    )


def exact(_: Seen) -> tuple[str, bool]:
    worst = examples.formulas()
    return f"the part gone differs from F by at most {worst:.0e}", worst < 1e-9


CLAIMS = (
    Statement(
        1,
        "50 clustered entities, at most 10 to a region: about 10 of a quad-tree, 6 of Voronoi (2)",
        "Voronoi at most 0.75 of the quad-tree, mean of 100 seeds",
        fewer_regions,
        note="Entities stand where the paper's movement has brought them after a minute; all leaves"
        " of the quad-tree count; sites move and are inserted by VSO's rules until nothing is"
        " overloaded or empty for 30 s.",
    ),
    Statement(2, "1.5 ln(n) hotspots: 100 nodes have 6 (V)", "6", hotspots),
    Statement(
        3,
        "Greedy forwarding takes O(N^(1/2)) steps (III)",
        "exponent 0.5 ± 0.12 over 25 to 1,000 matchers",
        greedy,
        note="Geometry alone: uniform sites that know whoever encloses them.",
    ),
    Statement(
        4,
        "Outside churn, average discovery consistency is always above 99 % (V)",
        "at least 99 % from 10 s after the last has joined",
        consistent,
    ),
    Statement(
        5,
        "A published message is delivered to a subscriber only once (III)",
        "no delivery twice",
        once,
    ),
    Statement(
        6,
        "Each subscription has one owner; transfer is atomic (III-B)",
        "no epoch of a subscription taken by two",
        one_owner,
        note="Whoever takes a subscription notes its epoch. That at no step two own one is also"
        " checked by the simulator's tests.",
    ),
    Statement(
        15,
        "10 nodes per second of 50 are 20 % per second (V-B)",
        "arithmetic",
        lambda _: (f"{10 / 50:.0%}", 10 / 50 == 0.2),
    ),
    Statement(
        29,
        "1,000 nodes are ten times the density of a Second Life region (V-C)",
        "arithmetic: a region holds 100",
        lambda _: (f"{1000 / 100:g} times", 1000 / 100 == 10),
    ),
    Statement(
        30,
        "An overloaded matcher is relieved, by neighbours or by a new one (III-A)",
        "none above 20 for more than 15 s and 5 s to join, in the last third",
        relieved,
        note="The last third of a quick run begins before the largest crowd has settled: of 200"
        " nodes, less than a minute after the last has joined. Neighbours that come closer in vain"
        " delay an insertion by 15 s each time.",
    ),
    Statement(
        31,
        "A matcher without subscriptions leaves; the gateway stays (III-A)",
        "idle ones resign, the gateway never",
        idle_leave,
        note="When the crowd of `tide` has gone.",
    ),
    Statement(
        32,
        "A matcher's failure affects only those that enclose it (III-C)",
        "owners change nowhere else",
        local,
        note="25 matchers in rows, clients that stand still; the one with most dies.",
    ),
    Statement(
        33,
        "Sites move by a fraction F of the gap: formulas (1) and (2)",
        "exact",
        exact,
    ),
)
