"""Claims 10 to 24 and 34 to 36 of [Lucas2011]: the mobility model, its causes, its growth."""

from collections.abc import Callable
from contextlib import suppress
from statistics import mean

from nearcast.protocols.bubblestorm.messages import SubscriptionBubble
from nearcast_papers.bubblestorm.measures import (
    NAMES,
    ONE,
    PSENSE,
    PSENSE3D,
    SERVER,
    THREE,
    TWO,
    BubbleStormMeasures,
    Overlay,
    explanation_runs,
    fit_line,
    joining_runs,
    mobility_runs,
    recovery_seconds,
    scale_runs,
    values_between,
)
from nearcast_papers.bubblestorm.scenarios import (
    CRASH_AT_S,
    CRASHES,
    LONG_TIMEOUT_S,
    PEERS,
    SCALES,
    SHORT_TIMEOUT_S,
)
from nearcast_papers.fits import growth_exponent
from nearcast_papers.paper import NotMeasuredError, PaperClaim

JOINED_S = 128
CHURNED = {
    "Pub/Sub": ("bubblestorm", LONG_TIMEOUT_S),
    f"Pub/Sub that gives a link up after {SHORT_TIMEOUT_S:g} s": ("bubblestorm", SHORT_TIMEOUT_S),
    "pSense": ("psense", LONG_TIMEOUT_S),
}
LINEAR_S = 150
TRAFFIC = (
    "Bytes that a peer sends besides updates, with 28 of UDP and IP around each message, at the"
    " rate of the settled part, for 15 minutes: the thesis does not say what it adds up."
)


def accuracy(measures: BubbleStormMeasures, overlay: Overlay) -> float:
    return measures.confusion(**mobility_runs(overlay)).accuracy


def near(
    overlay: Overlay, percent: float, points: float
) -> Callable[[BubbleStormMeasures], tuple[str, bool]]:
    def rule(measures: BubbleStormMeasures) -> tuple[str, bool]:
        found = accuracy(measures, overlay)
        return f"{found:.1%}", abs(100 * found - percent) <= points

    return rule


def check_joined(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 10: Joining ends shortly after two minutes; nobody crashes (figure 5.2)."""
    joining = joining_runs(mobility_runs, ONE)
    lasts, fewest = [], []
    for one in measures.each_seed(**joining).values():
        running = one.running(**joining)
        most = max(running.values())
        lasts.append(min(second for second, peers in running.items() if peers == most))
        fewest.append(min(peers for second, peers in running.items() if second >= lasts[-1]))
    return (
        f"all after {min(lasts)} to {max(lasts)} s; {min(fewest)} peers at least from then on",
        min(fewest) == PEERS and all(120 <= last <= 150 for last in lasts),
    )


def check_linear(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 11: Traffic is flat while peers join, then linear (figures 5.3 and 5.4)."""
    text, good = [], True
    for overlay in (ONE, THREE):
        with suppress(NotMeasuredError):
            runs = joining_runs(mobility_runs, overlay)
            fits, slopes = [], []
            for one in measures.each_seed(**runs).values():
                curve = one.grown(False, **runs)
                fit, later = fit_line(curve, LINEAR_S, max(curve))
                fits.append(fit)
                slopes.append(fit_line(curve, 0, JOINED_S)[1] / later)
            text.append(
                f"{NAMES[overlay]}: R² {min(fits):.4f} at least after {LINEAR_S} s; slope while"
                f" joining at most {max(slopes):.0%} of the later one"
            )
            good = good and min(fits) >= 0.99 and max(slopes) < 0.6
    if not text:
        raise NotMeasuredError("peers that join one by one")
    return "; ".join(text), good


def check_lambda_3_costs_more(measures: BubbleStormMeasures) -> tuple[str, bool]:
    one, three = (measures.own_mib(**mobility_runs(overlay)) for overlay in (ONE, THREE))
    parts = [
        measures.rate((SubscriptionBubble.kind,), **mobility_runs(overlay))
        for overlay in (ONE, THREE)
    ]
    ratio, more = parts[1] / parts[0], three - one
    return (
        f"{one:.2f} MiB at λ = 1, {three:.2f} at λ = 3: {more:.2f} more per peer; bubbles alone"
        f" {ratio:.2f} times as many bytes",
        15.7 / 3 <= more <= 15.7 * 3 and ratio > 1,
    )


def check_cheapest(measures: BubbleStormMeasures) -> tuple[str, bool]:
    server, sense, ours = (
        measures.own_mib(**mobility_runs(one)) for one in (SERVER, PSENSE, THREE)
    )
    whole = [measures.all_mib(**mobility_runs(one)) for one in (SERVER, PSENSE, THREE)]
    return (
        f"client/server {1024 * server:.0f} KiB, pSense {sense:.1f} MiB, Pub/Sub λ = 3"
        f" {ours:.1f} MiB; with all updates {whole[0]:.1f}, {whole[1]:.1f} and {whole[2]:.1f} MiB",
        server < sense < ours and server <= 0.1 * sense,
    )


def check_psense_costs_less(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 14: pSense takes less than Pub/Sub, as nobody churns or jumps."""
    sense = measures.own_mib(**mobility_runs(PSENSE))
    ours = {
        certainty: measures.own_mib(**mobility_runs(certainty)) for certainty in (ONE, TWO, THREE)
    }
    whole = measures.all_mib(**mobility_runs(PSENSE)), measures.all_mib(**mobility_runs(ONE))
    text = ", ".join(f"{mib:.1f} MiB ({NAMES[one]})" for one, mib in ours.items())
    return (
        f"pSense {sense:.1f} MiB, {text}; with all updates pSense {whole[0]:.1f}, λ = 1"
        f" {whole[1]:.1f}",
        sense < ours[THREE],
    )


def check_psense_behind(measures: BubbleStormMeasures) -> tuple[str, bool]:
    ours, sense = accuracy(measures, ONE), accuracy(measures, PSENSE)
    return (
        f"pSense {sense:.1%}, {100 * (ours - sense):.1f} points below Pub/Sub",
        abs(100 * sense - 86) <= 5 and ours - sense >= 0.04,
    )


def check_psense3d(measures: BubbleStormMeasures) -> tuple[str, bool]:
    flat, round_ = accuracy(measures, PSENSE), accuracy(measures, PSENSE3D)
    return (
        f"pSense3D {round_:.1%}, pSense {flat:.1%}",
        abs(100 * round_ - 88.2) <= 5 and round_ >= flat - 0.01,
    )


def check_insensitive(measures: BubbleStormMeasures) -> tuple[str, bool]:
    found = {one: accuracy(measures, one) for one in (ONE, TWO, THREE)}
    text = ", ".join(f"{share:.1%} ({NAMES[one]})" for one, share in found.items())
    return text, abs(found[THREE] - found[ONE]) <= 0.01


def check_client_server(measures: BubbleStormMeasures) -> tuple[str, bool]:
    server, ours = accuracy(measures, SERVER), accuracy(measures, ONE)
    return (
        f"client/server {server:.1%}, Pub/Sub {ours:.1%}",
        abs(100 * server - 97.7) <= 2 and server >= ours,
    )


def check_order(measures: BubbleStormMeasures) -> tuple[str, bool]:
    ranked = (SERVER, ONE, PSENSE3D, PSENSE)
    found = [accuracy(measures, one) for one in ranked]
    text = ", ".join(f"{NAMES[one]} {share:.1%}" for one, share in zip(ranked, found, strict=True))
    return text, found == sorted(found, reverse=True) and len(set(found)) == len(found)


def check_timeouts(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 21: Errors come from timeouts of who has moved away."""
    found = {
        linger: measures.confusion(**explanation_runs(linger_s=linger))
        for linger in (0.0, 2.0, 5.0)
    }
    share = measures.confusion(**mobility_runs(ONE)).wrongly_known
    text = ", ".join(f"{one.accuracy:.1%} at {linger:g} s" for linger, one in found.items())
    return (
        f"accuracy {text}; {share:.0%} of errors at 5 s are peers known wrongly",
        found[0.0].accuracy > found[5.0].accuracy and share >= 0.8,
    )


def check_lead(measures: BubbleStormMeasures) -> tuple[str, bool]:
    sense = accuracy(measures, PSENSE)
    five, two = (
        measures.confusion(**explanation_runs(linger_s=linger)).accuracy for linger in (5.0, 2.0)
    )
    return (
        f"ahead of pSense by {100 * (five - sense):.1f} points at 5 s and by"
        f" {100 * (two - sense):.1f} at 2 s",
        two - sense > five - sense > 0,
    )


def check_cache(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 23: λ hardly matters because of the subscription cache."""
    recalls = {
        (held, certainty): measures.confusion(
            **explanation_runs(cache_s=held, **{"lambda": certainty})
        ).recall
        for held in (5.0, 0.0)
        for certainty in (1.0, 3.0)
    }  # fmt: skip
    text = ", ".join(
        f"{'with' if held else 'without'} it {recall:.1%} at λ = {certainty:g}"
        for (held, certainty), recall in recalls.items()
    )
    return f"recall {text}", recalls[5.0, 1.0] - recalls[0.0, 1.0] >= 0.1


def check_specific(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 24: Specificity is higher than pSense's (figures 5.7 and 5.8)."""
    ours, theirs = (measures.by_node(**mobility_runs(one)) for one in (THREE, PSENSE))
    both = [node for node in ours if node in theirs]
    better = mean(ours[node].specificity > theirs[node].specificity for node in both)
    text = mean(ours[n].specificity for n in both), mean(theirs[n].specificity for n in both)
    one = ours[15].specificity, theirs[15].specificity
    return (
        f"Pub/Sub's is higher for {better:.0%} of nodes: {text[0]:.2%} against {text[1]:.2%};"
        f" node 15: {one[0]:.2%} against {one[1]:.2%}",
        better >= 0.8,
    )


def check_growth(measures: BubbleStormMeasures) -> tuple[str, bool]:
    whole = [(float(n), n * measures.all_rate(**scale_runs(n))) for n in SCALES]
    own = [(float(n), n * measures.rate(**scale_runs(n))) for n in SCALES]
    part = [
        (float(n), n * measures.rate((SubscriptionBubble.kind,), **scale_runs(n))) for n in SCALES
    ]
    exponents = [growth_exponent(points) for points in (whole, own, part)]
    return (
        f"exponent {exponents[0]:.2f} for all traffic, {exponents[1]:.2f} without updates,"
        f" {exponents[2]:.2f} for bubbles, from {SCALES[0]} to {SCALES[-1]} peers",
        1.0 <= exponents[0] <= 1.5,
    )


def check_churn(measures: BubbleStormMeasures) -> tuple[str, bool]:
    """Claim 35: Under churn it should do very well: the next interval mends what a crash broke."""
    found = {share: measures.fallen(share) for share in CRASHES}
    backs = {
        share: recovery_seconds({s: one.accuracy for s, one in curve.items()}, 0.01)
        for share, curve in found.items()
    }
    recalls = {
        share: recovery_seconds({s: one.recall for s, one in curve.items()}, 0.02)
        for share, curve in found.items()
    }
    text = "; ".join(
        f"{share:.0%} crash: accuracy back within a point after {backs[share]} s, recall within"
        f" two after {recalls[share]} s"
        for share in CRASHES
    )
    steady = []
    for name, (protocol, dead_s) in CHURNED.items():
        with suppress(NotMeasuredError):
            curve = {s: one.recall for s, one in measures.churned(protocol, dead_s).items()}
            calm = mean(values_between(curve, CRASH_AT_S - 10, CRASH_AT_S))
            rough = mean(values_between(curve, CRASH_AT_S + 15, max(curve)))
            steady.append(f"{name} {calm:.1%} before and {rough:.1%} while it lasts")
    more = f"; one peer a second replaced: recall of {', '.join(steady)}" if steady else ""
    back = backs[0.2]
    return text + more, back is not None and back <= 3 + 5


def check_steady(measures: BubbleStormMeasures) -> tuple[str, bool]:
    found = {one: measures.spread(**mobility_runs(one)) for one in (ONE, THREE)}
    text = ", ".join(f"{100 * sd:.2f} points ({NAMES[one]})" for one, sd in found.items())
    return f"standard deviation over time {text}", max(found.values()) <= 0.02


CLAIMS = (
    PaperClaim(
        10,
        "Joining ends shortly after two minutes; nobody crashes (figure 5.2)",
        "128 peers after 120 to 150 s, and from then on",
        check_joined,
    ),
    PaperClaim(
        11,
        "Traffic is flat while peers join, then linear (figures 5.3 and 5.4)",
        "R² ≥ 0.99 after 150 s; slope while joining below 60 % of the later",
        check_linear,
    ),
    PaperClaim(
        12,
        "λ = 3 takes 15.7 MiB more than λ = 1",
        "5.2 to 47 MiB more, as bubbles reach more nodes",
        check_lambda_3_costs_more,
        soft=True,
        note=TRAFFIC
        + " That bubbles be 2.5 to 3.5 times as many bytes was a rule of ours: they are"
        " 40 to 11 replicas besides the origin's own, which costs nothing.",
    ),
    PaperClaim(
        13,
        "Client/server takes 100 KiB, pSense 11 MiB",
        "client/server < pSense < Pub/Sub λ = 3; client/server at most a tenth of pSense",
        check_cheapest,
        note=TRAFFIC + " The text has “Planet π4” where pSense must be meant.",
    ),
    PaperClaim(
        14,
        "pSense takes less than Pub/Sub, as nobody churns or jumps",
        "less than at λ = 3, the thesis' standard (5.3.1)",
        check_psense_costs_less,
        note=TRAFFIC
        + " The thesis does not say how often its pSense plays a round; ours does three"
        " times a second.",
    ),
    PaperClaim(
        15,
        "Accuracy of Pub/Sub at λ = 1: 95.4 % (figure 5.5)",
        "± 3 points",
        near(ONE, 95.4, 3),
        note="The speed of the mobility model is not told, and chosen so"
        " that this comes near; all else follows.",
    ),
    PaperClaim(
        16,
        "Accuracy of pSense: 86 % (figure 5.6)",
        "± 5 points, and at least 4 below Pub/Sub",
        check_psense_behind,
        note="The thesis' pSense kept 18 peers wrongly.",
    ),
    PaperClaim(
        17,
        "Accuracy of pSense3D: 88.2 %",
        "± 5 points, and not a point below pSense",
        check_psense3d,
    ),
    PaperClaim(
        18, "At λ = 3 it is 95.5 %: λ hardly matters", "within a point of λ = 1", check_insensitive
    ),
    PaperClaim(
        19,
        "Accuracy of client/server: 97.7 %",
        "± 2 points, and not below Pub/Sub",
        check_client_server,
    ),
    PaperClaim(20, "Order of accuracy", "client/server > Pub/Sub > pSense3D > pSense", check_order),
    PaperClaim(
        21,
        "Errors come from timeouts of who has moved away",
        "accuracy rises from 5 s to 0 s; at least 80 % of errors known wrongly",
        check_timeouts,
    ),
    PaperClaim(
        22,
        "Pub/Sub is ahead although it waits 5 s and pSense 2 s",
        "ahead, and by more when it waits 2 s too",
        check_lead,
    ),
    PaperClaim(
        23,
        "λ hardly matters because of the subscription cache",
        "without it recall at λ = 1 falls by at least 10 points",
        check_cache,
    ),
    PaperClaim(
        24,
        "Specificity is higher than pSense's (figures 5.7 and 5.8)",
        "of at least 80 % of the nodes",
        check_specific,
    ),
    PaperClaim(
        34,
        "Bandwidth grows virtually linearly with the number of peers",
        "total against n at one density: exponent 1.0 to 1.5",
        check_growth,
    ),
    PaperClaim(
        35,
        "Under churn it should do very well: the next interval mends what a crash broke",
        "after a crash of 20 % accuracy is back within three intervals and the timeout: 8 s",
        check_churn,
        note="Expected by the thesis, not run: its simulator had none. Steady churn is"
        " another matter: BubbleStorm notices a dead neighbour after 45 s, and until then"
        " what is cast to it is lost.",
    ),
    PaperClaim(
        36, "Accuracy is stable", "standard deviation over time at most 2 points", check_steady
    ),
)
