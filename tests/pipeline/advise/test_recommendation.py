"""The rules of a recommendation, on tables made up for them."""

import pytest
from msgspec.structs import replace

from nearcast.pipeline.advise.candidates import OverlayCandidate
from nearcast.pipeline.advise.recommendation import (
    AdviceLimits,
    Growth,
    RunRecord,
    crossed_limits,
    judge_growth,
    recommend,
)
from support.advice import GOOD

LIMITS = AdviceLimits(recall=0.99, latency_ms=150, uplink_kbit=1000, server_mbit=100)
NODE = OverlayCandidate(name="node", protocol="cluster", needs_server=True, servers=1)
PAIR = OverlayCandidate(name="cluster-2", protocol="cluster", needs_server=True, servers=2)
BROKERS = OverlayCandidate(name="brokers", protocol="brokers", needs_server=True, servers=5)
VON = OverlayCandidate(name="von", protocol="von")
TREE = OverlayCandidate(name="drtree", protocol="drtree")


def measured(candidate: OverlayCandidate, **by_crowd: dict[str, float]) -> Growth:
    """`x2={"recall": 0.5}`: at twice the crowd, all is well but the recall."""
    records = [
        RunRecord(candidate=candidate.name, crowd=float(name[1:]), nodes=1, status="measured",
                  measures=replace(GOOD, **changes))
        for name, changes in by_crowd.items()
    ]  # fmt: skip
    return judge_growth(candidate, records, LIMITS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"recall": 0.99, "p99_ms": 150.0, "peer_max_bytes_s": 125e3}, []),  # at the limits
        ({"recall": 0.9899}, ["recall 98.99 % is below 99 %"]),
        ({"p99_ms": 151.0}, ["p99 latency 151 ms is above 150 ms"]),
        ({"peer_max_bytes_s": 126e3}, ["the busiest peer sends 126 kB/s"]),
        ({"server_max_bytes_s": 13e6}, ["the busiest server sends 13 MB/s"]),
        ({"recall": 0.5, "p99_ms": 1500.0}, ["recall 50 %", "p99 latency 1.5 s"]),
        ({"recall": None, "p99_ms": None}, ["nobody was within reach"]),
    ],
)
def test_every_limit_that_is_crossed_is_named(changes: dict[str, float], words: list[str]) -> None:
    crossed = crossed_limits(replace(GOOD, **changes), LIMITS)
    assert len(crossed) == len(words)
    assert all(word in text for word, text in zip(words, crossed, strict=True))


def test_what_breaks_first_is_the_smallest_crowd_beyond_a_limit() -> None:
    growth = measured(VON, x1={}, x2={}, x5={"peer_max_bytes_s": 2e5}, x10={"recall": 0.1})
    assert (growth.holds_to, growth.breaks_at) == (2, 5)
    assert growth.breaks == (
        "the busiest peer sends 200 kB/s, more than its uplink of 1,000 kbit/s",
    )


def test_nothing_is_said_beyond_a_crowd_that_was_not_measured() -> None:
    records = [
        RunRecord(candidate="von", crowd=1.0, nodes=1, status="measured", measures=GOOD),
        RunRecord(candidate="von", crowd=2.0, nodes=2, status="too slow", reason="after 9 s"),
        RunRecord(candidate="von", crowd=5.0, nodes=5, status="measured", measures=GOOD),
    ]
    growth = judge_growth(VON, records, LIMITS)
    assert (growth.holds_to, growth.breaks_at, growth.unknown) == (1, None, "2×: after 9 s")


def names(*growths: Growth) -> tuple[str | None, str | None]:
    """What is recommended with and without servers."""
    both = [recommend(growths, LIMITS, with_server=with_server).candidate
            for with_server in (True, False)]  # fmt: skip
    return both[0].name if both[0] else None, both[1].name if both[1] else None


def test_a_server_is_recommended_where_one_may_be_run() -> None:
    cheap = {"peer_max_bytes_s": 1.0}
    assert names(measured(NODE, x1={}), measured(VON, x1=cheap, x2=cheap)) == ("node", "von")


def test_one_node_unless_more_of_them_hold_longer() -> None:
    assert names(measured(PAIR, x1={}, x2={}), measured(NODE, x1={}, x2={}))[0] == "node"
    full = {"server_max_bytes_s": 1e9}
    assert names(measured(NODE, x1={}, x2=full), measured(PAIR, x1={}, x2={}))[0] == "cluster-2"


def test_of_peers_who_holds_longest_then_whose_busiest_sends_least() -> None:
    low, high = {"peer_max_bytes_s": 10.0}, {"peer_max_bytes_s": 20.0}
    assert names(measured(VON, x1=high), measured(TREE, x1=low))[1] == "drtree"
    assert names(measured(VON, x1=high, x2=high), measured(TREE, x1=low))[1] == "von"


def test_what_needs_a_server_is_no_answer_for_peers() -> None:
    assert names(measured(BROKERS, x1={})) == ("brokers", None)


def test_if_nothing_is_within_the_limits_the_nearest_are_named() -> None:
    late, deaf = {"p99_ms": 900.0}, {"recall": 0.2, "p99_ms": 900.0}
    answer = recommend([measured(VON, x1=deaf), measured(TREE, x1=late)], LIMITS, with_server=True)
    assert answer.candidate is None
    assert answer.reasons[0] == "nothing that was measured is within all limits"
    assert answer.reasons[1].startswith("drtree: p99 latency")
    assert answer.reasons[2].startswith("von: recall 20 %")


def test_reasons_have_the_figures_and_what_comes_next() -> None:
    best = measured(VON, x1={}, x2={"recall": 0.9})
    answer = recommend([best, measured(TREE, x1={"peer_max_bytes_s": 9e4})], LIMITS,
                       with_server=False)  # fmt: skip
    assert answer.candidate == VON
    assert "up to 1× the crowd: recall 100 %" in answer.reasons[0]
    assert "drtree holds to 1×; at 1× its busiest peer sends 90 kB/s" in answer.reasons[1]
    assert answer.reasons[2] == "at 2× it breaks: recall 90 % is below 99 %"


def test_a_part_of_the_crowd_counts_less_than_all_of_it() -> None:
    part = measured(VON, **{"x0.5": {"peer_max_bytes_s": 1.0}})
    assert part.holds_to == 0.5
    assert names(part, measured(TREE, x1={}))[1] == "drtree"
    assert names(part)[1] == "von"
    other = measured(TREE, **{"x0.25": {}})
    assert names(part, other, measured(NODE, x1={})) == ("node", "von")
    assert names(other, measured(VON, **{"x0.25": {}, "x0.5": {}}))[1] == "von"


def test_client_server_stands_for_a_node_that_was_too_slow_to_simulate() -> None:
    simple = OverlayCandidate(
        name="client-server", protocol="client-server", needs_server=True, servers=1
    )
    both = [measured(NODE, x1={}), measured(simple, x1={}, x2={}, x5={})]
    answer = recommend(both, LIMITS, with_server=True)
    assert answer.candidate == NODE
    assert (
        "client-server, which stands for it in its simplest form, is within them up to 5×"
        in (answer.reasons[1])
    )
    assert not any("holds to" in reason for reason in answer.reasons)
    broken = [measured(NODE, x1={}, x2={"p99_ms": 999.0}), both[1]]
    assert recommend(broken, LIMITS, with_server=True).candidate == simple
