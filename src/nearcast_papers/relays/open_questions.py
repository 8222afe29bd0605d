"""Open questions of [Lehn], with real messages: a game, moving peers, forwarders that crash."""

from typing import Any

from nearcast_papers.paper import PaperClaim
from nearcast_papers.relays.measures import (
    SETTLED_FROM,
    RelayMeasures,
    churn_runs,
    game_runs,
    moving_runs,
    typical_runs,
)
from nearcast_papers.relays.scenarios import REPLACED, WALKS

CROWDED = 0.35  # of uplinks would be overloaded
ROOM = (
    "Uplinks were chosen with room to spare: where all together are too slow, relays spread the"
    " overload over everybody, though less is missed."
)


def halved(
    measures: RelayMeasures, off: dict[str, Any], on: dict[str, Any]
) -> tuple[str, bool, bool]:
    """What relays do to a run; whether enough were overloaded without; whether they helped."""
    before, after = measures.uplinks(**off), measures.uplinks(**on)
    lost, left = measures.delivered(**off), measures.delivered(**on)
    text = (
        f"{before.overloaded:.1%} of peers overloaded without, {after.overloaded:.1%} with;"
        f" updates missed {lost.missed:.2%}, {left.missed:.2%}; latency"
        f" {lost.latency * 1000:.0f}, {left.latency * 1000:.0f} ms"
    )
    good = after.overloaded <= before.overloaded / 2 and left.missed <= lost.missed
    return text, before.overloaded >= CROWDED, good


def check_relief(measures: RelayMeasures) -> tuple[str, bool]:
    measured, enough, good = halved(measures, typical_runs("off"), typical_runs("on"))
    return measured, enough and good


def check_game(measures: RelayMeasures) -> tuple[str, bool]:
    measured, enough, good = halved(measures, game_runs("off"), game_runs("on"))
    return measured, enough and good


def check_walking(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 27: Ours: relays help while all participants walk."""
    measured, _, good = halved(measures, moving_runs("off"), moving_runs("on"))

    def rounds(walk: float) -> str:
        direct, left = (
            measures.late("moving", what, walk=walk) for what in ("direct", "overloaded")
        )
        return f"{direct:.0%} to {left:.1%} at {walk:g}"

    model = ", ".join(map(rounds, WALKS))
    return (
        f"messages: {measured}; rounds: overloaded, by units walked between two of them: {model}",
        good,
    )


def check_crashes(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 28: Ours: relays help while forwarders crash."""
    measured, _, good = halved(measures, churn_runs("off"), churn_runs("on"))

    def rounds(share: float) -> str:
        return f"{measures.late('churn', 'overloaded', replaced=share):.1%} at {share:.0%}"

    def repaired() -> str:
        many = sum(measures.done_by_second("repaired", **churn_runs("on")).values())
        crashed = sum(measures.done_by_second("crashed", **churn_runs("on")).values())
        return f"{many:.0f} flows repaired after {crashed:.0f} crashes"

    model = ", ".join(map(rounds, REPLACED))
    return (
        f"messages: {measured}, {repaired()}; rounds: overloaded, by the share that is replaced"
        f" after each: {model}",
        good,
    )


CLAIMS = (
    PaperClaim(
        26, "Ours: with relays at most half as many peers are overloaded, and no more is missed",
        "where 35 % or more of the uplinks would be overloaded", check_relief, soft=True,
        note=f"Peers with real messages, over the last {1 - SETTLED_FROM:.0%} of the run."
        " Overloaded: what is to be sent, with headers and what was withheld, exceeds the uplink.",
    ),
    PaperClaim(
        27, "Ours: relays help while all participants walk", "half as many overloaded, no more"
        " missed", check_walking, soft=True, note=ROOM,
    ),
    PaperClaim(
        28, "Ours: relays help while forwarders crash", "half as many overloaded, no more missed",
        check_crashes, soft=True,
        note="One peer in a second crashes without a goodbye, and another joins. What is missed"
        f" counts for those who are there. {ROOM}",
    ),
    PaperClaim(
        31, "Ours: so they do in a game whose fleets crowd together (Planet π4)",
        "where 35 % or more of the uplinks would be overloaded", check_game, soft=True,
        note="The crowd grows while paths are optimised.",
    ),
)  # fmt: skip
