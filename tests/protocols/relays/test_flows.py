"""Flows stay whole: whatever is decided at the same time, however late, and whoever dies."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import InvariantError
from nearcast.model.commands import Leave
from nearcast.protocols.relays.flow_table import FlowTable
from nearcast.protocols.relays.kernels import REDIR, SHORT
from nearcast.protocols.relays.parameters import Parameters
from nearcast.sim.checkers import Checker, DeliveredOnce
from nearcast.sim.network import ConstantDelay, Loss
from nearcast.space.motion import SECOND, Time
from support.examples import examples
from support.relay_peers import RelayNetwork, RelayNode, ScriptedDelays

INTERVAL: Time = 500_000
MISSES = 3
RESTORED = (MISSES + 1) * INTERVAL  # as `relays` states it
MEMBERS = 5
OTHERS = st.integers(0, MEMBERS - 1)


class Whole(Checker):
    """From each source, tables lead to each destination, over nobody twice."""

    def __init__(self, network: RelayNetwork) -> None:
        self.network = network
        self.longest = 0

    def passed(self, now: Time) -> None:
        for flow in self.network.flows():
            if flow not in self.network.relays(flow[0]).table.entries:
                continue
            path = self.network.path(flow)
            if path is None:
                raise InvariantError(f"at {now} the flow {flow} leads nowhere")
            self.longest = max(self.longest, len(path))


def once(_: RelayNetwork) -> Checker:
    return DeliveredOnce()


# All on two flows of one source, so that much happens at once.
acts = st.lists(
    st.tuples(
        st.integers(0, 70), OTHERS, st.just(0), st.sampled_from((1, 1, 2)), OTHERS, st.booleans()
    ),
    min_size=20,
    max_size=80,
)


def plan(network: RelayNetwork, chosen: list[tuple[int, int, int, int, int, bool]]) -> None:
    """At these moments, members on these paths ask for these operations, if they are any."""
    for t, node, source, destination, whom, shortens in chosen:
        if source == destination:
            continue

        def act(
            place: int = node, flow: tuple[int, int] = (source, destination), whom: int = whom,
            shortens: bool = shortens,
        ) -> None:  # fmt: skip
            path = network.path(flow)
            assert path is not None
            node = path[place % (len(path) - 1)]
            table = network.relays(node).table
            before = table.sole_lister(table.entries[flow])
            if shortens and flow[0] != node and before is not None:
                network.force(SHORT, node, flow, before)
            elif whom not in (node, table.entries[flow].next, *flow):
                network.force(REDIR, node, flow, whom)

        network.simulation.at(SECOND + t * 100_000, act)


@given(acts, st.lists(st.integers(1, INTERVAL - 1), min_size=1, max_size=30))
@examples(30)
def test_whatever_is_decided_at_once_and_however_late_it_is_known_nothing_is_lost(
    chosen: list[tuple[int, int, int, int, int, bool]], delays: list[int]
) -> None:
    network = RelayNetwork(MEMBERS, ScriptedDelays(delays), (Whole, once), optimises=False)
    network.publish_every(90_000, 10 * SECOND, [0])
    plan(network, chosen)
    network.pass_seconds(13)
    node_ids = {(number, node) for _, number, _ in network.published for node in range(1, MEMBERS)}
    assert network.delivered() == node_ids


def test_those_plans_do_make_long_paths_and_shorten_them_again() -> None:
    rng = Random(4)
    chosen = [
        (rng.randrange(70), *(rng.randrange(MEMBERS) for _ in range(4)), rng.random() < 0.4)
        for _ in range(250)
    ]
    watch: list[Whole] = []

    def whole(network: RelayNetwork) -> Checker:
        watch.append(Whole(network))
        return watch[0]

    network = RelayNetwork(MEMBERS, ConstantDelay(40_000), (whole, once), optimises=False)
    network.publish_every(250_000, 9 * SECOND)
    plan(network, chosen)
    network.pass_seconds(9)
    facts = [row["fact"] for row in notes(network)]
    assert facts.count("redirected") > 20
    assert facts.count("shortened") > 3
    assert watch[0].longest >= 4


def notes(network: RelayNetwork) -> list[dict]:
    network.simulation.recorder.flush()
    return network.memory.table("notes").to_pylist()


def chained(path: list[int], delays: object = None) -> RelayNetwork:
    """A network in which the flow from the first to the last goes over all of these."""
    network = RelayNetwork(6, delays or ConstantDelay(30_000), (once,), optimises=False)
    network.publish_every(100_000, 20 * SECOND)
    network.pass_seconds(1)
    flow = path[0], path[-1]
    for node, whom in pairwise(path[:-1]):
        network.force(REDIR, node, flow, whom)
        network.pass_seconds(1)
    assert network.path(flow) == path
    return network


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_when_a_forwarder_crashes_its_flows_are_restored_in_time(gone: int) -> None:
    network = chained([0, 1, 2, 3, 5])
    network.simulation.crash(gone)
    crashed = network.simulation.now
    network.simulation.run(crashed + RESTORED)
    path = network.path((0, 5))
    assert path is not None
    assert gone not in path
    network.simulation.run(crashed + RESTORED + 5 * SECOND)
    lost = {
        number for t, number, publisher in network.published
        if publisher == 0 and t > crashed + RESTORED and t < network.simulation.now - SECOND
        and (number, 5) not in network.delivered()
    }  # fmt: skip
    assert lost == set()


def test_a_forwarder_that_comes_back_knowing_nothing_is_found_out_within_two_intervals() -> None:
    network = chained([0, 1, 2, 5])
    network.simulation.crash(1)
    network.simulation.start(RelayNode(1, network.node_ids, network.parameters, optimises=False))
    network.simulation.run(network.simulation.now + 2 * INTERVAL)
    assert network.path((0, 5)) == [0, 5]


def test_a_forwarder_that_leaves_says_so_and_nothing_is_lost_after_a_moment() -> None:
    network = chained([0, 1, 2, 5])
    network.simulation.obey(1, Leave())
    left = network.simulation.now
    network.pass_seconds(0.05)
    assert network.path((0, 5)) == [0, 5]
    network.pass_seconds(2)
    later = [n for t, n, s in network.published if s == 0 and left + 50_000 < t < left + SECOND]
    assert later
    assert all((number, 5) in network.delivered() for number in later)


def test_what_nobody_relies_on_any_more_is_forgotten() -> None:
    network = chained([0, 1, 2, 3, 5])
    network.simulation.crash(0)
    network.pass_seconds(8)
    for node in (1, 2, 3):
        assert not network.relays(node).table.of(0)


def test_a_flow_that_ends_is_dropped_by_its_forwarder_at_once() -> None:
    network = chained([0, 1, 5])
    network.member(0).others.remove(5)
    network.pass_seconds(4 * 0.5 + 0.7)
    assert (0, 5) not in network.relays(0).table.entries
    assert (0, 5) not in network.relays(1).table.entries


@pytest.mark.parametrize("seed", range(3))
def test_after_loss_has_ended_every_flow_is_whole_again(seed: int) -> None:
    rng = Random(seed)
    lossless = ConstantDelay(30_000)
    network = RelayNetwork(6, Loss(0.3, rng, lossless), (once,), capacity=4_000.0)
    network.publish_every(125_000, 20 * SECOND)
    network.pass_seconds(8)
    assert sum(row["fact"] == "redirected" for row in notes(network)) > 3
    network.simulation.network = lossless
    network.simulation.run(network.simulation.now + 2 * RESTORED)
    assert network.broken() == []


def test_a_chain_learns_how_long_the_rest_of_the_way_takes() -> None:
    network = chained([0, 1, 2, 5], ConstantDelay(30_000))
    network.pass_seconds(3)
    hold = Parameters().hold_ms * 1000
    first = network.relays(0).table.entries[0, 5]
    assert first.rest == pytest.approx(2 * 30_000, rel=0.1)
    ahead = network.relays(5)._latency_from[0]
    assert 3 * 30_000 * 0.9 <= ahead <= (3 * 30_000 + 2 * hold) * 1.1


def test_a_flow_with_a_pending_request_is_not_changed_by_others() -> None:
    table, flow = FlowTable(0, INTERVAL, MISSES), (0, 5)
    table.open(flow, 1, 0.5, 0, 0)
    assert table.may_shorten(flow, 1, 3)
    number = table.ask(flow, REDIR, 2, 0)
    assert not table.may_shorten(flow, 1, 3)
    assert table.answered(flow, 3, number, True, 1) is None, "that one was not asked"
    assert table.answered(flow, 2, number + 1, True, 1) is None, "nor that"
    assert table.answered(flow, 2, number, True, 1) is not None
    assert table.entries[flow].next == 2
    assert table.may_shorten(flow, 2, 1)


def test_an_answer_after_its_request_timed_out_changes_nothing() -> None:
    table, flow = FlowTable(0, INTERVAL, MISSES), (0, 5)
    table.open(flow, 1, 0.5, 0, 0)
    number = table.ask(flow, REDIR, 2, 0)
    assert table.answered(flow, 2, number, True, MISSES * INTERVAL) is None
    assert table.entries[flow].next == 1


def test_a_peer_is_on_a_path_once_and_leaves_it_only_with_one_previous_hop() -> None:
    table, flow = FlowTable(3, INTERVAL, MISSES), (0, 5)
    assert table.may_redirect(flow, 4)
    assert not table.may_redirect((0, 3), 4)
    assert not table.may_redirect((3, 5), 4)
    assert not table.may_redirect(flow, 0)
    entry = table.open(flow, 4, 0.5, 0, 0)
    assert entry is not None
    assert not table.may_redirect(flow, 4)
    assert table.rely(flow, 1, 0)
    assert table.sole_lister(entry) == 1
    assert table.rely(flow, 2, INTERVAL)
    assert table.sole_lister(entry) is None
    table.forget(MISSES * INTERVAL + 1)
    assert table.sole_lister(entry) == 2


@pytest.mark.parametrize(("source", "also_to"), [(1, ()), (0, (5,))])
def test_after_a_redirect_only_peers_in_the_middle_of_a_path_send_twice_for_an_interval(
    source: int, also_to: tuple[int, ...]
) -> None:
    """What a source sends after the Accept, the forwarder cannot have had before."""
    table, flow = FlowTable(1, INTERVAL, MISSES), (source, 5)
    entry = table.open(flow, 5, 0.5, 0, 0)
    assert entry is not None
    number = table.ask(flow, REDIR, 3, 0)
    assert table.answered(flow, 3, number, True, 10) is not None
    assert table.sent_to(entry, 20) == (3, *also_to)
    assert table.sent_to(entry, 10 + INTERVAL + 1) == (3,)
