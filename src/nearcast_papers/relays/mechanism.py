"""Claims 1 to 5 of [Lehn]: what an operation does, and what it costs."""

from itertools import pairwise
from statistics import mean
from struct import calcsize

from nearcast.protocols.relays.cost_model import Weights, bounds_at
from nearcast.protocols.relays.uplink import HEADERS
from nearcast_papers.paper import NotMeasuredError, PaperClaim
from nearcast_papers.relays import examples
from nearcast_papers.relays.examples import HEADER, PAYLOAD
from nearcast_papers.relays.measures import RelayMeasures
from nearcast_papers.relays.scenarios import EPSILONS

# The fields of headers without options: RFC 791, RFC 768, RFC 9293.
IPV4, UDP, TCP = (calcsize(fields) for fields in ("!BBHHHBBHII", "!HHHH", "!HHIIHHHH"))


def check_piggybacked(_: RelayMeasures) -> tuple[str, bool]:
    found = examples.figure_1()
    halved = 2 * found.c_after == found.c_before
    one_more = found.b_after - found.b_before == PAYLOAD and found.b_before == PAYLOAD + HEADER
    return (
        f"C sends {found.c_before:g}, then {found.c_after:g} bytes; B {found.b_before:g}, then"
        f" {found.b_after:g}, where a message has {PAYLOAD:g} and its header {HEADER:g}",
        halved and one_more,
    )


def check_targets(_: RelayMeasures) -> tuple[str, bool]:
    wanted, unwanted = (bounds_at(interest, Weights()).target for interest in (1.0, 0.0))
    return (
        f"{wanted:g} s at interest 1, {unwanted:g} s at 0",
        abs(wanted - 0.125) < 1e-12 and abs(unwanted - 0.5) < 1e-12,
    )


def check_headers(_: RelayMeasures) -> tuple[str, bool]:
    return (
        f"UDP {IPV4 + UDP}, TCP {IPV4 + TCP} bytes; the message protocol counts {HEADERS}",
        (IPV4 + UDP, IPV4 + TCP, HEADERS) == (28, 40, 28),
    )


def check_paths_stay_whole(measures: RelayMeasures) -> tuple[str, bool]:
    tried = examples.try_random_operations()
    twice = measures.twice()
    return (
        f"{tried.redirected} REDIR and {tried.shortened} SHORT by chance, all paths walked after"
        f" each: none ended or looped, {tried.wrong} changed by anything but one; message"
        f" protocol: {twice} of {measures.all_delivered():,} deliveries came twice",
        tried.wrong == 0 and twice == 0,
    )


def check_worth_it(measures: RelayMeasures) -> tuple[str, bool]:
    """A round's operations gain at least ε each: one follows the other, so gains add up."""
    text, counts, turns, enough = [], [], [], True
    for epsilon in EPSILONS:
        counts.append(measures.operations("threshold", lambda m: m.redirected, epsilon=epsilon))
        turns.append(measures.operations("threshold", lambda m: m.shortened, epsilon=epsilon))
        text.append(f"{counts[-1]:.0f} REDIR and {turns[-1]:.0f} SHORT at ε = {epsilon:g}")
        for one in measures.rounds("threshold", epsilon=epsilon):
            for before, after in pairwise(one.states):
                least = epsilon * (after.redirected + after.shortened)
                enough &= before.cost - after.cost >= least - 1e-9 * before.cost
    falls = all(a > b for a, b in pairwise(counts)) and all(a >= b for a, b in pairwise(turns))
    return (
        f"in {len(one.states) - 1} rounds {', '.join(text)}; every round gained ε for each of its"
        f" operations: {'yes' if enough else 'no'}; utilisation in the end"
        f" {measures.ended('threshold', 'mean', epsilon=EPSILONS[0]):.2f} to"
        f" {measures.ended('threshold', 'mean', epsilon=EPSILONS[-1]):.2f}",
        falls and enough,
    )


def check_violated(measures: RelayMeasures) -> tuple[str, bool]:
    shares = sorted({one.scenario.violations for one in measures.rounds("violations")})
    found = {share: measures.ended("violations", "stretch", violations=share) for share in shares}
    text = ", ".join(f"{stretch:.2f} with {share:.0%}" for share, stretch in found.items())
    return f"latency stretch {text} of the pairs slowed", all(
        a > b for a, b in pairwise(found.values())
    )


def check_uneven(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 29: Ours: sources that say more than others do not keep relays from helping."""
    factors = sorted({one.scenario.factor for one in measures.rounds("rates")})
    found = {
        factor: (
            measures.began("rates", "overloaded", factor=factor),
            measures.ended("rates", "overloaded", factor=factor),
        )
        for factor in factors
    }
    if not found:
        raise NotMeasuredError("uneven rates")
    text = ", ".join(f"{a:.0%} to {b:.1%} at {factor:g}" for factor, (a, b) in found.items())
    worst = max(b / a for a, b in found.values())
    half = mean(b for _, b in found.values())
    return (
        f"overloaded, by how many times more some say than others: {text}; {half:.1%} on average",
        worst <= 0.5,
    )


CLAIMS = (
    PaperClaim(
        1,
        "In the cluster of figure 1, C halves its bandwidth, and B adds one message to its own",
        "exactly",
        check_piggybacked,
    ),
    PaperClaim(
        2, "Target latency is 0.125 s at interest 1 and 0.5 s at 0", "exactly", check_targets
    ),
    PaperClaim(3, "Headers are 28 bytes with UDP, 40 with TCP", "exactly", check_headers),
    PaperClaim(
        4,
        "REDIR lengthens a path by one, SHORT shortens it by one; flows stay whole",
        "always",
        check_paths_stay_whole,
    ),
    PaperClaim(
        5,
        "An operation is taken if it gains ε; greater ε, fewer operations and oscillations",
        "every round's cost falls by ε for each operation; REDIR and SHORT fall with ε",
        check_worth_it,
    ),
)
OURS = (
    PaperClaim(
        29,
        "Ours: sources that say more than others do not keep relays from helping",
        "at most half as many overloaded, whatever the spread",
        check_uneven,
        soft=True,
        note="Round model alone: the message protocol has no workload with such sources.",
    ),
    PaperClaim(
        30,
        "Where the triangle inequality is violated, relays lose less latency (footnote 1)",
        "stretch falls as more pairs are slower than a detour",
        check_violated,
        soft=True,
    ),
)
